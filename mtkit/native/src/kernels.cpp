// Choosing kernels.
#include "kernels.h"

#include <cstdlib>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#ifdef __x86_64__
#include <cpuid.h>
#endif
#ifdef __linux__
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mtkit {

namespace plain { extern const Kernels kernels; }
#ifdef __x86_64__
namespace avx2 { extern const Kernels kernels; }
namespace vnni { extern const Kernels kernels; }
namespace avx512bf16 { extern const Kernels kernels; }
namespace amx { extern const Kernels kernels; }
#endif
#ifdef __aarch64__
namespace neon { extern const Kernels kernels; }
#endif

namespace {

#ifdef __x86_64__
constexpr uint64_t bits(std::initializer_list<int> numbers) {
    uint64_t all = 0;
    for (const int number : numbers) all |= uint64_t{1} << number;
    return all;
}
bool has(uint64_t value, uint64_t wanted) { return (value & wanted) == wanted; }

bool is_amd() {
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx
        && d == signature_AMD_edx;
}
#endif

// The kernels that this CPU and its system can run, the fastest last.
std::vector<const Kernels*> find_usable() {
    std::vector<const Kernels*> found{&plain::kernels};
#ifdef __x86_64__
    // `__builtin_cpu_supports` answers the same, but not in every build by Clang.
    unsigned a, b, c, d;
    const uint64_t fma = bits({12}), xgetbv = bits({27});
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, fma | xgetbv)) return found;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
    // The registers that the system saves: of 256 and 512 bits, and tiles.
    unsigned saved, unused, bf16;
    asm("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0));
    if (!has(saved, bits({1, 2})) || !has(b, bits({5}))) return found;
    found.push_back(&avx2::kernels);
    // AVX-512 F, DQ, BW, VL, and VNNI.
    if (!has(saved, bits({5, 6, 7})) || !has(b, bits({16, 17, 30, 31})) || !has(c, bits({11})))
        return found;
    found.push_back(&vnni::kernels);
    if (__get_cpuid_count(7, 1, &bf16, &unused, &unused, &unused) && has(bf16, bits({5})))
        found.push_back(&avx512bf16::kernels);
#ifdef __linux__
    // AMX in bf16, tiles and 8 bits; a process must ask for the memory of tiles.
    constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18;
    if (has(saved, bits({17, 18})) && has(d, bits({22, 24, 25}))
        && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0)
        found.push_back(&amx::kernels);
#endif
#elif defined(__aarch64__)
    bool has_dot_products = true;  // on Apple's CPUs
#ifdef __linux__
    has_dot_products = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
    if (has_dot_products) found.push_back(&neon::kernels);
#endif
    return found;
}

const std::vector<const Kernels*>& usable() {
    static const std::vector<const Kernels*> kernels = find_usable();
    return kernels;
}

// Whether kernels are faster in a precision than those before them in `usable`.
bool is_worth_it(std::string_view name, Precision precision) {
#ifdef __x86_64__
    if (name == "amx") return precision != Precision::float32;
    // In other precisions they are those of `vnni`. Measured peaks, as parts of that of float32:
    // 2 on AMD Zen 4, 0.5 on Intel's Sapphire Rapids.
    if (name == "avx512bf16") return precision == Precision::bf16 && is_amd();
#endif
    return true;
}

}  // namespace

const Kernels* find_kernels(const char* name) {
    for (const Kernels* kernels : usable())
        if (std::string_view(name) == kernels->name) return kernels;
    return nullptr;
}

const Kernels* choose_kernels(Precision precision) {
    if (const char* name = std::getenv("MTKIT_KERNELS"); name != nullptr && *name != '\0') {
        if (const Kernels* kernels = find_kernels(name)) return kernels;
        std::string names;
        for (const Kernels* kernels : usable()) names += std::string(", ") + kernels->name;
        throw std::runtime_error("MTKIT_KERNELS: this CPU or this build has no kernels named "
                                 + std::string(name) + "; it has " + names.substr(2)
                                 + " (all there are: amx, avx512bf16, vnni, avx2, neon, plain)");
    }
    const Kernels* fastest = nullptr;
    for (const Kernels* kernels : usable())
        if (is_worth_it(kernels->name, precision)) fastest = kernels;
    return fastest;
}

}  // namespace mtkit
