// Functions of sixteen numbers and of whole rows: exp, log, SiLU, rounding, layer norm.

constexpr int CACHED_BYTES = 1 << 18;  // of a matrix or of rows that stay in the L2 cache

MTKIT_INLINE int min_int(int a, int b) { return a < b ? a : b; }
MTKIT_INLINE int max_int(int a, int b) { return a > b ? a : b; }

constexpr double LOG_2 = 0.693147180559945309417;
constexpr float LOG2_E = 1.44269504088896341f;

// exp(x) / 2ᵏ of a whole number k, to 2 units in the last place: 0 if x is below k ln 2 - 86, and no
// larger than exp(88). The division rounds nothing.
MTKIT_INLINE Floats scaled_exp(Floats x, float k) {
    const float offset = k * float(LOG_2);
    const Floats lowest = broadcast(offset - 86.0f);
    const Floats in_range = min(max(x, lowest), broadcast(offset + 88.0f));
    // x = n ln 2 + r, and exp(x) = 2ⁿ exp(r); the polynomial is that of Cephes' expf.
    const Ints n = round_to_ints(in_range * broadcast(LOG2_E));
    const Floats whole = to_floats(n);
    Floats r = fma(whole, broadcast(-0.693359375f), in_range);
    r = fma(whole, broadcast(2.12194440e-4f), r);
    Floats p = broadcast(1.9875691500e-4f);
    p = fma(p, r, broadcast(1.3981999507e-3f));
    p = fma(p, r, broadcast(8.3334519073e-3f));
    p = fma(p, r, broadcast(4.1665795894e-2f));
    p = fma(p, r, broadcast(1.6666665459e-1f));
    p = fma(p, r, broadcast(5.0000001201e-1f));
    p = fma(p, r * r, r + broadcast(1.0f));
    const Ints power = n - broadcast_int(uint32_t(int32_t(k)));
    return zero_unless_greater(as_floats(as_ints(p) + (power << 23)), x, lowest);
}
MTKIT_INLINE Floats exp(Floats x) { return scaled_exp(x, 0.0f); }

// `F.silu`: x / (1 + exp(-x)).
MTKIT_INLINE Floats silu(Floats x) {
    const Floats one = broadcast(1.0f);
    return x / (one + exp(broadcast(0.0f) - x));
}

// log(x) of a positive number, from basic arithmetic: libraries differ in the last bit.
inline double log_of(double x) {
    const int64_t bits = __builtin_bit_cast(int64_t, x);
    // x = m 2ⁿ with m from √½ to √2.
    const int64_t n = (bits - 0x3fe6a09e667f3bcd) >> 52;
    const double m = __builtin_bit_cast(double, bits - n * (int64_t(1) << 52));
    // log(m) = 2 artanh(s), a series in s² < 0.03.
    const double s = (m - 1.0) / (m + 1.0), square = s * s;
    double series = 0.0;
    for (int i = 15; i >= 1; i -= 2) series = series * square + 1.0 / i;
    return double(n) * LOG_2 + 2.0 * s * series;
}

// Rounded to bf16, half to even, in float32.
MTKIT_INLINE Floats round_to_bf16(Floats x) {
    const Ints bits = as_ints(x);
    const Ints odd = (bits >> 16) & broadcast_int(1);
    const Ints rounded = bits + broadcast_int(0x7fff) + odd;
    return as_floats(rounded & broadcast_int(0xffff0000));
}

// Round a row to integers from -127 to 127, and add ZERO_POINT; returns the scale.
inline float quantize_row(const float* x, int size, int8_t* out) {
    Floats m = broadcast(1e-30f);  // a row of zeros is zeros
    for (int i = 0; i < size; i += LANES) {
        const Floats a = load(x + i);
        m = max(m, max(a, broadcast(0.0f) - a));
    }
    const float most = largest(m);
    const Floats inverse = broadcast(127.0f / most);
    for (int i = 0; i < size; i += LANES)
        store_inputs(out + i * INPUT_BYTES,
                     round_to_ints(load(x + i) * inverse) + broadcast_int(ZERO_POINT));
    return most / 127.0f;
}

// 1 in the first n of 16 lanes, 0 in the others.
MTKIT_INLINE Floats first_lanes(int n) {
    static constexpr float ONES[2 * LANES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    return load(ONES + LANES - min_int(max_int(n, 0), LANES));
}

// `nn.LayerNorm`.
inline void layer_norm(const float* x, int rows, int width, const float* gain, const float* bias,
                       float epsilon, float* y) {
    const int row = int(padded(width));
    for (int r = 0; r < rows; ++r, x += row, y += row) {
        Floats total = broadcast(0.0f);
        for (int i = 0; i < row; i += LANES) total = total + load(x + i);
        const Floats mean = broadcast(sum(total) / float(width));
        Floats squares = broadcast(0.0f);
        for (int i = 0; i < row; i += LANES) {
            const Floats d = (load(x + i) - mean) * first_lanes(width - i);
            squares = fma(d, d, squares);
        }
        const float variance = sum(squares) / float(width);
        const Floats inverse = broadcast(1.0f / __builtin_sqrtf(variance + epsilon));
        for (int i = 0; i < row; i += LANES)
            store(y + i, fma((load(x + i) - mean) * inverse, load(gain + i), load(bias + i)));
    }
}
