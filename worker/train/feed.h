/* feed.h -- the samples of this worker's shards, as rows for the model; libddp's loader reads them ahead.
 *
 * A sample that torch's padding repeats takes its row, so that all shards stay equally long, but with weight
 * 0: it changes neither gradient nor loss. (torch counts such samples twice.) */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "train/dataset.h"
#include "ddp/loader.h"
#include "train/model.h"
#include "train/split.h"

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

#endif
