/* batch_source.h -- the samples of this worker's shards as rows for the model. libddp's loader reads the samples ahead.
 * If a shard has too few samples, a sample is repeated as in torch, with weight 0, because padding must not change
 * gradient or loss. */
#ifndef WORKER_TRAIN_BATCH_SOURCE_H
#define WORKER_TRAIN_BATCH_SOURCE_H

#include "ddp/error.h"
#include "ddp/loader.h"
#include "train/dataset.h"
#include "train/models/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a step is divided among the workers. These functions are pure arithmetic.
 *
 * The gradient of a step is the mean over the distinct samples of the global batch, for any number of workers. It
 * should also be equal bit by bit for 1, 2 and 4 workers. So a batch is divided into shards, whose number depends only
 * on the batch: 4 if 4 divides the batch, otherwise 2 or 1. Shard s has the samples of rank s in torch's
 * DistributedSampler. A worker computes its shards one by one, always with the same matrix shapes, and adds their
 * gradients as a binary tree. The all-reduce continues the tree over the workers.
 *
 * Without shards, rounding would depend on the number of workers. Rounding can turn a gradient of 1e-9 into -1e-9. Adam
 * turns these two values into full steps in opposite directions, so two runs would soon differ completely.
 *
 *     1 worker     ((s0+s1)+(s2+s3))          all on one worker
 *     2 workers    (s0+s1) | (s2+s3)          the last + is the all-reduce
 *     4 workers    s0 | s1 | s2 | s3          two levels of + are the all-reduce
 *
 * In these cases the number of shards is different:
 *
 *   - Three workers, or more than four: each worker has one shard. The results then differ by rounding from the
 *     results of other numbers of workers.
 *   - --sync_bn: each worker has one shard, because batch normalization needs all samples of the worker at once.
 *     Without --sync_bn it uses the samples of a shard.
 *   - A GPU: each worker has one shard.
 *   - --accumulate K: each worker has K shards, so that it has fewer samples in memory.
 *   - --determinism world: all workers together have 8 shards, or 8 K with --accumulate K, also on a GPU. This makes a
 *     single worker slower by a fifth. */

enum { SPLIT_SHARDS = 4, SPLIT_WORLD_SHARDS = 8 };

/* The facts that determine how a batch is divided into shards. */
struct split_request {
    uint64_t samples;             /* number of samples in the training set */
    uint64_t batch, global_batch; /* --batch and --global_batch; one of the two is 0 */
    uint64_t accumulate;          /* minimum number of shards per worker in a step, at least 1 */
    bool any_world;               /* --determinism world: equal bits for 1, 2, 4 and 8 workers */
    bool together;                /* true with --sync_bn or a GPU: each worker has only `accumulate` shards */
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

/* Divide the batch. Return DDP_ERR_ARG if the batch cannot be divided evenly. */
ddp_status split_make(struct split *split, const struct split_request *request, int world_size, int rank,
                      struct ddp_err *err);

/* Return the number of distinct samples in step `step`: the global batch, or fewer in the last step of an epoch. */
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
    ddp_loader *loader; /* in training, returns a batch for each of this worker's shards in turn */
    float sum;          /* sum of the weights of all targets in a step, over all workers */
    float *weight;      /* weights of the rows that were loaded last */
};

/* Initialize *source. Do not move *source before batch_source_free, because the loader's threads use its address. */
ddp_status batch_source_init(struct batch_source *source, const struct dataset *set,
                             const struct split *split, const struct batch_source_options *options,
                             struct ddp_err *err);

/* Initialize *source for a test. Each sample is used once, by one of the ranks, in order and without padding. A batch
 * has `rows` rows. */
ddp_status batch_source_init_test(struct batch_source *source, const struct dataset *set, int world_size,
                                  int rank, size_t rows, struct ddp_err *err);

/* Free the source. Return false if a thread is still reading a sample. Then the caller must not free the set. */
bool batch_source_free(struct batch_source *source);

/* Begin epoch `epoch` at step `step`. */
ddp_status batch_source_start_epoch(struct batch_source *source, uint64_t epoch, uint64_t step,
                                    struct ddp_err *err);

/* Load the rows of this worker's next shard, which is a shard of step `step`. `batch` borrows the rows until the next
 * call. The weights of all targets in a step, over all workers, add up to source->sum. batch_source_init sets
 * source->sum to the world size, and the trainer sets it to optimizer_weight(). Errors name file, offset and value. */
ddp_status batch_source_next(struct batch_source *source, uint64_t step, struct model_batch *batch,
                             struct ddp_err *err);

/* Load the next rows of a test, each with weight 1. After the last row the batch has no rows. */
ddp_status batch_source_next_test(struct batch_source *source, struct model_batch *batch,
                                  struct ddp_err *err);

#endif
