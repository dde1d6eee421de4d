// The vector operations of plain C++: a register is one number. Nothing is unrolled: there are no
// registers to keep numbers in, and compilers would take minutes.

#undef MTKIT_UNROLL
#define MTKIT_UNROLL

using Part = float;
using IntPart = uint32_t;
constexpr int PARTS = 16;
constexpr int SUMS[] = {1, 1, 1};  // see `panels_for`
constexpr int INPUT_BYTES = 1;  // of an input of `dot`
constexpr int ZERO_POINT = 0;  // what is added to the inputs of `dot`

MTKIT_INLINE Part broadcast_part(float a) { return a; }
MTKIT_INLINE Part fma_part(Part a, Part b, Part c) { return __builtin_fmaf(a, b, c); }
MTKIT_INLINE Part max(Part a, Part b) { return a > b ? a : b; }
MTKIT_INLINE Part min(Part a, Part b) { return a < b ? a : b; }
MTKIT_INLINE Part zero_unless_greater(Part x, Part a, Part b) { return a > b ? x : 0.0f; }
MTKIT_INLINE uint32_t greater_mask(Part a, Part b) { return a > b; }

MTKIT_INLINE Part to_float(IntPart a) { return float(int32_t(a)); }
// Half to even; out of range gives INT32_MIN, as x86 does.
MTKIT_INLINE IntPart round_part(Part a) {
    if (!(a > -2147483648.0f && a < 2147483648.0f)) return 0x80000000;
    return IntPart(int32_t(__builtin_rintf(a)));
}
MTKIT_INLINE IntPart dot_part(IntPart sum, IntPart weights, const int8_t* x) {
    int8_t w[4];
    __builtin_memcpy(w, &weights, 4);
    for (int i = 0; i < 4; ++i) sum += IntPart(w[i] * x[i]);
    return sum;
}

MTKIT_INLINE void add_part(double* sums, Part a) { *sums += a; }
MTKIT_INLINE float sum_of_part(Part a) { return a; }
MTKIT_INLINE float max_of_part(Part a) { return a; }
MTKIT_INLINE void store_inputs(int8_t* p, const IntPart (&a)[PARTS]) {
    for (int i = 0; i < PARTS; ++i) p[i] = int8_t(a[i]);
}
MTKIT_INLINE void sums_of_parts(const Part (&rows)[16], Part (&out)[PARTS]) {
    for (int i = 0; i < PARTS; ++i) out[i] = rows[i];
}
