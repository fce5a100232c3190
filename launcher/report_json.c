/* report_json.c -- the report as one object, for --json and for report.json in the log directory.
 *
 * Times are seconds since the start of ddprun, so that those of different workers can be compared. A member
 * that does not apply (the pid of a worker that never ran) is left out rather than filled with a number that
 * means something else. */
#include "report.h"

#include "ending.h"
#include "json_text.h"
#include "report_cause.h"
#include "signal_json.h"

#include <cjson/cJSON.h>
#include <string.h>

/* One word for a script to branch on. */
static const char *outcome(const struct report *r)
{
    int first = agent_first_failure(r->agent);
    if (first >= 0)
        return agent_worker(r->agent, first)->verdict == WORKER_NOT_STARTED ? "not_started" : "failed";
    return agent_stop_signal(r->agent) != 0 ? "stopped" : "ok";
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
             json_add_number(o, "started_s", (double)(w->started_ms - r->started_ms) / 1000.0);
    if (ended && started)
        ok = ok && json_add_number(o, "ended_s", (double)(w->ended_ms - r->started_ms) / 1000.0);
    if (ended)
        ok = ok && json_add_number(o, "exit_code", ending_code(w));
    if (w->signal != 0) {
        signal_name(text, w->signal);
        ok = ok && json_add_number(o, "signal", w->signal) && json_add_text(o, "signal_name", text);
    }
    return ok;
}

/* In the array from the start: whatever fails later, the root's cJSON_Delete finds it. */
static bool add_worker(cJSON *array, const struct report *r, int local_rank)
{
    cJSON *o = cJSON_CreateObject();
    if (o == NULL || !cJSON_AddItemToArray(array, o)) {
        cJSON_Delete(o);
        return false;
    }
    return json_add_number(o, "rank", r->plan->workers[local_rank].rank) &&
           json_add_number(o, "local_rank", local_rank) &&
           add_ending(o, r, agent_worker(r->agent, local_rank));
}

/* The worker's members as in `workers`, and what only the first cause has. */
static bool add_first_failure(cJSON *o, const struct report *r)
{
    int first = agent_first_failure(r->agent);
    struct buf lines = { 0 };
    bool from_stdout;
    if (first < 0)
        return json_add(o, "first_failure", cJSON_CreateNull());
    cJSON *f = cJSON_CreateObject();
    bool ok = json_add(o, "first_failure", f) && json_add_number(f, "rank", r->plan->workers[first].rank) &&
              json_add_number(f, "local_rank", first) && json_add_text(f, "host", r->plan->facts->host) &&
              add_ending(f, r, agent_worker(r->agent, first));
    cause_last_lines(r, first, &lines, &from_stdout);
    ok = ok && json_add_text(f, "last_lines_from", from_stdout ? "stdout" : "stderr") &&
         json_add_bytes(f, "last_lines", buf_slice(&lines));
    buf_free(&lines);
    return ok;
}

/* The text report's first sentence, word for word, so that a search finds both. */
static bool add_headline(cJSON *o, const struct report *r)
{
    struct buf text = { 0 };
    bool ok = cause_headline(r, &text) && json_add_bytes(o, "message", buf_slice(&text));
    buf_free(&text);
    return ok;
}

/* The same members in every report, null where there is nothing to say: a reader need not ask what exists. */
static bool add_job(cJSON *o, const struct report *r)
{
    char stop[ENDING_MAX];
    int stop_signal = agent_stop_signal(r->agent);
    signal_name(stop, stop_signal);
    return json_add_text(o, "outcome", outcome(r)) && add_headline(o, r) &&
           json_add_number(o, "exit_code", agent_exit_code(r->agent)) &&
           json_add_text(o, "job", r->plan->job) && json_add_text(o, "host", r->plan->facts->host) &&
           json_add_number(o, "duration_s", (double)(r->ended_ms - r->started_ms) / 1000.0) &&
           json_add_number(o, "ended_unix_s", (double)r->ended_unix_ms / 1000.0) &&
           json_add_text(o, "stop_signal", stop_signal != 0 ? stop : NULL) &&
           json_add_sender(o, "stop_sender", r->stop != NULL ? &r->stop->sender : NULL) &&
           json_add_text(o, "log_dir", r->plan->log_root) && add_first_failure(o, r);
}

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
