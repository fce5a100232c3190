/* files.h -- functions that check, read and find files, for train and make-data. A function that gets a descriptor or
 * an open file has no path, so its caller adds the path to the error. */
#ifndef WORKER_TRAIN_FILES_H
#define WORKER_TRAIN_FILES_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <zlib.h>

/* The functions with `option` report that the file of this option cannot be opened in one form: "--metrics FILE: cannot
 * open: REASON; REMEDY". */

/* Prepend `option` to an error that begins with the path of a file of this option, and return err->code. */
ddp_status files_wrap_option(const char *option, struct ddp_err *err);

/* Open `path` in a mode of fopen. Return NULL after a failure. */
FILE *files_open(const char *option, const char *path, const char *mode, struct ddp_err *err);

/* Open an existing file for reading. Return -1 after a failure; the error begins with the path. */
int files_open_input(const char *path, struct ddp_err *err);

/* Return the error of a file that cannot be opened or written. The reason is errno. */
ddp_status files_not_opened(const char *path, const char *remedy, struct ddp_err *err);
ddp_status files_not_written(const char *option, const char *path, struct ddp_err *err);

/* Create `path` and its missing parents, and check that `path` is writable. */
ddp_status files_make_dir(const char *option, const char *path, struct ddp_err *err);

/* Check at the start that a file can be written to `path` at the end of the run. */
ddp_status files_may_write(const char *option, const char *path, struct ddp_err *err);

/* Flush stdout. Return DDP_ERR_IO if this or an earlier write to stdout has failed. */
ddp_status files_flush_stdout(struct ddp_err *err);

/* Set *bytes to the size of an open file. Return DDP_ERR_ARG for a pipe. */
ddp_status files_size(int fd, uint64_t *bytes, struct ddp_err *err);

/* Read `len` bytes at `offset`, or fewer at the end of the file. Set *got to the number of bytes read. */
ddp_status files_read(int fd, uint8_t *to, size_t len, uint64_t offset, size_t *got, struct ddp_err *err);

/* Check that `bytes`, the size of a file, equals `asked`, the size that the file's header requires. If the file is
 * longer, the error text is "offset ASKED: END, but the file is longer", with the values of `asked` and `end`. */
ddp_status files_check_length(uint64_t bytes, uint64_t asked, const char *end, struct ddp_err *err);

/* Write DIR/NAME and `ending`, such as ".gz", to `to` (PATH_MAX bytes). */
ddp_status files_join(char *to, const char *dir, const char *name, const char *ending, struct ddp_err *err);

/* --- whole file ------------------------------------------------------------------------------------------- */

/* All bytes of a file, plain or compressed with gzip. Memory is allocated step by step, only for requested bytes and
 * while the file has more data. So neither a wrong header nor a small gzip file that expands to gigabytes can exhaust
 * the memory. */

struct whole_file {
    gzFile file;
    uint8_t *bytes; /* `len` bytes; the caller must free them, also after whole_file_close */
    size_t len, capacity;
};

ddp_status whole_file_open(struct whole_file *f, const char *path, struct ddp_err *err);

/* Read until `bytes` has `want` bytes, or the file ends. */
ddp_status whole_file_fill(struct whole_file *f, size_t want, struct ddp_err *err);

void whole_file_close(struct whole_file *f);

/* Prepend `path` to the error about this file, and return err->code. After DDP_ERR_CORRUPT, append a remedy, which is
 * the same for all damaged files. */
ddp_status files_wrap(const char *path, struct ddp_err *err);

/* Write to `path` the path of DIR/NAME, or of DIR/NAME.gz if only that file exists. `path` has room for PATH_MAX bytes.
 * Return DDP_ERR_IO if neither file exists (`errno` is then ENOENT), or if the directory cannot be searched (`errno` is
 * the reason). */
ddp_status whole_file_find(char *path, const char *dir, const char *name, struct ddp_err *err);

#endif
