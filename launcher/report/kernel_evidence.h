/* kernel_evidence.h -- what the kernel knows about the end of a worker: out of memory, core files, its log.
 *
 * Find the core file of a worker that crashed, or say why there is none. */
#ifndef LAUNCHER_REPORT_KERNEL_EVIDENCE_H
#define LAUNCHER_REPORT_KERNEL_EVIDENCE_H

#include "report/exit_text.h"

#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

/* --- evidence --------------------------------------------------------------------------------------------- */

/* Look up what the kernel knows about the end of a worker, while it still knows it: counters of memory
 * limits, /dev/shm, its log, core files.
 *
 *     evidence_new        before the first worker starts
 *     evidence_attempt    before the first worker of each attempt: counters begin anew
 *     evidence_ended      it failed: what is known goes into a `struct worker_evidence`
 *
 * None of these can fail: what cannot be read is a fact less. */

struct evidence;

/* `mounts` has the form of /proc/self/mountinfo and needs to have the control groups' alone, `groups` is the text of
 * /proc/self/cgroup and must live as long as the evidence. NULL when memory is short; every function below takes NULL,
 * and then knows nothing. */
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

#endif
