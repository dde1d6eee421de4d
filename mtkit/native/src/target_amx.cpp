// Kernels for CPUs with AMX: those of VNNI, and products by tiles.
#ifdef __x86_64__
#include <immintrin.h>

#include "kernels.h"
#include "targets/attributes.h"

#ifndef __clang__  // warns of its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define MTKIT_VNNI
#define MTKIT_TILES
MTKIT_TARGET_BEGIN(
    "amx-tile,amx-int8,amx-bf16,avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace mtkit::amx {
namespace {
#include "targets/avx512.h"
#include "targets/words.h"
#include "vectors.h"
#include "products.h"
#include "attention.h"
#include "best.h"
}  // namespace
}  // namespace mtkit::amx
MTKIT_TARGET_END

namespace mtkit {
extern const Kernels amx_kernels = {
    "amx",
    amx::linear,
    amx::layer_norm,
    amx::attend_shared,
    amx::attend_own,
    amx::transpose_keys,
    amx::log_probs,
    amx::peak,
};
}  // namespace mtkit
#endif
