// Kernels for 64-bit Arm CPUs with dot products of 8-bit numbers.
#ifdef __aarch64__
#include <arm_neon.h>

#define MTKIT_NAME neon
#define MTKIT_FEATURES "+dotprod"
#define MTKIT_SIMD "targets/neon.h"
#include "target.h"
#endif
