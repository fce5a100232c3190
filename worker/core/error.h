/* error.h -- the last error of each thread, for ddp_last_error(), and the error file of a worker. ddp_abort writes the
 * file before the other ranks fail, because the launcher may then kill this process. */
#ifndef WORKER_CORE_ERROR_H
#define WORKER_CORE_ERROR_H

#include "base/not_null.h"

/* Store `err`, maybe of another thread, as the last error of this thread, and return err->code. */
ddp_status last_error_keep(const struct ddp_err *err);

/* Write {"message": why, "exit_code": code, "timestamp": "seconds"} to `path` (torchrun's TORCHELASTIC_ERROR_FILE).
 * Ignore failures, because the worker is ending. */
void error_file_write(const char *path, int code, const char *why);

#endif
