/* schedule.h -- the learning rate of each step, as pure arithmetic. The rate is equal on all ranks, because it depends
 * only on the step. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stdint.h>

/* Columns: name, word in the options. The rate depends on x, from 0 (end of the warm-up) to 1 (end of the run):
 *   CONSTANT  lr        COSINE  final + (lr - final) (1 + cos(pi x)) / 2        LINEAR  lr + (final - lr) x */
#define SCHEDULE_LIST(X)    \
    X(CONSTANT, "constant") \
    X(COSINE, "cosine")     \
    X(LINEAR, "linear")

enum schedule_kind {
#define X(name, word) SCHEDULE_##name,
    SCHEDULE_LIST(X)
#undef X
};

struct schedule {
    enum schedule_kind kind;
    double lr, final_lr;
    uint64_t warmup; /* number of steps in which the rate grows up to lr */
    uint64_t steps;  /* steps of the whole run */
};

/* Return the learning rate of step `step`, counted from 0. After the end of the run the rate stays constant. */
double schedule_lr(const struct schedule *s, uint64_t step);

#endif
