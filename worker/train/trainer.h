/* trainer.h -- one worker's whole run: load, resume, train, test, save, report.
 *
 *     trainer_open -> trainer_run -> trainer_close
 *
 * Everything is the same on every rank except which samples it sees and, on rank 0, that it talks and writes
 * files. */
#ifndef WORKER_TRAIN_TRAINER_H
#define WORKER_TRAIN_TRAINER_H

#include "ddp/group.h"
#include "train/checkpoint.h"
#include "train/compute.h"
#include "train/dataset.h"
#include "train/gradient.h"
#include "train/journal.h"
#include "train/models/model.h"
#include "train/models/models.h"
#include "train/optimizer.h"
#include "train/profile.h"
#include "train/schedule.h"
#include "train/train_options.h"

/* Accuracy on the test set, measured by all ranks together, every sample exactly once. */

struct accuracy {
    int64_t correct, samples; /* of tokens: how many of them */
    double loss;              /* their mean */
};

/* Collective. Fails when the ranks together have not seen each sample once. */
ddp_status evaluate(struct model *model, const struct dataset *set, ddp_ctx *ctx, struct accuracy *out,
                    struct ddp_err *err);

/* A device returns the loss of a step while the next is computed; this is the rest of that step's report. */
struct late {
    bool waits;
    uint64_t step, epoch; /* as in journal.h */
    double samples, lr;
    uint64_t begun_us, us[PHASES];
};

struct trainer {
    const struct train_options *options; /* borrowed, as is the context */
    ddp_ctx *ctx;

    struct dataset train_set, test_set;
    struct split split;
    struct feed feed;
    struct compute *device; /* ours; NULL = the CPU */
    struct model *model;
    size_t length; /* tokens of a sample; 0 = it is none of tokens */
    struct gradient gradient;
    struct optimizer optimizer;
    struct schedule schedule;

    struct phases phases; /* of the step that is made */
    struct late late;     /* with a device */
    struct profile profile;
    struct journal journal;
    FILE *dump;       /* of gradients; NULL = no */
    ddp_ckpts *ckpts; /* rank 0's; NULL = none */

    uint64_t epochs_done, resumed_epochs; /* by all runs; by those before this one */
    uint64_t epoch_step;                  /* steps done of the epoch that has begun */
    uint64_t steps_done, steps_here;      /* by all runs; by this one */
    uint64_t saved_step;                  /* what the newest checkpoint of this run has done; 0 = none yet */
    uint64_t samples_here, train_us;      /* seen by all ranks, and how long that took, without tests */
    double loss;                          /* of the last epoch, the mean over its samples */
    double epoch_loss,
        loss_here; /* sums over the epoch that has begun: of all ranks; of this one since then */
    struct accuracy accuracy;
};

/* Is this the rank that talks and writes files? */
static inline bool trainer_is_first(const struct trainer *t)
{
    return ddp_rank(t->ctx) == 0;
}

/* The model's values are those of the device. */
static inline ddp_status trainer_fetch(const struct trainer *t, struct ddp_err *err)
{
    return t->device != NULL ? t->device->ops->fetch(t->device, &t->model->params, err) : DDP_OK;
}

/* Samples of the first t->epoch_step steps of the epoch. */
static inline uint64_t trainer_epoch_samples(const struct trainer *t)
{
    const uint64_t samples = t->epoch_step * t->split.global_batch;
    return samples < t->split.samples ? samples : t->split.samples;
}

/* Collective. On an error call trainer_close as well. */
ddp_status trainer_open(struct trainer *t, const struct train_options *options, ddp_ctx *ctx,
                        struct ddp_err *err);

/* Collective. All epochs, then the summary. */
ddp_status trainer_run(struct trainer *t, struct ddp_err *err);

/* Free everything. Collective, unless the context is broken or aborted. An error is the first of what could
 * not be ended well: a file that could not be flushed, a rank that did not come. */
ddp_status trainer_close(struct trainer *t, struct ddp_err *err);

#endif
