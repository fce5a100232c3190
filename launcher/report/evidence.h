/* evidence.h -- how a worker ended: facts of the kernel (memory, core file, log), the worker's error file, and the
 * program that could not be started. evidence.c reads the files and parses the error file. exit_text.c and
 * spawn_error.c open no file, so tests can pass texts to their functions. */
#ifndef LAUNCHER_REPORT_EVIDENCE_H
#define LAUNCHER_REPORT_EVIDENCE_H

#include "base/buf.h"
#include "ddp/error.h"
#include "report/exit_text.h"
#include "report/spawn_error.h"

#include <sys/resource.h>
#include <sys/types.h>

/* Facts that the kernel provides about the end of a worker: counters of memory limits, free space of /dev/shm, the
 * kernel's log, core files. These facts soon change, so they are collected at once.
 *
 *     evidence_new        before the first worker starts
 *     evidence_attempt    before the first worker of each attempt starts: reads the counters
 *     evidence_ended      after a worker has failed: compares the counters, and fills a `struct worker_evidence`
 *
 * No function reports an error: a fact that cannot be read stays unknown. */

struct evidence;

/* Return a new collector, or NULL when memory is short. All functions below accept NULL and then do nothing. `mounts`
 * contains at least the lines of /proc/self/mountinfo about control groups. `groups` is the text of /proc/self/cgroup
 * and must outlive the collector. `open_files` is the workers' limit of open files. */
struct evidence *evidence_new(const char *mounts, const char *groups, uint64_t open_files);
void evidence_free(struct evidence *e);

/* Drop the facts about the previous attempt and prepare for the next attempt. `cgroup_fd` is a descriptor of the
 * directory of the attempt's control group, or -1. The descriptor is borrowed during the call. */
void evidence_attempt(struct evidence *e, int cgroup_fd);

/* Examine a worker that has failed. `status` and `usage` are from wait4. Only the first few failures of an attempt
 * are examined. */
void evidence_ended(struct evidence *e, int local_rank, pid_t pid, int status, const struct rusage *usage);

/* Record the resource limits after a worker could not be started, because a limit may be the reason. */
void evidence_not_started(struct evidence *e, int local_rank);

/* Record that user `uid` has taken the port that was reserved for the worker's store. ddprun then kills the worker. */
void evidence_port_taken(struct evidence *e, int local_rank, int port, unsigned uid);

/* Record that a timer of the worker has expired. ddprun then kills the worker. `scope` is the name that the worker has
 * given to the timer. */
void evidence_timer(struct evidence *e, int local_rank, const char *scope);

/* Return the facts about a worker, or NULL if the worker was not examined. The result is valid until the next
 * attempt. */
const struct worker_evidence *evidence_of(const struct evidence *e, int local_rank);

/* --- the error file of a worker ---------------------------------------------------------------------------- */

/* A worker's error file (TORCHELASTIC_ERROR_FILE), which is not trusted. torch's @record writes one of two shapes:
 *
 *     {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
 *     {"message": "no", "timestamp": 1700000000} */

enum { ERROR_FILE_MAX = 256 * 1024 };

struct error_text {
    char *message;    /* owned; valid UTF-8 without control characters, except \n and \t */
    char *callstack;  /* owned; may be "" */
    uint64_t unix_ms; /* when the error occurred, by the worker's clock; 0 if unknown */
};

void error_text_free(struct error_text *text);

/* Read and parse the error file at `path`. The worker may have created a FIFO or a link there. So the function never
 * blocks, follows no link, and limits the length. After DDP_OK the caller frees `out` with error_text_free. Return
 * DDP_ERR_CLOSED if the file is missing, which is the usual case. After another error, `err` contains the path and the
 * reason. */
ddp_status error_file_read(const char *path, struct error_text *out, struct ddp_err *err);

/* Copy the error file `from` to `to` and add the exit code. So a launcher that has started this launcher gets the
 * error. Ignore a failed copy, because the report also contains the worker's error. */
void error_file_hand_on(const char *from, const char *to, int code);

/* --- a program that did not start ------------------------------------------------------------------------ */

/* Examine the file `failed`, which could not be started. `script` is the script that Python runs, or NULL. If the
 * script could not be started, `failed` is the same pointer as `script`. Return false if there is no file to
 * examine. */
bool program_examine_failed(const char *failed, const char *script, struct program_file *file);

#endif
