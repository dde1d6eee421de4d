// Products of many rows in 8 bits, where the CPU multiplies only unsigned by signed bytes.
//
// The unsigned bytes are absolute values of inputs. `dot` gives the signs of the inputs to the
// weights, for every row. Here each sum of two products is multiplied by the sign of its first
// input instead, so that the weights depend only on whether the second input has the other sign.
// For four inputs there are four variants of the weights: with the second, the fourth, both or none
// of them negated. A table of them is computed once for many rows.

constexpr int MIN_SIGN_ROWS = 16;  // fewer rows are faster by `dot`
constexpr int MAX_SIGN_ROWS = 128;  // of a table; their sums stay in the L2 cache
constexpr int TABLE_INPUTS = 64;     // so that a table, 16 KiB, stays in the L1 cache
constexpr int TABLE_PANELS = 4;
constexpr int TABLE_COLUMNS = TABLE_PANELS * PANEL;
constexpr int TABLE_PARTS = TABLE_PANELS * PARTS;

using Variants = int8_t[4][4 * TABLE_COLUMNS];  // of the weights of four inputs
static_assert(PAD % TABLE_INPUTS == 0 && PAD % TABLE_COLUMNS == 0);
static_assert(4 * TABLE_COLUMNS == VARIANT_BYTES);

// The variants of the weights of some inputs and four panels. Bit 0 of the number of a variant says
// that the weight of the second input is negated, and bit 1 that of the fourth.
inline void fill_table(const int8_t* weights, ptrdiff_t panel_stride, Variants* table) {
    for (int k = 0; k < TABLE_INPUTS; k += 4, weights += 4 * PANEL, ++table) {
        MTKIT_UNROLL
        for (int v = 0; v < 4; ++v) {
            const uint32_t signs = 0x01010101 | (v & 1 ? 0xff00 : 0) | (v & 2 ? 0xff000000 : 0);
            MTKIT_UNROLL
            for (int i = 0; i < TABLE_PARTS; ++i) {
                const int8_t* w = weights + i / PARTS * panel_stride + i % PARTS * 4 * WIDTH;
                store_as(&(*table)[v][i * 4 * WIDTH], with_signs(load_as<IntPart>(w), signs));
            }
        }
    }
}

// Add to the sums of a row, or write there, the products of the inputs of a table.
inline void add_by_table(const int8_t* x, const Variants* table, bool is_first, int32_t* sums) {
    IntPart in_registers[TABLE_PARTS];
    MTKIT_UNROLL
    for (int i = 0; i < TABLE_PARTS; ++i)
        in_registers[i] = is_first ? IntPart{} : load_as<IntPart>(sums + i * WIDTH);
    for (int k = 0; k < TABLE_INPUTS; k += 4, x += 4 * INPUT_BYTES, ++table) {
        const IntPart absolute = IntPart{} + load_as<uint32_t>(x + 4);
        const IntPart signs = IntPart{} + load_as<uint32_t>(x + 8);
        const int8_t* weights = (*table)[0] + load_as<int32_t>(x + 12);
        asm("" : "+r"(weights));  // one register: some CPUs split products with an index
        MTKIT_UNROLL
        for (int i = 0; i < TABLE_PARTS; ++i) {
            const IntPart& w = *reinterpret_cast<const IntPart*>(weights + i * 4 * WIDTH);
            MTKIT_ADD_PAIRS(in_registers[i], absolute, "m", w, signs)
        }
    }
    MTKIT_UNROLL
    for (int i = 0; i < TABLE_PARTS; ++i) store_as(sums + i * WIDTH, in_registers[i]);
}

// Four panels for at most MAX_SIGN_ROWS rows; see `store_inputs` for the rows.
inline void four_panels_by_signs(const Product& product, int panel, int row, int rows) {
    const Matrix& matrix = product.matrix;
    alignas(64) Variants table[TABLE_INPUTS / 4];
    alignas(64) int32_t sums[MAX_SIGN_ROWS][TABLE_COLUMNS];
    const ptrdiff_t panel_stride = ptrdiff_t(matrix.in) * PANEL, stride = product.x_stride;
    const int8_t* weights = matrix.int8_weights.data() + panel * panel_stride;
    for (int k = 0; k < matrix.in; k += TABLE_INPUTS) {
        fill_table(weights + k * PANEL, panel_stride, table);
        const int8_t* x = product.bytes + row * stride + k * INPUT_BYTES;
        for (int r = 0; r < rows; ++r) add_by_table(x + r * stride, table, k == 0, sums[r]);
    }
    for (int r = 0; r < rows; ++r)
        for (int p = 0; p < TABLE_PANELS; ++p)
            write_results(product, row + r, (panel + p) * PANEL, load_ints(sums[r] + p * PANEL));
}

inline void all_rows_by_signs(const Product& product, int first, int last) {
    for (int rows = 0; first < last; first += rows) {
        rows = next_block(last - first, MAX_SIGN_ROWS);
        for (int panel = product.first_panel; panel < product.last_panel; panel += TABLE_PANELS)
            four_panels_by_signs(product, panel, first, rows);
    }
}
