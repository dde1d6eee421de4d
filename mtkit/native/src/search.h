// Beam search, greedy search and sampling, with the results of `mtkit.translate.search.beam`,
// `independent` and `sampling`: the same rules, sums in float64, ties resolved in the same way.
#pragma once

#include <cstdint>
#include <vector>

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

// As `mtkit.search_settings` in Python. Plain numbers, because Python fills it in.
struct Settings {
    int32_t beam_size;       // W; 1 is greedy search
    int32_t n_best;          // hypotheses returned of each sentence, at most W
    int32_t rank_cut_off;    // 1: hypotheses at the length limit are ranked among the finished
    int32_t power_penalty;   // 1 for `length_penalty_form: power`
    int32_t lookahead;       // for `stop: likely`, see `Search::prune`; 0 for `exact`
    double alpha;            // strength of the length penalty
    int32_t bos_id, eos_id;
    int32_t min_length;
    int32_t no_repeat_ngram;
    int32_t samples;         // W samples instead of a search; 0 to search
    int32_t top_k;
    double temperature, top_p;
};

struct Hypothesis {
    std::vector<int32_t> tokens;       // without BOS and EOS
    std::vector<double> token_log_probs;  // with EOS, if it is finished
    double log_prob, score;
    bool finished;
};

// A head of attention to the source; the layer and the head count from 0.
struct Head {
    int32_t layer, head;
    int32_t is_input;  // 1: read where the token is the input, 0: where it is predicted
};

// What is asked of one batch.
struct Request {
    const int32_t* ids;        // of all sentences, one after the other, each ended by EOS
    const int32_t* lengths;    // with EOS
    int sentences;
    const int32_t* limits;     // most tokens of each output, with EOS
    const int32_t* prefixes;   // of all sentences, one after the other
    const int32_t* prefix_lengths;
    const int32_t* forbidden;  // ids that are in no output but as a part of its prefix
    int forbidden_count;
    const double* uniforms;    // of sampling: sentence, sample, step
    int uniform_steps;
    const volatile int32_t* stop;  // when it is not zero, the search ends and has no results
    const Head* heads;             // whose attention is wanted
    int head_count;
};

// Of each sentence its hypotheses, best first; samples in sampling order. Empty when stopped.
using Found = std::vector<std::vector<Hypothesis>>;

// The scorer has W slots: as many as the beam or samples; greedy search has one.
Found beam_search(Scorer& scorer, const Settings& settings, const Request& request);
Found greedy_search(Scorer& scorer, const Settings& settings, const Request& request);
Found sample(Scorer& scorer, const Settings& settings, const Request& request);

// The divisor of the log-probability of a hypothesis; the length includes EOS.
double length_penalty(const Settings& settings, int length);

inline bool stopped(const Request& request) {
    return request.stop != nullptr && *request.stop != 0;
}

}  // namespace mtkit
