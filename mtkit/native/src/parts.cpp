// One kernel on arrays, for tests and benchmarks.
#include "parts.h"

#include <vector>

#include "kernels.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

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

EXPORTED int mtkit_part_has(const char* kernels) { return find_kernels(kernels) != nullptr; }

EXPORTED double mtkit_part_peak(const char* kernels, int32_t precision, int32_t steps) {
    const Kernels* found = find_kernels(kernels);
    return found == nullptr ? 0.0 : found->peak(static_cast<Precision>(precision), steps);
}

EXPORTED void* mtkit_part_pack(const float* weights, const float* bias, int32_t out, int32_t in,
                               int32_t precision) {
    if (out <= 0 || in <= 0 || out % PAD != 0 || in % PAD != 0) return nullptr;
    if (precision < 0 || precision > 2) return nullptr;
    Matrix* matrix = new Matrix;
    pack(*matrix, weights, bias, out, in, static_cast<Precision>(precision));
    return matrix;
}

EXPORTED void mtkit_part_free(void* matrix) { delete static_cast<Matrix*>(matrix); }

EXPORTED int mtkit_part_unpack(const void* matrix, int32_t row, float* out) {
    const Matrix& packed = *static_cast<const Matrix*>(matrix);
    if (row < 0 || row >= packed.out) return 1;
    unpack_row(packed, row, out);
    return 0;
}

EXPORTED int mtkit_part_linear(const char* kernels, const void* matrix, const float* x,
                               int32_t rows, int32_t activation, int32_t add, float* y,
                               int32_t repeat) {
    const Kernels* found = find_kernels(kernels);
    if (found == nullptr || rows < 0 || activation < 0 || activation > 2) return 1;
    const Matrix& packed = *static_cast<const Matrix*>(matrix);
    Scratch scratch;
    for (int i = 0; i < repeat; ++i)
        found->linear(packed, x, rows, y, packed.out,
                      {static_cast<Activation>(activation), add != 0}, scratch);
    return 0;
}

EXPORTED int mtkit_part_layer_norm(const char* kernels, const float* x, int32_t rows,
                                   int32_t width, const float* gain, const float* bias,
                                   float epsilon, float* y) {
    const Kernels* found = find_kernels(kernels);
    if (found == nullptr || rows < 0 || width <= 0) return 1;
    found->layer_norm(x, rows, width, gain, bias, epsilon, y);
    return 0;
}

EXPORTED int mtkit_part_attend_shared(const char* kernels, int32_t heads, int32_t key_width,
                                      int32_t value_width, const float* q, int32_t rows,
                                      const float* keys, const float* values, int32_t positions,
                                      const int32_t* first, const int32_t* last, float scale,
                                      float* out, int32_t repeat) {
    const Kernels* found = find_kernels(kernels);
    if (found == nullptr || heads <= 0 || key_width <= 0 || value_width <= 0 || positions <= 0)
        return 1;
    const Shape shape = attention_shape(heads, key_width, value_width);
    Scratch scratch;
    Array<float> ordered(size_t(round_up(positions, LANES)) * size_t(shape.key_row()));
    found->transpose_keys(shape, keys, shape.key_row(), positions, ordered.data());
    const SharedKeys memory{ordered.data(), values, shape.value_row(), positions};
    const Queries queries{q, shape.key_row(), out, shape.value_row(), rows};
    for (int i = 0; i < repeat; ++i)
        found->attend_shared(shape, memory, queries, first, last, scale, scratch);
    return 0;
}

EXPORTED int mtkit_part_attend_own(const char* kernels, int32_t heads, int32_t key_width,
                                   int32_t value_width, const float* q, const float* rows,
                                   int32_t positions, float scale, float* out, int32_t repeat) {
    const Kernels* found = find_kernels(kernels);
    if (found == nullptr || heads <= 0 || key_width <= 0 || value_width <= 0 || positions <= 0)
        return 1;
    const Shape shape = attention_shape(heads, key_width, value_width);
    std::vector<const float*> keys;
    for (int t = 0; t < positions; ++t)
        keys.push_back(rows + size_t(t) * size_t(shape.key_row() + shape.value_row()));
    Scratch scratch;
    for (int i = 0; i < repeat; ++i)
        found->attend_own(shape, q, keys.data(), positions, scale, out, scratch);
    return 0;
}

EXPORTED int mtkit_part_log_probs(const char* kernels, const void* matrix, const float* states,
                                  int32_t rows, int32_t width, const int32_t* forbidden,
                                  const int32_t* first_forbidden, const int32_t* n_forbidden,
                                  int32_t count, float* log_probs, int32_t* ids, float* all,
                                  int32_t repeat) {
    const Kernels* found = find_kernels(kernels);
    const Matrix& packed = *static_cast<const Matrix*>(matrix);
    if (found == nullptr || rows < 0 || width <= 0 || padded(width) > packed.out) return 1;
    if (all == nullptr && (count <= 0 || count > width)) return 1;
    const Best best{count, log_probs, ids};
    Scratch scratch;
    for (int i = 0; i < repeat; ++i)
        found->log_probs(packed, states, rows, width, forbidden, first_forbidden, n_forbidden,
                         all == nullptr ? &best : nullptr, all, scratch);
    return 0;
}
