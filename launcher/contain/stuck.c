/* stuck.c -- see stuck.h.
 *
 * All of it is read from /proc at the very end. The wait channel needs the rights of a tracer, and kernels without
 * symbols show "0"; then the state alone must do. */
#include "contain/stuck.h"

#include "contain/descendants.h"
#include "contain/procfs.h"

#include <string.h>

/* A worker that ended is not in `pids` any more, so a number found there is the worker itself. */
static int rank_of(pid_t pid, const pid_t *pids, const struct plan *plan)
{
    for (int i = 0; i < plan->nproc; i++)
        if (pids[i] == pid)
            return plan->workers[i].rank;
    return -1;
}

/* What is known of `pid`, unless it is dead and only waits to be taken. */
static bool describe(struct stuck *s, pid_t pid, int rank)
{
    struct proc_stat stat;
    const bool seen = procfs_stat(pid, &stat);
    *s = (struct stuck){ .pid = pid, .rank = rank, .state = seen ? stat.state : '?' };
    procfs_line(pid, "comm", s->name, sizeof(s->name));
    procfs_line(pid, "wchan", s->where, sizeof(s->where));
    if (strcmp(s->where, "0") == 0)
        s->where[0] = '\0';
    return !seen || !proc_stat_is_dead(&stat);
}

/* Of our children only, but any of them may be a zombie: all are looked at until enough are found. */
size_t stuck_find(struct stuck found[STUCK_MAX], const pid_t *pids, const struct plan *plan)
{
    struct buf children = { 0 };
    const size_t n = descendants_list(&children);
    size_t stuck = 0;
    for (size_t i = 0; i < n && stuck < STUCK_MAX; i++) {
        const pid_t pid = descendants_at(&children, i);
        stuck += describe(&found[stuck], pid, rank_of(pid, pids, plan));
    }
    buf_free(&children);
    return stuck;
}
