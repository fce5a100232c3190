/* proc.c -- see proc.h.
 *
 * Why not fork, posix_spawn or uv_spawn: fork copies page tables for nothing; the other two cannot
 * arm the parent-death signal. clone(CLONE_VM | CLONE_VFORK) borrows our memory until execve, as
 * vfork does, but on a stack of its own, so nothing of ours can be damaged; and execve's errno
 * simply lies in memory when we wake up.
 *
 * In the child, until execve: no allocation, no lock, no stdio; signals are blocked, so no handler
 * of ours runs there. */
#include "node/proc.h"

#include "node/birth.h"
#include "tables/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_STACK = 64 * 1024, NOT_EXECUTED = 127, FD_GAP = 1024 };

/* What the child reads and writes. It lies on the parent's stack, which stands still meanwhile. */
struct child {
    const struct proc_slots *slots;
    const struct proc_spec *spec;
    pid_t parent;
    int join; /* directory of the group that it must join by itself, -1 = none: it was born there */
    /* Written by the child, read by us after it is gone or has become the program: */
    bool lived;
    int error, join_error;
};

/* --- the child ------------------------------------------------------------------------------------------ */

/* The child leaves these functions by execve, not by return, so what AddressSanitizer marks on their stack would stay
 * marked when the memory is an ordinary part of our stack again. So nothing is marked there. */
#define IN_CHILD __attribute__((no_sanitize_address))

/* As the kernel has it, 8 bytes of mask. */
struct kernel_sigaction {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

/* execve brings caught signals back to default by itself; until then our handlers must not run in
 * borrowed memory. These are bare system calls because a library may keep its own record of
 * handlers (ThreadSanitizer does), and that record is our parent's. */
IN_CHILD static void default_signals(void)
{
    const struct kernel_sigaction dfl = { 0 };
    const uint64_t none = 0;
    for (int i = 0; i < SIGNAL_ROWS; i++) {
        const int sig = signal_rows[i].number;
        struct kernel_sigaction now = { 0 };
        syscall(SYS_rt_sigaction, sig, NULL, &now, sizeof(now.mask));
        /* What the user wants ignored stays so; what we ignore ourselves does not. */
        if (now.handler != SIG_DFL && (now.handler != SIG_IGN || signal_rows[i].act == SIGNAL_NONE))
            syscall(SYS_rt_sigaction, sig, &dfl, NULL, sizeof(dfl.mask));
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
}

/* For old kernels, and for filters that forbid the call. What we open ourselves closes at execve; this is
 * for what the user's shell had open. Many programs have a limit of a million descriptors and none of them
 * above a thousand, so a long gap ends it. */
IN_CHILD static void close_one_by_one(void)
{
    for (int fd = 3, gap = 0; gap < FD_GAP; fd++)
        gap = close(fd) == 0 ? 0 : gap + 1;
}

/* Until the first call in here the table of descriptors is our parent's. Asked to close everything above
 * the slots in a table of its own, the kernel copies only what is below: a handful. Where it cannot, all
 * is copied, and what we opened closes at execve. */
IN_CHILD static bool place_fds(const struct proc_slots *slots)
{
    const unsigned above = (unsigned)slots->at[2] + 1;
    if (close_range(above, UINT32_MAX, CLOSE_RANGE_UNSHARE) != 0 && unshare(CLONE_FILES) != 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (dup2(slots->at[i], i) < 0)
            return false;
    if (close_range(3, UINT32_MAX, 0) != 0)
        close_one_by_one();
    return true;
}

/* The slow way into a control group. A worker outside of it is better than none: the sweep finds it all the same. */
IN_CHILD static void join_group(struct child *c)
{
    int fd = openat(c->join, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1)
        c->join_error = errno;
    if (fd >= 0)
        close(fd);
}

/* The kernel's mask of CPUs is an array of long, as the set's bits are. */
IN_CHILD static bool bind_cpus(const struct rank_set *cpus)
{
    return cpus == NULL || cpus->limit == 0 ||
           syscall(SYS_sched_setaffinity, 0, (size_t)cpus->limit / 8, cpus->bits) == 0;
}

/* The group comes first, so that a signal to ours does not meet a half-made worker.
 *
 * A group and not a session, as one might expect: there is no terminal to get away from, the agent has left it already.
 * And Linux gives each session a share of the processor of its own (autogroup). A start that moves into a new share has
 * to wait for its turn there, while we wait for its execve: on a busy machine 64 workers took half as long again. */
IN_CHILD static bool become_worker(const struct child *c)
{
    if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || !place_fds(c->slots))
        return false;
    if (c->spec->nofile != NULL)
        setrlimit(RLIMIT_NOFILE, c->spec->nofile);
    if (!bind_cpus(c->spec->cpus))
        return false;
    if (c->spec->hurry != NULL)
        hurry_inherit(c->spec->hurry);
    /* Our parent may have died before the signal was armed; then it will never come. */
    if (getppid() != c->parent) {
        errno = ESRCH;
        return false;
    }
    default_signals();
    return true;
}

IN_CHILD static int child_main(void *arg)
{
    struct child *c = arg;
    c->lived = true;
    if (c->join >= 0)
        join_group(c);
    if (become_worker(c))
        execve(c->spec->path, c->spec->argv, c->spec->envp);
    c->error = errno;
    _exit(NOT_EXECUTED);
}

/* --- the parent ----------------------------------------------------------------------------------------- */

bool proc_slots_open(struct proc_slots *slots)
{
    slots->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        slots->at[i] = slots->null < 0 ? -1 : fcntl(slots->null, F_DUPFD_CLOEXEC, slots->null);
    return slots->at[2] >= 0;
}

void proc_slots_close(struct proc_slots *slots)
{
    for (int i = 0; i < 3; i++)
        if (slots->at[i] > STDERR_FILENO)
            close(slots->at[i]);
    if (slots->null > STDERR_FILENO)
        close(slots->null);
}

/* Lay `fds` into the slots; NULL takes them out again. The numbers themselves stay taken, so that no
 * other thread's socket can get one. */
static bool fill_slots(const struct proc_slots *slots, const int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (dup3(fds != NULL ? fds[i] : slots->null, slots->at[i], O_CLOEXEC) < 0)
            return false;
    return true;
}

/* All signals are blocked around the clone: a handler that ran in the child would act on our memory
 * in our name. */
static pid_t clone_child(struct child *c)
{
    _Alignas(16) char stack[CHILD_STACK];
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = birth(child_main, c, stack, sizeof(stack), c->join < 0 ? c->spec->cgroup_fd : -1);
    if (pid < 0)
        c->error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

/* Into the group at birth, or when that does not work after it. It does not work without clone3; and some kernels kill
 * whoever is born into a group by a parent whose own group was killed once (cgroup.kill): that child never lived. */
static pid_t clone_into_group(struct child *c)
{
    static bool by_joining; /* the same for our whole life */
    c->join = by_joining ? c->spec->cgroup_fd : -1;
    pid_t pid = clone_child(c);
    bool stillborn = pid > 0 && !c->lived;
    if (c->spec->cgroup_fd < 0 || by_joining || (!stillborn && (pid > 0 || c->error != ENOSYS)))
        return pid;
    if (stillborn)
        waitpid(pid, NULL, 0);
    by_joining = true;
    c->error = 0;
    c->join = c->spec->cgroup_fd;
    return clone_child(c);
}

pid_t proc_spawn(const struct proc_slots *slots, const struct proc_spec *spec, int *error)
{
    struct child c = { .slots = slots, .spec = spec, .parent = getpid() };
    pid_t pid = -1;
    if (fill_slots(slots, spec->fds))
        pid = clone_into_group(&c);
    else
        c.error = errno;
    fill_slots(slots, NULL);
    if (pid > 0 && c.error != 0) {
        waitpid(pid, NULL, 0);
        pid = -1;
    }
    *error = pid > 0 ? c.join_error : c.error;
    return pid;
}

/* 0 when `path` is a file that may be executed, else an errno. execve has the last word; this is
 * for the search, and for an answer before anything is started. */
static int check_executable(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOTDIR ? ENOENT : errno;
    return S_ISREG(st.st_mode) && access(path, X_OK) == 0 ? 0 : EACCES;
}

int proc_find(const char *program, const char *path, char *out, size_t size)
{
    if (strchr(program, '/') != NULL)
        return (size_t)snprintf(out, size, "%s", program) < size ? check_executable(out) : ENAMETOOLONG;
    int found = ENOENT;
    const char *dir = path != NULL ? path : "/usr/local/bin:/usr/bin:/bin";
    while (dir != NULL) {
        const char *end = strchrnul(dir, ':');
        /* An empty entry of PATH means the current directory. */
        const char *glue = end == dir ? "./" : "/";
        if ((size_t)snprintf(out, size, "%.*s%s%s", (int)(end - dir), dir, glue, program) < size) {
            int error = check_executable(out);
            if (error == 0)
                return 0;
            if (error == EACCES)
                found = EACCES; /* execvp looks on, and says this when nothing better comes */
        }
        dir = *end == ':' ? end + 1 : NULL;
    }
    return found;
}
