/* node_children.c -- see node_core.h. Children that have ended are waited for, and the core hears of each.
 *
 * SIGCHLD only sets `reap`; on_more() of node_wishes.c comes here in the loop's next turn, so that all who have ended
 * by then are taken at once. */
#include "node/node_core.h"
#include "report/hints.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

enum { REAPED_PER_TURN = 256, LAST_LINES = 50 };

static int local_rank_of(const struct node *n, pid_t pid)
{
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->pids[i] == pid)
            return i;
    return -1;
}

/* Workers of PyTorch cannot say it by their exit code. It was said before the end, so it is in the pipe. A process group that ends
 * its process by itself does so by abort(). */
static bool has_lost_peer(struct node *n, int local_rank, int status)
{
    struct buf lines = { 0 };
    const bool may = WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) != 0;
    const bool lost = may && tail_lines(output_last_words(n->output, local_rank), LAST_LINES, &lines) > 0 &&
                      hint_is_of_lost_rank(buf_slice(&lines));
    buf_free(&lines);
    return lost;
}

/* Python ends with 1 for an exception that nobody catches. */
static uint64_t import_error_of(struct node *n, int local_rank, int status)
{
    struct buf lines = { 0 };
    uint64_t found = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && n->plan->cli->max_restarts > 0 &&
        tail_lines(output_last_words(n->output, local_rank), LAST_LINES, &lines) > 0)
        found = hint_import_error(buf_slice(&lines));
    buf_free(&lines);
    return found;
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
                                       .unasked = !n->asked[local_rank],
                                       .lost_peer = has_lost_peer(n, local_rank, status),
                                       .import_error = import_error_of(n, local_rank, status) });
    const struct agent_worker *w = agent_worker(n->agent, local_rank);
    if (w->verdict == WORKER_FAILED || w->verdict == WORKER_VICTIM)
        evidence_ended(n->evidence, local_rank, pid, status);
    announce_worker_ended(&n->announce, local_rank, w);
}

/* Workers whom exits knows, in the order of their ends. Returns how many were taken. */
static int take_workers(struct node *n)
{
    int status, taken = 0;
    pid_t pid;
    for (; taken < REAPED_PER_TURN && (pid = exits_next(&n->exits)) > 0; taken++)
        if (waitpid(pid, &status, WNOHANG) == pid)
            child_ended(n, pid, status);
    return taken;
}

/* Orphans that we have adopted, else they would stay as zombies; libuv's own process handles would leave them. And workers
 * whom exits does not know. False when there may be more; `n->alone` is set when no child is left. */
static bool take_others(struct node *n)
{
    int status, taken = 0;
    pid_t pid = 0;
    for (; taken < REAPED_PER_TURN && (pid = waitpid(-1, &status, WNOHANG)) > 0; taken++)
        child_ended(n, pid, status);
    n->alone = taken < REAPED_PER_TURN && pid < 0 && errno == ECHILD;
    return taken < REAPED_PER_TURN;
}

/* SIGCHLD says only that there is at least one. Processes that fork and die for ever may end as fast as we
 * take them, and the loop has other duties, to kill them for one: so there are turns. What follows from a worker's end
 * comes before the orphans, unless it was the last: then it is to be known whether anybody is left. The second look makes
 * exits forget who ended between the two and was taken as one of the others: as long as it names him, the loop is woken. */
void node_reap(struct node *n)
{
    n->reap = true;
    if (take_workers(n) > 0 && node_has_workers(n))
        return;
    n->reap = !take_others(n);
    take_workers(n);
    if (n->alone)
        node_feed(n, (struct agent_event){ .type = AGENT_ALONE });
}
