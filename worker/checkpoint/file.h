/* file.h -- shared by file.c, directory.c and manager.c: functions that transfer all bytes or fail, and the rules for
 * blocks. The two kinds of checkpoint, one file (file.c) or a directory (manager.c), accept the same blocks, because
 * both call ckpt_check_blocks. The caller owns all descriptors and buffers. */
#ifndef WORKER_CHECKPOINT_FILE_H
#define WORKER_CHECKPOINT_FILE_H

#include "ddp/ckpt.h"

#include <stddef.h>
#include <stdint.h>

/* Write all `len` bytes. Return 0, or -1 with errno. After a failure, some of the bytes may be in the file. */
int file_write(int fd, const void *data, size_t len);

/* Read `len` bytes from offset `at` of the file `path`. The caller has compared `len` with the file's size or header.
 * So a file that ends earlier is damaged, and the result is DDP_ERR_CORRUPT. */
ddp_status file_read(const char *path, int fd, uint64_t at, void *to, size_t len, struct ddp_err *err);

/* Check the rules for saving and loading: at least one block, names of 1 to 63 bytes, no two names equal. */
ddp_status ckpt_check_blocks(const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err);

/* Return the sum of the bytes of all blocks. */
size_t ckpt_total_bytes(const ddp_ckpt_block *blocks, size_t n);

#endif
