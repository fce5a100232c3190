/* feed.c -- see feed.h.
 *
 * One sampler per shard, each with an order of its own (4 bytes a sample), rather than one that is told to
 * skip: what shard s gets is then, by construction, what torch gives to rank s. */
#include "feed.h"

#include <stdlib.h>

/* Rows of one shard at a time: that is all the model ever sees at once. */
static bool allocate(struct feed *feed, size_t rows)
{
    feed->x = calloc(rows * PICTURE_PIXELS, sizeof(float));
    feed->weight = calloc(rows, sizeof(float));
    feed->label = calloc(rows, sizeof(int32_t));
    feed->sampler = calloc((size_t)feed->split->shards_here, sizeof(*feed->sampler));
    return feed->x != NULL && feed->weight != NULL && feed->label != NULL && feed->sampler != NULL;
}

ddp_status feed_init(struct feed *feed, const struct dataset *set, const struct split *split, uint64_t seed,
                     struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    *feed = (struct feed){ .set = set, .split = split, .sum = (float)split->world_size };
    /* A shard cannot hold more than its share of the set, however large a batch the user names. */
    size_t rows = split_rows(split, 0);
    if (!allocate(feed, rows))
        status = ddp_fail(err, DDP_ERR_NOMEM, "no memory for %zu rows of %d pixels", rows, PICTURE_PIXELS);
    for (int i = 0; i < split->shards_here && status == DDP_OK; i++)
        status = ddp_sampler_create(set->n, split->shards, split->first_shard + i, seed, DDP_SAMPLER_SHUFFLE,
                                    &feed->sampler[i], err);
    if (status != DDP_OK)
        feed_free(feed);
    return status;
}

void feed_free(struct feed *feed)
{
    for (int i = 0; feed->sampler != NULL && i < feed->split->shards_here; i++)
        ddp_sampler_free(feed->sampler[i]);
    free(feed->sampler);
    free(feed->x);
    free(feed->weight);
    free(feed->label);
    *feed = (struct feed){ 0 };
}

/* The epoch is part of the shuffle's seed; a loop that forgets it sees the same order for ever. */
void feed_start_epoch(struct feed *feed, uint64_t epoch, uint64_t step)
{
    for (int i = 0; i < feed->split->shards_here; i++)
        ddp_sampler_resume(feed->sampler[i], epoch, step * feed->split->global_batch);
}

/* sum / samples: the reducer divides the sum of all ranks by world, which leaves 1 / samples for each. For
 * a world that is a power of two both steps are exact, so the weights do not bring the number of workers into
 * the result. */
void feed_take(struct feed *feed, uint64_t step, int shard, struct model_batch *batch)
{
    size_t rows = split_rows(feed->split, step), row = 0;
    float weight = feed->sum / (float)split_samples(feed->split, step);
    uint64_t index;
    int is_pad;
    for (; row < rows && ddp_sampler_next(feed->sampler[shard], &index, &is_pad); row++) {
        feed->label[row] = dataset_sample(feed->set, index, feed->x + row * PICTURE_PIXELS);
        feed->weight[row] = is_pad ? 0 : weight;
    }
    *batch = (struct model_batch){
        .rows = row, .length = 1, .picture = feed->x, .target = feed->label, .weight = feed->weight
    };
}
