// What an output must and must not contain: `Constraints` in `mtkit.search_settings`, without masks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "search.h"

namespace mtkit {

// Lists the tokens that may not follow, as `Constrainer` in Python. In each step: `start`, then
// `add` for every live hypothesis, then `excluded`.
class Constrainer {
public:
    Constrainer(const Settings& settings, const Request& request, int vocabulary)
        : settings_(settings), request_(request), vocabulary_(vocabulary) {
        const int32_t* prefix = request.prefixes;
        for (int sentence = 0; sentence < request.sentences; ++sentence) {
            prefixes_.push_back(prefix);
            prefix += request.prefix_lengths[sentence];
        }
    }

    // A step of hypotheses that have `done` tokens.
    void start(int done) {
        done_ = done;
        always_.assign(request_.forbidden, request_.forbidden + request_.forbidden_count);
        if (done < settings_.min_length) always_.push_back(settings_.eos_id);
        make_ascending(always_, 0);
        ids_.clear();
        ends_.clear();
        certain_.clear();
    }

    // A hypothesis of this sentence; its tokens are read only if `reads_tokens`. One row of
    // `Constrainer.forbid`.
    void add(int sentence, const std::vector<int32_t>& tokens) {
        if (done_ < request_.prefix_lengths[sentence]) {
            const int32_t token = prefixes_[sentence][done_];
            // A token of a prefix is possible unless no hypothesis may have it. One that only a
            // prefix may have is certain.
            const int32_t* end = request_.forbidden + request_.forbidden_count;
            const bool only_here = std::find(request_.forbidden, end, token) != end;
            if (only_here) certain_.push_back(int(ends_.size()));
            const bool possible =
                only_here || !std::binary_search(always_.begin(), always_.end(), token);
            for (int32_t id = 0; id < vocabulary_; ++id)
                if (id != token || !possible) ids_.push_back(id);
        } else {
            const size_t first = ids_.size();
            ids_.insert(ids_.end(), always_.begin(), always_.end());
            if (reads_tokens()) {
                exclude_repeats(tokens);
                make_ascending(ids_, first);
            }
        }
        ends_.push_back(int64_t(ids_.size()));
    }
    bool reads_tokens() const {
        return 0 < settings_.no_repeat_ngram && settings_.no_repeat_ngram <= done_;
    }

    // Those of the hypotheses that were added, in this order.
    Excluded excluded() const { return {ids_.data(), ends_.data()}; }

    // Whether the one token that may follow in a row is certain.
    bool is_certain(int row) const {
        return std::binary_search(certain_.begin(), certain_.end(), row);
    }

    // Make certain tokens certain, in the best log-probabilities of each row.
    void settle(float* best, ptrdiff_t columns) const {
        for (const int row : certain_)
            // Not where the model computes no numbers.
            if (best[row * columns] > -std::numeric_limits<float>::infinity())
                best[row * columns] = 0;
    }

private:
    // Sort the ids from `first` on, without duplicates.
    static void make_ascending(std::vector<int32_t>& ids, size_t first) {
        std::sort(ids.begin() + first, ids.end());
        ids.erase(std::unique(ids.begin() + first, ids.end()), ids.end());
    }

    // `_forbid_repeats`: the tokens that earlier followed the n - 1 newest tokens.
    void exclude_repeats(const std::vector<int32_t>& tokens) {
        const int64_t n = settings_.no_repeat_ngram;
        if (int64_t(tokens.size()) < n) return;
        const auto newest = tokens.end() - (n - 1);
        for (auto at = tokens.begin(); tokens.end() - at >= n; ++at)
            if (std::equal(newest, tokens.end(), at)) ids_.push_back(at[n - 1]);
    }

    const Settings& settings_;
    const Request& request_;
    const int vocabulary_;
    std::vector<const int32_t*> prefixes_;  // of each sentence
    int done_ = 0;
    std::vector<int32_t> always_;  // what no hypothesis may have in this step, ascending
    std::vector<int32_t> ids_;     // what each hypothesis may not have; see `Excluded`
    std::vector<int64_t> ends_;
    std::vector<int> certain_;     // rows whose token is certain, ascending
};

}  // namespace mtkit
