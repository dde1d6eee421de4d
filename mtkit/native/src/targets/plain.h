// The vector operations of plain C++: a register is one number. Nothing is unrolled: there are no
// registers to keep numbers in, and compilers would take minutes.

#undef MTKIT_UNROLL
#define MTKIT_UNROLL

using Part = float;
using IntPart = int32_t;
constexpr int PARTS = 16;
constexpr int SUMS = 1;       // pairs of row and panel that a product computes at a time
constexpr int BF16_SUMS = 1;  // the same in bf16
constexpr int BYTE_SUMS = 1;  // the same in 8 bits
constexpr int INPUT_BYTES = 1;  // of an input of `dot`
constexpr int ZERO_POINT = 0;  // what is added to the inputs of `dot`

MTKIT_INLINE Part load_part(const float* p) { return *p; }
MTKIT_INLINE void store_part(float* p, Part a) { *p = a; }
MTKIT_INLINE Part broadcast_part(float a) { return a; }
MTKIT_INLINE Part fma_part(Part a, Part b, Part c) { return __builtin_fmaf(a, b, c); }
MTKIT_INLINE Part max(Part a, Part b) { return a > b ? a : b; }
MTKIT_INLINE Part min(Part a, Part b) { return a < b ? a : b; }
MTKIT_INLINE Part zero_unless_greater(Part x, Part a, Part b) { return a > b ? x : 0.0f; }
MTKIT_INLINE uint32_t greater_mask(Part a, Part b) { return a > b; }

MTKIT_INLINE IntPart load_int_part(const void* p) {
    IntPart a;
    __builtin_memcpy(&a, p, 4);
    return a;
}
MTKIT_INLINE IntPart broadcast_int_part(int32_t a) { return a; }
MTKIT_INLINE IntPart add(IntPart a, IntPart b) {
    return static_cast<IntPart>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
MTKIT_INLINE IntPart sub(IntPart a, IntPart b) {
    return static_cast<IntPart>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
}
MTKIT_INLINE IntPart bit_and(IntPart a, IntPart b) { return a & b; }
template <int N>
MTKIT_INLINE IntPart shift_left_part(IntPart a) {
    return static_cast<IntPart>(static_cast<uint32_t>(a) << N);
}
template <int N>
MTKIT_INLINE IntPart shift_right_part(IntPart a) {
    return static_cast<IntPart>(static_cast<uint32_t>(a) >> N);
}
MTKIT_INLINE Part to_float(IntPart a) { return static_cast<float>(a); }
// Half to even; out of range gives INT32_MIN, as x86 does.
MTKIT_INLINE IntPart round_part(Part a) {
    if (!(a > -2147483648.0f && a < 2147483648.0f)) return INT32_MIN;
    return static_cast<int32_t>(__builtin_rintf(a));
}
MTKIT_INLINE IntPart dot_part(IntPart sum, IntPart weights, const int8_t* x) {
    int8_t w[4];
    __builtin_memcpy(w, &weights, 4);
    for (int i = 0; i < 4; ++i) sum += w[i] * x[i];
    return sum;
}

MTKIT_INLINE float sum_of_part(Part a) { return a; }
MTKIT_INLINE float max_of_part(Part a) { return a; }
MTKIT_INLINE void store_inputs(int8_t* p, const IntPart (&a)[PARTS]) {
    for (int i = 0; i < PARTS; ++i) p[i] = static_cast<int8_t>(a[i]);
}
MTKIT_INLINE void sums_of_parts(const Part (&rows)[16], Part (&out)[PARTS]) {
    for (int i = 0; i < PARTS; ++i) out[i] = rows[i];
}
