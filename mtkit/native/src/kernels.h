// What is computed differently on each kind of CPU: a table of functions, chosen at run time.
//
// Every function computes each row in an order that does not depend on the rows beside it. In
// float32 and int8 all tables give the same bits; in bf16 those with tiles differ from the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory.h"
#include "shape.h"

namespace mtkit {

// A linear map y = x Wᵀ + b, packed. All CPUs share one layout: columns (outputs) in panels of 16,
// and in a panel, for each step along the inputs, 64 bytes: one input of 16 columns in float32, two
// consecutive inputs of each column in bf16, four in int8.
//
// In int8, an output is (sum of products of 8-bit numbers) * scale of the row of x * scale of the
// column. VNNI multiplies unsigned by signed numbers, so there inputs get +128 (ZERO_POINT), and
// `offsets`, 128 times the sum of each column, are subtracted afterwards. Other CPUs multiply
// signed numbers (ZERO_POINT is 0) and do not read the offsets.
struct Matrix {
    int in = 0;   // inputs, a multiple of PAD
    int out = 0;  // outputs, a multiple of PAD
    Precision precision = Precision::float32;
    Array<float> weights;         // of float32: panel, input, column
    Array<uint16_t> bf16_weights; // of bf16: panel, input / 2, column, input % 2
    Array<int8_t> int8_weights;   // of int8: panel, input / 4, column, input % 4; from -127 to 127
    Array<float> scales;          // of int8: of each column
    Array<int32_t> offsets;       // of int8: of each column
    Array<float> bias;            // `out` numbers
};

// What is known of a row of logits after some of its columns.
struct RowState {
    double sums[LANES];     // of exp(logit) / 2^power, in 16 partial sums
    float power;            // a whole number near the largest logit / ln 2
    int64_t next_excluded;  // index in `Excluded::ids`
};

// Buffers of one thread.
struct Scratch {
    Array<uint8_t> prepared;  // rows as a product reads them; see `prepare_rows`
    Array<float> row_scales;  // of rows in 8 bits
    Array<float> scores;      // of attention
    Array<float> logits;      // rows, some columns
    Array<RowState> row_states;
};

// How `linear` writes its results.
struct Epilogue {
    Activation activation = Activation::none;
    bool add = false;  // to what is there, as a residual connection does
};

// Keys and values of a sentence, for queries that all see the same positions.
struct SharedKeys {
    const float* keys;    // head, block of 16 positions, key_room, position in the block
    const float* values;  // position, then values_stride
    int values_stride;
    int positions;
};

// Queries of attention, and where the results go: rows of all heads, one after the other.
struct Queries {
    const float* q;
    int q_stride;
    float* out;
    int out_stride;
    int rows;
    // If it is given: the weights, without a window: row, head, position, padded to 16.
    float* weights = nullptr;
};

// Where `log_probs` writes the best tokens of each row.
struct Best {
    ptrdiff_t count;   // at most the size of the vocabulary
    float* log_probs;  // rows, count: largest logit first, of equal ones the lowest id
    int32_t* ids;      // rows, count
};

// Tokens that are not among the best. Those of row r, ascending, are ids[begin(r)] to before
// ids[ends[r]].
struct Excluded {
    const int32_t* ids;
    const int64_t* ends;

    int64_t begin(int row) const { return row > 0 ? ends[row - 1] : 0; }
};

struct Kernels {
    const char* name;

    // y (rows, y_stride) from x (rows, matrix.in); see `Epilogue`. y may not overlap x.
    void (*linear)(const Matrix& matrix, const float* x, int rows, float* y, int y_stride,
                   Epilogue epilogue, Scratch& scratch);

    // y = layer norm of each row of x; both (rows, padded(width)); y may be x. The padding of y is
    // zero. gain and bias have padded(width) numbers, zero in the padding.
    void (*layer_norm)(const float* x, int rows, int width, const float* gain, const float* bias,
                       float epsilon, float* y);

    // Attention of rows to the positions of one sentence: to all of them, or, where `window` is not
    // -1, of the row of each position to those that are at most `window` away (`local_attention`).
    void (*attend_shared)(const Shape& shape, const SharedKeys& memory, const Queries& queries,
                          int window, Scratch& scratch);

    // Attention of one row to its own positions: `keys[t]` is a row of keys of all heads
    // (key_row), followed by its row of values (value_row).
    void (*attend_own)(const Shape& shape, const float* q, const float* const* keys, int positions,
                       float* out, Scratch& scratch);

    // Write keys (positions, stride) in the order of `SharedKeys`; positions are padded to 16.
    void (*transpose_keys)(const Shape& shape, const float* keys, int stride, int positions,
                           float* out);

    // The log-probabilities of each row of states (rows, matrix.in). The vocabulary has `width`
    // columns of `matrix`. Excluded tokens count in the sum. With `all` (rows, width), all
    // log-probabilities are written there instead of the best, and `excluded` is not read.
    void (*log_probs)(const Matrix& matrix, const float* states, int rows, int width,
                      const Excluded& excluded, const Best& best, float* all, Scratch& scratch);
};

// The kernels of a name, or null where this CPU or this build does not have them.
const Kernels* find_kernels(const char* name);
// The fastest kernels of this CPU for a precision; the variable MTKIT_KERNELS overrides it, and
// std::runtime_error is thrown where this CPU or this build does not have those.
const Kernels* choose_kernels(Precision precision);

// Pack a float32 matrix (rows, columns), whose sizes are multiples of PAD. The same bytes on every
// CPU. The bias is left as it is.
void pack(Matrix& matrix, const float* values, int rows, int columns, Precision precision);
// One row of a packed matrix in float32, `in` numbers: an embedding that is also an output layer.
// The matrix is not in int8, which is too inexact for embeddings.
void unpack_row(const Matrix& matrix, int row, float* out);

}  // namespace mtkit
