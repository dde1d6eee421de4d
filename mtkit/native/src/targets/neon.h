// The vector operations of NEON with dot products: a register holds 4 numbers.

using Part = float32x4_t;
using IntPart = uint32x4_t;
constexpr int PARTS = 4;
constexpr int SUMS[] = {6, 6, 4};  // see `panels_for`
constexpr int INPUT_BYTES = 1;  // of an input of `dot`
constexpr int ZERO_POINT = 0;  // what is added to the inputs of `dot`

MTKIT_INLINE Part broadcast_part(float a) { return vdupq_n_f32(a); }
MTKIT_INLINE Part fma_part(Part a, Part b, Part c) { return vfmaq_f32(c, a, b); }
MTKIT_INLINE Part max(Part a, Part b) { return vmaxq_f32(a, b); }
MTKIT_INLINE Part min(Part a, Part b) { return vminq_f32(a, b); }
MTKIT_INLINE Part zero_unless_greater(Part x, Part a, Part b) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), vcgtq_f32(a, b)));
}
MTKIT_INLINE uint32_t greater_mask(Part a, Part b) {
    static constexpr uint32_t BITS[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(vcgtq_f32(a, b), vld1q_u32(BITS)));
}

MTKIT_INLINE Part to_float(IntPart a) { return vcvtq_f32_s32(int32x4_t(a)); }
MTKIT_INLINE IntPart round_part(Part a) { return IntPart(vcvtnq_s32_f32(a)); }
MTKIT_INLINE IntPart dot_part(IntPart sum, IntPart weights, const int8_t* x) {
    const IntPart four = IntPart{} + load_as<uint32_t>(x);
    return IntPart(vdotq_s32(int32x4_t(sum), int8x16_t(weights), int8x16_t(four)));
}

MTKIT_INLINE void add_part(double* sums, Part a) {
    store_as(sums, load_as<float64x2_t>(sums) + vcvt_f64_f32(vget_low_f32(a)));
    store_as(sums + 2, load_as<float64x2_t>(sums + 2) + vcvt_high_f64_f32(a));
}
MTKIT_INLINE float sum_of_part(Part a) {
    const float32x2_t two = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(vpadd_f32(two, two), 0);
}
MTKIT_INLINE float max_of_part(Part a) { return vmaxvq_f32(a); }
MTKIT_INLINE void store_inputs(int8_t* p, const IntPart (&a)[PARTS]) {
    const uint16x8_t low = vcombine_u16(vmovn_u32(a[0]), vmovn_u32(a[1]));
    const uint16x8_t high = vcombine_u16(vmovn_u32(a[2]), vmovn_u32(a[3]));
    store_as(p, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
}
// The sums of 16 registers, each added as `sum_of_part` adds, with fewer instructions.
MTKIT_INLINE void sums_of_parts(const Part (&rows)[16], Part (&out)[PARTS]) {
    MTKIT_UNROLL
    for (int i = 0; i < 4; ++i) {
        Part two[2];
        MTKIT_UNROLL
        for (int j = 0; j < 2; ++j) {
            const float64x2_t a = vreinterpretq_f64_f32(rows[4 * i + 2 * j]);
            const float64x2_t b = vreinterpretq_f64_f32(rows[4 * i + 2 * j + 1]);
            two[j] = vreinterpretq_f32_f64(vzip1q_f64(a, b))
                     + vreinterpretq_f32_f64(vzip2q_f64(a, b));
        }
        out[i] = vpaddq_f32(two[0], two[1]);
    }
}
