// The sizes of a model, and how its numbers are laid out.
#pragma once

#include <cmath>
#include <cstdint>

namespace mtkit {

// Every row of numbers is padded with zeros to a multiple of this, so that no loop over a row has a
// remainder: 64 bytes are one vector of 8-bit numbers.
constexpr int PAD = 64;
// Columns of a packed matrix that are computed together (see `Matrix`).
constexpr int PANEL = 16;
// Sums over a row are made in this many partial sums on every CPU, and these are added in one
// order, so that float32 results have the same bits on every CPU.
constexpr int LANES = 16;

constexpr int64_t round_up(int64_t size, int64_t multiple) {
    return (size + multiple - 1) / multiple * multiple;
}
constexpr int64_t padded(int64_t size) { return round_up(size, PAD); }

enum class Precision : int32_t { float32 = 0, int8 = 1, bf16 = 2 };
enum class Positions : int32_t { sinusoidal = 0, learned = 1, words = 2, none = 3 };
enum class Activation : int32_t { none = 0, relu = 1, silu = 2 };

// The part of `ModelConfig` that the forward pass needs. Plain numbers, because Python fills it in.
struct Shape {
    int32_t d_model, d_ff, heads, key_width, value_width;
    int32_t encoder_layers, decoder_layers;
    int32_t src_vocabulary, tgt_vocabulary;
    int32_t own_src_embedding;  // 1 if the source has an embedding matrix of its own
    int32_t pre_norm;           // 1 for `norm: pre`
    Activation activation;
    int32_t output_bias;        // 1 if the output layer has a bias
    int32_t window;             // `attention_window`; -1 if attention is not restricted
    Positions positions;
    int32_t max_positions;      // of learned positions
    float norm_epsilon;

    // The width of one head's keys or values, padded: heads begin at whole vectors.
    int key_room() const { return int(round_up(key_width, LANES)); }
    int value_room() const { return int(round_up(value_width, LANES)); }
    // What the products of queries and keys are multiplied by.
    float score_scale() const { return float(1.0 / std::sqrt(double(key_width))); }
    // The widths of rows, padded: model, feed-forward, queries or keys of all heads, their values.
    int model_row() const { return int(padded(d_model)); }
    int inner_row() const { return int(padded(d_ff)); }
    int key_row() const { return int(padded(int64_t{heads} * key_room())); }
    int value_row() const { return int(padded(int64_t{heads} * value_room())); }
};

}  // namespace mtkit
