/* batch_source.c -- see batch_source.h.
 *
 * A batch is divided into shards (struct split). For each shard of this worker, the loader has one stream with its own
 * sampler. So shard s gets the samples that rank s gets in torch. */
#include "train/batch_source.h"

#include "train/library.h"

#include <inttypes.h>
#include <stdlib.h>

/* The functions of struct split depend only on the sizes of the batch, the set and the world. So all ranks compute
 * the same results. */

static bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* Return the number of shards. The batch must be a multiple of the world size. With 1, 2 or 4 workers, return the
 * largest of 4, 2 and 1 that divides the batch. Otherwise each worker has one shard. */
static int shards_of(uint64_t global_batch, int world_size)
{
    if (!is_power_of_two(world_size) || world_size > SPLIT_SHARDS)
        return world_size;
    int shards = SPLIT_SHARDS;
    while (global_batch % (unsigned)shards != 0)
        shards /= 2;
    return shards;
}

static uint64_t divided_up(uint64_t n, uint64_t by)
{
    return n / by + (n % by != 0);
}

/* Check the batch and the world size for "--determinism world", which fixes the number of shards. */
static ddp_status check_world(uint64_t global_batch, uint64_t accumulate, int world_size, struct ddp_err *err)
{
    uint64_t parts = SPLIT_WORLD_SHARDS * accumulate;
    if (!is_power_of_two(world_size) || world_size > SPLIT_WORLD_SHARDS)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--determinism world: the job has %d workers; start 1, 2, 4 or %d "
                        "workers",
                        world_size, SPLIT_WORLD_SHARDS);
    if (global_batch % parts != 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--determinism world: a global batch of %" PRIu64 " cannot be divided into %" PRIu64
                        " equal parts (%d shards, --accumulate %" PRIu64 "); use a global batch of %" PRIu64,
                        global_batch, parts, SPLIT_WORLD_SHARDS, accumulate,
                        divided_up(global_batch, parts) * parts);
    if (parts / (uint64_t)world_size > DDP_LOADER_STREAMS)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--accumulate %" PRIu64
                        ": expected at most %d with --determinism world and %d worker%s",
                        accumulate, DDP_LOADER_STREAMS / SPLIT_WORLD_SHARDS * world_size, world_size,
                        world_size == 1 ? "" : "s");
    return DDP_OK;
}

/* Set *shards to the number of shards. With --accumulate, each worker has as many shards as the user has chosen, so do
 * not divide the batch further. */
static ddp_status count_shards(const struct split_request *request, uint64_t global_batch, int world_size,
                               int *shards, struct ddp_err *err)
{
    const uint64_t accumulate = request->accumulate, world = (uint64_t)world_size;
    if (request->any_world) {
        *shards = (int)(SPLIT_WORLD_SHARDS * accumulate);
        return check_world(global_batch, accumulate, world_size, err);
    }
    const uint64_t parts = world * accumulate;
    if (global_batch % parts != 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--global_batch %" PRIu64
                        ": cannot be divided evenly among %d workers%s; use a multiple of %" PRIu64
                        ", such as %" PRIu64,
                        global_batch, world_size, accumulate > 1 ? " with --accumulate" : "", parts,
                        divided_up(global_batch, parts) * parts);
    *shards = accumulate > 1 || request->together ? (int)parts : shards_of(global_batch, world_size);
    return DDP_OK;
}

ddp_status split_make(struct split *split, const struct split_request *request, int world_size, int rank,
                      struct ddp_err *err)
{
    uint64_t global_batch = request->global_batch;
    int shards = 1;
    if (global_batch == 0)
        global_batch = request->batch * (uint64_t)world_size * request->accumulate;
    ddp_status status = count_shards(request, global_batch, world_size, &shards, err);
    if (status != DDP_OK)
        return status;
    *split = (struct split){
        .samples = request->samples,
        .global_batch = global_batch,
        .world_size = world_size,
        .shards = shards,
        .shards_here = shards / world_size,
        .first_shard = rank * (shards / world_size),
        .steps = divided_up(request->samples, global_batch),
    };
    return DDP_OK;
}

/* Return the number of samples in a step. The last step of an epoch may have fewer samples than the global batch. */
uint64_t split_samples(const struct split *split, uint64_t step)
{
    uint64_t left = split->samples - step * split->global_batch;
    return left < split->global_batch ? left : split->global_batch;
}

/* Return the number of rows of a shard, rounded up. If a shard has fewer samples, the sampler adds padding, whose
 * weight is 0. */
size_t split_rows(const struct split *split, uint64_t step)
{
    return divided_up(split_samples(split, step), (uint64_t)split->shards);
}

enum { VALUES, TARGETS, ARRAYS };

/* Read one row for the loader. Any thread may call this function. */
static ddp_status read_row(void *user, ddp_loader_row *row, struct ddp_err *err)
{
    const struct batch_source *source = user;
    return dataset_read(source->set, row->index, source->augment ? &row->luck : NULL, row->to[VALUES],
                        row->to[TARGETS], err);
}

/* Open the loader for batches of `rows` rows. The caller has set some options in `o`; set the other options from
 * `source`. */
static ddp_status open_loader(struct batch_source *source, ddp_loader_options *o, size_t rows,
                              struct ddp_err *err)
{
    o->samples = source->set->n;
    o->batch = rows;
    o->arrays = ARRAYS;
    o->row_bytes[VALUES] = dataset_row_bytes(source->set);
    o->row_bytes[TARGETS] = source->set->length * sizeof(int32_t);
    o->fill = read_row;
    o->user = source;
    source->weight = calloc(rows, sizeof(float));
    ddp_status status = source->weight != NULL
                            ? library(ddp_loader_create(o, &source->loader), err)
                            : ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %zu rows", rows);
    if (status != DDP_OK)
        batch_source_free(source);
    return status;
}

/* Initialize the source for training. A batch of the loader has as many rows as a shard of the first step, which has
 * the largest shards. */
ddp_status batch_source_init(struct batch_source *source, const struct dataset *set,
                             const struct split *split, const struct batch_source_options *options,
                             struct ddp_err *err)
{
    ddp_loader_options o = DDP_LOADER_OPTIONS_INIT;
    if (options->augment && !dataset_varies(set))
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--augment: needs CIFAR-10's pictures, but --data has the format %s; leave out --augment",
            dataset_format_name(set));
    *source = (struct batch_source){
        .set = set, .split = split, .augment = options->augment, .sum = (float)split->world_size
    };
    o.world_size = split->shards;
    o.rank = split->first_shard;
    o.streams = split->shards_here;
    o.seed = options->seed;
    o.sampler_flags = DDP_SAMPLER_SHUFFLE;
    o.threads = options->threads;
    return open_loader(source, &o, split_rows(split, 0), err);
}

ddp_status batch_source_init_test(struct batch_source *source, const struct dataset *set, int world_size,
                                  int rank, size_t rows, struct ddp_err *err)
{
    ddp_loader_options o = DDP_LOADER_OPTIONS_INIT;
    *source = (struct batch_source){ .set = set };
    o.world_size = world_size;
    o.rank = rank;
    o.sampler_flags = DDP_SAMPLER_NO_PAD;
    ddp_status status = open_loader(source, &o, rows, err);
    return status == DDP_OK ? library(ddp_loader_start(source->loader, 0, 0), err) : status;
}

/* Free the source. If a thread is still reading, free nothing, because the thread uses the memory. The program ends
 * anyway. */
bool batch_source_free(struct batch_source *source)
{
    if (ddp_loader_free(source->loader) != DDP_OK)
        return false;
    free(source->weight);
    *source = (struct batch_source){ 0 };
    return true;
}

/* Begin an epoch. Shuffle with a seed that includes the epoch, so that each epoch has another order. */
ddp_status batch_source_start_epoch(struct batch_source *source, uint64_t epoch, uint64_t step,
                                    struct ddp_err *err)
{
    return library(ddp_loader_start(source->loader, epoch, step * source->split->global_batch), err);
}

/* Return the loader's batch as a batch for the model. Rows of padding have weight 0. */
static struct model_batch batch_of(const struct batch_source *source, const ddp_batch *b, float weight)
{
    for (size_t row = 0; row < b->rows; row++)
        source->weight[row] = b->is_pad[row] ? 0 : weight;
    return (struct model_batch){ .rows = b->rows,
                                 .length = source->set->length,
                                 .picture = b->array[VALUES],
                                 .token = b->array[VALUES],
                                 .target = b->array[TARGETS],
                                 .weight = source->weight };
}

/* Load the next shard. The weight of each target is source->sum divided by the number of targets in the step.
 * source->sum may contain the world size as a factor, because the reducer or ZeRO-1 later divides by the world size. */
ddp_status batch_source_next(struct batch_source *source, uint64_t step, struct model_batch *batch,
                             struct ddp_err *err)
{
    const ddp_batch *b;
    /* If the world size is a power of two, the later division by it is exact and changes no bit. */
    const float weight = source->sum / (float)(split_samples(source->split, step) * source->set->length);
    ddp_status status = library(ddp_loader_next(source->loader, &b), err);
    if (status != DDP_OK)
        return status;
    *batch = batch_of(source, b, weight);
    batch->still = source->split->first_shard + b->stream > 0;
    return DDP_OK;
}

ddp_status batch_source_next_test(struct batch_source *source, struct model_batch *batch, struct ddp_err *err)
{
    static const ddp_batch none;
    const ddp_batch *b;
    ddp_status status = library(ddp_loader_next(source->loader, &b), err);
    *batch = batch_of(source, b != NULL ? b : &none, 1);
    return status;
}
