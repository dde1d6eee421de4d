// Kernels for CPUs with AVX-512, VNNI, and dot products of numbers in bf16.
#ifdef __x86_64__
#include <immintrin.h>

#define MTKIT_BF16_DOT
#define MTKIT_NAME avx512bf16
#define MTKIT_FEATURES "avx512bf16,avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"
#define MTKIT_SIMD "targets/avx512.h"
#include "target.h"
#endif
