// Translates what tests/native/test_other_cpus.py wrote into a file, on the CPU that this is
// compiled for: main FILE. Prints the kernels, and the ids and the score of each hypothesis.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "mtkit.h"

namespace {

FILE* file;

void check(bool holds) {
    if (holds) return;
    std::fprintf(stderr, "%s\n", mtkit_error());
    std::exit(1);
}

template <class T>
T read() {
    T value;
    if (std::fread(&value, sizeof(T), 1, file) != 1) std::exit(2);
    return value;
}

// An array, which follows its size.
template <class T>
std::vector<T> read_array() {
    std::vector<T> values(read<int64_t>());
    for (T& value : values) value = read<T>();
    return values;
}

}  // namespace

int main(int, char** arguments) {
    file = std::fopen(arguments[1], "rb");
    if (file == nullptr) return 2;
    const auto precision = read<int32_t>();
    const auto shape = read<mtkit::Shape>();
    mtkit_model* model = mtkit_new(&shape, precision);
    check(model != nullptr);
    int32_t number = 0;
    for (auto values = read_array<float>(); !values.empty(); values = read_array<float>())
        check(mtkit_set(model, number++, values.data(), values.size()) == 0);
    check(mtkit_ready(model) == 0);

    const auto settings = read<mtkit::Settings>();
    const auto ids = read_array<int32_t>(), lengths = read_array<int32_t>();
    const auto limits = read_array<int32_t>();
    const std::vector<int32_t> no_prefixes(lengths.size());
    mtkit::Request request{};
    request.ids = ids.data();
    request.lengths = lengths.data();
    request.sentences = static_cast<int>(lengths.size());
    request.limits = limits.data();
    request.prefix_lengths = no_prefixes.data();
    const size_t count = lengths.size() * settings.n_best, room = limits[0];
    std::vector<int32_t> tokens(count * room), sizes(count);
    std::vector<uint8_t> finished(count);
    std::vector<double> log_probs(count), scores(count), of_tokens(count * room);
    check(mtkit_translate(model, &settings, &request, limits[0], tokens.data(), sizes.data(),
                          finished.data(), log_probs.data(), scores.data(),
                          of_tokens.data(), nullptr) == 0);
    std::printf("%s\n", mtkit_kernels(precision));
    for (size_t i = 0; i < count; i++) {
        std::printf("%a", scores[i]);
        for (int32_t t = 0; t < sizes[i]; t++) std::printf(" %d", tokens[i * room + t]);
        std::printf("\n");
    }
    mtkit_free(model);
}
