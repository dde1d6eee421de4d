// Kernels for CPUs with AVX2 and FMA.
#ifdef __x86_64__
#include <immintrin.h>

#include "kernels.h"
#include "targets/attributes.h"

MTKIT_TARGET_BEGIN("avx2,fma")
namespace mtkit::avx2 {
namespace {
#include "targets/avx2.h"
#include "targets/words.h"
#include "vectors.h"
#include "products.h"
#include "attention.h"
#include "best.h"
}  // namespace
}  // namespace mtkit::avx2
MTKIT_TARGET_END

namespace mtkit {
extern const Kernels avx2_kernels = {
    "avx2",
    avx2::linear,
    avx2::layer_norm,
    avx2::attend_shared,
    avx2::attend_own,
    avx2::transpose_keys,
    avx2::log_probs,
    avx2::peak,
};
}  // namespace mtkit
#endif
