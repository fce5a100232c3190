/* checkpoint.h -- saves a training run to checkpoints in a directory. Another run, with any number of ranks, can
 * continue exactly, also in the middle of an epoch. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "ddp/ckpt.h"
#include "train/optimizer.h"

/* Columns: name, text, 1 if a resumed run must have the same value. Files have this order, so add new facts at the
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
    X(UPDATES, "number of updates, without skipped updates", 0)

enum checkpoint_fact {
#define X(name, text, must_match) FACT_##name,
    CHECKPOINT_FACTS(X)
#undef X
        FACTS
};

/* The data of a checkpoint. The usual calls:
 *
 *     rank 0:     checkpoint_open -> checkpoint_save, any number of times -> ddp_ckpts_close
 *     all ranks:  checkpoint_resume */
struct checkpoint {
    int64_t fact[FACTS];
    double loss;                 /* mean over the last complete epoch */
    double epoch_loss;           /* sum over all ranks' samples in this epoch */
    uint64_t samples;            /* samples of all ranks in this epoch */
    struct optimizer *optimizer; /* borrowed; optimizer->slot has the whole model's arrays */
};

/* Set `newest` to the name of the newest checkpoint in `dir` and return 1, or return 0. Damaged checkpoints count,
 * because a new run must not overwrite them. */
int checkpoint_exists(const char *dir, char newest[64]);

/* Open the directory of the option --checkpoint, on rank 0. The caller owns *out. */
ddp_status checkpoint_open(const struct train_options *options, ddp_ckpts **out, struct ddp_err *err);

/* Copy the data, which a thread writes. The next call returns its error. `world` is only information. */
ddp_status checkpoint_save(ddp_ckpts *ckpts, const struct checkpoint *c, int world, struct ddp_err *err);

/* Load the newest undamaged checkpoint into `c`, which has the facts of this run; collective. Only rank 0 passes
 * `ckpts`. Without a checkpoint, return DDP_OK and set *found to 0. The text of DDP_ERR_MISMATCH names the fact
 * and both values. The text of DDP_ERR_CORRUPT names path and offset. */
ddp_status checkpoint_resume(ddp_ckpts *ckpts, const char *dir, struct checkpoint *c, int *found,
                             struct ddp_err *err);

#endif
