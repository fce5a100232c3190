/* node_timers.c -- see node_core.h. A worker's timer of torchrun's file timer has run out: it gets the signal that it
 * asked for, and its end is a failure like any other, with the timer as its cause.
 *
 * torchrun kills itself along with the worker, which leaves the other workers alone and nobody to report; this process
 * lives on and does both. Anybody may write to the FIFO, so only processes in a worker's own group are reached: nobody else's
 * can have its number while the worker has not been waited for. */
#include "node/node_core.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* Of the worker that `pid` is, or belongs to; -1 = of none. */
static int local_rank_of_group(const struct node *n, pid_t pid)
{
    const pid_t group = getpgid(pid);
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->pids[i] != 0 && n->pids[i] == group)
            return i;
    return -1;
}

/* "rank 1 (pid 71): its timer "step" has run out; it gets signal 9" */
static void say_timer(struct node *n, const struct timer_row *row, int local_rank)
{
    char words[NOTE_MAX], whose[64] = "a process that is none of this job's";
    if (local_rank >= 0)
        snprintf(whose, sizeof(whose), "rank %d", node_rank(n, local_rank));
    snprintf(words, sizeof(words), "%s (pid %d): its timer \"%s\" has run out; %s %d", whose, row->pid,
             row->scope,
             local_rank >= 0 && row->signal > 0 ? "it gets signal" : "nothing is done, its signal was",
             row->signal);
    output_note(n->output, "%s", words);
}

static void on_expired(void *user, const struct timer_row *row)
{
    struct node *n = user;
    const int local_rank = local_rank_of_group(n, row->pid);
    if (local_rank < 0 && getpgid(row->pid) < 0) /* it has ended without releasing it */
        return;
    say_timer(n, row, local_rank);
    if (local_rank < 0 || row->signal <= 0)
        return;
    evidence_timer(n->evidence, local_rank, row->scope);
    kill(row->pid, row->signal);
}

static void on_note(void *user, const char *words)
{
    struct node *n = user;
    output_note(n->output, "%s", words);
}

ddp_status node_open_timers(struct node *n, struct ddp_err *err)
{
    const struct file_timer_calls calls = { .expired = on_expired, .note = on_note, .user = n };
    if (n->plan->timer_file == NULL)
        return DDP_OK;
    return file_timer_open(&n->loop, n->plan->timer_file, &calls, &n->file_timer, err);
}
