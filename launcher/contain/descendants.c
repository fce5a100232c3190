/* descendants.c -- see descendants.h. The tree is read from /proc/PID/task/TID/children, or from the parent field of
 * every /proc/PID/stat if the kernel lacks that file. A pid that was read a moment ago may name another process now,
 * because pids are reused (see struct target). A scan may miss a process that is being created, so killing repeats
 * until no child is left. */
#include "contain/descendants.h"

#include "base/clock.h"
#include "contain/procfs.h"
#include "contain/threads.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    NAMED_AT_MOST = 8,
    NAME_SHOWN = 64,
    WRAPPERS_MAX = 8,          /* maximum depth of nested scripts */
    PID_MOST = 4 * 1024 * 1024 /* the largest pid_max that the kernel supports */
};

/* How to find the children of a process: by the `children` files, by a scan of all of /proc, or by waitid without
 * /proc. */
enum way { UNKNOWN, BY_FILE, BY_SCAN, BY_WAIT };

bool descendants_adopt(void)
{
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

/* --- reading the tree ----------------------------------------------------------------------------------- */

/* Return the parent of `pid`, or 0 if `pid` has ended. */
static pid_t parent_of(pid_t pid)
{
    struct proc_stat stat;
    return procfs_stat(pid, &stat) ? stat.parent : 0;
}

/* The children that this process had before the job began and has not reaped, as an array of pid_t. */
static struct buf spared;

static bool is_spared(pid_t pid)
{
    for (size_t i = 0; i < spared.len / sizeof(pid_t); i++)
        if (descendants_at(&spared, i) == pid)
            return true;
    return false;
}

/* Remove a reaped child from `spared`, because a process of the job may get the same pid. */
static void spared_remove(pid_t pid)
{
    pid_t *pids = (pid_t *)(void *)spared.data;
    const size_t n = spared.len / sizeof(pid_t);
    for (size_t i = 0; i < n; i++) {
        if (pids[i] != pid)
            continue;
        pids[i] = pids[n - 1];
        spared.len -= sizeof(pid_t);
        return;
    }
}

static void add_pid(struct buf *pids, pid_t pid)
{
    if (!is_spared(pid))
        buf_append(pids, &pid, sizeof(pid)); /* if memory is short, the next scan finds this child */
}

/* Append the children of thread `tid` of process `of`. Return false if `of` is this process and the file `children` of
 * the thread is missing, because the kernel then has no such files. */
static bool children_of_thread(pid_t of, pid_t tid, struct buf *pids)
{
    char path[64];
    struct buf text = { 0 };
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)of, (int)tid);
    const bool is_there = procfs_read(path, &text);
    char *at = (char *)text.data, *end;
    for (long pid; is_there && (pid = strtol(at, &end, 10)) > 0; at = end)
        add_pid(pids, (pid_t)pid);
    buf_free(&text);
    /* If another process has just ended, its file is missing even though the kernel has such files. */
    return is_there || of != getpid();
}

/* Append the pids of the children of process `of`. Read the pids from the files /proc/PID/task/TID/children. Return
 * false if this kernel has no such files. The link count of the directory `task` is 2 + the number of threads. So if a
 * process has only one thread, the directory need not be listed. This test saves time, because ddprun reads the
 * children of all workers before it stops the workers. */
static bool children_by_file(pid_t of, struct buf *pids)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)of);
    if (stat(path, &st) == 0 && st.st_nlink == 2 + 1)
        return children_of_thread(of, of, pids);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return errno == ENOENT; /* ENOENT: the process has ended, so it has no children */
    bool supported = true;
    for (struct dirent *e; supported && (e = readdir(tasks)) != NULL;)
        if (e->d_name[0] != '.')
            supported = children_of_thread(of, (pid_t)strtol(e->d_name, NULL, 10), pids);
    closedir(tasks);
    return supported;
}

/* Append the children of `of` by reading every process of the machine. The scan may miss new children, so the caller
 * repeats the scan. */
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

/* Append all pids up to `most` that belong to children of this process. Return the length of `pids` in bytes. */
static size_t children_up_to(pid_t most, struct buf *pids)
{
    for (pid_t pid = 1; pid <= most; pid++) {
        siginfo_t unused;
        if (waitid(P_PID, (id_t)pid, &unused, WEXITED | WNOHANG | WNOWAIT) == 0)
            add_pid(pids, pid);
    }
    return pids->len;
}

/* Find the children of this process by calling waitid for every pid, because waitid fails for a pid that is not a
 * child. Use this search only if /proc is missing or belongs to another PID namespace. The search takes up to a
 * second. */
static void children_by_wait(struct buf *pids)
{
    siginfo_t unused;
    const bool none = waitid(P_ALL, 0, &unused, WEXITED | WNOHANG | WNOWAIT) != 0;
    if (!none && children_up_to(pids_newest(), pids) == 0)
        children_up_to(PID_MOST, pids);
}

/* Return how this process finds children. The result never changes during the life of this process. */
static enum way way_to_children(void)
{
    static enum way way;
    if (way == UNKNOWN && !procfs_is_own())
        way = BY_WAIT;
    if (way == UNKNOWN) {
        struct buf probe = { 0 };
        way = children_by_file(getpid(), &probe) ? BY_FILE : BY_SCAN;
        buf_free(&probe);
    }
    return way;
}

/* Append the children of `of`, including zombies, to `pids`, an array of pid_t. Return the new length of the array. If
 * `of` is this process, the pids cannot be reused before this process reaps the children. */
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

/* Read /proc only if a child exists. Every start of ddprun calls this function, and usually there is no child, so this
 * test saves time. */
void descendants_spare(void)
{
    siginfo_t unused;
    struct buf present = { 0 };
    buf_free(&spared);
    if (waitid(P_ALL, 0, &unused, WEXITED | WNOHANG | WNOWAIT) == 0)
        children_of(getpid(), &present);
    spared = present;
}

/* Append the descendants of `pid`. The loop appends the children of each process, and later visits these children. */
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

/* Return the child of `parent` if `parent` has exactly one child. If exactly one of several children is a Python
 * process, return this child. Otherwise return 0. */
static pid_t only_child(pid_t parent)
{
    struct buf pids = { 0 };
    const size_t n = children_of(parent, &pids);
    pid_t found = n == 1 ? descendants_at(&pids, 0) : 0;
    size_t n_python = 0;
    for (size_t i = 0; i < n && n > 1; i++) {
        const pid_t pid = descendants_at(&pids, i);
        if (threads_is_python(pid, false) && n_python++ == 0)
            found = pid;
    }
    buf_free(&pids);
    return n_python > 1 ? 0 : found;
}

/* Return true if the main thread of a process waits for the end of a child process. */
static bool waits_for_child(pid_t pid)
{
    char where[64];
    procfs_line(pid, "wchan", where, sizeof(where));
    return strcmp(where, "do_wait") == 0;
}

pid_t descendants_program(pid_t worker)
{
    pid_t at = worker;
    for (int depth = 0; depth < WRAPPERS_MAX && at != 0; depth++) {
        if (threads_is_python(at, false))
            return at;
        at = way_to_children() == BY_FILE && waits_for_child(at) ? only_child(at) : 0;
    }
    return worker;
}

/* --- signalling ----------------------------------------------------------------------------------------- */

/* A process to signal. A reused pid cannot redirect the signal:
 *
 *   - The pid of a child of ddprun is not reused before ddprun reaps the child. ddprun reaps no child between reading
 *     the tree and signalling.
 *   - For a deeper process, ddprun opens a pidfd, then checks the parent of the process again, and then signals the
 *     pidfd. On a kernel without pidfds, the start time identifies the process. */
struct target {
    pid_t pid;
    int pidfd;            /* -1 for a child of this process, and on a kernel without pidfds */
    uint64_t start_ticks; /* start time, set if there is no pidfd; 0 for a child of this process */
};

/* Signal a process. If the target has no pidfd, first check that pid and start time still match. */
static bool signal_target(const struct target *t, int signal)
{
    struct proc_stat stat;
    if (t->pidfd >= 0)
        return pids_signal(t->pidfd, signal);
    if (t->start_ticks != 0 && (!procfs_stat(t->pid, &stat) || stat.start_ticks != t->start_ticks))
        return false;
    return kill(t->pid, signal) == 0;
}

/* Open `pid` as a target. Return false if the process has ended. Use no pidfd if pidfd_send_signal is forbidden. */
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

/* Return true if process `pid` is still a child of `parent`, or was adopted by this process. Otherwise the child of
 * `parent` has ended, and an unrelated process may have got the same pid before open_target() opened the pidfd. */
static bool is_in_job(pid_t pid, const struct target *parent)
{
    pid_t now = parent_of(pid);
    if (now == getpid())
        return true; /* `parent` has died, and its child became a child of ddprun */
    return now == parent->pid && signal_target(parent, 0);
}

/* Signal `t` and all processes below `t`. Read the children of `t` before the signal, which may end `t`. Signal the
 * children afterwards, because a running parent could create more children. */
static void signal_tree(const struct target *t, int signal)
{
    struct buf pids = { 0 };
    size_t n = children_of(t->pid, &pids);
    signal_target(t, signal);
    for (size_t i = 0; i < n; i++) {
        struct target child;
        if (!open_target(descendants_at(&pids, i), &child))
            continue;
        if (is_in_job(child.pid, t))
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

/* How descendants_kill_all() works.
 *
 * The hard case is a chain of processes that each fork and exit. A list of processes is outdated as soon as it is read.
 * But a chain has only one live process at a time, and ends if this process is killed before it forks. So ddprun kills
 * in short rounds, without a pause between the rounds:
 *
 *   - A round signals only the children of ddprun. A child needs no pidfd. The live process of a chain is such a child,
 *     because its parent has exited and ddprun adopts orphans.
 *   - ddprun raises its own priority while it kills, if the kernel permits a higher priority. Without a higher
 *     priority, 64 busy chains leave almost no processor time for ddprun.
 *   - If a round has changed nothing, all descendants are signalled, because an unkillable child may have children. */

enum { RESCAN_MS = 5, REAPED_PER_ROUND = 256 };

/* Return true if this process still has a child that is not spared (descendants_spare). The caller has checked that a
 * child exists. */
static bool has_job_child(void)
{
    struct buf pids = { 0 };
    const bool found = spared.len == 0 || children_of(getpid(), &pids) > 0;
    buf_free(&pids);
    return found;
}

/* Reap at most REAPED_PER_ROUND exited processes and return their number. Set *left to false if no child is left.
 * Without the limit, processes that fork and exit quickly would keep ddprun in this function. */
static int reap(bool *left)
{
    int count = 0;
    pid_t pid = 0;
    while (count < REAPED_PER_ROUND && (pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        spared_remove(pid);
        count++;
    }
    *left = pid >= 0 && has_job_child();
    return count;
}

/* Kill the direct children by pid. No pidfd is needed, because a child's pid stays reserved until this process reaps
 * the child. */
static void kill_children(void)
{
    struct buf pids = { 0 };
    const size_t n = children_of(getpid(), &pids);
    for (size_t i = 0; i < n; i++)
        kill(descendants_at(&pids, i), SIGKILL);
    buf_free(&pids);
}

/* Kill all descendants, not only the children. Then wait until a child exits. Wait at most RESCAN_MS, because the
 * kernel sends no SIGCHLD when this process adopts an orphan. */
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

/* Restore scheduling policy and timer slack. The slack must be restored, because a change of the policy resets the
 * slack. */
void killer_priority_restore(const struct killer_priority *before)
{
    if (!before->raised)
        return;
    sched_setscheduler(0, before->policy, &(struct sched_param){ 0 });
    prctl(PR_SET_TIMERSLACK, (unsigned long)before->slack_ns);
}

/* Repeat rounds of killing until no child is left or `end_ms` is reached. Return true if no child is left. */
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
    /* sigtimedwait requires a blocked SIGCHLD */
    pthread_sigmask(SIG_BLOCK, &child_ended, &before);
    struct killer_priority priority;
    killer_priority_raise(&priority);
    const bool gone = kill_until(clock_ms() + limit_ms, &child_ended);
    killer_priority_restore(&priority);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return gone;
}

/* --- hanging processes ------------------------------------------------------------------------------------ */

/* Processes that survive SIGKILL at the end of a job, with the kernel function in which each process hangs. /proc shows
 * this function only if ddprun may trace the process, and if the kernel has a table of its symbols. */

/* Return the rank of the running worker with this pid, or -1. */
static int rank_of(pid_t pid, const pid_t *pids, const struct plan *plan)
{
    for (int i = 0; i < plan->nproc; i++)
        if (pids[i] == pid)
            return plan->workers[i].rank;
    return -1;
}

/* Describe process `pid` in *s. Return false if the process is dead and only waits to be reaped. */
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

/* List only children of this process. This process is the subreaper of its deeper descendants, so they become its
 * children when their parents have ended. Skip zombies. */
size_t stuck_find(struct stuck found[STUCK_MAX], const pid_t *pids, const struct plan *plan)
{
    struct buf children = { 0 };
    const size_t n = children_of(getpid(), &children);
    size_t stuck = 0;
    for (size_t i = 0; i < n && stuck < STUCK_MAX; i++) {
        const pid_t pid = descendants_at(&children, i);
        stuck += stuck_describe(&found[stuck], pid, rank_of(pid, pids, plan));
    }
    buf_free(&children);
    return stuck;
}
