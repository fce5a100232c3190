/* report.c -- see report.h. From top to bottom: the first cause, what is known about it and what helps, who
 * it was and when, its last words, what became of the others, where the logs are, and the exit code:
 *
 *     ddprun: rank 2 on n1 failed first: exit 7, 2.5 s after its start
 *       worker   rank 2 (local rank 2), pid 4002, host n1
 *       times    started 2026-11-21 12:04:07.113, ended 12:04:09.613
 *       stderr   | Traceback (most recent call last):
 *                |   ...
 *       then     ranks 0-1,3 were stopped by ddprun as a consequence (SIGTERM)
 *       logs     logs/k3x9, of this worker logs/k3x9/attempt_0/2
 *       exit     7, because of rank 2 on n1
 *
 * Each block has a limit of its own, so that the whole stays under REPORT_LINES_MAX however many workers
 * there are: a reader's first screen must hold the cause. Details that do not fit are in the JSON and in the
 * log files. */
#include "report/report.h"

#include "agent/ending.h"
#include "report/report_attempts.h"
#include "report/report_cause.h"
#include "report/report_others.h"
#include "report/report_rows.h"
#include "tables/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { WHY_LINES = 3, ERROR_LINES = 6, OTHERS_LINES = 8, END_LINES = 7, DAY_S = 24 * 3600 };

/* A worker that could not be killed needs telling even when the job was a success. */
bool report_needed(const struct report *r)
{
    if (cause_first(r) >= 0 || agent_stop_signal(r->agent) != 0 || r->elsewhere != NULL ||
        r->store_lost != NULL)
        return true;
    for (int i = 0; i < r->plan->nproc; i++)
        if (agent_worker(r->agent, i)->verdict != WORKER_OK)
            return true;
    return false;
}

/* --- the first cause ------------------------------------------------------------------------------------ */

/* A row whose text one of the cause_ functions makes. */
static void made_row(const struct report *r, struct rows *rows, const char *label,
                     bool (*make)(const struct report *r, struct buf *out))
{
    struct buf text = { 0 };
    if (make(r, &text))
        rows_text(rows, label, buf_slice(&text), WHY_LINES);
    else
        rows->ok = false;
    buf_free(&text);
}

static void headline(const struct report *r, struct rows *rows)
{
    struct buf text = { 0 };
    rows->ok = rows->ok && cause_headline(r, &text);
    rows_headline(rows, buf_slice(&text));
    buf_free(&text);
}

static void who(const struct report *r, struct rows *rows, const struct agent_worker *w)
{
    int local_rank = cause_first(r), rank = r->plan->workers[local_rank].rank;
    if (w->pid > 0)
        rows_printf(rows, "worker", "rank %d (local rank %d), pid %d, host %s", rank, local_rank, w->pid,
                    r->plan->facts->host);
    else
        rows_printf(rows, "worker", "rank %d (local rank %d), host %s", rank, local_rank,
                    r->plan->facts->host);
}

/* Of a worker that never ran both times are the one of the attempt. */
static void times(const struct report *r, struct rows *rows, const struct agent_worker *w)
{
    char from[TIME_TEXT_MAX], to[TIME_TEXT_MAX];
    uint64_t started = cause_unix_ms(r, w->started_ms), ended = cause_unix_ms(r, w->ended_ms);
    uint64_t offset = (uint64_t)(r->utc_offset_s + DAY_S);
    bool next_day = (started / 1000 + offset) / DAY_S != (ended / 1000 + offset) / DAY_S;
    words_clock(from, started, r->utc_offset_s, true);
    words_clock(to, ended, r->utc_offset_s, next_day);
    if (w->verdict == WORKER_NOT_STARTED)
        rows_printf(rows, "times", "tried %s", from);
    else
        rows_printf(rows, "times", "started %s, ended %s", from, to);
}

/* Does the worker's stderr end with what it recorded? A Python exception is in both. */
static bool is_in_last_lines(const struct report *r, const char *message)
{
    struct buf lines = { 0 };
    bool from_stdout;
    cause_last_lines(r, cause_first(r), REPORT_STDERR_LINES, &lines, &from_stdout);
    bool found = lines.len > 0 && memmem(lines.data, lines.len, message, strcspn(message, "\n")) != NULL;
    buf_free(&lines);
    return found;
}

/* What torch's @record left, or why it cannot be read: that must not hide anything, so it is one row among others. */
static void recorded(const struct report *r, struct rows *rows)
{
    if (r->error_trouble != NULL)
        rows_printf(rows, "error", "the worker's error file cannot be used: %s", r->error_trouble);
    else if (r->error != NULL && !is_in_last_lines(r, r->error->message))
        rows_text(rows, "error", slice_str(r->error->message), ERROR_LINES);
}

/* The last lines, as many as leave room for what comes behind them. */
static void last_words(const struct report *r, struct rows *rows)
{
    struct buf lines = { 0 };
    bool from_stdout;
    int room = rows->limit - rows->lines - OTHERS_LINES;
    size_t max = room > REPORT_STDERR_LINES ? REPORT_STDERR_LINES : room > 0 ? (size_t)room : 1;
    size_t n = cause_last_lines(r, cause_first(r), max, &lines, &from_stdout);
    const char *p = (const char *)lines.data, *label = from_stdout ? "stdout" : "stderr";
    if (n == 0)
        rows_printf(rows, "output", "it wrote nothing");
    for (size_t i = 0; i < n; i++) {
        const char *end = memchr(p, '\n', lines.len - (size_t)(p - (const char *)lines.data));
        rows_quote(rows, i == 0 ? label : "", slice_of(p, (size_t)(end - p)));
        p = end + 1;
    }
    if (n > 0 && from_stdout)
        rows_printf(rows, "", "(it wrote nothing to stderr)");
    buf_free(&lines);
}

static void first_cause(const struct report *r, struct rows *rows)
{
    const struct agent_worker *w = cause_worker(r);
    if (w == NULL)
        return;
    made_row(r, rows, "why", cause_why);
    made_row(r, rows, "try", cause_remedy);
    made_row(r, rows, "core", cause_core);
    who(r, rows, w);
    times(r, rows, w);
    if (w->verdict == WORKER_NOT_STARTED)
        return;
    recorded(r, rows);
    made_row(r, rows, "hint", cause_hint);
    last_words(r, rows);
}

/* It is all here that this node was told; the rest is in the report of the node where it happened. */
static void cause_elsewhere(const struct report *r, struct rows *rows)
{
    const struct cause *c = r->elsewhere;
    made_row(r, rows, "why", cause_why);
    if (c->rank >= 0 && c->pid > 0)
        rows_printf(rows, "worker", "rank %d (local rank %d), pid %d, host %s, node %d; more is said there",
                    c->rank, c->local_rank, c->pid, c->host, c->node_rank);
    else if (c->node_rank >= 0)
        rows_printf(rows, "node", "node %d, host %s", c->node_rank, c->host);
    if (c->log[0] != '\0')
        rows_printf(rows, "its logs", "%s on %s", c->log, c->host);
    made_row(r, rows, "hint", cause_hint);
    for (int i = 0; i < c->n_lines; i++)
        rows_quote(rows, i > 0 ? "" : c->from_stdout ? "stdout" : "stderr", slice_str(c->lines[i]));
}

/* The store lives in a launcher or daemon; with that it dies, and with the way there. */
static void store_gone(const struct report *r, struct rows *rows)
{
    if (r->store_lost == NULL || r->elsewhere != NULL || cause_first(r) >= 0)
        return;
    if (r->store_advice != NULL && r->store_advice[0] != '\0') {
        rows_text(rows, "try", slice_str(r->store_advice), WHY_LINES);
        return;
    }
    rows_printf(rows, "why", "%s",
                r->plan->meeting.elsewhere
                    ? "the ddprun that hosts it, or its host, has ended or is frozen; or the network between"
                    : "the store's thread in this ddprun has ended the connection");
    rows_printf(rows, "try", "%s",
                "look at what ddprun said on that host; a store of its own (ddp-rendezvous on another host, "
                "--rdzv_endpoint) survives the death of any node");
}

bool report_local_only(const struct report *r, struct buf *out)
{
    const struct plan_meeting *m = &r->plan->meeting;
    const int began = r->plan->first_nnodes;
    if (m->local_only[0] == '\0' || began >= m->nnodes_max)
        return true;
    if (began == 0)
        return buf_printf(out, "the nodes did not come together; %s", m->local_only);
    return buf_printf(out, "the job began with %d of %d nodes; %s", began, m->nnodes_max, m->local_only);
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* The files of one worker that --log_file has named; its streams may share one. */
static void named_files(const struct report *r, const struct plan_worker *w, struct rows *rows)
{
    const char *root = r->plan->log_root, *out = w->out.file, *err = w->err.file;
    if (out == NULL || (err != NULL && strcmp(out, err) == 0)) {
        out = err;
        err = NULL;
    }
    if (out != NULL)
        rows_printf(rows, "logs", "%s%s%s%s%s", root != NULL ? root : "",
                    root != NULL ? ", of this worker in " : "", out, err != NULL ? ", " : "",
                    err != NULL ? err : "");
}

static void where(const struct report *r, struct rows *rows)
{
    int first = cause_first(r);
    const struct plan_worker *w = first >= 0 ? &r->plan->workers[first] : NULL;
    if (w != NULL && r->plan->cli->log_file != NULL)
        named_files(r, w, rows);
    else if (w != NULL && w->log_dir != NULL)
        rows_printf(rows, "logs", "%s, of this worker in %s", r->plan->log_root, w->log_dir);
    else if (r->plan->log_root != NULL)
        rows_printf(rows, "logs", "%s", r->plan->log_root);
}

/* What a shell makes the names of all ranks of: a star for each %r. Cut where a path would be too long, as no record is there. */
static void pattern_of_all(char out[PATH_MAX], const char *pattern)
{
    size_t n = 0;
    for (const char *at = pattern; *at != '\0' && n + 1 < PATH_MAX; at += strncmp(at, "%r", 2) == 0 ? 2 : 1)
        out[n++] = strncmp(at, "%r", 2) == 0 ? '*' : *at;
    out[n] = '\0';
}

/* The records of all ranks together say who was behind. */
static void flights(const struct report *r, struct rows *rows)
{
    char all[PATH_MAX];
    if (r->flights == NULL)
        return;
    pattern_of_all(all, r->flights);
    rows_printf(rows, "calls", "ddpctl flight %s%s compares what the ranks called last", all,
                strstr(r->flights, "%r") == NULL ? "/flight_*.json" : "");
}

/* Whose code it is, as the last words of the report. Empty when that needs no words: the user's stop, or 124. */
static void whose_code(const struct report *r, char *out, size_t size)
{
    static const char *const policies[] = { "first", "max", "rank0", "workers" };
    const struct agent_worker *w = cause_worker(r);
    const struct cause *c = r->elsewhere;
    out[0] = '\0';
    if ((w == NULL && c == NULL) || agent_is_stuck(r->agent))
        return;
    if (agent_exit_code(r->agent) != (c != NULL ? cause_code(c) : ending_code(w)))
        snprintf(out, size, ", because of --exit_code=%s", policies[agent_exit_policy(r->agent)]);
    else if (cause_is_left_waiting(r) && r->left_subject != NULL && r->left_subject[0] != '\0')
        snprintf(out, size, ", because of %.200s", r->left_subject);
    else if (c != NULL && c->node_rank < 0)
        return;
    else if (c != NULL && c->rank < 0)
        snprintf(out, size, ", because of node %d on %.200s", c->node_rank, c->host);
    else
        snprintf(out, size, ", because of rank %d on %.200s",
                 c != NULL ? c->rank : r->plan->workers[cause_first(r)].rank,
                 c != NULL ? c->host : r->plan->facts->host);
}

/* The last line, where many look first: it names the culprit once more. And 137 says little, 128 + SIGKILL more. */
static void exit_code(const struct report *r, struct rows *rows)
{
    int code = agent_exit_code(r->agent);
    const struct agent_worker *w = cause_worker(r);
    int sig = r->elsewhere != NULL ? r->elsewhere->signal
              : w != NULL          ? w->signal
                                   : agent_stop_signal(r->agent);
    char name[ENDING_MAX], what[ENDING_MAX + 32] = "", whose[ENDING_MAX + CAUSE_HOST_MAX];
    signal_name(name, sig);
    if (sig != 0 && code == EXIT_CODE_SIGNAL + sig)
        snprintf(what, sizeof(what), " = 128 + %d (%s)", sig, name);
    whose_code(r, whose, sizeof(whose));
    rows_printf(rows, "exit", "%d%s%s", code, what, whose);
}

bool report_text(const struct report *r, struct buf *out)
{
    size_t before = out->len;
    struct rows rows = { .out = out, .colour = r->colour, .limit = REPORT_LINES_MAX - END_LINES, .ok = true };
    headline(r, &rows);
    if (report_needed(r)) {
        first_cause(r, &rows);
        if (r->elsewhere != NULL)
            cause_elsewhere(r, &rows);
        store_gone(r, &rows);
        if (!cause_never_began(r))
            report_others(r, &rows);
        report_attempts(r, &rows);
        rows.limit = REPORT_LINES_MAX;
        made_row(r, &rows, "nodes", report_local_only);
        where(r, &rows);
        flights(r, &rows);
        exit_code(r, &rows);
    }
    if (!rows.ok)
        out->len = before;
    return rows.ok;
}
