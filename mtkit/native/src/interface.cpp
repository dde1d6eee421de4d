// The C interface: checks of all sizes and ids, and errors as messages.
#include "mtkit.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <stdexcept>

#include "tensors.h"

using namespace mtkit;

struct mtkit_model {
    Model model;
    std::vector<Tensor> tensors;
    bool ready = false;
};

struct mtkit_decoding {
    Decoding decoding;
    bool failed = false;  // in a step, which may have left it incomplete
};

namespace {

constexpr int64_t MAX_NUMBERS = int64_t{1} << 31;  // of an array
constexpr int32_t MAX_WIDTH = 1 << 20, MAX_HEADS = 4096, MAX_LAYERS = 1000;
constexpr int32_t MAX_VOCABULARY = 1 << 24;
constexpr int32_t MAX_INT8_WIDTH = 1 << 17;  // a sum of so many products fits in 32 bits

thread_local std::string message;

// Run `action`; its exceptions become an error number and a message.
template <class Action>
int guarded(Action action) {
    try {
        action();
        return 0;
    } catch (const std::bad_alloc&) {
        message = "out of memory";
        return 2;
    } catch (const std::exception& error) {
        message = error.what();
        return 1;
    }
}

std::string text(int64_t number) { return std::to_string(number); }

void check(bool holds, const std::string& otherwise) {
    if (!holds) throw std::invalid_argument(otherwise);
}

void check_range(const char* name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    throw std::invalid_argument(std::string(name) + " is " + text(value) + ", not from " +
                                text(least) + " to " + text(most));
}

void check_numbers(const char* name, int64_t rows, int64_t columns) {
    check(rows <= MAX_NUMBERS / columns,
          std::string(name) + ": " + text(rows) + " x " + text(columns) + " numbers are too many");
}

void check_size(const std::string& name, int64_t size, int64_t expected) {
    check(size == expected, name + " has size " + text(size) + ", not " + text(expected));
}

// Each of `count` numbers; returns their sum.
int64_t check_each(const char* name, const int32_t* numbers, int64_t count, int64_t least,
                   int64_t most) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        check_range(name, numbers[i], least, most);
        sum += numbers[i];
    }
    return sum;
}

void check_shape(const Shape& shape, int32_t precision) {
    check_range("precision", precision, 0, 2);
    check_range("d_model", shape.d_model, 1, MAX_WIDTH);
    check_range("d_ff", shape.d_ff, 1, MAX_WIDTH);
    check_range("heads", shape.heads, 1, MAX_HEADS);
    check_range("key_width", shape.key_width, 1, MAX_WIDTH);
    check_range("value_width", shape.value_width, 1, MAX_WIDTH);
    check_range("encoder_layers", shape.encoder_layers, 1, MAX_LAYERS);
    check_range("decoder_layers", shape.decoder_layers, 1, MAX_LAYERS);
    check_range("src_vocabulary", shape.src_vocabulary, 1, MAX_VOCABULARY);
    check_range("tgt_vocabulary", shape.tgt_vocabulary, 1, MAX_VOCABULARY);
    check_range("own_src_embedding", shape.own_src_embedding, 0, 1);
    check_range("pre_norm", shape.pre_norm, 0, 1);
    check_range("activation", int32_t(shape.activation), int32_t(Activation::relu),
                int32_t(Activation::silu));
    check_range("output_bias", shape.output_bias, 0, 1);
    check_range("window", shape.window, -1, INT32_MAX);
    check_range("positions", int32_t(shape.positions), 0, int32_t(Positions::none));
    check_range("max_positions", shape.max_positions, 1, MAX_WIDTH);
    check(std::isfinite(shape.norm_epsilon) && shape.norm_epsilon > 0,
          "norm_epsilon is not above 0");
    check(shape.own_src_embedding || shape.src_vocabulary == shape.tgt_vocabulary,
          "vocabularies of different sizes share an embedding");
    // Sinusoids are pairs of a sine and a cosine; with `words`, a row is two encodings.
    const int unit = shape.positions == Positions::words        ? 4
                     : shape.positions == Positions::sinusoidal ? 2
                                                                : 1;
    check(shape.d_model % unit == 0, "d_model is not a multiple of " + text(unit));
    // Rows first: as no row has more than 2^20 numbers, the products below do not overflow.
    const int64_t key_row = padded(int64_t{shape.heads} * shape.key_room());
    const int64_t value_row = padded(int64_t{shape.heads} * shape.value_room());
    check_range("the width of all keys", key_row, 1, MAX_WIDTH);
    check_range("the width of all values", value_row, 1, MAX_WIDTH);
    const int64_t row = shape.model_row();
    if (precision == int32_t(Precision::int8)) {
        const int64_t widest = std::max({row, value_row, int64_t{shape.inner_row()}});
        check_range("the widest row in int8", widest, 1, MAX_INT8_WIDTH);
    }
    check_numbers("attention", 2 * key_row + value_row, row);
    check_numbers("feed-forward", shape.inner_row(), row);
    check_numbers("embedding", padded(std::max(shape.src_vocabulary, shape.tgt_vocabulary)), row);
    check_numbers("positions", shape.max_positions, row);
}

// What every batch must fulfil, besides its ids. Returns how many ids it has.
int64_t check_batch(const mtkit_model& owner, const int32_t* lengths, int32_t sentences,
                    int32_t slots) {
    const Shape& shape = owner.model.shape;
    check(owner.ready, "the model has no weights yet");
    check_range("sentences", sentences, 1, MAX_NUMBERS - 1);
    check_range("slots", slots, 1, MAX_NUMBERS - 1);
    const int64_t tokens =
        check_each("the length of a sentence", lengths, sentences, 1, MAX_NUMBERS - 1);
    const int64_t widest = std::max({2 * shape.key_row() + shape.value_row(), shape.inner_row(),
                                     shape.model_row()});
    check_numbers("the batch", tokens, widest);
    check_numbers("the hypotheses", int64_t{sentences} * slots, widest);
    return tokens;
}

void check_heads(const Shape& shape, const Request& request) {
    check_range("head_count", request.head_count, 0, MAX_NUMBERS - 1);
    for (int32_t i = 0; i < request.head_count; i++) {
        check_range("the layer of a head", request.heads[i].layer, 0, shape.decoder_layers - 1);
        check_range("a head", request.heads[i].head, 0, shape.heads - 1);
        check_range("is_input", request.heads[i].is_input, 0, 1);
    }
}

// The attention of a hypothesis; -1 where it is not known.
void write_attention(const Decoding& decoding, int b, const int32_t* tokens, int count, int room,
                     int width, float* attention) {
    float* out = attention + size_t(b) * room * width;
    check(count <= room, "a hypothesis is longer than " + text(room) + " tokens");
    if (count > 0 && !decoding.attention(b, tokens, count, out, width)) *out = -1.0f;
}

void check_request(const Model& model, const Settings& settings, const Request& request) {
    const int32_t vocabulary = model.shape.tgt_vocabulary;
    check_range("n_best", settings.n_best, 1, settings.beam_size);
    check_range("bos_id", settings.bos_id, 0, vocabulary - 1);
    check_range("eos_id", settings.eos_id, 0, vocabulary - 1);
    check_range("min_length", settings.min_length, 0, INT32_MAX);
    check_range("no_repeat_ngram", settings.no_repeat_ngram, 0, INT32_MAX);
    check_range("top_k", settings.top_k, 0, INT32_MAX);
    check_each("the limit of an output", request.limits, request.sentences, 0, MAX_NUMBERS - 1);
    const int64_t prefixes = check_each("the length of a prefix", request.prefix_lengths,
                                        request.sentences, 0, MAX_NUMBERS - 1);
    check_each("a prefix id", request.prefixes, prefixes, 0, vocabulary - 1);
    check_range("forbidden_count", request.forbidden_count, 0, vocabulary);
    check_each("a forbidden id", request.forbidden, request.forbidden_count, 0, vocabulary - 1);
    check_heads(model.shape, request);
    if (settings.samples > 0) {
        const int32_t longest =
            *std::max_element(request.limits, request.limits + request.sentences);
        check_range("uniform_steps", request.uniform_steps, longest, MAX_NUMBERS - 1);
        check(settings.temperature > 0 && settings.top_p > 0,
              "temperature or top_p is not above 0");
    }
}

}  // namespace

int32_t mtkit_abi(void) { return MTKIT_ABI; }

const char* mtkit_error(void) { return message.c_str(); }

const char* mtkit_kernels(int32_t precision) {
    const char* name = nullptr;
    guarded([&] {
        check_range("precision", precision, 0, 2);
        name = choose_kernels(static_cast<Precision>(precision))->name;
    });
    return name;
}

mtkit_model* mtkit_new(const Shape* shape, int32_t precision) {
    mtkit_model* created = nullptr;
    guarded([&] {
        check_shape(*shape, precision);
        auto owner = std::make_unique<mtkit_model>();
        Model& model = owner->model;
        model.shape = *shape;
        model.precision = static_cast<Precision>(precision);
        model.kernels = choose_kernels(model.precision);
        model.encoder.resize(shape->encoder_layers);
        model.decoder.resize(shape->decoder_layers);
        owner->tensors = tensors_of(model);
        created = owner.release();
    });
    return created;
}

const char* mtkit_tensor(const mtkit_model* model, int32_t number, int64_t* rows,
                         int64_t* columns) {
    if (number < 0 || size_t(number) >= model->tensors.size()) return nullptr;
    const Tensor& tensor = model->tensors[number];
    *rows = tensor.rows.empty() ? 0 : size(tensor.rows);
    *columns = size(tensor.columns);
    return tensor.name.c_str();
}

int mtkit_set(mtkit_model* model, int32_t number, const float* values, int64_t size_given) {
    return guarded([&] {
        check(!model->ready, "the weights are complete");
        check_range("the number of a tensor", number, 0, int64_t(model->tensors.size()) - 1);
        Tensor& tensor = model->tensors[number];
        check_size(tensor.name, size_given, size(tensor.rows) * size(tensor.columns));
        set_tensor(tensor, values, model->model.precision);
    });
}

int mtkit_ready(mtkit_model* model) {
    return guarded([&] {
        for (const Tensor& tensor : model->tensors)
            check(tensor.is_set, "the tensor " + tensor.name + " was not set");
        model->model.make_positions();
        model->ready = true;
    });
}

void mtkit_free(mtkit_model* model) { delete model; }

mtkit_decoding* mtkit_start(const mtkit_model* model, const int32_t* ids, int64_t ids_size,
                            const int32_t* lengths, int32_t sentences, int32_t slots) {
    mtkit_decoding* started = nullptr;
    guarded([&] {
        check_size("ids", ids_size, check_batch(*model, lengths, sentences, slots));
        check_each("a source id", ids, ids_size, 0, model->model.shape.src_vocabulary - 1);
        started = new mtkit_decoding{{model->model, ids, lengths, sentences, slots}};
    });
    return started;
}

int mtkit_step(mtkit_decoding* owner, const int32_t* tokens, const int32_t* rows, int32_t count,
               float* log_probs) {
    return guarded([&] {
        Decoding& decoding = owner->decoding;
        check(!owner->failed, "an earlier step of this decoding has failed");
        const int32_t all = decoding.sentences() * decoding.slots();
        check_range("the number of rows", count, 1, all);
        check_each("a token", tokens, count, 0, decoding.vocabulary() - 1);
        check_each("a row", rows, count, 0, all - 1);
        for (int32_t r = 1; r < count; r++) check(rows[r - 1] < rows[r], "rows are not ascending");
        owner->failed = true;
        decoding.step(tokens, rows, count);
        decoding.all(0, count, log_probs);
        owner->failed = false;
    });
}

int mtkit_reorder(mtkit_decoding* owner, const int32_t* parents, int64_t size) {
    return guarded([&] {
        Decoding& decoding = owner->decoding;
        check_size("parents", size, int64_t{decoding.sentences()} * decoding.slots());
        check_each("a parent", parents, size, 0, decoding.slots() - 1);
        decoding.reorder(parents);
    });
}

int mtkit_select(mtkit_decoding* owner, const int32_t* kept, int32_t count) {
    return guarded([&] {
        check_range("the number of sentences", count, 1, owner->decoding.sentences());
        check_each("a sentence", kept, count, 0, owner->decoding.sentences() - 1);
        owner->decoding.select(kept, count);
    });
}

void mtkit_end(mtkit_decoding* owner) { delete owner; }

int mtkit_translate(const mtkit_model* model, const Settings* settings, const Request* request,
                    int32_t room, int32_t* tokens, int32_t* lengths, uint8_t* finished,
                    double* log_probs, double* scores, double* token_log_probs,
                    float* attention) {
    return guarded([&] {
        check_range("beam_size", settings->beam_size, 1, MAX_NUMBERS - 1);
        check_range("samples", settings->samples, 0, MAX_NUMBERS - 1);
        const bool samples = settings->samples > 0;
        const int32_t slots = samples ? settings->samples : settings->beam_size;
        const int64_t ids = check_batch(*model, request->lengths, request->sentences, slots);
        check_each("a source id", request->ids, ids, 0, model->model.shape.src_vocabulary - 1);
        check_request(model->model, *settings, *request);
        Decoding decoding(model->model, request->ids, request->lengths, request->sentences, slots);
        decoding.watch(request->heads, request->head_count);
        const int32_t width =
            *std::max_element(request->lengths, request->lengths + request->sentences);
        // As `Torch.search` and `Torch.sample` choose.
        const auto search = samples ? sample : slots == 1 ? greedy_search : beam_search;
        const Found found = search(decoding, *settings, *request);
        const size_t most = samples ? settings->samples : settings->n_best;
        std::fill_n(lengths, request->sentences * most, -1);
        for (size_t b = 0; b < found.size(); b++) {
            check(found[b].size() <= most, "the search found too many hypotheses");
            for (size_t k = 0; k < found[b].size(); k++) {
                const Hypothesis& hypothesis = found[b][k];
                const size_t i = b * most + k, size = hypothesis.tokens.size();
                const size_t scored = hypothesis.token_log_probs.size();
                check(size <= scored && int64_t(scored) <= room,
                      "a hypothesis is longer than " + text(room) + " tokens");
                lengths[i] = int32_t(size);
                finished[i] = hypothesis.finished;
                log_probs[i] = hypothesis.log_prob;
                scores[i] = hypothesis.score;
                std::copy_n(hypothesis.tokens.data(), size, tokens + i * room);
                std::copy_n(hypothesis.token_log_probs.data(), scored, token_log_probs + i * room);
                if (request->head_count > 0 && k == 0)
                    write_attention(decoding, int(b), hypothesis.tokens.data(), int(size), room,
                                    width, attention);
            }
        }
    });
}

int mtkit_attend(const mtkit_model* model, const Request* request, int32_t bos_id, int32_t room,
                 float* attention) {
    return guarded([&] {
        const int32_t sentences = request->sentences, vocabulary = model->model.shape.tgt_vocabulary;
        const int64_t ids = check_batch(*model, request->lengths, sentences, 1);
        check_each("a source id", request->ids, ids, 0, model->model.shape.src_vocabulary - 1);
        const int64_t tokens =
            check_each("the length of a prefix", request->prefix_lengths, sentences, 0, room);
        check_each("a prefix id", request->prefixes, tokens, 0, vocabulary - 1);
        check_range("bos_id", bos_id, 0, vocabulary - 1);
        check_heads(model->model.shape, *request);
        Decoding decoding(model->model, request->ids, request->lengths, sentences, 1);
        decoding.watch(request->heads, request->head_count);
        std::vector<const int32_t*> given{request->prefixes};
        for (int32_t b = 0; b < sentences; b++)
            given.push_back(given.back() + request->prefix_lengths[b]);
        std::vector<int32_t> newest, rows;
        for (int32_t t = 0; t == 0 || !rows.empty(); t++) {
            newest.clear();
            rows.clear();
            for (int32_t b = 0; b < sentences; b++) {
                if (request->prefix_lengths[b] < t) continue;
                newest.push_back(t > 0 ? given[b][t - 1] : bos_id);
                rows.push_back(b);
            }
            if (!rows.empty()) decoding.step(newest.data(), rows.data(), int(rows.size()));
        }
        const int32_t width = *std::max_element(request->lengths, request->lengths + sentences);
        for (int32_t b = 0; b < sentences; b++)
            write_attention(decoding, b, given[b], request->prefix_lengths[b], room, width,
                            attention);
    });
}

const void* mtkit_find_kernels(const char* name) { return find_kernels(name); }
