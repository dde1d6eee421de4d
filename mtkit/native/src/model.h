// The Transformer: its packed weights, the encoder, and one step of the decoder.
#pragma once

#include <cstdint>
#include <vector>

#include "search.h"

namespace mtkit {

struct Norm {  // `nn.LayerNorm`
    Array<float> gain, bias;
};

struct Layer {
    Matrix in_proj, out_proj;            // self-attention
    Matrix q_proj, kv_proj, cross_out;   // cross-attention, in the decoder only
    Matrix inner, outer;                 // feed-forward
    Norm norms[3];                       // of the sub-layers, in this order
};

struct Model {
    Shape shape{};
    Precision precision = Precision::float32;
    const Kernels* kernels = nullptr;
    std::vector<Layer> encoder, decoder;
    Norm encoder_norm, decoder_norm;    // of pre-norm stacks
    Matrix output;                      // the embedding of the target too
    Array<float> tgt_embedding;         // (V, model_row), only where `output` is in 8 bits
    Array<float> src_embedding;         // (V, model_row), only where the source has its own
    Array<float> position_table;        // (positions, padded(position_width)); see below
    Array<float> src_words, tgt_words;  // of `positions: words`: not 0 where a word begins

    // The width of a position encoding: half of the model's where the other half is for words.
    int position_width() const;
    // Fill the table with the first sinusoids, where positions are not learned.
    void make_positions();
};

// The decoding state of a batch of sentences, with W slots for hypotheses of each; as
// `DecoderCache` in pytorch/incremental.py. Keys and values of a hypothesis are written once and
// never moved: each row of a step knows which row of the step before it continues.
class Decoding : public Scorer {
public:
    // Encode sentences: `ids` one after the other, each ended by EOS, of these lengths.
    Decoding(const Model& model, const int32_t* ids, const int32_t* lengths, int sentences,
             int slots);

    int vocabulary() const override { return shape_.tgt_vocabulary; }
    void step(const int32_t* tokens, const int32_t* slots, int count) override;
    void best(const Excluded& excluded, const Best& best) override;
    void all(int first, int count, float* log_probs) override;
    void reorder(const int32_t* parents) override;
    // Record the attention of these heads in all steps; no sentence may be selected.
    void watch(const Head* heads, int count);
    // The mean weights of these heads for the tokens of a hypothesis of sentence b: rows of `width`
    // numbers, of which the source has the first ones. False where no step has read its tokens. Of
    // hypotheses with the same tokens, which samples may be, only one is found.
    bool attention(int b, const int32_t* tokens, int count, float* out, int width) const;
    // Keep these sentences of the batch, in this order.
    void select(const int32_t* kept, int count);

    int sentences() const { return int(batch_.size()); }  // in the batch now
    int slots() const { return n_slots_; }                 // W

private:
    // A sentence, and where its keys and values begin in `Memory`, in numbers.
    struct Sentence {
        int positions;
        size_t keys_at, values_at;
    };
    // Of one decoder layer, for attention to the encoder's output; see `SharedKeys`.
    struct Memory {
        Array<float> keys, values;
    };
    // One step; each of its rows is a hypothesis that was live then.
    struct Step {
        std::vector<int32_t> parents;  // of each row, the row that it continues, in the step before
        Array<float> kv;  // keys and values of self-attention: layer, row, key_row + value_row
        // Where heads are watched: of each row, its input, its sentence, and the summed weights of
        // heads that are read at the prediction and at the input: row, 2, position.
        std::vector<int32_t> tokens, sentences;
        std::vector<float> attention;
    };
    // A hypothesis.
    struct Slot {
        int row_in_step = 0;  // in the newest step
        int words = 0;        // words of the source read so far, with `positions: words`
    };

    void encode(const int32_t* ids, const Sentence* sentences, int count);
    void project_memory(const float* states, int rows, const Sentence* sentences, int count);

    // Sub-layers and their parts; see model.cpp.
    float* linear(const Matrix& matrix, const float* in, int rows, Array<float>& out,
                  Activation activation = Activation::none);
    void layer_norm(const Norm& norm, const float* in, int rows, float* out);
    template <class Sublayer>
    void residual(const Norm& norm, const Matrix& last, float* rows, int count, Sublayer sublayer);
    void attend_sentence(const float* qkv, int positions, float* out);
    float* attend_self(size_t layer, const float* qkv, int count);
    float* attend_memory(size_t layer, const float* q, const int32_t* slots, int count);
    void record(size_t layer, const float* weights, int first, int rows, int positions);
    // The row of a step that reads a token of sentence b after a row of the step before; or -1.
    int row_of(const Step& step, int b, int32_t token, int parent) const;

    // The widths of rows of keys and values, and of queries, keys and values.
    int kv_row() const { return shape_.key_row() + shape_.value_row(); }
    int qkv_row() const { return shape_.key_row() + kv_row(); }
    // The size of the keys of so many positions, in whole blocks.
    size_t keys_size(size_t positions) const {
        return round_up(positions, LANES) * shape_.heads * shape_.key_room();
    }

    const Model& model_;
    const Shape& shape_;
    const Kernels& kernels_;
    const int n_slots_;
    std::vector<Sentence> batch_;
    std::vector<Memory> memories_;  // of each layer
    std::vector<Step> steps_;
    std::vector<Slot> slots_;  // sentence * W
    std::vector<Head> heads_;  // that are watched
    int longest_ = 0;          // positions of a sentence
    int rows_ = 0;             // of the last step, whose states are in `x_`

    // Buffers. Each buffer always has rows of one width, so their padding stays zero.
    Scratch scratch_;
    Array<float> x_, normed_, projected_, q_, attended_, inner_, keys_, memory_kv_, weights_;
    std::vector<const float*> own_;
};

}  // namespace mtkit
