/* requests.h -- requests of store clients, as bytes. Only for the programs in tests/bench, because the functions end
 * the program when memory is short. */
#ifndef TESTS_BENCH_REQUESTS_H
#define TESTS_BENCH_REQUESTS_H

#include "base/buf.h"
#include "store/ops.h"

enum { REQUEST_VALUE_BYTES = 128 }; /* size of an NCCL id */

/* Append one request to `out`. */
typedef void request_maker(struct buf *out, enum dialect dialect, const char *key);

request_maker request_add, request_get, request_set, request_wait;

#endif
