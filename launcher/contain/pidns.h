/* pidns.h -- a PID namespace around the agent and everything below it.
 *
 * The agent is process 1 of the namespace: when it ends, however it ends, the kernel kills all others in
 * there. And it dies with the guardian. So nothing is left even when both are killed at once. The price:
 * the pids that workers see are not those of the host, and without root there is a user namespace around
 * them, too. */
#ifndef LAUNCHER_PIDNS_H
#define LAUNCHER_PIDNS_H

#include "ddp/error.h"

#include <sys/types.h>

/* Can it be done here? Tried in a process of its own, nothing changes. DDP_ERR_UNSUPPORTED: `err` names the
 * setting that forbids it. */
ddp_status pidns_probe(struct ddp_err *err);

/* In the guardian: its next child will be process 1 of a new namespace. Call it before there are threads. */
ddp_status pidns_unshare(struct ddp_err *err);

/* In that child, before anything else: die with the guardian, see our own /proc. `lifeline` becomes readable when the
 * guardian is gone; it may be gone already. */
ddp_status pidns_enter(int lifeline, struct ddp_err *err);

/* The pid that the host's users see of our child `pid`; 0 when that cannot be known. `host_proc` is the host's /proc,
 * opened before pidns_enter. */
pid_t pidns_host_pid(int host_proc, pid_t pid);

#endif
