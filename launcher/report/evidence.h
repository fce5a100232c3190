/* evidence.h -- find out how a worker ended: the kernel's facts (memory, core file, log), the error file that it
 * left, and the program that could not be started. */
#ifndef LAUNCHER_REPORT_EVIDENCE_H
#define LAUNCHER_REPORT_EVIDENCE_H

#include "base/buf.h"
#include "ddp/error.h"
#include "report/exit_text.h"
#include "report/spawn_error.h"

#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

/* Collect what the kernel knows about the end of a worker before it forgets: counters of memory
 * limits, /dev/shm, its log, core files.
 *
 *     evidence_new        before the first worker starts
 *     evidence_attempt    before the first worker of each attempt: counters begin anew
 *     evidence_ended      it failed: the facts go into a `struct worker_evidence`
 *
 * None of these can fail: a fact that cannot be read is left out. */

struct evidence;

/* `mounts` has the form of /proc/self/mountinfo and only needs the lines of control groups, `groups` is the text of
 * /proc/self/cgroup and must live as long as the evidence. `open_files` is the workers' ulimit -n, 0 = none: ddprun
 * raises its own. NULL when memory is short; every function below accepts
 * NULL, and then finds nothing. */
struct evidence *evidence_new(const char *mounts, const char *groups, uint64_t open_files);
void evidence_free(struct evidence *e);

/* `cgroup_fd` is the attempt's own control group, -1 = none; borrowed for the call. Forgets the attempt before. */
void evidence_attempt(struct evidence *e, int cgroup_fd);

/* `status` and `usage` as from wait4. Only the first few of an attempt are examined, because later ones are hardly
 * the first cause. */
void evidence_ended(struct evidence *e, int local_rank, pid_t pid, int status, const struct rusage *usage);

/* Note that user `uid` listens on `port`, which was held for the worker's store, and that the worker is about to get
 * SIGKILL. */
void evidence_port_taken(struct evidence *e, int local_rank, int port, unsigned uid);

/* Note that a timer of the worker has expired, and that the worker is about to be sent its signal. */
void evidence_timer(struct evidence *e, int local_rank, const char *scope);

/* Return NULL if the worker was not examined. Valid until the next attempt. */
const struct worker_evidence *evidence_of(const struct evidence *e, int local_rank);

/* --- the error file of a worker ---------------------------------------------------------------------------- */

/* A worker's error file (TORCHELASTIC_ERROR_FILE), parsed.
 *
 * torch's @record writes one of two shapes:
 *
 *     {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
 *     {"message": "no", "timestamp": 1700000000}
 *
 * The bytes come from the worker and are untrusted: any other object is rejected with a reason. */

enum { ERROR_FILE_MAX = 256 * 1024 };

struct error_text {
    char *message;    /* owned; UTF-8 without control characters except \n and \t */
    char *callstack;  /* owned; "" = none */
    uint64_t unix_ms; /* when it was recorded, by the worker's clock; 0 = not given */
};

/* DDP_OK: free with error_text_free. DDP_ERR_CORRUPT or DDP_ERR_LIMIT: not such a file, `err` has the reason.
 * DDP_ERR_NOMEM. */
ddp_status error_text_parse(struct slice bytes, struct error_text *out, struct ddp_err *err);

void error_text_free(struct error_text *text);

/* Read and parse the file. `path` may lead to anything, also a FIFO or a link: nothing blocks, no link is followed,
 * no more than ERROR_FILE_MAX bytes are read. DDP_OK: free with error_text_free. DDP_ERR_CLOSED: the file is missing,
 * which is the usual case. Else `err` has the path and the reason. */
ddp_status error_file_read(const char *path, struct error_text *out, struct ddp_err *err);

/* Copy the file `from` to `to`, with the exit code in it: for a launcher around this one. Errors are ignored, because
 * the report has the content in any case. */
void error_file_hand_on(const char *from, const char *to, int code);

/* --- a program that did not start ------------------------------------------------------------------------ */

/* Examine `path` as given to execve, or as the user named it when no search found it. */
void program_see(const char *path, struct program_look *look);

/* Examine `failed`, which could not be started, or the file `script` that Python should run. False: nothing to
 * examine. */
bool program_see_failed(const char *failed, const char *script, struct program_look *look);

#endif
