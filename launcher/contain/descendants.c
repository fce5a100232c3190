/* descendants.c -- see descendants.h.
 *
 * The tree is read from /proc/PID/task/TID/children, or where the kernel lacks that file from the
 * parent field of every /proc/PID/stat. Pids are reused, so a number that was read a moment ago
 * proves nothing:
 *   - our own children cannot vanish, their pid is held until we wait for them, and we do not wait in between;
 *   - a deeper process is opened as a pidfd, then its parent field is read, then the parent (held by its own pidfd, or our
 *     child) is checked to be still there. Only then the pidfd is signalled. On a kernel without pidfds the
 *     start time replaces it.
 * Both lists may miss a process that is being born, so killing repeats until wait returns that no child
 * is left. */
#include "contain/descendants.h"

#include "base/clock.h"
#include "contain/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NAMED_AT_MOST = 8, NAME_SHOWN = 64, PID_MOST = 4 * 1024 * 1024 /* the kernel's own limit */ };

enum way { UNKNOWN, BY_FILE, BY_SCAN, BY_WAIT };

bool descendants_adopt(void)
{
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

/* --- reading the tree ----------------------------------------------------------------------------------- */

/* Return the parent of `pid`, 0 when it is gone. */
static pid_t parent_of(pid_t pid)
{
    struct proc_stat stat;
    return procfs_stat(pid, &stat) ? stat.parent : 0;
}

static void add_pid(struct buf *pids, pid_t pid)
{
    buf_append(pids, &pid, sizeof(pid)); /* out of memory: skip this one, the next scan finds it */
}

/* False when this kernel has no `children` files. */
static bool children_by_file(pid_t of, struct buf *pids)
{
    char path[512];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)of);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return errno == ENOENT; /* the process is gone and has no children */
    bool supported = true;
    for (struct dirent *e; supported && (e = readdir(tasks)) != NULL;) {
        struct buf text = { 0 };
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/children", (int)of, e->d_name);
        if (procfs_read(path, &text)) {
            char *at = (char *)text.data, *end;
            for (long pid; (pid = strtol(at, &end, 10)) > 0; at = end)
                add_pid(pids, (pid_t)pid);
        } else if (of == getpid()) {
            supported = false; /* our own threads do not end during the scan */
        }
        buf_free(&text);
    }
    closedir(tasks);
    return supported;
}

/* Slower by the number of all processes, and not atomic; repeating it compensates for both. */
static void children_by_scan(pid_t of, struct buf *pids)
{
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return;
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && parent_of(pid) == of)
            add_pid(pids, pid);
    }
    closedir(proc);
}

static size_t children_up_to(pid_t most, struct buf *pids)
{
    for (pid_t pid = 1; pid <= most; pid++) {
        siginfo_t unused;
        if (waitid(P_PID, (id_t)pid, &unused, WEXITED | WNOHANG | WNOWAIT) == 0)
            add_pid(pids, pid);
    }
    return pids->len;
}

/* Where /proc is not mounted, or belongs to another PID namespace, wait() still accepts the numbers of our children.
 * So try every number; only our own children answer. Once numbers have wrapped around, this takes a second. */
static void children_by_wait(struct buf *pids)
{
    siginfo_t unused;
    const bool none = waitid(P_ALL, 0, &unused, WEXITED | WNOHANG | WNOWAIT) != 0;
    if (!none && children_up_to(pids_newest(), pids) == 0)
        children_up_to(PID_MOST, pids);
}

/* Constant for the life of a kernel. */
static enum way way_to_children(void)
{
    static enum way way;
    if (way == UNKNOWN && !procfs_is_ours())
        way = BY_WAIT;
    if (way == UNKNOWN) {
        struct buf probe = { 0 };
        way = children_by_file(getpid(), &probe) ? BY_FILE : BY_SCAN;
        buf_free(&probe);
    }
    return way;
}

/* Children of `of` as an array of pid_t in `pids`. */
static size_t children_of(pid_t of, struct buf *pids)
{
    const enum way way = way_to_children();
    if (way == BY_FILE)
        children_by_file(of, pids);
    else if (way == BY_SCAN)
        children_by_scan(of, pids);
    else if (of == getpid())
        children_by_wait(pids);
    return pids->len / sizeof(pid_t);
}

/* List our own children, zombies too, in `pids`, which must be empty; return how many. The numbers stay reserved
 * until we wait for them. The caller frees `pids`. */
static size_t descendants_list(struct buf *pids)
{
    return children_of(getpid(), pids);
}

/* The list grows while it is walked. */
size_t descendants_below(pid_t pid, size_t max, struct buf *pids)
{
    const size_t before = pids->len / sizeof(pid_t);
    size_t n = children_of(pid, pids);
    for (size_t i = before; i < n && n - before < max; i++)
        n = children_of(descendants_at(pids, i), pids);
    if (n - before > max)
        n = before + max;
    pids->len = n * sizeof(pid_t);
    return n - before;
}

/* --- signalling ----------------------------------------------------------------------------------------- */

/* A process that may be signalled. */
struct target {
    pid_t pid;
    int pidfd;            /* -1: our child, or this kernel has no pidfds */
    uint64_t start_ticks; /* without a pidfd, for all except our children; 0 = none */
};

/* Identify it by number and start time where pidfds are missing: the process would have to end, and its number be
 * reused, within microseconds. */
static bool signal_target(const struct target *t, int signal)
{
    struct proc_stat stat;
    if (t->pidfd >= 0)
        return pids_signal(t->pidfd, signal);
    if (t->start_ticks != 0 && (!procfs_stat(t->pid, &stat) || stat.start_ticks != t->start_ticks))
        return false;
    return kill(t->pid, signal) == 0;
}

/* Hold on to `pid`; false when it is gone. A pidfd that cannot be signalled is of no use. */
static bool open_target(pid_t pid, struct target *t)
{
    struct proc_stat stat;
    *t = (struct target){ .pid = pid, .pidfd = pids_hold(pid) };
    if (t->pidfd >= 0 && !pids_signal(t->pidfd, 0) && (errno == ENOSYS || errno == EPERM)) {
        close(t->pidfd);
        t->pidfd = -1;
    }
    if (t->pidfd >= 0)
        return true;
    if (!procfs_stat(pid, &stat))
        return false;
    t->start_ticks = stat.start_ticks;
    return true;
}

static void close_target(const struct target *t)
{
    if (t->pidfd >= 0)
        close(t->pidfd);
}

/* True if the process that was read as a child of `parent`, and has been opened since, is really our descendant. */
static bool is_ours(pid_t pid, const struct target *parent)
{
    pid_t now = parent_of(pid);
    if (now == getpid())
        return true; /* its parent has died, and we have adopted it */
    return now == parent->pid && signal_target(parent, 0);
}

/* Signal `t` and all below it. Read its children before the signal, which may end it, and signal them after it, so
 * that a killed parent cannot create more of them in between. */
static void signal_tree(const struct target *t, int signal)
{
    struct buf pids = { 0 };
    size_t n = children_of(t->pid, &pids);
    signal_target(t, signal);
    for (size_t i = 0; i < n; i++) {
        struct target child;
        if (!open_target(descendants_at(&pids, i), &child))
            continue;
        if (is_ours(child.pid, t))
            signal_tree(&child, signal);
        close_target(&child);
    }
    buf_free(&pids);
}

void descendants_signal(int signal)
{
    struct buf pids = { 0 };
    size_t n = children_of(getpid(), &pids);
    for (size_t i = 0; i < n; i++)
        signal_tree(&(struct target){ .pid = descendants_at(&pids, i), .pidfd = -1 }, signal);
    buf_free(&pids);
}

/* --- texts -------------------------------------------------------------------------------------------------- */

void descendants_names(struct buf *out)
{
    struct buf pids = { 0 };
    size_t n = children_of(getpid(), &pids);
    for (size_t i = 0; i < n && i < NAMED_AT_MOST; i++) {
        pid_t pid = descendants_at(&pids, i);
        char name[NAME_SHOWN];
        procfs_line(pid, "comm", name, sizeof(name));
        buf_printf(out, "%s%d (%s)", i > 0 ? ", " : "", (int)pid, name);
    }
    buf_free(&pids);
}

/* --- descendants kill ------------------------------------------------------------------------------------- */

/* Kill all; see descendants.h.
 *
 * The hard case is a chain: a process forks and exits, its child does the same, and so on without end. Each list of
 * processes is outdated when it is read. But a chain does not grow, so it ends when one link is hit before it forks.
 * Hence each round is as short as possible and repeats at once while processes exit:
 *
 *   - only our own children are signalled. A link's parent is dead, so it is our child. A deeper process becomes our
 *     child when those above it are dead, a round later. And our child cannot be another process: no pidfd is needed.
 * - their priority is lowered, if permitted, because 64 busy chains leave a launcher very little of the processor.
 * Only if a round has changed nothing, deeper processes are searched, for those below a process that cannot be
 * killed. */

enum { RESCAN_MS = 5, REAPED_PER_ROUND = 256 };

/* Reap some exited processes; chains may exit as fast as we reap them. Return how many; `left` is false when no child
 * is left. */
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

/* None has exited: they are about to, or hang. No event reports an orphan's new parent, so check again soon. */
static void wait_a_moment(const sigset_t *child_ended)
{
    descendants_signal(SIGKILL);
    sigtimedwait(child_ended, NULL, &(struct timespec){ .tv_nsec = RESCAN_MS * 1000000 });
}

void killer_priority_raise(struct killer_priority *before)
{
    struct rlimit rttime;
    *before =
        (struct killer_priority){ .policy = sched_getscheduler(0), .slack_ns = prctl(PR_GET_TIMERSLACK) };
    const int policy = before->policy;
    if ((policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE) &&
        getrlimit(RLIMIT_RTTIME, &rttime) == 0 && rttime.rlim_cur == RLIM_INFINITY)
        before->raised = sched_setscheduler(0, SCHED_RR, &(struct sched_param){ .sched_priority = 1 }) == 0;
}

/* The kernel keeps the niceness, but resets the slack to the value at the start of the process. */
void killer_priority_restore(const struct killer_priority *before)
{
    if (!before->raised)
        return;
    sched_setscheduler(0, before->policy, &(struct sched_param){ 0 });
    prctl(PR_SET_TIMERSLACK, (unsigned long)before->slack_ns);
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
    struct killer_priority priority;
    killer_priority_raise(&priority);
    const bool gone = kill_until(clock_ms() + limit_ms, &child_ended);
    killer_priority_restore(&priority);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return gone;
}

/* --- hanging processes ------------------------------------------------------------------------------------ */

/* Read all of it from /proc at the very end. The wait channel needs a tracer's rights, and kernels without symbols
 * show "0"; then only the state is reported. */

/* A worker that ended is no longer in `pids`, so a number found there is the worker itself. */
static int rank_of(pid_t pid, const pid_t *pids, const struct plan *plan)
{
    for (int i = 0; i < plan->nproc; i++)
        if (pids[i] == pid)
            return plan->workers[i].rank;
    return -1;
}

/* Read the state of `pid`, unless it is dead and only waits to be reaped. */
static bool stuck_describe(struct stuck *s, pid_t pid, int rank)
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

/* Only of our children, but any of them may be a zombie: examine all until enough are found. */
size_t stuck_find(struct stuck found[STUCK_MAX], const pid_t *pids, const struct plan *plan)
{
    struct buf children = { 0 };
    const size_t n = descendants_list(&children);
    size_t stuck = 0;
    for (size_t i = 0; i < n && stuck < STUCK_MAX; i++) {
        const pid_t pid = descendants_at(&children, i);
        stuck += stuck_describe(&found[stuck], pid, rank_of(pid, pids, plan));
    }
    buf_free(&children);
    return stuck;
}
