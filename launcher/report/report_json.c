/* report_json.c -- see report_json.h.
 *
 * the report as one object, for --json and for report.json in the log directory.
 *
 * Times are seconds since the start of ddprun, so that those of different workers can be compared. A member
 * that does not apply (the pid of a worker that never ran) is left out rather than filled with a number that
 * means something else. */
#include "report/report_json.h"

#include "agent/failure.h"
#include "output/lines.h"
#include "report/report_cause.h"
#include "report/report_text.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* The members are always there, so a reader need not ask which exist. */

enum { MEMBER_MAX = 64 };

bool json_add_signal(cJSON *o, int signal)
{
    char name[ENDING_MAX];
    signal_name(name, signal);
    return json_add_number(o, "signal", signal) && json_add_text(o, "signal_name", name);
}

static bool add_number_or_null(cJSON *o, const char *name, bool known, double value)
{
    return known ? json_add_number(o, name, value) : json_add_null(o, name);
}

bool json_add_sender(cJSON *o, const char *prefix, const struct signal_sender *sender)
{
    char pid[MEMBER_MAX], name[MEMBER_MAX], uid[MEMBER_MAX];
    const bool sent = sender != NULL && !sender->kernel;
    snprintf(pid, sizeof(pid), "%s_pid", prefix);
    snprintf(name, sizeof(name), "%s_name", prefix);
    snprintf(uid, sizeof(uid), "%s_uid", prefix);
    return add_number_or_null(o, pid, sent && sender->pid > 0, sent ? sender->pid : 0) &&
           json_add_text(o, name, sent && sender->name[0] != '\0' ? sender->name : NULL) &&
           add_number_or_null(o, uid, sent, sent ? sender->uid : 0);
}

/* --- report json ------------------------------------------------------------------------------------------ */

enum { REPORT_SCHEMA = 1 }; /* grows when a member changes its meaning; new members do not count */

/* One word for a script to branch on. */
static const char *outcome(const struct report *r)
{
    struct failure room;
    const struct failure *f = cause_failure(r, &room);
    if (f != NULL)
        return f->error != 0 ? "not_started" : "failed";
    if (r->store_lost != NULL)
        return "store_lost";
    return agent_stop_signal(r->agent) != 0 ? "stopped" : "ok";
}

/* A moment twice: since our start, to compare workers, and by the wall clock, to compare machines. */
static bool add_moment(cJSON *o, const struct report *r, const char *since, const char *unix_s, uint64_t ms)
{
    return json_add_number(o, since, (double)(ms - r->started_ms) / 1000.0) &&
           json_add_number(o, unix_s, (double)cause_unix_ms(r, ms) / 1000.0);
}

/* Members of a worker's end; those that do not apply are left out. */
static bool add_ending(cJSON *o, const struct report *r, const struct agent_worker *w)
{
    char text[ENDING_MAX];
    bool ended = w->verdict != WORKER_PENDING && w->verdict != WORKER_ALIVE;
    bool started = w->verdict != WORKER_PENDING && w->verdict != WORKER_NOT_STARTED;
    ending_text(text, w);
    bool ok = json_add_text(o, "verdict", verdict_name(w->verdict)) && json_add_text(o, "ending", text);
    if (started)
        ok = ok && json_add_number(o, "pid", w->pid) &&
             add_moment(o, r, "started_s", "started_unix_s", w->started_ms);
    if (ended && started)
        ok = ok && add_moment(o, r, "ended_s", "ended_unix_s", w->ended_ms);
    if (ended)
        ok = ok && json_add_number(o, "exit_code", ending_code(w));
    if (w->signal != 0)
        ok = ok && json_add_signal(o, w->signal);
    if (w->verdict == WORKER_NOT_STARTED)
        ok = ok && json_add_number(o, "errno", w->error);
    return ok;
}

/* By index: array and local ranks have the same order, but ranks of the job need not begin at 0 on this node. */
static bool add_worker(cJSON *array, const struct report *r, int local_rank)
{
    cJSON *o = json_add_object(array);
    return o != NULL && json_add_number(o, "rank", r->plan->workers[local_rank].rank) &&
           json_add_number(o, "local_rank", local_rank) &&
           add_ending(o, r, agent_worker(r->agent, local_rank));
}

/* --- the first failure ---------------------------------------------------------------------------------- */

/* A sentence of report_cause.h, null when it has nothing to say. */
static bool add_made(cJSON *o, const struct report *r, const char *name,
                     bool (*make)(const struct report *r, struct buf *out))
{
    struct buf text = { 0 };
    bool ok = make(r, &text);
    ok = ok && (text.len > 0 ? json_add_bytes(o, name, buf_slice(&text)) : json_add_text(o, name, NULL));
    buf_free(&text);
    return ok;
}

/* Sizes in bytes; a limit or peak that is not known is left out. */
static bool add_oom(cJSON *o, const struct worker_evidence *e)
{
    cJSON *oom = cJSON_CreateObject();
    if (!json_add(o, "oom", oom) || !json_add_text(oom, "of", e->oom == OOM_CGROUP ? "cgroup" : "system") ||
        !json_add_number(oom, "kills", (double)e->kills) || !json_add_bool(oom, "named", e->oom_named))
        return false;
    if (e->oom == OOM_CGROUP && !json_add_text(oom, "cgroup", e->cgroup))
        return false;
    return (e->limit == 0 || json_add_number(oom, "limit", (double)e->limit)) &&
           (e->peak == 0 || json_add_number(oom, "peak", (double)e->peak));
}

/* Numbers over 2^53 do not fit into JSON's; addresses are text. */
static bool add_fault(cJSON *o, const struct worker_evidence *e)
{
    struct buf text = { 0 };
    bool ok = buf_printf(&text, "0x%llx", (unsigned long long)e->fault) &&
              json_add_bytes(o, "fault_address", buf_slice(&text)) &&
              json_add_text(o, "fault_in", e->object[0] != '\0' ? e->object : NULL);
    buf_free(&text);
    return ok;
}

/* Facts behind the sentences, for programs; members that were not seen are left out. */
static bool add_evidence(cJSON *o, const struct report *r)
{
    const struct worker_evidence *e = r->evidence;
    cJSON *facts = cJSON_CreateObject();
    bool ok = json_add(o, "evidence", facts);
    if (!ok || e == NULL)
        return ok;
    if (e->oom != OOM_NONE)
        ok = add_oom(facts, e);
    if (e->shm_size > 0)
        ok = ok && json_add_number(facts, "shm_size", (double)e->shm_size) &&
             json_add_number(facts, "shm_free", (double)e->shm_free);
    if (e->fault_known)
        ok = ok && add_fault(facts, e);
    if (e->core_kind == CORE_FILE)
        ok = ok && json_add_text(facts, "core_file", e->core) &&
             json_add_number(facts, "core_size", (double)e->core_size);
    return ok;
}

/* null when the worker left none. */
static bool add_error(cJSON *o, const struct report *r)
{
    if (r->error_trouble != NULL && !json_add_text(o, "error_file_trouble", r->error_trouble))
        return false;
    if (r->error == NULL)
        return json_add_null(o, "error");
    cJSON *error = cJSON_CreateObject();
    if (!json_add(o, "error", error) || !json_add_text(error, "message", r->error->message) ||
        !json_add_text(error, "callstack", r->error->callstack[0] != '\0' ? r->error->callstack : NULL))
        return false;
    return r->error->unix_ms == 0 ? json_add_null(error, "unix_s")
                                  : json_add_number(error, "unix_s", (double)r->error->unix_ms / 1000.0);
}

/* As the text report shows them, so that a program sees what a person would. */
static bool add_last_lines(cJSON *f, const struct report *r)
{
    struct buf lines = { 0 };
    bool from_stdout;
    cause_last_lines(r, REPORT_STDERR_LINES, &lines, &from_stdout);
    bool ok = json_add_text(f, "last_lines_from", from_stdout ? "stdout" : "stderr") &&
              json_add_bytes(f, "last_lines", buf_slice(&lines));
    buf_free(&lines);
    return ok;
}

/* Of a worker elsewhere: as far as its node has reported. */
static bool add_ending_elsewhere(cJSON *o, const struct failure *f)
{
    bool ok = json_add_text(o, "verdict", verdict_name(f->error != 0 ? WORKER_NOT_STARTED : WORKER_FAILED)) &&
              json_add_text(o, "ending", f->words) && json_add_number(o, "exit_code", failure_code(f));
    if (f->pid > 0)
        ok = ok && json_add_number(o, "pid", f->pid);
    if (f->signal != 0)
        ok = ok && json_add_signal(o, f->signal);
    if (f->error != 0)
        ok = ok && json_add_number(o, "errno", f->error);
    return ok;
}

static bool add_facts(cJSON *o, const struct failure *f)
{
    bool ok = true;
#define ADD(X, kind, name, least, most, missing, what, shown, label) \
    ok = ok &&                                                       \
         (FAILURE_##shown == FAILURE_HIDDEN || add_number_or_null(o, #name, f->name != 0, (double)f->name));
    FAILURE_ROWS(ADD, )
#undef ADD
    return ok;
}

/* The worker's members as in `workers`, and what only the first cause has. */
static bool add_first_failure(cJSON *o, const struct report *r)
{
    struct failure room;
    const struct failure *f = cause_failure(r, &room);
    const struct agent_worker *w = cause_worker(r);
    if (f == NULL || f->rank < 0)
        return json_add_null(o, "first_failure");
    cJSON *item = cJSON_CreateObject();
    return json_add(o, "first_failure", item) && json_add_number(item, "rank", f->rank) &&
           json_add_number(item, "local_rank", f->local_rank) && json_add_text(item, "host", f->host) &&
           json_add_number(item, "node_rank", f->node_rank) &&
           (w != NULL ? add_ending(item, r, w) : add_ending_elsewhere(item, f)) &&
           add_made(item, r, "cause", cause_why) && add_made(item, r, "remedy", cause_remedy) &&
           add_made(item, r, "core", cause_core) && add_made(item, r, "hint", cause_hint) &&
           add_facts(item, f) && add_evidence(item, r) && add_error(item, r) &&
           json_add_text(item, "log_dir", f->log[0] != '\0' ? f->log : NULL) && add_last_lines(item, r);
}

/* --- the job -------------------------------------------------------------------------------------------- */

/* The text report's first sentence, word for word, so that a search finds both. */
static bool add_headline(cJSON *o, const struct report *r)
{
    struct buf text = { 0 };
    bool ok = cause_headline(r, &text) && json_add_bytes(o, "message", buf_slice(&text));
    buf_free(&text);
    return ok;
}

static bool add_local_only(cJSON *o, const struct report *r)
{
    struct buf text = { 0 };
    bool ok = report_local_only(r, &text);
    ok = ok &&
         (text.len > 0 ? json_add_bytes(o, "local_only", buf_slice(&text)) : json_add_null(o, "local_only"));
    buf_free(&text);
    return ok;
}

/* Output that reached neither console nor file; what is in `last_lines` may be among it. */
static bool add_losses(cJSON *o, const struct report *r)
{
    cJSON *all = cJSON_CreateArray();
    bool ok = json_add(o, "lost_output", all);
    for (size_t i = 0; i < r->n_lost && ok; i++) {
        const struct loss *lost = &r->lost[i];
        cJSON *item = json_add_object(all);
        ok = item != NULL && json_add_text(item, "to", lost->name) &&
             json_add_number(item, "bytes", (double)lost->bytes) &&
             json_add_text(item, "error", lost->error != 0 ? strerror(lost->error) : NULL);
    }
    return ok;
}

/* The same members in every report, null where there is nothing to say: a reader need not ask what exists. */
static bool add_job(cJSON *o, const struct report *r)
{
    struct failure room;
    char stop[ENDING_MAX];
    int stop_signal = agent_stop_signal(r->agent);
    signal_name(stop, stop_signal);
    return json_add_number(o, "schema", REPORT_SCHEMA) && json_add_text(o, "outcome", outcome(r)) &&
           add_headline(o, r) && json_add_number(o, "exit_code", agent_exit_code(r->agent)) &&
           json_add_text(o, "code", cause_code_name(r, cause_failure(r, &room))) &&
           json_add_text(o, "job", r->plan->job) && json_add_text(o, "host", r->plan->facts->host) &&
           json_add_number(o, "node_rank", r->plan->node_rank) &&
           json_add_number(o, "nnodes", r->plan->nnodes) && add_local_only(o, r) &&
           json_add_text(o, "ended_by", r->elsewhere != NULL ? r->elsewhere->why : NULL) &&
           json_add_number(o, "duration_s", (double)(r->ended_ms - r->started_ms) / 1000.0) &&
           json_add_number(o, "ended_unix_s", (double)r->ended_unix_ms / 1000.0) &&
           json_add_text(o, "stop_signal", stop_signal != 0 ? stop : NULL) &&
           json_add_sender(o, "stop_sender", r->stop != NULL ? &r->stop->sender : NULL) &&
           json_add_text(o, "log_dir", r->plan->log_root) && json_add_text(o, "flight_records", r->flights) &&
           add_first_failure(o, r) && report_attempts_json(r, o) && add_losses(o, r);
}

/* Ownership passes with each json_add: from then on the parent frees. `workers` is made before it has a parent, so
 * it is freed here when the way there fails. */
struct cJSON *report_json(const struct report *r)
{
    cJSON *o = cJSON_CreateObject();
    cJSON *workers = cJSON_CreateArray();
    bool ok = o != NULL && add_job(o, r);
    if (ok)
        ok = json_add(o, "workers", workers);
    else
        cJSON_Delete(workers);
    for (int i = 0; ok && i < r->plan->nproc; i++)
        ok = add_worker(workers, r, i);
    if (ok)
        return o;
    cJSON_Delete(o);
    return NULL;
}
