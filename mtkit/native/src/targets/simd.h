// Sixteen numbers at a time, by the operations of one register (the header of the target): one
// register of AVX-512, two of AVX2, four of NEON, or sixteen plain numbers.

struct Floats {
    Part part[PARTS];
};
struct Ints {
    IntPart part[PARTS];
};
constexpr int WIDTH = LANES / PARTS;  // numbers in a register

// Define a function of sixteen numbers that does the same in each register.
#define MTKIT_EACH(Result, name, parameters, expression)     \
    MTKIT_INLINE Result name parameters {                    \
        Result r;                                            \
        MTKIT_UNROLL                                         \
        for (int i = 0; i < PARTS; ++i) r.part[i] = expression; \
        return r;                                            \
    }
MTKIT_EACH(Floats, load, (const float* p), load_as<Part>(p + i * WIDTH))
MTKIT_EACH(Floats, broadcast, (float a), broadcast_part(a))
MTKIT_EACH(Floats, fma, (Floats a, Floats b, Floats c), fma_part(a.part[i], b.part[i], c.part[i]))
MTKIT_EACH(Floats, operator+, (Floats a, Floats b), a.part[i] + b.part[i])
MTKIT_EACH(Floats, operator-, (Floats a, Floats b), a.part[i] - b.part[i])
MTKIT_EACH(Floats, operator*, (Floats a, Floats b), a.part[i] * b.part[i])
MTKIT_EACH(Floats, operator/, (Floats a, Floats b), a.part[i] / b.part[i])
MTKIT_EACH(Floats, max, (Floats a, Floats b), max(a.part[i], b.part[i]))
MTKIT_EACH(Floats, min, (Floats a, Floats b), min(a.part[i], b.part[i]))
// x where a > b, elsewhere 0.
MTKIT_EACH(Floats, zero_unless_greater, (Floats x, Floats a, Floats b),
           zero_unless_greater(x.part[i], a.part[i], b.part[i]))
MTKIT_EACH(Ints, load_ints, (const void* p),
           load_as<IntPart>(static_cast<const char*>(p) + i * WIDTH * 4))
MTKIT_EACH(Ints, broadcast_int, (uint32_t a), IntPart{} + a)
MTKIT_EACH(Ints, operator+, (Ints a, Ints b), a.part[i] + b.part[i])
MTKIT_EACH(Ints, operator-, (Ints a, Ints b), a.part[i] - b.part[i])
MTKIT_EACH(Ints, operator&, (Ints a, Ints b), a.part[i] & b.part[i])
MTKIT_EACH(Ints, operator<<, (Ints a, int n), a.part[i] << n)
MTKIT_EACH(Ints, operator>>, (Ints a, int n), a.part[i] >> n)
MTKIT_EACH(Floats, as_floats, (Ints a), __builtin_bit_cast(Part, a.part[i]))  // the same bits
MTKIT_EACH(Ints, as_ints, (Floats a), __builtin_bit_cast(IntPart, a.part[i]))   // the same bits
MTKIT_EACH(Floats, to_floats, (Ints a), to_float(a.part[i]))
MTKIT_EACH(Ints, round_to_ints, (Floats a), round_part(a.part[i]))  // half to even
// To each sum the products of its four 8-bit weights and the four inputs at x.
MTKIT_EACH(Ints, dot, (Ints sums, Ints weights, const int8_t* x),
           dot_part(sums.part[i], weights.part[i], x))
#ifdef MTKIT_BF16_DOT
// To each sum the products of its two weights in bf16 and the two inputs at x.
MTKIT_EACH(Floats, dot, (Floats sums, Ints weights, const int8_t* x),
           dot_part(sums.part[i], weights.part[i], x))
#endif
#undef MTKIT_EACH

MTKIT_INLINE void store(float* p, Floats a) {
    MTKIT_UNROLL
    for (int i = 0; i < PARTS; ++i) store_as(p + i * WIDTH, a.part[i]);
}
// Add each number to its sum in float64.
MTKIT_INLINE void add(double (&sums)[LANES], Floats a) {
    MTKIT_UNROLL
    for (int i = 0; i < PARTS; ++i) add_part(sums + i * WIDTH, a.part[i]);
}
// Bit i is set where number i of a is larger.
MTKIT_INLINE uint32_t greater_mask(Floats a, Floats b) {
    uint32_t bits = 0;
    MTKIT_UNROLL
    for (int i = 0; i < PARTS; ++i) bits |= greater_mask(a.part[i], b.part[i]) << (i * WIDTH);
    return bits;
}
// Inputs of `dot`, from numbers of 8 bits.
MTKIT_INLINE void store_inputs(int8_t* p, Ints a) { store_inputs(p, a.part); }

// The sum of all: lane i and lane i + 8, then i and i + 4, i + 2 and i + 1.
MTKIT_INLINE Part fold(Floats a) {
    MTKIT_UNROLL
    for (int half = PARTS / 2; half > 0; half /= 2) {
        MTKIT_UNROLL
        for (int i = 0; i < half; ++i) a.part[i] = a.part[i] + a.part[i + half];
    }
    return a.part[0];
}
MTKIT_INLINE float sum(Floats a) { return sum_of_part(fold(a)); }
MTKIT_INLINE float largest(Floats a) {
    Part m = a.part[0];
    MTKIT_UNROLL
    for (int i = 1; i < PARTS; ++i) m = max(m, a.part[i]);
    return max_of_part(m);
}
// `sum` of each of 16.
MTKIT_INLINE Floats sums(const Floats (&rows)[16]) {
    Part folded[16];
    MTKIT_UNROLL
    for (int i = 0; i < 16; ++i) folded[i] = fold(rows[i]);
    Floats r;
    sums_of_parts(folded, r.part);
    return r;
}
