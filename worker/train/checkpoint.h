/* checkpoint.h -- a training run as a checkpoint in a directory, so that the next run goes on exactly where this one was, also
 * in the middle of an epoch and with another number of ranks.
 *
 *     rank 0:     checkpoint_open -> checkpoint_save now and then -> checkpoint_close
 *     all ranks:  checkpoint_resume
 *
 * What is saved is the same on every rank and does not depend on their number: parameters in float32, the model's buffers, the
 * optimiser's state, the loss's scale and the facts below. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "ddp/ckpt.h"
#include "train/optimizer.h"

/* Name, what it is, 1 if a run that goes on must have the same. Order and size are the file's: add at the
 * end. */
#define CHECKPOINT_FACTS(X)                                                       \
    X(EPOCHS, "epochs done", 0)                                                   \
    X(STEPS, "steps done", 0)                                                     \
    X(MODEL, "--model", 1)                                                        \
    X(SEED, "--seed", 1)                                                          \
    X(GLOBAL_BATCH, "global batch (--global_batch, or --batch times workers)", 1) \
    X(SAMPLES, "number of training samples", 1)                                   \
    X(OPTIMIZER, "--optimizer", 1)                                                \
    X(PRECISION, "--precision", 1)                                                \
    X(DETERMINISM, "--determinism", 1)                                            \
    X(ACCUMULATE, "--accumulate", 1)                                              \
    X(UPDATES, "updates made, without those that were skipped", 0)

enum checkpoint_fact {
#define X(name, text, must_match) FACT_##name,
    CHECKPOINT_FACTS(X)
#undef X
        FACTS
};

struct checkpoint {
    int64_t fact[FACTS];
    double loss;                 /* of the last whole epoch, so that a finished run can still tell it */
    double epoch_loss;           /* summed over the samples of the epoch that has begun, all ranks */
    uint64_t samples;            /* of that epoch that are done, over all ranks */
    struct optimizer *optimizer; /* borrowed; its slots are whole arrays */
};

/* Return whether `dir` has a checkpoint, and the name of the newest one. A checkpoint that cannot be read
 * counts as present, so that no run starts anew over it. */
int checkpoint_exists(const char *dir, char newest[64]);

/* For rank 0. DIR/train.ckpt, as earlier versions wrote it, becomes a checkpoint of today's kind when it is alone. */
ddp_status checkpoint_open(const struct train_options *options, struct optimizer *optimizer, ddp_ckpts **out,
                           struct ddp_err *err);

/* Returns when all is copied; a thread writes it. Its error comes with the next call. `world` is for people. */
ddp_status checkpoint_save(ddp_ckpts *ckpts, const struct checkpoint *c, int world, struct ddp_err *err);

/* Until all that was saved is on the disk. */
ddp_status checkpoint_wait(ddp_ckpts *ckpts, struct ddp_err *err);
ddp_status checkpoint_close(ddp_ckpts *ckpts, struct ddp_err *err);

/* Collective; `ckpts` is rank 0's, NULL elsewhere. Fill `c`, whose facts must hold those of this run, and the optimizer with
 * what the newest good checkpoint has. None is DDP_OK with *found = 0. DDP_ERR_MISMATCH names the fact and both values,
 * DDP_ERR_CORRUPT path, offset and what to do. */
ddp_status checkpoint_resume(ddp_ckpts *ckpts, const char *dir, struct checkpoint *c, int *found,
                             struct ddp_err *err);

#endif
