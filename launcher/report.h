/* report.h -- what the user reads at the end: the first cause first, in at most 40 lines; the same as JSON.
 *
 * Pure: everything that has to be looked up (host, files, last words) is handed in. */
#ifndef LAUNCHER_REPORT_H
#define LAUNCHER_REPORT_H

#include "agent.h"
#include "plan.h"
#include "signals.h"
#include "tail.h"

struct cJSON;

enum { REPORT_LINES_MAX = 40, REPORT_STDERR_LINES = 12 };

/* What the shell saw where a program could not be started. */
enum program_look {
    LOOK_UNKNOWN, /* it was not looked at */
    LOOK_MISSING, /* no such file (for a name without '/': nowhere in PATH) */
    LOOK_DIRECTORY,
    LOOK_NOT_EXECUTABLE, /* a file without x permission */
    LOOK_FILE            /* there, and executable: its interpreter or format is at fault */
};

struct report {
    const struct plan *plan;
    const struct agent *agent;
    const struct tail *stdout_tails, *stderr_tails; /* by local rank, nproc of each; either may be NULL */
    uint64_t started_ms, ended_ms;                  /* of the job, by the agent's clock */
    uint64_t ended_unix_ms;                         /* wall clock, for the JSON */
    const struct signal_heard *stop; /* the user's request to stop and who sent it; NULL = none */
    enum program_look look;          /* of the command that could not be started */
    const char *interpreter;         /* the file's first line after "#!", or NULL */
    const char *path;                /* the worker's PATH, for "not found" */
};

/* Is there something to tell? False when all ended with 0: success is silent. */
bool report_needed(const struct report *r);

/* Append the text, ending with a newline; a success is one line. False when memory is short. */
bool report_text(const struct report *r, struct buf *out);

/* The same facts; schema in launcher/README.md. The caller frees it with cJSON_Delete. NULL when memory is
 * short. */
struct cJSON *report_json(const struct report *r);

#endif
