// The C interface, which Python calls by ctypes. It has no type of Python or PyTorch.
//
// A function that can fail returns 0, or another number and a message in `mtkit_error`, in this
// thread. Sizes are checked here; that an array has the size it is given with, the caller checks.
// A model may be used by several threads at a time once `mtkit_ready` has returned 0; a decoding
// belongs to one thread.
#pragma once

#include <stdint.h>

#include "search.h"
#include "shape.h"

#define MTKIT_ABI 6

struct mtkit_model;
struct mtkit_decoding;

// Everything else in the library is hidden.
#pragma GCC visibility push(default)
extern "C" {

int32_t mtkit_abi(void);
const char* mtkit_error(void);
// The kernels for a precision on this CPU, such as "avx2".
const char* mtkit_kernels(int32_t precision);

mtkit_model* mtkit_new(const mtkit::Shape*, int32_t precision);
// The name in `Transformer.state_dict` of the tensor with this number, from 0 on, and its shape:
// (rows, columns), or (columns) where rows is 0. Null after the last tensor.
const char* mtkit_tensor(const mtkit_model*, int32_t number, int64_t* rows, int64_t* columns);
// Give this tensor its numbers, without padding. Each must be given before `mtkit_ready`.
int mtkit_set(mtkit_model*, int32_t number, const float* values, int64_t size);
int mtkit_ready(mtkit_model*);
void mtkit_free(mtkit_model*);

// The step alone, for a search in Python.
mtkit_decoding* mtkit_start(const mtkit_model*, const int32_t* ids, int64_t ids_size,
                            const int32_t* lengths, int32_t sentences, int32_t slots);
int mtkit_step(mtkit_decoding*, const int32_t* tokens, const int32_t* rows, int32_t count,
               float* log_probs);
int mtkit_reorder(mtkit_decoding*, const int32_t* parents, int64_t size);
int mtkit_select(mtkit_decoding*, const int32_t* kept, int32_t count);
void mtkit_end(mtkit_decoding*);

// A whole batch. Results of sentence b and rank k are at index b * n_best + k, or, of samples,
// b * samples + k: tokens and log-probabilities in rows of `room` numbers, which are at least the
// largest limit; lengths are -1 where there is no hypothesis, and everywhere after a stop.
int mtkit_translate(const mtkit_model*, const mtkit::Settings*, const mtkit::Request*,
                    int32_t room, int32_t* tokens, int32_t* lengths, uint8_t* finished,
                    double* log_probs, double* scores, double* token_log_probs,
                    float* attention);

// The attention of the given heads for given translations, the prefixes, none longer than `room`:
// sentence, token, position in the source; there is room for `room` tokens, and for the positions
// of the longest source. `mtkit_translate` writes that of the best hypotheses in the same form, if
// there are heads; the first number is -1 where it is not known.
int mtkit_attend(const mtkit_model*, const mtkit::Request*, int32_t bos_id, int32_t room,
                 float* attention);

// The table of kernels of a name, `Kernels` in kernels.h, or null; for tests and benchmarks.
const void* mtkit_find_kernels(const char* name);

}
#pragma GCC visibility pop
