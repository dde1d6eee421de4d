// Packing weights.
#include <bit>
#include <cmath>

#include "kernels.h"

namespace mtkit {

namespace {

uint16_t to_bf16(float value) {  // rounded half to even
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bf16(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

// Where input `k` of column `n` is, with `together` inputs of a column side by side.
size_t index(const Matrix& matrix, int n, int k, int together) {
    const size_t panel = size_t(n / PANEL) * size_t(matrix.in) * PANEL;
    return panel + size_t(k / together) * size_t(PANEL * together)
           + size_t(n % PANEL * together + k % together);
}

void pack_bytes(Matrix& matrix, const float* values) {
    matrix.int8_weights.resize(size_t(matrix.out) * size_t(matrix.in));
    matrix.scales.resize(size_t(matrix.out));
    matrix.offsets.resize(size_t(matrix.out));
    for (int n = 0; n < matrix.out; ++n, values += matrix.in) {
        float most = 1e-30f;  // a column of zeros is zeros
        for (int k = 0; k < matrix.in; ++k) most = std::fmax(most, std::fabs(values[k]));
        int32_t sum = 0;
        for (int k = 0; k < matrix.in; ++k) {
            const float rounded = std::nearbyint(values[k] * (127.0f / most));
            const int8_t byte = std::fabs(rounded) <= 127.0f ? int8_t(rounded) : 0;
            matrix.int8_weights[index(matrix, n, k, 4)] = byte;
            sum += byte;
        }
        matrix.scales[size_t(n)] = most / 127.0f;
        matrix.offsets[size_t(n)] = 128 * sum;
    }
}

}  // namespace

void pack(Matrix& matrix, const float* values, int rows, int columns, Precision precision) {
    matrix.in = columns;
    matrix.out = rows;
    matrix.precision = precision;
    if (precision == Precision::int8) return pack_bytes(matrix, values);
    const bool bf16 = precision == Precision::bf16;
    const size_t size = size_t(rows) * size_t(columns);
    if (bf16) matrix.bf16_weights.resize(size);
    else matrix.weights.resize(size);
    for (int n = 0; n < rows; ++n) {
        for (int k = 0; k < columns; ++k, ++values) {
            if (bf16) matrix.bf16_weights[index(matrix, n, k, 2)] = to_bf16(*values);
            else matrix.weights[index(matrix, n, k, 1)] = *values;
        }
    }
}

void unpack_row(const Matrix& matrix, int row, float* out) {
    const bool bf16 = matrix.precision == Precision::bf16;
    for (int k = 0; k < matrix.in; ++k)
        out[k] = bf16 ? from_bf16(matrix.bf16_weights[index(matrix, row, k, 2)])
                      : matrix.weights[index(matrix, row, k, 1)];
}

}  // namespace mtkit
