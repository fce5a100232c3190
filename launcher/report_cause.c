/* report_cause.c -- see report_cause.h.
 *
 * What the kernel says in one number is told apart by what the shell saw: ENOENT is a missing program, or a
 * program whose interpreter is missing; EACCES is a missing x bit, a directory, or an interpreter that is
 * neither. Each sentence ends with what helps, where something is known to. */
#include "report_cause.h"

#include "ending.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { PATH_SHOWN = 120, TIME_MAX = 32 };

/* --- why it could not be started ------------------------------------------------------------------------ */

/* The search in PATH found nothing. A file of that name may well be in this directory: then nobody executed it, and
 * what the look at it saw is no cause. */
static bool not_in_path(const struct report *r, const char *program, struct buf *out)
{
    const char *path = r->path != NULL ? r->path : "which is not set";
    return buf_printf(out, "%s: not found in PATH (%.*s%s); a program in this directory is written ./%s",
                      program, PATH_SHOWN, path, strlen(path) > PATH_SHOWN ? "..." : "", program);
}

/* The program, or what the kernel needs to run it. */
static bool not_found(const struct report *r, const char *program, struct buf *out)
{
    if (r->look == LOOK_FILE && r->interpreter != NULL)
        return buf_printf(out, "%s is there, but its interpreter '%s' (its first line) is not", program,
                          r->interpreter);
    if (r->look == LOOK_FILE)
        return buf_printf(out,
                          "%s is there, but the loader that it needs is not: it was built for another system",
                          program);
    return buf_printf(out, "%s: no such file", program);
}

/* EACCES: what the shell saw decides which advice helps. */
static bool not_permitted(const struct report *r, const char *program, struct buf *out)
{
    switch (r->look) {
    case LOOK_DIRECTORY:
        return buf_printf(out, "%s is a directory, not a program", program);
    case LOOK_NOT_EXECUTABLE:
        return buf_printf(out, "%s is not executable; chmod +x %s", program, program);
    case LOOK_FILE:
        if (r->interpreter != NULL)
            return buf_printf(out, "%s: its interpreter '%s' (its first line) cannot be executed", program,
                              r->interpreter);
        break;
    case LOOK_UNKNOWN:
    case LOOK_MISSING:
        break;
    }
    return buf_printf(
        out, "%s: permission denied; its directory may be mounted noexec, or one above it may not be entered",
        program);
}

/* The path is shown as the user wrote it: that is what will be corrected. */
bool cause_not_started(const struct report *r, const struct agent_worker *worker, struct buf *out)
{
    const char *program = r->plan->workers[0].argv[0];
    const char *words = strerrordesc_np(worker->error);
    switch (worker->error) {
    case ENOENT:
        return strchr(program, '/') != NULL ? not_found(r, program, out) : not_in_path(r, program, out);
    case ELIBACC: /* what spawner.c makes of the ENOENT of a program that is there: 126, not 127 */
        return not_found(r, program, out);
    case EACCES:
        return not_permitted(r, program, out);
    case ENOEXEC:
        return buf_printf(
            out,
            "%s is nothing that this machine can execute: a script needs a first line like #!/bin/sh, "
            "a program must be built for this kind of machine",
            program);
    case EAGAIN:
    case ENOMEM:
        return buf_printf(
            out, "%s: the system has no room for another process (%s); see ulimit -u and free memory",
            program, words);
    default:
        return buf_printf(out, "%s: %s", program, words != NULL ? words : "unknown error");
    }
}

/* --- headline ------------------------------------------------------------------------------------------- */

/* "20 ms", "2.5 s". */
static void time_text(char out[TIME_MAX], uint64_t ms)
{
    if (ms < 1000)
        snprintf(out, TIME_MAX, "%d ms", (int)ms);
    else
        snprintf(out, TIME_MAX, "%.1f s", (double)ms / 1000.0);
}

/* Everything that identifies the process, then how it ended and how soon: most start-up errors are seconds
 * old. */
static bool failed_headline(const struct report *r, int first, struct buf *out)
{
    const struct agent_worker *w = agent_worker(r->agent, first);
    char how[ENDING_MAX], after[TIME_MAX];
    if (w->verdict == WORKER_NOT_STARTED)
        return buf_printf(out, "rank %d could not be started: ", r->plan->workers[first].rank) &&
               cause_not_started(r, w, out);
    ending_text(how, w);
    time_text(after, w->ended_ms - w->started_ms);
    return buf_printf(out, "rank %d (local rank %d, pid %d, host %s) failed%s: %s, %s after its start",
                      r->plan->workers[first].rank, first, w->pid, r->plan->facts->host,
                      r->plan->nproc > 1 ? " first" : "", how, after);
}

/* Three stories, in the order of what a reader wants to know first: what broke, who stopped it, all went well. */
bool cause_headline(const struct report *r, struct buf *out)
{
    int first = agent_first_failure(r->agent);
    int stop = agent_stop_signal(r->agent);
    char name[ENDING_MAX], after[TIME_MAX];
    if (first >= 0)
        return failed_headline(r, first, out);
    time_text(after, r->ended_ms - r->started_ms);
    if (stop == 0)
        return buf_printf(out, "%s ended with 0 after %s", r->plan->nproc == 1 ? "the worker" : "all workers",
                          after);
    signal_name(name, stop);
    return buf_printf(out, "stopped by ") &&
           (r->stop != NULL ? signal_heard_text(r->stop, out) : buf_printf(out, "%s", name)) &&
           buf_printf(out, " after %s", after);
}

/* --- last words ----------------------------------------------------------------------------------------- */

/* What of a line is visible on a terminal: behind its last \r, cut to a length that a person reads. */
static bool add_visible(const char *line, size_t len, struct buf *out)
{
    while (len > 0 && line[len - 1] == '\r')
        len--;
    const char *cr = len > 0 ? memrchr(line, '\r', len) : NULL;
    if (cr != NULL) {
        len -= (size_t)(cr + 1 - line);
        line = cr + 1;
    }
    bool cut = len > REPORT_LINE_MAX;
    return buf_append(out, line, cut ? REPORT_LINE_MAX : len) && buf_append(out, " ...", cut ? 4 : 0) &&
           buf_append(out, "\n", 1);
}

/* The last lines of one stream, as a terminal would have shown them. */
static size_t visible_lines(const struct tail *tail, struct buf *out)
{
    struct buf raw = { 0 };
    size_t n = tail_lines(tail, REPORT_STDERR_LINES, &raw);
    const char *p = (const char *)raw.data;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        size_t len =
            (size_t)((const char *)memchr(p, '\n', raw.len - (size_t)(p - (const char *)raw.data)) - p);
        ok = add_visible(p, len, out);
        p += len + 1;
    }
    buf_free(&raw);
    return ok ? n : 0;
}

/* stdout only when stderr is silent: most programs that fail say so there, and one
 * that only prints its log to stdout has its reason there. */
size_t cause_last_lines(const struct report *r, int local_rank, struct buf *out, bool *from_stdout)
{
    size_t n = r->stderr_tails != NULL ? visible_lines(&r->stderr_tails[local_rank], out) : 0;
    *from_stdout = n == 0;
    if (n == 0 && r->stdout_tails != NULL)
        n = visible_lines(&r->stdout_tails[local_rank], out);
    return n;
}
