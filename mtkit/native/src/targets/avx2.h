// The vector operations of AVX2 and FMA: a register holds 8 numbers.

using Part = __m256;
using IntPart = uint32_t __attribute__((vector_size(32)));
constexpr int PARTS = 2;
constexpr int SUMS[] = {6, 4, 4};  // see `panels_for`
constexpr int INPUT_BYTES = 4;  // of an input of `dot`; see `store_inputs`
constexpr int ZERO_POINT = 0;  // what is added to the inputs of `dot`
constexpr int VARIANT_BYTES = 256;  // of the table in `signs.h`

MTKIT_INLINE Part broadcast_part(float a) { return _mm256_set1_ps(a); }
MTKIT_INLINE Part fma_part(Part a, Part b, Part c) { return _mm256_fmadd_ps(a, b, c); }
MTKIT_INLINE Part max(Part a, Part b) { return _mm256_max_ps(a, b); }
MTKIT_INLINE Part min(Part a, Part b) { return _mm256_min_ps(a, b); }
MTKIT_INLINE Part zero_unless_greater(Part x, Part a, Part b) {
    return _mm256_and_ps(x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
MTKIT_INLINE uint32_t greater_mask(Part a, Part b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
}

MTKIT_INLINE Part to_float(IntPart a) { return _mm256_cvtepi32_ps(__m256i(a)); }
MTKIT_INLINE IntPart round_part(Part a) { return IntPart(_mm256_cvtps_epi32(a)); }
// Add to `sum` the products of unsigned bytes, `absolute`, and signed ones, the weights; the sum of
// two products is multiplied by a factor. It does not saturate 16 bits, because all bytes are from
// -127 to 127. `where` the weights are: "x" in a register, "m" in memory. With intrinsics, GCC 12
// keeps the sums of a product in memory; and with weights that may be there ("xm"), Clang puts them
// there.
#define MTKIT_ADD_PAIRS(sum, absolute, where, weights, factors)                       \
    {                                                                                 \
        IntPart pairs;                                                                \
        asm("vpmaddubsw %2, %3, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"       \
            : "+x"(sum), "=&x"(pairs) : where(weights), "x"(absolute), "x"(factors)); \
    }
// The weights, negated where one of the four signs is negative, and 0 where it is 0.
MTKIT_INLINE IntPart with_signs(IntPart weights, uint32_t signs) {
    return IntPart(_mm256_sign_epi8(__m256i(weights), __m256i(IntPart{} + signs)));
}
MTKIT_INLINE IntPart dot_part(IntPart sum, IntPart weights, const int8_t* x) {
    const IntPart signed_weights = with_signs(weights, load_as<uint32_t>(x));
    const IntPart absolute = IntPart{} + load_as<uint32_t>(x + 4), ones = IntPart{} + 0x00010001;
    MTKIT_ADD_PAIRS(sum, absolute, "x", signed_weights, ones)
    return sum;
}

MTKIT_INLINE void add_part(double* sums, Part a) {
    store_as(sums, load_as<__m256d>(sums) + _mm256_cvtps_pd(_mm256_castps256_ps128(a)));
    store_as(sums + 4, load_as<__m256d>(sums + 4) + _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
}
MTKIT_INLINE float sum_of_part(Part a) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
MTKIT_INLINE float max_of_part(Part a) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
// Four inputs are 16 bytes: the inputs; their absolute values; the signs of the first and of the
// third in 16 bits each, 1 or -1; and where their variant is in a table of `signs.h`, in 32 bits.
MTKIT_INLINE void store_inputs(int8_t* p, const IntPart (&a)[PARTS]) {
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packs_epi32(__m256i(a[0]), __m256i(a[1])), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words),
                                          _mm256_extracti128_si256(words, 1));
    const __m128i first = _mm_slli_epi16(bytes, 8), differ = _mm_xor_si128(bytes, first);
    const __m128i signs = _mm_or_si128(_mm_srai_epi16(first, 15), _mm_set1_epi16(1));
    // The number of the variant is in bits 15 and 31 of `differ`; they move to bits 8 and 9.
    const __m128i variant = _mm_or_si128(
        _mm_and_si128(_mm_srli_epi32(differ, 7), _mm_set1_epi32(VARIANT_BYTES)),
        _mm_and_si128(_mm_srli_epi32(differ, 22), _mm_set1_epi32(2 * VARIANT_BYTES)));
    const __m128i absolute = _mm_abs_epi8(bytes);
    const __m128i low = _mm_unpacklo_epi32(bytes, absolute);
    const __m128i high = _mm_unpackhi_epi32(bytes, absolute);
    const __m128i low_signs = _mm_unpacklo_epi32(signs, variant);
    const __m128i high_signs = _mm_unpackhi_epi32(signs, variant);
    __m128i* out = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(out, _mm_unpacklo_epi64(low, low_signs));
    _mm_storeu_si128(out + 1, _mm_unpackhi_epi64(low, low_signs));
    _mm_storeu_si128(out + 2, _mm_unpacklo_epi64(high, high_signs));
    _mm_storeu_si128(out + 3, _mm_unpackhi_epi64(high, high_signs));
}
// The sums of 16 registers, each added as `sum_of_part` adds, with fewer instructions.
MTKIT_INLINE void sums_of_parts(const Part (&rows)[16], Part (&out)[PARTS]) {
    for (int half = 0; half < 2; ++half) {
        Part four[4], two[2];
        MTKIT_UNROLL
        for (int i = 0; i < 4; ++i) {
            const Part a = rows[8 * half + i], b = rows[8 * half + i + 4];
            four[i] = _mm256_permute2f128_ps(a, b, 0x20) + _mm256_permute2f128_ps(a, b, 0x31);
        }
        MTKIT_UNROLL
        for (int i = 0; i < 2; ++i) {
            const Part a = four[2 * i], b = four[2 * i + 1];
            two[i] = _mm256_shuffle_ps(a, b, 0x44) + _mm256_shuffle_ps(a, b, 0xee);
        }
        out[half] = _mm256_shuffle_ps(two[0], two[1], 0x88)
                    + _mm256_shuffle_ps(two[0], two[1], 0xdd);
    }
}
