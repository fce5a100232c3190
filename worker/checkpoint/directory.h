/* directory.h -- one checkpoint as a directory: writing, reading, listing and removing, without a thread. The functions
 * take no lock, because manager.c never calls them from two threads at the same time. Each directory has only one
 * writing process, so ckpt_dir_tidy may remove the leftovers of an interrupted run. */
#ifndef WORKER_CHECKPOINT_DIRECTORY_H
#define WORKER_CHECKPOINT_DIRECTORY_H

#include "ddp/ckpt.h"

/* A directory of checkpoints and the callback for warnings. All pointers are borrowed. */
struct ckpt_dir {
    const char *path;
    ddp_ckpt_warn *warn;
    void *user;
};

/* Pass the text of `err` to the callback for warnings. Without a callback, do nothing. */
void ckpt_dir_warn(const struct ckpt_dir *dir, const struct ddp_err *err);

/* List all steps, ascending. A missing directory has no steps. The caller frees *steps, even if *n is 0 or the call
 * fails. */
ddp_status ckpt_dir_list(const struct ckpt_dir *dir, uint64_t **steps, size_t *n, struct ddp_err *err);

/* Write the checkpoint of step point->step, whole or not at all. After DDP_OK the checkpoint is on the disk. */
ddp_status ckpt_dir_write(const struct ckpt_dir *dir, const ddp_ckpt_point *point,
                          const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err);

/* Read the checkpoint of step `step` into the blocks, which must have passed ckpt_check_blocks. Verify the whole
 * checkpoint before the first block changes. Return DDP_ERR_CORRUPT if the checkpoint is damaged, and DDP_ERR_MISMATCH
 * if the names or sizes in the checkpoint differ from those of `blocks`. */
ddp_status ckpt_dir_read(const struct ckpt_dir *dir, uint64_t step, const ddp_ckpt_block *blocks, size_t n,
                         ddp_ckpt_point *point, struct ddp_err *err);

/* Remove leftovers of interrupted runs, then old checkpoints. Of the checkpoints up to `step`, keep the newest (`last`
 * is their number) and each checkpoint whose step is a multiple of `every`. Keep all checkpoints after `step`. These
 * later checkpoints may be damaged, or the run may have gone back to an earlier step, so the user decides whether to
 * remove them. Failures are only warnings. */
void ckpt_dir_tidy(const struct ckpt_dir *dir, uint64_t step, unsigned last, uint64_t every);

#endif
