/* profile.h -- a trace of all ranks in one file, written by rank 0. */
#ifndef WORKER_TRAIN_PROFILE_H
#define WORKER_TRAIN_PROFILE_H

#include "ddp/group.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The time that each phase of a step took. Pure: the time is an argument.
 *
 *     phases_start(&p)                                  a new step
 *     phases_begin(&p, PHASE_BACKWARD, now)
 *         phases_begin(&p, PHASE_EXPOSED, now)          nested: does not count as backward
 *         phases_end(&p, now)
 *     phases_end(&p, now)
 *
 * Sums are exact, however often a phase occurs. Single pieces are kept for a trace while there is room. Nested pieces
 * shorter than PHASES_SHORT_US are not kept, because a trace would not show them. */

/* name, in a trace, in metrics. EXPOSED: the program waits for communication and computes nothing meanwhile. */
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

/* The format of Chrome's trace viewer (chrome://tracing, ui.perfetto.dev), one JSON object per line. Pure.
 *
 *     [
 *     {"name":"process_name","ph":"M","pid":0,"args":{"name":"rank 0"}},
 *     {"name":"forward","ph":"X","pid":0,"tid":0,"ts":12,"dur":340,"args":{"step":1}},
 *
 * The viewers accept a list that is not closed, so the file of a killed run can be viewed too. */

enum { TRACE_LINE = 256 }; /* bytes of the longest line */

/* Write a line with its newline and NUL into `to`. Return the line's length without the NUL. */
size_t trace_rank(char to[TRACE_LINE], int rank);
size_t trace_piece(char to[TRACE_LINE], int rank, const char *name, uint64_t begin_us, uint64_t us,
                   uint64_t step);

/* Text before the first line and after the last line. The last line ends with a comma, so an object must follow. */
extern const char trace_begin[], trace_end[];

struct profile {
    ddp_ctx *ctx;
    const char *path;         /* NULL: no profile; all functions do nothing */
    FILE *file;               /* on rank 0 */
    struct phases_piece *all; /* on rank 0: room for the pieces of all ranks */
    uint64_t *count;
    int64_t
        shift_us; /* added to this machine's monotonic clock to get the time of day, which is common to all hosts */
};

/* Open the profile. `path` is borrowed and may be NULL. After an error profile_close is still required. */
ddp_status profile_open(struct profile *p, const char *path, ddp_ctx *ctx, struct ddp_err *err);
ddp_status profile_close(struct profile *p, struct ddp_err *err);

/* Write step `step` of all ranks; collective. */
ddp_status profile_step(struct profile *p, const struct phases *phases, uint64_t step, struct ddp_err *err);

#endif
