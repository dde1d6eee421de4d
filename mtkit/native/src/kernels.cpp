// Choosing kernels.
#include "kernels.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>

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

// Which kernels this CPU and its system can run. `__builtin_cpu_supports` answers the same, but
// not in every build by Clang.
struct Cpu {
    bool avx2 = false, vnni = false, amx = false;

    Cpu() {
        unsigned a, b, c, d;
        const uint64_t fma = bits({12}), xgetbv = bits({27});
        if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, fma | xgetbv)) return;
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
        // The registers that the system saves: of 256 and 512 bits, and tiles.
        unsigned saved, unused;
        asm("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0));
        avx2 = has(saved, bits({1, 2})) && has(b, bits({5}));
        // AVX-512 F, DQ, BW, VL, and VNNI.
        vnni = avx2 && has(saved, bits({5, 6, 7})) && has(b, bits({16, 17, 30, 31}))
               && has(c, bits({11}));
#ifdef __linux__
        // AMX in bf16, tiles and 8 bits; a process must ask for the memory of tiles.
        constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18;
        amx = vnni && has(saved, bits({17, 18})) && has(d, bits({22, 24, 25}))
              && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#endif
    }
};
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
    if (is(plain::kernels)) return &plain::kernels;
#ifdef __x86_64__
    static const Cpu cpu;
    if (cpu.avx2 && is(avx2::kernels)) return &avx2::kernels;
    if (cpu.vnni && is(vnni::kernels)) return &vnni::kernels;
    if (cpu.amx && is(amx::kernels)) return &amx::kernels;
#endif
#ifdef __aarch64__
    if (is(neon::kernels) && has_dot_products()) return &neon::kernels;
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
    for (const char* name : {"vnni", "avx2", "neon"})
        if (const Kernels* kernels = find_kernels(name)) return kernels;
    return &plain::kernels;
}

}  // namespace mtkit
