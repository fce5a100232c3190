/* last_error.h -- the words that ddp_last_error() returns, one set per thread. */
#ifndef WORKER_LAST_ERROR_H
#define WORKER_LAST_ERROR_H

#include "ddp/error.h"

/* Keep the words of `err` (copied) for this thread; returns err->code. */
ddp_status last_error_keep(const struct ddp_err *err);

#endif
