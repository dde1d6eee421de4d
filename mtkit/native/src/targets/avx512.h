// The vector operations of AVX-512 (F, BW, DQ, VL, VNNI): a register holds 16 numbers.

using Part = __m512;
using IntPart = uint32_t __attribute__((vector_size(64)));
constexpr int PARTS = 1;
constexpr int SUMS[] = {24, 24, 24};  // see `panels_for`
constexpr int INPUT_BYTES = 1;  // of an input of `dot`
constexpr int ZERO_POINT = 128;  // what is added to the inputs of `dot`

MTKIT_INLINE Part broadcast_part(float a) { return _mm512_set1_ps(a); }
MTKIT_INLINE Part fma_part(Part a, Part b, Part c) { return _mm512_fmadd_ps(a, b, c); }
MTKIT_INLINE Part max(Part a, Part b) { return _mm512_max_ps(a, b); }
MTKIT_INLINE Part min(Part a, Part b) { return _mm512_min_ps(a, b); }
MTKIT_INLINE Part zero_unless_greater(Part x, Part a, Part b) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), x);
}
MTKIT_INLINE uint32_t greater_mask(Part a, Part b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }

MTKIT_INLINE Part to_float(IntPart a) { return _mm512_cvtepi32_ps(__m512i(a)); }
MTKIT_INLINE IntPart round_part(Part a) { return IntPart(_mm512_cvtps_epi32(a)); }
// With the intrinsic, GCC 12 keeps the sums of a product in memory.
MTKIT_INLINE IntPart dot_part(IntPart sum, IntPart weights, const int8_t* x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(IntPart{} + load_as<uint32_t>(x)), "v"(weights));
    return sum;
}
#ifdef MTKIT_BF16_DOT
// Add to 16 sums the products of two numbers in bf16 at x and those of the weights.
MTKIT_INLINE Part dot_part(Part sum, IntPart weights, const int8_t* x) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(IntPart{} + load_as<uint32_t>(x)), "v"(weights));
    return sum;
}
#endif

MTKIT_INLINE void add_part(double* sums, Part a) {
    store_as(sums, load_as<__m512d>(sums) + _mm512_cvtps_pd(_mm512_castps512_ps256(a)));
    store_as(sums + 8, load_as<__m512d>(sums + 8) + _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)));
}
MTKIT_INLINE float sum_of_part(Part a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
MTKIT_INLINE float max_of_part(Part a) { return _mm512_reduce_max_ps(a); }
MTKIT_INLINE void store_inputs(int8_t* p, const IntPart (&a)[PARTS]) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(__m512i(a[0])));
}
// The sums of 16 registers, each added as `sum_of_part` adds, with fewer instructions.
MTKIT_INLINE void sums_of_parts(const Part (&rows)[16], Part (&out)[PARTS]) {
    // A register has four blocks of four lanes. `eight[i]` is the sum of the halves of row
    // i % 4 + 8 * (i / 4) in its lower two blocks, and of the row four after it in the upper two.
    // `four[i]` has the sums of the rows i, i + 4, i + 8 and i + 12, a block each; at the end row i
    // is in lane i.
    Part eight[8], four[4], two[2];
    MTKIT_UNROLL
    for (int i = 0; i < 8; ++i) {
        const Part a = rows[i % 4 + i / 4 * 8], b = rows[i % 4 + i / 4 * 8 + 4];
        eight[i] = _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xee);
    }
    MTKIT_UNROLL
    for (int i = 0; i < 4; ++i) {
        const Part a = eight[i], b = eight[i + 4];
        four[i] = _mm512_shuffle_f32x4(a, b, 0x88) + _mm512_shuffle_f32x4(a, b, 0xdd);
    }
    MTKIT_UNROLL
    for (int i = 0; i < 2; ++i) {
        const Part a = four[2 * i], b = four[2 * i + 1];
        two[i] = _mm512_shuffle_ps(a, b, 0x44) + _mm512_shuffle_ps(a, b, 0xee);
    }
    out[0] = _mm512_shuffle_ps(two[0], two[1], 0x88) + _mm512_shuffle_ps(two[0], two[1], 0xdd);
}
