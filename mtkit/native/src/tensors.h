// The tensors that a model is made of, by their names in `Transformer.state_dict`.
#pragma once

#include <string>
#include <vector>

#include "model.h"

namespace mtkit {

// Some of the numbers along an axis of a tensor: those of `heads` attention heads, one after the
// other. An axis without heads is one part with one head.
struct AxisPart {
    int64_t heads, width;

    int64_t size() const { return heads * width; }
    // In the engine each head is padded to whole vectors, and all together to whole rows.
    int64_t head_room() const { return round_up(width, LANES); }
    int64_t room() const { return padded(heads * head_room()); }
};

// An axis of a tensor; several parts are queries, keys and values. A vector has an axis without
// parts for its rows, and one row.
using Axis = std::vector<AxisPart>;
int64_t size(const Axis& axis);
int64_t room(const Axis& axis);  // the same, padded

struct Tensor {
    std::string name;
    Axis rows;  // none for a vector
    Axis columns;
    Matrix* matrix;       // where its numbers go when they are padded: into a matrix to be packed,
    Array<float>* array;  // an array, or both
    bool is_set = false;
};

// The tensors that a model of this shape needs.
std::vector<Tensor> tensors_of(Model& model);
// Give a tensor its numbers, without padding.
void set_tensor(Tensor& tensor, const float* values, Precision precision);

}  // namespace mtkit
