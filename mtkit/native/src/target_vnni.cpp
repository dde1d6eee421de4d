// Kernels for CPUs with AVX-512 and VNNI.
#ifdef __x86_64__
#include <immintrin.h>

#include "kernels.h"
#include "targets/attributes.h"

#ifndef __clang__  // warns of its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define MTKIT_VNNI
MTKIT_TARGET_BEGIN("avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace mtkit::vnni {
namespace {
#include "targets/avx512.h"
#include "targets/words.h"
#include "vectors.h"
#include "products.h"
#include "attention.h"
#include "best.h"
}  // namespace
}  // namespace mtkit::vnni
MTKIT_TARGET_END

namespace mtkit {
extern const Kernels vnni_kernels = {
    "vnni",
    vnni::linear,
    vnni::layer_norm,
    vnni::attend_shared,
    vnni::attend_own,
    vnni::transpose_keys,
    vnni::log_probs,
    vnni::peak,
};
}  // namespace mtkit
#endif
