/* report_text.h -- what the user reads at the end: the first cause first, in at most 40 lines; the same as JSON.
 *
 * Pure: everything that has to be looked up (host, files, last words) is handed in. */
#ifndef LAUNCHER_REPORT_REPORT_TEXT_H
#define LAUNCHER_REPORT_REPORT_TEXT_H

#include "agent/agent.h"
#include "agent/failure.h"
#include "base/buf.h"
#include "contain/descendants.h"
#include "diagnosis/findings.h"
#include "output/lines.h"
#include "plan/plan.h"
#include "report/exit_text.h"
#include "report/error_file.h"
#include "report/spawn_error_text.h"
#include "tables/signals.h"

struct cJSON;
struct loss;

enum { REPORT_LINES_MAX = 40, REPORT_STDERR_LINES = LIMIT_LAST_LINES };

/* An attempt that has failed, on whichever node. */
struct failed_attempt {
    int attempt; /* from 0 */
    struct failure failure;
    enum worker_verdict verdict;
    uint64_t started_ms, worker_started_ms, failed_ms, ended_ms;
    int64_t step; /* how far the workers came by their own account; -1 = not told */
};

/* How the store was lost, when that is the end of this node's job. */
struct store_end {
    const char *how;    /* NULL = it was not */
    const char *node;   /* " on node 0 (n0)", where it was; "" or NULL = not known */
    const char *advice; /* what to do, when `how` says all about why; "" or NULL */
    const char *code;   /* ... and that finding's code; "" or NULL */
};

/* Who was waited for in vain. */
struct left_early {
    const char *subject;    /* "rank 0 (n1, pid 7)"; "" or NULL */
    const char *sentence;   /* "rank 0 (n1, pid 7) ended with 0 while rank 1 waited ..."; "" or NULL */
    enum finding_code code; /* RANK_LEFT_EARLY, or SETUP_GIVEN_UP */
};

/* All of it is borrowed. */
struct report {
    const struct plan *plan;
    const struct agent *agent;
    const struct tail *stdout_tails, *stderr_tails; /* by local rank, nproc of each; either may be NULL */
    uint64_t started_ms, ended_ms;                  /* of the job, by the agent's clock */
    uint64_t ended_unix_ms;                         /* wall clock of ended_ms */
    const struct signal_heard *stop;        /* the user's request to stop and who sent it; NULL = none */
    int utc_offset_s;                       /* of the local time that is shown */
    bool colour;                            /* the text goes to a terminal */
    const struct program_look *look;        /* at the command that could not be started, or NULL */
    const char *path;                       /* the worker's PATH, for "not found" */
    const char *python;                     /* that ran the workers: a path; NULL = not known */
    const struct worker_evidence *evidence; /* about the first failure, or NULL */
    const struct error_text *error;         /* from the first failure's error file, or NULL */
    const struct failure *elsewhere;     /* the first cause, when it is no worker of this node; else NULL */
    const struct failed_attempt *failed; /* n_failed of them, the latest last */
    size_t n_failed;
    int64_t best_step; /* of all attempts, -1 = no worker told */
    struct store_end store;
    struct left_early left;
    const struct stuck *stuck; /* what cannot be killed, n_stuck of them */
    size_t n_stuck;
    const char *flights;     /* where ranks have left their last calls: see flight_path(); NULL = nowhere */
    const struct loss *lost; /* output that is missing somewhere, n_lost of them */
    size_t n_lost;
    const char *error_trouble; /* why that file could not be read, or NULL */
};

/* Is there something to tell? False when all ended with 0: success is silent. */
bool report_needed(const struct report *r);

/* Append the warning that other hosts could not join. Append nothing when the job began with all nodes that may take part,
 * or when other hosts could join. False when memory is short. */
bool report_local_only(const struct report *r, struct buf *out);

/* Append the text, ending with a newline; a success is one line. False when memory is short. */
bool report_text(const struct report *r, struct buf *out);

/* The same facts; schema in report.schema.json. The caller frees it with cJSON_Delete. NULL when memory is
 * short. */
struct cJSON *report_json(const struct report *r);

/* --- report rows ------------------------------------------------------------------------------------------ */

/* Private to report*.c: lines of the report, one under the other in two columns.
 *
 *     ddprun: headline
 *       label    text that is wrapped where a terminal would break it,
 *                and goes on here
 *       label    | a line of a worker, never wrapped
 *
 * No more than `limit` lines: what does not fit any more is left out. Bytes of workers may be anything: they
 * pass text.h, as all that reaches the terminal. */

enum { ROW_WIDTH = 100, ROW_QUOTE_MAX = 300 };

struct rows {
    struct buf *out;
    bool colour;
    int lines, limit;
    bool ok; /* false: memory is short, the rest is skipped */
};

/* --- report others ---------------------------------------------------------------------------------------- */

/* Private to report*.c: what became of the workers that did not fail first. */

/* --- report attempts -------------------------------------------------------------------------------------- */

/* Private to report*.c: the part of the report about attempts that were made, why no more are,
 * and what is left behind. */

/* The rows; none for a job of one attempt that left nothing behind. */
void report_attempts(const struct report *r, struct rows *rows);

/* The members "failed_attempts", "max_restarts", "not_restarted", "left_waiting" and "unkillable". */
bool report_attempts_json(const struct report *r, struct cJSON *o);

#endif
