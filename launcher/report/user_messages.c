/* user_messages.c -- see user_messages.h.
 *
 * Each function reports one fact: as an event, as a sentence, as both or not at all, depending on the user's
 * options. So the caller does not check these options. */
#include "report/user_messages.h"

#include "agent/agent.h"
#include "record/stacks.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "contain/contain.h"
#include "output/event_log.h"
#include "report/exit_text.h"
#include "tables/signals.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- events ----------------------------------------------------------------------------------------------- */

/* {"event":"worker_ended","t":2.5,"rank":1,"local_rank":1,"verdict":"failed","ending":"exit 7",...}
 *
 * Each function builds one such object, and drops it if memory is short, because half an object would break the
 * next lines. */

/* Append the event "started", with the facts that a program needs to join the job or to find the log files. */
static bool event_started(struct buf *out, uint64_t t_ms, const struct plan *plan)
{
    cJSON *o = event_new(EVENT_STARTED, t_ms);
    return event_print(out, o,
                       o != NULL && json_add_text(o, "job", plan->job) &&
                           json_add_text(o, "host", plan->facts->host) &&
                           json_add_number(o, "world_size", plan->world_size) &&
                           json_add_text(o, "master_addr", plan->master_addr) &&
                           json_add_number(o, "master_port", plan->master_port) &&
                           json_add_text(o, "log_dir", plan->log_root));
}

static bool event_worker_started(struct buf *out, uint64_t t_ms, const struct plan_worker *who, int pid)
{
    cJSON *o = event_new(EVENT_WORKER_STARTED, t_ms);
    return event_print(out, o,
                       o != NULL && event_add_worker(o, who) && json_add_number(o, "pid", pid) &&
                           json_add_text(o, "gpu", who->gpu));
}

/* Append the event "worker_ended". The member exit_code is the code that a shell would show: 137 after SIGKILL, but
 * also after exit(137). The member signal is present only if a signal ended the worker. */
static bool event_worker_ended(struct buf *out, uint64_t t_ms, const struct plan_worker *who,
                               const struct agent_worker *how)
{
    char text[ENDING_MAX];
    cJSON *o = event_new(EVENT_WORKER_ENDED, t_ms);
    ending_text(text, how);
    bool ok = o != NULL && event_add_worker(o, who) &&
              json_add_text(o, "verdict", verdict_name(how->verdict)) && json_add_text(o, "ending", text) &&
              json_add_number(o, "exit_code", ending_code(how));
    if (ok && how->verdict != WORKER_NOT_STARTED)
        ok = json_add_number(o, "pid", how->pid);
    if (ok && how->signal != 0)
        ok = json_add_signal(o, how->signal);
    return event_print(out, o, ok);
}

/* Append the event "restart", which describes the failed attempt and its failure. The event also contains the number
 * `next` of the next attempt, and the wait before this attempt. Attempts are numbered from 0, like log directories. */
static bool event_restart(struct buf *out, uint64_t t_ms, const struct failed_attempt *failed, int next,
                          const struct agent *agent)
{
    cJSON *o = event_new(EVENT_RESTART, t_ms);
    return event_print(out, o,
                       o != NULL && json_add_number(o, "failed_attempt", failed->attempt) &&
                           json_add_number(o, "rank", failed->failure.rank) &&
                           json_add_text(o, "ending", failed->failure.words) &&
                           json_add_number(o, "exit_code", failure_code(&failed->failure)) &&
                           json_add_number(o, "next_attempt", next) &&
                           json_add_number(o, "max_restarts", agent_max_restarts(agent)) &&
                           json_add_number(o, "wait_s", (double)agent_backoff(agent) / 1000.0));
}

/* Append the event that the user has requested a stop. */
static bool event_stop(struct buf *out, uint64_t t_ms, const struct received_signal *received)
{
    cJSON *o = event_new(EVENT_STOP_REQUESTED, t_ms);
    return event_print(out, o,
                       o != NULL && json_add_signal(o, received->signal) &&
                           json_add_sender(o, "sender", &received->sender));
}

/* Append the event that a signal was passed on to workers. `workers` is their number. */
static bool event_signal_passed(struct buf *out, uint64_t t_ms, const struct received_signal *received,
                                int workers)
{
    cJSON *o = event_new(EVENT_SIGNAL_PASSED, t_ms);
    return event_print(out, o,
                       o != NULL && json_add_signal(o, received->signal) &&
                           json_add_sender(o, "sender", &received->sender) &&
                           json_add_number(o, "workers", workers));
}

/* Append the event that a signal such as SIGSTOP has paused a worker. */
static bool event_worker_stopped(struct buf *out, uint64_t t_ms, const struct plan_worker *who, int pid,
                                 int signal)
{
    cJSON *o = event_new(EVENT_WORKER_STOPPED, t_ms);
    return event_print(out, o,
                       o != NULL && event_add_worker(o, who) && json_add_number(o, "pid", pid) &&
                           (signal == 0 || json_add_signal(o, signal)));
}

/* Append the store's findings, from its message "findings". */
static bool event_findings(struct buf *out, uint64_t t_ms, const cJSON *push)
{
    cJSON *o = event_new(EVENT_FINDINGS, t_ms);
    return event_print(
        out, o,
        o != NULL && json_add(o, "final", cJSON_Duplicate(cJSON_GetObjectItem(push, "final"), true)) &&
            json_add(o, "findings", cJSON_Duplicate(cJSON_GetObjectItem(push, "findings"), true)));
}

/* Append the event that this ddprun has started and searches for the store. */
static bool event_launched(struct buf *out, uint64_t t_ms, const struct plan *plan)
{
    const struct plan_meeting *m = &plan->meeting;
    cJSON *o = event_new(EVENT_LAUNCHED, t_ms);
    bool ok = o != NULL && json_add_text(o, "store_host", m->host) &&
              json_add_number(o, "store_port", m->port) && json_add_number(o, "nproc", plan->nproc) &&
              json_add_number(o, "nnodes_min", m->nnodes_min) &&
              json_add_number(o, "nnodes_max", m->nnodes_max);
    if (ok && m->node_rank >= 0)
        ok = json_add_number(o, "asked_node_rank", m->node_rank);
    return event_print(out, o, ok);
}

/* Append the last event for --events. This event contains no report, unlike the last event of --json. `why` may be
 * "". */
static bool event_ended(struct buf *out, uint64_t t_ms, int exit_code, const char *why)
{
    cJSON *o = event_new(EVENT_FINISHED, t_ms);
    return event_print(out, o,
                       o != NULL && json_add_number(o, "exit_code", exit_code) &&
                           (why[0] == '\0' || json_add_text(o, "words", why)));
}

/* --- events ------------------------------------------------------------------------------------------------ */

static uint64_t since_start(const struct announce *a)
{
    return clock_ms() - a->started_ms;
}

/* Write an event to the outputs of --json and --events. `made` is false if memory was short; the event is then
 * skipped. */
static void emit_event(const struct announce *a, bool made, struct buf *event)
{
    if (made && a->plan->cli->json)
        output_write(a->output, event);
    if (made && a->events != NULL)
        event_log_append(a->events, buf_slice(event));
    buf_free(event);
}

static bool wants_events(const struct announce *a)
{
    return a->plan->cli->json || a->events != NULL;
}

/* Write an event only to the log of --events. The reader of --json does not need this event, because the reader has
 * started this ddprun and gets the report at the end. */
static void log_event(const struct announce *a, bool made, struct buf *event)
{
    if (made)
        event_log_append(a->events, buf_slice(event));
    buf_free(event);
}

void announce_launched(const struct announce *a)
{
    struct buf event = { 0 };
    if (a->events != NULL)
        log_event(a, event_launched(&event, since_start(a), a->plan), &event);
}

void announce_hint(const struct announce *a, const char *code)
{
    if (!a->plan->cli->json && code != NULL && code[0] != '\0' && log_hint_is_due())
        output_note(a->output, "  (ddprun explain %s)", code);
}

void announce_end(const struct announce *a, int exit_code, const char *why)
{
    struct buf event = { 0 };
    if (a->events != NULL)
        log_event(a, event_ended(&event, since_start(a), exit_code, why), &event);
}

/* Print a line before the first worker starts. Without --json the line bypasses the output queue, which is still
 * empty. Queued bytes would start the writer's thread, which a job without output does not need. */
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

/* Print which features of the kernel are missing on this machine, and what ddprun uses instead. Without --verbose,
 * print only features that change the result for the user. With --quiet and without --verbose, print nothing. */
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
    const struct scheduler *scheduler = plan->facts->scheduler;
    const char *code = scheduler != NULL ? finding_code_name(scheduler->finding.found.code) : NULL;
    struct buf event = { 0 };
    for (int i = 0; !plan->cli->quiet && i < PLAN_NOTES_MAX && plan->notes[i] != NULL; i++) {
        note_before(a, "%s", plan->notes[i]);
        if (!plan->cli->json && code != NULL && strstr(plan->notes[i], code) != NULL)
            log_explain(code);
    }
    if (!plan->cli->quiet && note[0] != '\0')
        note_before(a, "%s", note);
    if (plan->cli->verbose && !plan->cli->json) /* the user needs job and address for ddpctl */
        note_before(a, "job %s, store at %s:%d", plan->job, plan->master_addr, plan->master_port);
    if (plan->cli->verbose && plan->contained_by != NULL)
        note_before(a, "contained by: %s", plan->contained_by);
    announce_lacks(a);
    if (wants_events(a))
        emit_event(a, event_started(&event, since_start(a), plan), &event);
}

void announce_worker_started(const struct announce *a, int local_rank, int pid)
{
    const struct plan_worker *who = &a->plan->workers[local_rank];
    struct buf event = { 0 };
    if (wants_events(a))
        emit_event(a, event_worker_started(&event, since_start(a), who, pid), &event);
    if (a->plan->cli->verbose && !a->plan->cli->json)
        output_note(a->output, "rank %d started, pid %d", who->rank, pid);
}

void announce_worker_ended(const struct announce *a, int local_rank, const struct agent_worker *how)
{
    const struct plan_worker *who = &a->plan->workers[local_rank];
    char text[ENDING_MAX];
    struct buf event = { 0 };
    if (wants_events(a))
        emit_event(a, event_worker_ended(&event, since_start(a), who, how), &event);
    if (a->plan->cli->verbose && !a->plan->cli->json) {
        ending_text(text, how);
        output_note(a->output, "rank %d: %s", who->rank, text);
    }
}

/* Return true if node 0 prints this message too, on the same console (--hosts). */
static bool is_repeated(const struct announce *a)
{
    return a->plan->cli->one_console && a->plan->node_rank > 0;
}

/* Print "attempt 0 failed: rank 3: exit 7; starting attempt 1 (restart 1 of 3) in 2 s". Print the line even with
 * --quiet, because the line explains why the workers' output begins again. */
void announce_restart(const struct announce *a, const struct agent *agent,
                      const struct failed_attempt *failed, int next)
{
    char who[LIMIT_TEXT + 32] = "", restart[48] = "", when[48];
    struct buf event = { 0 };
    if (wants_events(a))
        emit_event(a, event_restart(&event, since_start(a), failed, next, agent), &event);
    if (a->plan->cli->json || is_repeated(a))
        return;
    if (failed->failure.rank >= 0 && a->plan->nnodes > 1)
        snprintf(who, sizeof(who), "rank %d on %s: ", failed->failure.rank, failed->failure.host);
    else if (failed->failure.rank >= 0)
        snprintf(who, sizeof(who), "rank %d: ", failed->failure.rank);
    /* A restart after the loss of a node does not count in an elastic job, so the message shows no restart number. */
    if (failed->failure.rank >= 0 || !a->plan->meeting.elastic)
        snprintf(restart, sizeof(restart), " (restart %d of %d)", a->plan->restarts + 1,
                 agent_max_restarts(agent));
    /* A job of several nodes may have to wait until enough nodes join, so the time of its next start is not known. */
    if (agent_backoff(agent) == 0 && a->plan->nnodes > 1)
        snprintf(when, sizeof(when), "when enough nodes have joined");
    else
        snprintf(when, sizeof(when), "in %.10g s", (double)agent_backoff(agent) / 1000.0);
    output_note(a->output, "attempt %d failed: %s%s; starting attempt %d%s %s", failed->attempt, who,
                failed->failure.words, next, restart, when);
}

void announce_again(const struct announce *a, const struct failure *cause)
{
    if (is_repeated(a))
        return;
    output_note(a->output, "%s; restarting the workers",
                cause->words[0] != '\0' ? cause->words : "new nodes join the job");
}

void announce_gathering(const struct announce *a, const struct heard_waiting *w)
{
    struct buf out = { 0 };
    if (a->plan->cli->quiet)
        return;
    bool ok = buf_printf(&out, "%d of %d node%s %s joined (%s)", w->joined, w->min, w->min == 1 ? "" : "s",
                         w->joined == 1 ? "has" : "have", w->hosts);
    const bool many = strchr(w->missing, ',') != NULL;
    if (w->missing[0] != '\0')
        ok = ok && buf_printf(&out, "; node rank%s %s %s missing", many ? "s" : "", w->missing,
                              many ? "are" : "is");
    else if (w->last_call_ms >= 0)
        ok = ok && buf_printf(&out, "; these nodes are enough, and others may join within ") &&
             text_append_ms(&out, (uint64_t)w->last_call_ms);
    if (w->left_ms >= 0)
        ok = ok && buf_printf(&out, "; giving up in ") && text_append_ms(&out, (uint64_t)w->left_ms) &&
             buf_printf(&out, " (%s)", a->plan->meeting.join_knob);
    if (a->plan->meeting.local_only[0] != '\0')
        ok = ok && buf_printf(&out, "; %s", a->plan->meeting.local_only);
    if (ok)
        output_note(a->output, "%.*s", (int)out.len, (const char *)out.data);
    buf_free(&out);
}

/* Print findings of the store, even with --quiet, because the user must know why the job waits. */
void announce_findings(struct announce *a, const char *screen, const struct cJSON *push)
{
    struct message_finding first;
    struct buf event = { 0 };
    if (a->plan->cli->json) {
        emit_event(a, event_findings(&event, since_start(a), push), &event);
        return;
    }
    /* `screen` is empty if this node has already printed the finding. If is_repeated() is true, node 0 prints the
     * finding on the same console */
    if (*screen == '\0' || is_repeated(a))
        return;
    for (const char *at = screen; *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        output_note(a->output, "%.*s", (int)len, at);
        at += len + (at[len] == '\n');
    }
    decode_first_finding(push, &first);
    announce_hint(a, first.code);
}

void announce_remote_stop(const struct announce *a, const struct failure *c)
{
    char code[sizeof(c->code) + 4] = "";
    if (a->plan->cli->quiet || a->plan->cli->one_console)
        return;
    char pid[32] = "";
    if (c->pid > 0)
        snprintf(pid, sizeof(pid), ", pid %d", c->pid);
    if (c->code[0] != '\0')
        snprintf(code, sizeof(code), "  [%s]", c->code);
    if (c->rank >= 0)
        output_note(a->output, "rank %d on %s (node %d%s): %s; stopping the workers on %s%s", c->rank,
                    c->host, c->node_rank, pid, c->words, a->plan->facts->host, code);
    else
        output_note(a->output, "%s; stopping the workers on %s%s", c->words, a->plan->facts->host, code);
    announce_hint(a, c->code);
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
                    "all workers here exited with code 0, but the workers of %s did not exit within "
                    "%.10g s (--exit_barrier_timeout); this node hosts the store of the job and waits "
                    "until the workers there have exited; press Ctrl-C to end the job on all nodes",
                    who, limit_s);
    else if (state == AGENT_WAIT_PEERS)
        output_note(a->output,
                    "all workers here exited with code 0; waiting for the workers of %s, at most %.10g s "
                    "(--exit_barrier_timeout)",
                    who, limit_s);
    else if (state == AGENT_DONE)
        output_note(
            a->output,
            "warning: all workers here exited with code 0, but the workers of %s did not exit within %.10g s "
            "(--exit_barrier_timeout); leaving the job",
            who, limit_s);
    else
        output_note(a->output, "no process of the job runs here any more; waiting for %s", who);
}

/* Print the signal and its sender, then `what`. */
static void note_signal(const struct announce *a, const struct received_signal *received, const char *what)
{
    struct buf text = { 0 };
    if (received_signal_text(received, &text))
        output_note(a->output, "%.*s%s", (int)text.len, (const char *)text.data, what);
    buf_free(&text);
}

void announce_stop(const struct announce *a, const struct received_signal *received, bool first, bool runs)
{
    static const char *const words[2][2] = {
        { " again: leaving the job at once", ": leaving the job; no workers run here" },
        { " again: killing the workers",
          ": stopping the workers; another SIGINT or SIGTERM kills them at once" },
    };
    struct buf event = { 0 };
    if (wants_events(a))
        emit_event(a, event_stop(&event, since_start(a), received), &event);
    if (!a->plan->cli->json && !a->plan->cli->quiet)
        note_signal(a, received, words[runs][first]);
}

/* Report that a signal was passed on to the workers. If the kernel sent the signal, such as SIGWINCH, print the message
 * only with --verbose. */
void announce_passed(const struct announce *a, const struct received_signal *received, int workers)
{
    char what[64];
    struct buf event = { 0 };
    snprintf(what, sizeof(what), ": passed on to %d worker%s", workers, workers == 1 ? "" : "s");
    if (wants_events(a))
        emit_event(a, event_signal_passed(&event, since_start(a), received, workers), &event);
    if (!a->plan->cli->json && (a->plan->cli->verbose || (!received->sender.kernel && !a->plan->cli->quiet)))
        note_signal(a, received, what);
}

enum { STACKS_LINES_MAX = 200 };

/* Print that the status follows, even with --quiet, because the user has requested it. */
void announce_status(const struct announce *a, const struct received_signal *received)
{
    note_signal(a, received, ": the state of the job follows");
}

/* Print stacks. Each line is a separate note, so that each line gets the prefix "ddprun: ". */
void announce_stacks(const struct announce *a, const struct cJSON *rows, bool is_cut)
{
    struct buf text = { 0 };
    int lines = 0;
    bool ok = stacks_text(rows, &text) && buf_append(&text, "", 1);
    const char *at = ok ? (const char *)text.data : "";
    for (; *at != '\0' && lines < STACKS_LINES_MAX; lines++) {
        const size_t len = strcspn(at, "\n");
        output_note(a->output, "%.*s", (int)len, at);
        at += len + (at[len] != '\0');
    }
    if (is_cut || *at != '\0')
        output_note(a->output, "some stacks are not shown; run ddpctl stacks --rank RANKS to see them");
    buf_free(&text);
}

void announce_worker_stopped(const struct announce *a, int local_rank, int pid, int signal)
{
    const struct plan_worker *who = &a->plan->workers[local_rank];
    char name[SIGNAL_NAME_MAX] = "a signal";
    struct buf event = { 0 };
    if (signal != 0)
        signal_name(name, signal);
    if (wants_events(a))
        emit_event(a, event_worker_stopped(&event, since_start(a), who, pid, signal), &event);
    if (a->plan->cli->json || a->plan->cli->quiet)
        return;
    output_note(a->output, "rank %d was stopped by %s; to continue it: kill -CONT %d  [%s]", who->rank, name,
                pid, finding_code_name(FINDING_RANK_STOPPED));
    announce_hint(a, finding_code_name(FINDING_RANK_STOPPED));
}

/* --- status ----------------------------------------------------------------------------------------------- */

/* If this node has more than STATUS_LINES_MAX workers, the status lists only the ranks that wait for no other rank,
 * because in a hang all other ranks wait for such a rank. */

/* Return the rank's entry in the store's answer, or NULL. */
static const cJSON *member_of(const struct status_facts *f, int rank)
{
    const cJSON *member;
    cJSON_ArrayForEach(member, cJSON_GetObjectItemCaseSensitive(f->answer, "members"))
    {
        const cJSON *number = cJSON_GetObjectItemCaseSensitive(member, "rank");
        if (cJSON_IsNumber(number) && number->valuedouble == rank)
            return member;
    }
    return NULL;
}

static const char *text_of(const cJSON *member, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(member, name));
    return text != NULL ? text : "";
}

static bool is_running(const struct status_facts *f, int local_rank)
{
    return agent_worker(f->agent, local_rank)->verdict == WORKER_ALIVE;
}

/* Append ", has waited in all_reduce #5 for 3.7 s, after step 3". The step is the last step that the rank has
 * reported. */
static bool append_steps(const cJSON *member, struct buf *out)
{
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(member, "step");
    const cJSON *ms = cJSON_GetObjectItemCaseSensitive(member, "beat_ms");
    const char *call = text_of(member, "call");
    bool ok = call[0] != '\0' ? buf_printf(out, ", has waited in %s for ", call)
                              : buf_printf(out, ", has not been in a collective for ");
    ok = ok && text_append_ms(out, cJSON_IsNumber(ms) ? (uint64_t)ms->valuedouble : 0);
    return ok && (!cJSON_IsNumber(step) || buf_printf(out, ", after step %.0f", step->valuedouble));
}

/* Append the state of the rank from the store's answer, for example ", waits for barrier 'x'". */
static bool append_store(const struct status_facts *f, int rank, struct buf *out)
{
    const cJSON *member = member_of(f, rank);
    const cJSON *silent = cJSON_GetObjectItemCaseSensitive(member, "silent_ms");
    const char *waits = text_of(member, "waits_for"), *state = text_of(member, "state");
    if (waits[0] != '\0')
        return buf_printf(out, ", waits for %s", waits);
    if (cJSON_HasObjectItem(member, "beat_ms"))
        return append_steps(member, out);
    if (strcmp(state, "disconnected") == 0)
        return buf_printf(out, ", has closed its connection to the store");
    if (strcmp(state, "connected") != 0 || !cJSON_IsNumber(silent))
        return true;
    return buf_printf(out, ", last reached the store ") &&
           text_append_ms(out, (uint64_t)silent->valuedouble) && buf_printf(out, " ago");
}

/* Append the process state if the process is stopped or hangs in the kernel. */
static bool append_state(char state, int pid, struct buf *out)
{
    if (state == 'T')
        return buf_printf(out, ", is stopped (kill -CONT %d continues it)", pid);
    return state != 'D' || buf_printf(out, ", hangs in the kernel (state D; see /proc/%d/wchan)", pid);
}

static bool append_worker(const struct status_facts *f, int i, struct buf *out)
{
    const struct agent_worker *w = agent_worker(f->agent, i);
    const int rank = f->plan->workers[i].rank;
    char how[ENDING_MAX];
    if (is_running(f, i))
        return buf_printf(out, "rank %d (pid %d) has run for ", rank, w->pid) &&
               text_append_ms(out, f->now_ms - w->started_ms) && append_state(f->states[i], w->pid, out) &&
               append_store(f, rank, out);
    ending_text(how, w);
    bool ok = buf_printf(out, "rank %d: %s", rank, how);
    if (w->verdict == WORKER_PENDING || w->verdict == WORKER_NOT_STARTED)
        return ok;
    return ok && buf_printf(out, " after ") && text_append_ms(out, w->ended_ms - w->started_ms);
}

static bool is_shown(const struct status_facts *f, int local_rank)
{
    if (f->plan->nproc <= STATUS_LINES_MAX)
        return true;
    const cJSON *member = member_of(f, f->plan->workers[local_rank].rank);
    return text_of(member, "waits_for")[0] == '\0' && text_of(member, "call")[0] == '\0';
}

/* Return the local rank of the n-th worker that is shown, or nproc if fewer workers are shown. */
static int nth_shown(const struct status_facts *f, int n)
{
    int i = 0;
    for (; i < f->plan->nproc; i++)
        if (is_shown(f, i) && n-- == 0)
            break;
    return i;
}

static int count(const struct status_facts *f, bool (*is)(const struct status_facts *f, int local_rank))
{
    int n = 0;
    for (int i = 0; i < f->plan->nproc; i++)
        n += is(f, i);
    return n;
}

/* Append the headline. If the store does not answer, add this fact, because a silent store may explain why a job
 * hangs. */
static bool append_headline(const struct status_facts *f, struct buf *out)
{
    return text_append_ms(out, f->now_ms - f->started_ms) &&
           buf_printf(out, " after the start: job %s, %d of %d workers run%s", f->plan->job,
                      count(f, is_running), f->plan->nproc,
                      f->answer == NULL ? "; the store does not answer" : "");
}

/* Append line `i`. If some ranks are not listed, the last line contains the number of these ranks. */
bool status_line(const struct status_facts *f, int i, struct buf *out)
{
    const int shown = count(f, is_shown);
    const int lines = shown < STATUS_LINES_MAX ? shown : STATUS_LINES_MAX;
    if (i == 0)
        return append_headline(f, out);
    if (i <= lines)
        return append_worker(f, nth_shown(f, i - 1), out);
    if (i > lines + 1 || lines == f->plan->nproc)
        return false;
    return buf_printf(out, "%d more rank%s, of which %d wait%s for other ranks; run ddpctl status to see all",
                      f->plan->nproc - lines, f->plan->nproc - lines == 1 ? "" : "s", f->plan->nproc - shown,
                      f->plan->nproc - shown == 1 ? "s" : "");
}
