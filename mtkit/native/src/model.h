// The Transformer: its packed weights, the encoder, and one step of the decoder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.h"
#include "memory.h"
#include "shape.h"

namespace mtkit {

struct Norm {  // `nn.LayerNorm`
    Array<float> gain, bias;
};

struct EncoderLayer {
    Matrix in_proj, out_proj, inner, outer;
    Norm norms[2];
};

struct DecoderLayer {
    Matrix in_proj, out_proj, q_proj, kv_proj, cross_out, inner, outer;
    Norm norms[3];
};

struct Model {
    Shape shape{};
    Precision precision = Precision::float32;
    const Kernels* kernels = nullptr;
    std::vector<EncoderLayer> encoder;
    std::vector<DecoderLayer> decoder;
    Norm encoder_norm, decoder_norm;    // of pre-norm stacks
    Matrix output;                      // the embedding of the target too
    Array<float> tgt_embedding;         // (V, model_row), only where `output` is in 8 bits
    Array<float> src_embedding;         // (V, model_row), only where the source has its own
    Array<float> position_table;        // (positions, padded(position_width)); see below
    int positions_in_table = 0;
    Array<uint8_t> src_words, tgt_words;  // of `positions: words`

    // The width of a position encoding: half of the model's where the other half is for words.
    int position_width() const;
    // Fill the table with the first sinusoids, where positions are not learned.
    void make_sinusoids();
};

// The decoding state of a batch of sentences, with W slots for hypotheses of each; as
// `DecoderCache` in engine.py. Keys and values of a hypothesis are written once and never moved:
// `ancestors_` says, for each hypothesis and earlier step, in which row of that step they are.
class Decoding {
public:
    // Encode sentences: `ids` one after the other, each ended by EOS, of these lengths. `longest`
    // is the number of steps that the search may need; it may be too low or much too high.
    Decoding(const Model& model, const int32_t* ids, const int32_t* lengths, int sentences,
             int slots, int longest);
    ~Decoding();

    // One step for the live hypotheses `rows` (ascending, among sentences in batch * W), whose
    // newest tokens are `tokens`. States (rows, model_row) after the last norm, until the next
    // step.
    const float* step(const int32_t* tokens, const int32_t* rows, int count);
    // Slot w of sentence b continues the hypothesis of slot parents[b * W + w].
    void reorder(const int32_t* parents);
    // Keep these sentences of the batch, in this order.
    void select(const int32_t* kept, int count);

    int sentences() const { return static_cast<int>(batch_.size()); }  // in the batch now
    int slots() const { return slots_; }
    int steps() const { return static_cast<int>(steps_.size()); }  // done so far
    const Model& model() const { return model_; }
    Scratch& scratch();

private:
    class Layers;  // What layers of the encoder and of the decoder have in common.

    // Where the keys and values of a sentence begin in `Memory`, in positions.
    struct Sentence {
        int positions;
        size_t first_key, first_value;
    };
    // Of one decoder layer, for attention to the encoder's output; see `SharedKeys`.
    struct Memory {
        Array<float> keys, values;
    };
    // Keys and values of self-attention of one step: layer, row, key_row + value_row.
    struct Step {
        int rows;
        Array<float> kv;
    };

    void encode(const int32_t* ids, const Sentence* sentences, int count);
    void project_memory(const float* states, int rows, const Sentence* sentences, int count);
    void attend_self(size_t layer, const float* qkv, const int32_t* rows, int count);
    void attend_memory(const Memory& memory, const float* q, const int32_t* rows, int count);

    const Model& model_;
    const int slots_;
    std::unique_ptr<Layers> layers_;
    std::vector<Sentence> batch_;
    std::vector<Memory> memories_;  // of each layer
    std::vector<Step> steps_;
    std::vector<std::vector<int32_t>> ancestors_;  // sentence * W: of each step, its row
    std::vector<int32_t> words_;                   // sentence * W: words of the source read so far
};

}  // namespace mtkit
