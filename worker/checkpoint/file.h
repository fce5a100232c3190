/* file.h -- shared by files and directories of checkpoints: calls that transfer all bytes, and the rules for blocks. */
#ifndef WORKER_CHECKPOINT_FILE_H
#define WORKER_CHECKPOINT_FILE_H

#include "ddp/ckpt.h"

#include <stddef.h>
#include <stdint.h>

/* Write all `len` bytes. Return 0, or -1 and errno; on a full disk a part is written first. */
int file_write(int fd, const void *data, size_t len);

/* Read `len` bytes from offset `at` of the file `path`. DDP_ERR_CORRUPT when it ends earlier: the caller has compared
 * `len` with the size in the file or its header. */
ddp_status file_read(const char *path, int fd, uint64_t at, void *to, size_t len, struct ddp_err *err);

/* The same rules for saving and loading: at least one block, names of 1 to 63 bytes, no two alike. */
ddp_status ckpt_check_blocks(const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err);

/* Return the sum of the bytes of all blocks. */
size_t ckpt_total_bytes(const ddp_ckpt_block *blocks, size_t n);

#endif
