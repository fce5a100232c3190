/* report.c -- see report.h. From top to bottom: the first cause, its last words, what became of the others
 * (folded by how they ended), where the logs are, and the exit code:
 *
 *     ddprun: rank 2 (local rank 2, pid 4002, host n1) failed first: exit 7, 2.5 s after its start
 *       Its last lines on stderr:
 *         | Traceback (most recent call last):
 *         |   ...
 *       Stopped by ddprun as a consequence: ranks 0-1,3 (killed by SIGTERM (signal 15))
 *       Logs: logs/k3x9
 *       ddprun exits with 7.
 *
 * Each block has a limit of its own, so that the whole stays under REPORT_LINES_MAX however many workers
 * there are: a reader's first screen must hold the cause. Details that do not fit are in the JSON and in the
 * log files. */
#include "report.h"

#include "ending.h"
#include "rank_set.h"
#include "report_cause.h"

#include <signal.h>
#include <string.h>

enum { GROUPS_MAX = 8, RANKS_MAX = 60 };

/* A worker that could not be killed needs telling even when the job was a success. */
bool report_needed(const struct report *r)
{
    if (agent_first_failure(r->agent) >= 0 || agent_stop_signal(r->agent) != 0)
        return true;
    for (int i = 0; i < r->plan->nproc; i++)
        if (agent_worker(r->agent, i)->verdict != WORKER_OK)
            return true;
    return false;
}

/* The block of last lines, each behind "    | ". */
static bool last_words(const struct report *r, int first, struct buf *out)
{
    struct buf lines = { 0 };
    bool from_stdout, ok;
    size_t n = cause_last_lines(r, first, &lines, &from_stdout);
    if (n == 0)
        ok = buf_printf(out, "  It wrote nothing.\n");
    else
        ok = buf_printf(out, "  Its last lines on %s:\n",
                        from_stdout ? "stdout (nothing on stderr)" : "stderr");
    const char *p = (const char *)lines.data;
    for (size_t i = 0; i < n && ok; i++) {
        const char *end = memchr(p, '\n', lines.len - (size_t)(p - (const char *)lines.data));
        ok = buf_append(out, "    | ", 6) && buf_append(out, p, (size_t)(end + 1 - p));
        p = end + 1;
    }
    buf_free(&lines);
    return ok;
}

/* A program that never ran has no last words; its headline says all. */
static bool first_cause(const struct report *r, struct buf *out)
{
    int first = agent_first_failure(r->agent);
    bool ok = buf_printf(out, "ddprun: ") && cause_headline(r, out) && buf_append(out, "\n", 1);
    if (first < 0 || agent_worker(r->agent, first)->verdict == WORKER_NOT_STARTED)
        return ok;
    if (agent_worker(r->agent, first)->signal == SIGKILL)
        ok = ok &&
             buf_printf(
                 out,
                 "  ddprun did not send this signal: someone else did, or the kernel when memory ran out.\n");
    return ok && last_words(r, first, out);
}

/* --- the others ----------------------------------------------------------------------------------------- */

/* Workers that ended in the same way make one line. */
struct group {
    const struct report *r;
    const struct agent_worker *like;
    const struct agent_worker *except; /* the first failure has its own block */
};

static bool same_end(const struct agent_worker *w, const struct group *g)
{
    return w != g->except && w->verdict == g->like->verdict && w->exit_code == g->like->exit_code &&
           w->signal == g->like->signal;
}

static int rank_in_group(const void *group, int local_rank)
{
    const struct group *g = group;
    bool belongs = same_end(agent_worker(g->r->agent, local_rank), g);
    return belongs ? g->r->plan->workers[local_rank].rank : -1;
}

static const char *group_words(enum worker_verdict verdict)
{
    switch (verdict) {
    case WORKER_PENDING:
        return "Never started";
    case WORKER_ALIVE:
        return "Could not be killed, stuck in the kernel";
    case WORKER_OK:
        return "Ended with 0";
    case WORKER_FAILED:
    case WORKER_NOT_STARTED:
        return "Failed too";
    case WORKER_CONSEQUENCE:
        return "Stopped by ddprun as a consequence";
    }
    return "";
}

/* Do the words leave open how exactly it ended? */
static bool has_details(enum worker_verdict verdict)
{
    return verdict == WORKER_FAILED || verdict == WORKER_NOT_STARTED || verdict == WORKER_CONSEQUENCE;
}

/* "  Stopped by ddprun as a consequence: ranks 0,2-3 (killed by SIGTERM (signal 15))" */
static bool print_group(const struct group *g, struct buf *out)
{
    char how[ENDING_MAX];
    struct buf ranks = { 0 };
    bool ok = rank_set_print_each(rank_in_group, g, g->r->plan->nproc, RANKS_MAX, &ranks) &&
              buf_append(&ranks, "", 1);
    if (ok) {
        const char *text = (const char *)ranks.data;
        bool one = strpbrk(text, ",-") == NULL;
        ending_text(how, g->like);
        ok = buf_printf(out, "  %s: rank%s %s", group_words(g->like->verdict), one ? "" : "s", text);
        if (has_details(g->like->verdict))
            ok = ok && buf_printf(out, " (%s)", how);
        ok = ok && buf_append(out, "\n", 1);
    }
    buf_free(&ranks);
    return ok;
}

/* Is the worker's way of ending told already, by a group before it? */
static bool is_told(const struct group *groups, size_t n, const struct agent_worker *w)
{
    for (size_t i = 0; i < n; i++)
        if (same_end(w, &groups[i]))
            return true;
    return false;
}

/* Groups come in the order of their lowest rank; more than a screen can hold are summed up. */
static bool others(const struct report *r, struct buf *out)
{
    struct group groups[GROUPS_MAX];
    size_t n = 0;
    bool ok = true;
    int first = agent_first_failure(r->agent);
    const struct agent_worker *except = first >= 0 ? agent_worker(r->agent, first) : NULL;
    for (int i = 0; i < r->plan->nproc && ok; i++) {
        const struct agent_worker *w = agent_worker(r->agent, i);
        if (w == except || is_told(groups, n, w))
            continue;
        if (n == GROUPS_MAX)
            return buf_printf(out, "  The others ended in still other ways; see the log files or --json.\n");
        groups[n] = (struct group){ .r = r, .like = w, .except = except };
        ok = print_group(&groups[n++], out);
    }
    return ok;
}

/* --- all of it ------------------------------------------------------------------------------------------ */

bool report_text(const struct report *r, struct buf *out)
{
    size_t before = out->len;
    bool ok = first_cause(r, out);
    if (report_needed(r)) {
        ok = ok && others(r, out);
        if (r->plan->log_root != NULL)
            ok = ok && buf_printf(out, "  Logs: %s\n", r->plan->log_root);
        ok = ok && buf_printf(out, "  ddprun exits with %d.\n", agent_exit_code(r->agent));
    }
    if (!ok)
        out->len = before;
    return ok;
}
