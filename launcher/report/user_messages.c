/* user_messages.c -- see user_messages.h.
 *
 * Each fact has one function, and that function knows all its forms: an event, a sentence, or
 * nothing. node*.c call it where the fact becomes true and need not know what the user asked
 * for. */
#include "report/user_messages.h"

#include "agent/failure.h"
#include "base/clock.h"
#include "base/log.h"
#include "contain/contain.h"
#include "report/events.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static uint64_t since_start(const struct announce *a)
{
    return clock_ms() - a->started_ms;
}

/* `made` is the answer of the function that made the event. One that could not be made is left out:
 * there is no memory, and the workers matter more. */
static void put_event(const struct announce *a, bool made, struct buf *event)
{
    if (made && a->plan->cli->json)
        output_put(a->output, event);
    if (made && a->events != NULL)
        event_log_put(a->events, buf_slice(event));
    buf_free(event);
}

static bool wants_events(const struct announce *a)
{
    return a->plan->cli->json || a->events != NULL;
}

/* For the log alone: a reader of --json knows that ddprun runs, and gets the report at its end. */
static void log_event(const struct announce *a, bool made, struct buf *event)
{
    if (made)
        event_log_put(a->events, buf_slice(event));
    buf_free(event);
}

void announce_launched(const struct announce *a)
{
    struct buf event = { 0 };
    if (a->events != NULL)
        log_event(a, event_launched(&event, since_start(a), a->plan), &event);
}

void announce_end(const struct announce *a, int exit_code, const char *why)
{
    struct buf event = { 0 };
    if (a->events != NULL)
        log_event(a, event_ended(&event, since_start(a), exit_code, why), &event);
}

/* Before the first worker. Nothing is queued yet, so the line goes out at once: the thread that writes the queue is
 * started by the first output, and a job without any needs none. */
__attribute__((format(printf, 2, 3))) static void note_before(const struct announce *a, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (a->plan->cli->json)
        output_note(a->output, "%s", text);
    else
        log_info("%s", text);
}

/* What stands in for what is missing, to those who ask; to all when it may matter to them. */
static void announce_lacks(const struct announce *a)
{
    bool grave;
    const char *words;
    const struct cli *cli = a->plan->cli;
    for (size_t i = 0; (words = lacks_words(i, !cli->verbose, &grave)) != NULL; i++)
        if (cli->verbose || !cli->quiet)
            note_before(a, "%s%s", grave ? "warning: " : "", words);
}

void announce_job(const struct announce *a, const char *note)
{
    const struct plan *plan = a->plan;
    struct buf event = { 0 };
    for (int i = 0; !plan->cli->quiet && i < PLAN_NOTES_MAX && plan->notes[i] != NULL; i++)
        note_before(a, "%s", plan->notes[i]);
    if (!plan->cli->quiet && note[0] != '\0')
        note_before(a, "%s", note);
    if (plan->cli->verbose && !plan->cli->json) /* ddpctl is given this address */
        note_before(a, "job %s, store at %s:%d", plan->job, plan->master_addr, plan->master_port);
    if (plan->cli->verbose && plan->contained_by != NULL)
        note_before(a, "contained by: %s", plan->contained_by);
    announce_lacks(a);
    if (wants_events(a))
        put_event(a, event_started(&event, since_start(a), plan), &event);
}

void announce_worker_started(const struct announce *a, int local_rank, int pid)
{
    const struct plan_worker *who = &a->plan->workers[local_rank];
    struct buf event = { 0 };
    if (wants_events(a))
        put_event(a, event_worker_started(&event, since_start(a), who, pid), &event);
    if (a->plan->cli->verbose && !a->plan->cli->json)
        output_note(a->output, "rank %d started, pid %d", who->rank, pid);
}

void announce_worker_ended(const struct announce *a, int local_rank, const struct agent_worker *how)
{
    const struct plan_worker *who = &a->plan->workers[local_rank];
    char text[ENDING_MAX];
    struct buf event = { 0 };
    if (wants_events(a))
        put_event(a, event_worker_ended(&event, since_start(a), who, how), &event);
    if (a->plan->cli->verbose && !a->plan->cli->json) {
        ending_text(text, how);
        output_note(a->output, "rank %d: %s", who->rank, text);
    }
}

/* "attempt 0 failed: rank 3: exit 7; starting attempt 1 (restart 1 of 3) in 2 s". Attempts count from 0 in every text, as
 * in the names of the log directories. Printed also with --quiet, because the output of the workers begins again. */
void announce_restart(const struct announce *a, const struct agent *agent,
                      const struct failed_attempt *failed, int next)
{
    char who[LIMIT_TEXT + 32] = "", restart[48] = "", when[48];
    struct buf event = { 0 };
    if (wants_events(a))
        put_event(a, event_restart(&event, since_start(a), failed, next, agent), &event);
    if (a->plan->cli->json)
        return;
    if (failed->failure.rank >= 0 && a->plan->nnodes > 1)
        snprintf(who, sizeof(who), "rank %d on %s: ", failed->failure.rank, failed->failure.host);
    else if (failed->failure.rank >= 0)
        snprintf(who, sizeof(who), "rank %d: ", failed->failure.rank);
    /* A node that an elastic job loses is not charged to --max_restarts. */
    if (failed->failure.rank >= 0 || !a->plan->meeting.elastic)
        snprintf(restart, sizeof(restart), " (restart %d of %d)", a->plan->restarts + 1,
                 agent_max_restarts(agent));
    if (agent_backoff(agent) == 0 &&
        a->plan->nnodes > 1) /* it may have to wait for nodes: who says "in 0 s"? */
        snprintf(when, sizeof(when), "when enough nodes are here");
    else
        snprintf(when, sizeof(when), "in %.10g s", (double)agent_backoff(agent) / 1000.0);
    output_note(a->output, "attempt %d failed: %s%s; starting attempt %d%s %s", failed->attempt, who,
                failed->failure.words, next, restart, when);
}

void announce_again(const struct announce *a, const struct failure *cause)
{
    output_note(a->output, "%s; the workers start again",
                cause->words[0] != '\0' ? cause->words : "the job grows");
}

/* --- other nodes ---------------------------------------------------------------------------------------- */

void announce_gathering(const struct announce *a, const struct heard_waiting *w)
{
    char more[HEARD_LIST_MAX + 64] = "", left[64] = "";
    if (a->plan->cli->quiet)
        return;
    if (w->missing[0] != '\0')
        snprintf(more, sizeof(more), "; node rank%s %s %s missing",
                 strchr(w->missing, ',') != NULL ? "s" : "", w->missing,
                 strchr(w->missing, ',') != NULL ? "are" : "is");
    else if (w->last_call_ms >= 0)
        snprintf(more, sizeof(more), "; enough to begin, %lld s more for others",
                 (long long)w->last_call_ms / 1000);
    if (w->left_ms >= 0)
        snprintf(left, sizeof(left), "; %lld s are left (%s)", (long long)w->left_ms / 1000,
                 a->plan->meeting.join_knob);
    const char *local_only = a->plan->meeting.local_only;
    output_note(a->output, "%d of %d node%s %s here (%s)%s%s%s%s", w->joined, w->min, w->min == 1 ? "" : "s",
                w->joined == 1 ? "is" : "are", w->hosts, more, left, local_only[0] != '\0' ? "; " : "",
                local_only);
}

/* Also with --quiet: who waits must know for what. */
void announce_findings(const struct announce *a, const char *screen, const struct cJSON *push)
{
    struct buf event = { 0 };
    if (a->plan->cli->json) {
        put_event(a, event_findings(&event, since_start(a), push), &event);
        return;
    }
    while (*screen != '\0') {
        const size_t len = strcspn(screen, "\n");
        output_note(a->output, "%.*s", (int)len, screen);
        screen += len + (screen[len] == '\n');
    }
}

void announce_told_to_stop(const struct announce *a, const struct failure *c)
{
    char code[sizeof(c->code) + 4] = "";
    if (a->plan->cli->quiet)
        return;
    char pid[32] = "";
    if (c->pid > 0)
        snprintf(pid, sizeof(pid), ", pid %d", c->pid);
    if (c->code[0] != '\0')
        snprintf(code, sizeof(code), "  [%s]", c->code);
    if (c->rank >= 0)
        output_note(a->output, "rank %d on %s (node %d%s): %s; stopping the workers here%s", c->rank, c->host,
                    c->node_rank, pid, c->words, code);
    else
        output_note(a->output, "%s; stopping the workers here%s", c->words, code);
}

void announce_waiting_for_end(const struct announce *a, const char *nodes, const struct agent *agent)
{
    const enum agent_state state = agent_state(agent);
    const char *who = nodes[0] != '\0' ? nodes : "the other nodes";
    if (a->plan->cli->quiet)
        return;
    const double limit_s = (double)a->plan->cli->exit_barrier_ms / 1000;
    if (agent_overstays(agent))
        output_note(a->output,
                    "all workers here ended with 0, those of %s not within %.10g s (--exit_barrier_timeout); "
                    "this node has the store of the job, so it stays until they have ended; Ctrl-C ends the "
                    "job for all",
                    who, limit_s);
    else if (state == AGENT_LINGERING)
        output_note(a->output,
                    "all workers here ended with 0; waiting for those of %s, at most %.10g s "
                    "(--exit_barrier_timeout)",
                    who, limit_s);
    else if (state == AGENT_DONE)
        output_note(a->output,
                    "warning: all workers here ended with 0, those of %s not within %.10g s "
                    "(--exit_barrier_timeout): leaving the job",
                    who, limit_s);
    else
        output_note(a->output, "nothing is left of the job here; waiting until that is so on %s", who);
}

/* A sentence that begins with the signal and its sender. */
static void note_signal(const struct announce *a, const struct signal_heard *heard, const char *what)
{
    struct buf text = { 0 };
    if (signal_heard_text(heard, &text))
        output_note(a->output, "%.*s%s", (int)text.len, (const char *)text.data, what);
    buf_free(&text);
}

void announce_stop(const struct announce *a, const struct signal_heard *heard, bool first, bool runs)
{
    static const char *const words[2][2] = {
        { " again: leaving the job at once", ": leaving the job; no workers run here" },
        { " again: killing", ": stopping the workers; once more kills them at once" },
    };
    struct buf event = { 0 };
    if (wants_events(a))
        put_event(a, event_stop(&event, since_start(a), heard), &event);
    if (!a->plan->cli->json && !a->plan->cli->quiet)
        note_signal(a, heard, words[runs][first]);
}

/* Who sends a worker a signal on purpose wants to see that it went there, or why it died of it; a window that gets
 * another size is no news. */
void announce_passed(const struct announce *a, const struct signal_heard *heard, int workers)
{
    char what[64];
    struct buf event = { 0 };
    snprintf(what, sizeof(what), ": passed on to %d worker%s", workers, workers == 1 ? "" : "s");
    if (wants_events(a))
        put_event(a, event_signal_passed(&event, since_start(a), heard, workers), &event);
    if (!a->plan->cli->json && (a->plan->cli->verbose || (!heard->sender.kernel && !a->plan->cli->quiet)))
        note_signal(a, heard, what);
}

/* Asked for, so it is said with --quiet, too. */
void announce_status(const struct announce *a, const struct signal_heard *heard)
{
    note_signal(a, heard, ": this is what the job does");
}

void announce_worker_stopped(const struct announce *a, int local_rank, int pid, int signal)
{
    const struct plan_worker *who = &a->plan->workers[local_rank];
    char name[ENDING_MAX];
    struct buf event = { 0 };
    signal_name(name, signal);
    if (wants_events(a))
        put_event(a, event_worker_stopped(&event, since_start(a), who, pid, signal), &event);
    if (!a->plan->cli->json && !a->plan->cli->quiet)
        output_note(a->output, "rank %d was stopped by %s; it goes on after kill -CONT %d", who->rank, name,
                    pid);
}
