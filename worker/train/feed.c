/* feed.c -- see feed.h.
 *
 * One stream of the loader per shard, each with a sampler and an order of its own (4 bytes a sample), rather than one that is
 * told to skip: what shard s gets is then, by construction, what torch gives to rank s. */
#include "train/feed.h"

#include "train/library.h"

#include <stdlib.h>

enum { VALUES, TARGETS, ARRAYS };

/* On any thread. */
static ddp_status read_row(void *user, ddp_loader_row *row, struct ddp_err *err)
{
    const struct feed *feed = user;
    return dataset_read(feed->set, row->index, feed->augment ? &row->luck : NULL, row->to[VALUES],
                        row->to[TARGETS], err);
}

/* A shard cannot hold more than its share of the set, however large a batch the user names. */
static ddp_status open_loader(struct feed *feed, const struct feed_options *options, struct ddp_err *err)
{
    ddp_loader_options o = DDP_LOADER_OPTIONS_INIT;
    o.samples = feed->set->n;
    o.world_size = feed->split->shards;
    o.rank = feed->split->first_shard;
    o.streams = feed->split->shards_here;
    o.seed = options->seed;
    o.sampler_flags = DDP_SAMPLER_SHUFFLE;
    o.batch = split_rows(feed->split, 0);
    o.arrays = ARRAYS;
    o.row_bytes[VALUES] = dataset_row_bytes(feed->set);
    o.row_bytes[TARGETS] = feed->set->length * sizeof(int32_t);
    o.fill = read_row;
    o.user = feed;
    o.threads = options->threads;
    return library(ddp_loader_create(&o, &feed->loader), err);
}

ddp_status feed_init(struct feed *feed, const struct dataset *set, const struct split *split,
                     const struct feed_options *options, struct ddp_err *err)
{
    size_t rows = split_rows(split, 0);
    if (options->augment && !dataset_varies(set))
        return ddp_fail(err, DDP_ERR_ARG, "--augment is for CIFAR-10's pictures; --data has the format %s",
                        dataset_format_name(set));
    *feed = (struct feed){
        .set = set, .split = split, .augment = options->augment, .sum = (float)split->world_size
    };
    feed->weight = calloc(rows, sizeof(float));
    if (feed->weight == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %zu rows", rows);
    ddp_status status = open_loader(feed, options, err);
    if (status != DDP_OK)
        feed_free(feed);
    return status;
}

/* A thread that does not come back from a disk keeps its loader, and what that points to; the program ends anyway. */
bool feed_free(struct feed *feed)
{
    if (ddp_loader_free(feed->loader) != DDP_OK)
        return false;
    free(feed->weight);
    *feed = (struct feed){ 0 };
    return true;
}

/* The epoch is part of the shuffle's seed; a loop that forgets it sees the same order for ever. */
ddp_status feed_start_epoch(struct feed *feed, uint64_t epoch, uint64_t step, struct ddp_err *err)
{
    return library(ddp_loader_start(feed->loader, epoch, step * feed->split->global_batch), err);
}

/* sum / targets: the reducer divides the sum of all ranks by world, which leaves 1 / targets for each. For
 * a world that is a power of two both steps are exact, so the weights do not bring the number of workers into
 * the result. */
ddp_status feed_take(struct feed *feed, uint64_t step, int shard, struct model_batch *batch,
                     struct ddp_err *err)
{
    const ddp_batch *b;
    const float weight = feed->sum / (float)(split_samples(feed->split, step) * feed->set->length);
    ddp_status status = library(ddp_loader_next(feed->loader, &b), err);
    if (status == DDP_OK && (b == NULL || b->stream != shard))
        status = ddp_fail(err, DDP_ERR_ARG, "shard %d was taken out of order", shard);
    if (status != DDP_OK)
        return status;
    for (size_t row = 0; row < b->rows; row++)
        feed->weight[row] = b->is_pad[row] ? 0 : weight;
    *batch = (struct model_batch){ .rows = b->rows,
                                   .length = feed->set->length,
                                   .picture = b->array[VALUES],
                                   .token = b->array[VALUES],
                                   .target = b->array[TARGETS],
                                   .weight = feed->weight,
                                   .still = feed->split->first_shard + shard > 0 };
    return DDP_OK;
}
