/* profile.h -- a trace of all ranks in one file, written by rank 0. */
#ifndef TRAIN_PROFILE_H
#define TRAIN_PROFILE_H

#include "ddp/group.h"
#include "train/phases.h"

#include <stdio.h>

struct profile {
    ddp_ctx *ctx;
    const char *path;         /* NULL: nobody wants one, all calls do nothing */
    FILE *file;               /* rank 0's */
    struct phases_piece *all; /* rank 0's: room for the pieces of all ranks */
    uint64_t *count;
    int64_t
        shift_us; /* from this machine's monotonic clock to the time of day, which other hosts have, too */
};

/* `path` is borrowed, and may be NULL. On an error call profile_close, too. */
ddp_status profile_open(struct profile *p, const char *path, ddp_ctx *ctx, struct ddp_err *err);
ddp_status profile_close(struct profile *p, struct ddp_err *err);

/* Collective: step `step` of all ranks. */
ddp_status profile_step(struct profile *p, const struct phases *phases, uint64_t step, struct ddp_err *err);

#endif
