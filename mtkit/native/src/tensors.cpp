#include "tensors.h"

#include <algorithm>

namespace mtkit {

namespace {

// Of each number along an axis, where it is when the axis is padded.
std::vector<int64_t> places(const Axis& axis) {
    if (axis.empty()) return {0};
    std::vector<int64_t> all;
    int64_t start = 0;
    for (const AxisPart& part : axis) {
        for (int64_t i = 0; i < part.size(); i++)
            all.push_back(start + i / part.width * part.head_room() + i % part.width);
        start += part.room();
    }
    return all;
}

int64_t sum_of(const Axis& axis, int64_t (AxisPart::*length)() const) {
    if (axis.empty()) return 1;
    int64_t sum = 0;
    for (const AxisPart& part : axis) sum += (part.*length)();
    return sum;
}

}  // namespace

int64_t size(const Axis& axis) { return sum_of(axis, &AxisPart::size); }
int64_t room(const Axis& axis) { return sum_of(axis, &AxisPart::room); }

std::vector<Tensor> tensors_of(Model& model) {
    const Shape& shape = model.shape;
    const Axis width{{1, shape.d_model}}, inner{{1, shape.d_ff}};
    const Axis src{{1, shape.src_vocabulary}}, tgt{{1, shape.tgt_vocabulary}};
    const AxisPart keys{shape.heads, shape.key_width}, values{shape.heads, shape.value_width};
    std::vector<Tensor> all;
    const auto array = [&](const std::string& name, const Axis& rows, const Axis& columns,
                           Array<float>& to) {
        all.push_back({name, rows, columns, nullptr, &to});
    };
    const auto linear = [&](const std::string& name, const Axis& rows, const Axis& columns,
                            Matrix& to) {
        all.push_back({name + ".weight", rows, columns, &to, nullptr});
        array(name + ".bias", {}, rows, to.bias);
    };
    const auto norm = [&](const std::string& name, Norm& to) {
        array(name + ".weight", {}, width, to.gain);
        array(name + ".bias", {}, width, to.bias);
    };
    const auto layer = [&](const std::string& name, Layer& to, bool in_decoder) {
        linear(name + ".self_attention.in_proj", {keys, keys, values}, width, to.in_proj);
        linear(name + ".self_attention.out_proj", width, {values}, to.out_proj);
        if (in_decoder) {
            linear(name + ".cross_attention.q_proj", {keys}, width, to.q_proj);
            linear(name + ".cross_attention.kv_proj", {keys, values}, width, to.kv_proj);
            linear(name + ".cross_attention.out_proj", width, {values}, to.cross_out);
        }
        linear(name + ".feed_forward.inner", inner, width, to.inner);
        linear(name + ".feed_forward.outer", width, inner, to.outer);
        for (int n = 0; n < (in_decoder ? 3 : 2); n++)
            norm(name + ".residuals." + std::to_string(n) + ".norm", to.norms[n]);
    };

    // In 8 bits the embedding of the target is kept beside the output layer, which is the same.
    Array<float>* embedding = model.precision == Precision::int8 ? &model.tgt_embedding : nullptr;
    all.push_back({"embedding.weight", tgt, width, &model.output, embedding});
    if (shape.output_bias)
        array("output_bias", {}, tgt, model.output.bias);
    else
        model.output.bias.resize(room(tgt));
    if (shape.own_src_embedding) array("src_embedding.weight", src, width, model.src_embedding);
    if (shape.positions == Positions::learned)
        array("learned_positions", {{1, shape.max_positions}}, width, model.position_table);
    if (shape.positions == Positions::words) {
        array("src_words", {}, src, model.src_words);
        array("tgt_words", {}, tgt, model.tgt_words);
    }
    for (size_t i = 0; i < model.encoder.size(); i++)
        layer("encoder." + std::to_string(i), model.encoder[i], false);
    for (size_t i = 0; i < model.decoder.size(); i++)
        layer("decoder." + std::to_string(i), model.decoder[i], true);
    if (shape.pre_norm) {
        norm("encoder_norm", model.encoder_norm);
        norm("decoder_norm", model.decoder_norm);
    }
    return all;
}

void set_tensor(Tensor& tensor, const float* values, Precision precision) {
    const int64_t rows = room(tensor.rows), columns = room(tensor.columns);
    const std::vector<int64_t> places_in_row = places(tensor.columns);
    Array<float> padded;
    padded.resize(rows * columns);
    for (const int64_t row : places(tensor.rows))
        for (const int64_t column : places_in_row) padded[row * columns + column] = *values++;
    if (tensor.matrix != nullptr)
        pack(*tensor.matrix, padded.data(), int(rows), int(columns), precision);
    if (tensor.array != nullptr) *tensor.array = std::move(padded);
    tensor.is_set = true;
}

}  // namespace mtkit
