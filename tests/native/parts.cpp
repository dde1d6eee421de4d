// One kernel on arrays, for tests and benchmarks. `kernels` is the table that `mtkit_find_kernels`
// of the engine returns. Functions return 1 where a size is wrong.
#include <algorithm>
#include <string_view>
#include <vector>

#include "kernels.h"

using namespace mtkit;

namespace {

Shape attention_shape(int32_t heads, int32_t key_width, int32_t value_width) {
    Shape shape{};
    shape.heads = heads;
    shape.key_width = key_width;
    shape.value_width = value_width;
    return shape;
}

}  // namespace

// A packed matrix from (out, in) weights, sizes multiples of 64; null if they are wrong.
extern "C" void* part_pack(const float* weights, const float* bias, int32_t out, int32_t in,
                           int32_t precision) {
    if (out <= 0 || in <= 0 || out % PAD != 0 || in % PAD != 0) return nullptr;
    if (precision < 0 || precision > 2) return nullptr;
    Matrix* matrix = new Matrix;
    pack(*matrix, weights, out, in, static_cast<Precision>(precision));
    matrix->bias.resize(size_t(out));
    if (bias != nullptr) std::copy_n(bias, out, matrix->bias.data());
    return matrix;
}

extern "C" void part_free(void* matrix) { delete static_cast<Matrix*>(matrix); }

// Makes an array, writes some numbers into it, and frees it, many times. Returns 1 if one of the
// numbers was not 0 before.
extern "C" int part_arrays(int32_t size, int32_t times) {
    for (int32_t i = 0; i < times; i++) {
        Array<float> array;
        array.resize(size_t(size));
        for (int32_t n = size - 1; n >= 0; n -= 512) {
            if (array[size_t(n)] != 0) return 1;
            array[size_t(n)] = 1;
        }
    }
    return 0;
}

extern "C" int part_unpack(const void* matrix, int32_t row, float* out) {
    const Matrix& packed = *static_cast<const Matrix*>(matrix);
    if (row < 0 || row >= packed.out || packed.precision == Precision::int8) return 1;
    unpack_row(packed, row, out);
    return 0;
}

// `repeat` times, for benchmarks.
extern "C" int part_linear(const Kernels* kernels, const void* matrix, const float* x,
                           int32_t rows, int32_t activation, int32_t add, float* y,
                           int32_t repeat) {
    if (rows < 0 || activation < 0 || activation > 2) return 1;
    const Matrix& packed = *static_cast<const Matrix*>(matrix);
    Scratch scratch;
    for (int i = 0; i < repeat; ++i)
        kernels->linear(packed, x, rows, y, packed.out,
                        {static_cast<Activation>(activation), add != 0}, scratch);
    return 0;
}

extern "C" int part_layer_norm(const Kernels* kernels, const float* x, int32_t rows,
                               int32_t width, const float* gain, const float* bias,
                               float epsilon, float* y) {
    if (rows < 0 || width <= 0) return 1;
    kernels->layer_norm(x, rows, width, gain, bias, epsilon, y);
    return 0;
}

// keys (positions, key_row), values (positions, value_row), q (rows, key_row), out (rows,
// value_row).
extern "C" int part_attend_shared(const Kernels* kernels, int32_t heads, int32_t key_width,
                                  int32_t value_width, const float* q, int32_t rows,
                                  const float* keys, const float* values, int32_t positions,
                                  int32_t window, float* out, int32_t repeat) {
    if (heads <= 0 || key_width <= 0 || value_width <= 0 || positions <= 0) return 1;
    if (window >= 0 && rows > positions) return 1;
    const Shape shape = attention_shape(heads, key_width, value_width);
    Scratch scratch;
    Array<float> ordered;
    ordered.resize(size_t(round_up(positions, LANES)) * size_t(shape.key_row()));
    kernels->transpose_keys(shape, keys, shape.key_row(), positions, ordered.data());
    const SharedKeys memory{ordered.data(), values, shape.value_row(), positions};
    const Queries queries{q, shape.key_row(), out, shape.value_row(), rows};
    for (int i = 0; i < repeat; ++i)
        kernels->attend_shared(shape, memory, queries, window, scratch);
    return 0;
}

// Rows of keys, each followed by its values: (positions, key_row + value_row); q of one row.
extern "C" int part_attend_own(const Kernels* kernels, int32_t heads, int32_t key_width,
                               int32_t value_width, const float* q, const float* rows,
                               int32_t positions, float* out, int32_t repeat) {
    if (heads <= 0 || key_width <= 0 || value_width <= 0 || positions <= 0) return 1;
    const Shape shape = attention_shape(heads, key_width, value_width);
    std::vector<const float*> keys;
    for (int t = 0; t < positions; ++t)
        keys.push_back(rows + size_t(t) * size_t(shape.key_row() + shape.value_row()));
    Scratch scratch;
    for (int i = 0; i < repeat; ++i)
        kernels->attend_own(shape, q, keys.data(), positions, out, scratch);
    return 0;
}

// The best `count` of each row, or with `all` (rows, width) all log-probabilities. For `excluded`
// and `ends` see `Excluded`.
extern "C" int part_log_probs(const Kernels* kernels, const void* matrix, const float* states,
                              int32_t rows, int32_t width, const int32_t* excluded,
                              const int64_t* ends, int32_t count, float* log_probs, int32_t* ids,
                              float* all, int32_t repeat) {
    const Matrix& packed = *static_cast<const Matrix*>(matrix);
    if (rows < 0 || width <= 0 || padded(width) > packed.out) return 1;
    if (all == nullptr && (count <= 0 || count > width)) return 1;
    Scratch scratch;
    for (int i = 0; i < repeat; ++i)
        kernels->log_probs(packed, states, rows, width, {excluded, ends}, {count, log_probs, ids},
                           all, scratch);
    return 0;
}

// The operations of `steps` steps of products in registers alone, to compare `linear` with; 0 for
// kernels whose instructions are not here. In 8 bits they are those of many rows: for AVX2 those of
// `dot`, which are exact.
#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx2,fma"))) static double peak_of_avx2(bool in_bytes, int steps) {
    __m256i sums[8] = {}, x = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
    for (int n = 0; n < steps; ++n) {
#pragma GCC unroll 8
        for (__m256i& sum : sums) {
            asm volatile("" : "+x"(x));  // as if another were read
            if (in_bytes)
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), ones));
            else
                sum = (__m256i)_mm256_fmadd_ps((__m256)x, (__m256)x, (__m256)sum);
        }
    }
    asm volatile("" : : "m"(sums));
    return 8.0 * (in_bytes ? 64 : 16) * steps;
}

__attribute__((target("avx512f,avx512vnni"))) static double peak_of_avx512(Precision precision, bool has_bf16, int steps) {
    __m512i sums[12] = {}, x = _mm512_set1_epi32(0x01010101);
    for (int n = 0; n < steps; ++n) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; ++i) {
            __m512i sum = sums[i];  // a copy, which is in a register
            if (precision == Precision::int8)
                asm volatile("vpdpbusd %1, %1, %0" : "+v"(sum) : "v"(x));
            else if (precision == Precision::bf16 && has_bf16)
                asm volatile("vdpbf16ps %1, %1, %0" : "+v"(sum) : "v"(x));
            else
                asm volatile("vfmadd231ps %1, %1, %0" : "+v"(sum) : "v"(x));
            sums[i] = sum;
        }
    }
    asm volatile("" : : "m"(sums));
    const int operations[] = {32, 128, has_bf16 ? 64 : 32};
    return 12.0 * operations[int(precision)] * steps;
}
#endif

extern "C" double part_peak(const Kernels* kernels, int32_t precision, int32_t steps) {
#ifdef __x86_64__
    const Precision of = static_cast<Precision>(precision);
    const std::string_view name = kernels->name;
    if (name == "avx2") return peak_of_avx2(of == Precision::int8, steps);
    if (name == "vnni" || name == "avx512bf16")
        return peak_of_avx512(of, name == "avx512bf16", steps);
#endif
    return 0;
}
