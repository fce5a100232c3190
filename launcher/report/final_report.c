/* final_report.c -- see report.h.
 *
 * The report is the last step: no worker runs, and no output is queued any more. So this code writes to the
 * descriptors directly, and may block for UNREAD_MS. */

#include "agent/agent.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/timed_call.h"
#include "contain/procfs.h"
#include "output/disk_watch.h"
#include "output/event_log.h"
#include "output/lines.h"
#include "output/log_files.h"
#include "output/writer.h"
#include "plan/plan.h"
#include "plan/worker.h"
#include "report/cause.h"
#include "report/evidence.h"
#include "report/exit_text.h"
#include "report/host_checks.h"
#include "report/user_messages.h"
#include "report/spawn_error.h"
#include "report/report.h"
#include "tables/signals.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* --- the report as one object, for --json and report.json --------------------------------------------- */

/* Times are seconds since the start of ddprun. A member that does not apply is left out. */

/* Version of the format. The version rises if the meaning of a member changes. The version does not rise if a member is
 * added. */
enum { REPORT_SCHEMA = 1 };

/* Return how the job ended, as one word for scripts. */
static const char *outcome(const struct report *r)
{
    struct failure room;
    const struct failure *f = cause_failure(r, &room);
    if (f != NULL)
        return f->error != 0 ? "not_started" : "failed";
    if (r->store.how != NULL)
        return "store_lost";
    return agent_stop_signal(r->agent) != 0 ? "stopped" : "ok";
}

/* Add a time twice: in seconds since the start of ddprun, and by the wall clock, so that times of different hosts can
 * be compared. */
static bool add_moment(cJSON *o, const struct report *r, const char *since, const char *unix_s, uint64_t ms)
{
    return json_add_number(o, since, (double)(ms - r->started_ms) / 1000.0) &&
           json_add_number(o, unix_s, (double)cause_unix_ms(r, ms) / 1000.0);
}

/* Add the members that describe how a worker ended. */
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

/* Append a worker to the array. The workers in the array are in the order of their local ranks. */
static bool add_worker(cJSON *array, const struct report *r, int local_rank)
{
    cJSON *o = json_add_object(array);
    return o != NULL && json_add_number(o, "rank", r->plan->workers[local_rank].rank) &&
           json_add_number(o, "local_rank", r->plan->workers[local_rank].local_rank) &&
           add_ending(o, r, agent_worker(r->agent, local_rank));
}

/* --- the first failure ---------------------------------------------------------------------------------- */

/* Call `make`, a function of cause.h, and add the text that `make` appends. If `make` appends no text, add null. */
static bool add_made(cJSON *o, const struct report *r, const char *name,
                     bool (*make)(const struct report *r, struct buf *out))
{
    struct buf text = { 0 };
    bool ok = make(r, &text);
    ok = ok && (text.len > 0 ? json_add_bytes(o, name, buf_slice(&text)) : json_add_text(o, name, NULL));
    buf_free(&text);
    return ok;
}

/* Add the facts about memory that ran out, with sizes in bytes. An unknown limit or peak is left out. */
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

/* Add the address of a fault as a text, because JSON numbers are exact only up to 2^53. */
static bool add_fault(cJSON *o, const struct worker_evidence *e)
{
    struct buf text = { 0 };
    bool ok = buf_printf(&text, "0x%llx", (unsigned long long)e->fault) &&
              json_add_bytes(o, "fault_address", buf_slice(&text)) &&
              json_add_text(o, "fault_in", e->object[0] != '\0' ? e->object : NULL);
    buf_free(&text);
    return ok;
}

/* Add the evidence on which the cause and the remedy are based. Unknown facts are left out. */
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
    if (e->coredump_kind == CORE_FILE)
        ok = ok && json_add_text(facts, "core_file", e->core) &&
             json_add_number(facts, "core_size", (double)e->coredump_size);
    return ok;
}

/* Add the worker's error file, or null if the worker wrote no such file. */
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

/* Add the last lines of the failed worker: the same lines as in the printed report. */
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

/* Add the failure of another node's worker, from the report of that node. */
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
#define ADD_HIDDEN(name)
#define ADD_BYTES(name)                                              ok = ok && json_add_number_or_null(o, #name, f->name != 0, (double)f->name);
#define ADD(X, kind, name, least, most, missing, what, shown, label) ADD_##shown(name)
    FAILURE_ROWS(ADD, )
#undef ADD
#undef ADD_BYTES
#undef ADD_HIDDEN
    return ok;
}

/* Add the first failure: the members that describe a worker, and also cause, remedy, evidence and last lines. */
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

/* --- attempts ------------------------------------------------------------------------------------------- */

static double seconds(uint64_t from_ms, uint64_t to_ms)
{
    return (double)(to_ms - from_ms) / 1000.0;
}

/* Add a failed attempt. Its members have the same names as the members of a worker, but started_s and ended_s are
 * times of the attempt. */
static bool add_attempt(cJSON *array, const struct report *r, const struct failed_attempt *a)
{
    const struct failure *f = &a->failure;
    cJSON *o = json_add_object(array);
    bool ok = o != NULL && json_add_number(o, "attempt", a->attempt) && json_add_number(o, "rank", f->rank) &&
              json_add_number(o, "local_rank", f->local_rank) &&
              json_add_number(o, "node_rank", f->node_rank) && json_add_text(o, "host", f->host) &&
              json_add_text(o, "verdict", verdict_name(a->verdict)) && json_add_text(o, "ending", f->words) &&
              json_add_text(o, "code", f->code[0] != '\0' ? f->code : NULL) &&
              json_add_number(o, "exit_code", failure_code(f)) &&
              json_add_number(o, "started_s", seconds(r->started_ms, a->started_ms)) &&
              json_add_number(o, "failed_s", seconds(r->started_ms, a->failed_ms)) &&
              json_add_number(o, "ended_s", seconds(r->started_ms, a->ended_ms));
    return ok && (a->step < 0 ? json_add_null(o, "step") : json_add_number(o, "step", (double)a->step));
}

static bool add_stuck(cJSON *array, const struct stuck *s)
{
    const char state[2] = { s->state, '\0' };
    cJSON *o = json_add_object(array);
    return o != NULL && json_add_number(o, "pid", s->pid) &&
           (s->rank < 0 ? json_add_null(o, "rank") : json_add_number(o, "rank", s->rank)) &&
           json_add_text(o, "name", s->name) && json_add_text(o, "state", state) &&
           json_add_text(o, "wchan", s->where[0] != '\0' ? s->where : NULL);
}

/* Add why no restart followed, with the same text as in the printed report. */
static bool add_no_restart(cJSON *o, const struct report *r)
{
    struct buf words = { 0 };
    bool some = agent_no_restart(r->agent) != NO_RESTART_NONE;
    bool ok = report_no_restart(r, &words) && (some ? json_add_bytes(o, "not_restarted", buf_slice(&words))
                                                    : json_add_text(o, "not_restarted", NULL));
    buf_free(&words);
    return ok;
}

static bool fill_finding(cJSON *item, const struct finding *f)
{
    return json_add_text(item, "code", finding_code_name(f->code)) &&
           json_add_text(item, "subject", f->subject) && json_add_text(item, "sentence", f->sentence) &&
           json_add_text(item, "advice", f->advice);
}

static bool add_hang(cJSON *o, const struct finding *f)
{
    if (f == NULL)
        return json_add_null(o, "hang");
    cJSON *item = cJSON_CreateObject();
    return json_add(o, "hang", item) && fill_finding(item, f);
}

static bool add_gpus(cJSON *o, const struct report *r)
{
    cJSON *list = cJSON_CreateArray();
    bool ok = json_add(o, "gpus", list);
    for (int i = 0; i < r->n_gpus && ok; i++) {
        cJSON *item = json_add_object(list);
        ok = item != NULL && fill_finding(item, &r->gpus[i]);
    }
    return ok;
}

/* Add the members about failed attempts, unkillable processes, restarts, left_waiting, hangs and GPUs. Empty arrays
 * are also added, so that a reader does not have to check whether an array exists. */
static bool add_attempts(cJSON *o, const struct report *r)
{
    const char *left = r->left.sentence != NULL && r->left.sentence[0] != '\0' ? r->left.sentence : NULL;
    cJSON *attempts = cJSON_CreateArray(), *stuck = cJSON_CreateArray();
    bool ok = json_add(o, "failed_attempts", attempts);
    ok = json_add(o, "unkillable", stuck) && ok;
    for (size_t i = 0; i < r->n_failed && ok; i++)
        ok = add_attempt(attempts, r, &r->failed[i]);
    for (size_t i = 0; i < r->n_stuck && ok; i++)
        ok = add_stuck(stuck, &r->stuck[i]);
    return ok && json_add_number(o, "max_restarts", agent_max_restarts(r->agent)) && add_no_restart(o, r) &&
           json_add_text(o, "left_waiting", left) &&
           json_add_text(o, "left_waiting_code", left != NULL ? finding_code_name(r->left.code) : NULL) &&
           add_hang(o, r->hang) && add_gpus(o, r);
}

/* --- the job -------------------------------------------------------------------------------------------- */

/* Add the headline, as in the printed report. */
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

/* Add the stacks of the workers that still ran at the first failure. If no stacks are known, add an empty array. */
static bool add_stacks(cJSON *o, const struct report *r)
{
    return json_add(o, "stacks", r->stacks != NULL ? cJSON_Duplicate(r->stacks, true) : cJSON_CreateArray());
}

/* Add the streams and files that lost output. The member `last_lines` may still contain the lost lines, because ddprun
 * keeps the last lines in memory. */
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

/* Add the members about the whole job. All members are always present, so that a reader does not have to check whether
 * a member exists. Unknown values are null. */
static bool add_job(cJSON *o, const struct report *r)
{
    struct failure room;
    char stop[SIGNAL_NAME_MAX], number[CAUSE_NUMBER_MAX];
    const int stop_signal = cause_is_host(r) ? 0 : agent_stop_signal(r->agent);
    signal_name(stop, stop_signal);
    return json_add_number(o, "schema", REPORT_SCHEMA) && json_add_text(o, "outcome", outcome(r)) &&
           add_headline(o, r) && json_add_number(o, "exit_code", agent_exit_code(r->agent)) &&
           json_add_text(o, "code", cause_code_name(r, cause_failure(r, &room), number)) &&
           json_add_text(o, "job", r->plan->job) && json_add_text(o, "host", r->plan->facts->host) &&
           json_add_number(o, "node_rank", r->plan->node_rank) &&
           json_add_number(o, "nnodes", r->plan->nnodes) && add_local_only(o, r) &&
           json_add_text(o, "ended_by", r->elsewhere != NULL ? r->elsewhere->why : NULL) &&
           json_add_number(o, "duration_s", (double)(r->ended_ms - r->started_ms) / 1000.0) &&
           json_add_number(o, "ended_unix_s", (double)r->ended_unix_ms / 1000.0) &&
           json_add_text(o, "stop_signal", stop_signal != 0 ? stop : NULL) &&
           json_add_sender(o, "stop_sender", r->stop != NULL ? &r->stop->sender : NULL) &&
           json_add_text(o, "log_dir", r->plan->log_root) && json_add_text(o, "flight_records", r->flights) &&
           add_first_failure(o, r) && add_attempts(o, r) && add_stacks(o, r) && add_losses(o, r);
}

/* Return the report as one JSON object, which the caller owns, or NULL when memory is short. report.schema.json
 * describes the object. This function owns `workers` until json_add adds the array to the report. */
static struct cJSON *report_json(const struct report *r)
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

/* Append the last event of --json, which contains the report. */
static bool event_finished(struct buf *out, const struct report *report)
{
    cJSON *o = event_new(EVENT_FINISHED, report->ended_ms - report->started_ms);
    return event_print(out, o, o != NULL && json_add(o, "report", report_json(report)));
}

/* --- printed and left in files -------------------------------------------------------------------------- */

enum {
    UNREAD_MS = 2000,    /* longest wait for a descriptor that accepts no byte */
    LOSSES_MAX = 64,     /* maximum number of targets in the list lost_output of report.json */
    LOSSES_PRINTED = 4,  /* maximum number of targets that warnings name; other targets are only counted */
    FULL_BYTES = 1 << 20 /* a file system with less free space counts as full */
};

/* Write the whole text and a newline. After an error, remove the file, because half a report is invalid JSON. */
static void write_file(int fd, const char *path, const char *text)
{
    char why[WRITE_ERROR_MAX];
    int error = write_timeout(fd, slice_str(text), UNREAD_MS);
    error = error == 0 ? write_timeout(fd, slice_str("\n"), UNREAD_MS) : error;
    if (close(fd) != 0 && error == 0)
        error = errno; /* a file server may report a full disk only at close */
    if (error == 0)
        return;
    /* format the error before the file is removed, because the text of the error shows the free space */
    path_error_text(error, path, "choose another --log_dir", why);
    unlink(path);
    log_warn("%s: cannot write: %s", path, why);
}

/* The path and the text of report.json. The thread that writes the file owns this copy, because the thread may outlive
 * the report. */
struct report_file {
    char path[PATH_MAX];
    char *text;
};

static void report_file_write(void *user)
{
    struct report_file *file = user;
    struct ddp_err err;
    disk_begin(DISK_MAIN, file->path);
    const int fd = logdir_create(file->path, LOGDIR_PRIVATE, &err);
    if (fd >= 0)
        write_file(fd, file->path, file->text);
    else
        log_warn("%s", err.msg);
    disk_end(DISK_MAIN);
}

static void report_file_free(void *user)
{
    struct report_file *file = user;
    if (file != NULL)
        cJSON_free(file->text);
    free(file);
}

/* Write report.json into the log directory. */
static void leave_in_log_dir(const struct report *r)
{
    char hung[DISK_PATH_MAX];
    if (disk_hangs(DISK_HUNG_MS, hung)) {
        log_warn(
            "%s/report.json: cannot write: the file system of %s does not answer; check the disk or the file "
            "server",
            r->plan->log_root, hung);
        return;
    }
    struct report_file *file = calloc(1, sizeof(*file));
    cJSON *json = file != NULL ? report_json(r) : NULL;
    if (json != NULL)
        file->text = cJSON_Print(json);
    cJSON_Delete(json);
    if (file == NULL || file->text == NULL) {
        log_warn("%s/report.json: cannot write: out of memory" MEMORY_REMEDY, r->plan->log_root);
        report_file_free(file);
        return;
    }
    snprintf(file->path, sizeof(file->path), "%s/report.json", r->plan->log_root);
    if (timed_call_run(report_file_write, report_file_free, file, UNREAD_MS))
        report_file_free(file);
    else
        log_warn("%s/report.json: cannot write: the file system does not answer; check the disk or the file "
                 "server",
                 r->plan->log_root);
}

/* Return true if this node must not print the report. The first rule that applies decides:
 * - If a finding about a host ended the job, no node prints the report, because the finding was already printed.
 * - Without `ddprun --hosts`, every node prints its report.
 * - A node that has lost the store prints the report, because this node cannot read in the store whether another node
 *   prints the report.
 * - If a worker failed, the node of the worker that failed first prints the report, because only this node has the
 *   evidence.
 * - If no worker failed, for example because a node was lost, node 0 prints the report. */
static bool other_node_prints(const struct report *r)
{
    const struct failure *f = r->elsewhere;
    const bool lives = f != NULL && f->rank >= 0;
    if (cause_is_host(r))
        return true;
    if (!r->plan->cli->one_console || r->store.how != NULL)
        return false;
    return f != NULL ? lives || r->plan->node_rank != 0
                     : agent_first_failure(r->agent) < 0 && r->plan->node_rank != 0;
}

/* Print the report, or with --json the last event. If `midline` is true, print a newline first, because the last line
 * of a worker does not end with a newline. After a success the report is printed only with --verbose. Ignore an error
 * of the write, because a message about this error could not be written either. */
static void print_it(const struct report *r, bool midline)
{
    const struct cli *cli = r->plan->cli;
    const bool wanted = cli->json || cli->verbose || (report_needed(r) && !other_node_prints(r));
    struct buf out = { 0 };
    const bool row = !midline || buf_append(&out, "\n", 1); /* with --json, midline is always false */
    if (wanted && row && (cli->json ? event_finished(&out, r) : report_text(r, &out)))
        (void)write_timeout(cli->json ? STDOUT_FILENO : STDERR_FILENO, buf_slice(&out), UNREAD_MS);
    else if (wanted)
        log_error("report: cannot print: out of memory; the exit code is %d", agent_exit_code(r->agent));
    buf_free(&out);
}

/* Return the present UTC offset in seconds. Call this function only if the report contains times, because the C
 * library reads a file to find the offset. */
static int utc_offset_s(void)
{
    struct tm local;
    time_t now = time(NULL);
    return localtime_r(&now, &local) != NULL ? (int)local.tm_gmtoff : 0;
}

/* The memory to which members of `struct report` point. */
struct details {
    char python[PATH_MAX];
    struct program_file file;
    struct error_text error;
    struct ddp_err trouble;
    struct full_disk full;
    struct finding gpus[GPU_FINDINGS_MAX];
};

/* Find the Python that ran the workers, because a failed import often means that the wrong Python ran. */
static void find_python(struct report *r, struct details *d)
{
    const struct cli *cli = r->plan->cli;
    const struct env_sources env = { cli->env.items, cli->env.n, r->plan->facts->environ_block };
    const char *python = program_python(cli, r->plan->facts->python);
    if (python != NULL && env_find_program(python, &env, d->python))
        r->python = d->python;
}

/* Read the error file of the first failure. The files of other workers usually report only a broken connection. */
static void read_error_file(struct report *r, struct details *d)
{
    int first = agent_first_failure(r->agent);
    const char *path = first >= 0 ? r->plan->workers[first].error_file : "";
    if (*path == '\0' || agent_worker(r->agent, first)->verdict == WORKER_NOT_STARTED)
        return;
    ddp_status status = error_file_read(path, &d->error, &d->trouble);
    if (status == DDP_OK)
        r->error = &d->error;
    else if (status != DDP_ERR_CLOSED)
        r->error_trouble = d->trouble.msg;
}

/* Add a row to full->rooms: the free space of the file system that contains `file`. */
static void add_room(struct full_disk *full, const char *file, const char *name)
{
    char path[PATH_MAX];
    struct statvfs fs;
    struct disk_room *room = &full->rooms[full->n_rooms];
    snprintf(path, sizeof(path), "%s", file);
    if (!find_on_disk(path) || statvfs(path, &fs) != 0)
        return;
    snprintf(room->path, sizeof(room->path), "%s", name);
    room->bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    room->inodes = fs.f_files != 0 ? (uint64_t)fs.f_favail : UINT64_MAX;
    full->n_rooms++;
}

/* Find the quota on the file system of a file. */
static void find_quota(struct full_disk *full, const char *file)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s", file);
    const int fd = find_on_disk(path) ? open(path, O_PATH | O_CLOEXEC) : -1;
    quota_text(fd, full->quota);
    if (fd >= 0)
        close(fd);
}

/* Add the file system of ddprun's stdout. Call this function only if the node's only worker has inherited this stdout.
 * Return true if the file system is full. */
static bool add_stdout_room(struct full_disk *full)
{
    static const char own[] = "/proc/self/fd/1";
    char name[PATH_MAX] = "stdout ";
    const size_t front = strlen(name);
    const ssize_t len = readlink(own, name + front, sizeof(name) - front - 1);
    name[front + (size_t)(len > 0 ? len : 0)] = '\0';
    add_room(full, own, name);
    return full->n_rooms > 0 && full->rooms[0].bytes < FULL_BYTES;
}

/* Find the free space of the disk that was full when the worker failed. After an error about a quota, find the quota
 * instead. If the error names no file, examine the disk of an inherited stdout. If this disk has free space, examine
 * the disks of the working directory and of /dev/shm. */
static void find_room(struct report *r, struct details *d)
{
    struct full_disk *full = &d->full;
    if (!cause_full_disk(r, full))
        return;
    r->full = full;
    full->n_rooms = 0;
    if (full->is_quota) {
        find_quota(full, full->path[0] != '\0' ? full->path : ".");
        return;
    }
    if (full->path[0] != '\0') {
        add_room(full, full->path, full->path);
        return;
    }
    if (r->stdout_tails == NULL && add_stdout_room(full))
        return;
    add_room(full, ".", "the working directory");
    add_room(full, "/dev/shm", "/dev/shm");
}

/* Find the other processes on a GPU whose worker failed because the GPU was full or busy. Ask the driver if the agent
 * has not asked the driver earlier. For a worker of another node, use that node's record of the failure. */
static void find_gpu_users(struct report *r, struct details *d)
{
    const struct failure *f = r->elsewhere;
    /* the failed worker is on another node */
    if (f != NULL) {
        const bool has_users = finding_gpu_users(&d->gpus[0], f->gpu, f->host, f->rank, f->gpu_users);
        r->gpus = has_users ? d->gpus : r->gpus;
        r->n_gpus = has_users ? 1 : r->n_gpus;
    } else if (cause_is_gpu_in_use(r)) {
        const struct gpu_answer *known = r->gpu_answer;
        r->gpus = known != NULL ? known->found : d->gpus;
        r->n_gpus = known != NULL ? known->n : gpu_find(r->plan, true, GPU_FAILURE_MS, d->gpus);
    }
}

/* Copy the error file of the first failure to the path in ddprun's own TORCHELASTIC_ERROR_FILE, which the user or an
 * outer launcher has set. As torchrun does, add the worker's exit code, or the negative number of the signal that
 * killed the worker. */
static void hand_on_error(const struct report *r)
{
    const char *to = env_find(r->plan->facts->environ_block, worker_env_name(ENV_TORCHELASTIC_ERROR_FILE));
    const int first = agent_first_failure(r->agent);
    if (r->error == NULL || to == NULL || *to == '\0')
        return;
    const struct agent_worker *w = agent_worker(r->agent, first);
    error_file_hand_on(r->plan->workers[first].error_file, to, w->signal != 0 ? -w->signal : w->exit_code);
}

/* Warn about lost output. A reader that has exited, such as head, needed no more output and is not reported. */
static void warn_of_losses(const struct loss *lost, size_t n)
{
    size_t printed = 0, more = 0;
    for (size_t i = 0; i < n; i++) {
        if (lost[i].error == EPIPE)
            continue;
        if (printed < LOSSES_PRINTED)
            log_warn("%s: %llu byte%s of the workers' output %s missing: %s", lost[i].name,
                     (unsigned long long)lost[i].bytes, lost[i].bytes == 1 ? "" : "s",
                     lost[i].bytes == 1 ? "is" : "are",
                     lost[i].error != 0 ? strerror(lost[i].error) : "the reader was too slow");
        *(printed < LOSSES_PRINTED ? &printed : &more) += 1;
    }
    if (more > 0)
        log_warn("output is missing in %s%zu more file%s; see lost_output in --json or report.json",
                 n == LOSSES_MAX ? "at least " : "", more, more == 1 ? "" : "s");
}

static size_t collect_losses(struct output *output, struct loss lost[LOSSES_MAX])
{
    size_t n = 0;
    while (n < LOSSES_MAX && output_loss(output, n, &lost[n]))
        n++;
    return n;
}

/* Warn after a success if nodes are missing because the store was reachable only on this host. */
static void warn_of_local_only(const struct report *r)
{
    struct buf text = { 0 };
    if (!r->plan->cli->quiet && !report_needed(r) && report_local_only(r, &text) && text.len > 0)
        log_warn("%.*s", (int)text.len, (const char *)text.data);
    buf_free(&text);
}

/* Collect the facts, print the report, then write the files. Printing comes first, because a user may be waiting. */
void final_report(struct report *r, struct output *output, const struct evidence *evidence,
                  const char *program)
{
    struct loss lost[LOSSES_MAX];
    static struct details details; /* too large for the stack */
    r->stdout_tails = output_tails(output, STD_OUT);
    r->stderr_tails = output_tails(output, STD_ERR);
    r->ended_ms = clock_ms();
    r->ended_unix_ms = clock_unix_us() / 1000;
    r->colour = r->plan->facts->terminal && plan_wants_colour(r->plan);
    r->lost = lost;
    r->n_lost = collect_losses(output, lost);
    if (report_needed(r))
        r->utc_offset_s = utc_offset_s();
    if (r->elsewhere == NULL) {
        r->evidence = evidence_of(evidence, agent_first_failure(r->agent));
        r->file = program_examine_failed(program, r->plan->script, &details.file) ? &details.file : NULL;
        find_python(r, &details);
        if (!disk_hangs(DISK_HUNG_MS, NULL)) {
            read_error_file(r, &details);
            find_room(r, &details);
            hand_on_error(r);
        }
    }
    find_gpu_users(r, &details);
    print_it(r, output_is_midline(output));
    warn_of_local_only(r);
    warn_of_losses(lost, r->n_lost);
    if (r->plan->log_root != NULL)
        leave_in_log_dir(r);
    error_text_free(&details.error);
}
