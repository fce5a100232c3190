/* descendants.c -- see descendants.h.
 *
 * The tree is read from /proc/PID/task/TID/children, or where the kernel lacks that file from the
 * parent field of every /proc/PID/stat. Pids are reused, so a number that was read a moment ago
 * proves nothing:
 *   - our own children cannot vanish, their pid is held until we wait for them, and we do not wait in between;
 *   - anyone deeper is opened as a pidfd, then its parent field is read, then the parent (held by its own pidfd, or a
 *     child of ours) is checked to be still there. Only then the pidfd is signalled.
 * Both lists may miss someone who is being born. That is why killing (descendants_kill.c) repeats until wait says
 * that nobody is left. */
#include "descendants.h"

#include "procfs.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMED_AT_MOST = 8, PID_MOST = 4 * 1024 * 1024 /* the kernel's own limit */ };

enum way { UNKNOWN, BY_FILE, BY_SCAN, BY_WAIT };

bool descendants_adopt(void)
{
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

/* --- reading the tree ----------------------------------------------------------------------------------- */

/* Parent of `pid`, 0 when it is gone. */
static pid_t parent_of(pid_t pid)
{
    struct proc_stat stat;
    return procfs_stat(pid, &stat) ? stat.parent : 0;
}

static void add_pid(struct buf *pids, pid_t pid)
{
    buf_append(pids, &pid, sizeof(pid)); /* short of memory: one less now, found by the next scan */
}

/* False when this kernel has no `children` files. */
static bool children_by_file(pid_t of, struct buf *pids)
{
    char path[512];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)of);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return errno == ENOENT; /* the process is gone, and has no children */
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
            supported = false; /* our own threads do not vanish while we look */
        }
        buf_free(&text);
    }
    closedir(tasks);
    return supported;
}

/* Slower by the number of all processes, and not atomic; both is made good by asking again. */
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

/* Where /proc is not mounted, wait() still knows whose child a number is, so every number that there may be is tried: a
 * second of work, and it tells of our own children only. */
static void children_by_wait(struct buf *pids)
{
    for (pid_t pid = 1; pid <= PID_MOST; pid++) {
        siginfo_t unused;
        if (waitid(P_PID, (id_t)pid, &unused, WEXITED | WNOHANG | WNOWAIT) == 0)
            add_pid(pids, pid);
    }
}

/* The same for the life of a kernel. */
static enum way way_to_children(void)
{
    static enum way way;
    if (way == UNKNOWN && access("/proc/self/stat", R_OK) != 0)
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

size_t descendants_list(struct buf *pids)
{
    return children_of(getpid(), pids);
}

/* --- signalling ----------------------------------------------------------------------------------------- */

static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static bool signal_pidfd(int pidfd, int signal)
{
    return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) == 0;
}

/* Is the process behind a number that was read as a child of `parent`, and has been opened since,
 * really ours? `parent_fd` is the parent's pidfd, -1 when the parent is a child of this process. */
static bool is_ours(pid_t pid, pid_t parent, int parent_fd)
{
    pid_t now = parent_of(pid);
    if (now == getpid())
        return true; /* its parent has died, we have adopted it */
    return now == parent && (parent_fd < 0 || signal_pidfd(parent_fd, 0));
}

/* Signal `pid` (by its pidfd, or -1 for our own child) and all below it. Its children are read
 * before the signal can take the list away; they are signalled after it, so it cannot make more of
 * them meanwhile when the signal kills. */
static void signal_tree(pid_t pid, int pidfd, int signal)
{
    struct buf pids = { 0 };
    size_t n = children_of(pid, &pids);
    if (pidfd >= 0)
        signal_pidfd(pidfd, signal);
    else
        kill(pid, signal);
    for (size_t i = 0; i < n; i++) {
        pid_t child = ((const pid_t *)(const void *)pids.data)[i];
        int child_fd = open_pidfd(child);
        if (child_fd >= 0 && is_ours(child, pid, pidfd))
            signal_tree(child, child_fd, signal);
        if (child_fd >= 0)
            close(child_fd);
    }
    buf_free(&pids);
}

void descendants_signal(int signal)
{
    struct buf pids = { 0 };
    size_t n = children_of(getpid(), &pids);
    for (size_t i = 0; i < n; i++)
        signal_tree(((const pid_t *)(const void *)pids.data)[i], -1, signal);
    buf_free(&pids);
}

size_t descendants_children(pid_t *out, size_t max)
{
    struct buf pids = { 0 };
    size_t n = children_of(getpid(), &pids);
    n = n < max ? n : max;
    if (n > 0)
        memcpy(out, pids.data, n * sizeof(*out));
    buf_free(&pids);
    return n;
}

/* --- words -------------------------------------------------------------------------------------------------- */

void descendants_names(struct buf *out)
{
    struct buf pids = { 0 };
    size_t n = children_of(getpid(), &pids);
    for (size_t i = 0; i < n && i < NAMED_AT_MOST; i++) {
        pid_t pid = ((const pid_t *)(const void *)pids.data)[i];
        char path[64];
        struct buf name = { 0 };
        snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
        procfs_read(path, &name);
        buf_printf(out, "%s%d (%.*s)", i > 0 ? ", " : "", (int)pid, (int)(name.len > 0 ? name.len - 1 : 0),
                   name.len > 0 ? (const char *)name.data : "");
        buf_free(&name);
    }
    buf_free(&pids);
}
