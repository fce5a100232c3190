/* events.c -- see events.h.
 *
 * {"event":"worker_ended","t":2.5,"rank":1,"local_rank":1,"verdict":"failed","ending":"exit 7",...}
 *
 * Each function builds one object and prints it or, when memory was short on the way, frees it: half an object on a line would break the
 * reader of all that follow. */
#include "report/events.h"

#include "agent/failure.h"
#include "output/events.h"
#include "report/report_json.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* Everything a program needs to join the job or to find its files, before the first worker runs. */
bool event_started(struct buf *out, uint64_t t_ms, const struct plan *plan)
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

bool event_worker_started(struct buf *out, uint64_t t_ms, const struct plan_worker *who, int pid)
{
    cJSON *o = event_new(EVENT_WORKER_STARTED, t_ms);
    return event_print(out, o,
                       o != NULL && event_add_worker(o, who) && json_add_number(o, "pid", pid) &&
                           json_add_text(o, "gpu", who->gpu));
}

/* `exit_code` is the shell's view (128 + n), `signal` the plain truth: by the first alone nobody can tell an
 * exit(137) from SIGKILL. */
bool event_worker_ended(struct buf *out, uint64_t t_ms, const struct plan_worker *who,
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

/* Attempts are counted from 0 here, like the directories of their logs. */
bool event_restart(struct buf *out, uint64_t t_ms, const struct failed_attempt *failed, int next,
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

bool event_stop(struct buf *out, uint64_t t_ms, const struct signal_heard *heard)
{
    cJSON *o = event_new(EVENT_STOP_REQUESTED, t_ms);
    return event_print(out, o,
                       o != NULL && json_add_signal(o, heard->signal) &&
                           json_add_sender(o, "sender", &heard->sender));
}

bool event_signal_passed(struct buf *out, uint64_t t_ms, const struct signal_heard *heard, int workers)
{
    cJSON *o = event_new(EVENT_SIGNAL_PASSED, t_ms);
    return event_print(out, o,
                       o != NULL && json_add_signal(o, heard->signal) &&
                           json_add_sender(o, "sender", &heard->sender) &&
                           json_add_number(o, "workers", workers));
}

bool event_worker_stopped(struct buf *out, uint64_t t_ms, const struct plan_worker *who, int pid, int signal)
{
    cJSON *o = event_new(EVENT_WORKER_STOPPED, t_ms);
    return event_print(out, o,
                       o != NULL && event_add_worker(o, who) && json_add_number(o, "pid", pid) &&
                           json_add_signal(o, signal));
}

bool event_findings(struct buf *out, uint64_t t_ms, const cJSON *push)
{
    cJSON *o = event_new(EVENT_FINDINGS, t_ms);
    return event_print(
        out, o,
        o != NULL && json_add(o, "final", cJSON_Duplicate(cJSON_GetObjectItem(push, "final"), true)) &&
            json_add(o, "findings", cJSON_Duplicate(cJSON_GetObjectItem(push, "findings"), true)));
}

bool event_launched(struct buf *out, uint64_t t_ms, const struct plan *plan)
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

bool event_ended(struct buf *out, uint64_t t_ms, int exit_code, const char *why)
{
    cJSON *o = event_new(EVENT_FINISHED, t_ms);
    return event_print(out, o,
                       o != NULL && json_add_number(o, "exit_code", exit_code) &&
                           (why[0] == '\0' || json_add_text(o, "words", why)));
}

bool event_finished(struct buf *out, const struct report *report)
{
    cJSON *o = event_new(EVENT_FINISHED, report->ended_ms - report->started_ms);
    return event_print(out, o, o != NULL && json_add(o, "report", report_json(report)));
}
