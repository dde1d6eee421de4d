// The searches with a model.
#include <algorithm>

#include "search.h"

namespace mtkit {

namespace {

class ModelScorer : public Scorer {
public:
    ModelScorer(const Model& model, const Request& request, int slots)
        : model_(model),
          decoding_(model, request.ids, request.lengths, request.sentences, slots,
                    *std::max_element(request.limits, request.limits + request.sentences)) {}

    int vocabulary() const override { return model_.shape.tgt_vocabulary; }

    void step(const int32_t* tokens, const int32_t* rows, int count) override {
        states_ = decoding_.step(tokens, rows, count);
        count_ = count;
    }

    void best(const Excluded& excluded, const Best& best) override {
        model_.kernels->log_probs(model_.output, states_, count_, vocabulary(),
                                  excluded.ids.data(), excluded.first.data(),
                                  excluded.count.data(), &best, nullptr, decoding_.scratch());
    }

    void all(int first, int count, float* log_probs) override {
        model_.kernels->log_probs(model_.output, states_ + int64_t{first} * model_.output.in, count,
                                  vocabulary(), nullptr, nullptr, nullptr, nullptr, log_probs,
                                  decoding_.scratch());
    }

    void reorder(const int32_t* parents) override { decoding_.reorder(parents); }
    void select(const int32_t* kept, int count) override { decoding_.select(kept, count); }

private:
    const Model& model_;
    Decoding decoding_;
    const float* states_ = nullptr;
    int count_ = 0;
};

}  // namespace

// As `Decoder._search` and `Decoder._sample` choose.
Found translate(const Model& model, const Settings& settings, const Request& request) {
    if (request.sentences == 0) return {};
    const int slots = settings.samples > 0 ? settings.samples : settings.beam_size;
    ModelScorer scorer(model, request, slots);
    if (settings.samples > 0) return sample(scorer, settings, request);
    if (settings.beam_size == 1) return greedy_search(scorer, settings, request);
    return beam_search(scorer, settings, request);
}

}  // namespace mtkit
