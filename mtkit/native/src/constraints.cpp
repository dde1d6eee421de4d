#include "constraints.h"

#include <algorithm>

namespace mtkit {

namespace {

// Sort the ids from `first` on, without duplicates.
void make_ascending(std::vector<int32_t>& ids, size_t first) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
    std::sort(begin, ids.end());
    ids.erase(std::unique(begin, ids.end()), ids.end());
}

}  // namespace

Constrainer::Constrainer(const Settings& settings, const Request& request, int vocabulary)
    : vocabulary_(vocabulary),
      eos_(settings.eos_id),
      min_length_(settings.min_length),
      ngram_(settings.no_repeat_ngram),
      prefix_lengths_(request.prefix_lengths),
      forbidden_(request.forbidden, request.forbidden + request.forbidden_count) {
    if (prefix_lengths_ == nullptr) return;
    const int32_t* prefix = request.prefixes;
    for (int sentence = 0; sentence < request.sentences; ++sentence) {
        prefixes_.push_back(prefix);
        prefix += prefix_lengths_[sentence];
    }
}

void Constrainer::start(int done) {
    done_ = done;
    excluded_.ids = forbidden_;
    if (done < min_length_) excluded_.ids.push_back(eos_);
    make_ascending(excluded_.ids, 0);
    shared_ = static_cast<int>(excluded_.ids.size());
    excluded_.first.clear();
    excluded_.count.clear();
}

// One row of `Constrainer.forbid`.
void Constrainer::add(int sentence, const std::vector<int32_t>& tokens) {
    const bool forced = prefix_lengths_ != nullptr && done_ < prefix_lengths_[sentence];
    if (!forced && !reads_tokens()) {
        excluded_.first.push_back(0);
        excluded_.count.push_back(shared_);
        return;
    }
    const size_t first = excluded_.ids.size();
    if (forced) {
        exclude_all_but(prefixes_[sentence][done_]);
    } else {
        exclude_repeats(tokens);
    }
    excluded_.first.push_back(static_cast<int32_t>(first));
    excluded_.count.push_back(static_cast<int32_t>(excluded_.ids.size() - first));
}

// A token of a prefix is possible unless all hypotheses are forbidden to have it.
void Constrainer::exclude_all_but(int32_t token) {
    std::vector<int32_t>& ids = excluded_.ids;
    const bool possible = !std::binary_search(ids.begin(), ids.begin() + shared_, token);
    for (int32_t id = 0; id < vocabulary_; ++id) {
        if (id != token || !possible) ids.push_back(id);
    }
}

// `_repeats`: the tokens that earlier followed the n - 1 newest tokens.
void Constrainer::exclude_repeats(const std::vector<int32_t>& tokens) {
    std::vector<int32_t>& ids = excluded_.ids;
    const size_t first = ids.size();
    ids.reserve(first + static_cast<size_t>(shared_) + tokens.size());
    ids.insert(ids.end(), ids.begin(), ids.begin() + shared_);
    const auto newest = tokens.end() - (ngram_ - 1);
    for (auto at = tokens.begin(); at + ngram_ <= tokens.end(); ++at) {
        if (std::equal(newest, tokens.end(), at)) ids.push_back(at[ngram_ - 1]);
    }
    make_ascending(ids, first);
}

}  // namespace mtkit
