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
    Array<float> tgt_embedding;         // only where `output` is in 8 bits
    Array<float> src_embedding;         // only where the source has its own
    Array<float> position_table;        // learned, or the first sinusoids
    int positions_in_table = 0;
    Array<uint8_t> src_words, tgt_words;  // of `positions: words`
};

// The decoding state of a batch of sentences, with W slots for hypotheses of each; as
// `DecoderCache` in engine.py. Keys and values of a hypothesis are written once and never moved:
// `slot_of` says, for each hypothesis and earlier step, in which slot its ancestor was.
class Decoding {
public:
    // Encode sentences: `ids` one after the other, each ended by EOS, of these lengths.
    Decoding(const Model& model, const int32_t* ids, const int32_t* lengths, int sentences,
             int slots, int longest);

    // One step for the live hypotheses `rows` (ascending, among sentences in batch * W), whose
    // newest tokens are `tokens`. States (rows, model_row) after the last norm.
    const float* step(const int32_t* tokens, const int32_t* rows, int count);
    // Slot w of sentence b continues the hypothesis of slot parents[b * W + w].
    void reorder(const int32_t* parents);
    // Keep these sentences of the batch, in this order.
    void select(const int32_t* kept, int count);

    int sentences() const;  // in the batch now
    int slots() const;
    int steps() const;      // done so far
    const Model& model() const;
    Scratch& scratch();
};

}  // namespace mtkit
