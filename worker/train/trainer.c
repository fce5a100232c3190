/* trainer.c -- see trainer.h: epochs, the end. A step is in trainer_step.c.
 *
 * Losses are summed, not averaged, and divided by the number of samples at the end: parts of a batch may differ in
 * size, and an average of averages would then depend on the number of ranks.
 *
 * Whatever decides how the run goes on (the loss, the limit of steps) is the same number on all ranks. A decision
 * from anything else would leave the others waiting in a collective. Where there is none, as with a full disk on
 * rank 0, the error ends the rank, and main.c frees the others with ddp_abort. */
#include "train/trainer.h"

#include "train/library.h"
#include "train/llmc_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- do all ranks have the same? --------------------------------------------------------------------- */

/* All ranks have computed the same bits, or something is badly wrong: memory, a machine unlike the others, a race. */
static ddp_status compare(const struct trainer *t, const int64_t *hash, struct ddp_err *err)
{
    for (int rank = 1; rank < t->split.world_size; rank++) {
        if (hash[rank] != hash[0])
            return ddp_fail(err, DDP_ERR_MISMATCH,
                            "after step %" PRIu64
                            " rank %d has other parameters than rank 0: their hashes are "
                            "%016" PRIx64 " and %016" PRIx64,
                            t->steps_done, rank, (uint64_t)hash[rank], (uint64_t)hash[0]);
    }
    return DDP_OK;
}

static ddp_status compare_ranks(struct trainer *t, uint64_t *hash, struct ddp_err *err)
{
    ddp_status status = trainer_fetch(t, err);
    if (status != DDP_OK)
        return status;
    int64_t mine = (int64_t)(*hash = model_hash(t->model));
    int64_t *all = calloc((size_t)t->split.world_size, sizeof(*all));
    if (all == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the hashes of %d ranks", t->split.world_size);
    status = library(ddp_all_gather(ddp_world(t->ctx), &mine, all, 1, DDP_I64, NULL, NULL), err);
    if (status == DDP_OK)
        status = compare(t, all, err);
    free(all);
    return status;
}

/* --- epochs ------------------------------------------------------------------------------------------ */

/* A limit counts the steps of this run, not those of the runs it goes on from. */
static bool limit_reached(const struct trainer *t)
{
    return t->options->limit_steps != 0 && t->steps_here >= t->options->limit_steps;
}

static bool is_due(const struct trainer *t, uint64_t every)
{
    return every != 0 && t->steps_done % every == 0;
}

/* What is wrong is not saved. In the middle of an epoch; at its end it is saved anyway. */
static ddp_status after_step(struct trainer *t, struct ddp_err *err)
{
    uint64_t hash;
    ddp_status status = is_due(t, t->options->check_every) ? compare_ranks(t, &hash, err) : DDP_OK;
    if (status == DDP_OK && is_due(t, t->options->checkpoint_every) && t->epoch_step < t->split.steps)
        status = trainer_save(t, err);
    return status;
}

/* All steps of an epoch that are left, or fewer when the limit comes first. Sets t->loss. */
static ddp_status train_steps(struct trainer *t, struct ddp_err *err)
{
    ddp_status status = feed_start_epoch(&t->feed, t->epochs_done, t->epoch_step, err);
    while (t->epoch_step < t->split.steps && !limit_reached(t) && status == DDP_OK) {
        status = trainer_step(t, t->epoch_step, err);
        t->epoch_step++;
        if (status == DDP_OK)
            status = after_step(t, err);
        journal_progress(&t->journal, t->epochs_done + 1, t->options->epochs, t->epoch_step, t->split.steps);
    }
    if (status == DDP_OK)
        status = trainer_sum_loss(t, err);
    t->loss = t->epoch_loss / (double)(trainer_epoch_samples(t) * t->train_set.length);
    return status;
}

/* The loss is the same on all ranks, so all of them stop when it has exploded. */
static ddp_status tell_epoch(struct trainer *t, uint64_t samples, uint64_t us, struct ddp_err *err)
{
    struct journal_epoch line = {
        .epoch = t->epochs_done + 1,
        .epochs = t->options->epochs,
        .step = t->steps_done,
        .loss = t->loss,
        .correct = t->accuracy.correct,
        .tested = t->accuracy.samples,
        .test_loss = t->accuracy.loss,
        .samples_per_s = (double)samples * 1e6 / (double)(us + 1),
    };
    if (!isfinite(t->loss))
        return ddp_fail(err, DDP_ERR_ARG, "epoch %" PRIu64 ": the loss is %f; try a smaller --lr than %g",
                        line.epoch, fabs(t->loss), t->options->lr);
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
    ddp_status status = checkpoint_wait(t->ckpts, err);
    if (status != DDP_OK)
        return status;
    if (trainer_is_first(t) && ddp_grow_waiting(t->ctx, &waiting) == DDP_OK)
        nodes = (int32_t)waiting;
    status = library(ddp_broadcast(ddp_world(t->ctx), &nodes, 1, DDP_I32, 0, NULL, NULL), err);
    if (status != DDP_OK || nodes == 0)
        return status;
    journal_line(&t->journal, "%d node%s could join; ready to go on with them from epoch %" PRIu64,
                 (int)nodes, nodes == 1 ? "" : "s", t->epochs_done);
    ddp_grow_agree(t->ctx); /* a store that does not hear it leaves the world as it is */
    return DDP_OK;
}

/* After each N epochs, the last one, and what a limit has cut short. */
static bool is_test_due(const struct trainer *t)
{
    return (t->epochs_done + 1) % t->options->eval_every == 0 || t->epochs_done + 1 == t->options->epochs ||
           t->epoch_step < t->split.steps;
}

static ddp_status test(struct trainer *t, struct ddp_err *err)
{
    return evaluate(t->model, &t->test_set, t->ctx, &t->accuracy, err);
}

static ddp_status end_epoch(struct trainer *t, struct ddp_err *err)
{
    t->epochs_done++;
    t->epoch_step = 0;
    t->epoch_loss = 0;
    ddp_status status = trainer_save(t, err);
    return status == DDP_OK ? let_in(t, err) : status;
}

/* Train, test, tell, save. */
static ddp_status train_epoch(struct trainer *t, struct ddp_err *err)
{
    uint64_t start = trainer_now_us(), before = trainer_epoch_samples(t);
    ddp_status status = train_steps(t, err);
    uint64_t us = trainer_now_us() - start, samples = trainer_epoch_samples(t) - before;
    t->accuracy = (struct accuracy){ 0 };
    if (status == DDP_OK && is_test_due(t))
        status = test(t, err);
    if (status == DDP_OK)
        status = tell_epoch(t, samples, us, err);
    t->samples_here += samples;
    t->train_us += us;
    if (status != DDP_OK)
        return status;
    return t->epoch_step < t->split.steps ? trainer_save(t, err) : end_epoch(t, err);
}

/* --- the end ----------------------------------------------------------------------------------------- */

/* For people a line, for programs a file. */
static ddp_status summarize(struct trainer *t, uint64_t hash, struct ddp_err *err)
{
    double seconds = (double)t->train_us / 1e6;
    struct journal_summary s = {
        .model = model_names[t->options->model],
        .world_size = t->split.world_size,
        .epochs = t->epochs_done,
        .steps = t->steps_done,
        .global_batch = t->split.global_batch,
        .seed = t->options->seed,
        .lr = t->options->lr,
        .final_loss = t->loss,
        .correct = t->accuracy.correct,
        .tested = t->accuracy.samples,
        .test_loss = t->accuracy.loss,
        .samples_per_s = seconds > 0 ? (double)t->samples_here / seconds : 0,
        .train_s = seconds,
        .resumed_epochs = t->resumed_epochs,
        .param_hash = hash,
    };
    journal_line(&t->journal, "parameters %016" PRIx64 " after %" PRIu64 " step%s, %.1f s of training", hash,
                 s.steps, s.steps == 1 ? "" : "s", seconds);
    return trainer_is_first(t) && t->options->summary != NULL ? journal_summary(t->options->summary, &s, err)
                                                              : DDP_OK;
}

/* Nothing to train, but to tell: --eval, or a run that is resumed at its end. */
static ddp_status only_test(struct trainer *t, struct ddp_err *err)
{
    if (!t->options->eval)
        journal_line(&t->journal, "all %" PRIu64 " epochs are done already", t->options->epochs);
    ddp_status status = test(t, err);
    if (status == DDP_OK && t->options->eval)
        journal_line(&t->journal, "test accuracy %.4f (%" PRId64 " of %" PRId64 "), test loss %.6f",
                     (double)t->accuracy.correct / (double)t->accuracy.samples, t->accuracy.correct,
                     t->accuracy.samples, t->accuracy.loss);
    return status;
}

/* All bits of the parameters, which with 16 bits are the optimiser's. */
static ddp_status export_model(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    if (o->export_to == NULL)
        return DDP_OK;
    ddp_status status = optimizer_gather(&t->optimizer, err);
    if (status != DDP_OK || !trainer_is_first(t))
        return status;
    status = llmc_save(o->export_to, &models[o->model], &t->model->params, t->optimizer.slot[0], err);
    if (status != DDP_OK)
        return ddp_wrap(err, "--export");
    journal_line(&t->journal, "exported to %s", o->export_to);
    return DDP_OK;
}

ddp_status trainer_run(struct trainer *t, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    while (!t->options->eval && t->epochs_done < t->options->epochs && !limit_reached(t) && status == DDP_OK)
        status = train_epoch(t, err);
    if (status == DDP_OK && t->steps_here == 0)
        status = only_test(t, err);
    if (status != DDP_OK)
        return status;
    uint64_t hash;
    status = compare_ranks(t, &hash, err);
    if (status == DDP_OK)
        status = export_model(t, err);
    return status == DDP_OK ? summarize(t, hash, err) : status;
}
