/* requests.h -- requests of store clients, as bytes. For the programs in tests/bench only; they end when memory does. */
#ifndef TESTS_BENCH_REQUESTS_H
#define TESTS_BENCH_REQUESTS_H

#include "base/buf.h"
#include "store/ops.h"

enum { REQUEST_VALUE_BYTES = 128 }; /* as long as an NCCL id, which is what most values are */

/* Puts one request behind what is in `out`. */
typedef void request_maker(struct buf *out, enum dialect dialect, const char *key);

request_maker request_add, request_get, request_set, request_wait;

#endif
