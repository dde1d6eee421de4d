// What an output must and must not contain: `mtkit.translate.constraints` without masks.
#pragma once

#include <cstdint>
#include <vector>

#include "search.h"

namespace mtkit {

// Lists the tokens that may not follow, as `Constrainer` in Python. In each step: `start`, then
// `add` for every live hypothesis, then `excluded`.
class Constrainer {
public:
    Constrainer(const Settings& settings, const Request& request, int vocabulary);

    // A step of hypotheses that have `done` tokens.
    void start(int done);
    // A hypothesis of this sentence; its tokens are read only if `reads_tokens`.
    void add(int sentence, const std::vector<int32_t>& tokens);
    bool reads_tokens() const {
        return 0 < settings_.no_repeat_ngram && settings_.no_repeat_ngram <= done_;
    }
    // Those of the hypotheses that were added, in this order.
    Excluded excluded() const { return {ids_.data(), ends_.data()}; }

private:
    void exclude_repeats(const std::vector<int32_t>& tokens);

    const Settings& settings_;
    const Request& request_;
    const int vocabulary_;
    std::vector<const int32_t*> prefixes_;  // of each sentence
    int done_ = 0;
    std::vector<int32_t> always_;  // what no hypothesis may have in this step, ascending
    std::vector<int32_t> ids_;     // what each hypothesis may not have; see `Excluded`
    std::vector<int64_t> ends_;
};

}  // namespace mtkit
