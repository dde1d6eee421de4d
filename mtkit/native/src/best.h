// Log-probabilities of the vocabulary and the best of them: `F.log_softmax` and `topk`.
//
// The columns are computed some hundred at a time for all rows, into a buffer that stays in cache;
// there each row finds its largest, the sum of its probabilities and its best.
//
// The best are ordered by their logits. Two logits may round to one log-probability: the larger is
// then first, where a search in Python, which sees log-probabilities only, has the lowest id first.

constexpr int COLUMNS = 256;  // computed at a time

// What a row knows after some columns: its best so far (`Best`, with logits), and the sum of
// exp(logit - largest) in 16 partial sums.
struct RowState {
    float sums[LANES];
    float largest;
    int32_t next_forbidden;  // index in the row's forbidden ids
};

// Add 16 * n logits to the largest and to the sum.
inline void add_to_sum(RowState& state, const float* logits, int size) {
    Floats m = broadcast(state.largest);
    for (int i = 0; i < size; i += LANES) m = max(m, load(logits + i));
    const float before = state.largest;
    state.largest = largest(m);
    const Floats most = broadcast(state.largest);
    Floats total = broadcast(0.0f);
    for (int i = 0; i < size; i += LANES) total = total + exp(load(logits + i) - most);
    const Floats factor = exp(broadcast(before) - most);
    store(state.sums, fma(load(state.sums), factor, total));
}

// Put a logit into a list that begins with the largest; behind those that are equal.
inline void insert(float* values, int32_t* ids, int count, float value, int32_t id) {
    int at = count - 1;
    for (; at > 0 && values[at - 1] < value; --at) {
        values[at] = values[at - 1];
        ids[at] = ids[at - 1];
    }
    values[at] = value;
    ids[at] = id;
}

inline void find_best(float* values, int32_t* ids, int count, const float* logits, int size,
                      int first_id) {
    Floats least = broadcast(values[count - 1]);
    for (int i = 0; i < size; i += LANES) {
        for (uint32_t bits = above(load(logits + i), least); bits != 0; bits &= bits - 1) {
            const int at = i + __builtin_ctz(bits);
            if (logits[at] > values[count - 1])
                insert(values, ids, count, logits[at], first_id + at);
            least = broadcast(values[count - 1]);
        }
    }
}

inline void log_probs(const Matrix& matrix, const float* states, int rows, int width,
                      const int32_t* forbidden, const int32_t* first_forbidden,
                      const int32_t* n_forbidden, const Best* best, float* all,
                      Scratch& scratch) {
    Product product{matrix};
    round_rows(product, states, rows, scratch);
    constexpr size_t STATE = sizeof(RowState) / sizeof(float);
    float* logits = scratch.logits.room(size_t(rows) * (COLUMNS + STATE));
    RowState* row_states = reinterpret_cast<RowState*>(logits + size_t(rows) * COLUMNS);
    for (int r = 0; r < rows; ++r) {
        row_states[r] = {};
        row_states[r].largest = LOWEST;
    }
    if (best != nullptr) {
        for (int i = 0; i < rows * best->count; ++i) {
            best->log_probs[i] = -__builtin_inff();
            best->ids[i] = 0;
        }
    }
    product.y = logits;
    product.y_stride = COLUMNS;
    for (int column = 0; column < width; column += COLUMNS) {
        const int size = min_int(COLUMNS, int(padded(width)) - column);
        product.first_panel = column / PANEL;
        product.last_panel = (column + size) / PANEL;
        multiply_rows(product, 0, rows);
        for (int r = 0; r < rows; ++r) {
            float* row = logits + size_t(r) * COLUMNS;
            for (int i = width - column; i < size; ++i) row[i] = -__builtin_inff();
            add_to_sum(row_states[r], row, size);
            const int real = min_int(size, width - column);
            if (all != nullptr)
                __builtin_memcpy(all + size_t(r) * size_t(width) + column, row,
                                 size_t(real) * sizeof(float));
            if (best == nullptr) continue;
            if (n_forbidden != nullptr) {
                const int32_t* ids = forbidden + first_forbidden[r];
                int32_t& next = row_states[r].next_forbidden;
                for (; next < n_forbidden[r] && ids[next] < column + size; ++next)
                    row[ids[next] - column] = -__builtin_inff();
            }
            find_best(best->log_probs + r * best->count, best->ids + r * best->count, best->count,
                      row, size, column);
        }
    }
    for (int r = 0; r < rows; ++r) {
        const double log_sum = row_states[r].largest + log_of(sum(load(row_states[r].sums)));
        if (best != nullptr)
            for (int i = r * best->count; i < (r + 1) * best->count; ++i)
                best->log_probs[i] = float(best->log_probs[i] - log_sum);
        if (all != nullptr)
            for (float* p = all + size_t(r) * size_t(width), *end = p + width; p != end; ++p)
                *p = float(*p - log_sum);
    }
}
