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
    ddp_sampler *sampler[SPLIT_MAX_SHARDS]; /* of shards first_shard, first_shard + 1, ... */
    /* The rows taken last. */
    float *x;
    float *weight;
    int32_t *label;
};

ddp_status feed_init(struct feed *feed, const struct dataset *set, const struct split *split, uint64_t seed,
                     struct ddp_err *err);
void feed_free(struct feed *feed);

void feed_start_epoch(struct feed *feed, uint64_t epoch);

/* Load the rows of shard `first_shard + shard` in step `step`; `batch` borrows them until the next call. Steps and shards must be taken in order. Weights are made so that summing over all rows of all workers and
 * dividing by the number of workers, as the reducer does, gives the mean over the distinct samples. */
void feed_take(struct feed *feed, uint64_t step, int shard, struct model_batch *batch);

#endif
