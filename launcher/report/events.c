/* events.c -- see events.h.
 *
 * {"name": "torchelastic.worker.status.START", "source": "WORKER", "timestamp": 0, "metadata": {...}}
 *
 * One oddity is kept because readers rely on it: "metadata" within the metadata is a text that is JSON itself, and what
 * is about a worker stands in lists of one. */
#include "report/events.h"

#include "agent/failure.h"
#include "output/events.h"
#include "report/report_json.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

const char *torch_event_state(enum worker_verdict verdict)
{
    if (verdict == WORKER_OK)
        return "SUCCEEDED";
    return verdict == WORKER_CONSEQUENCE ? "TERMINATED" : "FAILED";
}

static bool add_or_null(cJSON *o, const char *name, bool known, double value)
{
    return known ? json_add_number(o, name, value) : json_add_null(o, name);
}

/* [7], or [null] */
static bool add_list_of_one(cJSON *o, const char *name, bool known, double value)
{
    cJSON *list = cJSON_CreateArray();
    cJSON *item = known ? cJSON_CreateNumber(value) : cJSON_CreateNull();
    if (!json_add(o, name, list) || item == NULL || !cJSON_AddItemToArray(list, item)) {
        cJSON_Delete(item);
        return false;
    }
    return true;
}

static bool add_worker(cJSON *o, const struct torch_event *e)
{
    return add_list_of_one(o, "local_rank", true, e->who->local_rank) &&
           add_list_of_one(o, "role_rank", true, e->plan->role_rank + e->who->local_rank) &&
           add_list_of_one(o, "role_world_size", true, e->plan->role_size) &&
           add_list_of_one(o, "exit_code", e->failed, e->exit_code) &&
           add_list_of_one(o, "worker_pid", e->failed, e->pid);
}

/* torchrun tells the name without its directories. */
static const char *entry_point(const struct plan *plan)
{
    const char *slash = strrchr(plan->workers[0].argv[0], '/');
    return slash != NULL ? slash + 1 : plan->workers[0].argv[0];
}

/* As torchrun has it: what the worker's @record wrote, and this where it wrote nothing. */
static const char *raw_error(const struct torch_event *e)
{
    if (!e->failed)
        return NULL;
    return e->error != NULL ? e->error : "{\"message\": \"<NONE>\"}";
}

/* The text within the text. */
static bool add_inner(cJSON *o, const struct torch_event *e)
{
    struct buf text = { 0 };
    cJSON *inner = cJSON_CreateObject();
    bool ok = inner != NULL && json_add_number(inner, "group_world_size", e->plan->nnodes) &&
              json_add_text(inner, "entry_point", entry_point(e->plan)) &&
              (e->who == NULL || add_worker(inner, e));
    if (ok) {
        ok = json_print(&text, inner, false) && text.len > 0;
    } else {
        cJSON_Delete(inner);
    }
    if (ok)
        text.data[text.len - 1] = '\0'; /* the newline */
    ok = ok && json_add_text(o, "metadata", (const char *)text.data);
    buf_free(&text);
    return ok;
}

static bool add_metadata(cJSON *o, const struct torch_event *e)
{
    char id[16];
    const struct plan *plan = e->plan;
    snprintf(id, sizeof(id), "%d", e->pid);
    return json_add_text(o, "run_id", plan->job) &&
           add_or_null(o, "global_rank", e->who != NULL, e->who != NULL ? e->who->rank : 0) &&
           json_add_number(o, "group_rank", plan->node_rank) &&
           json_add_text(o, "worker_id", e->who != NULL ? id : NULL) &&
           json_add_text(o, "role", plan->cli->role) && json_add_text(o, "hostname", plan->facts->host) &&
           json_add_text(o, "state", e->state) &&
           json_add_number(o, "total_run_time", (double)(e->run_ms / 1000)) &&
           json_add_text(o, "rdzv_backend", plan->meeting.elastic ? "c10d" : "static") &&
           json_add_text(o, "raw_error", raw_error(e)) && add_inner(o, e) &&
           json_add_number(o, "agent_restarts", plan->restarts) &&
           add_or_null(o, "duration_ms", e->timed, (double)e->duration_ms);
}

/* NULL when memory is short. */
static cJSON *metadata_in(cJSON *o)
{
    cJSON *metadata = cJSON_CreateObject();
    return json_add(o, "metadata", metadata) ? metadata : NULL;
}

static bool add_all(cJSON *o, const struct torch_event *e)
{
    char name[64];
    cJSON *metadata;
    snprintf(name, sizeof(name), "torchelastic.worker.status.%s", e->state);
    return json_add_text(o, "name", name) &&
           json_add_text(o, "source", e->who != NULL ? "WORKER" : "AGENT") &&
           json_add_number(o, "timestamp", 0) && (metadata = metadata_in(o)) != NULL &&
           add_metadata(metadata, e);
}

bool torch_event(struct buf *out, const struct torch_event *e)
{
    cJSON *o = cJSON_CreateObject();
    if (o != NULL && add_all(o, e))
        return json_print(out, o, false);
    cJSON_Delete(o);
    return false;
}

/* --- event json ------------------------------------------------------------------------------------------- */

/* {"event":"worker_ended","t":2.5,"rank":1,"local_rank":1,"verdict":"failed","ending":"exit 7",...}
 *
 * Each function builds one object and hands it to emit(), which prints it or, when memory was short on the
 * way, throws it away: half an object on a line would break the reader of all that follow. */

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
    return event_print(
        out, o,
        o != NULL && json_add_number(o, "failed_attempt", failed->attempt) &&
            json_add_number(o, "rank", failed->rank) && json_add_text(o, "ending", failed->words) &&
            json_add_number(o, "exit_code", failed->exit_code) && json_add_number(o, "next_attempt", next) &&
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
