/* contain.h -- contain every process of a job, so that none survives it and no other is touched.
 *
 *     layer    mechanism                                          when
 *     plain    guardian and agent adopt orphans and kill         always
 *     cgroup   a control group for each attempt                  with a writable cgroup v2
 *     pidns    the agent is process 1 of a PID namespace         on request: workers see other pids
 *
 * The stronger layers work on top of plain. A record of the job (job_record.h) lets the next start on this host find
 * the processes that plain cannot reach: those that are left when guardian and agent are killed together.
 *
 * Opened before the guardian forks, so both processes have one. The agent creates the layer (contain_attempt); the
 * last of the two removes it (contain_remove). */
#ifndef LAUNCHER_CONTAIN_CONTAIN_H
#define LAUNCHER_CONTAIN_CONTAIN_H

#include "cli/cli.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Return the n-th sentence about a missing feature of this kernel or container and its replacement, NULL after the
 * last. `grave`: always print it; `only_grave` checks no others. */
const char *lacks_words(size_t n, bool only_grave, bool *grave);

struct contain;

struct contain_options {
    enum contain_kind kind; /* CONTAIN_AUTO: cgroup if possible, else plain */
    const char *job;        /* borrowed until contain_open returns */
    const char *cookie;     /* DDPRUN_COOKIE of this job's workers, NULL = none; also borrowed */
    bool dry_run;           /* look only */
    bool quiet;
};

/* Choose the layer; kill the processes that dead jobs of this user left, and report it. Nothing is created yet.
 * DDP_OK: free with contain_close. DDP_ERR_UNSUPPORTED: the requested layer is not available; `err` has the reason
 * and the remedy. DDP_ERR_NOMEM. */
ddp_status contain_open(const struct contain_options *options, struct contain **out, struct ddp_err *err);

/* "cgroup, /sys/fs/cgroup/ddprun-j-1a2b3c4d (--contain=pidns is stronger, ...)", with the reasons against
 * the stronger layers, for --verbose, --dry_run and the report. Borrowed. */
const char *contain_words(const struct contain *c);

/* For other modules: the mounts of control groups in the form of /proc/self/mountinfo, and our own groups, the text
 * of /proc/self/cgroup; "" = not known. Borrowed. */
const char *contain_mounts(const struct contain *c);
const char *contain_groups(const struct contain *c);

/* Fork the agent, as fork(2) does. */
pid_t contain_fork(struct contain *c);

/* In the agent, before anything else. `lifeline` becomes readable when the guardian is gone. */
ddp_status contain_enter(struct contain *c, int lifeline, struct ddp_err *err);

/* In the agent, as soon as it knows the address of the job's store: write that and the record, so that ddpctl finds
 * the job even while it waits for other nodes. */
void contain_name_store(struct contain *c, const char *host, int port);

/* In the agent, before the first worker of each attempt: create a new group that was never killed. */
ddp_status contain_attempt(struct contain *c, struct ddp_err *err);

/* Return a descriptor of the attempt's control group, in which workers are created; -1 = none. `c` owns it. */
int contain_cgroup_fd(const struct contain *c);

/* Return the pid of our child as the user sees it from outside if known, else as we see it. */
pid_t contain_shown_pid(const struct contain *c, pid_t pid);

/* SIGKILL to all processes in the layer at once; false when the layer cannot do that. The sweep of descendants.h
 * follows in any case: it also reaps. */
bool contain_kill(struct contain *c);

/* In the agent at its end, when all its processes are gone: remove the control group at once. If that fails,
 * contain_remove does it later. */
void contain_leave(struct contain *c);

/* Remove the objects of contain_attempt when no process is left. Call it in the last of the two processes. */
void contain_remove(struct contain *c);

/* Free. */
void contain_close(struct contain *c);

#endif
