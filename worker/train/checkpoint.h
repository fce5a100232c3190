/* checkpoint.h -- a training run as one file, so that the next run goes on exactly where this one was.
 *
 * What is saved is the same on every rank and does not depend on their number: parameters, Adam's moments and
 * the facts below. Rank 0 writes and reads; the others get it by broadcast. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

/* Name, what it is, 1 if a run that goes on must have the same. Order and size are the file's: add at the
 * end. */
#define CHECKPOINT_FACTS(X)                                                       \
    X(EPOCHS, "epochs done", 0)                                                   \
    X(STEPS, "steps done", 0)                                                     \
    X(MODEL, "--model", 1)                                                        \
    X(SEED, "--seed", 1)                                                          \
    X(GLOBAL_BATCH, "global batch (--global_batch, or --batch times workers)", 1) \
    X(SAMPLES, "number of training samples", 1)

enum checkpoint_fact {
#define X(name, text, must_match) FACT_##name,
    CHECKPOINT_FACTS(X)
#undef X
        FACTS
};

struct checkpoint {
    int64_t fact[FACTS];
    double loss;           /* of the last epoch, so that a finished run can still tell it */
    size_t count;          /* parameters of the model */
    float *params, *m, *v; /* so many each, borrowed */
};

/* Write `c` to DIR/train.ckpt: whole, or the old one stays. */
ddp_status checkpoint_save(const char *dir, const struct checkpoint *c, struct ddp_err *err);

/* Is there a DIR/train.ckpt? */
int checkpoint_exists(const char *dir);

/* Read DIR/train.ckpt into `c`, whose facts must hold those of this run. A file that is not there is DDP_OK
 * with *found = 0. DDP_ERR_MISMATCH names the fact and both values, DDP_ERR_CORRUPT path, offset and what to
 * do. On an error `c` is unchanged. */
ddp_status checkpoint_load(const char *dir, struct checkpoint *c, int *found, struct ddp_err *err);

#endif
