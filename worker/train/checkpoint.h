/* checkpoint.h -- saves a training run to checkpoints in a directory. Another run can continue from a checkpoint
 * exactly, also in the middle of an epoch. The other run may have another number of ranks, because the saved data do
 * not depend on this number. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "ddp/ckpt.h"
#include "train/optimizer.h"

/* Columns: name, text, flag. The flag is 1 if a resumed run must have the same value. Files store the facts in
 * this order, so add new facts at the end. */
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

/* The data of a checkpoint. A file has the facts above, the losses, the parameters in float32, the model's buffers, the
 * optimizer's state, and the scale of the loss. The usual calls:
 *
 *     rank 0:     checkpoint_open -> checkpoint_save, any number of times -> ddp_ckpts_close
 *     all ranks:  checkpoint_resume */
struct checkpoint {
    int64_t fact[FACTS];
    double loss;                 /* mean over the last complete epoch, for the final report */
    double epoch_loss;           /* sum of the losses of all ranks' samples in the current epoch */
    uint64_t samples;            /* number of samples used in the current epoch, summed over all ranks */
    struct optimizer *optimizer; /* borrowed; optimizer->slot must have the arrays of the whole model */
};

/* Set `newest` to the name of the newest checkpoint in `dir` and return 1. If `dir` has no checkpoint, return 0.
 * Damaged checkpoints count too, because a new run must not overwrite them. */
int checkpoint_exists(const char *dir, char newest[64]);

/* Open the directory of the option --checkpoint, on rank 0. The caller owns *out. */
ddp_status checkpoint_open(const struct train_options *options, ddp_ckpts **out, struct ddp_err *err);

/* Copy the data and return; a thread writes the copy. If the thread fails, the next call returns the thread's error.
 * `world` is saved only as information. */
ddp_status checkpoint_save(ddp_ckpts *ckpts, const struct checkpoint *c, int world, struct ddp_err *err);

/* Load the newest undamaged checkpoint into `c` and the optimizer; collective. Rank 0 passes `ckpts`, and all
 * other ranks pass NULL. `c` must contain the facts of this run. Without a checkpoint, return DDP_OK and set
 * *found to 0. The text of DDP_ERR_MISMATCH names the fact and both values. The text of DDP_ERR_CORRUPT names
 * path, offset and remedy. */
ddp_status checkpoint_resume(ddp_ckpts *ckpts, const char *dir, struct checkpoint *c, int *found,
                             struct ddp_err *err);

#endif
