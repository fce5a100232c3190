/* error.h -- the last error of each thread, for ddp_last_error(), and the error file of a worker. The text is
 * thread-local, so a function that returns another thread's error must store this error with last_error_keep. A call of
 * ddp_abort writes the error file before the other ranks fail, because after their failure the launcher may kill this
 * process. */
#ifndef WORKER_CORE_ERROR_H
#define WORKER_CORE_ERROR_H

#include "base/not_null.h"

/* Store `err` as the last error of this thread, and return err->code. The error is copied. `err` may come from another
 * thread, whose last error this thread cannot read. */
ddp_status last_error_keep(const struct ddp_err *err);

/* Write {"message": why, "exit_code": code, "timestamp": "seconds"} to `path`, the value of torchrun's
 * TORCHELASTIC_ERROR_FILE. Ignore failures, because the worker is ending. */
void error_file_write(const char *path, int code, const char *why);

#endif
