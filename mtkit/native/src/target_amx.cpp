// Kernels for CPUs with AMX: those of VNNI, and products by tiles.
#ifdef __x86_64__
#include <immintrin.h>

#define MTKIT_TILES
#define MTKIT_NAME amx
#define MTKIT_FEATURES \
    "amx-tile,amx-int8,amx-bf16,avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"
#define MTKIT_SIMD "targets/avx512.h"
#include "target.h"
#endif
