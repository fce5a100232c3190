/* directory.h -- one checkpoint as a directory: writing, reading, listing and removing, without a thread. */
#ifndef WORKER_CHECKPOINT_DIRECTORY_H
#define WORKER_CHECKPOINT_DIRECTORY_H

#include "ddp/ckpt.h"

/* The path, and the callback for warnings; all borrowed. */
struct ckpt_dir {
    const char *path;
    ddp_ckpt_warn *warn;
    void *user;
};

void ckpt_dir_warn(const struct ckpt_dir *dir, const struct ddp_err *err);

/* List all steps, ascending, in memory that the caller frees (also if the list is empty). A missing directory has no
 * steps. */
ddp_status ckpt_dir_list(const struct ckpt_dir *dir, uint64_t **steps, size_t *n, struct ddp_err *err);

/* Write step point->step, whole or not at all. */
ddp_status ckpt_dir_write(const struct ckpt_dir *dir, const ddp_ckpt_point *point,
                          const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err);

/* Read step `step` into the blocks, which must be valid: everything is verified before the first of them changes. */
ddp_status ckpt_dir_read(const struct ckpt_dir *dir, uint64_t step, const ddp_ckpt_block *blocks, size_t n,
                         ddp_ckpt_point *point, struct ddp_err *err);

/* Remove leftovers of interrupted work, and of the checkpoints up to `step` all except the newest `last` and the
 * multiples of `every`. Later ones belong to an abandoned run or are damaged, and are kept. Failures are warnings. */
void ckpt_dir_tidy(const struct ckpt_dir *dir, uint64_t step, unsigned last, uint64_t every);

#endif
