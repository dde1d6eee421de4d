// Log-probabilities of the vocabulary and the best of them: `F.log_softmax` and `topk`.
//
// The columns are computed some hundred at a time for all rows, into a buffer that stays in cache;
// there each row finds its largest, the sum of its probabilities and its best.
//
// The best are ordered by their logits. Two logits may round to one log-probability: the larger is
// then first, where a search in Python, which sees log-probabilities only, has the lowest id first.

constexpr int COLUMNS = 256;  // computed at a time

constexpr float LEAST_POWER = -1e6f;  // far below that of any logit but minus infinity

// Add exp(logit) of 16 * n logits to the sum of a row, scaled by a power of two.
//
// The scaling rounds nothing, and sums in float64 round so little that no float32 shows it: their
// order has no effect, nor have logits of minus infinity. So a vocabulary without some subwords
// gives the same bits as the whole one in which these are impossible.
inline void add_to_sum(RowState& state, const float* logits, int size) {
    Floats m = broadcast(LEAST_POWER);
    for (int i = 0; i < size; i += LANES) m = max(m, load(logits + i) * broadcast(LOG2_E));
    const float power = largest(to_floats(round_to_ints(m)));
    if (power > state.power) {
        const double factor = __builtin_ldexp(1.0, int(state.power - power));
        for (double& sum : state.sums) sum *= factor;
        state.power = power;
    }
    double sums[LANES];  // in registers
    for (int i = 0; i < LANES; ++i) sums[i] = state.sums[i];
    for (int i = 0; i < size; i += LANES) add(sums, scaled_exp(load(logits + i), state.power));
    for (int i = 0; i < LANES; ++i) state.sums[i] = sums[i];
}

// The logarithm of the sum.
inline double log_sum(const RowState& state) {
    double sum = 0.0;
    for (const double part : state.sums) sum += part;
    return state.power * LOG_2 + log_of(sum);
}

// Put a logit into a list that begins with the largest; behind those that are equal.
inline void insert_best(float* values, int32_t* ids, ptrdiff_t count, float value, int32_t id) {
    ptrdiff_t at = count - 1;
    for (; at > 0 && values[at - 1] < value; --at) {
        values[at] = values[at - 1];
        ids[at] = ids[at - 1];
    }
    values[at] = value;
    ids[at] = id;
}

inline void find_best(float* values, int32_t* ids, ptrdiff_t count, const float* logits,
                      int size, int first_id) {
    Floats least = broadcast(values[count - 1]);
    for (int i = 0; i < size; i += LANES) {
        for (uint32_t bits = greater_mask(load(logits + i), least); bits != 0; bits &= bits - 1) {
            const int at = i + __builtin_ctz(bits);
            if (logits[at] > values[count - 1])
                insert_best(values, ids, count, logits[at], first_id + at);
            least = broadcast(values[count - 1]);
        }
    }
}

// Until the end, `best.log_probs` and `all` have logits.
inline void log_probs(const Matrix& matrix, const float* states, int rows, int width,
                      const Excluded& excluded, const Best& best, float* all, Scratch& scratch) {
    Product product{matrix};
    prepare_rows(product, states, rows, scratch);
    float* logits = scratch.logits.room(size_t(rows) * COLUMNS);
    RowState* row_states = scratch.row_states.room(size_t(rows));
    for (int r = 0; r < rows; ++r)
        row_states[r] = {{}, LEAST_POWER, all != nullptr ? 0 : excluded.begin(r)};
    const ptrdiff_t count = all != nullptr ? width : best.count;  // found of each row
    float* found = all != nullptr ? all : best.log_probs;
    if (all == nullptr) {
        for (ptrdiff_t i = 0; i < rows * count; ++i) {
            found[i] = -__builtin_inff();
            best.ids[i] = 0;
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
            for (int i = width - column; i < size; ++i) row[i] = -__builtin_inff();  // padding
            add_to_sum(row_states[r], row, size);
            if (all != nullptr) {
                __builtin_memcpy(all + r * count + column, row,
                                 size_t(min_int(size, width - column)) * sizeof(float));
                continue;
            }
            int64_t& next = row_states[r].next_excluded;
            for (; next < excluded.ends[r] && excluded.ids[next] < column + size; ++next)
                row[excluded.ids[next] - column] = -__builtin_inff();
            find_best(found + r * count, best.ids + r * count, count, row, size, column);
        }
    }
    for (int r = 0; r < rows; ++r) {
        const double log_total = log_sum(row_states[r]);
        float* row = found + r * count;
        for (ptrdiff_t i = 0; i < count; ++i) row[i] = float(row[i] - log_total);
    }
}
