/* hurry.c -- see hurry.h. */
#include "contain/hurry.h"

#include <sched.h>

void hurry_begin(struct hurry *h)
{
    struct sched_param now, first = { .sched_priority = 1 };
    if (h->on)
        return;
    h->policy = sched_getscheduler(0);
    if (h->policy < 0 || sched_getparam(0, &now) != 0)
        return;
    h->priority = now.sched_priority;
    h->on = sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first) == 0;
}

void hurry_end(struct hurry *h)
{
    if (h->on)
        sched_setscheduler(0, h->policy, &(struct sched_param){ .sched_priority = h->priority });
    h->on = false;
}
