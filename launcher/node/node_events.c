/* node_events.c -- see node_core.h. Time becomes an event for the core, once what came earlier is taken in. */
#include "node/node_core.h"

#include "contain/procfs.h"

#include "base/clock.h"
#include "base/limits.h"

/* Much too late (clock.h): what came meanwhile are ends of workers and answers of the store. */
static bool stood_still(struct node *n)
{
    n->caught_up = !n->caught_up && clock_ms() > n->due_ms + STOOD_STILL_MS;
    if (n->caught_up)
        uv_timer_start(&n->timer, node_on_timer, CLOCK_CATCH_UP_MS, 0);
    return n->caught_up;
}

/* Local rank of a worker that the kernel takes apart, -1 = of none. */
static int find_dying(const struct node *n)
{
    struct proc_stat stat;
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->pids[i] != 0 && procfs_stat(n->pids[i], &stat) && proc_stat_is_dying(&stat))
            return i;
    return -1;
}

static void tick(struct node *n)
{
    const int dying = agent_state(n->agent) == AGENT_DOUBTING ? find_dying(n) : -1;
    node_feed(n, (struct agent_event){
                     .type = AGENT_TICK, .local_rank = dying >= 0 ? dying : 0, .dying = dying >= 0 });
}

void node_on_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    if (stood_still(n))
        return;
    if (clock_ms() >= n->store_deadline_ms) {
        node_on_lost(n, "it did not answer in time (--timeout)");
        return;
    }
    if (clock_ms() >= n->unread_deadline_ms) {
        node_leave_output(n);
        return;
    }
    tick(n);
    node_pump(n);
}
