/* guardian.h -- the process that the user sees, and its child, the agent.
 *
 *     user's shell -> guardian (waits, forwards signals) -> agent (does everything) -> workers
 *
 * Both adopt orphans, and each watches the other: when the agent dies, even by kill -9, the guardian inherits all its
 * processes and kills them; when the guardian dies, the agent sees the end of the lifeline and does the same. */
#ifndef LAUNCHER_GUARDIAN_H
#define LAUNCHER_GUARDIAN_H

#include "contain/contain.h"
#include "plan/plan.h"
#include "tables/signals.h"

#include <signal.h>

/* Run the agent. Each signal that the guardian gets can be read from `lifeline`, non-blocking, as a struct
 * signal_heard; it ends when the guardian is gone. A SIGCONT from the guardian itself only wakes the agent. All
 * watched signals are blocked on entry. Return the exit code. */
typedef int (*guardian_body)(void *arg, int lifeline);

/* Fork the agent and watch over it. The signals of `stop` end the job besides those that always do. Returns twice: in
 * the agent with the result of `body`, in the guardian with the agent's exit code, or 128 + n after signal n ended
 * the agent. 125 when fork fails. Call it before threads exist. At the end the resources of `contain` are removed. */
int guardian_run(guardian_body body, void *arg, signal_set stop, struct contain *contain);

/* The agent's last act when the guardian has died: kill every descendant. Returns an exit code. */
int guardian_is_gone(struct contain *contain);

/* --- signals.c: how guardian and agent wait for signals ------------------------------------------------------- */

/* Block every signal of the table, so that it stays pending until it is read, and return the set. Signals that the
 * user has ignored (nohup, a background job of sh) are not in it and stay ignored. Call it before threads exist. */
void signal_watch_block(sigset_t *watched);

/* Return the sender: fields si_code, si_pid and si_uid of the signal's information. The name is read at once, because
 * the sender may exit at any moment. */
struct signal_sender signal_watch_sender(int code, int pid, unsigned uid);

/* --- node.c: the agent, from its start to its exit code ------------------------------------------------------ */

struct node_job {
    struct plan *plan; /* the store's real port is written into it */
    struct contain *contain;
};

/* A guardian_body. `job` is a struct node_job. */
int node_run(void *job, int lifeline);

#endif
