/* trainer.c -- see trainer.h. Reads top down in the order of a run. */
#include "trainer.h"

#include "files.h"
#include "library.h"

#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEST_ROWS = 256 }; /* samples tested at once */

static bool is_first(const struct trainer *t)
{
    return ddp_rank(t->ctx) == 0;
}

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* --- opening ----------------------------------------------------------------------------------------- */

/* More threads than one only get in each other's way when every core has a worker; but the user may know
 * better. */
static void set_threads(uint64_t wanted)
{
    if (wanted > 0)
        openblas_set_num_threads((int)wanted);
    else if (getenv("OPENBLAS_NUM_THREADS") == NULL && getenv("OMP_NUM_THREADS") == NULL)
        openblas_set_num_threads(1);
}

static ddp_status open_outputs(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    ddp_status status = journal_open(&t->journal, is_first(t), o->quiet, o->metrics, err);
    if (status == DDP_OK && is_first(t) && o->checkpoint != NULL) {
        status = files_make_dir(o->checkpoint, err);
        if (status != DDP_OK)
            ddp_wrap(err, "--checkpoint");
    }
    if (status != DDP_OK || !is_first(t) || o->dump_gradients == NULL)
        return status;
    t->dump = fopen(o->dump_gradients, "wbe");
    return t->dump != NULL ? DDP_OK
                           : ddp_fail(err, DDP_ERR_IO, "--dump_gradients %s: open: %s", o->dump_gradients,
                                      strerror(errno));
}

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

static ddp_status open_model(struct trainer *t, struct ddp_err *err)
{
    size_t rows = split_rows(&t->split, 0);
    bool ok = mlp_init(&t->mlp, (enum mlp_model)t->options->model, rows > TEST_ROWS ? rows : TEST_ROWS);
    ok = ok && gradient_init(&t->gradient, &t->mlp, &t->feed);
    t->m = calloc((size_t)2 * MLP_PARAMS, sizeof(float));
    if (!ok || t->m == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the model and batches of %zu rows", rows);
    t->v = t->m + MLP_PARAMS;
    t->adam = (ddp_adam)DDP_ADAM_INIT;
    t->adam.lr = t->options->lr;
    mlp_seed(&t->mlp, t->options->seed);
    return DDP_OK;
}

static struct checkpoint checkpoint_of(const struct trainer *t)
{
    return (struct checkpoint){
        .fact = { [FACT_EPOCHS] = (int64_t)t->epochs_done,
                  [FACT_STEPS] = t->adam.step,
                  [FACT_MODEL] = t->options->model,
                  [FACT_SEED] = (int64_t)t->options->seed,
                  [FACT_GLOBAL_BATCH] = (int64_t)t->split.global_batch,
                  [FACT_SAMPLES] = (int64_t)t->split.samples },
        .params = t->mlp.params,
        .m = t->m,
        .v = t->v,
    };
}

/* Rank 0 reads the file, everyone gets what it holds. The parameters follow when the reducer is made. */
static ddp_status resume(struct trainer *t, struct ddp_err *err)
{
    struct checkpoint c = checkpoint_of(t);
    ddp_group *world = ddp_world(t->ctx);
    int found = 0;
    ddp_status status = is_first(t) ? checkpoint_load(t->options->checkpoint, &c, &found, err) : DDP_OK;
    if (status == DDP_OK)
        status = library(ddp_broadcast(world, c.fact, FACTS, DDP_I64, 0, NULL, NULL), err);
    if (status == DDP_OK)
        status = library(ddp_broadcast(world, t->m, (size_t)2 * MLP_PARAMS, DDP_F32, 0, NULL, NULL), err);
    if (status != DDP_OK)
        return status;
    t->epochs_done = t->resumed_epochs = (uint64_t)c.fact[FACT_EPOCHS];
    t->adam.step = c.fact[FACT_STEPS];
    if (found)
        journal_line(&t->journal, "resume: going on after epoch %" PRIu64 " of %s", t->epochs_done,
                     t->options->checkpoint);
    else
        journal_line(&t->journal, "resume: no checkpoint in %s yet, starting anew", t->options->checkpoint);
    return DDP_OK;
}

/* Compares the models of all ranks and overwrites them with rank 0's. */
static ddp_status open_reducer(struct trainer *t, struct ddp_err *err)
{
    ddp_param param[MLP_TENSORS];
    for (int i = 0; i < MLP_TENSORS; i++)
        param[i] = (ddp_param){ mlp_tensors[i].name, t->mlp.tensor[i], mlp_tensors[i].count, DDP_F32 };
    ddp_status status = ddp_reducer_create(ddp_world(t->ctx), param, MLP_TENSORS, NULL, &t->reducer);
    for (int i = 0; i < MLP_TENSORS && status == DDP_OK; i++)
        t->grad[i] = ddp_reducer_grad(t->reducer, (size_t)i);
    return library(status, err);
}

ddp_status trainer_open(struct trainer *t, const struct train_options *options, ddp_ctx *ctx,
                        struct ddp_err *err)
{
    *t = (struct trainer){ .options = options, .ctx = ctx };
    set_threads(options->threads);
    ddp_status status = open_outputs(t, err);
    if (status == DDP_OK)
        status = open_data(t, err);
    if (status == DDP_OK)
        status = open_model(t, err);
    if (status == DDP_OK && options->resume)
        status = resume(t, err);
    if (status == DDP_OK)
        status = open_reducer(t, err);
    if (status == DDP_OK)
        journal_line(&t->journal,
                     "%s: %zu samples for training, %zu for the test, from %s; %d worker%s, batch %" PRIu64
                     ", %" PRIu64 " steps an epoch",
                     mlp_model_name[options->model], t->train_set.n, t->test_set.n, options->data,
                     t->split.world_size, t->split.world_size == 1 ? "" : "s", t->split.global_batch,
                     t->split.steps);
    return status;
}

/* --- one step ---------------------------------------------------------------------------------------- */

/* From the last layer to the first, the order in which gradients come out of a backward pass. */
static ddp_status average(struct trainer *t, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (int i = MLP_TENSORS - 1; i >= 0 && status == DDP_OK; i--)
        status = ddp_reducer_ready(t->reducer, (size_t)i);
    if (status == DDP_OK)
        status = ddp_reducer_finish(t->reducer);
    return library(status, err);
}

static void update(struct trainer *t)
{
    float *m = t->m, *v = t->v;
    ddp_adam_begin(&t->adam);
    for (int i = 0; i < MLP_TENSORS; i++) {
        size_t n = mlp_tensors[i].count;
        ddp_adam_update(&t->adam, t->mlp.tensor[i], t->grad[i], m, v, n);
        m += n;
        v += n;
    }
}

static ddp_status dump_gradient(struct trainer *t, struct ddp_err *err)
{
    bool failed = false;
    if (t->dump == NULL)
        return DDP_OK;
    for (int i = 0; i < MLP_TENSORS; i++)
        failed |= fwrite(t->grad[i], sizeof(float), mlp_tensors[i].count, t->dump) != mlp_tensors[i].count;
    return failed ? ddp_fail(err, DDP_ERR_IO, "--dump_gradients %s: write: %s", t->options->dump_gradients,
                             strerror(errno))
                  : DDP_OK;
}

static double gradient_norm(const struct trainer *t)
{
    double sum = 0;
    for (int i = 0; i < MLP_TENSORS; i++) {
        for (size_t k = 0; k < mlp_tensors[i].count; k++)
            sum += (double)t->grad[i][k] * t->grad[i][k];
    }
    return sqrt(sum);
}

/* Add a rank's sums up over all ranks. */
static ddp_status sum_over_ranks(struct trainer *t, double *value, struct ddp_err *err)
{
    return library(ddp_all_reduce(ddp_world(t->ctx), value, value, 1, DDP_F64, DDP_SUM, NULL, NULL), err);
}

/* The mean loss of a step costs an all-reduce of its own, so it is only made when somebody wants to read it.
 * `at` are the times around gradient, all-reduce and optimiser. */
static ddp_status tell_step(struct trainer *t, uint64_t step, double loss, const uint64_t at[4],
                            struct ddp_err *err)
{
    if (t->options->metrics == NULL)
        return DDP_OK;
    ddp_status status = sum_over_ranks(t, &loss, err);
    if (status != DDP_OK || !is_first(t))
        return status;
    double samples = (double)split_samples(&t->split, step);
    struct journal_step line = {
        .step = (uint64_t)t->adam.step,
        .epoch = t->epochs_done + 1,
        .loss = loss / samples,
        .lr = t->adam.lr,
        .grad_norm = gradient_norm(t),
        .samples_per_s = samples * 1e6 / (double)(at[3] - at[0] + 1),
        .compute_ms = (double)(at[1] - at[0]) / 1e3,
        .comm_ms = (double)(at[2] - at[1]) / 1e3,
        .optimizer_ms = (double)(at[3] - at[2]) / 1e3,
    };
    return journal_step(&t->journal, &line, err);
}

/* Adds the losses of this rank's samples to *loss_sum. */
static ddp_status train_step(struct trainer *t, uint64_t step, double *loss_sum, struct ddp_err *err)
{
    uint64_t at[4] = { now_us() };
    double loss = gradient_compute(&t->gradient, step, t->grad);
    at[1] = now_us();
    ddp_status status = average(t, err);
    if (status == DDP_OK)
        status = dump_gradient(t, err);
    if (status != DDP_OK)
        return status;
    at[2] = now_us();
    update(t);
    at[3] = now_us();
    *loss_sum += loss;
    t->steps_here++;
    return tell_step(t, step, loss, at, err);
}

/* --- epochs ------------------------------------------------------------------------------------------ */

static bool limit_reached(const struct trainer *t)
{
    return t->options->limit_steps != 0 && t->steps_here >= t->options->limit_steps;
}

/* All steps of an epoch, or fewer when the limit comes first: *steps tells. Sets t->loss. */
static ddp_status train_steps(struct trainer *t, uint64_t *steps, uint64_t *samples, struct ddp_err *err)
{
    double loss = 0;
    ddp_status status = DDP_OK;
    feed_start_epoch(&t->feed, t->epochs_done);
    *steps = *samples = 0;
    while (*steps < t->split.steps && !limit_reached(t) && status == DDP_OK) {
        status = train_step(t, *steps, &loss, err);
        *samples += split_samples(&t->split, *steps);
        *steps += 1;
        journal_progress(&t->journal, t->epochs_done + 1, t->options->epochs, *steps, t->split.steps);
    }
    if (status == DDP_OK)
        status = sum_over_ranks(t, &loss, err);
    t->loss = loss / (double)*samples;
    return status;
}

static ddp_status save(struct trainer *t, struct ddp_err *err)
{
    if (!is_first(t) || t->options->checkpoint == NULL)
        return DDP_OK;
    struct checkpoint c = checkpoint_of(t);
    return checkpoint_save(t->options->checkpoint, &c, err);
}

static ddp_status tell_epoch(struct trainer *t, uint64_t samples, uint64_t us, struct ddp_err *err)
{
    struct journal_epoch line = {
        .epoch = t->epochs_done + 1,
        .epochs = t->options->epochs,
        .step = (uint64_t)t->adam.step,
        .loss = t->loss,
        .correct = t->accuracy.correct,
        .tested = t->accuracy.samples,
        .samples_per_s = (double)samples * 1e6 / (double)(us + 1),
    };
    if (!isfinite(t->loss))
        return ddp_fail(err, DDP_ERR_ARG, "epoch %" PRIu64 ": the loss is %f; try a smaller --lr than %g",
                        line.epoch, t->loss, t->adam.lr);
    return journal_epoch(&t->journal, &line, err);
}

static ddp_status train_epoch(struct trainer *t, struct ddp_err *err)
{
    uint64_t steps, samples, start = now_us();
    ddp_status status = train_steps(t, &steps, &samples, err);
    uint64_t us = now_us() - start;
    if (status == DDP_OK)
        status = evaluate(&t->mlp, &t->test_set, t->ctx, &t->accuracy, err);
    if (status == DDP_OK)
        status = tell_epoch(t, samples, us, err);
    t->samples_here += samples;
    t->train_us += us;
    if (status != DDP_OK || steps < t->split.steps)
        return status;
    t->epochs_done++;
    return save(t, err);
}

/* --- the end ----------------------------------------------------------------------------------------- */

/* All ranks have computed the same bits, or something is badly wrong. The largest of h and of ~h tell whether
 * all h are equal, in one all-reduce. */
static ddp_status compare_hashes(struct trainer *t, uint64_t hash, struct ddp_err *err)
{
    int64_t most[2] = { (int64_t)hash, (int64_t)~hash };
    ddp_status status =
        library(ddp_all_reduce(ddp_world(t->ctx), most, most, 2, DDP_I64, DDP_MAX, NULL, NULL), err);
    if (status == DDP_OK && most[0] != ~most[1])
        status = ddp_fail(err, DDP_ERR_MISMATCH,
                          "the ranks end with different parameters; mine have the hash %016" PRIx64, hash);
    return status;
}

static ddp_status summarize(struct trainer *t, uint64_t hash, struct ddp_err *err)
{
    double seconds = (double)t->train_us / 1e6;
    struct journal_summary s = {
        .model = mlp_model_name[t->options->model],
        .world_size = t->split.world_size,
        .epochs = t->epochs_done,
        .steps = (uint64_t)t->adam.step,
        .global_batch = t->split.global_batch,
        .seed = t->options->seed,
        .lr = t->adam.lr,
        .final_loss = t->loss,
        .correct = t->accuracy.correct,
        .tested = t->accuracy.samples,
        .samples_per_s = seconds > 0 ? (double)t->samples_here / seconds : 0,
        .train_s = seconds,
        .resumed_epochs = t->resumed_epochs,
        .param_hash = hash,
    };
    journal_line(&t->journal, "parameters %016" PRIx64 " after %" PRIu64 " steps, %.1f s of training", hash,
                 s.steps, seconds);
    return is_first(t) && t->options->summary != NULL ? journal_summary(t->options->summary, &s, err)
                                                      : DDP_OK;
}

ddp_status trainer_run(struct trainer *t, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    t->loss = NAN; /* until an epoch has been trained */
    while (t->epochs_done < t->options->epochs && !limit_reached(t) && status == DDP_OK)
        status = train_epoch(t, err);
    if (status == DDP_OK &&
        t->steps_here == 0) { /* resumed at the end: nothing to train, but something to tell */
        journal_line(&t->journal, "all %" PRIu64 " epochs are done already", t->options->epochs);
        status = evaluate(&t->mlp, &t->test_set, t->ctx, &t->accuracy, err);
    }
    if (status != DDP_OK)
        return status;
    uint64_t hash = mlp_hash(&t->mlp);
    status = compare_hashes(t, hash, err);
    return status == DDP_OK ? summarize(t, hash, err) : status;
}

static ddp_status close_dump(struct trainer *t, struct ddp_err *err)
{
    if (t->dump == NULL || fclose(t->dump) == 0)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_IO, "--dump_gradients %s: write: %s", t->options->dump_gradients,
                    strerror(errno));
}

ddp_status trainer_close(struct trainer *t, struct ddp_err *err)
{
    struct ddp_err each[3];
    ddp_status status[3] = { journal_close(&t->journal, &each[0]), close_dump(t, &each[1]),
                             library(ddp_reducer_free(t->reducer), &each[2]) };
    gradient_free(&t->gradient);
    mlp_free(&t->mlp);
    feed_free(&t->feed);
    dataset_free(&t->train_set);
    dataset_free(&t->test_set);
    free(t->m);
    for (int i = 0; i < 3; i++) {
        if (status[i] != DDP_OK)
            return ddp_fail(err, status[i], "%s", each[i].msg);
    }
    return DDP_OK;
}
