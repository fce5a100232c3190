/* error.h -- the text that ddp_last_error() returns, one for each thread, and the error file of a worker. */
#ifndef WORKER_CORE_ERROR_H
#define WORKER_CORE_ERROR_H

#include "ddp/error.h"

#include <stddef.h>

/* Copy the text of `err` for this thread; return err->code. */
ddp_status last_error_keep(const struct ddp_err *err);

/* Keep "all_reduce: `group` is NULL"; return DDP_ERR_ARG. */
ddp_status last_error_null(const char *call, const char *argument);

/* As NOT_NULL of base/not_null.h, for calls whose text is kept here. */
#define NOT_NULL_KEPT(argument)                          \
    do {                                                 \
        if ((argument) == NULL)                          \
            return last_error_null(__func__, #argument); \
    } while (0)

/* Write {"message": why, "exit_code": code, "timestamp": "seconds"} to `path` (torchrun's TORCHELASTIC_ERROR_FILE). Returns
 * nothing, because a worker that ends has no use for a failure. */
void error_file_write(const char *path, int code, const char *why);

#endif
