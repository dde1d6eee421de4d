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

// The kernels that this CPU can run, the fastest first.
std::vector<const Kernels*> find_usable() {
    std::vector<const Kernels*> found;
#ifdef __x86_64__
    const Cpu cpu;
    if (cpu.amx) found.push_back(&amx::kernels);
    if (cpu.vnni) found.push_back(&vnni::kernels);
    if (cpu.avx2) found.push_back(&avx2::kernels);
#endif
#ifdef __aarch64__
    if (has_dot_products()) found.push_back(&neon::kernels);
#endif
    found.push_back(&plain::kernels);
    return found;
}

const std::vector<const Kernels*>& usable() {
    static const std::vector<const Kernels*> kernels = find_usable();
    return kernels;
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
        throw std::runtime_error("MTKIT_KERNELS: this CPU or this build has no kernels named "
                                 + std::string(name));
    }
    // Tiles do not multiply float32.
    const bool tiles = std::string_view("amx") == usable()[0]->name;
    return usable()[tiles && precision == Precision::float32 ? 1 : 0];
}

}  // namespace mtkit
