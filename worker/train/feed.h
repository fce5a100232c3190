/* feed.h -- the samples of this worker's shards, as rows for the model; libddp's loader reads them ahead.
 *
 * A sample that torch's padding repeats takes its row, so that all shards stay equally long, but with weight
 * 0: it changes neither gradient nor loss. (torch counts such samples twice.) */
#ifndef WORKER_TRAIN_FEED_H
#define WORKER_TRAIN_FEED_H

#include "ddp/error.h"
#include "ddp/loader.h"
#include "train/dataset.h"
#include "train/models/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The division of a step among the workers. Pure arithmetic.
 *
 * The gradient of a step is the mean over the distinct samples of the global batch, whatever the number of
 * workers. To make it the same *bits* for 1, 2 and 4 workers, a batch is not cut into as many pieces as there
 * are workers but into `shards`, a number that depends on the batch alone: 4 if 4 divides it, else 2 or 1.
 * Shard s is what torch's DistributedSampler deals to rank s of `shards`. A worker computes its shards one by
 * one, always the same matrix shapes, and adds them as a binary tree; the all-reduce goes on with the same
 * tree over the workers. Without this, rounding differs, Adam turns a gradient of 1e-9 or -1e-9 into a full
 * step to the left or to the right, and two runs are strangers after ten steps.
 *
 *     1 worker     ((s0+s1)+(s2+s3))          all in one place
 *     2 workers    (s0+s1) | (s2+s3)          the last + is the all-reduce
 *     4 workers    s0 | s1 | s2 | s3          two levels of + are
 *
 * Three workers, or more than four, get one shard each: right, but equal to other numbers of workers only up
 * to rounding. Eight shards would include eight workers, but cost a single worker a fifth of its speed;
 * --determinism world does that. Batch normalisation over all workers (--sync_bn) needs a worker's samples at
 * once, so there is one shard each; without it, it is over the samples of a shard. With --accumulate K a
 * shard is cut into K parts, so that a worker holds fewer samples at a time. */

enum { SPLIT_SHARDS = 4, SPLIT_WORLD_SHARDS = 8 };

/* The set and the batch to divide. */
struct split_request {
    uint64_t samples;             /* of the training set */
    uint64_t batch, global_batch; /* per worker and part, or of all together; the other is 0 */
    uint64_t accumulate;          /* parts that a worker goes through in a step, at least; 0 = 1 */
    bool any_world;               /* the same bits for 1, 2, 4 and 8 workers */
    bool together;                /* one shard for each worker (and part): samples look at each other */
};

struct split {
    uint64_t samples; /* of the training set */
    uint64_t global_batch;
    int world_size;
    int shards;      /* of a global batch, parts of shards included: so many pieces are computed one by one */
    int shards_here; /* of one worker: shards / world_size */
    int first_shard; /* of this worker */
    uint64_t steps;  /* of an epoch */
};

/* DDP_ERR_ARG when it cannot be shared evenly. */
ddp_status split_make(struct split *split, const struct split_request *request, int world_size, int rank,
                      struct ddp_err *err);

/* Distinct samples of step `step`: the global batch, less in the last step. */
uint64_t split_samples(const struct split *split, uint64_t step);

/* Rows of a shard in step `step`, padding included. The same for all shards. */
size_t split_rows(const struct split *split, uint64_t step);

struct feed_options {
    uint64_t seed;
    int threads;  /* that read ahead; 0 = none */
    bool augment; /* pictures may look different each time, see dataset_read */
};

struct feed {
    const struct dataset *set; /* borrowed, as is the split */
    const struct split *split;
    bool augment;
    ddp_loader *loader; /* one stream for each of shards first_shard, first_shard + 1, ... */
    float sum;          /* of the weights of all samples of a step, over all workers */
    float *weight;      /* of the rows taken last */
};

/* The loader's threads look at *feed until feed_free: it stays where it is. */
ddp_status feed_init(struct feed *feed, const struct dataset *set, const struct split *split,
                     const struct feed_options *options, struct ddp_err *err);

/* Deal out a test set: each sample once over all ranks, in order, without padding, `rows` at a time. */
ddp_status feed_init_test(struct feed *feed, const struct dataset *set, int world_size, int rank, size_t rows,
                          struct ddp_err *err);

/* False: a thread is still reading a sample, and the set must stay where it is, too. */
bool feed_free(struct feed *feed);

/* Begin epoch `epoch` behind its first `step` steps. */
ddp_status feed_start_epoch(struct feed *feed, uint64_t epoch, uint64_t step, struct ddp_err *err);

/* Load the rows of shard `first_shard + shard` in step `step`; `batch` borrows them until the next call. Steps
 * and shards must be taken in order. The weights of all targets of all workers add up to feed->sum: the number of workers at
 * first, so that dividing by it, as the reducer does, gives the mean over the distinct samples. An error names file,
 * offset and value. */
ddp_status feed_take(struct feed *feed, uint64_t step, int shard, struct model_batch *batch,
                     struct ddp_err *err);

/* Load the next rows for a test, with weights of 1; none at the end. */
ddp_status feed_take_test(struct feed *feed, struct model_batch *batch, struct ddp_err *err);

#endif
