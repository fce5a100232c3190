/* descendants_kill.c -- to the last one; see descendants.h.
 *
 * What makes it hard are chains: a process that forks and dies, whose child does the same, and so on for ever. Each list of
 * processes is old when it is read. But a chain does not grow, so it is over when one link is hit between its birth and
 * its fork. Hence the round is as short as can be, and comes again at once as long as somebody ends:
 *   - only our own children are signalled. A link's parent is dead, so it is ours. Whoever is deeper becomes ours when
 *     those above him are dead, a round later. And a child of ours cannot be anybody else: no pidfd is needed.
 *   - the processor is taken from them, where we have the right to: 64 busy chains leave a launcher very little of it.
 * Only when a round has changed nothing we look deeper, for those who sit below somebody that cannot be killed. */
#include "contain/descendants.h"

#include "contain/hurry.h"

#include "base/clock.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { RESCAN_MS = 5, REAPED_PER_ROUND = 256 };

/* Take some of what has ended; chains may end as fast as we take them. Returns how many there were; `left`
 * is false when there is no child any more. */
static int reap(bool *left)
{
    int count = 0;
    pid_t pid = 0;
    while (count < REAPED_PER_ROUND && (pid = waitpid(-1, NULL, WNOHANG)) > 0)
        count++;
    *left = pid >= 0;
    return count;
}

static void kill_children(void)
{
    struct buf pids = { 0 };
    const size_t n = descendants_list(&pids);
    for (size_t i = 0; i < n; i++)
        kill(descendants_at(&pids, i), SIGKILL);
    buf_free(&pids);
}

/* Nobody has ended: they are on the way, or hang. An orphan that changes hands tells us nothing, so look again soon. */
static void wait_a_moment(const sigset_t *child_ended)
{
    descendants_signal(SIGKILL);
    sigtimedwait(child_ended, NULL, &(struct timespec){ .tv_nsec = RESCAN_MS * 1000000 });
}

static bool kill_until(uint64_t end_ms, const sigset_t *child_ended)
{
    bool left = true;
    while (left && clock_ms() < end_ms) {
        kill_children();
        if (reap(&left) == 0 && left)
            wait_a_moment(child_ended);
    }
    return !left;
}

/* Mostly there is nobody, and then nothing is to be hurried. */
bool descendants_kill_all(uint64_t limit_ms)
{
    sigset_t child_ended, before;
    bool left;
    reap(&left);
    if (!left)
        return true;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    /* Blocked, so that sigtimedwait sees it and no handler takes it away. */
    pthread_sigmask(SIG_BLOCK, &child_ended, &before);
    struct hurry hurry = { 0 };
    hurry_begin(&hurry);
    const bool gone = kill_until(clock_ms() + limit_ms, &child_ended);
    hurry_end(&hurry);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return gone;
}
