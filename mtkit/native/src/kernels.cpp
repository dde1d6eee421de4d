// Choosing kernels, and packing weights.
#include "kernels.h"

#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__linux__) && defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace mtkit {

extern const Kernels plain_kernels;
#ifdef __x86_64__
extern const Kernels avx2_kernels, avx512_kernels, vnni_kernels, amx_kernels;
#endif
#ifdef __aarch64__
extern const Kernels neon_kernels;
#endif

namespace {

#ifdef __x86_64__
// Whether this CPU has tiles, and the system lets this process use them.
bool may_use_tiles() {
#ifdef __linux__
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25;
    if ((d & bf16) == 0 || (d & tile) == 0 || (d & int8) == 0) return false;
    constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18;
    static const bool allowed = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
    return allowed;
#else
    return false;
#endif
}
#endif

#ifdef __aarch64__
bool has_dot_products() {
#ifdef __linux__
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return true;  // on Apple's CPUs
#endif
}
#endif

}  // namespace

const Kernels* find_kernels(const char* name) {
    const auto is = [name](const Kernels& kernels) { return !std::strcmp(name, kernels.name); };
    if (is(plain_kernels)) return &plain_kernels;
#ifdef __x86_64__
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f")
                        && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
                        && __builtin_cpu_supports("avx512vl");
    const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    if (is(avx2_kernels) && avx2) return &avx2_kernels;
    if (is(avx512_kernels) && avx512) return &avx512_kernels;
    if (is(vnni_kernels) && vnni) return &vnni_kernels;
    if (is(amx_kernels) && vnni && may_use_tiles()) return &amx_kernels;
#endif
#ifdef __aarch64__
    if (is(neon_kernels) && has_dot_products()) return &neon_kernels;
#endif
    return nullptr;
}

const Kernels* choose_kernels(Precision precision) {
    if (const char* name = std::getenv("MTKIT_KERNELS"); name != nullptr && *name != '\0') {
        if (const Kernels* kernels = find_kernels(name)) return kernels;
        throw std::runtime_error("MTKIT_KERNELS: this CPU or this build has no kernels named "
                                 + std::string(name));
    }
    if (precision != Precision::float32)
        if (const Kernels* kernels = find_kernels("amx")) return kernels;
    for (const char* name : {"vnni", "avx512", "avx2", "neon"})
        if (const Kernels* kernels = find_kernels(name)) return kernels;
    return &plain_kernels;
}

namespace {

uint16_t to_bf16(float value) {  // rounded half to even
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bf16(uint16_t value) {
    const uint32_t bits = uint32_t{value} << 16;
    float r;
    std::memcpy(&r, &bits, 4);
    return r;
}

// Where input `k` of column `n` is, with `together` inputs of a column side by side.
size_t index(const Matrix& matrix, int n, int k, int together) {
    const size_t panel = size_t(n / PANEL) * size_t(matrix.in) * PANEL;
    return panel + size_t(k / together) * size_t(PANEL * together)
           + size_t(n % PANEL * together + k % together);
}

void pack_bytes(Matrix& matrix, const float* values) {
    matrix.int8_weights.resize(size_t(matrix.out) * size_t(matrix.in));
    matrix.scales.resize(size_t(matrix.out));
    matrix.offsets.resize(size_t(matrix.out));
    for (int n = 0; n < matrix.out; ++n, values += matrix.in) {
        float most = 1e-30f;  // a column of zeros is zeros
        for (int k = 0; k < matrix.in; ++k) most = std::fmax(most, std::fabs(values[k]));
        int32_t sum = 0;
        for (int k = 0; k < matrix.in; ++k) {
            const float rounded = std::nearbyint(values[k] * (127.0f / most));
            const int8_t byte = std::fabs(rounded) <= 127.0f ? static_cast<int8_t>(rounded) : 0;
            matrix.int8_weights[index(matrix, n, k, 4)] = byte;
            sum += byte;
        }
        matrix.scales[size_t(n)] = most / 127.0f;
        matrix.offsets[size_t(n)] = 128 * sum;
    }
}

}  // namespace

void pack(Matrix& matrix, const float* values, const float* bias, int rows, int columns,
          Precision precision) {
    matrix.in = columns;
    matrix.out = rows;
    matrix.precision = precision;
    const size_t size = size_t(rows) * size_t(columns);
    matrix.bias.resize(size_t(rows));
    if (bias != nullptr) std::memcpy(matrix.bias.data(), bias, size_t(rows) * sizeof(float));
    if (precision == Precision::int8) return pack_bytes(matrix, values);
    if (precision == Precision::bf16) {
        matrix.bf16_weights.resize(size);
        for (int n = 0; n < rows; ++n)
            for (int k = 0; k < columns; ++k)
                matrix.bf16_weights[index(matrix, n, k, 2)] = to_bf16(*values++);
    } else {
        matrix.weights.resize(size);
        for (int n = 0; n < rows; ++n)
            for (int k = 0; k < columns; ++k) matrix.weights[index(matrix, n, k, 1)] = *values++;
    }
}

void unpack_row(const Matrix& matrix, int row, float* out) {
    for (int k = 0; k < matrix.in; ++k) {
        switch (matrix.precision) {
            case Precision::float32: out[k] = matrix.weights[index(matrix, row, k, 1)]; break;
            case Precision::bf16: out[k] = from_bf16(matrix.bf16_weights[index(matrix, row, k, 2)]);
                break;
            case Precision::int8:
                out[k] = float(matrix.int8_weights[index(matrix, row, k, 4)])
                         * matrix.scales[size_t(row)];
        }
    }
}

}  // namespace mtkit
