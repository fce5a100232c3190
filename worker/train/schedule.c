/* schedule.c -- see schedule.h.
 *
 * The warm-up is the same as in llm.c: the rate is lr / warmup in step 0 and reaches lr in step warmup - 1. The rate of
 * step 0 is above 0, because a step with rate 0 would be wasted. */
#include "train/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* Return the position between the end of the warm-up (0) and the end of the run (1). */
static double position(const struct schedule *s, uint64_t step)
{
    if (step >= s->steps || s->steps <= s->warmup)
        return 1;
    return (double)(step - s->warmup) / (double)(s->steps - s->warmup);
}

double schedule_lr(const struct schedule *s, uint64_t step)
{
    if (step < s->warmup)
        return s->lr * (double)(step + 1) / (double)s->warmup;
    switch (s->kind) {
    case SCHEDULE_COSINE:
        return s->final_lr + (s->lr - s->final_lr) * (1 + cos(pi * position(s, step))) / 2;
    case SCHEDULE_LINEAR:
        return s->lr + (s->final_lr - s->lr) * position(s, step);
    default:
        return s->lr;
    }
}
