// Kernels in plain C++, for CPUs without the others, and to compare them with.
#include "kernels.h"
#include "targets/attributes.h"

namespace mtkit::plain {
namespace {
#include "targets/plain.h"
#include "targets/words.h"
#include "vectors.h"
#include "products.h"
#include "attention.h"
#include "best.h"
}  // namespace
}  // namespace mtkit::plain

namespace mtkit {
extern const Kernels plain_kernels = {
    "plain",
    plain::linear,
    plain::layer_norm,
    plain::attend_shared,
    plain::attend_own,
    plain::transpose_keys,
    plain::log_probs,
    plain::peak,
};
}  // namespace mtkit
