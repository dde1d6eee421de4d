// The forward pass, as in model.py and pytorch/incremental.py; comments name the Python that a
// function equals. docs/architecture.md explains how a layer is computed, and where a new
// activation goes. The result of a row does not depend on the other rows.
#include "model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace mtkit {

namespace {

constexpr int TABLE_LENGTH = 1024;
// Sentences are encoded in groups of about so many tokens, which bounds the memory needed.
constexpr int GROUP_TOKENS = 512;

// `sinusoidal_positions`: the encoding of one position.
void sinusoids(int position, int width, float* out) {
    for (int i = 0; i < width; i += 2) {
        const double angle = position / std::pow(10000.0, double(i) / width);
        out[i] = float(std::sin(angle));
        out[i + 1] = float(std::cos(angle));
    }
}

// A part of `Transformer.positions`: add the encoding of one position to `out`.
void add_position(const Model& model, int position, float* out) {
    if (model.shape.positions == Positions::none) return;
    const int width = model.position_width();
    const size_t at = size_t(position) * padded(width);
    std::vector<float> beyond_table;
    if (at >= model.position_table.size()) {
        beyond_table.resize(width);
        sinusoids(position, width, beyond_table.data());
    }
    const float* encoding = beyond_table.empty() ? &model.position_table[at] : beyond_table.data();
    for (int i = 0; i < width; i++) out[i] += encoding[i];
}

bool counts_words(const Model& model) {
    return model.shape.positions == Positions::words;
}

// The check in `Transformer.positions`.
void check_length(const Model& model, int length) {
    const Shape& shape = model.shape;
    if (shape.positions == Positions::learned && length > shape.max_positions)
        throw std::invalid_argument(
            "a sequence of " + std::to_string(length) +
            " tokens is longer than model.max_positions (" + std::to_string(shape.max_positions) +
            "), the limit of learned positions");
}

// `Transformer._embed` of one token: its scaled embedding, plus the encoding of its position.
// `table` may be empty: then the embedding is the output layer.
void embed(const Model& model, const Array<float>& table, int32_t id, int position, int word,
           float* out) {
    const int row = model.shape.model_row(), width = model.position_width();
    if (table.empty()) {
        unpack_row(model.output, id, out);
    } else {
        std::copy_n(&table[size_t(id) * row], row, out);
    }
    const float scale = float(std::sqrt(double(model.shape.d_model)));
    for (int i = 0; i < row; i++) out[i] *= scale;
    add_position(model, position, out);
    if (counts_words(model)) add_position(model, word, out + width);
}

}  // namespace

int Model::position_width() const {
    return counts_words(*this) ? shape.d_model / 2 : shape.d_model;
}

void Model::make_positions() {
    if (shape.positions == Positions::learned || shape.positions == Positions::none) return;
    const int width = position_width();
    position_table.resize(TABLE_LENGTH * padded(width));
    for (int t = 0; t < TABLE_LENGTH; t++)
        sinusoids(t, width, &position_table[t * padded(width)]);
}

// `Linear.forward`: rows of `in` to `out`.
float* Decoding::linear(const Matrix& matrix, const float* in, int rows, Array<float>& out,
                        Activation activation) {
    float* y = out.room(size_t(rows) * matrix.out);
    kernels_.linear(matrix, in, rows, y, matrix.out, {activation, false}, scratch_);
    return y;
}

// `nn.LayerNorm.forward`.
void Decoding::layer_norm(const Norm& norm, const float* in, int rows, float* out) {
    kernels_.layer_norm(in, rows, shape_.d_model, norm.gain.data(), norm.bias.data(),
                        shape_.norm_epsilon, out);
}

// `Residual.forward`, on rows in place. `last` is the last linear map of the sub-layer, which adds
// its result to the rows; `sublayer` computes the input of `last` from the rows that it is given.
template <class Sublayer>
void Decoding::residual(const Norm& norm, const Matrix& last, float* rows, int count,
                        Sublayer sublayer) {
    float* in = rows;
    if (shape_.pre_norm) {
        in = normed_.room(size_t(count) * shape_.model_row());
        layer_norm(norm, rows, count, in);
    }
    kernels_.linear(last, sublayer(in), count, rows, shape_.model_row(), {Activation::none, true},
                    scratch_);
    if (!shape_.pre_norm) layer_norm(norm, rows, count, rows);
}

// `Engine.start`.
Decoding::Decoding(const Model& model, const int32_t* ids, const int32_t* lengths, int sentences,
                   int slots)
    : model_(model),
      shape_(model.shape),
      kernels_(*model.kernels),
      n_slots_(slots),
      memories_(model.decoder.size()),
      slots_(size_t(sentences) * slots) {
    longest_ = *std::max_element(lengths, lengths + sentences);
    check_length(model, longest_);
    size_t keys = 0, values = 0;
    for (int b = 0; b < sentences; b++) {
        batch_.push_back({lengths[b], keys, values});
        keys += keys_size(lengths[b]);
        values += size_t(lengths[b]) * shape_.value_row();
    }
    for (Memory& memory : memories_) {
        memory.keys.resize(keys);
        memory.values.resize(values);
    }
    for (int begin = 0; begin < sentences;) {
        int end = begin + 1, tokens = lengths[begin];
        while (end < sentences && tokens < GROUP_TOKENS) tokens += lengths[end++];
        encode(ids, &batch_[begin], end - begin);
        ids += tokens;
        begin = end;
    }
}

// `Transformer.encode`, of a group of sentences.
void Decoding::encode(const int32_t* ids, const Sentence* sentences, int count) {
    const Array<float>& table =
        shape_.own_src_embedding ? model_.src_embedding : model_.tgt_embedding;
    int rows = 0;
    for (int b = 0; b < count; b++) rows += sentences[b].positions;
    float* x = x_.room(size_t(rows) * shape_.model_row());
    float* row = x;
    for (int b = 0; b < count; b++) {
        int words = 0;
        for (int t = 0; t < sentences[b].positions; t++, ids++, row += shape_.model_row()) {
            if (counts_words(model_)) words += model_.src_words[*ids] != 0;
            embed(model_, table, *ids, t, std::max(words - 1, 0), row);
        }
    }
    // `EncoderLayer.forward`.
    for (const Layer& layer : model_.encoder) {
        residual(layer.norms[0], layer.out_proj, x, rows, [&](const float* in) {
            const float* qkv = linear(layer.in_proj, in, rows, projected_);
            float* attended = attended_.room(size_t(rows) * shape_.value_row());
            float* out = attended;
            for (int b = 0; b < count; b++) {
                const int positions = sentences[b].positions;
                attend_sentence(qkv, positions, out);
                qkv += size_t(positions) * qkv_row();
                out += size_t(positions) * shape_.value_row();
            }
            return attended;
        });
        residual(layer.norms[1], layer.outer, x, rows, [&](const float* in) {
            return linear(layer.inner, in, rows, inner_, shape_.activation);
        });
    }
    if (shape_.pre_norm) layer_norm(model_.encoder_norm, x, rows, x);
    project_memory(x, rows, sentences, count);
}

// `SelfAttention.forward` in the encoder, of one sentence: `qkv` (positions, qkv_row).
void Decoding::attend_sentence(const float* qkv, int positions, float* out) {
    const int stride = qkv_row(), key_row = shape_.key_row();
    float* keys = keys_.room(keys_size(positions));
    kernels_.transpose_keys(shape_, qkv + key_row, stride, positions, keys);
    const SharedKeys memory{keys, qkv + 2 * key_row, stride, positions};
    const Queries queries{qkv, stride, out, shape_.value_row(), positions};
    kernels_.attend_shared(shape_, memory, queries, shape_.window, scratch_);
}

// `CrossAttention.project_memory` of all decoder layers.
void Decoding::project_memory(const float* states, int rows, const Sentence* sentences,
                              int count) {
    const int key_row = shape_.key_row(), value_row = shape_.value_row();
    for (size_t i = 0; i < memories_.size(); i++) {
        const float* kv = linear(model_.decoder[i].kv_proj, states, rows, memory_kv_);
        for (int b = 0; b < count; b++) {
            const Sentence& sentence = sentences[b];
            kernels_.transpose_keys(shape_, kv, kv_row(), sentence.positions,
                                    &memories_[i].keys[sentence.keys_at]);
            float* values = &memories_[i].values[sentence.values_at];
            for (int t = 0; t < sentence.positions; t++, kv += kv_row(), values += value_row)
                std::copy_n(kv + key_row, value_row, values);
        }
    }
}

// `Engine.step` up to `Transformer.logits`, with its last norm.
void Decoding::step(const int32_t* tokens, const int32_t* slots, int count) {
    const int position = int(steps_.size());
    check_length(model_, position + 1);
    rows_ = count;
    float* x = x_.room(size_t(count) * shape_.model_row());
    Step newest;
    newest.kv.allocate(model_.decoder.size() * count * kv_row());
    for (int r = 0; r < count; r++) newest.parents.push_back(slots_[slots[r]].row_in_step);
    if (!heads_.empty()) {
        newest.tokens.assign(tokens, tokens + count);
        for (int r = 0; r < count; r++) newest.sentences.push_back(slots[r] / n_slots_);
        newest.attention.resize(size_t(count) * 2 * longest_);
    }
    steps_.push_back(std::move(newest));
    // `DecoderCache.advance`. A dead slot gets row 0, so that its row exists if a step names it.
    for (Slot& slot : slots_) slot.row_in_step = 0;
    for (int r = 0; r < count; r++) {
        Slot& slot = slots_[slots[r]];
        slot.row_in_step = r;
        if (counts_words(model_)) slot.words += model_.tgt_words[tokens[r]] != 0;
        embed(model_, model_.tgt_embedding, tokens[r], position, slot.words,
              x + size_t(r) * shape_.model_row());
    }
    // `_Layer.step`.
    for (size_t i = 0; i < model_.decoder.size(); i++) {
        const Layer& layer = model_.decoder[i];
        residual(layer.norms[0], layer.out_proj, x, count, [&](const float* in) {
            return attend_self(i, linear(layer.in_proj, in, count, projected_), count);
        });
        residual(layer.norms[1], layer.cross_out, x, count, [&](const float* in) {
            return attend_memory(i, linear(layer.q_proj, in, count, q_), slots, count);
        });
        residual(layer.norms[2], layer.outer, x, count, [&](const float* in) {
            return linear(layer.inner, in, count, inner_, shape_.activation);
        });
    }
    if (shape_.pre_norm) layer_norm(model_.decoder_norm, x, count, x);
}

// Attention of each hypothesis to its own steps: `LayerCache.append` and `DecoderCache.attend`.
float* Decoding::attend_self(size_t layer, const float* qkv, int count) {
    float* attended = attended_.room(size_t(count) * shape_.value_row());
    float* newest = &steps_.back().kv[layer * count * kv_row()];
    for (int r = 0; r < count; r++)
        std::copy_n(qkv + size_t(r) * qkv_row() + shape_.key_row(), kv_row(),
                    newest + size_t(r) * kv_row());
    const int end = int(steps_.size());
    const int begin = shape_.window < 0 ? 0 : std::max(end - 1 - shape_.window, 0);
    own_.resize(end - begin);
    for (int r = 0; r < count; r++) {
        for (int t = end - 1, row = r; t >= begin; row = steps_[t--].parents[row]) {
            const size_t rows_before = layer * steps_[t].parents.size();
            own_[t - begin] = &steps_[t].kv[(rows_before + row) * kv_row()];
        }
        kernels_.attend_own(shape_, qkv + size_t(r) * qkv_row(), own_.data(), end - begin,
                            attended + size_t(r) * shape_.value_row(), scratch_);
    }
    return attended;
}

// Attention of the hypotheses to the encoder's output: those of a sentence together.
float* Decoding::attend_memory(size_t layer, const float* q, const int32_t* slots, int count) {
    const Memory& memory = memories_[layer];
    const bool is_watched = std::any_of(heads_.begin(), heads_.end(),
                                        [&](const Head& head) { return head.layer == int(layer); });
    const int key_row = shape_.key_row(), value_row = shape_.value_row();
    float* attended = attended_.room(size_t(count) * value_row);
    for (int begin = 0, end = 0; begin < count; begin = end) {
        const int b = slots[begin] / n_slots_;
        while (end < count && slots[end] / n_slots_ == b) end++;
        const Sentence& sentence = batch_[b];
        const SharedKeys keys{&memory.keys[sentence.keys_at], &memory.values[sentence.values_at],
                              value_row, sentence.positions};
        Queries queries{q + size_t(begin) * key_row, key_row,
                        attended + size_t(begin) * value_row, value_row, end - begin};
        if (is_watched)
            queries.weights = weights_.room(size_t(end - begin) * shape_.heads *
                                            round_up(sentence.positions, LANES));
        kernels_.attend_shared(shape_, keys, queries, -1, scratch_);
        if (is_watched) record(layer, queries.weights, begin, end - begin, sentence.positions);
    }
    return attended;
}

void Decoding::watch(const Head* heads, int count) { heads_.assign(heads, heads + count); }

// Add the weights of the watched heads of a layer to the newest step, in some of its rows.
void Decoding::record(size_t layer, const float* weights, int first, int rows, int positions) {
    for (int r = 0; r < rows; r++) {
        for (const Head& head : heads_) {
            if (head.layer != int(layer)) continue;
            const float* of_head =
                weights + (size_t(r) * shape_.heads + head.head) * round_up(positions, LANES);
            const size_t row = size_t(first + r) * 2 + head.is_input;
            float* sums = &steps_.back().attention[row * longest_];
            for (int t = 0; t < positions; t++) sums[t] += of_head[t];
        }
    }
}

int Decoding::row_of(const Step& step, int b, int32_t token, int parent) const {
    for (size_t r = 0; r < step.parents.size(); r++) {
        const bool goes_on = parent < 0 || (step.parents[r] == parent && step.tokens[r] == token);
        if (step.sentences[r] == b && goes_on) return int(r);
    }
    return -1;
}

bool Decoding::attention(int b, const int32_t* tokens, int count, float* out, int width) const {
    const bool reads_inputs = std::any_of(heads_.begin(), heads_.end(),
                                          [](const Head& head) { return head.is_input != 0; });
    int row = -1;
    for (int t = 0; t < count + reads_inputs; t++) {
        if (t >= int(steps_.size())) return false;
        row = row_of(steps_[t], b, t > 0 ? tokens[t - 1] : 0, row);
        if (row < 0) return false;
        const float* sums = &steps_[t].attention[size_t(row) * 2 * longest_];
        for (int s = 0; s < longest_; s++) {
            if (t < count) out[size_t(t) * width + s] = sums[s] / float(heads_.size());
            if (t > 0) out[size_t(t - 1) * width + s] += sums[longest_ + s] / float(heads_.size());
        }
    }
    return true;
}

void Decoding::best(const Excluded& excluded, const Best& best) {
    kernels_.log_probs(model_.output, x_.data(), rows_, vocabulary(), excluded, best, nullptr,
                       scratch_);
}

void Decoding::all(int first, int count, float* log_probs) {
    kernels_.log_probs(model_.output, &x_[size_t(first) * shape_.model_row()], count, vocabulary(),
                       {}, {}, log_probs, scratch_);
}

// `DecoderCache.reorder`.
void Decoding::reorder(const int32_t* parents) {
    const std::vector<Slot> before = slots_;
    for (size_t i = 0; i < slots_.size(); i++)
        slots_[i] = before[i / n_slots_ * n_slots_ + parents[i]];
}

// `DecoderCache.select`.
void Decoding::select(const int32_t* kept, int count) {
    std::vector<Sentence> batch;
    std::vector<Slot> slots;
    for (int b = 0; b < count; b++) {
        batch.push_back(batch_[kept[b]]);
        const Slot* first = &slots_[size_t(kept[b]) * n_slots_];
        slots.insert(slots.end(), first, first + n_slots_);
    }
    batch_.swap(batch);
    slots_.swap(slots);
}

}  // namespace mtkit
