/* trainer.h -- the whole run of one worker: load, resume, train, test, save, report. All ranks do the same, except that
 * each rank has its own samples, and only rank 0 prints and writes files. After an error on one rank, such as a full
 * disk, main.c makes the other ranks fail (ddp_abort), because they may wait in a collective. */
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

/* Results of a test over all ranks. */
struct accuracy {
    int64_t correct, samples; /* number of correct predictions; number of pictures or tokens in the test */
    double loss;              /* mean loss */
};

/* The values of a step's report that are known before the loss of the step. A device returns the loss only while it
 * computes the next step. */
struct late {
    bool waits;           /* true if the report of this step waits for the loss */
    uint64_t step, epoch; /* number of the step in the whole run; number of the epoch; both from 1 */
    double samples, lr;
    uint64_t begun_us, us[PHASES];
};

/* A run: trainer_open -> trainer_run -> trainer_close. */
struct trainer {
    const struct train_options *options; /* borrowed, like `ctx` */
    ddp_ctx *ctx;

    struct dataset train_set, test_set;
    struct split split;
    struct batch_source source;
    struct compute *device; /* owned; NULL on the CPU */
    struct model *model;
    size_t length; /* tokens per sample; 0 for pictures */
    struct gradient gradient;
    struct optimizer optimizer;
    struct schedule schedule;

    struct phases phases; /* phases of the current step */
    struct late late;     /* the step whose loss the device has not returned yet; not used on the CPU */
    struct profile profile;
    struct journal journal;
    FILE *dump;       /* file for --dump_gradients, or NULL */
    ddp_ckpts *ckpts; /* set on rank 0; NULL on other ranks, or without --checkpoint */

    uint64_t epochs_done, resumed_epochs; /* number of epochs so far; number of these epochs that were done in
                                           * earlier runs */
    uint64_t epoch_step;                  /* number of steps in the current epoch so far */
    uint64_t steps_done, steps_here;      /* number of steps so far; number of these steps that were done in
                                           * this run */
    uint64_t saved_step;                  /* step of this run's newest checkpoint; 0 before the first save */
    uint64_t samples_here, train_us;      /* this run: samples of all ranks; duration in us, without tests */
    double loss;                          /* mean loss of the last epoch */
    /* losses of all ranks in this epoch, up to the last trainer_sum_loss; losses of this rank since then */
    double epoch_loss, loss_here;
    struct accuracy accuracy;
};

/* Return true on the rank that prints and writes files. */
static inline bool trainer_is_first(const struct trainer *t)
{
    return ddp_rank(t->ctx) == 0;
}

/* Copy the device's weights to the model's values. */
static inline ddp_status trainer_fetch(const struct trainer *t, struct ddp_err *err)
{
    return t->device != NULL ? t->device->ops->fetch(t->device, &t->model->params, err) : DDP_OK;
}

/* Return the number of samples in the first t->epoch_step steps of the epoch. */
static inline uint64_t trainer_epoch_samples(const struct trainer *t)
{
    const uint64_t samples = t->epoch_step * t->split.global_batch;
    return samples < t->split.samples ? samples : t->split.samples;
}

/* Open everything; collective. The caller must close *t also after an error. */
ddp_status trainer_open(struct trainer *t, const struct train_options *options, ddp_ctx *ctx,
                        struct ddp_err *err);

/* Run all epochs and write the summary; collective. */
ddp_status trainer_run(struct trainer *t, struct ddp_err *err);

/* Free everything; collective, unless the context is broken or aborted. Return the first error, for example of a
 * file that could not be flushed. */
ddp_status trainer_close(struct trainer *t, struct ddp_err *err);

#endif
