/* atomic_file.h -- a file appears under its name whole, or not at all.
 *
 *     atomic_open -> atomic_write ... -> atomic_commit     the first that fails removes what was written
 *
 * A device or a pipe (--summary /dev/stdout) is written to directly: there is no whole or not at all for it.
 *
 * The bytes go to PATH.tmp beside the target, so that the final rename stays inside one file system. One
 * writer per path: a left-over PATH.tmp of a killed run is removed by the next. */
#ifndef WORKER_CHECKPOINT_ATOMIC_FILE_H
#define WORKER_CHECKPOINT_ATOMIC_FILE_H

#include "ddp/error.h"

#include <stddef.h>

struct atomic_file {
    int fd;
    char *path;      /* both ours until commit or a failure */
    char *temporary; /* NULL: `path` is no plain file and is written to as it is */
};

/* `path` is copied. */
ddp_status atomic_open(struct atomic_file *file, const char *path, struct ddp_err *err);

/* DDP_ERR_IO names the path and errno. That was the end of `file`, then. */
ddp_status atomic_write(struct atomic_file *file, const void *data, size_t len, struct ddp_err *err);

/* Flush to the disk, rename, flush the directory. Ends the life of `file`, also on an error. */
ddp_status atomic_commit(struct atomic_file *file, struct ddp_err *err);

#endif
