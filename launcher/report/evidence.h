/* evidence.h -- look up how a worker ended: the kernel's facts (memory, core file, log), the error file that it left,
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

/* Look up what the kernel knows about the end of a worker, while it still knows it: counters of memory
 * limits, /dev/shm, its log, core files.
 *
 *     evidence_new        before the first worker starts
 *     evidence_attempt    before the first worker of each attempt: counters begin anew
 *     evidence_ended      it failed: what is known goes into a `struct worker_evidence`
 *
 * None of these can fail: what cannot be read is a fact less. */

struct evidence;

/* `mounts` has the form of /proc/self/mountinfo and needs the control groups' lines alone, `groups` is the text of
 * /proc/self/cgroup and must live as long as the evidence. NULL when memory is short; every function below accepts
 * NULL, and then finds nothing. */
struct evidence *evidence_new(const char *mounts, const char *groups);
void evidence_free(struct evidence *e);

/* `cgroup_fd` is the attempt's own control group, -1 = none; borrowed for the call. Forgets the attempt before. */
void evidence_attempt(struct evidence *e, int cgroup_fd);

/* `status` and `usage` as from wait4. Only the first few of an attempt are looked at: the others are hardly the first cause. */
void evidence_ended(struct evidence *e, int local_rank, pid_t pid, int status, const struct rusage *usage);

/* User `uid` listens on `port`, which was held for the worker's store, and the worker is about to get SIGKILL. */
void evidence_port_taken(struct evidence *e, int local_rank, int port, unsigned uid);

/* A timer that the worker had set has run out, and it is about to be sent its signal. */
void evidence_timer(struct evidence *e, int local_rank, const char *scope);

/* NULL when it was not looked at. Valid until the next attempt. */
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
    uint64_t unix_ms; /* when it was recorded, as the worker says; 0 = it does not say */
};

/* DDP_OK: free with error_text_free. DDP_ERR_CORRUPT or DDP_ERR_LIMIT: not such a file, `err` says what is
 * wrong with it. DDP_ERR_NOMEM. */
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

/* Look at `path` as it was given to execve, or as the user named it when no search found it. */
void program_see(const char *path, struct program_look *look);

/* Look at `failed`, which could not be started, or the file `script` that Python was to run. False: there is nothing to look at. */
bool program_see_failed(const char *failed, const char *script, struct program_look *look);

#endif
