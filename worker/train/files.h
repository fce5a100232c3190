/* files.h -- small things about files that both programs of this directory need. */
#ifndef TRAIN_FILES_H
#define TRAIN_FILES_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

/* Make `path` and its parents where they are missing; fails (naming the directory) when it cannot be written
 * to. */
ddp_status files_make_dir(const char *path, struct ddp_err *err);

/* Could a file be written under this name at the end of a long run? Fails (naming the directory) when it is clear that it
 * could not. */
ddp_status files_may_write(const char *path, struct ddp_err *err);

/* Of an open file. A pipe, which has no size and cannot be read twice, is DDP_ERR_ARG. */
ddp_status files_size(int fd, uint64_t *bytes, struct ddp_err *err);

/* "DIR/NAME" into `to`, which has room for PATH_MAX bytes. */
ddp_status files_join(char *to, const char *dir, const char *name, struct ddp_err *err);

#endif
