/* feed.h -- the samples of this worker's shards as rows for the model. libddp's loader reads the samples ahead.
 *
 * If a shard is short, torch repeats a sample as padding. Here the repeated sample has weight 0, so the repetition
 * changes neither gradient nor loss. (torch counts such samples twice.) */
#ifndef WORKER_TRAIN_FEED_H
#define WORKER_TRAIN_FEED_H

#include "ddp/error.h"
#include "ddp/loader.h"
#include "train/dataset.h"
#include "train/models/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a step is divided among the workers. Pure arithmetic.
 *
 * The gradient of a step is the mean over the distinct samples of the global batch, for any number of workers. The
 * same bits for 1, 2 and 4 workers need more: a batch is divided into `shards`, whose number depends only on the
 * batch: 4 if 4 divides it, otherwise 2 or 1. Shard s has the samples that torch's DistributedSampler gives to rank s
 * of `shards`. A worker computes its shards one by one, always with the same matrix shapes, and adds them as a binary
 * tree. The all-reduce continues with the same tree over the workers.
 *
 * Without shards, rounding would differ. Adam turns a gradient of 1e-9 or -1e-9 into a full step in one or the other
 * direction, so after ten steps two runs would have nothing in common.
 *
 *     1 worker     ((s0+s1)+(s2+s3))          all on one worker
 *     2 workers    (s0+s1) | (s2+s3)          the last + is the all-reduce
 *     4 workers    s0 | s1 | s2 | s3          two levels of + are the all-reduce
 *
 * With three workers, or more than four, each worker has one shard. Results are correct, but equal to the results
 * with other numbers of workers only up to rounding. Eight shards would include eight workers, but a single worker
 * would be slower by a fifth; --determinism world uses eight. Batch normalization over all workers (--sync_bn) needs
 * all samples of a worker at once, so each worker has one shard. Without --sync_bn, it uses the samples of a shard.
 * With --accumulate K a shard is divided into K parts, so that a worker holds fewer samples at a time. */

enum { SPLIT_SHARDS = 4, SPLIT_WORLD_SHARDS = 8 };

/* The set, the batch, and how the batch is divided. */
struct split_request {
    uint64_t samples;             /* number of samples in the training set */
    uint64_t batch, global_batch; /* --batch and --global_batch; one of the two is 0 */
    uint64_t accumulate;          /* minimum number of parts that a worker computes in a step; 0 = 1 */
    bool any_world;               /* the same bits for 1, 2, 4 and 8 workers */
    bool together; /* one shard for each worker (and part), because samples depend on each other */
};

struct split {
    uint64_t samples; /* number of samples in the training set */
    uint64_t global_batch;
    int world_size;
    int shards; /* number of pieces of a global batch that are computed one by one, parts of shards included */
    int shards_here; /* shards of one worker: shards / world_size */
    int first_shard; /* first shard of this worker */
    uint64_t steps;  /* number of steps of an epoch */
};

/* Divide the batch. Return DDP_ERR_ARG if the batch cannot be divided evenly. */
ddp_status split_make(struct split *split, const struct split_request *request, int world_size, int rank,
                      struct ddp_err *err);

/* Return the number of distinct samples of step `step`: the global batch, or fewer in the last step. */
uint64_t split_samples(const struct split *split, uint64_t step);

/* Return the rows of a shard in step `step`, with padding. All shards have the same number. */
size_t split_rows(const struct split *split, uint64_t step);

struct feed_options {
    uint64_t seed;
    int threads;  /* threads that read ahead; 0 = none */
    bool augment; /* augment pictures, see dataset_read */
};

struct feed {
    const struct dataset *set; /* borrowed, like the split */
    const struct split *split;
    bool augment;
    ddp_loader *loader; /* one stream for each of this worker's shards, in order */
    float sum;          /* sum of the weights of all samples of a step, all workers */
    float *weight;      /* weights of the rows that were loaded last */
};

/* Initialize *feed, which must not move before feed_free, because the loader's threads use it. */
ddp_status feed_init(struct feed *feed, const struct dataset *set, const struct split *split,
                     const struct feed_options *options, struct ddp_err *err);

/* Initialize for a test set: each sample once over all ranks, in order, without padding, `rows` at a time. */
ddp_status feed_init_test(struct feed *feed, const struct dataset *set, int world_size, int rank, size_t rows,
                          struct ddp_err *err);

/* Free the feed. Return false if a thread is still reading a sample; then the set must not be freed. */
bool feed_free(struct feed *feed);

/* Begin epoch `epoch` after its first `step` steps. */
ddp_status feed_start_epoch(struct feed *feed, uint64_t epoch, uint64_t step, struct ddp_err *err);

/* Load the rows of shard `first_shard + shard` in step `step`; `batch` borrows them until the next call. Steps and
 * shards must be requested in order. The weights of all targets of all workers add up to feed->sum, which feed_init
 * sets to the number of workers. The reducer divides by the number of workers, so the result is the mean over the
 * distinct samples. Errors name file, offset and value. */
ddp_status feed_take(struct feed *feed, uint64_t step, int shard, struct model_batch *batch,
                     struct ddp_err *err);

/* Load the next rows for a test, with weights of 1. At the end the batch has no rows. */
ddp_status feed_take_test(struct feed *feed, struct model_batch *batch, struct ddp_err *err);

#endif
