// What lies between MTKIT_TARGET_BEGIN("avx2,fma") and MTKIT_TARGET_END is compiled for a CPU that
// has these instructions. No header of the standard library may be included or used there: the
// linker could take its functions, which then need this CPU, for all others.
#pragma once

#define MTKIT_PRAGMA(tokens) _Pragma(#tokens)
#define MTKIT_INLINE inline __attribute__((always_inline))
#ifdef __clang__
#define MTKIT_TARGET_BEGIN(features) \
    MTKIT_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define MTKIT_TARGET_END MTKIT_PRAGMA(clang attribute pop)
#define MTKIT_UNROLL _Pragma("unroll")
#else
#define MTKIT_TARGET_BEGIN(features) \
    MTKIT_PRAGMA(GCC push_options) MTKIT_PRAGMA(GCC target features)
#define MTKIT_TARGET_END MTKIT_PRAGMA(GCC pop_options)
#define MTKIT_UNROLL _Pragma("GCC unroll 16")
#endif
