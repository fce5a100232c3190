/* whole_file.h -- all bytes of a file, plain or packed with gzip; offsets count unpacked bytes.
 *
 * Memory grows with bytes that have really arrived: a header that promises gigabytes, or a gzip stream that unpacks to
 * them, costs nothing before somebody asks for as much. */
#ifndef TRAIN_DATA_WHOLE_FILE_H
#define TRAIN_DATA_WHOLE_FILE_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

struct whole_file {
    gzFile file;
    uint8_t *bytes; /* `len` of them; yours, to free(), after whole_file_close */
    size_t len, capacity;
};

ddp_status whole_file_open(struct whole_file *f, const char *path, struct ddp_err *err);

/* Read until `want` bytes are there or the file ends. */
ddp_status whole_file_fill(struct whole_file *f, size_t want, struct ddp_err *err);

void whole_file_close(struct whole_file *f);

/* DIR/NAME, else DIR/NAME.gz: which of them there is, into `path` with room for PATH_MAX bytes. DDP_ERR_IO: neither. */
ddp_status whole_file_find(char *path, const char *dir, const char *name, struct ddp_err *err);

#endif
