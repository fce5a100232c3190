/* ckpt.h -- a checkpoint is written whole or not at all.
 *
 * Two forms. ddp_ckpt_save and _load: one file, written before the call returns. ddp_ckpts: a directory of
 * checkpoints, one per saved step, written by a thread of its own while training goes on; old ones are
 * removed, damaged ones passed over. In both a block is whole, never a rank's part, so a run may go on
 * with any number of ranks.
 *
 * The single file holds named blocks of bytes, each with its length and CRC-32, and a CRC-32 of the
 * header. It is written under a temporary name, flushed to the disk (fsync of file and directory) and
 * renamed, so a crash or a full disk leaves the previous one untouched. Only one rank writes; the caller
 * decides which. */
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
    void *data;       /* read on save, overwritten on load; yours */
    size_t bytes;
} ddp_ckpt_block;

/* Write `blocks` to `path`. DDP_ERR_IO names path, operation and errno; nothing is left of it then. */
DDP_API ddp_status ddp_ckpt_save(const char *path, const ddp_ckpt_block *blocks, size_t n,
                                 struct ddp_err *err);

/* Fill `blocks` from `path`: same names and sizes, else DDP_ERR_MISMATCH naming both; DDP_ERR_CORRUPT names path and
 * offset of the damage. On an error the blocks are unchanged. */
DDP_API ddp_status ddp_ckpt_load(const char *path, const ddp_ckpt_block *blocks, size_t n,
                                 struct ddp_err *err);

/* Write any other file the same way: under its name it is whole, or what it was before. */
DDP_API ddp_status ddp_file_replace(const char *path, const void *data, size_t len, struct ddp_err *err);

/* --- a directory of checkpoints -------------------------------------------------------------------
 *
 *     DIR/step-00001200/manifest.json     what is in it, with CRC-32C of every block and of itself (worker/checkpoint/manifest.h)
 *     DIR/step-00001200/tensors.bin       the blocks, one behind the other
 *
 *     one rank writes:   ddp_ckpts_open(&options, &ckpts, &err)
 *                        ddp_ckpts_save(ckpts, &point, blocks, n, &err)         now and then
 *                        ddp_ckpts_close(ckpts, &err)                           waits for the last one
 *     all ranks resume:  ddp_ckpts_resume(ckpts, world, blocks, n, &point, &found)
 *                        ddp_sampler_resume(sampler, point.epoch, point.samples)
 *
 * A checkpoint is made under a name that begins with a dot, flushed to the disk, and renamed. kill -9, a
 * full disk or a power cut leave the ones before as they were, and what is left over is removed by the
 * next save. One writer per directory. */

/* Where a run stands. name, meaning; whole numbers up to 10^15 */
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

/* `words`: one sentence, valid during the call. May be called from the writing thread. */
typedef void ddp_ckpt_warn(void *user, const char *words);

typedef struct ddp_ckpts_options {
    size_t size;         /* sizeof, set by the INIT macro */
    const char *dir;     /* copied; made by the first save when it is missing (not its parents) */
    unsigned keep_last;  /* so many of the newest stay, 0 = 3 */
    uint64_t keep_every; /* those of a step that is a multiple of this are never removed; 0 = none */
    size_t max_bytes;    /* largest copy to make, 0 = any; what is larger is written before save returns */
    uint32_t timeout_ms; /* how long a call waits for the writer, 0 = 600 000 */
    ddp_ckpt_warn
        *warn; /* receives warnings: checkpoints that are passed over or cannot be removed. NULL = none */
    void *user;
} ddp_ckpts_options;

#define DDP_CKPTS_OPTIONS_INIT                                  \
    {                                                           \
        sizeof(ddp_ckpts_options), NULL, 0, 0, 0, 0, NULL, NULL \
    }

/* Nothing is read, written or started yet. DDP_OK: *out is yours until ddp_ckpts_close. Calls on one
 * handle come from one thread at a time. */
DDP_API ddp_status ddp_ckpts_open(const ddp_ckpts_options *options, ddp_ckpts **out, struct ddp_err *err);

/* Copy the blocks, let the thread write them as step point->step, and return; then remove what need not be
 * kept. An earlier checkpoint of the same step is replaced. There is one copy at most: while the one
 * before is still being written, this waits for it. If that one failed, its error is returned and *this
 * one is not taken*: call again when you want to go on. */
DDP_API ddp_status ddp_ckpts_save(ddp_ckpts *ckpts, const ddp_ckpt_point *point, const ddp_ckpt_block *blocks,
                                  size_t n, struct ddp_err *err);

/* Until all that was saved is on the disk. The error of the last save, once; or DDP_ERR_TIMEOUT: it is
 * still being written. */
DDP_API ddp_status ddp_ckpts_wait(ddp_ckpts *ckpts, struct ddp_err *err);

/* Fill the blocks (in any order; all that are in the checkpoint) from the newest one that is whole; *found = 0: the
 * directory has no checkpoint, and blocks and *point are unchanged. Damaged ones are passed over with a warning,
 * nothing of them is removed; if all are, DDP_ERR_CORRUPT says what is wrong with the newest. DDP_ERR_MISMATCH: other
 * names or sizes, both named. DDP_ERR_UNSUPPORTED: written by a later version. DDP_ERR_IO: the system cannot read one
 * (its rights, the disk); no older one is taken for it. Every byte is checked before the first block is touched. */
DDP_API ddp_status ddp_ckpts_load(ddp_ckpts *ckpts, const ddp_ckpt_block *blocks, size_t n,
                                  ddp_ckpt_point *point, int *found, struct ddp_err *err);

/* Collective. Rank 0 loads (its `ckpts`; NULL on the others), all ranks get blocks, point and found from
 * it, or its error. Every rank passes blocks of the same sizes in the same order. The others wait while rank
 * 0 reads: that must fit in the step's time-out (ddp_options), as each broadcast of a block must. Words in
 * ddp_last_error(). */
DDP_API ddp_status ddp_ckpts_resume(ddp_ckpts *ckpts, ddp_group *group, const ddp_ckpt_block *blocks,
                                    size_t n, ddp_ckpt_point *point, int *found);

/* Wait, then free everything, also when the last save failed (its error is returned). DDP_ERR_TIMEOUT: the
 * disk hangs, and nothing is freed. NULL is allowed. */
DDP_API ddp_status ddp_ckpts_close(ddp_ckpts *ckpts, struct ddp_err *err);

#ifdef __cplusplus
}
#endif
#endif
