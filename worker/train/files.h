/* files.h -- small things about files that both programs of this directory need. */
#ifndef WORKER_TRAIN_FILES_H
#define WORKER_TRAIN_FILES_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

/* Make `path` and its parents where they are missing; fails (naming the directory) when it cannot be written
 * to. */
ddp_status files_make_dir(const char *path, struct ddp_err *err);

/* Could a file be written under this name at the end of a long run? Fails (naming the directory) when it is clear that it
 * could not. */
ddp_status files_may_write(const char *path, struct ddp_err *err);

/* Of an open file. A pipe, which has no size and cannot be read twice, is DDP_ERR_ARG. */
ddp_status files_size(int fd, uint64_t *bytes, struct ddp_err *err);

/* `len` bytes from `offset` on, or what there is of them before the file ends: *got. */
ddp_status files_read(int fd, uint8_t *to, size_t len, uint64_t offset, size_t *got, struct ddp_err *err);

/* Reject a file whose `bytes` are not those that its header asks for. `end` begins the error of a longer one. */
ddp_status files_check_length(uint64_t bytes, uint64_t asked, const char *end, struct ddp_err *err);

/* 32 bits, little-endian. */
static inline uint32_t files_get_u32(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static inline void files_put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

/* "DIR/NAME" into `to`, which has room for PATH_MAX bytes. */
ddp_status files_join(char *to, const char *dir, const char *name, struct ddp_err *err);

/* --- whole file ------------------------------------------------------------------------------------------- */

/* All bytes of a file, plain or packed with gzip; offsets count unpacked bytes.
 *
 * Memory grows with bytes that have really arrived: a header that promises gigabytes, or a gzip stream that
 * unpacks to them, costs nothing before a caller requests as much. */

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
