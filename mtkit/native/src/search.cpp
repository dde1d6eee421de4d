// Beam search: `beam_search`, `Chooser`, `Finished` and `History` of beam.py.
#include "search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "constraints.h"

namespace mtkit {

double length_penalty(const Settings& settings, int length) {
    const double base = settings.power_penalty ? length : (5 + length) / 6.0;
    return std::pow(base, settings.alpha);
}

namespace {

constexpr double DEAD = -std::numeric_limits<double>::infinity();

// Insert an item by its value, the largest first, after equal ones; the `most` largest stay.
template <class T>
void insert_ranked(std::vector<T>& ranked, T item, double T::*value, size_t most) {
    const auto at =
        std::upper_bound(ranked.begin(), ranked.end(), item,
                         [&](const T& a, const T& b) { return a.*value > b.*value; });
    ranked.insert(at, std::move(item));
    if (ranked.size() > most) ranked.pop_back();
}

// The hypotheses of one sentence that will not continue.
struct Ended {
    std::vector<Hypothesis> finished;  // best first, at most `n_best`: `Finished`
    std::vector<Hypothesis> cut_off;   // at the length limit

    // The score to beat, once there are `n_best`.
    double worst(size_t n_best) const {
        return finished.size() == n_best ? finished.back().score : DEAD;
    }
};

// One token of a hypothesis, linked to the token before it: `History`.
struct Link {
    int32_t token;
    int32_t before;   // index of a link; 0 at the first token
    double log_prob;  // of the hypothesis up to here
};

// A hypothesis that may continue.
struct Live {
    double log_prob = DEAD;
    int32_t token = 0;   // the newest
    int32_t newest = 0;  // index of its link; 0 for none, after BOS
};

// A continuation of a hypothesis.
struct Candidate {
    double log_prob;
    int32_t slot, token;
};

class BeamSearch {
public:
    BeamSearch(Scorer& scorer, const Settings& settings, const Request& request)
        : scorer_(scorer),
          settings_(settings),
          request_(request),
          beam_(settings.beam_size),
          n_best_(settings.n_best),
          columns_(std::min(2 * settings.beam_size, scorer.vocabulary())),
          constrainer_(settings, request, scorer.vocabulary()),
          ended_(request.sentences),
          links_{{0, 0, 0.0}},
          live_(size_t(request.sentences) * beam_) {
        for (int b = 0; b < request.sentences; ++b) {
            at_limit_.push_back(length_penalty(settings, request.limits[b]));
            // All hypotheses begin with the same token, so only the first one is live.
            if (request.limits[b] > 0) live_[size_t(b) * beam_] = {0.0, settings.bos_id, 0};
        }
    }

    // `beam_search`, where finished sentences stay in the batch: they have no live hypotheses.
    Found run() {
        for (int length = 1; collect(length); ++length) {
            if (stopped(request_)) return {};
            score();
            const double penalty = length_penalty(settings_, length);
            const double next_penalty = length_penalty(settings_, length + 1);
            next_.assign(live_.size(), Live{});
            parents_.assign(live_.size(), 0);
            for (size_t row = 0; row < slots_.size();) {
                const int b = slots_[row] / beam_;
                row = choose(b, row, penalty);
                prune(b, length, penalty, next_penalty);
            }
            live_.swap(next_);
            scorer_.reorder(parents_.data());
        }
        Found found;
        for (Ended& ended : ended_) {
            found.push_back(std::move(ended.finished));
            std::move(ended.cut_off.begin(), ended.cut_off.end(), std::back_inserter(found.back()));
        }
        return found;
    }

private:
    // Find the live hypotheses and what may not follow them; false if there are none.
    bool collect(int length) {
        slots_.clear();
        tokens_.clear();
        constrainer_.start(length - 1);
        for (size_t slot = 0; slot < live_.size(); ++slot) {
            if (!(live_[slot].log_prob > DEAD)) continue;
            slots_.push_back(int32_t(slot));
            tokens_.push_back(live_[slot].token);
            if (constrainer_.reads_tokens()) trace(live_[slot].newest);
            constrainer_.add(int(slot / beam_), traced_tokens_);
        }
        return !slots_.empty();
    }

    // The best continuations of each live hypothesis: `columns_` of each.
    void score() {
        const size_t size = slots_.size() * columns_;
        best_log_probs_.resize(size);
        best_ids_.resize(size);
        scorer_.step(tokens_.data(), slots_.data(), int(slots_.size()));
        scorer_.best(constrainer_.excluded(),
                     {columns_, best_log_probs_.data(), best_ids_.data()});
        constrainer_.settle(best_log_probs_.data(), columns_);
    }

    // `Chooser.choose` for sentence b, whose live hypotheses are in `slots_` from `row` on: W of
    // 2 W candidates continue, so that W do even if W end. Returns the row after them.
    size_t choose(int b, size_t row, double penalty) {
        const size_t most = 2 * size_t(beam_);
        candidates_.clear();
        for (; row < slots_.size() && slots_[row] / beam_ == b; ++row) {
            for (int c = 0; c < columns_; ++c) {
                const size_t at = row * columns_ + c;
                const double log_prob = live_[slots_[row]].log_prob + best_log_probs_[at];
                if (!(log_prob > DEAD)) break;
                // The others of this row are not better.
                if (candidates_.size() == most && log_prob <= candidates_.back().log_prob) break;
                insert_ranked(candidates_, {log_prob, slots_[row], best_ids_[at]},
                              &Candidate::log_prob, most);
            }
        }
        const size_t first = size_t(b) * beam_;
        size_t next = first;
        for (const Candidate& candidate : candidates_) {
            const int32_t parent = live_[candidate.slot].newest;
            if (candidate.token == settings_.eos_id) {
                end(b, parent, candidate.log_prob, penalty);
            } else if (next < first + beam_) {
                next_[next] = {candidate.log_prob, candidate.token, int32_t(links_.size())};
                parents_[next] = int32_t(candidate.slot - first);
                links_.push_back({candidate.token, parent, candidate.log_prob});
                ++next;
            }
        }
        return row;
    }

    // EOS follows a hypothesis of sentence b.
    void end(int b, int32_t newest, double log_prob, double penalty) {
        const double score = log_prob / penalty;
        if (score > ended_[b].worst(n_best_))
            insert_ranked(ended_[b].finished, hypothesis(newest, log_prob, score, true),
                          &Hypothesis::score, n_best_);
    }

    // `Finished.update` for sentence b: remove the hypotheses that cannot win any more, those at
    // the length limit, and, with the rule `likely`, all if none can win within `lookahead` tokens.
    void prune(int b, int length, double penalty, double next_penalty) {
        Ended& ended = ended_[b];
        const double worst = ended.worst(n_best_);
        // The penalty rises or falls with the length (sign of alpha), so one end is the largest.
        const double ahead = std::max(next_penalty, at_limit_[b]);
        const size_t first = size_t(b) * beam_;
        // The first is the most probable.
        const double near =
            std::max(next_penalty, length_penalty(settings_, length + settings_.lookahead));
        const bool over = settings_.lookahead > 0 && length < request_.limits[b] &&
                          next_[first].log_prob / near <= worst;
        size_t missing = n_best_ - ended.finished.size();
        for (size_t slot = first; slot < first + beam_; ++slot) {
            Live& live = next_[slot];
            if (over || live.log_prob / ahead <= worst) live.log_prob = DEAD;
            if (!(live.log_prob > DEAD) || length < request_.limits[b]) continue;
            if (settings_.rank_cut_off || missing > 0) {
                Hypothesis found = hypothesis(live.newest, live.log_prob, live.log_prob / penalty,
                                              false);
                if (settings_.rank_cut_off) {
                    insert_ranked(ended.finished, std::move(found), &Hypothesis::score, n_best_);
                } else {
                    ended.cut_off.push_back(std::move(found));
                    --missing;
                }
            }
            live.log_prob = DEAD;
        }
    }

    // `History._hypothesis`: the tokens up to a link, and their log-probabilities.
    void trace(int32_t link) {
        traced_tokens_.clear();
        traced_log_probs_.clear();
        for (; link > 0; link = links_[link].before) {
            const Link& last = links_[link];
            traced_tokens_.push_back(last.token);
            traced_log_probs_.push_back(last.log_prob - links_[last.before].log_prob);
        }
        std::reverse(traced_tokens_.begin(), traced_tokens_.end());
        std::reverse(traced_log_probs_.begin(), traced_log_probs_.end());
    }

    // `History.hypotheses`; `log_prob` includes EOS if it is finished.
    Hypothesis hypothesis(int32_t newest, double log_prob, double score, bool finished) {
        trace(newest);
        if (finished) traced_log_probs_.push_back(log_prob - links_[newest].log_prob);
        return {traced_tokens_, traced_log_probs_, log_prob, score, finished};
    }

    Scorer& scorer_;
    const Settings& settings_;
    const Request& request_;
    const int beam_;       // W
    const size_t n_best_;
    const int columns_;    // continuations of each hypothesis that are considered
    Constrainer constrainer_;
    std::vector<Ended> ended_;      // of each sentence
    std::vector<double> at_limit_;  // of each sentence, the length penalty at its limit
    std::vector<Link> links_;       // the first is that of BOS
    std::vector<Live> live_, next_;  // sentence * W
    // Buffers. `slots_` and `tokens_` are those of the live hypotheses.
    std::vector<int32_t> slots_, tokens_, best_ids_, parents_, traced_tokens_;
    std::vector<float> best_log_probs_;
    std::vector<double> traced_log_probs_;
    std::vector<Candidate> candidates_;
};

}  // namespace

Found beam_search(Scorer& scorer, const Settings& settings, const Request& request) {
    return BeamSearch(scorer, settings, request).run();
}

}  // namespace mtkit
