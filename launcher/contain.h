/* contain.h -- what keeps every process of a job together, so that none survives it and no other is touched.
 *
 *     layer    what it is                                        when
 *     plain    guardian and agent adopt orphans and kill         always
 *     cgroup   a control group of its own for each attempt       there is a writable cgroup v2
 *     pidns    the agent is process 1 of a PID namespace         only when asked for: workers see other pids
 *
 * The stronger layers come on top of plain, which goes on working below them. A record of the job
 * (record.h) lets the next start on this host find what plain cannot reach: processes that are left when guardian and
 * agent are killed together.
 *
 * Opened before the guardian forks, so both processes have one. The agent makes things (contain_attempt); who is the
 * last of the two takes them away (contain_remove). */
#ifndef LAUNCHER_CONTAIN_H
#define LAUNCHER_CONTAIN_H

#include "cli.h"

#include <stdbool.h>
#include <sys/types.h>

struct contain;

struct contain_options {
    enum contain_kind kind; /* CONTAIN_AUTO: cgroup where there is one, else plain */
    const char *job;        /* borrowed until contain_open returns */
    const char *cookie;     /* DDPRUN_COOKIE of this job's workers; borrowed until contain_open returns */
};

/* Choose the layer. Nothing is made yet: a dry run may stop here. DDP_OK: free with contain_close. DDP_ERR_UNSUPPORTED:
 * the layer that was asked for is not available; `err` says why, and what to do. DDP_ERR_NOMEM. */
ddp_status contain_open(const struct contain_options *options, struct contain **out, struct ddp_err *err);

/* "control group /sys/fs/cgroup/ddprun-j-1a2b (pidns is stronger: ...)", for --verbose, --dry_run and the report.
 * Borrowed. */
const char *contain_words(const struct contain *c);

/* In the agent, before the first worker of each attempt: a new group that no kill has ever touched. */
ddp_status contain_attempt(struct contain *c, int attempt, struct ddp_err *err);

/* Where a worker is to be born: a descriptor of the attempt's control group; -1 = none. It stays `c`'s. */
int contain_cgroup_fd(const struct contain *c);

/* SIGKILL to everybody in the layer at once; false when the layer cannot do that. The sweep of descendants.h follows in
 * any case: it also reaps. */
bool contain_kill(struct contain *c);

/* Is nobody left in the layer? True when the layer cannot tell. */
bool contain_gone(const struct contain *c);

/* Take away what contain_attempt made, when nobody is left. Call it in the last of the two processes. */
void contain_remove(struct contain *c);

/* Free. */
void contain_close(struct contain *c);

#endif
