// Products of rows and a packed matrix: `F.linear` in float32, with weights in bf16 and in 8 bits.
//
// A block of some rows (M) and some panels of 16 columns (P) is computed in registers. Each output
// is one sum in the order of its inputs, whatever M and P are, so a row has the same bits alone and
// among others.

// The panels of a block, and its most rows. Few rows have many panels, so that there are enough
// sums that do not wait for each other; the registers have room for so many (`SUMS`, in the order
// of `Precision`).
constexpr int panels_for(int rows, Precision precision) {
    int panels = 8;
    while (panels > 1 && rows * panels > SUMS[int(precision)]) panels /= 2;
    return panels;
}
constexpr int most_rows(Precision precision) {
    return SUMS[int(precision)] >= 24 ? 12 : SUMS[int(precision)];
}
// Rows are taken in blocks of almost equal height. Of so many rows, the height of the first block.
constexpr int next_block(int rows, int most) {
    const int blocks = (rows + most - 1) / most;
    return (rows + blocks - 1) / blocks;
}

// Add x W in float32 to the sums, for M rows of x and P panels of W. `step` lies between the
// weights of one input and the next, in each panel. The weights of all panels are loaded before the
// first row: in the other order, GCC loads the inputs of all rows, and keeps some sums in memory.
template <int M, int P>
MTKIT_INLINE void multiply(const float* x, ptrdiff_t x_stride, const float* weights,
                           ptrdiff_t panel_stride, ptrdiff_t step, int inputs,
                           Floats (&sums)[M][P]) {
    for (int k = 0; k < inputs; ++k, weights += step) {
        Floats w[P];
        MTKIT_UNROLL
        for (int p = 0; p < P; ++p) w[p] = load(weights + p * panel_stride);
        MTKIT_UNROLL
        for (int m = 0; m < M; ++m) {
            const Floats input = broadcast(x[m * x_stride + k]);
            MTKIT_UNROLL
            for (int p = 0; p < P; ++p) sums[m][p] = fma(input, w[p], sums[m][p]);
        }
    }
}

// The same with weights in bf16: the upper halves of float32 numbers, two inputs in a word. The
// second of them is added before the first, as `vdpbf16ps` does.
template <int M, int P>
MTKIT_INLINE void multiply(const float* x, ptrdiff_t x_stride, const uint16_t* weights,
                           ptrdiff_t panel_stride, int inputs, Floats (&sums)[M][P]) {
    const Ints upper = broadcast_int(0xffff0000);
    for (int k = 0; k < inputs; k += 2, weights += 2 * PANEL) {
        MTKIT_UNROLL
        for (int p = 0; p < P; ++p) {
            const Ints pairs = load_ints(weights + p * panel_stride);
            const Floats second = as_floats(pairs & upper);
            MTKIT_UNROLL
            for (int m = 0; m < M; ++m)
                sums[m][p] = fma(broadcast(x[m * x_stride + k + 1]), second, sums[m][p]);
            const Floats first = as_floats(pairs << 16);
            MTKIT_UNROLL
            for (int m = 0; m < M; ++m)
                sums[m][p] = fma(broadcast(x[m * x_stride + k]), first, sums[m][p]);
        }
    }
}

// The same with rows of bytes, in 8 bits or bf16: `dot` adds the products of several inputs, which
// take BYTES bytes of x. In 8 bits the sums are exact.
template <int INPUTS, int BYTES, class Weight, class Sum, int M, int P>
MTKIT_INLINE void multiply_by_dots(const int8_t* x, ptrdiff_t x_stride, const Weight* weights,
                                   ptrdiff_t panel_stride, int inputs, Sum (&sums)[M][P]) {
    for (int k = 0; k < inputs; k += INPUTS, x += BYTES, weights += INPUTS * PANEL) {
        Ints w[P];
        MTKIT_UNROLL
        for (int p = 0; p < P; ++p) w[p] = load_ints(weights + p * panel_stride);
        MTKIT_UNROLL
        for (int m = 0; m < M; ++m) {
            MTKIT_UNROLL
            for (int p = 0; p < P; ++p) sums[m][p] = dot(sums[m][p], w[p], x + m * x_stride);
        }
    }
}

// What is asked of a product. Rows of x are as `prepare_rows` leaves them.
struct Product {
    const Matrix& matrix;
    const float* x = nullptr;           // in float32, and in bf16 without `MTKIT_BF16_ROWS`
    const int8_t* bytes = nullptr;      // in 8 bits, or the bytes of rows in bf16
    ptrdiff_t x_stride = 0;             // of x or bytes
    const float* row_scales = nullptr;  // in 8 bits
    float* y = nullptr;                 // its first column is that of `first_panel`
    ptrdiff_t y_stride = 0;
    Epilogue epilogue{};
    int first_panel = 0;
    int last_panel = 0;  // the one after the last
};

// Write 16 results of a row: with the bias, the activation, and added to what is there.
MTKIT_INLINE void write_results(const Product& product, int row, int column, Floats sums) {
    float* y = product.y + row * product.y_stride + (column - product.first_panel * PANEL);
    Floats r = sums + load(product.matrix.bias.data() + column);
    if (product.epilogue.activation == Activation::relu) r = max(r, broadcast(0.0f));
    if (product.epilogue.activation == Activation::silu) r = silu(r);
    if (product.epilogue.add) r = load(y) + r;
    store(y, r);
}
// Write sums of products of 8-bit numbers, times the scales of the row and of the columns.
MTKIT_INLINE void write_results(const Product& product, int row, int column, Ints sums) {
    const Matrix& matrix = product.matrix;
    if (ZERO_POINT != 0) sums = sums - load_ints(matrix.offsets.data() + column);
    const Floats scaled = to_floats(sums) * load(matrix.scales.data() + column);
    write_results(product, row, column, scaled * broadcast(product.row_scales[row]));
}

// M rows from `row` on and P panels from `panel` on.
template <Precision PRECISION, int M, int P>
void block(const Product& product, int row, int panel) {
    const Matrix& matrix = product.matrix;
    const ptrdiff_t stride = product.x_stride, panel_stride = ptrdiff_t(matrix.in) * PANEL;
    const ptrdiff_t at = panel * panel_stride;
    std::conditional_t<PRECISION == Precision::int8, Ints, Floats> sums[M][P] = {};
    if constexpr (PRECISION == Precision::int8)
        multiply_by_dots<4, 4 * INPUT_BYTES>(product.bytes + row * stride, stride,
                                             matrix.int8_weights.data() + at, panel_stride,
                                             matrix.in, sums);
#ifdef MTKIT_BF16_DOT
    else if constexpr (PRECISION == Precision::bf16)
        multiply_by_dots<2, 4>(product.bytes + row * stride, stride,
                               matrix.bf16_weights.data() + at, panel_stride, matrix.in, sums);
#endif
    else if constexpr (PRECISION == Precision::bf16)
        multiply(product.x + row * stride, stride, matrix.bf16_weights.data() + at, panel_stride,
                 matrix.in, sums);
    else
        multiply(product.x + row * stride, stride, matrix.weights.data() + at, panel_stride,
                 PANEL, matrix.in, sums);
    MTKIT_UNROLL
    for (int m = 0; m < M; ++m) {
        MTKIT_UNROLL
        for (int p = 0; p < P; ++p)
            write_results(product, row + m, (panel + p) * PANEL, sums[m][p]);
    }
}

// The compiler needs the number of rows of a block, M, as a constant: only then are the sums in
// registers. So there is a function for each M, and `rows_as_constant` calls the one for `rows`.

// All panels for M rows. Matrices have whole groups of four panels.
template <Precision PRECISION, int M>
void all_panels(const Product& product, int row) {
    constexpr int P = panels_for(M, PRECISION);
    int panel = product.first_panel;
    for (; panel + P <= product.last_panel; panel += P) block<PRECISION, M, P>(product, row, panel);
    if constexpr (P > 4)
        for (; panel < product.last_panel; panel += 4) block<PRECISION, M, 4>(product, row, panel);
}

template <Precision PRECISION, int M>
void rows_as_constant(const Product& product, int row, int rows) {
    if (rows == M) return all_panels<PRECISION, M>(product, row);
    if constexpr (M > 1) rows_as_constant<PRECISION, M - 1>(product, row, rows);
}

#ifdef MTKIT_TILES
#include "tiles.h"
#endif
#ifdef MTKIT_SIGNS
#include "signs.h"
#endif

// The rows from `first` to before `last`.
template <Precision PRECISION>
void all_rows(const Product& product, int first, int last) {
#ifdef MTKIT_TILES
    if constexpr (PRECISION != Precision::float32)
        if (PRECISION == Precision::bf16 || last - first >= MIN_TILE_ROWS)
            return all_rows_by_tiles<PRECISION>(product, first, last);
#endif
#ifdef MTKIT_SIGNS
    if constexpr (PRECISION == Precision::int8)
        if (last - first >= MIN_SIGN_ROWS) return all_rows_by_signs(product, first, last);
#endif
    constexpr int MAX_ROWS = most_rows(PRECISION);
    for (int rows = 0; first < last; first += rows) {
        rows = next_block(last - first, MAX_ROWS);
        rows_as_constant<PRECISION, MAX_ROWS>(product, first, rows);
    }
}

#ifdef MTKIT_BF16_ROWS
// Rows of x in bf16, 16 bits each.
inline void prepare_bf16_rows(Product& product, const float* x, int rows, Scratch& scratch) {
    const int in = product.matrix.in;
    product.x_stride = 2 * in + 64;
    uint8_t* bytes = scratch.prepared.room(size_t(rows) * size_t(product.x_stride));
    product.bytes = reinterpret_cast<const int8_t*>(bytes);
    for (int r = 0; r < rows; ++r, x += in, bytes += product.x_stride) {
        for (int i = 0; i < in; i += LANES) {
            const Ints upper = as_ints(round_to_bf16(load(x + i))) >> 16;
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + 2 * i),
                                _mm512_cvtepi32_epi16(__m512i(upper.part[0])));
        }
    }
}
#endif

// Copies rows as the product reads them (quantised, rounded, or as they are). Rows get 64 bytes
// more: with a stride of a power of two, all would fall into few sets of the L1 cache.
inline void prepare_rows(Product& product, const float* x, int rows, Scratch& scratch) {
    const int in = product.matrix.in;
    const Precision precision = product.matrix.precision;
    if (precision == Precision::int8) {
        product.x_stride = in * INPUT_BYTES + 64;
        int8_t* bytes = reinterpret_cast<int8_t*>(
            scratch.prepared.room(size_t(rows) * size_t(product.x_stride)));
        float* scales = scratch.row_scales.room(size_t(rows));
        for (int r = 0; r < rows; ++r, x += in)
            scales[r] = quantize_row(x, in, bytes + r * product.x_stride);
        product.bytes = bytes;
        product.row_scales = scales;
        return;
    }
#ifdef MTKIT_BF16_ROWS
    if (precision == Precision::bf16) return prepare_bf16_rows(product, x, rows, scratch);
#endif
    product.x_stride = in + LANES;
    float* copy = reinterpret_cast<float*>(
        scratch.prepared.room(size_t(rows) * size_t(product.x_stride) * sizeof(float)));
    product.x = copy;
    const bool bf16 = precision == Precision::bf16;
    for (int r = 0; r < rows; ++r, x += in, copy += product.x_stride)
        for (int i = 0; i < in; i += LANES)
            store(copy + i, bf16 ? round_to_bf16(load(x + i)) : load(x + i));
}

inline void multiply_rows(const Product& product, int first, int last) {
    switch (product.matrix.precision) {
        case Precision::float32: return all_rows<Precision::float32>(product, first, last);
        case Precision::bf16: return all_rows<Precision::bf16>(product, first, last);
        case Precision::int8: return all_rows<Precision::int8>(product, first, last);
    }
}

// `F.linear`, with what follows it. The rows of x are taken in chunks, and the panels of the matrix
// in groups, that stay together in the L2 cache.
inline void linear(const Matrix& matrix, const float* x, int rows, float* y, int y_stride,
                   Epilogue epilogue, Scratch& scratch) {
    Product product{matrix};
    product.y_stride = y_stride;
    product.epilogue = epilogue;
    prepare_rows(product, x, rows, scratch);
    const int width = matrix.precision == Precision::int8 ? 1 : 4;
    const int chunk = max_int(64, CACHED_BYTES / (matrix.in * width) / 32 * 32);
    const int group = max_int(8, CACHED_BYTES / (matrix.in * width * PANEL) / 8 * 8);
    for (int row = 0; row < rows; row += chunk) {
        for (int panel = 0; panel < matrix.out / PANEL; panel += group) {
            product.first_panel = panel;
            product.last_panel = min_int(panel + group, matrix.out / PANEL);
            product.y = y + panel * PANEL;
            multiply_rows(product, row, min_int(row + chunk, rows));
        }
    }
}
