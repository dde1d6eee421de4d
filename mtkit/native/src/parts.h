// One kernel on arrays, for tests and benchmarks. Kernels are named as in `find_kernels`; functions
// return 1 where this CPU does not have them, or where a size is wrong.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int mtkit_part_has(const char* kernels);
// A packed matrix from (out, in) weights, sizes multiples of 64; null if they are wrong.
void* mtkit_part_pack(const float* weights, const float* bias, int32_t out, int32_t in,
                      int32_t precision);
// The operations of `steps` steps in registers; 0 without these kernels.
double mtkit_part_peak(const char* kernels, int32_t precision, int32_t steps);
void mtkit_part_free(void* matrix);
int mtkit_part_unpack(const void* matrix, int32_t row, float* out);
// `repeat` times, for benchmarks.
int mtkit_part_linear(const char* kernels, const void* matrix, const float* x, int32_t rows,
                      int32_t activation, int32_t add, float* y, int32_t repeat);
int mtkit_part_layer_norm(const char* kernels, const float* x, int32_t rows, int32_t width,
                          const float* gain, const float* bias, float epsilon, float* y);
// keys (positions, key_row), values (positions, value_row), q (rows, key_row), out (rows,
// value_row); `first` and `last` (rows) or null.
int mtkit_part_attend_shared(const char* kernels, int32_t heads, int32_t key_width,
                             int32_t value_width, const float* q, int32_t rows, const float* keys,
                             const float* values, int32_t positions, const int32_t* first,
                             const int32_t* last, float scale, float* out, int32_t repeat);
// rows of keys, each followed by its values: (positions, key_row + value_row); q of one row.
int mtkit_part_attend_own(const char* kernels, int32_t heads, int32_t key_width,
                          int32_t value_width, const float* q, const float* rows,
                          int32_t positions, float scale, float* out, int32_t repeat);
// The best `count` of each row, or with `all` (rows, width) all log-probabilities. The forbidden
// ids of row r are n_forbidden[r] from first_forbidden[r] on.
int mtkit_part_log_probs(const char* kernels, const void* matrix, const float* states,
                         int32_t rows, int32_t width, const int32_t* forbidden,
                         const int32_t* first_forbidden, const int32_t* n_forbidden,
                         int32_t count, float* log_probs, int32_t* ids, float* all,
                         int32_t repeat);

#ifdef __cplusplus
}
#endif
