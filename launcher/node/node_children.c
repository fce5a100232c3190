/* node_children.c -- see node_core.h. Children that have ended are waited for, and the core hears of each.
 *
 * SIGCHLD only sets `reap`; on_more() of node_wishes.c comes here in the loop's next turn, so that all who have ended
 * by then are taken at once. */
#include "node/node_core.h"

#include <errno.h>
#include <sys/wait.h>

enum { REAPED_PER_TURN = 256 };

static int local_rank_of(const struct node *n, pid_t pid)
{
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->pids[i] == pid)
            return i;
    return -1;
}

/* A child was waited for: a worker, or an orphan that was adopted. */
static void child_ended(struct node *n, pid_t pid, int status)
{
    int local_rank = local_rank_of(n, pid);
    if (local_rank < 0)
        return;
    n->pids[local_rank] = 0;
    input_ended(n->input, local_rank);
    node_feed(n, (struct agent_event){ .type = AGENT_EXITED,
                                       .local_rank = local_rank,
                                       .pid = pid,
                                       .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                       .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                                       .unasked = !n->asked[local_rank] });
    const struct agent_worker *w = agent_worker(n->agent, local_rank);
    if (w->verdict == WORKER_FAILED)
        evidence_ended(n->evidence, local_rank, pid, status);
    announce_worker_ended(&n->announce, local_rank, w);
}

/* Whom exits knows comes first, in the order of their ends. Returns how many were taken, at most `most`;
 * `n->alone` is set when no child is left. Orphans that we have adopted are taken like workers, else they
 * would stay as zombies; libuv's own process handles would leave them. */
static int reap_some(struct node *n, int most)
{
    int status, taken = 0;
    pid_t pid = 0;
    for (; taken < most && (pid = exits_next(&n->exits)) > 0; taken++)
        if (waitpid(pid, &status, WNOHANG) == pid)
            child_ended(n, pid, status);
    for (; taken < most && (pid = waitpid(-1, &status, WNOHANG)) > 0; taken++)
        child_ended(n, pid, status);
    n->alone = taken < most && pid < 0 && errno == ECHILD;
    return taken;
}

/* SIGCHLD says only that there is at least one. Processes that fork and die for ever may end as fast as we
 * take them, and the loop has other duties, to kill them for one: so there are turns. */
void node_reap(struct node *n)
{
    n->reap = reap_some(n, REAPED_PER_TURN) == REAPED_PER_TURN;
    if (n->alone)
        node_feed(n, (struct agent_event){ .type = AGENT_ALONE });
}
