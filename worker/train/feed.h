/* feed.h -- the samples of this worker's shards, as rows for the model.
 *
 * A sample that torch's padding repeats takes its row, so that all shards stay equally long, but with weight
 * 0: it changes neither gradient nor loss. (torch counts such samples twice.) */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "dataset.h"
#include "ddp/sampler.h"
#include "model.h"
#include "split.h"

struct feed {
    const struct dataset *set; /* borrowed, as is the split */
    const struct split *split;
    ddp_sampler **sampler; /* of shards first_shard, first_shard + 1, ... */
    float sum;             /* of the weights of all samples of a step, over all workers */
    /* The rows taken last. */
    float *x;
    float *weight;
    int32_t *label;
};

ddp_status feed_init(struct feed *feed, const struct dataset *set, const struct split *split, uint64_t seed,
                     struct ddp_err *err);
void feed_free(struct feed *feed);

/* Begin epoch `epoch` behind its first `step` steps. */
void feed_start_epoch(struct feed *feed, uint64_t epoch, uint64_t step);

/* Load the rows of shard `first_shard + shard` in step `step`; `batch` borrows them until the next call. Steps
 * and shards must be taken in order. The weights of all rows of all workers add up to feed->sum: the number of workers at
 * first, so that dividing by it, as the reducer does, gives the mean over the distinct samples. */
void feed_take(struct feed *feed, uint64_t step, int shard, struct model_batch *batch);

#endif
