/* report.c -- see report.h. A report consists of many small appends. At the end, report_text checks whether an append
 * has failed, and then discards the whole report, because half a report is useless. */
#include "report/report.h"

#include "agent/agent.h"
#include "base/text.h"
#include "diagnosis/findings.h"
#include "report/cause.h"
#include "record/rank_set.h"
#include "record/stacks.h"
#include "report/exit_text.h"
#include "tables/signals.h"
#include "tables/text.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A row consists of two blanks, the label, a blank and the text, which begins in column TEXT_AT. A row has at most
 * ROW_WIDTH columns, unless a single word is longer. */

enum {
    ROW_WIDTH = 100,
    ROW_QUOTE_MAX = 300, /* maximum number of bytes of a worker's line */
    LABEL_WIDTH = 8,
    TEXT_AT = 11,
    TEXT_WIDTH = ROW_WIDTH - TEXT_AT
};

static const char BOLD_RED[] = "\033[1;31m", DIM[] = "\033[2m", PLAIN[] = COLOUR_OFF;

/* The rows of the report, each with a label and a text. A row may have several lines. After `limit` lines, further
 * lines are dropped. All text passes through functions of text.h, because workers may print any bytes. */
struct rows {
    struct buf *out;
    bool colour;
    int lines, limit;
    bool ok; /* false after a failed append; later appends then do nothing */
};

static void append_row(struct rows *r, const void *bytes, size_t len)
{
    r->ok = r->ok && buf_append(r->out, bytes, len);
}

static void append_colour(struct rows *r, const char *code)
{
    if (r->colour)
        append_row(r, code, strlen(code));
}

/* Append text. Escape control characters and colours, because the text may contain names from other programs. */
static void rows_append(struct rows *r, struct slice text)
{
    r->ok = r->ok && escape_append_plain(r->out, text);
}

/* Begin a line of a row. Return false if the limit of lines is reached. */
static bool begin_line(struct rows *r, const char *label)
{
    char padded[LABEL_WIDTH + 4];
    if (r->lines >= r->limit)
        return false;
    r->lines++;
    snprintf(padded, sizeof(padded), "  %-*s ", LABEL_WIDTH, label);
    append_colour(r, DIM);
    append_row(r, padded, TEXT_AT);
    append_colour(r, PLAIN);
    return true;
}

/* Append the headline. Never wrap this line, so that a search through many logs finds rank, host and cause in one
 * line. */
static void rows_headline(struct rows *r, struct slice text)
{
    r->lines++;
    append_colour(r, BOLD_RED);
    append_row(r, "ddprun: ", 8);
    rows_append(r, text);
    append_colour(r, PLAIN);
    append_row(r, "\n", 1);
}

/* Return how many bytes fit on this line, up to the last blank before the right edge. A word that is too long, such as
 * a path, is not split. A newline always ends the line. */
static size_t line_length(const char *text, size_t len)
{
    size_t end = 0, last_blank = 0;
    while (end < len && text[end] != '\n' && (end <= TEXT_WIDTH || last_blank == 0)) {
        if (text[end] == ' ' && end > 0)
            last_blank = end;
        end++;
    }
    if (end <= TEXT_WIDTH && (end == len || text[end] == '\n'))
        return end;
    return last_blank > 0 ? last_blank : end;
}

/* Append `text` as a row of at most `max` lines. If the text is longer, the last line ends with " ...". If `label` is
 * "", the row continues the row above. Append no row for an empty text. */
static void rows_text(struct rows *r, const char *label, struct slice text, int max)
{
    const char *p = text.data;
    size_t left = text.len;
    for (int i = 0; i < max && left > 0 && begin_line(r, i == 0 ? label : ""); i++) {
        size_t n = line_length(p, left), shown = n;
        while (shown > 0 && p[shown - 1] == ' ') /* print no blanks at the end of the line */
            shown--;
        rows_append(r, slice_of(p, shown));
        n += n < left; /* skip the blank or newline */
        p += n;
        left -= n;
        append_row(r, i + 1 == max && left > 0 ? " ...\n" : "\n", i + 1 == max && left > 0 ? 5 : 1);
    }
}

__attribute__((format(printf, 3, 4))) static void rows_printf(struct rows *r, const char *label,
                                                              const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    rows_text(r, label,
              slice_of(text, n < 0                      ? 0
                             : (size_t)n < sizeof(text) ? (size_t)n
                                                        : sizeof(text) - 1),
              3);
}

/* Append a line of a worker's output, cut at ROW_QUOTE_MAX bytes. */
static void rows_quote(struct rows *r, const char *label, struct slice line)
{
    const uint8_t *p = line.data;
    bool cut = line.len > ROW_QUOTE_MAX;
    size_t len = cut ? ROW_QUOTE_MAX : line.len;
    while (cut && len > 0 && (p[len] & 0xc0) == 0x80) /* do not cut inside a UTF-8 character */
        len--;
    if (!begin_line(r, label))
        return;
    append_row(r, "| ", 2);
    r->ok = r->ok && escape_append(r->out, slice_of(p, len)); /* keeps the colours */
    append_row(r, cut ? " ...\n" : "\n", cut ? 5 : 1);
}

/* --- the other workers ---------------------------------------------------------------------------------- */

/* These sentences show how the other workers ended. The headline names the first failure. So these sentences do not use
 * the word "failed", not even for a worker that failed later. Workers that ended in the same way share one sentence. If
 * these workers ended by themselves, the sentence also contains the earliest and the latest time (after_text). */

/* Limits of the sentences about the other workers. The limits are low, because a terminal shows about 24 lines. */
enum { GROUPS_MAX = 6, RANKS_MAX = 60, SENTENCE_LINES = 3, AFTER_MAX = 2 * TEXT_MS_MAX + 32 };

/* How a worker ended. `sentences` has a row for each way. */
enum way { NEVER_STARTED, NOT_EXECUTED, RUNS_ON, FINE, STOPPED, KILLED, BY_ITSELF };

struct group {
    const struct report *r;
    const struct agent_worker *like;
};

/* Return true for a signal that ddprun itself sends during a stop. */
static bool is_signal_of_ddprun(const struct report *r, int sig)
{
    return sig == SIGTERM || sig == agent_stop_signal(r->agent);
}

/* Return how a worker ended. A worker that lost a peer counts as BY_ITSELF, because the report's sentence for BY_ITSELF
 * contains the exit code and the time. KILLED means that the worker did not exit in time after SIGTERM. */
static enum way way_of(const struct report *r, const struct agent_worker *w)
{
    switch (w->verdict) {
    case WORKER_PENDING:
        return NEVER_STARTED;
    case WORKER_NOT_STARTED:
        return NOT_EXECUTED;
    case WORKER_ALIVE:
        return RUNS_ON;
    case WORKER_OK:
        return FINE;
    case WORKER_FAILED:
    case WORKER_VICTIM:
        return BY_ITSELF;
    case WORKER_CONSEQUENCE:
        break;
    }
    if (w->signal == SIGKILL)
        return KILLED;
    return w->signal != 0 && is_signal_of_ddprun(r, w->signal) ? STOPPED : BY_ITSELF;
}

/* Return true if `w` ended in the same way as the workers of `g`. Return false for the worker in the headline, because
 * this worker belongs to no group. */
static bool same_end(const struct group *g, const struct agent_worker *w)
{
    return w != cause_worker(g->r) && way_of(g->r, w) == way_of(g->r, g->like) &&
           w->exit_code == g->like->exit_code && w->signal == g->like->signal;
}

static int rank_in_group(const void *user, int local_rank)
{
    const struct group *g = user;
    return same_end(g, agent_worker(g->r->agent, local_rank)) ? g->r->plan->workers[local_rank].rank : -1;
}

/* Format how long after the first failure the workers of the group ended: " 3 ms later", " 3 ms to 1.2 s later", " at
 * the same moment", or " 0.4 s earlier". Write "" if no worker of this node failed first. */
static void after_text(const struct group *g, char out[AFTER_MAX])
{
    const struct agent_worker *first = cause_worker(g->r);
    uint64_t from = UINT64_MAX, to = 0, before = 0;
    char a[TEXT_MS_MAX], b[TEXT_MS_MAX];
    out[0] = '\0';
    for (int i = 0; first != NULL && i < g->r->plan->nproc; i++) {
        const struct agent_worker *w = agent_worker(g->r->agent, i);
        uint64_t after = w->ended_ms > first->ended_ms ? w->ended_ms - first->ended_ms : 0;
        if (!same_end(g, w))
            continue;
        before = first->ended_ms > w->ended_ms + before ? first->ended_ms - w->ended_ms : before;
        from = after < from ? after : from;
        to = after > to ? after : to;
    }
    if (before > 0 && to == 0)
        snprintf(out, AFTER_MAX, " %s earlier", text_ms(before, a));
    else if (first != NULL && to == 0)
        snprintf(out, AFTER_MAX, " at the same moment");
    else if (first != NULL && from == to)
        snprintf(out, AFTER_MAX, " %s later", text_ms(to, a));
    else if (first != NULL)
        snprintf(out, AFTER_MAX, " %s to %s later", text_ms(from, a), text_ms(to, b));
}

/* append_group_sentence() fills the placeholders. {s} and {was} depend on the number of ranks. {where} names this
 * node in a job of several nodes. */
static const char *const sentences[] = {
    [NEVER_STARTED] = "rank{s} {ranks}{where} {was} never started",
    [NOT_EXECUTED] = "rank{s} {ranks}{where} could not be started either",
    [RUNS_ON] = "rank{s} {ranks}{where} did not end after SIGKILL",
    [FINE] = "rank{s} {ranks}{where} exited with code 0",
    [STOPPED] = "rank{s} {ranks}{where} {was} stopped by ddprun as a consequence ({signal})",
    [KILLED] = "rank{s} {ranks}{where} {was} killed by ddprun as a consequence ({signal})",
    [BY_ITSELF] = "rank{s} {ranks}{where} ended{after}{how}",
};

static void append_group_sentence(const struct group *g, const char *ranks, struct rows *rows,
                                  const char *label)
{
    const bool one = strpbrk(ranks, ",-") == NULL;
    char name[SIGNAL_NAME_MAX], after[AFTER_MAX], ending[ENDING_MAX], how[ENDING_MAX + 8],
        where[LIMIT_TEXT + 32] = "";
    struct buf text = { 0 };
    signal_name(name, g->like->signal);
    after_text(g, after);
    ending_text(ending, g->like);
    if (g->r->plan->nnodes > 1)
        snprintf(where, sizeof(where), " of node %d (%s)", g->r->plan->node_rank, g->r->plan->facts->host);
    snprintf(how, sizeof(how), "%s%s", g->like->signal != 0 ? ", " : " with ", ending);
    const struct word words[] = {
        { "s", one ? "" : "s" }, { "ranks", ranks }, { "was", one ? "was" : "were" },
        { "signal", name },      { "after", after }, { "how", how },
        { "where", where }
    };
    rows->ok = rows->ok &&
               words_fill(&text, sentences[way_of(g->r, g->like)], words, sizeof(words) / sizeof(words[0]));
    rows_text(rows, label, buf_slice(&text), SENTENCE_LINES);
    buf_free(&text);
}

static bool is_reported(const struct group *groups, size_t n, const struct agent_worker *w)
{
    for (size_t i = 0; i < n; i++)
        if (same_end(&groups[i], w))
            return true;
    return false;
}

static void append_ranks_of_end(const struct group *g, struct rows *rows, const char *label)
{
    struct buf ranks = { 0 };
    if (rank_set_print_each(rank_in_group, g, g->r->plan->nproc, RANKS_MAX, &ranks) &&
        buf_append(&ranks, "", 1))
        append_group_sentence(g, (const char *)ranks.data, rows, label);
    else
        rows->ok = false;
    buf_free(&ranks);
}

/* Append one sentence for each way in which other workers ended. The sentences are ordered by their lowest rank. If
 * there are more than GROUPS_MAX ways, the last sentence refers to the log files. */
static void report_others(const struct report *r, struct rows *rows)
{
    struct group groups[GROUPS_MAX];
    size_t n = 0;
    for (int i = 0; i < r->plan->nproc; i++) {
        const struct agent_worker *w = agent_worker(r->agent, i);
        if (w == cause_worker(r) || is_reported(groups, n, w))
            continue;
        if (n == GROUPS_MAX) {
            rows_printf(
                rows, "",
                "the other ranks ended in other ways: see their log files, or report.json in --log_dir");
            return;
        }
        groups[n] = (struct group){ .r = r, .like = w };
        append_ranks_of_end(&groups[n], rows, n == 0 ? "then" : "");
        n++;
    }
}

/* --- attempts ------------------------------------------------------------------------------------------- */

/* Rows of the report, for example about an earlier attempt, a missing restart, a rank that exited while another rank
 * waited for it, and a process that cannot be killed:
 *
 *     before   attempt 0: rank 1: exit 7, 2.5 s after its start, at step 100
 *     restart  none: no later attempt got beyond step 100 (--max_no_progress)
 *     left     rank 0 (n1, pid 4002) exited with code 0, 1.8 s ago, while rank 1 waited for it at barrier 'epoch-3'
 *     alive    pid 4711 (rank 1, python3) cannot be killed: state D in nfs_wait
 *
 * The headline describes the latest failed attempt. Older attempts beyond ATTEMPTS_SHOWN are only in the JSON. */

enum { ATTEMPTS_SHOWN = 4, STUCK_SHOWN = 4, GPUS_SHOWN = 4 };

/* Append why no restart followed, if --max_restarts allowed restarts. */
bool report_no_restart(const struct report *r, struct buf *out)
{
    struct failure room;
    const struct failure *f = cause_failure(r, &room);
    const struct agent *agent = r->agent;
    const int max = agent_max_restarts(agent);
    switch (agent_no_restart(agent)) {
    case NO_RESTART_NONE:
    case N_NO_RESTARTS:
        return true;
    case NO_RESTART_USED_UP:
        return buf_printf(out, "%s of --max_restarts=%d %s used up",
                          max == 1 ? "the restart" : "all restarts", max, max == 1 ? "is" : "are");
    case NO_RESTART_CANNOT_START:
        return buf_printf(out, "the program cannot be executed, and a restart would not change that");
    case NO_RESTART_USAGE:
        return buf_printf(
            out,
            "exit code %d within %d s of the start counts as a usage error, which a restart would "
            "repeat",
            f != NULL ? f->exit_code : 0, AGENT_USAGE_MS / 1000);
    case NO_RESTART_IMPORT:
        return buf_printf(out,
                          "every rank ended within %d s of the start with the same import error, which a "
                          "restart would repeat",
                          AGENT_USAGE_MS / 1000);
    case NO_RESTART_NO_PROGRESS:
        return buf_printf(out, "the last attempts did not get beyond step %lld (--max_no_progress)",
                          (long long)r->best_step);
    case NO_RESTART_HANGS:
        return buf_printf(out, "the job hung (--on_hang=stop)");
    case NO_RESTART_STOPPED:
        return buf_printf(out, "the user asked to stop");
    case NO_RESTART_UNKILLABLE:
        return buf_printf(out, "a process of the failed attempt cannot be killed");
    case NO_RESTART_NOT_READY:
        return buf_printf(out, "the next attempt could not be prepared; see the error above");
    case NO_RESTART_TOO_FEW_NODES:
        return buf_printf(out, "too few nodes are left, or too few joined again in time (--nnodes, %s)",
                          r->plan->meeting.join_knob);
    case NO_RESTART_STORE_LOST:
        return buf_printf(out, "the store of the job is gone");
    }
    return true;
}

/* --- lines ---------------------------------------------------------------------------------------------- */

/* Format the beginning of a sentence about a failure, for example "rank 1: ". In a job of several nodes, this text also
 * contains the host. If no rank has failed, for example because a node was lost, write "". */
static void format_who(const struct report *r, const struct failure *f, char *out, size_t size)
{
    out[0] = '\0';
    if (f->rank >= 0 && r->plan->nnodes > 1)
        snprintf(out, size, "rank %d on %.100s: ", f->rank, f->host);
    else if (f->rank >= 0)
        snprintf(out, size, "rank %d: ", f->rank);
}

/* Append a row about a failed attempt. The time counts from the worker's own start, so that the user can
 * distinguish a crash at the start from a crash during training. */
static void append_attempt(const struct report *r, struct rows *rows, const char *label,
                           const struct failed_attempt *a)
{
    char who[128], time[TEXT_MS_MAX], after[TEXT_MS_MAX + 20] = "", step[40] = "";
    format_who(r, &a->failure, who, sizeof(who));
    if (a->verdict != WORKER_NOT_STARTED)
        snprintf(after, sizeof(after), ", %s after %s start",
                 text_ms(a->failed_ms - a->worker_started_ms, time), a->failure.rank < 0 ? "the" : "its");
    if (a->step >= 0)
        snprintf(step, sizeof(step), ", at step %lld", (long long)a->step);
    rows_printf(rows, label, "attempt %d: %s%s%s%s", a->attempt, who, a->failure.words, after, step);
}

static bool has_failure(const struct report *r)
{
    return r->elsewhere != NULL || cause_first(r) >= 0;
}

/* Append the failed attempts, without the attempt that the headline describes. */
static void append_attempts(const struct report *r, struct rows *rows)
{
    size_t n = r->n_failed, first = 0;
    if (n > 0 && has_failure(r))
        n--;
    if (n > ATTEMPTS_SHOWN) {
        first = n - ATTEMPTS_SHOWN;
        rows_printf(rows, "before", "%zu earlier attempt%s also failed", first, first == 1 ? "" : "s");
    }
    for (size_t i = first; i < n; i++)
        append_attempt(r, rows, i == 0 ? "before" : "", &r->failed[i]);
}

/* Append the reason for the missing restart. A user who has set --max_restarts expects a restart. */
static void append_no_restart(const struct report *r, struct rows *rows)
{
    struct buf words = { 0 };
    rows->ok = rows->ok && report_no_restart(r, &words);
    if (words.len > 0)
        rows_printf(rows, "restart", "none: %.*s", (int)words.len, (const char *)words.data);
    buf_free(&words);
}

/* Append a row about a process that cannot be killed. The kernel function in which the process hangs shows the cause:
 * nfs_... is a network file system, and nvidia_... is the GPU driver. */
static void append_stuck(struct rows *rows, const char *label, const struct stuck *s)
{
    char rank[32] = "";
    if (s->rank >= 0)
        snprintf(rank, sizeof(rank), "rank %d, ", s->rank);
    rows_printf(rows, label, "pid %d (%s%s) cannot be killed: state %c%s%s", s->pid, rank, s->name, s->state,
                s->where[0] != '\0' ? " in " : "", s->where);
}

/* Append the remedy for processes that SIGKILL has not ended. A runnable process ends as soon as it gets CPU time. Any
 * other process is in a system call. */
static void append_stuck_remedy(const struct report *r, struct rows *rows)
{
    bool all_run = true;
    for (size_t i = 0; i < r->n_stuck; i++)
        all_run = all_run && r->stuck[i].state == 'R';
    rows_printf(
        rows, "",
        all_run ? "SIGKILL ends the process as soon as the process gets CPU time; if its CPU time grows and "
                  "it still does not end, reboot the host"
                : "the process ends when its system call returns; if the call never "
                  "returns, reboot the host");
}

static void append_left(const struct report *r, struct rows *rows)
{
    struct buf text = { 0 };
    rows->ok = rows->ok && cause_append_left(r, &text);
    rows_printf(rows, "left", "%.*s", (int)text.len, (const char *)text.data);
    buf_free(&text);
}

static void append_gpus(const struct report *r, struct rows *rows)
{
    for (int i = 0; i < r->n_gpus && i < GPUS_SHOWN; i++)
        rows_printf(rows, i == 0 ? "gpu" : "", "%s  [%s]", r->gpus[i].sentence,
                    finding_code_name(r->gpus[i].code));
}

/* Append the rows about attempts, hangs and processes that cannot be killed. */
static void report_attempts(const struct report *r, struct rows *rows)
{
    struct failure room;
    append_attempts(r, rows);
    append_no_restart(r, rows);
    if (r->hang != NULL && !cause_is_hang(r))
        rows_printf(rows, "hang", "%s  [%s]", r->hang->sentence, finding_code_name(r->hang->code));
    if (!has_failure(r)) /* after a failure, first_cause() has appended these rows */
        append_gpus(r, rows);
    if (cause_has_left(r, FINDING_RANK_EXITED_EARLY) && !cause_is_left_waiting(r, cause_failure(r, &room)))
        append_left(r, rows);
    for (size_t i = 0; i < r->n_stuck && i < STUCK_SHOWN; i++)
        append_stuck(rows, i == 0 ? "alive" : "", &r->stuck[i]);
    if (r->n_stuck > 0)
        append_stuck_remedy(r, rows);
}

/* The report first describes the first failure: its cause and remedy, the rank, its times and its last lines. Then the
 * report shows how the other workers ended, where the logs are, and the exit code:
 *
 *     ddprun: rank 2 on n1 failed first: exit 7, 2.5 s after its start
 *       worker   rank 2 (local rank 2), pid 4002, host n1
 *       times    started 2026-11-21 12:04:07.113, ended 12:04:09.613
 *       stderr   | Traceback (most recent call last):
 *                |   ...
 *       then     ranks 0-1,3 were stopped by ddprun as a consequence (SIGTERM)
 *       stacks   ranks 0-1,3:
 *                    all_reduce  torch/distributed/distributed_c10d.py:1541
 *                  > main  train.py:30
 *       logs     logs/k3x9; logs of the first failed worker: logs/k3x9/attempt_0/2
 *       exit     7, because of rank 2 on n1
 *
 * Each part has a limit, so the report has at most REPORT_LINES_MAX lines for any number of workers. The JSON and
 * the log files contain the rest. */

enum {
    WHY_LINES = 3,
    ERROR_LINES = 6,
    OTHERS_LINES = 8,
    STACK_LINES = 16,
    STACK_LINES_KEPT = 6, /* lines that are reserved for stacks, not for the worker's last lines */
    END_LINES = 8,
    DAY_S = 24 * 3600
};

/* Return true if a report is needed: after a failure, a stop or the loss of the store. A report is also needed if a
 * worker has not exited with code 0, for example because it cannot be killed. */
bool report_needed(const struct report *r)
{
    if (has_failure(r) || agent_stop_signal(r->agent) != 0 || r->store.how != NULL)
        return true;
    for (int i = 0; i < r->plan->nproc; i++)
        if (agent_worker(r->agent, i)->verdict != WORKER_OK)
            return true;
    return false;
}

/* --- the first cause ------------------------------------------------------------------------------------ */

/* Call `make`, a function of cause.h, and append a row with the text that `make` appends. If `make` appends no text,
 * append no row. */
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

static bool append_bytes(struct buf *out, const char *label, int64_t value)
{
    char size[SIZE_TEXT_MAX];
    return value == 0 || buf_printf(out, ", %s %s", label, words_size(size, (uint64_t)value));
}

/* Append the facts of the failure, for example ", peak memory 1.2 GiB". Leave out facts that FAILURE_ROWS hides. */
static bool append_facts(const struct failure *f, struct buf *out)
{
    bool ok = true;
#define PUT_HIDDEN(name, label)
#define PUT_BYTES(name, label)                                       ok = ok && append_bytes(out, label, f->name);
#define PUT(X, kind, name, least, most, missing, what, shown, label) PUT_##shown(name, label)
    FAILURE_ROWS(PUT, )
#undef PUT
#undef PUT_BYTES
#undef PUT_HIDDEN
    return ok;
}

/* Append the row that names the failed worker or node. For a worker of another node, the row refers to that node's
 * report. */
static void who(const struct report *r, const struct failure *f, struct rows *rows)
{
    const bool elsewhere = r->elsewhere != NULL;
    struct buf text = { 0 };
    bool ok = true;
    if (f->rank >= 0 && (f->pid > 0 || !elsewhere)) {
        ok = buf_printf(&text, "rank %d (local rank %d)", f->rank, f->local_rank) &&
             (f->pid == 0 || buf_printf(&text, ", pid %d", f->pid)) &&
             buf_printf(&text, ", host %s", f->host) &&
             (!elsewhere || buf_printf(&text, ", node %d", f->node_rank)) && append_facts(f, &text) &&
             (!elsewhere || buf_printf(&text, "; that node's report has more details"));
        rows_text(rows, "worker", buf_slice(&text), WHY_LINES);
    } else if (f->node_rank >= 0) {
        rows_printf(rows, "node", "node %d, host %s", f->node_rank, f->host);
    }
    rows->ok = rows->ok && ok;
    buf_free(&text);
}

/* Append when the worker started and ended, or when its start failed. */
static void times(const struct report *r, struct rows *rows, const struct agent_worker *w)
{
    char from[TIME_TEXT_MAX], to[TIME_TEXT_MAX];
    uint64_t started = cause_unix_ms(r, w->started_ms), ended = cause_unix_ms(r, w->ended_ms);
    uint64_t offset = (uint64_t)(r->utc_offset_s + DAY_S);
    bool next_day = (started / 1000 + offset) / DAY_S != (ended / 1000 + offset) / DAY_S;
    words_clock(from, started, r->utc_offset_s, true);
    words_clock(to, ended, r->utc_offset_s, next_day);
    if (w->verdict == WORKER_NOT_STARTED)
        rows_printf(rows, "times", "start failed %s", from);
    else
        rows_printf(rows, "times", "started %s, ended %s", from, to);
}

/* Return true if the last lines of the worker's output already contain the first line of `message`. This is usual after
 * a Python exception. */
static bool is_in_last_lines(const struct report *r, const char *message)
{
    struct buf lines = { 0 };
    bool from_stdout;
    cause_last_lines(r, REPORT_STDERR_LINES, &lines, &from_stdout);
    bool found = lines.len > 0 && memmem(lines.data, lines.len, message, strcspn(message, "\n")) != NULL;
    buf_free(&lines);
    return found;
}

/* Append the error from the worker's error file, or why that file cannot be used. */
static void recorded(const struct report *r, struct rows *rows)
{
    if (r->error_trouble != NULL)
        rows_printf(rows, "error", "cannot use the worker's error file: %s", r->error_trouble);
    else if (r->error != NULL && !is_in_last_lines(r, r->error->message))
        rows_text(rows, "error", slice_str(r->error->message), ERROR_LINES);
}

/* Append the last lines of the failed worker, but leave room for the rows that follow. */
static void append_last_lines(const struct report *r, struct rows *rows)
{
    struct buf lines = { 0 };
    bool from_stdout;
    int room = rows->limit - rows->lines - OTHERS_LINES - (r->stacks != NULL ? STACK_LINES_KEPT : 0);
    size_t max = room > REPORT_STDERR_LINES ? REPORT_STDERR_LINES : room > 0 ? (size_t)room : 1;
    size_t n = cause_last_lines(r, max, &lines, &from_stdout);
    const char *p = (const char *)lines.data, *label = from_stdout ? "stdout" : "stderr";
    if (n == 0 && r->elsewhere == NULL)
        rows_printf(rows, "output", "the worker wrote nothing%s",
                    r->stdout_tails == NULL ? " to stderr; its stdout does not pass through ddprun" : "");
    for (size_t i = 0; i < n; i++) {
        const char *end = memchr(p, '\n', lines.len - (size_t)(p - (const char *)lines.data));
        rows_quote(rows, i == 0 ? label : "", slice_of(p, (size_t)(end - p)));
        p = end + 1;
    }
    if (n > 0 && from_stdout && r->elsewhere == NULL)
        rows_printf(rows, "", "(the worker wrote nothing to stderr)");
    buf_free(&lines);
}

static void first_cause(const struct report *r, struct rows *rows)
{
    struct failure room;
    const struct failure *f = cause_failure(r, &room);
    const struct agent_worker *w = cause_worker(r);
    if (f == NULL)
        return;
    made_row(r, rows, "why", cause_why);
    made_row(r, rows, "try", cause_remedy);
    made_row(r, rows, "core", cause_core);
    who(r, f, rows);
    if (w != NULL)
        times(r, rows, w);
    else if (f->log[0] != '\0')
        rows_printf(rows, "its logs", "%s on %s", f->log, f->host);
    if (w != NULL && w->verdict == WORKER_NOT_STARTED)
        return;
    recorded(r, rows);
    made_row(r, rows, "hint", cause_hint);
    append_gpus(r, rows);
    append_last_lines(r, rows);
}

/* Append why the store was lost, and the remedy. The process that hosts the store is a ddprun or the daemon
 * ddp-rendezvous. This node loses the store if that process exits, if the host of that process fails, or if the network
 * between this node and that host fails. */
static void store_gone(const struct report *r, struct rows *rows)
{
    if (r->store.how == NULL || has_failure(r))
        return;
    if (r->store.advice != NULL && r->store.advice[0] != '\0') {
        rows_text(rows, "try", slice_str(r->store.advice), WHY_LINES);
        return;
    }
    rows_printf(rows, "why", "%s",
                r->plan->meeting.elsewhere ? "the ddprun that hosts the store has exited, or its host is "
                                             "down or frozen, or the network between the hosts failed"
                                           : "the store in this ddprun closed the connection, perhaps "
                                             "because of an error in ddprun");
    rows_printf(rows, "try", "%s",
                "check the output of ddprun on the store's host; for a store that outlives any node, run "
                "ddp-rendezvous on another host and pass its address to --rdzv_endpoint");
}

bool report_local_only(const struct report *r, struct buf *out)
{
    const struct plan_meeting *m = &r->plan->meeting;
    const int began = r->plan->first_nnodes;
    if (m->local_only[0] == '\0' || began >= m->nnodes_max)
        return true;
    if (began == 0)
        return buf_printf(out, "not all nodes joined; %s", m->local_only);
    return buf_printf(out, "the job began with %d of %d nodes; %s", began, m->nnodes_max, m->local_only);
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Append the log files of --log_file for a worker. stdout and stderr may share a file. */
static void named_files(const struct report *r, const struct plan_worker *w, struct rows *rows)
{
    const char *root = r->plan->log_root, *out = w->out.file, *err = w->err.file;
    if (out == NULL || (err != NULL && strcmp(out, err) == 0)) {
        out = err;
        err = NULL;
    }
    if (out != NULL)
        rows_printf(rows, "logs", "%s%s%s%s%s", root != NULL ? root : "",
                    root != NULL ? "; logs of the first failed worker: " : "", out, err != NULL ? ", " : "",
                    err != NULL ? err : "");
}

static void where(const struct report *r, struct rows *rows)
{
    int first = cause_first(r);
    const struct plan_worker *w = first >= 0 ? &r->plan->workers[first] : NULL;
    if (w != NULL && r->plan->cli->log_file != NULL)
        named_files(r, w, rows);
    else if (w != NULL && w->log_dir != NULL)
        rows_printf(rows, "logs", "%s; logs of the first failed worker: %s", r->plan->log_root, w->log_dir);
    else if (r->plan->log_root != NULL)
        rows_printf(rows, "logs", "%s", r->plan->log_root);
}

/* Make a shell pattern for the files of all ranks: a star replaces each %r. A path longer than PATH_MAX is cut,
 * because no file can have such a path. */
static void pattern_of_all(char out[PATH_MAX], const char *pattern)
{
    size_t n = 0;
    for (const char *at = pattern; *at != '\0' && n + 1 < PATH_MAX; at += strncmp(at, "%r", 2) == 0 ? 2 : 1)
        out[n++] = strncmp(at, "%r", 2) == 0 ? '*' : *at;
    out[n] = '\0';
}

/* Append where the other ranks were at the first failure, with at most STACK_LINES lines. report.json has all
 * stacks. */
static void stacks(const struct report *r, struct rows *rows)
{
    struct buf text = { 0 };
    const int room = rows->limit - rows->lines - 1; /* one line is kept for the number of further stacks */
    const int most = room < 0 ? 0 : room < STACK_LINES ? room : STACK_LINES;
    const int left = stacks_brief(r->stacks, most, &text);
    const char *label = "stacks";
    rows->ok = rows->ok && left >= 0;
    for (size_t at = 0; rows->ok && at < text.len; label = "") {
        const char *line = (const char *)text.data + at;
        const size_t len = (size_t)((const char *)memchr(line, '\n', text.len - at) - line);
        rows_text(rows, label, slice_of(line, len), 2);
        at += len + 1;
    }
    if (left > 0)
        rows_printf(rows, label, "%d more stack%s: %s", left, left == 1 ? "" : "s",
                    r->plan->log_root != NULL ? "see report.json"
                                              : "with --log_dir, report.json contains all stacks");
    buf_free(&text);
}

/* Append the command that compares the flight records of all ranks and finds the rank that was behind. */
static void flights(const struct report *r, struct rows *rows)
{
    char all[PATH_MAX];
    if (r->flights == NULL)
        return;
    pattern_of_all(all, r->flights);
    rows_printf(rows, "calls", "ddpctl flight %s%s compares the last calls of the ranks", all,
                strstr(r->flights, "%r") == NULL ? "/flight_*.json" : "");
}

/* Format which worker or node determined the exit code. Write "" after a stop by the user and for exit code 124. */
static void whose_code(const struct report *r, const struct failure *f, char *out, size_t size)
{
    static const char *const policies[] = { "first", "max", "rank0", "workers" };
    out[0] = '\0';
    if (f == NULL || agent_is_stuck(r->agent))
        return;
    if (agent_exit_code(r->agent) != failure_code(f))
        snprintf(out, size, ", because of --exit_code=%s", policies[agent_exit_policy(r->agent)]);
    else if (cause_is_left_waiting(r, f) && r->left.subject != NULL && r->left.subject[0] != '\0')
        snprintf(out, size, ", because of %.200s", r->left.subject);
    else if (f->rank >= 0)
        snprintf(out, size, ", because of rank %d on %.200s", f->rank, f->host);
    else if (f->node_rank >= 0)
        snprintf(out, size, ", because of node %d on %.200s", f->node_rank, f->host);
}

/* Append the exit code. Many users read only this last line. So name the culprit again, and explain a code such as 137
 * (128 + SIGKILL). */
static void exit_code(const struct report *r, struct rows *rows)
{
    struct failure room;
    const struct failure *f = cause_failure(r, &room);
    const int code = agent_exit_code(r->agent), sig = f != NULL ? f->signal : agent_stop_signal(r->agent);
    char name[SIGNAL_NAME_MAX], what[ENDING_MAX + 32] = "", whose[ENDING_MAX + LIMIT_TEXT],
                                                  number[CAUSE_NUMBER_MAX];
    signal_name(name, sig);
    if (sig != 0 && code == EXIT_CODE_SIGNAL + sig)
        snprintf(what, sizeof(what), " = 128 + %d (%s)", sig, name);
    whose_code(r, f, whose, sizeof(whose));
    rows_printf(rows, "exit", "%d%s%s", code, what, whose);
    const char *explained = cause_code_name(r, f, number);
    if (r->explain && explained != NULL)
        rows_printf(rows, "", "(ddprun explain %s)", explained);
}

bool report_text(const struct report *r, struct buf *out)
{
    size_t before = out->len;
    struct rows rows = { .out = out, .colour = r->colour, .limit = REPORT_LINES_MAX - END_LINES, .ok = true };
    headline(r, &rows);
    if (report_needed(r)) {
        first_cause(r, &rows);
        store_gone(r, &rows);
        if (!cause_never_began(r))
            report_others(r, &rows);
        if (r->stacks != NULL)
            stacks(r, &rows);
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
