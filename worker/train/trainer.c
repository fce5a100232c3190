/* trainer.c -- see trainer.h: steps, epochs, the end.
 *
 * A step, on every rank at once:
 *
 *     forward and backward on my part of the batch     gradient.c, writes into the reducer's shared memory
 *     ready, ready ... (while backward runs), finish   ddp/reducer.h, now all hold the average
 *     Adam                                             every rank for itself, and all come to the same bits
 *
 * Losses are summed, not averaged, and divided by the number of samples at the end: parts of a batch may differ in
 * size, and an average of averages would then depend on the number of ranks.
 *
 * Whatever decides how the run goes on (the loss, the limit of steps) is the same number on all ranks. A decision
 * from anything else would leave the others waiting in a collective. Where there is none, as with a full disk on
 * rank 0, the error ends the rank, and main.c frees the others with ddp_abort. */
#include "trainer.h"

#include "library.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

bool trainer_is_first(const struct trainer *t)
{
    return ddp_rank(t->ctx) == 0;
}

struct checkpoint trainer_checkpoint(const struct trainer *t)
{
    return (struct checkpoint){
        .fact = { [FACT_EPOCHS] = (int64_t)t->epochs_done,
                  [FACT_STEPS] = t->adam.step,
                  [FACT_MODEL] = t->options->model,
                  [FACT_SEED] = (int64_t)t->options->seed,
                  [FACT_GLOBAL_BATCH] = (int64_t)t->split.global_batch,
                  [FACT_SAMPLES] = (int64_t)t->split.samples },
        .loss = t->loss,
        .count = t->model->params.count,
        .params = t->model->params.values,
        .m = t->m,
        .v = t->v,
    };
}

/* The one look at a clock in this program; it goes into reports and decides nothing. */
static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* --- one step ---------------------------------------------------------------------------------------- */

/* Gradients live in the reducer's shared memory, and may have moved there. */
static ddp_status begin(struct trainer *t, struct ddp_err *err)
{
    ddp_status status = library(ddp_reducer_forward(t->reducer), err);
    for (size_t i = 0; i < t->model->params.n && status == DDP_OK; i++)
        t->grad[i] = ddp_reducer_grad(t->reducer, i);
    return status;
}

/* In the order in which gradients come out of a backward pass. */
static ddp_status param_ready(void *user, size_t i, struct ddp_err *err)
{
    struct trainer *t = user;
    return library(ddp_reducer_ready(t->reducer, i), err);
}

/* The same gradients, the same moments, the same order of operations on every rank: nothing need be sent. */
static void update(struct trainer *t)
{
    float *m = t->m, *v = t->v;
    ddp_optim_begin(&t->adam);
    for (size_t i = 0; i < t->model->params.n; i++) {
        const struct model_tensor *p = &t->model->params.each[i];
        size_t n = p->count;
        ddp_optim_update(&t->adam, p->value, t->grad[i], m, v, n);
        m += n;
        v += n;
    }
}

/* Tensor after tensor, as in the model; for comparing runs with each other. */
static ddp_status dump_gradient(struct trainer *t, struct ddp_err *err)
{
    bool failed = false;
    if (t->dump == NULL)
        return DDP_OK;
    for (size_t i = 0; i < t->model->params.n; i++) {
        size_t n = t->model->params.each[i].count;
        failed |= fwrite(t->grad[i], sizeof(float), n, t->dump) != n;
    }
    return failed ? ddp_fail(err, DDP_ERR_IO, "--dump_gradients %s: write: %s", t->options->dump_gradients,
                             strerror(errno))
                  : DDP_OK;
}

/* In double, so that 200 000 small squares do not get lost in a large sum. */
static double gradient_norm(const struct trainer *t)
{
    double sum = 0;
    for (size_t i = 0; i < t->model->params.n; i++) {
        for (size_t k = 0; k < t->model->params.each[i].count; k++)
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
    if (status != DDP_OK || !trainer_is_first(t))
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
    ddp_status status = begin(t, err);
    if (status != DDP_OK)
        return status;
    const struct model_ready ready = { param_ready, t };
    double loss;
    status = gradient_compute(&t->gradient, step, t->grad, &ready, &loss, err);
    at[1] = now_us();
    if (status == DDP_OK)
        status = library(ddp_reducer_finish(t->reducer), err);
    if (status == DDP_OK)
        status = dump_gradient(t, err);
    if (status != DDP_OK)
        return status;
    at[2] = now_us();
    update(t);
    at[3] = now_us();
    *loss_sum += loss;
    t->steps_here++;
    ddp_progress(t->ctx,
                 (uint64_t)t->adam.step); /* a launcher that does not hear of it is no reason to stop */
    return tell_step(t, step, loss, at, err);
}

/* --- epochs ------------------------------------------------------------------------------------------ */

/* A limit counts the steps of this run, not those of the runs it goes on from. */
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

/* The other ranks go on; they meet rank 0 again in the next all-reduce. */
static ddp_status save(struct trainer *t, struct ddp_err *err)
{
    if (!trainer_is_first(t) || t->options->checkpoint == NULL)
        return DDP_OK;
    struct checkpoint c = trainer_checkpoint(t);
    return checkpoint_save(t->options->checkpoint, &c, err);
}

/* The loss is the same on all ranks, so all of them stop when it has exploded. */
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

/* Only behind a checkpoint that rank 0 has written: it asks after that, and the others hear its answer. Until the
 * launcher stops this world, training goes on. */
static ddp_status let_in(struct trainer *t, struct ddp_err *err)
{
    int32_t nodes = 0;
    uint32_t waiting = 0;
    if (!t->options->grow || t->epochs_done == t->options->epochs)
        return DDP_OK;
    if (trainer_is_first(t) && ddp_grow_waiting(t->ctx, &waiting) == DDP_OK)
        nodes = (int32_t)waiting;
    ddp_status status = library(ddp_broadcast(ddp_world(t->ctx), &nodes, 1, DDP_I32, 0, NULL, NULL), err);
    if (status != DDP_OK || nodes == 0)
        return status;
    journal_line(&t->journal, "%d node%s could join; ready to go on with them from epoch %" PRIu64,
                 (int)nodes, nodes == 1 ? "" : "s", t->epochs_done);
    ddp_grow_agree(t->ctx); /* a store that does not hear it leaves the world as it is */
    return DDP_OK;
}

/* Train, test, tell, save. An epoch that a limit has cut short is told, but not saved: there is no way to go
 * on in the middle of one. */
static ddp_status train_epoch(struct trainer *t, struct ddp_err *err)
{
    uint64_t steps, samples, start = now_us();
    ddp_status status = train_steps(t, &steps, &samples, err);
    uint64_t us = now_us() - start;
    if (status == DDP_OK)
        status = evaluate(t->model, &t->test_set, t->ctx, &t->accuracy, err);
    if (status == DDP_OK)
        status = tell_epoch(t, samples, us, err);
    t->samples_here += samples;
    t->train_us += us;
    if (status != DDP_OK || steps < t->split.steps)
        return status;
    t->epochs_done++;
    status = save(t, err);
    return status == DDP_OK ? let_in(t, err) : status;
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

/* For people a line, for programs a file. */
static ddp_status summarize(struct trainer *t, uint64_t hash, struct ddp_err *err)
{
    double seconds = (double)t->train_us / 1e6;
    struct journal_summary s = {
        .model = model_names[t->options->model],
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
    return trainer_is_first(t) && t->options->summary != NULL ? journal_summary(t->options->summary, &s, err)
                                                              : DDP_OK;
}

ddp_status trainer_run(struct trainer *t, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    while (t->epochs_done < t->options->epochs && !limit_reached(t) && status == DDP_OK)
        status = train_epoch(t, err);
    if (status == DDP_OK && t->steps_here == 0) { /* resumed at the end: nothing to train, but to tell */
        journal_line(&t->journal, "all %" PRIu64 " epochs are done already", t->options->epochs);
        status = evaluate(t->model, &t->test_set, t->ctx, &t->accuracy, err);
    }
    if (status != DDP_OK)
        return status;
    uint64_t hash = model_hash(t->model);
    status = compare_hashes(t, hash, err);
    return status == DDP_OK ? summarize(t, hash, err) : status;
}
