// Kernels for CPUs with AVX-512 that have no VNNI.
#ifdef __x86_64__
#include <immintrin.h>

#include "kernels.h"
#include "targets/attributes.h"

#ifndef __clang__  // warns of its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

MTKIT_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace mtkit::avx512 {
namespace {
#include "targets/avx512.h"
#include "targets/words.h"
#include "vectors.h"
#include "products.h"
#include "attention.h"
#include "best.h"
}  // namespace
}  // namespace mtkit::avx512
MTKIT_TARGET_END

namespace mtkit {
extern const Kernels avx512_kernels = {
    "avx512",
    avx512::linear,
    avx512::layer_norm,
    avx512::attend_shared,
    avx512::attend_own,
    avx512::transpose_keys,
    avx512::log_probs,
    avx512::peak,
};
}  // namespace mtkit
#endif
