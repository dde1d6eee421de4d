// Kernels for CPUs with AVX2 and FMA; also for those with AVX-512 but without VNNI.
#ifdef __x86_64__
#include <immintrin.h>

#define MTKIT_SIGNS
#define MTKIT_NAME avx2
#define MTKIT_FEATURES "avx2,fma"
#define MTKIT_SIMD "targets/avx2.h"
#include "target.h"
#endif
