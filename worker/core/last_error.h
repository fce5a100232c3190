/* last_error.h -- the words that ddp_last_error() returns, one set per thread. */
#ifndef WORKER_CORE_LAST_ERROR_H
#define WORKER_CORE_LAST_ERROR_H

#include "ddp/error.h"

#include <stddef.h>

/* Keep the words of `err` (copied) for this thread; returns err->code. */
ddp_status last_error_keep(const struct ddp_err *err);

/* "all_reduce: `group` is NULL"; returns DDP_ERR_ARG. */
ddp_status last_error_null(const char *call, const char *argument);

/* As base/not_null.h does, for calls whose words are kept here. */
#define NOT_NULL_KEPT(argument)                          \
    do {                                                 \
        if ((argument) == NULL)                          \
            return last_error_null(__func__, #argument); \
    } while (0)

#endif
