/* contain.h -- contains every process of a job, so that no process survives the job. If guardian and agent are killed
 * together, the next start on this host finds the remaining processes by the job's record (job_record.h). */
#ifndef LAUNCHER_CONTAIN_CONTAIN_H
#define LAUNCHER_CONTAIN_CONTAIN_H

#include "cli/cli.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Return the n-th sentence about a missing feature of this kernel or container, or NULL after the last one. Set *grave
 * if processes then outlive the job or end without SIGTERM. If `only_grave` is true, check only such features. */
const char *lacks_words(size_t n, bool only_grave, bool *grave);

/* The layers that contain the processes of a job:
 *
 *     layer    mechanism                                         used
 *     plain    guardian and agent adopt and kill orphans         always
 *     cgroup   a control group for each attempt                  if cgroup v2 is writable
 *     pidns    the agent is process 1 of a PID namespace         on request, because pids inside differ from the host's
 *
 * If guardian and agent are killed together, the layer plain alone leaves processes behind.
 *
 * A struct contain is opened before the guardian forks, so guardian and agent each have a copy. */
struct contain;

struct contain_options {
    enum contain_kind kind; /* CONTAIN_AUTO selects cgroup if possible, else plain */
    const char *job;        /* borrowed until contain_open returns */
    /* value of DDPRUN_COOKIE for this job's workers, or NULL without a cookie; borrowed until contain_open
     * returns */
    const char *cookie;
    bool dry_run; /* choose a layer, but kill no processes */
    bool quiet;   /* do not report that processes of dead jobs were killed */
};

/* Choose the layer, and kill and report the processes that dead jobs of this user left behind. Create no group or
 * namespace yet. After DDP_OK the caller frees *out with contain_close. Errors:
 *
 *   - DDP_ERR_UNSUPPORTED: the requested layer is not available; `err` has the reason and the remedy
 *   - DDP_ERR_NOMEM: memory is short */
ddp_status contain_open(const struct contain_options *options, struct contain **out, struct ddp_err *err);

/* Describe the layer, such as "cgroup, /sys/fs/cgroup/ddprun-j-1a2b3c4d (--contain=pidns is stronger, ...)", for the
 * user. `c` owns the text. */
const char *contain_words(const struct contain *c);

/* Return the mounts of control groups in the format of /proc/self/mountinfo (contain_mounts), or the text of
 * /proc/self/cgroup (contain_groups). Both are "" if unknown. `c` owns both texts. */
const char *contain_mounts(const struct contain *c);
const char *contain_groups(const struct contain *c);

/* Fork the agent. Return the same values as fork(2). */
pid_t contain_fork(struct contain *c);

/* Return true if the agent is in another PID namespace and cannot signal the guardian. */
bool contain_hides_guardian(const struct contain *c);

/* Set up the agent. Call this first in the agent. `lifeline` becomes readable when the guardian is gone. */
ddp_status contain_enter(struct contain *c, int lifeline, struct ddp_err *err);

/* Write the job's record and the address of its store, for ddpctl. The agent calls this as soon as the address is
 * known. */
void contain_name_store(struct contain *c, const char *host, int port);

/* Create a new control group for the next attempt. Call this in the agent before the attempt's first worker. */
ddp_status contain_attempt(struct contain *c, struct ddp_err *err);

/* Return the descriptor of the attempt's control group, or -1. `c` owns the descriptor. spawn.c creates workers in this
 * group. */
int contain_cgroup_fd(const struct contain *c);

/* Return the pid of the child `pid` outside the PID namespace, or `pid` if unknown. */
pid_t contain_shown_pid(const struct contain *c, pid_t pid);

/* Send SIGKILL to all processes in the layer in one step. Return false if the layer cannot do this. Always call
 * descendants_kill_all() afterwards, which also reaps. */
bool contain_kill(struct contain *c);

/* Remove the control group. The agent calls this at its end; contain_remove tries again later. */
void contain_leave(struct contain *c);

/* Remove the job's control group and record, after all processes of the job have ended. The guardian calls this, or the
 * agent if the guardian has died. */
void contain_remove(struct contain *c);

void contain_close(struct contain *c);

#endif
