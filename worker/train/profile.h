/* profile.h -- a trace of all ranks in one file, written by rank 0. Phases are measured in every run, because metrics
 * need their sums, but only --profile writes the trace. Either all ranks or no rank must have --profile, because
 * profile_step is collective. */
#ifndef WORKER_TRAIN_PROFILE_H
#define WORKER_TRAIN_PROFILE_H

#include "ddp/group.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The time of each phase of a step. These functions are pure.
 *
 *     phases_start(&p)                                  a new step
 *     phases_begin(&p, PHASE_BACKWARD, now)
 *         phases_begin(&p, PHASE_EXPOSED, now)          nested: not counted as backward
 *         phases_end(&p, now)
 *     phases_end(&p, now)
 *
 * us[] has the exact sums. A piece, the time from phases_begin() to phases_end(), is stored for the trace while there
 * is room, unless it is nested and shorter than PHASES_SHORT_US. */

/* The phases. Columns: name in C, in a trace, in metrics. In EXPOSED the program only waits for communication. */
#define PHASE_LIST(X)                              \
    X(DATA, "data", "data")                        \
    X(FORWARD, "forward", "fwd")                   \
    X(BACKWARD, "backward", "bwd")                 \
    X(EXPOSED, "exposed communication", "exposed") \
    X(OPTIMIZER, "optimizer", "opt")

enum phase {
#define X(name, words, key) PHASE_##name,
    PHASE_LIST(X)
#undef X
        PHASES
};
extern const char *const phase_key[PHASES];

enum { PHASES_PIECES = 128, PHASES_DEPTH = 4, PHASES_SHORT_US = 20 };

struct phases_piece {
    uint64_t phase, begin_us, end_us;
};

struct phases {
    uint64_t us[PHASES]; /* microseconds of each phase, without nested phases */
    uint64_t count;      /* number of entries in `piece` */
    struct phases_piece piece[PHASES_PIECES];
    int depth; /* number of entries in `open`, the phases that have not ended; the innermost phase is the last */
    struct {
        enum phase phase;
        uint64_t begin_us, inside_us;
    } open[PHASES_DEPTH];
};

void phases_start(struct phases *p);
void phases_begin(struct phases *p, enum phase phase, uint64_t now_us);
void phases_end(struct phases *p, uint64_t now_us);

/* The struct owns the file and both arrays, until profile_close. `ctx` and `path` are borrowed. */
struct profile {
    ddp_ctx *ctx;
    const char *path;         /* NULL if no profile is written; then all functions do nothing */
    FILE *file;               /* the trace file on rank 0; NULL on other ranks */
    struct phases_piece *all; /* on rank 0: room for the pieces of all ranks */
    uint64_t *count;
    int64_t shift_us; /* time of day minus this machine's monotonic clock */
};

/* Open the profile. `path` is borrowed and may be NULL. The caller must close *p also after an error. */
ddp_status profile_open(struct profile *p, const char *path, ddp_ctx *ctx, struct ddp_err *err);
ddp_status profile_close(struct profile *p, struct ddp_err *err);

/* Write the phases that all ranks had in step `step`; collective. */
ddp_status profile_step(struct profile *p, const struct phases *phases, uint64_t step, struct ddp_err *err);

#endif
