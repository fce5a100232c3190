/* batch_source.h -- the samples of this worker's shards as rows for the model. As in torch, a shard with too few
 * samples repeats a sample, but with weight 0, because padding must not change gradient or loss. */
#ifndef WORKER_TRAIN_BATCH_SOURCE_H
#define WORKER_TRAIN_BATCH_SOURCE_H

#include "ddp/error.h"
#include "ddp/loader.h"
#include "train/dataset.h"
#include "train/models/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a step is divided among the workers. Pure arithmetic. The gradient of a step is the mean over the distinct
 * samples of the global batch, equal bit by bit for 1, 2 and 4 workers. So a batch is divided into shards, whose
 * number depends only on the batch: 4 if 4 divides the batch, otherwise 2 or 1. A worker adds the gradients of its
 * shards as a binary tree, which the all-reduce continues:
 *
 *     1 worker     ((s0+s1)+(s2+s3))          all on one worker
 *     2 workers    (s0+s1) | (s2+s3)          the last + is the all-reduce
 *     4 workers    s0 | s1 | s2 | s3          two levels of + are the all-reduce
 *
 * Without shards, rounding could turn a gradient of 1e-9 into -1e-9, and Adam makes full steps of both.
 *
 * In these cases the number of shards is different:
 *
 *   - three workers, or more than four: one for each worker; results differ by rounding
 *   - --sync_bn: one for each worker, because batch normalization needs all samples of the worker at once
 *   - a GPU: one for each worker
 *   - --accumulate K: K for each worker, so that it has fewer samples in memory
 *   - --determinism world: 8 for all workers together, or 8 K with --accumulate K, also on a GPU; a single worker is
 *     slower by a fifth */

enum { SPLIT_SHARDS = 4, SPLIT_WORLD_SHARDS = 8 };

/* The facts that determine how a batch is divided into shards. */
struct split_request {
    uint64_t samples;             /* number of samples in the training set */
    uint64_t batch, global_batch; /* --batch and --global_batch; one is 0 */
    uint64_t accumulate;          /* minimum shards per worker in a step; 0 works like 1 */
    bool any_world;               /* --determinism world: equal bits for 1, 2, 4 and 8 workers */
    bool together;                /* --sync_bn or a GPU: only `accumulate` shards per worker */
};

struct split {
    uint64_t samples; /* number of samples in the training set */
    uint64_t global_batch;
    int world_size;
    int shards;      /* number of shards of a global batch */
    int shards_here; /* number of shards of one worker: shards / world_size */
    int first_shard; /* first shard of this worker */
    uint64_t steps;  /* number of steps of an epoch */
};

/* Divide the batch. Return DDP_ERR_ARG if this is impossible. */
ddp_status split_make(struct split *split, const struct split_request *request, int world_size, int rank,
                      struct ddp_err *err);

/* Return the number of distinct samples in step `step`. */
uint64_t split_samples(const struct split *split, uint64_t step);

/* Return the number of rows of each shard in step `step`, padding included. */
size_t split_rows(const struct split *split, uint64_t step);

struct batch_source_options {
    uint64_t seed;
    int threads;  /* number of threads that read ahead; may be 0 */
    bool augment; /* true if pictures are augmented (see dataset_read) */
};

struct batch_source {
    const struct dataset *set; /* borrowed, like `split` */
    const struct split *split;
    bool augment;
    ddp_loader *loader; /* returns a batch for each of this worker's shards in turn */
    float sum;          /* sum of the weights of all targets in a step, over all workers */
    float *weight;      /* weights of the rows that were loaded last */
};

/* Initialize *source, which must not move before batch_source_free. */
ddp_status batch_source_init(struct batch_source *source, const struct dataset *set,
                             const struct split *split, const struct batch_source_options *options,
                             struct ddp_err *err);

/* Initialize *source for a test, in batches of `rows` rows. Each sample is used once, by one of the ranks, in order and
 * without padding. */
ddp_status batch_source_init_test(struct batch_source *source, const struct dataset *set, int world_size,
                                  int rank, size_t rows, struct ddp_err *err);

/* Free the source. If a thread is still reading, return false; then the caller must not free the set. */
bool batch_source_free(struct batch_source *source);

/* Begin epoch `epoch` at step `step`. */
ddp_status batch_source_start_epoch(struct batch_source *source, uint64_t epoch, uint64_t step,
                                    struct ddp_err *err);

/* Load the rows of this worker's shard `shard` in step `step`, in order; `batch` borrows them until the next call.
 * The weights of all targets in a step, over all workers, add up to source->sum. Errors name file, offset and
 * value. */
ddp_status batch_source_next(struct batch_source *source, uint64_t step, int shard, struct model_batch *batch,
                             struct ddp_err *err);

/* Load the next rows of a test, each with weight 1, or no rows at the end. */
ddp_status batch_source_next_test(struct batch_source *source, struct model_batch *batch,
                                  struct ddp_err *err);

#endif
