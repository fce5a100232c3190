/* evidence.h -- how a worker ended: facts of the kernel (memory, core file, log), its error file, and a program that
 * did not start. Only evidence.c opens files. */
#ifndef LAUNCHER_REPORT_EVIDENCE_H
#define LAUNCHER_REPORT_EVIDENCE_H

#include "base/buf.h"
#include "ddp/error.h"
#include "report/exit_text.h"
#include "report/spawn_error.h"

#include <sys/resource.h>
#include <sys/types.h>

/* Facts of the kernel about the end of a worker. They soon change, so they are collected at once.
 *
 *     evidence_new        before the first worker starts
 *     evidence_attempt    before the first worker of each attempt starts: reads the counters
 *     evidence_ended      after a worker has failed: compares the counters, and fills a `struct worker_evidence`
 *
 * A fact that cannot be read stays unknown, without an error. */

struct evidence;

/* Return a new collector, or NULL when memory is short. All functions accept NULL. `mounts` are the lines of
 * /proc/self/mountinfo about control groups. `groups`, the text of /proc/self/cgroup, must outlive the collector.
 * `open_files` is the workers' limit of open files. */
struct evidence *evidence_new(const char *mounts, const char *groups, uint64_t open_files);
void evidence_free(struct evidence *e);

/* Drop the facts about the previous attempt. `cgroup_fd` is the borrowed directory of the new attempt's control
 * group, or -1. */
void evidence_attempt(struct evidence *e, int cgroup_fd);

/* Examine a failed worker, but only the first few of an attempt. `status` and `usage` are from wait4. */
void evidence_ended(struct evidence *e, int local_rank, pid_t pid, int status, const struct rusage *usage);

/* Record the resource limits after a worker could not be started. */
void evidence_not_started(struct evidence *e, int local_rank);

/* Record that user `uid` has taken the worker's store port. ddprun then kills the worker. */
void evidence_port_taken(struct evidence *e, int local_rank, int port, unsigned uid);

/* Record that the worker's timer named `scope` has expired. ddprun then kills the worker. */
void evidence_timer(struct evidence *e, int local_rank, const char *scope);

/* Return the facts about a worker, valid until the next attempt, or NULL. */
const struct worker_evidence *evidence_of(const struct evidence *e, int local_rank);

/* --- the error file of a worker ---------------------------------------------------------------------------- */

/* A worker's error file (TORCHELASTIC_ERROR_FILE), which is not trusted. torch's @record writes one of two shapes:
 *
 *     {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
 *     {"message": "no", "timestamp": 1700000000} */

enum { ERROR_FILE_MAX = 256 * 1024 };

struct error_text {
    char *message;    /* owned; UTF-8 whose only control characters are \n and \t */
    char *callstack;  /* owned; may be "" */
    uint64_t unix_ms; /* time of the error, by the worker's clock; 0 if unknown */
};

void error_text_free(struct error_text *text);

/* Read and parse the error file. Never block, and reject a FIFO, a link or a file that is too long. After DDP_OK, the
 * caller frees `out` with error_text_free. Return DDP_ERR_CLOSED if the file is missing, the usual case. */
ddp_status error_file_read(const char *path, struct error_text *out, struct ddp_err *err);

/* Copy the error file with the exit code to `to`, for an outer launcher. Ignore a failure. */
void error_file_hand_on(const char *from, const char *to, int code);

/* --- a program that did not start ------------------------------------------------------------------------ */

/* Examine the program `failed`, which could not be started. `script` is Python's file, and may equal `failed`. Return
 * false if there is no file to examine. */
bool program_examine_failed(const char *failed, const char *script, struct program_file *file);

#endif
