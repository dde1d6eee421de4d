// Kernels in plain C++, for CPUs without the others, and to compare them with.
#define MTKIT_NAME plain
#define MTKIT_SIMD "targets/plain.h"
#include "target.h"
