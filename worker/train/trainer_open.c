/* trainer_open.c -- the beginning and the end of trainer.h: what a run needs, in the order in which it can go
 * wrong.
 *
 * Cheap things that a user may have misspelt come first (files to write), then the data, then memory, and last what all
 * ranks must be there for: the reducer, and the checkpoint that rank 0 reads for all. */
#include "train/trainer.h"

#include "train/cuda/cuda.h"
#include "train/files.h"
#include "train/library.h"
#include "train/llmc_file.h"

#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More threads than one only get in each other's way when every core has a worker; but the user may know
 * better. */
static void set_threads(uint64_t wanted)
{
    if (wanted > 0)
        openblas_set_num_threads((int)wanted);
    else if (getenv("OPENBLAS_NUM_THREADS") == NULL && getenv("OMP_NUM_THREADS") == NULL)
        openblas_set_num_threads(1);
}

/* Who forgot --resume should hear of it while the old checkpoints are still there. Steps of two runs in one directory would
 * be taken for one run. */
static ddp_status open_checkpoints(const struct train_options *o, struct ddp_err *err)
{
    char newest[64];
    if (o->checkpoint == NULL)
        return DDP_OK;
    if (o->eval) /* which makes no directory, and writes nothing */
        return checkpoint_exists(o->checkpoint, newest)
                   ? DDP_OK
                   : ddp_fail(err, DDP_ERR_ARG, "--eval: there is no checkpoint in %s", o->checkpoint);
    if (files_make_dir(o->checkpoint, err) != DDP_OK)
        return ddp_wrap(err, "--checkpoint");
    if (o->resume || !checkpoint_exists(o->checkpoint, newest))
        return DDP_OK;
    return ddp_fail(
        err, DDP_ERR_ARG,
        "--checkpoint %s holds %s of an earlier run; --resume goes on from it, another directory (or "
        "none of it) starts anew",
        o->checkpoint, newest);
}

/* Better now than after the last epoch. */
static ddp_status may_write_at_the_end(const struct train_options *o, struct ddp_err *err)
{
    if (o->export_to != NULL && files_may_write(o->export_to, err) != DDP_OK)
        return ddp_wrap(err, "--export");
    if (o->summary != NULL && files_may_write(o->summary, err) != DDP_OK)
        return ddp_wrap(err, "--summary");
    return DDP_OK;
}

/* Only rank 0 writes; the others have nothing to open and wait for it in the first collective. */
static ddp_status open_outputs(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    ddp_status status = profile_open(&t->profile, o->profile, t->ctx, err);
    if (status == DDP_OK)
        status = journal_open(&t->journal, trainer_is_first(t), o->quiet, o->metrics, err);
    if (status == DDP_OK && trainer_is_first(t))
        status = open_checkpoints(o, err);
    if (status == DDP_OK && trainer_is_first(t))
        status = may_write_at_the_end(o, err);
    if (status != DDP_OK || !trainer_is_first(t) || o->dump_gradients == NULL)
        return status;
    t->dump = fopen(o->dump_gradients, "wbe");
    return t->dump != NULL ? DDP_OK
                           : ddp_fail(err, DDP_ERR_IO, "--dump_gradients %s: open: %s", o->dump_gradients,
                                      strerror(errno));
}

/* Every rank reads all of the data: each epoch deals it out anew. */
static ddp_status open_data(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    const struct model_kind *kind = &models[o->model];
    const struct feed_options how = { o->seed, (int)o->loader_threads, o->augment };
    const struct dataset_wish what = { kind->input, o->length != 0 ? o->length : kind->length,
                                       kind->vocabulary };
    ddp_status status = dataset_load(&t->train_set, o->data, DATASET_TRAIN, &what, err);
    if (status == DDP_OK)
        status = dataset_load(&t->test_set, o->data, DATASET_TEST, &what, err);
    const struct split_wish wish = { .samples = t->train_set.n,
                                     .batch = o->batch,
                                     .global_batch = o->global_batch,
                                     .accumulate = o->accumulate,
                                     .any_world = o->determinism == DETERMINISM_WORLD,
                                     .together = o->sync_bn || ddp_device(t->ctx) >= 0 };
    if (status == DDP_OK)
        status = split_make(&t->split, &wish, ddp_world_size(t->ctx), ddp_rank(t->ctx), err);
    return status == DDP_OK ? feed_init(&t->feed, &t->train_set, &t->split, &how, err) : status;
}

/* --- the same run on all ranks ----------------------------------------------------------------------- */

/* What ranks are compared by. */
struct run_facts {
    int64_t options[TRAIN_FACTS], samples[2];
};
enum { RUN_FACTS = sizeof(struct run_facts) / sizeof(int64_t) };

static ddp_status compare_samples(const int64_t first[2], const int64_t theirs[2], int rank,
                                  struct ddp_err *err)
{
    if (memcmp(first, theirs, 2 * sizeof(*first)) == 0)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG,
                    "--data differs: rank 0 has %" PRId64 " samples for training and %" PRId64
                    " for the test, rank %d has %" PRId64 " and %" PRId64 "; all workers need the same",
                    first[0], first[1], rank, theirs[0], theirs[1]);
}

/* All ranks compare all with rank 0's, so that all come to the same words. */
static ddp_status compare_runs(const struct run_facts *all, int world, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (int rank = 1; rank < world && status == DDP_OK; rank++) {
        status = train_options_same(all->options, all[rank].options, rank, err);
        if (status == DDP_OK)
            status = compare_samples(all->samples, all[rank].samples, rank, err);
    }
    return status;
}

/* A rank that was told something else would leave the others in a collective that it does not call; or train another model, and
 * nothing would show. */
static ddp_status compare_ranks(const struct trainer *t, struct ddp_err *err)
{
    const int world = ddp_world_size(t->ctx);
    struct run_facts mine = { .samples = { (int64_t)t->train_set.n, (int64_t)t->test_set.n } };
    struct run_facts *all = calloc((size_t)world, sizeof(*all));
    if (all == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the options of %d ranks", world);
    train_options_facts(t->options, mine.options);
    ddp_status status =
        library(ddp_all_gather(ddp_world(t->ctx), &mine, all, RUN_FACTS, DDP_I64, NULL, NULL), err);
    if (status == DDP_OK)
        status = compare_runs(all, world, err);
    free(all);
    return status;
}

/* --- model ------------------------------------------------------------------------------------------- */

/* Rank 0 reads; the others get its parameters in optimizer_open. */
static ddp_status init_model(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    if (o->init_from == NULL || !trainer_is_first(t))
        return DDP_OK;
    ddp_status status = llmc_load(o->init_from, &models[o->model], &t->model->params, err);
    if (status != DDP_OK)
        return ddp_wrap(err, "--init_from");
    journal_line(&t->journal, "first parameters: those of %s", o->init_from);
    return DDP_OK;
}

/* All ranks begin with the same parameters, from the same seed; optimizer_open makes sure. */
static ddp_status open_model(struct trainer *t, struct ddp_err *err)
{
    size_t rows = split_rows(&t->split, 0);
    const struct dataset *set = &t->train_set;
    const struct model_spec spec = {
        .compute = t->device,
        .rows = rows > evaluate_rows(set) ? rows : evaluate_rows(set),
        .train_rows = rows,
        .length = models[t->options->model].input == MODEL_TOKENS ? set->length : 0,
        .channels = set->channels,
        .height = set->height,
        .width = set->width,
        .classes = set->classes,
        .seed = t->options->seed,
        .ctx = t->options->sync_bn ? t->ctx : NULL,
    };
    ddp_status status = model_create(&models[t->options->model], &spec, &t->model, err);
    if (status != DDP_OK)
        return status;
    t->length = spec.length;
    if (!gradient_init(&t->gradient, t->model, &t->feed))
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for gradients of %zu parameters",
                        t->model->params.count);
    status = init_model(t, err);
    return status == DDP_OK ? optimizer_open(&t->optimizer, t->options, t->model, t->ctx, err) : status;
}

/* The context has a device if, and only if, train is to compute on it: main.c. */
static ddp_status open_device(struct trainer *t, struct ddp_err *err)
{
    if (ddp_device(t->ctx) < 0)
        return DDP_OK;
    return cuda_open(ddp_device(t->ctx), t->options->precision, &t->device, err);
}

static void open_schedule(struct trainer *t)
{
    const struct train_options *o = t->options;
    t->schedule = (struct schedule){ .kind = (enum schedule_kind)o->schedule,
                                     .lr = o->lr,
                                     .final_lr = o->final_lr,
                                     .warmup = o->warmup,
                                     .steps = o->epochs * t->split.steps };
}

ddp_status trainer_open(struct trainer *t, const struct train_options *options, ddp_ctx *ctx,
                        struct ddp_err *err)
{
    *t = (struct trainer){ .options = options, .ctx = ctx, .loss = NAN };
    set_threads(options->threads);
    ddp_status status = open_outputs(t, err);
    if (status == DDP_OK)
        status = open_data(t, err);
    if (status == DDP_OK)
        status = compare_ranks(t, err);
    if (status == DDP_OK)
        status = open_device(t, err);
    if (status == DDP_OK)
        status = open_model(t, err);
    open_schedule(t);
    if (status == DDP_OK && options->checkpoint != NULL)
        status = trainer_resume(t, err);
    if (status == DDP_OK)
        journal_line(
            &t->journal,
            "%s: %zu samples for training, %zu for the test, from %s; %d worker%s, global batch %" PRIu64
            ", %" PRIu64 " step%s an epoch%s",
            model_names[options->model], t->train_set.n, t->test_set.n, options->data, t->split.world_size,
            t->split.world_size == 1 ? "" : "s", t->split.global_batch, t->split.steps,
            t->split.steps == 1 ? "" : "s", t->device != NULL ? ", on GPUs" : "");
    return status;
}

/* fclose is where a full disk shows for what was still in memory. */
static ddp_status close_dump(struct trainer *t, struct ddp_err *err)
{
    if (t->dump == NULL || fclose(t->dump) == 0)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_IO, "--dump_gradients %s: write: %s", t->options->dump_gradients,
                    strerror(errno));
}

/* Everything is tried, whatever fails; the first failure is told. What a step has asked of the device may still use what is freed here. */
ddp_status trainer_close(struct trainer *t, struct ddp_err *err)
{
    enum { CLOSED = 5 };
    if (t->device != NULL)
        t->device->ops->wait(t->device);
    struct ddp_err each[CLOSED];
    ddp_status status[CLOSED] = { checkpoint_close(t->ckpts, &each[0]), journal_close(&t->journal, &each[1]),
                                  close_dump(t, &each[2]), profile_close(&t->profile, &each[3]),
                                  optimizer_close(&t->optimizer, &each[4]) };
    gradient_free(&t->gradient);
    model_free(t->model);
    if (t->device != NULL)
        t->device->ops->close(t->device);
    if (feed_free(&t->feed))
        dataset_free(&t->train_set);
    dataset_free(&t->test_set);
    for (int i = 0; i < CLOSED; i++) {
        if (status[i] != DDP_OK)
            return ddp_fail(err, status[i], "%s", each[i].msg);
    }
    return DDP_OK;
}
