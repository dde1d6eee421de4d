// What a search needs of a model.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"

namespace mtkit {

// The next tokens that may not follow, for each live hypothesis, as `Kernels::log_probs` takes
// them: `count[r]` ids from `first[r]` on, ascending. Rows may share a list.
struct Excluded {
    std::vector<int32_t> ids, first, count;
};

// A model and its cache, as `Step` and `StepCache` in Python. Sentences of the batch have W slots
// each; hypothesis w of sentence b is in slot b * W + w.
class Scorer {
public:
    virtual ~Scorer() = default;
    virtual int vocabulary() const = 0;
    // Score what follows the `tokens`, the newest of the hypotheses in the slots `rows`, ascending.
    virtual void step(const int32_t* tokens, const int32_t* rows, int count) = 0;
    // Of the last step: the best that are not excluded; where fewer are left, -inf follows.
    virtual void best(const Excluded& excluded, const Best& best) = 0;
    // Of the last step: all log-probabilities of `count` rows from `first` on, (count, vocabulary).
    virtual void all(int first, int count, float* log_probs) = 0;
    // Slot w of sentence b continues the hypothesis of slot parents[b * W + w].
    virtual void reorder(const int32_t* parents) = 0;
    // Keep these sentences of the batch, in this order.
    virtual void select(const int32_t* kept, int count) = 0;
};

}  // namespace mtkit
