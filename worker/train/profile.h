/* profile.h -- a trace of all ranks in one file, written by rank 0. */
#ifndef WORKER_TRAIN_PROFILE_H
#define WORKER_TRAIN_PROFILE_H

#include "ddp/group.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The time of each phase of a step. Pure.
 *
 *     phases_start(&p)                                  a new step
 *     phases_begin(&p, PHASE_BACKWARD, now)
 *         phases_begin(&p, PHASE_EXPOSED, now)          nested: not counted as backward
 *         phases_end(&p, now)
 *     phases_end(&p, now)
 *
 * us[] has the exact sum for each phase. For the trace, single pieces are stored too while there is room, except
 * nested pieces shorter than PHASES_SHORT_US. */

/* name, name in a trace, name in metrics. In EXPOSED the program waits for communication and computes nothing. */
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
extern const char *const phase_words[PHASES], *const phase_key[PHASES];

enum { PHASES_PIECES = 128, PHASES_DEPTH = 4, PHASES_SHORT_US = 20 };

struct phases_piece {
    uint64_t phase, begin_us, end_us;
};

struct phases {
    uint64_t us[PHASES]; /* microseconds of each phase, without nested phases */
    uint64_t count;      /* number of pieces */
    struct phases_piece piece[PHASES_PIECES];
    /* number of open phases, the innermost last */
    int depth;
    struct {
        enum phase phase;
        uint64_t begin_us, inside_us;
    } open[PHASES_DEPTH];
};

void phases_start(struct phases *p);
void phases_begin(struct phases *p, enum phase phase, uint64_t now_us);
void phases_end(struct phases *p, uint64_t now_us);

/* --- trace ------------------------------------------------------------------------------------------------ */

/* The trace file: the format of Chrome's trace viewer (chrome://tracing, ui.perfetto.dev), one JSON object per
 * line. Pure.
 *
 *     [
 *     {"name":"process_name","ph":"M","pid":0,"args":{"name":"rank 0"}},
 *     {"name":"forward","ph":"X","pid":0,"tid":0,"ts":12,"dur":340,"args":{"step":1}},
 *
 * The viewers accept a list without its end, so the file of a killed run can be viewed too. */

enum { TRACE_LINE = 256 }; /* bytes of the longest line */

/* Write a line with newline and NUL to `to`. Return its length without the NUL. */
size_t trace_rank(char to[TRACE_LINE], int rank);
size_t trace_piece(char to[TRACE_LINE], int rank, const char *name, uint64_t begin_us, uint64_t us,
                   uint64_t step);

/* Text before the first line and after the last line. Lines end with a comma, so trace_end begins with an empty
 * object. */
extern const char trace_begin[], trace_end[];

struct profile {
    ddp_ctx *ctx;
    const char *path;         /* NULL: no profile; all functions do nothing */
    FILE *file;               /* on rank 0 */
    struct phases_piece *all; /* on rank 0: room for the pieces of all ranks */
    uint64_t *count;
    int64_t shift_us; /* time of day minus this machine's monotonic clock */
};

/* Open the profile. `path` is borrowed and may be NULL. The caller must close *p also after an error. */
ddp_status profile_open(struct profile *p, const char *path, ddp_ctx *ctx, struct ddp_err *err);
ddp_status profile_close(struct profile *p, struct ddp_err *err);

/* Write the phases of step `step` of all ranks; collective. */
ddp_status profile_step(struct profile *p, const struct phases *phases, uint64_t step, struct ddp_err *err);

#endif
