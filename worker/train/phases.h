/* phases.h -- where the time of a step went. Pure: the time is an argument.
 *
 *     phases_start(&p)                                  a new step
 *     phases_begin(&p, PHASE_BACKWARD, now)
 *         phases_begin(&p, PHASE_EXPOSED, now)          inside: does not count as backward
 *         phases_end(&p, now)
 *     phases_end(&p, now)
 *
 * Sums are exact, however often a phase comes. Single pieces are kept for a trace as long as there is room; what is
 * shorter than PHASES_SHORT_US and inside of another is left out there, as nobody could see it. */
#ifndef TRAIN_PHASES_H
#define TRAIN_PHASES_H

#include <stdint.h>

/* name, in a trace, in metrics. EXPOSED: the program waits for communication, instead of computing meanwhile. */
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
    uint64_t us[PHASES]; /* of each phase, without what was inside of it */
    uint64_t count;      /* of pieces */
    struct phases_piece piece[PHASES_PIECES];
    /* What is open now, innermost last. */
    int depth;
    struct {
        enum phase phase;
        uint64_t begin_us, inside_us;
    } open[PHASES_DEPTH];
};

void phases_start(struct phases *p);
void phases_begin(struct phases *p, enum phase phase, uint64_t now_us);
void phases_end(struct phases *p, uint64_t now_us);

#endif
