/* ckpt.h -- checkpoints that are written whole or not at all.
 *
 * There are two forms:
 *   - A file, written by ddp_ckpt_save before the call returns, and read by ddp_ckpt_load.
 *   - A directory of checkpoints (ddp_ckpts), one for each saved step, written by a thread while training continues.
 *     Old checkpoints are removed, and damaged checkpoints are skipped.
 *
 * In both forms the blocks contain the whole model, not only the part of one rank. So a run may continue with another
 * number of ranks.
 *
 * The file has named blocks of bytes, each with its length and CRC-32, and a header with its own CRC-32. The file is
 * written under a temporary name, flushed to the disk and renamed. So a crash or a full disk leaves the previous file
 * unchanged. The caller chooses one rank that writes. */
#ifndef DDP_CKPT_H
#define DDP_CKPT_H

#include "ddp/group.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_ckpt_block {
    const char *name; /* 1 to 63 bytes, unique in the file */
    void *data;       /* read by a save, written by a load; owned by the caller */
    size_t bytes;
} ddp_ckpt_block;

/* Write `n` blocks (1 to 4096) to `path`. DDP_ERR_IO names the path, the operation and errno; no partial file is left.
 * There is no such guarantee for devices, pipes, links without a target, and a file to which stdout or stderr is
 * redirected. Such targets are written directly. */
DDP_API ddp_status ddp_ckpt_save(const char *path, const ddp_ckpt_block *blocks, size_t n,
                                 struct ddp_err *err);

/* Fill `blocks` from the file `path`. The names, sizes and order of `blocks` must equal those in the file. If a name or
 * a size differs, the text of DDP_ERR_MISMATCH has both values. DDP_ERR_CORRUPT names the path and the offset of the
 * damage. After an error, the blocks are unchanged. */
DDP_API ddp_status ddp_ckpt_load(const char *path, const ddp_ckpt_block *blocks, size_t n,
                                 struct ddp_err *err);

/* Write `len` bytes to `path`. After a crash, `path` has either its old content or all of the new content. The
 * exceptions are the same as for ddp_ckpt_save. */
DDP_API ddp_status ddp_file_replace(const char *path, const void *data, size_t len, struct ddp_err *err);

/* --- a directory of checkpoints -------------------------------------------------------------------
 *
 *     DIR/step-00001200/manifest.json     list of the blocks with their CRC-32C (worker/checkpoint/manifest.h)
 *     DIR/step-00001200/tensors.bin       the blocks, concatenated
 *
 *     one rank writes:   ddp_ckpts_open(&options, &ckpts, &err)
 *                        ddp_ckpts_save(ckpts, &point, blocks, n, &err)         now and then
 *                        ddp_ckpts_close(ckpts, &err)                           waits for the last save
 *     all ranks resume:  ddp_ckpts_resume(ckpts, world, blocks, n, &point, &found)
 *                        ddp_sampler_resume(sampler, point.epoch, point.samples)
 *
 * A checkpoint is written under a name that begins with a dot, flushed to the disk, and renamed. The next save removes
 * an unfinished checkpoint. Only one rank may write to a directory. */

/* The fields of ddp_ckpt_point, each as X(name, meaning). Together they are the position of a training run. Values are
 * whole numbers up to 10^15. */
#define DDP_CKPT_POINT_LIST(X)                                                           \
    X(step, "updates done")                                                              \
    X(epoch, "epochs done")                                                              \
    X(samples, "samples that all ranks together have processed in the unfinished epoch") \
    X(world_size, "world size of the run that wrote the checkpoint (information only)")

typedef struct ddp_ckpt_point {
#define X(name, words) uint64_t name;
    DDP_CKPT_POINT_LIST(X)
#undef X
} ddp_ckpt_point;

typedef struct ddp_ckpts ddp_ckpts;

/* Receive a warning, for example about a damaged checkpoint. `words` is one sentence, and is valid only during the
 * call. The library may call this function on the caller's thread or on the thread that writes checkpoints. */
typedef void ddp_ckpt_warn(void *user, const char *words);

typedef struct ddp_ckpts_options {
    size_t size;         /* sizeof(ddp_ckpts_options), set by the INIT macro */
    const char *dir;     /* copied by ddp_ckpts_open; the first save creates the directory, not its parents */
    unsigned keep_last;  /* number of newest checkpoints to keep; 0 means 3 */
    uint64_t keep_every; /* keep each checkpoint whose step is a multiple of this number; 0 means none */
    size_t max_bytes;    /* largest size of the copy in bytes; if the blocks are larger, ddp_ckpts_save makes
                          * no copy and returns only after the checkpoint is on the disk; 0 means no limit */
    uint32_t timeout_ms; /* how long a call waits for the writing thread; 0 means 600 000 ms */
    ddp_ckpt_warn *warn; /* called for checkpoints that are skipped or cannot be removed; may be NULL */
    void *user;
} ddp_ckpts_options;

#define DDP_CKPTS_OPTIONS_INIT                                  \
    {                                                           \
        sizeof(ddp_ckpts_options), NULL, 0, 0, 0, 0, NULL, NULL \
    }

/* Create a handle, without reading or writing anything. After DDP_OK the caller owns *out until ddp_ckpts_close. Only
 * one thread at a time may use a handle. */
DDP_API ddp_status ddp_ckpts_open(const ddp_ckpts_options *options, ddp_ckpts **out, struct ddp_err *err);

/* Wait until the previous checkpoint is written, copy the blocks, and return. A thread writes the copy as the
 * checkpoint of point->step, and then removes old checkpoints. The copy replaces an earlier checkpoint of this step. If
 * the write of the previous checkpoint has failed and no call has returned its error yet, return this error and save
 * nothing. The program must then call the function again to save the new checkpoint. */
DDP_API ddp_status ddp_ckpts_save(ddp_ckpts *ckpts, const ddp_ckpt_point *point, const ddp_ckpt_block *blocks,
                                  size_t n, struct ddp_err *err);

/* Wait until all saved checkpoints are on the disk. Return the error of the last save. Later calls do not return this
 * error again. Return DDP_ERR_TIMEOUT if the last save still runs after `timeout_ms` of the options. */
DDP_API ddp_status ddp_ckpts_wait(ddp_ckpts *ckpts, struct ddp_err *err);

/* Fill the blocks from the newest undamaged checkpoint. The caller passes all blocks of the checkpoint, in any order.
 * Every byte is checked before the call changes the first block. If the directory has no checkpoint, *found becomes 0,
 * and blocks and *point are unchanged.
 *
 * Damaged checkpoints are skipped with a warning, but not removed. If all checkpoints are damaged, DDP_ERR_CORRUPT
 * describes the newest checkpoint. After any of the following errors, the call does not try an older checkpoint:
 *
 *   - DDP_ERR_MISMATCH: names or sizes differ; the text has both values.
 *   - DDP_ERR_UNSUPPORTED: a later version of libddp wrote the checkpoint.
 *   - DDP_ERR_IO: the checkpoint cannot be read (permissions, disk). */
DDP_API ddp_status ddp_ckpts_load(ddp_ckpts *ckpts, const ddp_ckpt_block *blocks, size_t n,
                                  ddp_ckpt_point *point, int *found, struct ddp_err *err);

/* Load a checkpoint on rank 0 and send its blocks to all ranks; collective. Rank 0 passes `ckpts`, and the other ranks
 * pass NULL. Every rank passes blocks of the same sizes in the same order. All ranks get rank 0's blocks, *point and
 * *found, or rank 0's error, whose text ddp_last_error() returns.
 *
 * The other ranks wait while rank 0 reads. So the step timeout (ddp_options) must be longer than the time to read all
 * blocks, and longer than the time to send one block. */
DDP_API ddp_status ddp_ckpts_resume(ddp_ckpts *ckpts, ddp_group *group, const ddp_ckpt_block *blocks,
                                    size_t n, ddp_ckpt_point *point, int *found);

/* Wait for the last save and free everything. Return the error of the last save. DDP_ERR_TIMEOUT means that the disk
 * hangs and that nothing was freed. NULL is allowed. */
DDP_API ddp_status ddp_ckpts_close(ddp_ckpts *ckpts, struct ddp_err *err);

#ifdef __cplusplus
}
#endif
#endif
