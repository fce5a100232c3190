/* evidence.h -- find out how a worker ended: the kernel's facts (memory, core file, log), the worker's error file,
 * and the program that could not be started. */
#ifndef LAUNCHER_REPORT_EVIDENCE_H
#define LAUNCHER_REPORT_EVIDENCE_H

#include "base/buf.h"
#include "ddp/error.h"
#include "report/exit_text.h"
#include "report/spawn_error.h"

#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

/* Collect what the kernel reports about the end of a worker, before the kernel drops the information: counters of
 * memory limits, /dev/shm, the kernel log, core files.
 *
 *     evidence_new        before the first worker starts
 *     evidence_attempt    before the first worker of each attempt: reads the counters to compare with
 *     evidence_ended      after a worker failed: fills a `struct worker_evidence`
 *
 * No function reports an error: a fact that cannot be read is left out. */

struct evidence;

/* Return a new collector, or NULL when memory is short. Every function below accepts NULL and then does nothing.
 * `mounts` has the form of /proc/self/mountinfo. Only the lines of control groups are needed. `groups` is the text of
 * /proc/self/cgroup and must live as long as the evidence. `open_files` is the workers' ulimit -n (ddprun raises its
 * own limit), 0 = none. */
struct evidence *evidence_new(const char *mounts, const char *groups, uint64_t open_files);
void evidence_free(struct evidence *e);

/* Drop all facts about the previous attempt and prepare for the next attempt. `cgroup_fd` is the attempt's own
 * control group, borrowed for the call; -1 = none. */
void evidence_attempt(struct evidence *e, int cgroup_fd);

/* Examine a worker that has failed. `status` and `usage` are results of wait4. Only the first few failures of an
 * attempt are examined, because later failures are hardly the first cause. */
void evidence_ended(struct evidence *e, int local_rank, pid_t pid, int status, const struct rusage *usage);

/* Record that user `uid` listens on `port`, which was held for the worker's store, and that ddprun is about to send
 * SIGKILL to the worker. */
void evidence_port_taken(struct evidence *e, int local_rank, int port, unsigned uid);

/* Record that a timer of the worker has expired, and that ddprun is about to send the timer's signal to the
 * worker. */
void evidence_timer(struct evidence *e, int local_rank, const char *scope);

/* Return the facts about a worker, valid until the next attempt, or NULL if the worker was not examined. */
const struct worker_evidence *evidence_of(const struct evidence *e, int local_rank);

/* --- the error file of a worker ---------------------------------------------------------------------------- */

/* A worker's error file (TORCHELASTIC_ERROR_FILE), parsed.
 *
 * torch's @record writes one of two shapes:
 *
 *     {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
 *     {"message": "no", "timestamp": 1700000000}
 *
 * The bytes come from the worker and are untrusted, so any other object is rejected with a reason. */

enum { ERROR_FILE_MAX = 256 * 1024 };

struct error_text {
    char *message;    /* owned; UTF-8 without control characters except \n and \t */
    char *callstack;  /* owned; "" = none */
    uint64_t unix_ms; /* time of the error, by the worker's clock; 0 = not given */
};

/* Parse the content of an error file. After DDP_OK the caller frees `out` with error_text_free. Return
 * DDP_ERR_CORRUPT or DDP_ERR_LIMIT, with the reason in `err`, if the content is not an error file. Return
 * DDP_ERR_NOMEM if memory is short. */
ddp_status error_text_parse(struct slice bytes, struct error_text *out, struct ddp_err *err);

void error_text_free(struct error_text *text);

/* Read and parse the error file at `path`. The path may lead to any object, for example to a FIFO or a link. So this
 * function never blocks, follows no link at the end of the path, and reads at most a little more than ERROR_FILE_MAX
 * bytes. After DDP_OK the caller frees `out` with error_text_free. DDP_ERR_CLOSED means that the file is missing,
 * which is the usual case. After any other status, `err` has the path and the reason. */
ddp_status error_file_read(const char *path, struct error_text *out, struct ddp_err *err);

/* Copy the error file `from` to `to` and add the exit code, for a launcher that has started this launcher. Errors are
 * ignored, because the report has the content in any case. */
void error_file_hand_on(const char *from, const char *to, int code);

/* --- a program that did not start ------------------------------------------------------------------------ */

/* Examine the file at `path`: the path given to execve, or the user's own text if no search has found the program. */
void program_see(const char *path, struct program_look *look);

/* Examine the program `failed`, which could not be started, or, if `failed` is `script`, the file that Python should
 * run. Return false if no file can be examined. */
bool program_see_failed(const char *failed, const char *script, struct program_look *look);

#endif
