/* contain.h -- contains every process of a job, so that no process survives the job, and no process of another job is
 * killed. The guardian is the process in which ddprun begins. The agent is the child of the guardian, and starts the
 * workers. */
#ifndef LAUNCHER_CONTAIN_CONTAIN_H
#define LAUNCHER_CONTAIN_CONTAIN_H

#include "cli/cli.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Return the n-th sentence about a missing feature of this kernel or container, or NULL after the last sentence. Set
 * *grave to the field `grave` of the feature's row in contain.c. Without a grave feature, processes of any job may
 * outlive the job or end without SIGTERM. If `only_grave` is true, check only the grave features. Without --verbose,
 * the caller prints only the grave sentences. With --quiet and without --verbose, the caller prints no sentence. */
const char *lacks_words(size_t n, bool only_grave, bool *grave);

/* The layers that contain the processes of a job:
 *
 *     layer    mechanism                                         used
 *     plain    guardian and agent adopt and kill orphans         always
 *     cgroup   a control group for each attempt                  if cgroup v2 is writable
 *     pidns    the agent is process 1 of a PID namespace         on request, because pids inside differ from the host's
 *
 * The layers cgroup and pidns are used in addition to the layer plain. If guardian and agent are killed together, the
 * layer plain alone leaves processes behind. The next start of ddprun on this host then reads the job's record
 * (job_record.h) to find these processes.
 *
 * A struct contain is opened before the guardian forks, so guardian and agent each have a copy. The guardian creates
 * the control group of the first attempt (contain_fork), and the agent the groups of later attempts (contain_attempt).
 * The process that ends last removes the group (contain_remove). */
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
 * namespace yet. After DDP_OK the caller frees *out with contain_close. Return DDP_ERR_UNSUPPORTED, with reason and
 * remedy in `err`, if the requested layer is not available. Return DDP_ERR_NOMEM if memory is short. */
ddp_status contain_open(const struct contain_options *options, struct contain **out, struct ddp_err *err);

/* Describe the layer, such as "cgroup, /sys/fs/cgroup/ddprun-j-1a2b3c4d (--contain=pidns is stronger, ...)", with the
 * reasons why stronger layers are not used. --verbose, --dry_run and the report print this text. `c` owns the
 * text. */
const char *contain_words(const struct contain *c);

/* Return the mounts of control groups in the format of /proc/self/mountinfo, or "" if unknown. contain_groups returns
 * the text of /proc/self/cgroup, or "". `c` owns both texts. */
const char *contain_mounts(const struct contain *c);
const char *contain_groups(const struct contain *c);

/* Fork the agent. Return the same values as fork(2). In the guardian, also create the group of the first attempt and
 * write the job's record, because the agent starts meanwhile. */
pid_t contain_fork(struct contain *c);

/* Return true if the agent cannot signal the guardian, because the agent is in another PID namespace. */
bool contain_hides_guardian(const struct contain *c);

/* Set up the agent. Call this function first in the agent. `lifeline` becomes readable when the guardian is gone. */
ddp_status contain_enter(struct contain *c, int lifeline, struct ddp_err *err);

/* Add the address of the job's store to the job's record. ddpctl needs this address to find the job. The agent calls
 * this function as soon as the address is known. */
void contain_name_store(struct contain *c, const char *host, int port);

/* Use a new control group for the next attempt. Call this in the agent before it starts the attempt's first worker.
 * Wait at most 5 s until the job's record was written. */
ddp_status contain_attempt(struct contain *c, struct ddp_err *err);

/* Return the descriptor of the attempt's control group, or -1 if no group exists. `c` owns the descriptor. spawn.c
 * creates workers in this group. */
int contain_cgroup_fd(const struct contain *c);

/* Return the pid that the child `pid` has outside the PID namespace, or `pid` if the outer pid is unknown. */
pid_t contain_shown_pid(const struct contain *c, pid_t pid);

/* Send SIGKILL in one step to all processes in the control group. Return false if the kill fails, or if the layer is
 * not cgroup. This function reaps no process. The caller kills and reaps the remaining processes afterwards, with
 * descendants_signal() or descendants_kill_all(). */
bool contain_kill(struct contain *c);

/* Remove the control group. The agent calls this function at its end if all processes of the job are gone. If the
 * removal fails, contain_remove tries again later. */
void contain_leave(struct contain *c);

/* Remove the job's control group and record. The guardian calls this function after all processes of the job have
 * ended. If the guardian has died, the agent calls this function. */
void contain_remove(struct contain *c);

void contain_close(struct contain *c);

#endif
