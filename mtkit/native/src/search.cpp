// Beam search: `beam_search`, `Chooser`, `Finished` and `History` of search.py.
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
void insert(std::vector<T>& ranked, T item, double T::*value, size_t most) {
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
    int32_t before;   // index of a link; -1 at the first token
    double log_prob;  // of the hypothesis up to here
};

// A hypothesis that may continue.
struct Live {
    double log_prob = DEAD;
    int32_t token = 0;     // the newest
    int32_t newest = -1;   // index of its link; -1 for none, after BOS
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
          slots_(static_cast<size_t>(settings.beam_size)),
          n_best_(static_cast<size_t>(settings.n_best)),
          columns_(std::min(2 * settings.beam_size, scorer.vocabulary())),
          constrainer_(settings, request, scorer.vocabulary()),
          ended_(static_cast<size_t>(request.sentences)),
          live_(ended_.size() * slots_) {
        for (int sentence = 0; sentence < request.sentences; ++sentence) {
            active_.push_back(sentence);
            at_limit_.push_back(length_penalty(settings, request.limits[sentence]));
            // All hypotheses begin with the same token, so only the first one is live.
            if (request.limits[sentence] > 0) {
                live_[static_cast<size_t>(sentence) * slots_] = {0.0, settings.bos_id, -1};
            }
        }
    }

    // `beam_search`
    Found run() {
        for (int length = 1; collect(length); ++length) {
            if (stopped(request_)) return {};
            score();
            const double penalty = length_penalty(settings_, length);
            const double next_penalty = length_penalty(settings_, length + 1);
            next_.assign(live_.size(), Live{});
            parents_.assign(live_.size(), 0);
            kept_.clear();
            for (size_t b = 0, row = 0; b < active_.size(); ++b) {
                row = choose(b, row, penalty);
                if (prune(b, length, penalty, next_penalty)) {
                    kept_.push_back(static_cast<int32_t>(b));
                }
            }
            if (kept_.empty()) break;
            live_.swap(next_);
            scorer_.reorder(parents_.data());
            if (worth_removing(kept_.size(), active_.size())) remove_finished();
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
        rows_.clear();
        tokens_.clear();
        constrainer_.start(length - 1);
        for (size_t row = 0; row < live_.size(); ++row) {
            if (!(live_[row].log_prob > DEAD)) continue;
            rows_.push_back(static_cast<int32_t>(row));
            tokens_.push_back(live_[row].token);
            if (constrainer_.reads_tokens()) trace(live_[row].newest);
            constrainer_.add(active_[row / slots_], traced_tokens_);
        }
        return !rows_.empty();
    }

    // The best continuations of each live hypothesis: `columns_` of each.
    void score() {
        const size_t size = rows_.size() * static_cast<size_t>(columns_);
        best_log_probs_.resize(size);
        best_ids_.resize(size);
        scorer_.step(tokens_.data(), rows_.data(), static_cast<int>(rows_.size()));
        scorer_.best(constrainer_.excluded(),
                     {columns_, best_log_probs_.data(), best_ids_.data()});
    }

    // `Chooser.choose` for sentence b of the batch, whose live hypotheses are in `rows_` from `row`
    // on: W of 2 W candidates continue, so that W do even if W end. Returns the row after them.
    size_t choose(size_t b, size_t row, double penalty) {
        candidates_.clear();
        for (; row < rows_.size() && static_cast<size_t>(rows_[row]) / slots_ == b; ++row) {
            const size_t slot = static_cast<size_t>(rows_[row]);
            for (int c = 0; c < columns_; ++c) {
                const size_t at = row * static_cast<size_t>(columns_) + static_cast<size_t>(c);
                const double log_prob = live_[slot].log_prob + best_log_probs_[at];
                if (!(log_prob > DEAD)) break;
                // The others of this row are not better.
                if (candidates_.size() == 2 * slots_ && log_prob <= candidates_.back().log_prob) {
                    break;
                }
                insert(candidates_, {log_prob, static_cast<int32_t>(slot), best_ids_[at]},
                       &Candidate::log_prob, 2 * slots_);
            }
        }
        size_t continued = b * slots_;
        for (const Candidate& candidate : candidates_) {
            const Live& parent = live_[static_cast<size_t>(candidate.slot)];
            if (candidate.token == settings_.eos_id) {
                finish(active_[b], parent.newest, candidate.log_prob, penalty);
            } else if (continued < (b + 1) * slots_) {
                next_[continued] = {candidate.log_prob, candidate.token,
                                    static_cast<int32_t>(links_.size())};
                parents_[continued] = candidate.slot - static_cast<int32_t>(b * slots_);
                links_.push_back({candidate.token, parent.newest, candidate.log_prob});
                ++continued;
            }
        }
        return row;
    }

    void finish(int sentence, int32_t newest, double log_prob, double penalty) {
        Ended& ended = ended_[static_cast<size_t>(sentence)];
        const double score = log_prob / penalty;
        if (score > ended.worst(n_best_)) {
            insert(ended.finished, hypothesis(newest, log_prob, score, true), &Hypothesis::score,
                   n_best_);
        }
    }

    // `_prune` for sentence b of the batch: remove the hypotheses that cannot win any more, and
    // those at the length limit. Returns whether one stays.
    bool prune(size_t b, int length, double penalty, double next_penalty) {
        const size_t sentence = static_cast<size_t>(active_[b]);
        Ended& ended = ended_[sentence];
        const double worst = ended.worst(n_best_);
        // The penalty rises or falls with the length (sign of alpha), so one end is the largest.
        const double ahead = std::max(next_penalty, at_limit_[sentence]);
        const bool cut = request_.limits[sentence] <= length;
        size_t missing = n_best_ - ended.finished.size();
        bool stays = false;
        for (size_t slot = b * slots_; slot < (b + 1) * slots_; ++slot) {
            Live& live = next_[slot];
            if (live.log_prob / ahead <= worst) live.log_prob = DEAD;
            if (!(live.log_prob > DEAD)) continue;
            if (!cut) {
                stays = true;
                continue;
            }
            if (settings_.rank_cut_off || missing > 0) {
                Hypothesis found = hypothesis(live.newest, live.log_prob, live.log_prob / penalty,
                                              false);
                if (settings_.rank_cut_off) {
                    insert(ended.finished, std::move(found), &Hypothesis::score, n_best_);
                } else {
                    ended.cut_off.push_back(std::move(found));
                    --missing;
                }
            }
            live.log_prob = DEAD;
        }
        return stays;
    }

    // Only the sentences `kept_` stay in the batch.
    void remove_finished() {
        scorer_.select(kept_.data(), static_cast<int>(kept_.size()));
        for (size_t b = 0; b < kept_.size(); ++b) {
            const size_t from = static_cast<size_t>(kept_[b]);
            active_[b] = active_[from];
            std::copy_n(live_.begin() + static_cast<std::ptrdiff_t>(from * slots_), slots_,
                        live_.begin() + static_cast<std::ptrdiff_t>(b * slots_));
        }
        active_.resize(kept_.size());
        live_.resize(kept_.size() * slots_);
    }

    // `History._trace`: the tokens up to a link, and the log-probability up to each.
    void trace(int32_t link) {
        traced_tokens_.clear();
        traced_log_probs_.clear();
        for (; link >= 0; link = links_[static_cast<size_t>(link)].before) {
            traced_tokens_.push_back(links_[static_cast<size_t>(link)].token);
            traced_log_probs_.push_back(links_[static_cast<size_t>(link)].log_prob);
        }
        std::reverse(traced_tokens_.begin(), traced_tokens_.end());
        std::reverse(traced_log_probs_.begin(), traced_log_probs_.end());
    }

    // `History.hypothesis`; `log_prob` includes EOS if it is finished.
    Hypothesis hypothesis(int32_t newest, double log_prob, double score, bool finished) {
        trace(newest);
        if (finished) traced_log_probs_.push_back(log_prob);
        std::vector<double> gains;
        double before = 0.0;
        for (const double total : traced_log_probs_) {
            gains.push_back(total - before);
            before = total;
        }
        return {traced_tokens_, std::move(gains), log_prob, score, finished};
    }

    Scorer& scorer_;
    const Settings& settings_;
    const Request& request_;
    const size_t slots_, n_best_;  // W
    const int columns_;            // continuations of each hypothesis that are considered
    Constrainer constrainer_;
    std::vector<Ended> ended_;      // of each sentence
    std::vector<double> at_limit_;  // of each sentence, the length penalty at its limit
    std::vector<Link> links_;
    // Of each sentence in the batch: which it is, and its hypotheses.
    std::vector<int32_t> active_;
    std::vector<Live> live_, next_;
    // Buffers.
    std::vector<int32_t> rows_, tokens_, best_ids_, parents_, kept_, traced_tokens_;
    std::vector<float> best_log_probs_;
    std::vector<double> traced_log_probs_;
    std::vector<Candidate> candidates_;
};

}  // namespace

Found beam_search(Scorer& scorer, const Settings& settings, const Request& request) {
    return BeamSearch(scorer, settings, request).run();
}

}  // namespace mtkit
