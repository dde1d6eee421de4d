// The forward pass, as in model.py and engine.py, on rows of numbers without padding between
// sentences. Every row is computed in the same way whatever the rows beside it are.
#include "model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace mtkit {

namespace {

constexpr int TABLE_LENGTH = 1024;
// Sentences are encoded in groups of about so many tokens, which bounds the memory needed.
constexpr int GROUP_TOKENS = 512;
constexpr int MOST_RESERVED_STEPS = 256;

// `sinusoidal_positions`: the encoding of one position.
void sinusoids(int position, int width, float* out) {
    for (int i = 0; i < width; i += 2) {
        const double angle = position / std::pow(10000.0, static_cast<double>(i) / width);
        out[i] = static_cast<float>(std::sin(angle));
        out[i + 1] = static_cast<float>(std::cos(angle));
    }
}

// A part of `Transformer.positions`: add the encoding of one position to `out`.
void add_position(const Model& model, int position, float* out) {
    const int width = model.position_width();
    const float* encoding = nullptr;
    std::vector<float> computed;
    if (position < model.positions_in_table) {
        encoding = &model.position_table[static_cast<size_t>(position) * padded(width)];
    } else {
        computed.resize(width);
        sinusoids(position, width, computed.data());
        encoding = computed.data();
    }
    for (int i = 0; i < width; i++) out[i] += encoding[i];
}

bool counts_words(const Model& model) {
    return model.shape.positions == static_cast<int32_t>(Positions::words);
}

// The check in `Transformer.positions`.
void check_length(const Model& model, int length) {
    const Shape& shape = model.shape;
    const bool learned = shape.positions == static_cast<int32_t>(Positions::learned);
    if (learned && length > shape.max_positions)
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
        std::copy_n(&table[static_cast<size_t>(id) * row], row, out);
    }
    const float scale = static_cast<float>(std::sqrt(static_cast<double>(model.shape.d_model)));
    for (int i = 0; i < row; i++) out[i] *= scale;
    add_position(model, position, out);
    if (counts_words(model)) add_position(model, word, out + width);
}

}  // namespace

int Model::position_width() const {
    return counts_words(*this) ? shape.d_model / 2 : shape.d_model;
}

void Model::make_sinusoids() {
    if (shape.positions == static_cast<int32_t>(Positions::learned)) return;
    const int width = position_width();
    const size_t row = padded(width);
    position_table.resize(TABLE_LENGTH * row);
    for (int t = 0; t < TABLE_LENGTH; t++) sinusoids(t, width, &position_table[t * row]);
    positions_in_table = TABLE_LENGTH;
}

// Sub-layers, and the buffers that they write to. A buffer always has rows of one width, so that
// the padding of its rows stays zero.
class Decoding::Layers {
public:
    explicit Layers(const Model& model)
        : shape(model.shape),
          kernels(*model.kernels),
          scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.key_width)))) {}

    const Shape& shape;
    const Kernels& kernels;
    const float scale;  // of attention scores
    Scratch scratch;
    Array<float> x, normed, projected, q, attended, inner, transposed, memory_kv;
    std::vector<const float*> own;
    std::vector<int32_t> first, last;

    // The widths of rows of `projected` (queries, keys, values) and of keys and values alone.
    int qkv_row() const { return 2 * shape.key_row() + shape.value_row(); }
    int kv_row() const { return shape.key_row() + shape.value_row(); }

    // `Linear.forward`: rows of x to `out`.
    float* linear(const Matrix& matrix, const float* in, int rows, Array<float>& out,
                  Activation activation = Activation::none) {
        float* y = out.room(static_cast<size_t>(rows) * matrix.out);
        kernels.linear(matrix, in, rows, y, matrix.out, {activation, false}, scratch);
        return y;
    }

    // `nn.LayerNorm.forward`.
    void layer_norm(const Norm& norm, const float* in, int rows, float* out) {
        kernels.layer_norm(in, rows, shape.d_model, norm.gain.data(), norm.bias.data(),
                           shape.norm_epsilon, out);
    }

    // `Residual.forward`, on rows in place. `sublayer(in)` returns the input of the `last` linear
    // map of the sub-layer, which adds its result to the rows.
    template <class Sublayer>
    void residual(const Norm& norm, const Matrix& last, float* rows, int count,
                  Sublayer sublayer) {
        const float* in = rows;
        if (shape.pre_norm) {
            float* out = normed.room(static_cast<size_t>(count) * shape.model_row());
            layer_norm(norm, rows, count, out);
            in = out;
        }
        kernels.linear(last, sublayer(in), count, rows, shape.model_row(),
                       {Activation::none, true}, scratch);
        if (!shape.pre_norm) layer_norm(norm, rows, count, rows);
    }

    // `FeedForward.forward` up to its activation.
    const float* feed_forward(const Matrix& matrix, const float* in, int count) {
        return linear(matrix, in, count, inner, shape.silu ? Activation::silu : Activation::relu);
    }

    // `SelfAttention.forward` in the encoder, of one sentence: `qkv` (positions, qkv_row).
    void attend_sentence(const float* qkv, int positions, float* out) {
        const int stride = qkv_row(), key_row = shape.key_row();
        float* keys = transposed.room(transposed_size(positions));
        kernels.transpose_keys(shape, qkv + key_row, stride, positions, keys);
        const SharedKeys memory{keys, qkv + 2 * key_row, stride, positions};
        const Queries queries{qkv, stride, out, shape.value_row(), positions};
        // `local_attention`: positions at most `window` away.
        const int window = shape.window;
        const bool restricted = window >= 0 && window < positions - 1;
        if (restricted) {
            first.resize(positions);
            last.resize(positions);
            for (int t = 0; t < positions; t++) {
                first[t] = std::max(t - window, 0);
                last[t] = t < positions - window ? t + window + 1 : positions;
            }
        }
        kernels.attend_shared(shape, memory, queries, restricted ? first.data() : nullptr,
                              restricted ? last.data() : nullptr, scale, scratch);
    }

    size_t transposed_size(size_t positions) const {
        return positions_of_keys(positions) * shape.heads * shape.key_room();
    }
    static size_t positions_of_keys(size_t positions) {
        return static_cast<size_t>(round_up(static_cast<int64_t>(positions), LANES));
    }
};

// `Engine.start`.
Decoding::Decoding(const Model& model, const int32_t* ids, const int32_t* lengths, int sentences,
                   int slots, int longest)
    : model_(model),
      slots_(slots),
      layers_(std::make_unique<Layers>(model)),
      memories_(model.decoder.size()),
      ancestors_(static_cast<size_t>(sentences) * slots),
      words_(static_cast<size_t>(sentences) * slots) {
    const Shape& shape = model.shape;
    check_length(model, *std::max_element(lengths, lengths + sentences));
    size_t keys = 0, values = 0;
    for (int b = 0; b < sentences; b++) {
        batch_.push_back({lengths[b], keys, values});
        keys += Layers::positions_of_keys(lengths[b]);
        values += lengths[b];
    }
    for (Memory& memory : memories_) {
        memory.keys.resize(layers_->transposed_size(keys));
        memory.values.resize(values * shape.value_row());
    }
    for (int begin = 0; begin < sentences;) {
        int end = begin + 1, tokens = lengths[begin];
        while (end < sentences && tokens < GROUP_TOKENS) tokens += lengths[end++];
        encode(ids, &batch_[begin], end - begin);
        ids += tokens;
        begin = end;
    }
    for (auto& one : ancestors_) one.reserve(std::clamp(longest, 0, MOST_RESERVED_STEPS));
}

Decoding::~Decoding() = default;

Scratch& Decoding::scratch() { return layers_->scratch; }

// `Transformer.encode`, of a group of sentences.
void Decoding::encode(const int32_t* ids, const Sentence* sentences, int count) {
    Layers& layers = *layers_;
    const Shape& shape = model_.shape;
    const Array<float>& table =
        shape.own_src_embedding ? model_.src_embedding : model_.tgt_embedding;
    int rows = 0;
    for (int b = 0; b < count; b++) rows += sentences[b].positions;
    float* x = layers.x.room(static_cast<size_t>(rows) * shape.model_row());
    float* row = x;
    for (int b = 0; b < count; b++) {
        int words = 0;
        for (int t = 0; t < sentences[b].positions; t++, ids++, row += shape.model_row()) {
            if (counts_words(model_)) words += model_.src_words[*ids];
            embed(model_, table, *ids, t, std::max(words - 1, 0), row);
        }
    }
    // `EncoderLayer.forward`.
    for (const EncoderLayer& layer : model_.encoder) {
        layers.residual(layer.norms[0], layer.out_proj, x, rows, [&](const float* in) {
            const float* qkv = layers.linear(layer.in_proj, in, rows, layers.projected);
            float* out = layers.attended.room(static_cast<size_t>(rows) * shape.value_row());
            float* end = out;
            for (int b = 0; b < count; b++) {
                layers.attend_sentence(qkv, sentences[b].positions, end);
                qkv += static_cast<size_t>(sentences[b].positions) * layers.qkv_row();
                end += static_cast<size_t>(sentences[b].positions) * shape.value_row();
            }
            return out;
        });
        layers.residual(layer.norms[1], layer.outer, x, rows, [&](const float* in) {
            return layers.feed_forward(layer.inner, in, rows);
        });
    }
    if (shape.pre_norm) layers.layer_norm(model_.encoder_norm, x, rows, x);
    project_memory(x, rows, sentences, count);
}

// `CrossAttention.project_memory` of all decoder layers.
void Decoding::project_memory(const float* states, int rows, const Sentence* sentences,
                              int count) {
    Layers& layers = *layers_;
    const Shape& shape = model_.shape;
    const int stride = layers.kv_row(), key_row = shape.key_row(), value_row = shape.value_row();
    for (size_t i = 0; i < memories_.size(); i++) {
        const float* kv =
            layers.linear(model_.decoder[i].kv_proj, states, rows, layers.memory_kv);
        for (int b = 0; b < count; b++) {
            const Sentence& sentence = sentences[b];
            float* keys = &memories_[i].keys[layers.transposed_size(sentence.first_key)];
            layers.kernels.transpose_keys(shape, kv, stride, sentence.positions, keys);
            float* values = &memories_[i].values[sentence.first_value * value_row];
            for (int t = 0; t < sentence.positions; t++, kv += stride, values += value_row)
                std::copy_n(kv + key_row, value_row, values);
        }
    }
}

// `Engine.step` up to `Transformer.logits`, with its last norm.
const float* Decoding::step(const int32_t* tokens, const int32_t* rows, int count) {
    Layers& layers = *layers_;
    const Shape& shape = model_.shape;
    const int position = steps();
    check_length(model_, position + 1);
    float* x = layers.x.room(static_cast<size_t>(count) * shape.model_row());
    for (int r = 0; r < count; r++) {
        if (counts_words(model_)) words_[rows[r]] += model_.tgt_words[tokens[r]];
        embed(model_, model_.tgt_embedding, tokens[r], position, words_[rows[r]],
              x + static_cast<size_t>(r) * shape.model_row());
    }
    // `DecoderCache.advance`. What a dead slot refers to is never read.
    for (auto& one : ancestors_) one.push_back(0);
    for (int r = 0; r < count; r++) ancestors_[rows[r]].back() = r;
    const size_t size = model_.decoder.size() * count * layers.kv_row();
    steps_.push_back({count, Array<float>(size)});

    // `_Layer.step`.
    for (size_t i = 0; i < model_.decoder.size(); i++) {
        const DecoderLayer& layer = model_.decoder[i];
        float* attended = layers.attended.room(static_cast<size_t>(count) * shape.value_row());
        layers.residual(layer.norms[0], layer.out_proj, x, count, [&](const float* in) {
            attend_self(i, layers.linear(layer.in_proj, in, count, layers.projected), rows, count);
            return attended;
        });
        layers.residual(layer.norms[1], layer.cross_out, x, count, [&](const float* in) {
            const float* q = layers.linear(layer.q_proj, in, count, layers.q);
            attend_memory(memories_[i], q, rows, count);
            return attended;
        });
        layers.residual(layer.norms[2], layer.outer, x, count, [&](const float* in) {
            return layers.feed_forward(layer.inner, in, count);
        });
    }
    if (shape.pre_norm) layers.layer_norm(model_.decoder_norm, x, count, x);
    return x;
}

// Attention of each hypothesis to its own steps: `LayerCache.append` and `DecoderCache.attend`.
void Decoding::attend_self(size_t layer, const float* qkv, const int32_t* rows, int count) {
    Layers& layers = *layers_;
    const Shape& shape = model_.shape;
    const size_t stride = layers.kv_row();
    float* newest = &steps_.back().kv[layer * count * stride];
    for (int r = 0; r < count; r++)
        std::copy_n(qkv + static_cast<size_t>(r) * layers.qkv_row() + shape.key_row(), stride,
                    newest + r * stride);
    const int end = steps();
    const int begin = shape.window < 0 ? 0 : std::max(end - 1 - shape.window, 0);
    layers.own.resize(end - begin);
    for (int r = 0; r < count; r++) {
        const std::vector<int32_t>& ancestors = ancestors_[rows[r]];
        for (int t = begin; t < end; t++) {
            const size_t row = layer * steps_[t].rows + ancestors[t];
            layers.own[t - begin] = &steps_[t].kv[row * stride];
        }
        layers.kernels.attend_own(shape, qkv + static_cast<size_t>(r) * layers.qkv_row(),
                                  layers.own.data(), end - begin, layers.scale,
                                  &layers.attended[static_cast<size_t>(r) * shape.value_row()],
                                  layers.scratch);
    }
}

// Attention of the hypotheses to the encoder's output: those of a sentence together.
void Decoding::attend_memory(const Memory& memory, const float* q, const int32_t* rows,
                             int count) {
    Layers& layers = *layers_;
    const Shape& shape = model_.shape;
    const int value_row = shape.value_row();
    for (int begin = 0, end = 0; begin < count; begin = end) {
        const int b = rows[begin] / slots_;
        while (end < count && rows[end] / slots_ == b) end++;
        const Sentence& sentence = batch_[b];
        const SharedKeys keys{&memory.keys[layers.transposed_size(sentence.first_key)],
                              &memory.values[sentence.first_value * value_row], value_row,
                              sentence.positions};
        const Queries queries{q + static_cast<size_t>(begin) * shape.key_row(), shape.key_row(),
                              &layers.attended[static_cast<size_t>(begin) * value_row], value_row,
                              end - begin};
        layers.kernels.attend_shared(shape, keys, queries, nullptr, nullptr, layers.scale,
                                     layers.scratch);
    }
}

// `DecoderCache.reorder`.
void Decoding::reorder(const int32_t* parents) {
    std::vector<std::vector<int32_t>> old(slots_);
    std::vector<int32_t> words(slots_);
    for (size_t first = 0; first < ancestors_.size(); first += slots_) {
        for (int w = 0; w < slots_; w++) {
            old[w] = ancestors_[first + w];
            words[w] = words_[first + w];
        }
        for (int w = 0; w < slots_; w++) {
            ancestors_[first + w] = old[parents[first + w]];
            words_[first + w] = words[parents[first + w]];
        }
    }
}

// `DecoderCache.select`.
void Decoding::select(const int32_t* kept, int count) {
    std::vector<Sentence> batch;
    std::vector<std::vector<int32_t>> ancestors;
    std::vector<int32_t> words;
    for (int b = 0; b < count; b++) {
        batch.push_back(batch_[kept[b]]);
        for (size_t i = 0; i < static_cast<size_t>(slots_); i++) {
            const size_t from = static_cast<size_t>(kept[b]) * slots_ + i;
            ancestors.push_back(ancestors_[from]);
            words.push_back(words_[from]);
        }
    }
    batch_.swap(batch);
    ancestors_.swap(ancestors);
    words_.swap(words);
}

}  // namespace mtkit
