// What a search needs of a model.
#pragma once

#include <cstdint>

#include "kernels.h"

namespace mtkit {

// A model and its cache, as `Step` and `StepCache` in Python. Sentences of the batch have W slots
// each; hypothesis w of sentence b is in slot b * W + w.
class Scorer {
public:
    virtual ~Scorer() = default;
    virtual int vocabulary() const = 0;
    // One step: append `tokens[r]` to the hypothesis in slot `slots[r]` (ascending).
    virtual void step(const int32_t* tokens, const int32_t* slots, int count) = 0;
    // Of the last step: the best that are not excluded; where fewer are left, -inf follows.
    virtual void best(const Excluded& excluded, const Best& best) = 0;
    // Of the last step: all log-probabilities of `count` rows from `first` on, (count, vocabulary).
    virtual void all(int first, int count, float* log_probs) = 0;
    // Slot w of sentence b continues the hypothesis of slot parents[b * W + w].
    virtual void reorder(const int32_t* parents) = 0;
};

}  // namespace mtkit
