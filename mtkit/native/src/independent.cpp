// Greedy search and sampling: `independent.py` and `sampling.py`.
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
constexpr size_t SAMPLED_AT_ONCE = 32;

// The hypotheses that are still decoded.
struct LiveRows {
    std::vector<int32_t> hypotheses;  // which of all B * W
    std::vector<int32_t> rows;        // their slots in the batch
    std::vector<int32_t> tokens;      // their newest tokens
    std::vector<float> gains;         // the log-probabilities of these
};

// Sets the tokens of live rows, and their log-probabilities, after `done` tokens.
using Choose = std::function<void(LiveRows& live, const Excluded& excluded, int done)>;

// Keep the rows that stay, and only their sentences in the batch when it is worth the copies.
// Returns the number of sentences in the batch.
size_t keep(LiveRows& live, const std::vector<bool>& stays, Scorer& scorer, size_t slots,
            size_t in_batch) {
    size_t count = 0;
    for (size_t r = 0; r < stays.size(); ++r) {
        if (!stays[r]) continue;
        live.hypotheses[count] = live.hypotheses[r];
        live.rows[count] = live.rows[r];
        live.tokens[count] = live.tokens[r];
        ++count;
    }
    live.hypotheses.resize(count);
    live.rows.resize(count);
    live.tokens.resize(count);
    std::vector<int32_t> sentences, moved_rows;
    for (const int32_t row : live.rows) {
        const auto [sentence, slot] = std::div(row, static_cast<int>(slots));
        if (sentences.empty() || sentences.back() != sentence) sentences.push_back(sentence);
        moved_rows.push_back(static_cast<int32_t>((sentences.size() - 1) * slots) + slot);
    }
    if (sentences.empty() || !worth_removing(sentences.size(), in_batch)) return in_batch;
    scorer.select(sentences.data(), static_cast<int>(sentences.size()));
    live.rows = std::move(moved_rows);
    return sentences.size();
}

// `decode_independently`
Found decode_independently(Scorer& scorer, const Settings& settings, const Request& request,
                           size_t slots, const Choose& choose) {
    Found found(static_cast<size_t>(request.sentences), std::vector<Hypothesis>(slots));
    const auto hypothesis = [&](int32_t index) -> Hypothesis& {
        return found[static_cast<size_t>(index) / slots][static_cast<size_t>(index) % slots];
    };
    Constrainer constrainer(settings, request, scorer.vocabulary());
    LiveRows live;
    for (int32_t index = 0; index < request.sentences * static_cast<int32_t>(slots); ++index) {
        if (request.limits[static_cast<size_t>(index) / slots] > 0) live.rows.push_back(index);
    }
    live.hypotheses = live.rows;
    live.tokens.assign(live.rows.size(), settings.bos_id);
    size_t in_batch = found.size();
    for (int done = 0; !live.rows.empty(); ++done) {
        if (stopped(request)) return {};
        scorer.step(live.tokens.data(), live.rows.data(), static_cast<int>(live.rows.size()));
        constrainer.start(done);
        for (const int32_t index : live.hypotheses) {
            constrainer.add(static_cast<int>(static_cast<size_t>(index) / slots),
                            hypothesis(index).tokens);
        }
        live.gains.resize(live.rows.size());
        choose(live, constrainer.excluded(), done);
        std::vector<bool> stays(live.rows.size());
        for (size_t r = 0; r < stays.size(); ++r) {
            const int32_t index = live.hypotheses[r];
            Hypothesis& one = hypothesis(index);
            // Constraints that exclude all tokens remove the hypothesis.
            if (!(live.gains[r] > -std::numeric_limits<float>::infinity())) {
                one = {};
                continue;
            }
            one.token_log_probs.push_back(live.gains[r]);
            one.finished = live.tokens[r] == settings.eos_id;
            if (one.finished) continue;
            one.tokens.push_back(live.tokens[r]);
            stays[r] = done + 1 < request.limits[static_cast<size_t>(index) / slots];
        }
        if (!std::all_of(stays.begin(), stays.end(), [](bool stay) { return stay; })) {
            in_batch = keep(live, stays, scorer, slots, in_batch);
        }
    }
    for (std::vector<Hypothesis>& of_sentence : found) {
        std::erase_if(of_sentence,
                      [](const Hypothesis& one) { return one.token_log_probs.empty(); });
        for (Hypothesis& one : of_sentence) {
            const std::vector<double>& gains = one.token_log_probs;
            one.log_prob = std::accumulate(gains.begin(), gains.end(), 0.0);
            one.score = one.log_prob / length_penalty(settings, static_cast<int>(gains.size()));
        }
    }
    return found;
}

// Samples tokens: `_draw_tokens` of sampling.py.
class Sampler {
public:
    Sampler(const Settings& settings, int vocabulary)
        : temperature_(static_cast<float>(settings.temperature)),
          top_p_(settings.top_p),
          top_k_(settings.top_k),
          weights_(static_cast<size_t>(vocabulary)),
          sums_(weights_.size()) {}

    // The token of a row at which the cumulative distribution reaches `uniform`, in [0, 1).
    int32_t draw(const float* log_probs, double uniform) {
        kept_.resize(weights_.size());
        std::iota(kept_.begin(), kept_.end(), 0);
        if (0 < top_k_ && static_cast<size_t>(top_k_) < kept_.size()) {
            std::nth_element(kept_.begin(), kept_.begin() + (top_k_ - 1), kept_.end(),
                             Before{log_probs});
            kept_.resize(static_cast<size_t>(top_k_));
        }
        weigh(log_probs);
        if (top_p_ < 1) keep_nucleus();
        if (!std::is_sorted(kept_.begin(), kept_.end())) std::sort(kept_.begin(), kept_.end());
        double sum = 0;
        for (size_t i = 0; i < kept_.size(); ++i) sums_[i] = sum += weight(kept_[i]);
        const auto end = sums_.begin() + static_cast<std::ptrdiff_t>(kept_.size());
        const auto at = std::upper_bound(sums_.begin(), end, uniform * sum);
        // A row without any possible token has no weights.
        return kept_[static_cast<size_t>(std::min(at, end - 1) - sums_.begin())];
    }

private:
    // The order of tokens by a value, the largest first; of equal ones the lowest id.
    struct Before {
        const float* values;
        bool operator()(int32_t a, int32_t b) const {
            return values[a] > values[b] || (values[a] == values[b] && a < b);
        }
    };

    float& weight(int32_t id) { return weights_[static_cast<size_t>(id)]; }

    // `_weights`: unnormalised probabilities of the kept tokens; the largest is 1.
    void weigh(const float* log_probs) {
        float largest = log_probs[kept_[0]];
        for (const int32_t id : kept_) largest = std::max(largest, log_probs[id]);
        for (const int32_t id : kept_) {
            const float one = std::exp((log_probs[id] - largest) / temperature_);
            weight(id) = one > 0 ? one : 0;  // 0 instead of what is not a number
        }
    }

    // `_nucleus` and `_largest`: keep the fewest tokens whose probabilities sum to `top_p_`.
    void keep_nucleus() {
        double wanted = 0;
        for (const int32_t id : kept_) wanted += weight(id);
        wanted *= top_p_;
        // The next of a heap is the last in its order.
        const auto after = [this](int32_t a, int32_t b) { return Before{weights_.data()}(b, a); };
        std::make_heap(kept_.begin(), kept_.end(), after);
        auto end = kept_.end();
        double sum = 0;
        do {
            std::pop_heap(kept_.begin(), end--, after);
            sum += weight(*end);
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
    const auto most_probable = [&](LiveRows& live, const Excluded& excluded, int) {
        scorer.best(excluded, {1, live.gains.data(), live.tokens.data()});
    };
    return decode_independently(scorer, settings, request, 1, most_probable);
}

Found sample(Scorer& scorer, const Settings& settings, const Request& request) {
    constexpr float IMPOSSIBLE = -std::numeric_limits<float>::infinity();
    const size_t vocabulary = static_cast<size_t>(scorer.vocabulary());
    const size_t steps = static_cast<size_t>(request.uniform_steps);
    Sampler sampler(settings, scorer.vocabulary());
    std::vector<float> log_probs;
    const auto draw = [&](LiveRows& live, const Excluded& excluded, int done) {
        const size_t rows = live.rows.size();
        for (size_t r = 0; r < rows; ++r) {
            if (r % SAMPLED_AT_ONCE == 0) {
                const size_t count = std::min(SAMPLED_AT_ONCE, rows - r);
                log_probs.resize(count * vocabulary);
                scorer.all(static_cast<int>(r), static_cast<int>(count), log_probs.data());
            }
            float* row = log_probs.data() + r % SAMPLED_AT_ONCE * vocabulary;
            const int32_t* ids = excluded.ids.data() + excluded.first[r];
            for (int i = 0; i < excluded.count[r]; ++i) row[ids[i]] = IMPOSSIBLE;
            // What is not a number cannot be put in order.
            const auto is_nan = [](float value) { return std::isnan(value); };
            std::replace_if(row, row + vocabulary, is_nan, IMPOSSIBLE);
            const size_t hypothesis = static_cast<size_t>(live.hypotheses[r]);
            const double uniform = request.uniforms[hypothesis * steps + static_cast<size_t>(done)];
            live.tokens[r] = sampler.draw(row, uniform);
            live.gains[r] = row[live.tokens[r]];
        }
    };
    return decode_independently(scorer, settings, request, static_cast<size_t>(settings.samples),
                                draw);
}

}  // namespace mtkit
