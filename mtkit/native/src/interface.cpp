// The C interface: checks of all sizes and ids, and errors as messages.
#include "mtkit.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "model.h"
#include "search.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

using namespace mtkit;

struct mtkit_model {
    Model model;
    bool ready = false;
};

struct mtkit_decoding {
    Decoding decoding;
};

namespace {

constexpr int64_t MOST_NUMBERS = int64_t{1} << 31;  // of an array
constexpr int32_t MOST_WIDTH = 1 << 20, MOST_HEADS = 4096, MOST_LAYERS = 1000;
constexpr int32_t MOST_VOCABULARY = 1 << 24;

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
    check(value >= least && value <= most, std::string(name) + " is " + text(value) +
                                               ", not from " + text(least) + " to " + text(most));
}

void check_numbers(const char* name, int64_t rows, int64_t columns) {
    check(rows <= MOST_NUMBERS / columns,
          std::string(name) + ": " + text(rows) + " x " + text(columns) + " numbers are too many");
}

void check_size(const std::string& name, int64_t size, int64_t expected) {
    check(size == expected, name + " has size " + text(size) + ", not " + text(expected));
}

// `count` ids, each at least 0 and below `end`.
void check_ids(const char* name, const int32_t* ids, int64_t count, int32_t end) {
    for (int64_t i = 0; i < count; i++) check_range(name, ids[i], 0, end - 1);
}

// The sum of `count` lengths, which are at least `least`.
int64_t check_lengths(const char* name, const int32_t* lengths, int64_t count, int32_t least) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        check_range(name, lengths[i], least, MOST_NUMBERS - 1);
        sum += lengths[i];
    }
    return sum;
}

void check_shape(const Shape& shape, int32_t precision) {
    check_range("precision", precision, 0, 2);
    check_range("d_model", shape.d_model, 1, MOST_WIDTH);
    check_range("d_ff", shape.d_ff, 1, MOST_WIDTH);
    check_range("heads", shape.heads, 1, MOST_HEADS);
    check_range("key_width", shape.key_width, 1, MOST_WIDTH);
    check_range("value_width", shape.value_width, 1, MOST_WIDTH);
    check_range("encoder_layers", shape.encoder_layers, 1, MOST_LAYERS);
    check_range("decoder_layers", shape.decoder_layers, 1, MOST_LAYERS);
    check_range("src_vocabulary", shape.src_vocabulary, 1, MOST_VOCABULARY);
    check_range("tgt_vocabulary", shape.tgt_vocabulary, 1, MOST_VOCABULARY);
    check_range("own_src_embedding", shape.own_src_embedding, 0, 1);
    check_range("pre_norm", shape.pre_norm, 0, 1);
    check_range("silu", shape.silu, 0, 1);
    check_range("window", shape.window, -1, INT32_MAX);
    check_range("positions", shape.positions, 0, 2);
    check_range("max_positions", shape.max_positions, 1, MOST_WIDTH);
    check(std::isfinite(shape.norm_epsilon) && shape.norm_epsilon > 0,
          "norm_epsilon is not above 0");
    check(shape.own_src_embedding || shape.src_vocabulary == shape.tgt_vocabulary,
          "vocabularies of different sizes share an embedding");
    const auto positions = static_cast<Positions>(shape.positions);
    const int unit = positions == Positions::words ? 4 : positions == Positions::sinusoidal ? 2 : 1;
    check(shape.d_model % unit == 0, "d_model is not a multiple of " + text(unit));
    // The widest rows before the largest matrices: a row has at most 2^20 numbers too.
    const int64_t key_row = padded(int64_t{shape.heads} * shape.key_room());
    const int64_t value_row = padded(int64_t{shape.heads} * shape.value_room());
    check_range("the width of all keys", key_row, 1, MOST_WIDTH);
    check_range("the width of all values", value_row, 1, MOST_WIDTH);
    const int64_t row = shape.model_row();
    check_numbers("attention", 2 * key_row + value_row, row);
    check_numbers("feed-forward", shape.inner_row(), row);
    check_numbers("embedding", padded(std::max(shape.src_vocabulary, shape.tgt_vocabulary)), row);
    check_numbers("positions", shape.max_positions, row);
}

// A matrix by its name in `Transformer.state_dict`, without the number of its layer.
struct Place {
    Matrix* matrix;
    int64_t rows, columns;
};

Place find_matrix(Model& model, std::string_view name, int32_t i) {
    const Shape& shape = model.shape;
    const int64_t row = shape.model_row(), inner = shape.inner_row();
    const int64_t keys = shape.key_row(), values = shape.value_row();
    if (name == "embedding" && i == -1)
        return {&model.output, padded(shape.tgt_vocabulary), row};
    if (i >= 0 && i < shape.encoder_layers) {
        EncoderLayer& layer = model.encoder[i];
        if (name == "encoder.self_attention.in_proj")
            return {&layer.in_proj, 2 * keys + values, row};
        if (name == "encoder.self_attention.out_proj") return {&layer.out_proj, row, values};
        if (name == "encoder.feed_forward.inner") return {&layer.inner, inner, row};
        if (name == "encoder.feed_forward.outer") return {&layer.outer, row, inner};
    }
    if (i >= 0 && i < shape.decoder_layers) {
        DecoderLayer& layer = model.decoder[i];
        if (name == "decoder.self_attention.in_proj")
            return {&layer.in_proj, 2 * keys + values, row};
        if (name == "decoder.self_attention.out_proj") return {&layer.out_proj, row, values};
        if (name == "decoder.cross_attention.q_proj") return {&layer.q_proj, keys, row};
        if (name == "decoder.cross_attention.kv_proj") return {&layer.kv_proj, keys + values, row};
        if (name == "decoder.cross_attention.out_proj") return {&layer.cross_out, row, values};
        if (name == "decoder.feed_forward.inner") return {&layer.inner, inner, row};
        if (name == "decoder.feed_forward.outer") return {&layer.outer, row, inner};
    }
    return {};
}

Norm* find_norm(Model& model, std::string_view name, int32_t i) {
    if (name == "encoder_norm" && i == -1) return &model.encoder_norm;
    if (name == "decoder_norm" && i == -1) return &model.decoder_norm;
    for (int n = 0; n < 3; n++) {
        const std::string norm = ".residuals." + text(n) + ".norm";
        if (name == "encoder" + norm && n < 2 && i >= 0 && i < model.shape.encoder_layers)
            return &model.encoder[i].norms[n];
        if (name == "decoder" + norm && i >= 0 && i < model.shape.decoder_layers)
            return &model.decoder[i].norms[n];
    }
    return nullptr;
}

template <class T>
void copy(Array<T>& to, const T* from, int64_t size) {
    to.resize(size);
    std::copy_n(from, size, to.data());
}

void set_linear(mtkit_model& owner, const std::string& name, int32_t layer, const float* weight,
                const float* bias, int64_t rows, int64_t columns) {
    Model& model = owner.model;
    const Place place = find_matrix(model, name, layer);
    check(!owner.ready && place.matrix != nullptr, "no matrix " + name + " can be set");
    check_size(name + " (rows)", rows, place.rows);
    check_size(name + " (columns)", columns, place.columns);
    pack(*place.matrix, weight, bias, static_cast<int>(rows), static_cast<int>(columns),
         model.precision);
    if (place.matrix == &model.output && model.precision == Precision::int8)
        copy(model.tgt_embedding, weight, rows * columns);
}

void set_norm(mtkit_model& owner, const std::string& name, int32_t layer, const float* gain,
              const float* bias, int64_t size) {
    Norm* norm = find_norm(owner.model, name, layer);
    check(!owner.ready && norm != nullptr, "no norm " + name + " can be set");
    check_size(name, size, owner.model.shape.model_row());
    copy(norm->gain, gain, size);
    copy(norm->bias, bias, size);
}

void set_table(mtkit_model& owner, const std::string& name, const float* values, int64_t rows,
               int64_t columns) {
    Model& model = owner.model;
    const Shape& shape = model.shape;
    const bool learned = shape.positions == static_cast<int32_t>(Positions::learned);
    const bool is_embedding = name == "src_embedding" && shape.own_src_embedding;
    const bool is_positions = name == "learned_positions" && learned;
    check(!owner.ready && (is_embedding || is_positions), "no table " + name + " can be set");
    check_size(name + " (rows)", rows, is_embedding ? shape.src_vocabulary : shape.max_positions);
    check_size(name + " (columns)", columns, shape.model_row());
    copy(is_embedding ? model.src_embedding : model.position_table, values, rows * columns);
    if (is_positions) model.positions_in_table = static_cast<int>(rows);
}

void set_words(mtkit_model& owner, const std::string& name, const uint8_t* values, int64_t size) {
    Model& model = owner.model;
    const bool is_src = name == "src_words";
    const bool words = model.shape.positions == static_cast<int32_t>(Positions::words);
    check(!owner.ready && words && (is_src || name == "tgt_words"),
          "no words " + name + " can be set");
    check_size(name, size, is_src ? model.shape.src_vocabulary : model.shape.tgt_vocabulary);
    check(std::all_of(values, values + size, [](uint8_t v) { return v <= 1; }),
          name + " has numbers other than 0 and 1");
    copy(is_src ? model.src_words : model.tgt_words, values, size);
}

bool complete(const Norm& norm) { return !norm.gain.empty(); }

bool complete(const Model& model) {
    const Shape& shape = model.shape;
    bool all = model.output.in > 0;
    for (const EncoderLayer& layer : model.encoder) {
        for (const Matrix* m : {&layer.in_proj, &layer.out_proj, &layer.inner, &layer.outer})
            all = all && m->in > 0;
        for (const Norm& norm : layer.norms) all = all && complete(norm);
    }
    for (const DecoderLayer& layer : model.decoder) {
        for (const Matrix* m : {&layer.in_proj, &layer.out_proj, &layer.q_proj, &layer.kv_proj,
                                &layer.cross_out, &layer.inner, &layer.outer})
            all = all && m->in > 0;
        for (const Norm& norm : layer.norms) all = all && complete(norm);
    }
    if (shape.pre_norm) all = all && complete(model.encoder_norm) && complete(model.decoder_norm);
    if (shape.own_src_embedding) all = all && !model.src_embedding.empty();
    if (shape.positions == static_cast<int32_t>(Positions::learned))
        all = all && !model.position_table.empty();
    if (shape.positions == static_cast<int32_t>(Positions::words))
        all = all && !model.src_words.empty() && !model.tgt_words.empty();
    return all;
}

// What every batch must fulfil.
void check_batch(const mtkit_model& owner, const int32_t* ids, const int32_t* lengths,
                 int32_t sentences, int32_t slots) {
    const Shape& shape = owner.model.shape;
    check(owner.ready, "the model has no weights yet");
    check_range("sentences", sentences, 1, MOST_NUMBERS - 1);
    check_range("slots", slots, 1, MOST_NUMBERS - 1);
    const int64_t tokens = check_lengths("the length of a sentence", lengths, sentences, 1);
    const int64_t widest = std::max({2 * shape.key_row() + shape.value_row(), shape.inner_row(),
                                     shape.model_row()});
    check_numbers("the batch", tokens, widest);
    check_numbers("the hypotheses", int64_t{sentences} * slots, widest);
    check_ids("a source id", ids, tokens, shape.src_vocabulary);
}

void check_request(const Model& model, const Settings& settings, const Request& request) {
    const int32_t vocabulary = model.shape.tgt_vocabulary;
    check_range("n_best", settings.n_best, 1, settings.beam_size);
    check_range("bos", settings.bos, 0, vocabulary - 1);
    check_range("eos", settings.eos, 0, vocabulary - 1);
    check_range("min_length", settings.min_length, 0, INT32_MAX);
    check_range("no_repeat_ngram", settings.no_repeat_ngram, 0, INT32_MAX);
    check_range("top_k", settings.top_k, 0, INT32_MAX);
    check_lengths("the limit of an output", request.limits, request.sentences, 0);
    const int64_t prefixes =
        check_lengths("the length of a prefix", request.prefix_lengths, request.sentences, 0);
    check_ids("a prefix id", request.prefixes, prefixes, vocabulary);
    check_range("forbidden_count", request.forbidden_count, 0, vocabulary);
    check_ids("a forbidden id", request.forbidden, request.forbidden_count, vocabulary);
    if (settings.samples > 0) {
        const int32_t longest =
            *std::max_element(request.limits, request.limits + request.sentences);
        check_range("uniform_steps", request.uniform_steps, longest, MOST_NUMBERS - 1);
        check(settings.temperature > 0 && settings.top_p > 0,
              "temperature or top_p is not above 0");
    }
}

}  // namespace

EXPORT int32_t mtkit_abi(void) { return MTKIT_ABI; }

EXPORT const char* mtkit_error(void) { return message.c_str(); }

EXPORT const char* mtkit_kernels(int32_t precision) {
    const char* name = nullptr;
    guarded([&] {
        check_range("precision", precision, 0, 2);
        name = choose_kernels(static_cast<Precision>(precision))->name;
    });
    return name;
}

EXPORT mtkit_model* mtkit_new(const mtkit_shape* shape, int32_t precision) {
    mtkit_model* created = nullptr;
    guarded([&] {
        const Shape& sizes = *reinterpret_cast<const Shape*>(shape);
        check_shape(sizes, precision);
        auto owner = std::make_unique<mtkit_model>();
        Model& model = owner->model;
        model.shape = sizes;
        model.precision = static_cast<Precision>(precision);
        model.kernels = choose_kernels(model.precision);
        model.encoder.resize(sizes.encoder_layers);
        model.decoder.resize(sizes.decoder_layers);
        created = owner.release();
    });
    return created;
}

EXPORT int mtkit_set_linear(mtkit_model* model, const char* name, int32_t layer,
                            const float* weight, const float* bias, int64_t rows,
                            int64_t columns) {
    return guarded([&] { set_linear(*model, name, layer, weight, bias, rows, columns); });
}

EXPORT int mtkit_set_norm(mtkit_model* model, const char* name, int32_t layer, const float* gain,
                          const float* bias, int64_t size) {
    return guarded([&] { set_norm(*model, name, layer, gain, bias, size); });
}

EXPORT int mtkit_set_table(mtkit_model* model, const char* name, const float* values, int64_t rows,
                           int64_t columns) {
    return guarded([&] { set_table(*model, name, values, rows, columns); });
}

EXPORT int mtkit_set_words(mtkit_model* model, const char* name, const uint8_t* values,
                           int64_t size) {
    return guarded([&] { set_words(*model, name, values, size); });
}

EXPORT int mtkit_ready(mtkit_model* model) {
    return guarded([&] {
        check(complete(model->model), "a tensor of the model was not set");
        model->model.make_sinusoids();
        model->ready = true;
    });
}

EXPORT void mtkit_free(mtkit_model* model) { delete model; }

EXPORT mtkit_decoding* mtkit_start(const mtkit_model* model, const int32_t* ids, int64_t ids_size,
                                   const int32_t* lengths, int32_t sentences, int32_t slots,
                                   int32_t longest) {
    mtkit_decoding* started = nullptr;
    guarded([&] {
        check_range("sentences", sentences, 1, MOST_NUMBERS - 1);
        check_size("ids", ids_size, check_lengths("a length", lengths, sentences, 1));
        check_batch(*model, ids, lengths, sentences, slots);
        started = new mtkit_decoding{{model->model, ids, lengths, sentences, slots, longest}};
    });
    return started;
}

EXPORT int mtkit_step(mtkit_decoding* owner, const int32_t* tokens, const int32_t* rows,
                      int32_t count, float* log_probs) {
    return guarded([&] {
        Decoding& decoding = owner->decoding;
        const Model& model = decoding.model();
        const int32_t vocabulary = model.shape.tgt_vocabulary;
        const int32_t all = decoding.sentences() * decoding.slots();
        check_range("the number of rows", count, 1, all);
        check_ids("a token", tokens, count, vocabulary);
        check_ids("a row", rows, count, all);
        for (int32_t r = 1; r < count; r++) check(rows[r - 1] < rows[r], "rows are not ascending");
        const float* states = decoding.step(tokens, rows, count);
        model.kernels->log_probs(model.output, states, count, vocabulary, nullptr, nullptr,
                                 nullptr, nullptr, log_probs, decoding.scratch());
    });
}

EXPORT int mtkit_reorder(mtkit_decoding* owner, const int32_t* parents, int64_t size) {
    return guarded([&] {
        Decoding& decoding = owner->decoding;
        check_size("parents", size, int64_t{decoding.sentences()} * decoding.slots());
        check_ids("a parent", parents, size, decoding.slots());
        decoding.reorder(parents);
    });
}

EXPORT int mtkit_select(mtkit_decoding* owner, const int32_t* kept, int32_t count) {
    return guarded([&] {
        check_range("the number of sentences", count, 1, owner->decoding.sentences());
        check_ids("a sentence", kept, count, owner->decoding.sentences());
        owner->decoding.select(kept, count);
    });
}

EXPORT void mtkit_end(mtkit_decoding* owner) { delete owner; }

EXPORT int mtkit_translate(const mtkit_model* model, const mtkit_settings* of_search,
                           const mtkit_request* of_batch, int32_t room, int32_t* tokens,
                           int32_t* lengths, uint8_t* finished, double* log_probs, double* scores,
                           double* token_log_probs) {
    return guarded([&] {
        const Settings& settings = *reinterpret_cast<const Settings*>(of_search);
        const Request& request = *reinterpret_cast<const Request*>(of_batch);
        check_range("beam_size", settings.beam_size, 1, MOST_NUMBERS - 1);
        check_range("samples", settings.samples, 0, MOST_NUMBERS - 1);
        const bool samples = settings.samples > 0;
        check_batch(*model, request.ids, request.lengths, request.sentences,
                    samples ? settings.samples : settings.beam_size);
        check_request(model->model, settings, request);
        const Found found = translate(model->model, settings, request);
        const size_t most = samples ? settings.samples : settings.n_best;
        std::fill_n(lengths, request.sentences * most, -1);
        for (size_t b = 0; b < found.size(); b++) {
            check(found[b].size() <= most, "the search found too many hypotheses");
            for (size_t k = 0; k < found[b].size(); k++) {
                const Hypothesis& one = found[b][k];
                const size_t i = b * most + k, size = one.tokens.size();
                const size_t scored = one.token_log_probs.size();
                check(size <= scored && static_cast<int64_t>(scored) <= room,
                      "a hypothesis is longer than " + text(room) + " tokens");
                lengths[i] = static_cast<int32_t>(size);
                finished[i] = one.finished;
                log_probs[i] = one.log_prob;
                scores[i] = one.score;
                std::copy_n(one.tokens.data(), size, tokens + i * room);
                std::copy_n(one.token_log_probs.data(), scored, token_log_probs + i * room);
            }
        }
    });
}
