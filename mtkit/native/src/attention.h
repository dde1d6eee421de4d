// Scaled dot-product attention of a few queries: `attention` in attention.py.

constexpr int ATTENTION_ROWS = 4;  // queries that are computed together
constexpr float LOWEST = -3.4028234e38f;

// y = (x W) · factors[m] for M rows, W of `panels` panels. P panels at a time; the rest by halves.
// `panel_stride`: from a panel to the next; `step`: from one input's weights to the next's.
template <int M, int P>
inline void small_product(const float* x, ptrdiff_t x_stride, const float* weights,
                          ptrdiff_t panel_stride, ptrdiff_t step, int inputs, int panels,
                          const float* factors, float* y, ptrdiff_t y_stride) {
    int panel = 0;
    for (; panel + P <= panels; panel += P) {
        Floats sums[M][P] = {};
        multiply(x, x_stride, weights + panel * panel_stride, panel_stride, step, inputs, sums);
        MTKIT_UNROLL
        for (int m = 0; m < M; ++m) {
            MTKIT_UNROLL
            for (int p = 0; p < P; ++p)
                store(y + m * y_stride + (panel + p) * PANEL, sums[m][p] * broadcast(factors[m]));
        }
    }
    if constexpr (P > 1)
        if (panel < panels)
            small_product<M, P / 2>(x, x_stride, weights + panel * panel_stride, panel_stride,
                                    step, inputs, panels - panel, factors,
                                    y + panel * PANEL, y_stride);
}

// Turn `size` scores, a multiple of 16, into exp(score - largest); those before `first` and from
// `last` on become 0. Returns 1 / their sum.
inline float exp_of_scores(float* scores, int size, int first, int last) {
    for (int i = 0; i < first; ++i) scores[i] = LOWEST;
    for (int i = last; i < size; ++i) scores[i] = LOWEST;
    Floats m = broadcast(LOWEST);
    for (int i = 0; i < size; i += LANES) m = max(m, load(scores + i));
    const Floats most = broadcast(largest(m));
    Floats total = broadcast(0.0f);
    for (int i = 0; i < size; i += LANES) {
        const Floats e = exp(load(scores + i) - most);
        store(scores + i, e);
        total = total + e;
    }
    return 1.0f / sum(total);
}

// M queries of all heads, which see positions from `first[m]` to before `last[m]`.
template <int M>
void attend_rows(const Shape& shape, const SharedKeys& memory, const Queries& queries, int row,
                 const int* first, const int* last, float* scores) {
    constexpr int P = panels_for(M, Precision::float32);
    const int key_room = shape.key_room(), value_room = shape.value_room();
    const ptrdiff_t block = ptrdiff_t(key_room) * PANEL;  // 16 positions of a head
    const int blocks = int(round_up(memory.positions, LANES)) / LANES;
    int from = first[0], to = last[0];
    for (int m = 1; m < M; ++m) from = min_int(from, first[m]), to = max_int(to, last[m]);
    from = from / LANES;
    const int size = int(round_up(to, LANES)) - from * LANES;
    float scales[M], inverses[M];
    for (int m = 0; m < M; ++m) scales[m] = shape.score_scale();
    for (int head = 0; head < shape.heads; ++head) {
        const float* q = queries.q + row * ptrdiff_t(queries.q_stride) + head * key_room;
        small_product<M, P>(q, queries.q_stride, memory.keys + (head * blocks + from) * block,
                            block, PANEL, key_room, size / LANES, scales, scores, size);
        for (int m = 0; m < M; ++m)
            inverses[m] = exp_of_scores(scores + m * size, size, first[m] - from * LANES,
                                        last[m] - from * LANES);
        for (int m = 0; m < M && queries.weights != nullptr; ++m) {
            float* weights = queries.weights + ((row + m) * ptrdiff_t(shape.heads) + head) * size;
            for (int i = 0; i < size; i += LANES)
                store(weights + i, load(scores + m * size + i) * broadcast(inverses[m]));
        }
        const float* values = memory.values + head * value_room
                              + from * LANES * ptrdiff_t(memory.values_stride);
        small_product<M, P>(scores, size, values, PANEL, memory.values_stride,
                            to - from * LANES, value_room / PANEL, inverses,
                            queries.out + row * ptrdiff_t(queries.out_stride) + head * value_room,
                            queries.out_stride);
    }
}

inline void attend_shared(const Shape& shape, const SharedKeys& memory, const Queries& queries,
                          int window, Scratch& scratch) {
    const int width = int(round_up(memory.positions, LANES));
    float* scores = scratch.scores.room(size_t(ATTENTION_ROWS) * size_t(width));
    const int reach =
        window < 0 ? memory.positions + queries.rows : min_int(window, memory.positions);
    for (int row = 0; row < queries.rows; row += ATTENTION_ROWS) {
        const int rows = min_int(ATTENTION_ROWS, queries.rows - row);
        int from[ATTENTION_ROWS], to[ATTENTION_ROWS];
        for (int m = 0; m < rows; ++m) {
            from[m] = max_int(row + m - reach, 0);
            to[m] = min_int(row + m + reach + 1, memory.positions);
        }
        switch (rows) {
            case 4: attend_rows<4>(shape, memory, queries, row, from, to, scores); break;
            case 3: attend_rows<3>(shape, memory, queries, row, from, to, scores); break;
            case 2: attend_rows<2>(shape, memory, queries, row, from, to, scores); break;
            default: attend_rows<1>(shape, memory, queries, row, from, to, scores);
        }
    }
}

// The scores of a query with 16 keys, each in 16 partial sums.
inline Floats sixteen_scores(const float* q, const float* const* keys, int offset, int key_room) {
    Floats partial[LANES];
    for (int t = 0; t < LANES; ++t) {
        const float* key = keys[t] + offset;
        Floats products = load(q) * load(key);
        for (int i = LANES; i < key_room; i += LANES)
            products = fma(load(q + i), load(key + i), products);
        partial[t] = products;
    }
    return sums(partial);
}

inline void attend_own(const Shape& shape, const float* q, const float* const* keys,
                       int positions, float* out, Scratch& scratch) {
    const int key_room = shape.key_room(), value_room = shape.value_room();
    const int size = int(round_up(positions, LANES));
    float* scores = scratch.scores.room(size_t(size));
    const Floats scale = broadcast(shape.score_scale());
    for (int head = 0; head < shape.heads; ++head) {
        const int offset = head * key_room;
        for (int t = 0; t < size; t += LANES) {
            const float* rows[LANES];  // the last one again where there are no more
            for (int i = 0; i < LANES; ++i) rows[i] = keys[min_int(t + i, positions - 1)];
            store(scores + t, sixteen_scores(q + offset, rows, offset, key_room)
                                  * scale);
        }
        const Floats inverse = broadcast(exp_of_scores(scores, size, 0, positions));
        for (int i = 0; i < value_room; i += LANES) {
            const ptrdiff_t at = shape.key_row() + head * value_room + i;
            Floats total = broadcast(0.0f);
            for (int t = 0; t < positions; ++t)
                total = fma(broadcast(scores[t]), load(keys[t] + at), total);
            store(out + head * value_room + i, total * inverse);
        }
    }
}

inline void transpose_keys(const Shape& shape, const float* keys, int stride, int positions,
                           float* out) {
    const int key_room = shape.key_room();
    for (int head = 0; head < shape.heads; ++head)
        for (int block = 0; block < positions; block += LANES)
            for (int k = 0; k < key_room; ++k)
                for (int t = block; t < block + LANES; ++t, ++out)
                    *out = t < positions ? keys[t * ptrdiff_t(stride) + head * key_room + k] : 0.0f;
}
