// Greedy search and sampling: `independent.py`.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "constraints.h"
#include "search.h"

namespace mtkit {

namespace {

// Rows whose log-probabilities are sampled from at a time: few, to need little memory, and so many
// that reading the output layer for each of these groups does not matter.
constexpr int SAMPLED_AT_ONCE = 32;

// Up to this `top_k`, the best tokens of a row are found without storing all, as in beam search.
constexpr int MOST_BEST = 64;

// The hypotheses that are still decoded.
struct Live {
    std::vector<int32_t> slots;          // ascending
    std::vector<int32_t> tokens;         // their newest tokens
    std::vector<float> token_log_probs;  // of these
    std::vector<int32_t> rows;           // of the step; samples with the same tokens share one
};

// The rows of a step, each of the first hypothesis that has its tokens.
struct Rows {
    std::vector<int32_t> slots, tokens;
    std::vector<int32_t> parents;  // of each slot, the one with its row, from 0 in each sentence
};

// Give each live hypothesis its row. Of one sentence, those that shared a row, and have drawn the
// same token, share the next one: the model computes the same for them.
void share_rows(Live& live, Rows& rows, int slots) {
    const std::vector<int32_t> before = live.rows;
    std::vector<int32_t> first;  // of each row, its first hypothesis
    rows.slots.clear();
    rows.tokens.clear();
    int sentence = -1;
    size_t begin = 0;  // the first row of the sentence
    for (size_t h = 0; h < live.slots.size(); ++h) {
        const int32_t slot = live.slots[h];
        if (slot / slots != sentence) begin = first.size();
        sentence = slot / slots;
        size_t row = begin;
        while (row < first.size() &&
               (before[first[row]] != before[h] || live.tokens[first[row]] != live.tokens[h]))
            ++row;
        if (row == first.size()) {
            first.push_back(int32_t(h));
            rows.slots.push_back(slot);
            rows.tokens.push_back(live.tokens[h]);
        }
        live.rows[h] = int32_t(row);
        rows.parents[slot] = rows.slots[row] % slots;
    }
}

// Chooses the next token of each live hypothesis, which has `done` tokens, and its log-probability;
// `rows` is the number of rows of the step.
using Choose = std::function<void(Live& live, int rows, const Excluded& excluded, int done)>;

// `decode_independently`, where finished sentences stay in the batch: they have no live hypotheses.
Found decode_independently(Scorer& scorer, const Settings& settings, const Request& request,
                           int slots, const Choose& choose) {
    Found found(request.sentences, std::vector<Hypothesis>(slots));
    Constrainer constrainer(settings, request, scorer.vocabulary());
    Live live;
    for (int32_t slot = 0; slot < request.sentences * slots; ++slot)
        if (request.limits[slot / slots] > 0) live.slots.push_back(slot);
    live.tokens.assign(live.slots.size(), settings.bos_id);
    live.rows.assign(live.slots.size(), 0);
    Rows rows{{}, {}, std::vector<int32_t>(found.size() * slots)};
    for (int done = 0; !live.slots.empty(); ++done) {
        if (stopped(request)) return {};
        share_rows(live, rows, slots);
        scorer.step(rows.tokens.data(), rows.slots.data(), int(rows.slots.size()));
        if (slots > 1) scorer.reorder(rows.parents.data());
        constrainer.start(done);
        for (const int32_t slot : rows.slots)
            constrainer.add(slot / slots, found[slot / slots][slot % slots].tokens);
        live.token_log_probs.resize(live.slots.size());
        choose(live, int(rows.slots.size()), constrainer.excluded(), done);
        size_t count = 0;
        for (size_t h = 0; h < live.slots.size(); ++h) {
            const int32_t slot = live.slots[h], token = live.tokens[h];
            Hypothesis& hypothesis = found[slot / slots][slot % slots];
            // Constraints that exclude all tokens remove the hypothesis.
            if (!(live.token_log_probs[h] > -std::numeric_limits<float>::infinity())) {
                hypothesis = {};
                continue;
            }
            const bool is_certain = constrainer.is_certain(live.rows[h]);
            hypothesis.token_log_probs.push_back(is_certain ? 0 : live.token_log_probs[h]);
            hypothesis.finished = token == settings.eos_id;
            if (hypothesis.finished) continue;
            hypothesis.tokens.push_back(token);
            if (done + 1 == request.limits[slot / slots]) continue;
            live.slots[count] = slot;
            live.tokens[count] = token;
            live.rows[count] = live.rows[h];
            ++count;
        }
        live.slots.resize(count);
        live.tokens.resize(count);
        live.rows.resize(count);
    }
    for (std::vector<Hypothesis>& hypotheses : found) {
        std::erase_if(hypotheses,
                      [](const Hypothesis& h) { return h.token_log_probs.empty(); });
        for (Hypothesis& hypothesis : hypotheses) {
            const std::vector<double>& each = hypothesis.token_log_probs;
            hypothesis.log_prob = std::accumulate(each.begin(), each.end(), 0.0);
            hypothesis.score = hypothesis.log_prob / length_penalty(settings, int(each.size()));
        }
    }
    return found;
}

// Samples tokens: `_draw_tokens`.
class Sampler {
public:
    Sampler(const Settings& settings, int vocabulary)
        : temperature_(float(settings.temperature)),
          top_p_(settings.top_p),
          top_k_(settings.top_k),
          weights_(vocabulary),
          sums_(weights_.size()) {}

    // The token of a row at which the cumulative distribution reaches `uniform`, in [0, 1).
    int32_t draw(const float* log_probs, double uniform) {
        kept_.resize(weights_.size());
        std::iota(kept_.begin(), kept_.end(), 0);
        if (0 < top_k_ && size_t(top_k_) < kept_.size()) {
            std::nth_element(kept_.begin(), kept_.begin() + (top_k_ - 1), kept_.end(),
                             Before{log_probs});
            kept_.resize(top_k_);
        }
        return draw_kept(log_probs, uniform);
    }

    // The same of `count` given tokens, at least one; the others of `log_probs` are not read.
    int32_t draw(const float* log_probs, double uniform, const int32_t* ids, int count) {
        kept_.assign(ids, ids + count);
        return draw_kept(log_probs, uniform);
    }

private:
    // `draw` among the tokens that are kept.
    int32_t draw_kept(const float* log_probs, double uniform) {
        weigh(log_probs);
        if (top_p_ < 1) keep_nucleus();
        if (!std::is_sorted(kept_.begin(), kept_.end())) std::sort(kept_.begin(), kept_.end());
        double sum = 0;
        for (size_t i = 0; i < kept_.size(); ++i) sums_[i] = sum += weights_[kept_[i]];
        const auto end = sums_.begin() + kept_.size();
        const auto at = std::upper_bound(sums_.begin(), end, uniform * sum);
        // A row without any possible token has no weights.
        return kept_[std::min(at, end - 1) - sums_.begin()];
    }

    // The order of tokens by a value, the largest first; of equal ones the lowest id.
    struct Before {
        const float* values;
        bool operator()(int32_t a, int32_t b) const {
            return values[a] > values[b] || (values[a] == values[b] && a < b);
        }
    };

    // `_weights`: unnormalised probabilities of the kept tokens; the largest is 1.
    void weigh(const float* log_probs) {
        float largest = log_probs[kept_[0]];
        for (const int32_t id : kept_) largest = std::max(largest, log_probs[id]);
        for (const int32_t id : kept_) {
            const float weight = std::exp((log_probs[id] - largest) / temperature_);
            weights_[id] = weight > 0 ? weight : 0;  // 0 instead of what is not a number
        }
    }

    // `_nucleus` and `_largest`: keep the fewest tokens whose probabilities sum to `top_p_`.
    void keep_nucleus() {
        double wanted = 0;
        for (const int32_t id : kept_) wanted += weights_[id];
        wanted *= top_p_;
        // The next of a heap is the last in its order.
        const auto after = [this](int32_t a, int32_t b) { return Before{weights_.data()}(b, a); };
        std::make_heap(kept_.begin(), kept_.end(), after);
        auto end = kept_.end();
        double sum = 0;
        do {
            std::pop_heap(kept_.begin(), end--, after);
            sum += weights_[*end];
        } while (sum < wanted && end != kept_.begin());
        kept_.erase(kept_.begin(), end);
    }

    const float temperature_;
    const double top_p_;
    const int top_k_;
    std::vector<float> weights_;  // of each token that is kept
    std::vector<double> sums_;
    std::vector<int32_t> kept_;
};

}  // namespace

Found greedy_search(Scorer& scorer, const Settings& settings, const Request& request) {
    const auto most_probable = [&](Live& live, int, const Excluded& excluded, int) {
        scorer.best(excluded, {1, live.token_log_probs.data(), live.tokens.data()});
    };
    return decode_independently(scorer, settings, request, 1, most_probable);
}

Found sample(Scorer& scorer, const Settings& settings, const Request& request) {
    constexpr float IMPOSSIBLE = -std::numeric_limits<float>::infinity();
    const int vocabulary = scorer.vocabulary();
    Sampler sampler(settings, vocabulary);
    const int most = settings.top_k > 0 ? std::min(int(settings.top_k), vocabulary) : 0;
    std::vector<float> log_probs, best_log_probs;
    std::vector<int32_t> best_ids;
    const auto draw_best = [&](Live& live, int rows, const Excluded& excluded, int done) {
        const size_t size = size_t(rows) * most;
        best_log_probs.resize(size);
        best_ids.resize(size);
        log_probs.resize(vocabulary);
        scorer.best(excluded, {most, best_log_probs.data(), best_ids.data()});
        for (size_t h = 0; h < live.slots.size(); ++h) {
            const float* of_row = &best_log_probs[size_t(live.rows[h]) * most];
            const int32_t* ids = &best_ids[size_t(live.rows[h]) * most];
            int count = 0;  // where no others are left, what follows is impossible
            for (; count < most && of_row[count] > IMPOSSIBLE; ++count)
                log_probs[ids[count]] = of_row[count];
            live.token_log_probs[h] = IMPOSSIBLE;
            if (count == 0) continue;
            const size_t at = size_t(live.slots[h]) * request.uniform_steps + done;
            live.tokens[h] = sampler.draw(log_probs.data(), request.uniforms[at], ids, count);
            live.token_log_probs[h] = log_probs[live.tokens[h]];
        }
    };
    const auto draw = [&](Live& live, int rows, const Excluded& excluded, int done) {
        if (0 < most && most <= MOST_BEST) return draw_best(live, rows, excluded, done);
        for (int first = 0; first < rows; first += SAMPLED_AT_ONCE) {
            const int count = std::min(SAMPLED_AT_ONCE, rows - first);
            log_probs.resize(size_t(count) * vocabulary);
            scorer.all(first, count, log_probs.data());
            for (int r = 0; r < count; ++r) {
                float* row = &log_probs[size_t(r) * vocabulary];
                for (int64_t i = excluded.begin(first + r); i < excluded.ends[first + r]; ++i)
                    row[excluded.ids[i]] = IMPOSSIBLE;
                // What is not a number cannot be put in order.
                const auto is_nan = [](float value) { return std::isnan(value); };
                std::replace_if(row, row + vocabulary, is_nan, IMPOSSIBLE);
            }
            for (size_t h = 0; h < live.slots.size(); ++h) {
                const int r = live.rows[h] - first;
                if (r < 0 || count <= r) continue;
                const float* row = &log_probs[size_t(r) * vocabulary];
                const size_t at = size_t(live.slots[h]) * request.uniform_steps + done;
                live.tokens[h] = sampler.draw(row, request.uniforms[at]);
                live.token_log_probs[h] = row[live.tokens[h]];
            }
        }
    };
    return decode_independently(scorer, settings, request, settings.samples, draw);
}

}  // namespace mtkit
