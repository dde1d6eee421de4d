// Kernels for CPUs with AVX-512 and VNNI.
#ifdef __x86_64__
#include <immintrin.h>

#define MTKIT_NAME vnni
#define MTKIT_FEATURES "avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"
#define MTKIT_SIMD "targets/avx512.h"
#include "target.h"
#endif
