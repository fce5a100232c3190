/* trainer.h -- one worker's whole run: load, resume, train, test, save, report.
 *
 *     trainer_open -> trainer_run -> trainer_close
 *
 * Everything is the same on every rank except which samples it sees and, on rank 0, that it talks and writes
 * files. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/trainer_state.h"

/* Collective. On an error call trainer_close as well. */
ddp_status trainer_open(struct trainer *t, const struct train_options *options, ddp_ctx *ctx,
                        struct ddp_err *err);

/* Collective. All epochs, then the summary. */
ddp_status trainer_run(struct trainer *t, struct ddp_err *err);

/* Free everything. Collective, unless the context is broken or aborted. An error is the first of what could
 * not be ended well: a file that could not be flushed, a rank that did not come. */
ddp_status trainer_close(struct trainer *t, struct ddp_err *err);

#endif
