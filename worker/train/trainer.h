/* trainer.h -- one worker's whole run: load, resume, train, test, save, report.
 *
 *     trainer_open -> trainer_run -> trainer_close
 *
 * Everything is the same on every rank except which samples it sees and, on rank 0, that it talks and writes
 * files. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "checkpoint.h"
#include "ddp/optim.h"
#include "ddp/reducer.h"
#include "evaluate.h"
#include "gradient.h"
#include "journal.h"
#include "models.h"
#include "train_options.h"

struct trainer {
    const struct train_options *options; /* borrowed, as is the context */
    ddp_ctx *ctx;

    struct dataset train_set, test_set;
    struct split split;
    struct feed feed;
    struct model *model;
    struct gradient gradient;
    ddp_reducer *reducer;
    float **grad; /* of each parameter, in the reducer's memory */
    ddp_optim adam;
    float *m, *v; /* Adam's moments, one piece of memory, begins at m */

    struct journal journal;
    FILE *dump; /* of gradients; NULL = no */

    uint64_t epochs_done, resumed_epochs; /* by all runs; by those before this one */
    uint64_t steps_here;                  /* done by this run */
    uint64_t samples_here, train_us;      /* seen by all ranks, and how long that took, without tests */
    double loss;                          /* of the last epoch */
    struct accuracy accuracy;
};

/* Collective. On an error call trainer_close as well. */
ddp_status trainer_open(struct trainer *t, const struct train_options *options, ddp_ctx *ctx,
                        struct ddp_err *err);

/* Collective. All epochs, then the summary. */
ddp_status trainer_run(struct trainer *t, struct ddp_err *err);

/* Free everything. Collective, unless the context is broken or aborted. An error is the first of what could
 * not be ended well: a file that could not be flushed, a rank that did not come. */
ddp_status trainer_close(struct trainer *t, struct ddp_err *err);

/* --- shared by trainer.c and trainer_open.c ------------------------------------------------------------ */

/* Is this the rank that talks and writes files? */
bool trainer_is_first(const struct trainer *t);

/* The run as it is now, as a checkpoint that borrows its memory. */
struct checkpoint trainer_checkpoint(const struct trainer *t);

#endif
