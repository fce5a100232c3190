/* node_events.c -- see node_core.h. Time and the store: what happened becomes an event for the core.
 *
 * It can go wrong when the store cannot be reached or does not answer in time (125, nothing was started);
 * once workers run, a lost store is a note: they will see for themselves what they need. */
#include "node/node_core.h"

#include "tables/exit_codes.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

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

/* Before the first worker: a store that does not answer is the end. Later the agent decides. */
static bool is_setting_up(const struct node *n)
{
    return agent_state(n->agent) == AGENT_IDLE;
}

ddp_status node_begin_attempt(struct node *n, int attempt, struct ddp_err *err)
{
    n->left_waiting[0] = '\0';
    n->spawner.failed = NULL;
    input_attempt(n->input);
    ddp_status status = contain_attempt(n->contain, err);
    evidence_attempt(n->evidence, contain_cgroup_fd(n->contain));
    const struct plan_round round = plan_same_round(n->plan, attempt);
    return status == DDP_OK ? output_round(n->output, &round, err) : status;
}

/* A new attempt: the old one's files are left, and the core may give the start. */
static void begin_next(struct node *n)
{
    struct ddp_err err;
    struct agent_event event = { .type = AGENT_START };
    if (node_begin_attempt(n, agent_attempt(n->agent) + 1, &err) != DDP_OK) {
        output_note(n->output, "error: %s", err.msg);
        event.type = AGENT_NOT_READY;
    }
    node_feed(n, event);
}

/* The store knows the attempt: its keys are those of this one alone. Now, and not earlier, workers may come. */
void node_on_ready(void *user)
{
    struct node *n = user;
    n->store_deadline_ms = UINT64_MAX;
    n->store_ready = true;
    if (!n->prepared)
        return;
    if (is_setting_up(n)) {
        announce_job(&n->announce, n->port_note);
        node_feed(n, (struct agent_event){ .type = AGENT_START });
    } else if (agent_state(n->agent) == AGENT_PREPARING) {
        begin_next(n);
    }
    node_pump(n);
}

/* Workers that run will see for themselves what they need. */
void node_on_lost(void *user, const char *why)
{
    struct node *n = user;
    n->store_lost = true;
    n->store_deadline_ms = UINT64_MAX;
    if (is_setting_up(n)) {
        log_error("cannot use the store on port %d: %s", n->plan->master_port, why);
        node_finish(n, EXIT_CODE_DDPRUN);
        return;
    }
    output_note(n->output, "warning: lost the connection to the store: %s", why);
    if (agent_state(n->agent) == AGENT_ASKING)
        node_feed(n, (struct agent_event){ .type = AGENT_PROGRESS, .step = -1 });
    else
        node_feed(n, (struct agent_event){ .type = AGENT_NOT_READY });
    node_pump(n);
}

/* The answer of the store, or -1 when it has none to give: the core only decides when it has heard either. */
void node_on_progress(void *user, int64_t step)
{
    struct node *n = user;
    n->store_deadline_ms = UINT64_MAX;
    node_feed(n, (struct agent_event){ .type = AGENT_PROGRESS, .step = step });
    node_pump(n);
}

/* The first of them is the one to know: the others follow from the same mistake. */
void node_on_left_waiting(void *user, int rank, const char *barrier, const char *waiting)
{
    struct node *n = user;
    if (n->left_waiting[0] != '\0')
        return;
    snprintf(n->left_waiting, sizeof(n->left_waiting),
             "rank %d ended with 0 while rank%s %s waited for it at barrier '%.100s'", rank,
             strpbrk(waiting, ",-") != NULL ? "s" : "", waiting, barrier);
    output_note(n->output, "warning: %s", n->left_waiting);
}
