/* hurry.c -- see hurry.h.
 *
 * The kernel makes a child of ours an ordinary process (SCHED_RESET_ON_FORK), which is not what it would have been: it loses
 * the niceness that the user gave to the whole job, and since Linux 6.12 it has no timer slack, so that every sleep of
 * it is an interrupt of its own. */
#include "contain/hurry.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static bool is_usual(int policy)
{
    return policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE;
}

static bool may_run_long(void)
{
    struct rlimit rttime;
    return getrlimit(RLIMIT_RTTIME, &rttime) == 0 && rttime.rlim_cur == RLIM_INFINITY;
}

void hurry_begin(struct hurry *h)
{
    if (h->on)
        return;
    h->policy = sched_getscheduler(0);
    if (!is_usual(h->policy) || !may_run_long())
        return;
    h->nice = getpriority(PRIO_PROCESS, 0);
    h->slack_ns = prctl(PR_GET_TIMERSLACK);
    h->on = sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK,
                               &(struct sched_param){ .sched_priority = 1 }) == 0;
}

/* The kernel has kept the niceness for us, and of the slack only what we were born with. */
void hurry_end(struct hurry *h)
{
    if (!h->on)
        return;
    sched_setscheduler(0, h->policy, &(struct sched_param){ 0 });
    prctl(PR_SET_TIMERSLACK, (unsigned long)h->slack_ns);
    h->on = false;
}

void hurry_inherit(const struct hurry *h)
{
    if (!h->on)
        return;
    prctl(PR_SET_TIMERSLACK, (unsigned long)h->slack_ns);
    if (h->policy != SCHED_OTHER)
        sched_setscheduler(0, h->policy, &(struct sched_param){ 0 });
    if (h->nice != 0)
        setpriority(PRIO_PROCESS, 0, h->nice);
}
