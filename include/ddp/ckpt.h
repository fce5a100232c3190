/* ckpt.h -- checkpoints that are written whole or not at all.
 *
 * There are two forms. ddp_ckpt_save and ddp_ckpt_load use one file, written before the call returns. ddp_ckpts is a
 * directory of checkpoints, one per saved step, which a separate thread writes while training continues; old
 * checkpoints are removed, and damaged checkpoints are skipped. In both forms a block is whole, never a rank's part,
 * so a run may continue with any number of ranks.
 *
 * The single file has named blocks of bytes, each with its length and CRC-32, and a CRC-32 of the header. The file is
 * written under a temporary name, flushed to the disk (fsync of file and directory) and renamed. So a crash or a full
 * disk leaves the previous file unchanged. Only one rank writes, and the caller chooses this rank. */
#ifndef DDP_CKPT_H
#define DDP_CKPT_H

#include "ddp/group.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_ckpt_block {
    const char *name; /* at most 63 bytes, unique in the file */
    void *data;       /* read on save, overwritten on load; owned by the caller */
    size_t bytes;
} ddp_ckpt_block;

/* Write `blocks` to `path`. DDP_ERR_IO names path, operation and errno; then no partial file is left. */
DDP_API ddp_status ddp_ckpt_save(const char *path, const ddp_ckpt_block *blocks, size_t n,
                                 struct ddp_err *err);

/* Fill `blocks` from `path`, with the same names and sizes. DDP_ERR_MISMATCH names both sides of a difference,
 * DDP_ERR_CORRUPT path and offset of the damage. After an error the blocks are unchanged. */
DDP_API ddp_status ddp_ckpt_load(const char *path, const ddp_ckpt_block *blocks, size_t n,
                                 struct ddp_err *err);

/* Write any other file in the same way: `path` has either the whole new content or the whole old content. */
DDP_API ddp_status ddp_file_replace(const char *path, const void *data, size_t len, struct ddp_err *err);

/* --- a directory of checkpoints -------------------------------------------------------------------
 *
 *     DIR/step-00001200/manifest.json     list of the blocks, with CRC-32C of each and of itself (worker/checkpoint/manifest.h)
 *     DIR/step-00001200/tensors.bin       the blocks, concatenated
 *
 *     one rank writes:   ddp_ckpts_open(&options, &ckpts, &err)
 *                        ddp_ckpts_save(ckpts, &point, blocks, n, &err)         now and then
 *                        ddp_ckpts_close(ckpts, &err)                           waits for the last save
 *     all ranks resume:  ddp_ckpts_resume(ckpts, world, blocks, n, &point, &found)
 *                        ddp_sampler_resume(sampler, point.epoch, point.samples)
 *
 * A checkpoint is made under a name that begins with a dot, flushed to the disk, and renamed. After kill -9, a full
 * disk or a power cut the earlier checkpoints are unchanged, and the next save removes the unfinished checkpoint.
 * Only one rank may write to a directory. */

/* The position of a run: name, meaning; whole numbers up to 10^15. */
#define DDP_CKPT_POINT_LIST(X)                                            \
    X(step, "updates done")                                               \
    X(epoch, "epochs done")                                               \
    X(samples, "samples of the next epoch that are done, over all ranks") \
    X(world_size, "ranks that wrote it; only for people")

typedef struct ddp_ckpt_point {
#define X(name, words) uint64_t name;
    DDP_CKPT_POINT_LIST(X)
#undef X
} ddp_ckpt_point;

typedef struct ddp_ckpts ddp_ckpts;

/* Receives a warning. `words` is one sentence, valid during the call. The writing thread may call this function. */
typedef void ddp_ckpt_warn(void *user, const char *words);

typedef struct ddp_ckpts_options {
    size_t size;         /* sizeof, set by the INIT macro */
    const char *dir;     /* copied; the first save creates it if it is missing (not its parents) */
    unsigned keep_last;  /* number of the newest checkpoints that are kept, 0 = 3 */
    uint64_t keep_every; /* checkpoints of multiples of this step are never removed; 0 = none */
    size_t max_bytes;    /* largest copy to make, 0 = any; larger checkpoints are written before save
                          * returns */
    uint32_t timeout_ms; /* how long a call waits for the writer, 0 = 600 000 */
    ddp_ckpt_warn
        *warn; /* receives warnings: checkpoints that are skipped or cannot be removed. NULL = none */
    void *user;
} ddp_ckpts_options;

#define DDP_CKPTS_OPTIONS_INIT                                  \
    {                                                           \
        sizeof(ddp_ckpts_options), NULL, 0, 0, 0, 0, NULL, NULL \
    }

/* Create a handle; nothing is read, written or started yet. After DDP_OK the caller owns *out until ddp_ckpts_close.
 * One thread at a time may use a handle. */
DDP_API ddp_status ddp_ckpts_open(const ddp_ckpts_options *options, ddp_ckpts **out, struct ddp_err *err);

/* Copy the blocks and return. The thread writes the copy as step point->step and then removes old checkpoints. An
 * earlier checkpoint of the same step is replaced. There is at most one copy: if the previous checkpoint is still
 * being written, this call waits. If the previous write has failed, this call returns the error of that write and
 * does *not save this checkpoint*; call again to continue. */
DDP_API ddp_status ddp_ckpts_save(ddp_ckpts *ckpts, const ddp_ckpt_point *point, const ddp_ckpt_block *blocks,
                                  size_t n, struct ddp_err *err);

/* Wait until all saved checkpoints are on the disk. Return the error of the last save, once. Return DDP_ERR_TIMEOUT
 * if the last checkpoint is still being written. */
DDP_API ddp_status ddp_ckpts_wait(ddp_ckpts *ckpts, struct ddp_err *err);

/* Fill the blocks from the newest undamaged checkpoint. The caller passes all its blocks, in any order. If the
 * directory has no checkpoint, *found becomes 0, and the blocks and *point are unchanged.
 *
 * Damaged checkpoints are skipped with a warning and kept. If all checkpoints are damaged, DDP_ERR_CORRUPT describes
 * the newest checkpoint. DDP_ERR_MISMATCH means that names or sizes differ, and the text has both sides.
 * DDP_ERR_UNSUPPORTED means that a later version wrote the checkpoint. DDP_ERR_IO means that the system cannot read a
 * checkpoint (permissions, the disk). After these errors no older checkpoint is used instead. Every byte is checked
 * before the first block is written. */
DDP_API ddp_status ddp_ckpts_load(ddp_ckpts *ckpts, const ddp_ckpt_block *blocks, size_t n,
                                  ddp_ckpt_point *point, int *found, struct ddp_err *err);

/* Load a checkpoint on rank 0 and send the blocks to all ranks; collective. Rank 0 passes `ckpts`, and the other
 * ranks pass NULL. All ranks get blocks, point and found from rank 0, or its error. Every rank passes blocks of the
 * same sizes in the same order. The other ranks wait while rank 0 reads. The time of this reading, and of each
 * broadcast of a block, must fit into the step timeout (ddp_options). ddp_last_error() returns the text of an
 * error. */
DDP_API ddp_status ddp_ckpts_resume(ddp_ckpts *ckpts, ddp_group *group, const ddp_ckpt_block *blocks,
                                    size_t n, ddp_ckpt_point *point, int *found);

/* Wait for the last save, then free everything, even if the last save failed. Return the error of that save.
 * DDP_ERR_TIMEOUT means that the disk hangs and that nothing was freed. NULL is allowed. */
DDP_API ddp_status ddp_ckpts_close(ddp_ckpts *ckpts, struct ddp_err *err);

#ifdef __cplusplus
}
#endif
#endif
