/* files.h -- functions that check, read and find files, for train and make-data. A function without a path leaves
 * it to the caller to add the path to the error. */
#ifndef WORKER_TRAIN_FILES_H
#define WORKER_TRAIN_FILES_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

/* Create `path` and its missing parents. The error names the directory that is not writable. */
ddp_status files_make_dir(const char *path, struct ddp_err *err);

/* Check that a file can be written to `path` at the end of the run. The error names the directory. */
ddp_status files_may_write(const char *path, struct ddp_err *err);

/* Flush stdout. Return DDP_ERR_IO if this or an earlier write to stdout has failed. */
ddp_status files_flush_stdout(struct ddp_err *err);

/* Set *bytes to the size of an open file. Return DDP_ERR_ARG for a pipe. */
ddp_status files_size(int fd, uint64_t *bytes, struct ddp_err *err);

/* Read `len` bytes at `offset`, or fewer at the end of the file. Set *got to their number. */
ddp_status files_read(int fd, uint8_t *to, size_t len, uint64_t offset, size_t *got, struct ddp_err *err);

/* Check that `bytes`, the size of a file, equals `asked`, the size by its header. For a longer file, the error is
 * "offset ASKED: END, but the file is longer". */
ddp_status files_check_length(uint64_t bytes, uint64_t asked, const char *end, struct ddp_err *err);

/* Write "DIR/NAME" to `to` (PATH_MAX bytes). */
ddp_status files_join(char *to, const char *dir, const char *name, struct ddp_err *err);

/* --- whole file ------------------------------------------------------------------------------------------- */

/* All bytes of a file, plain or gzip. Memory grows only with requests and data, so neither a wrong header nor a
 * small gzip stream of gigabytes can exhaust it. */

struct whole_file {
    gzFile file;
    uint8_t *bytes; /* `len` bytes, which the caller frees, also after whole_file_close */
    size_t len, capacity;
};

ddp_status whole_file_open(struct whole_file *f, const char *path, struct ddp_err *err);

/* Read until `bytes` has `want` bytes, or the file ends. */
ddp_status whole_file_fill(struct whole_file *f, size_t want, struct ddp_err *err);

void whole_file_close(struct whole_file *f);

/* Write the path of DIR/NAME, or else of DIR/NAME.gz, to `path` (PATH_MAX bytes). Return DDP_ERR_IO if neither
 * exists. */
ddp_status whole_file_find(char *path, const char *dir, const char *name, struct ddp_err *err);

#endif
