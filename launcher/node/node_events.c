/* node_events.c -- see node_core.h. Time becomes an event for the core, once what came earlier is taken in. */
#include "node/node_core.h"

#include "base/clock.h"

/* Much too late (clock.h): what came meanwhile are ends of workers and answers of the store. */
static bool stood_still(struct node *n)
{
    n->caught_up = !n->caught_up && clock_ms() > n->due_ms + CLOCK_STOOD_STILL_MS;
    if (n->caught_up)
        uv_timer_start(&n->timer, node_on_timer, CLOCK_CATCH_UP_MS, 0);
    return n->caught_up;
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
    node_feed(n, (struct agent_event){ .type = AGENT_TICK });
    node_pump(n);
}
