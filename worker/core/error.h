/* error.h -- the text that ddp_last_error() returns, separate for each thread, and the error file of a worker. */
#ifndef WORKER_CORE_ERROR_H
#define WORKER_CORE_ERROR_H

#include "base/not_null.h"

/* Make `err`, which may come from another thread, this thread's last failure; return err->code. */
ddp_status last_error_keep(const struct ddp_err *err);

/* Write {"message": why, "exit_code": code, "timestamp": "seconds"} to `path` (torchrun's TORCHELASTIC_ERROR_FILE).
 * Returns nothing, because a worker that is ending cannot react to a failure. */
void error_file_write(const char *path, int code, const char *why);

#endif
