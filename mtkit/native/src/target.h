// Compiles all kernels once for one kind of CPU. A target file defines MTKIT_NAME, MTKIT_FEATURES
// (instructions, as the compiler names them) and MTKIT_SIMD (the header of its vector operations),
// and includes this.
//
// Standard headers only before MTKIT_BEGIN. What is between MTKIT_BEGIN and MTKIT_END may not call
// inline functions of the standard library: the linker keeps one copy, perhaps the one for this
// CPU.
#include <type_traits>

#include "kernels.h"

// Rows of x are in bf16 too.
#if defined(MTKIT_TILES) || defined(MTKIT_BF16_DOT)
#define MTKIT_BF16_ROWS
#endif

#define MTKIT_PRAGMA(tokens) _Pragma(#tokens)
#define MTKIT_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define MTKIT_BEGIN(features) \
    MTKIT_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define MTKIT_END MTKIT_PRAGMA(clang attribute pop)
#define MTKIT_UNROLL _Pragma("unroll")
#else
#define MTKIT_BEGIN(features) MTKIT_PRAGMA(GCC push_options) MTKIT_PRAGMA(GCC target features)
#define MTKIT_END MTKIT_PRAGMA(GCC pop_options)
#define MTKIT_UNROLL _Pragma("GCC unroll 16")
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // warns of its own headers
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#define MTKIT_STRING_OF(name) #name
#define MTKIT_STRING(name) MTKIT_STRING_OF(name)

#ifdef MTKIT_FEATURES
MTKIT_BEGIN(MTKIT_FEATURES)
#endif
namespace mtkit::MTKIT_NAME {
namespace {
// A number or a register from memory, and back, whatever type the memory has.
template <class T>
MTKIT_INLINE T load_as(const void* p) {
    typedef T Anywhere __attribute__((aligned(1), may_alias));
    return *static_cast<const Anywhere*>(p);
}
template <class T>
MTKIT_INLINE void store_as(void* p, T a) {
    typedef T Anywhere __attribute__((aligned(1), may_alias));
    *static_cast<Anywhere*>(p) = a;
}
#include MTKIT_SIMD
#include "targets/simd.h"
#include "vectors.h"
#include "products.h"
#include "attention.h"
#include "best.h"
}  // namespace
}  // namespace mtkit::MTKIT_NAME
#ifdef MTKIT_FEATURES
MTKIT_END
#endif

namespace mtkit::MTKIT_NAME {
extern const Kernels kernels = {
    MTKIT_STRING(MTKIT_NAME), linear, layer_norm, attend_shared, attend_own, transpose_keys,
    log_probs,
};
}
