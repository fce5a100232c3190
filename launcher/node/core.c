/* core.c -- see core.h.
 *
 * What every other file of the node stands on: to ask the core, to arm the timer, to close.
 *
 * Nothing here carries out a wish or knows where an event comes from, so nothing here calls a file above; the one
 * way up is on_timer, which node_run() sets and only the loop calls. */
#include "node/core.h"

#include "base/clock.h"
#include "base/log.h"
#include "contain/procfs.h"
#include "report/final_report.h"

#include <stdlib.h>
#include <unistd.h>

enum { STORE_ANSWER_MS = 60000 }; /* without --timeout */

/* Ask the core. Its wishes are copied behind those that are still waiting, because they are valid
 * until the next step only, and carrying one out may cause the next event. */
void node_feed(struct node *n, struct agent_event event)
{
    size_t count;
    event.now_ms = clock_ms();
    const struct agent_wish *wishes = agent_step(n->agent, &event, &count);
    if (!buf_append(&n->wishes, wishes, count * sizeof(*wishes)))
        abort(); /* a launcher that cannot remember what to do: the guardian cleans up */
}

/* Wake up at the core's deadline, or when the store has been silent for too long. */
void node_set_timer(struct node *n)
{
    uint64_t at = agent_deadline(n->agent), now = clock_ms();
    if (n->meet.store_deadline_ms < at)
        at = n->meet.store_deadline_ms;
    if (n->out.unread_deadline_ms < at)
        at = n->out.unread_deadline_ms;
    n->due_ms = at;
    if (at == UINT64_MAX || n->ended)
        uv_timer_stop(&n->timer);
    else
        uv_timer_start(&n->timer, n->on_timer, at > now ? at - now : 0, 0);
}

/* Nothing else would end the wait for a store that hangs. */
void node_expect_answer(struct node *n)
{
    const uint64_t limit_ms = n->plan->cli->timeout_ms;
    n->meet.store_deadline_ms = clock_ms() + (limit_ms > 0 ? limit_ms : STORE_ANSWER_MS);
    node_set_timer(n);
}

void node_expect_nothing(struct node *n)
{
    n->meet.store_deadline_ms = UINT64_MAX;
}

bool node_has_workers(const struct node *n)
{
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->run.pids[i] != 0)
            return true;
    return false;
}

/* Report only jobs that began: a failure before the first worker has printed its error already. */
static void report(struct node *n)
{
    const struct finding *loss = &n->meet.store_finding;
    struct report r = {
        .plan = n->plan,
        .agent = n->agent,
        .started_ms = n->started_ms,
        .stop = agent_stop_signal(n->agent) != 0 ? &n->stop_heard : NULL,
        .path = env_find(n->plan->facts->environ_block, "PATH"),
        .elsewhere = node_cause_is_elsewhere(n) ? &n->run.cause : NULL,
        .failed = (const struct failed_attempt *)n->run.failed.data,
        .n_failed = n->run.failed.len / sizeof(struct failed_attempt),
        .best_step = n->run.best_step,
        .store = { .how = agent_lost_store(n->agent) ? n->meet.store_lost : NULL,
                   .node = n->meet.store_node,
                   .advice = loss->advice,
                   .code = loss->code != FINDING_NONE ? finding_code_name(loss->code) : "" },
        .left = { n->run.left_subject, n->run.left_waiting, n->run.left_code },
        .stuck = n->run.stuck,
        .n_stuck = n->run.n_stuck,
        .flights = n->out.kept_flights ? plan_flight(n->plan) : NULL,
    };
    final_report(&r, n->out.output, n->run.evidence, n->run.spawner.failed);
}

/* All signals stay blocked. */
static void close_signals(struct node *n)
{
    uv_close((uv_handle_t *)&n->lifeline, NULL);
    uv_close((uv_handle_t *)&n->signals, NULL);
    uv_close((uv_handle_t *)&n->out.status_timer, NULL);
    close(n->signal_fd);
}

/* Close every handle; the loop then ends by itself. */
void node_finish(struct node *n, int exit_code)
{
    if (n->ended)
        return;
    n->ended = true;
    n->exit_code = exit_code;
    announce_end(&n->out.announce, exit_code, exit_code != 0 ? n->run.cause.words : "");
    close_signals(n);
    uv_close((uv_handle_t *)&n->timer, NULL);
    uv_close((uv_handle_t *)&n->more, NULL);
    uv_close((uv_handle_t *)&n->meet.waiting_timer, NULL);
    uv_close((uv_handle_t *)&n->meet.vouch_timer, NULL);
    uv_close((uv_handle_t *)&n->meet.port_timer, NULL);
    uv_close((uv_handle_t *)&n->meet.missing_timer, NULL);
    store_host_close(n->meet.host);
    join_dial_close(n->meet.dial);
    input_close(n->out.input);
    file_timer_close(n->run.file_timer);
    store_link_close(n->meet.link);
    if (n->agent != NULL && agent_state(n->agent) == AGENT_DONE)
        report(n);
    output_close(n->out.output);
}

/* The user has asked to stop, and the reader of the output does not read. */
void node_leave_output(struct node *n)
{
    log_warn("stopped before all output was written");
    node_finish(n, n->exit_code);
}
