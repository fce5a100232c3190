/* trainer_save.c -- see trainer_state.h: the run as it is now into a checkpoint, and back. */
#include "train/trainer_state.h"

#include <inttypes.h>

/* Facts that tell this run from others, and where it stands. */
static struct checkpoint describe(struct trainer *t)
{
    const struct train_options *o = t->options;
    return (struct checkpoint){
        .fact = { [FACT_EPOCHS] = (int64_t)t->epochs_done,
                  [FACT_STEPS] = (int64_t)t->steps_done,
                  [FACT_MODEL] = models_mark(model_names[o->model]),
                  [FACT_SEED] = (int64_t)o->seed,
                  [FACT_GLOBAL_BATCH] = (int64_t)t->split.global_batch,
                  [FACT_SAMPLES] = (int64_t)t->split.samples,
                  [FACT_OPTIMIZER] = o->optimizer,
                  [FACT_PRECISION] = o->precision,
                  [FACT_DETERMINISM] = o->determinism,
                  [FACT_ACCUMULATE] = (int64_t)o->accumulate,
                  [FACT_UPDATES] = optimizer_rule(&t->optimizer)->step },
        .loss = t->loss,
        .epoch_loss = t->epoch_loss,
        .samples = trainer_epoch_samples(t),
        .optimizer = &t->optimizer,
    };
}

/* The others go on at once; they meet rank 0 again in the next all-reduce. */
ddp_status trainer_save(struct trainer *t, struct ddp_err *err)
{
    if (t->options->checkpoint == NULL || t->saved_step == t->steps_done)
        return DDP_OK;
    t->saved_step = t->steps_done;
    ddp_status status = trainer_sum_loss(t, err);
    if (status == DDP_OK)
        status = optimizer_gather(&t->optimizer, err);
    if (status != DDP_OK || !trainer_is_first(t))
        return status;
    struct checkpoint c = describe(t);
    return checkpoint_save(t->ckpts, &c, t->split.world_size, err);
}

static void tell(struct trainer *t)
{
    const char *what = t->options->eval ? "eval: testing the checkpoint" : "resume: going on";
    if (t->epoch_step == 0)
        journal_line(&t->journal, "%s after epoch %" PRIu64 " of %s", what, t->epochs_done,
                     t->options->checkpoint);
    else
        journal_line(&t->journal, "%s in epoch %" PRIu64 " after %" PRIu64 " of %" PRIu64 " steps of %s",
                     what, t->epochs_done + 1, t->epoch_step, t->split.steps, t->options->checkpoint);
}

static void take_over(struct trainer *t, const struct checkpoint *c)
{
    t->epochs_done = t->resumed_epochs = (uint64_t)c->fact[FACT_EPOCHS];
    t->steps_done = t->saved_step = (uint64_t)c->fact[FACT_STEPS];
    t->epoch_step = c->samples / t->split.global_batch;
    t->loss = c->loss;
    t->epoch_loss = c->epoch_loss;
}

/* Rank 0 reads, everyone gets what it holds: one reader for a disk that may be slow or somebody else's, and no way for two
 * ranks to go on from two steps. */
static ddp_status load(struct trainer *t, struct ddp_err *err)
{
    struct checkpoint c = describe(t);
    int found = 0;
    ddp_status status = checkpoint_resume(t->ckpts, t->options->checkpoint, &c, &found, err);
    if (status == DDP_OK && !found && t->options->eval)
        return ddp_fail(err, DDP_ERR_ARG, "--eval: there is no checkpoint in %s", t->options->checkpoint);
    if (status == DDP_OK && !found)
        journal_line(&t->journal, "resume: no checkpoint in %s yet, starting anew", t->options->checkpoint);
    if (status != DDP_OK || !found)
        return status;
    take_over(t, &c);
    tell(t);
    return DDP_OK;
}

ddp_status trainer_resume(struct trainer *t, struct ddp_err *err)
{
    const struct train_options *o = t->options;
    ddp_status status = DDP_OK;
    if (trainer_is_first(t))
        status = checkpoint_open(o, &t->optimizer, &t->ckpts, err);
    return status == DDP_OK && (o->resume || o->eval) ? load(t, err) : status;
}
