/* trainer_open.c -- the beginning and the end of trainer.h: what a run needs, in the order in which it can go
 * wrong.
 *
 * Cheap things that a user may have misspelt come first (files to write), then the data, then memory, then
 * the checkpoint, and last the one step for which all ranks must be there: the reducer. */
#include "trainer.h"

#include "files.h"
#include "library.h"

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

/* Only rank 0 writes; the others have nothing to open and wait for it in the first collective. */
static ddp_status open_outputs(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    ddp_status status = journal_open(&t->journal, trainer_is_first(t), o->quiet, o->metrics, err);
    if (status == DDP_OK && trainer_is_first(t) && o->checkpoint != NULL) {
        status = files_make_dir(o->checkpoint, err);
        if (status != DDP_OK)
            ddp_wrap(err, "--checkpoint");
    }
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
    ddp_status status = dataset_load(&t->train_set, o->data, DATASET_TRAIN, err);
    if (status == DDP_OK)
        status = dataset_load(&t->test_set, o->data, DATASET_TEST, err);
    if (status == DDP_OK)
        status = split_make(&t->split, t->train_set.n, o->batch, o->global_batch, ddp_world_size(t->ctx),
                            ddp_rank(t->ctx), err);
    return status == DDP_OK ? feed_init(&t->feed, &t->train_set, &t->split, o->seed, err) : status;
}

/* All ranks begin with the same parameters, from the same seed; open_reducer makes sure. */
static ddp_status open_model(struct trainer *t, struct ddp_err *err)
{
    size_t rows = split_rows(&t->split, 0);
    const struct model_spec spec = {
        .rows = rows > EVALUATE_ROWS ? rows : EVALUATE_ROWS,
        .channels = 1,
        .height = PICTURE_SIDE,
        .width = PICTURE_SIDE,
        .classes = CLASSES,
        .seed = t->options->seed,
        .group = ddp_world(t->ctx),
    };
    ddp_status status = model_create(&models[t->options->model], &spec, &t->model, err);
    if (status != DDP_OK)
        return status;
    const struct model_tensors *params = &t->model->params;
    t->m = calloc(2 * params->count, sizeof(float));
    t->grad = calloc(params->n, sizeof(float *));
    if (!gradient_init(&t->gradient, t->model, &t->feed) || t->m == NULL || t->grad == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for gradients of %zu parameters", params->count);
    t->v = t->m + params->count;
    t->adam = (ddp_optim)DDP_ADAM_INIT;
    t->adam.lr = t->options->lr;
    return DDP_OK;
}

/* Rank 0 reads the file, everyone gets what it holds: one reader for a disk that may be slow or somebody
 * else's, and no way for two ranks to go on from two epochs. The parameters follow when the reducer is
 * made. */
static ddp_status resume(struct trainer *t, struct ddp_err *err)
{
    struct checkpoint c = trainer_checkpoint(t);
    ddp_group *world = ddp_world(t->ctx);
    int found = 0;
    ddp_status status =
        trainer_is_first(t) ? checkpoint_load(t->options->checkpoint, &c, &found, err) : DDP_OK;
    if (status == DDP_OK)
        status = library(ddp_broadcast(world, c.fact, FACTS, DDP_I64, 0, NULL, NULL), err);
    if (status == DDP_OK)
        status = library(ddp_broadcast(world, &c.loss, 1, DDP_F64, 0, NULL, NULL), err);
    if (status == DDP_OK)
        status = library(ddp_broadcast(world, t->m, 2 * t->model->params.count, DDP_F32, 0, NULL, NULL), err);
    if (status != DDP_OK)
        return status;
    t->epochs_done = t->resumed_epochs = (uint64_t)c.fact[FACT_EPOCHS];
    t->adam.step = c.fact[FACT_STEPS];
    t->loss = c.loss;
    if (found)
        journal_line(&t->journal, "resume: going on after epoch %" PRIu64 " of %s", t->epochs_done,
                     t->options->checkpoint);
    else
        journal_line(&t->journal, "resume: no checkpoint in %s yet, starting anew", t->options->checkpoint);
    return DDP_OK;
}

/* Who forgot --resume should hear of it while the old checkpoint is still there. */
static void mind_checkpoint(struct trainer *t)
{
    const struct train_options *o = t->options;
    if (trainer_is_first(t) && o->checkpoint != NULL && checkpoint_exists(o->checkpoint))
        journal_line(
            &t->journal,
            "checkpoint: the one in %s will be replaced after the first epoch; --resume goes on from it",
            o->checkpoint);
}

static void describe(ddp_param *param, const struct model_tensors *of)
{
    for (size_t i = 0; i < of->n; i++) {
        const struct model_tensor *t = &of->each[i];
        param[i] = (ddp_param){ t->name, t->value, t->count, DDP_F32, t->shape, t->dims };
    }
}

/* Compares the models of all ranks and overwrites them with rank 0's: from here on they are equal, and as all
 * compute the same steps they stay so. */
static ddp_status open_reducer(struct trainer *t, struct ddp_err *err)
{
    const struct model_tensors *params = &t->model->params, *buffers = &t->model->buffers;
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    ddp_param *all = calloc(params->n + buffers->n, sizeof(*all));
    if (all == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for a list of %zu parameters", params->n);
    describe(all, params);
    describe(all + params->n, buffers);
    options.buffers = all + params->n;
    options.buffer_count = buffers->n;
    ddp_status status = ddp_reducer_create(ddp_world(t->ctx), all, params->n, &options, &t->reducer);
    free(all);
    return library(status, err);
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
        status = open_model(t, err);
    if (status == DDP_OK && options->resume)
        status = resume(t, err);
    else if (status == DDP_OK)
        mind_checkpoint(t);
    if (status == DDP_OK)
        status = open_reducer(t, err);
    if (status == DDP_OK)
        journal_line(
            &t->journal,
            "%s: %zu samples for training, %zu for the test, from %s; %d worker%s, global batch %" PRIu64
            ", %" PRIu64 " steps an epoch",
            model_names[options->model], t->train_set.n, t->test_set.n, options->data, t->split.world_size,
            t->split.world_size == 1 ? "" : "s", t->split.global_batch, t->split.steps);
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

/* Everything is tried, whatever fails; the first failure is told. */
ddp_status trainer_close(struct trainer *t, struct ddp_err *err)
{
    struct ddp_err each[3];
    ddp_status status[3] = { journal_close(&t->journal, &each[0]), close_dump(t, &each[1]),
                             library(ddp_reducer_free(t->reducer), &each[2]) };
    gradient_free(&t->gradient);
    model_free(t->model);
    feed_free(&t->feed);
    dataset_free(&t->train_set);
    dataset_free(&t->test_set);
    free(t->m);
    free(t->grad);
    for (int i = 0; i < 3; i++) {
        if (status[i] != DDP_OK)
            return ddp_fail(err, status[i], "%s", each[i].msg);
    }
    return DDP_OK;
}
