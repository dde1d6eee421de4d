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
    bool reads_tokens() const { return 0 < ngram_ && ngram_ <= done_; }
    const Excluded& excluded() const { return excluded_; }

private:
    void exclude_all_but(int32_t token);
    void exclude_repeats(const std::vector<int32_t>& tokens);

    const int vocabulary_, eos_, min_length_, ngram_;
    const int32_t* prefix_lengths_;
    std::vector<const int32_t*> prefixes_;  // of each sentence
    std::vector<int32_t> forbidden_;        // ascending
    int done_ = 0;
    int shared_ = 0;  // the length of the list that rows without a list of their own share
    Excluded excluded_;
};

}  // namespace mtkit
