// The native search over tables of log-probabilities instead of a model, for tests.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "search.h"

using namespace mtkit;

namespace {

// What the search asked for, to compare with the search in Python.
struct Work {
    int32_t steps, rows;
};

// The next token depends on a state, which each token changes: see `TableCache` in the test.
class TableScorer : public Scorer {
public:
    TableScorer(const float* tables, int states, int vocabulary, int sentences, int slots)
        : tables_(tables), n_states_(states), vocabulary_(vocabulary), slots_(slots),
          states_(sentences * slots) {}

    int vocabulary() const override { return vocabulary_; }

    void step(const int32_t* tokens, const int32_t* slots, int count) override {
        scored_.clear();
        for (int r = 0; r < count; ++r) {
            if (r > 0 && slots[r] <= slots[r - 1]) throw "slots are not ascending";
            int32_t& state = states_.at(slots[r]);
            state = (state * 7 + tokens[r] + 1) % n_states_;
            const int64_t table = slots[r] / slots_;
            scored_.push_back(tables_ + (table * n_states_ + state) * vocabulary_);
        }
        ++work.steps;
        work.rows += count;
        stop = work.steps == stop_at;
    }

    void best(const Excluded& excluded, const Best& best) override {
        for (size_t r = 0; r < scored_.size(); ++r) {
            std::vector<float> row(scored_[r], scored_[r] + vocabulary_);
            const int64_t begin = excluded.begin(int(r));
            for (int64_t i = begin; i < excluded.ends[r]; ++i) {
                if (i > begin && excluded.ids[i] <= excluded.ids[i - 1]) {
                    throw "excluded ids are not ascending";
                }
                row.at(excluded.ids[i]) = -INFINITY;
            }
            for (int i = 0; i < best.count; ++i) {
                int id = 0;
                for (int v = 1; v < vocabulary_; ++v) {
                    if (row[v] > row[id]) id = v;
                }
                best.ids[r * best.count + i] = id;
                best.log_probs[r * best.count + i] = row[id];
                row[id] = -INFINITY;
            }
        }
    }

    void all(int first, int count, float* log_probs) override {
        for (int r = 0; r < count; ++r) {
            std::memcpy(log_probs + r * vocabulary_, scored_.at(first + r),
                        sizeof(float) * vocabulary_);
        }
    }

    void reorder(const int32_t* parents) override {
        const std::vector<int32_t> before = states_;
        for (size_t row = 0; row < states_.size(); ++row) {
            if (parents[row] < 0 || parents[row] >= slots_) throw "no such slot";
            states_[row] = before[row / slots_ * slots_ + parents[row]];
        }
    }

    Work work{};
    int32_t stop = 0, stop_at = 0;

private:
    const float* tables_;
    const int n_states_, vocabulary_, slots_;
    std::vector<int32_t> states_;
    std::vector<const float*> scored_;
};

}  // namespace

// Search tables (sentences, states, vocabulary). Results of sentence b and rank k are at index
// b * slots + k, in rows of `room`, and `counts` has the number of hypotheses of each sentence.
extern "C" __attribute__((visibility("default"))) void table_search(
    const char* name, const float* tables, int32_t states, int32_t vocabulary,
    const Settings* settings, const Request* given, int32_t stop_at, int32_t room,
    int32_t* counts, int32_t* tokens, int32_t* lengths, uint8_t* finished, double* log_probs,
    double* scores, double* token_log_probs, Work* work) {
    Request request = *given;
    const bool sampling = std::strcmp(name, "sample") == 0;
    const bool greedy = std::strcmp(name, "greedy") == 0;
    const int slots = greedy ? 1 : sampling ? settings->samples : settings->beam_size;
    TableScorer scorer(tables, states, vocabulary, request.sentences, slots);
    scorer.stop_at = stop_at;
    request.stop = &scorer.stop;
    const Found found = sampling ? sample(scorer, *settings, request)
                        : greedy ? greedy_search(scorer, *settings, request)
                                 : beam_search(scorer, *settings, request);
    *work = scorer.work;
    for (size_t b = 0; b < found.size(); ++b) {
        counts[b] = static_cast<int32_t>(found[b].size());
        for (size_t k = 0; k < found[b].size(); ++k) {
            const Hypothesis& one = found[b][k];
            const size_t at = b * slots + k;
            lengths[at] = static_cast<int32_t>(one.tokens.size());
            finished[at] = one.finished;
            log_probs[at] = one.log_prob;
            scores[at] = one.score;
            std::copy(one.tokens.begin(), one.tokens.end(), tokens + at * room);
            std::copy(one.token_log_probs.begin(), one.token_log_probs.end(),
                      token_log_probs + at * room);
        }
    }
}
