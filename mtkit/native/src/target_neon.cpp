// Kernels for 64-bit ARM CPUs with dot products of 8-bit numbers.
#ifdef __aarch64__
#include <arm_neon.h>

#include "kernels.h"
#include "targets/attributes.h"

MTKIT_TARGET_BEGIN("+dotprod")
namespace mtkit::neon {
namespace {
#include "targets/neon.h"
#include "targets/words.h"
#include "vectors.h"
#include "products.h"
#include "attention.h"
#include "best.h"
}  // namespace
}  // namespace mtkit::neon
MTKIT_TARGET_END

namespace mtkit {
extern const Kernels neon_kernels = {
    "neon",
    neon::linear,
    neon::layer_norm,
    neon::attend_shared,
    neon::attend_own,
    neon::transpose_keys,
    neon::log_probs,
    neon::peak,
};
}  // namespace mtkit
#endif
