// Products in bf16 and 8 bits by the tiles of AMX, each 16 rows of 64 bytes.
//
// A tile of weights is 16 lines of a packed panel as they are. A tile of x is 64 bytes of up to 16
// rows. An instruction multiplies the two and adds to a tile of 16 rows and 16 columns of sums.

struct alignas(64) TileSizes {
    uint8_t palette = 1, start = 0, unused[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The arguments of tile instructions are numbers of tiles that the compiler must know.
#define MTKIT_TILE_DOT(sums, x, weights)          \
    if constexpr (PRECISION == Precision::bf16)   \
        _tile_dpbf16ps(sums, x, weights);         \
    else                                          \
        _tile_dpbusd(sums, x, weights);

// Sums of 17 to 32 rows and two panels, written as 32 columns of 4 bytes.
template <Precision PRECISION>
inline void two_panels(const int8_t* x, ptrdiff_t stride, const int8_t* weights,
                       ptrdiff_t panel_bytes, void* sums) {
    char* out = static_cast<char*>(sums);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (ptrdiff_t at = 0; at < panel_bytes; at += 1024, x += 64) {
        _tile_loadd(4, x, stride);
        _tile_loadd(6, weights + at, 64);
        MTKIT_TILE_DOT(0, 4, 6)
        _tile_loadd(7, weights + panel_bytes + at, 64);
        MTKIT_TILE_DOT(1, 4, 7)
        _tile_loadd(5, x + 16 * stride, stride);
        MTKIT_TILE_DOT(2, 5, 6)
        MTKIT_TILE_DOT(3, 5, 7)
    }
    _tile_stored(0, out, 128);
    _tile_stored(1, out + 64, 128);
    _tile_stored(2, out + 16 * 128, 128);
    _tile_stored(3, out + 16 * 128 + 64, 128);
}

// Sums of up to 16 rows and four panels, written as 64 columns of 4 bytes.
template <Precision PRECISION>
inline void four_panels(const int8_t* x, ptrdiff_t stride, const int8_t* weights,
                        ptrdiff_t panel_bytes, void* sums) {
    char* out = static_cast<char*>(sums);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (ptrdiff_t at = 0; at < panel_bytes; at += 1024, x += 64) {
        _tile_loadd(4, x, stride);
        _tile_loadd(5, weights + at, 64);
        MTKIT_TILE_DOT(0, 4, 5)
        _tile_loadd(6, weights + panel_bytes + at, 64);
        MTKIT_TILE_DOT(1, 4, 6)
        _tile_loadd(7, weights + 2 * panel_bytes + at, 64);
        MTKIT_TILE_DOT(2, 4, 7)
        _tile_loadd(5, weights + 3 * panel_bytes + at, 64);
        MTKIT_TILE_DOT(3, 4, 5)
    }
    _tile_stored(0, out, 256);
    _tile_stored(1, out + 64, 256);
    _tile_stored(2, out + 128, 256);
    _tile_stored(3, out + 192, 256);
}
#undef MTKIT_TILE_DOT

// All panels for up to 32 rows.
template <Precision PRECISION>
void tile_rows(const Product& product, int row, int rows) {
    const Matrix& matrix = product.matrix;
    const bool bf16 = PRECISION == Precision::bf16;
    const int8_t* weights = bf16 ? reinterpret_cast<const int8_t*>(matrix.bf16_weights.data())
                                 : matrix.int8_weights.data();
    const ptrdiff_t panel_bytes = ptrdiff_t(matrix.in) * PANEL * (bf16 ? 2 : 1);
    const int8_t* x = product.bytes + row * product.x_stride;
    alignas(64) int32_t sums[32 * 32];
    TileSizes sizes;
    const int panels = rows > 16 ? 2 : 4;
    // Tiles of sums and x have the rows that there are. In `two_panels`, tiles 2 and 3 (sums) and 5
    // (x) have the rows after the sixteenth. In `four_panels`, tiles 0 to 3 are sums and 4 is x.
    if (rows > 16) {
        sizes.rows[2] = sizes.rows[3] = sizes.rows[5] = uint8_t(rows - 16);
    } else {
        for (int tile = 0; tile < 5; ++tile) sizes.rows[tile] = uint8_t(rows);
    }
    _tile_loadconfig(&sizes);
    for (int panel = product.first_panel; panel < product.last_panel; panel += panels) {
        const int8_t* w = weights + panel * panel_bytes;
        if (rows > 16)
            two_panels<PRECISION>(x, product.x_stride, w, panel_bytes, sums);
        else
            four_panels<PRECISION>(x, product.x_stride, w, panel_bytes, sums);
        for (int r = 0; r < rows; ++r) {
            for (int p = 0; p < panels; ++p) {
                const int column = (panel + p) * PANEL;
                const Ints found = load_ints(sums + (r * panels + p) * PANEL);
                if (bf16) write_results(product, row + r, column, as_floats(found));
                else write_results(product, row + r, column, found);
            }
        }
    }
}

// In 8 bits, fewer rows are faster without tiles; the results are the same.
constexpr int MIN_TILE_ROWS = 4;

template <Precision PRECISION>
void all_rows_by_tiles(const Product& product, int first, int last) {
    for (int rows = 0; first < last; first += rows) {
        rows = next_block(last - first, 32);
        tile_rows<PRECISION>(product, first, rows);
    }
    _tile_release();
}
