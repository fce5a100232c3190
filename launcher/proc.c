/* proc.c -- see proc.h.
 *
 * Why not fork, posix_spawn or uv_spawn: fork copies page tables for nothing; the other two cannot
 * arm the parent-death signal. clone(CLONE_VM | CLONE_VFORK) borrows our memory until execve, as
 * vfork does, but on a stack of its own, so nothing of ours can be damaged; and execve's errno
 * simply lies in memory when we wake up.
 *
 * In the child, until execve: no allocation, no lock, no stdio; signals are blocked, so no handler
 * of ours runs there. */
#include "proc.h"

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

enum { CHILD_STACK = 64 * 1024, NOT_EXECUTED = 127 };

/* What the child reads and writes. It lies on the parent's stack, which stands still meanwhile. */
struct child {
    const struct proc_spec *spec;
    pid_t parent;
    int error; /* written by the child, read by us after it is gone or has become the program */
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
    static const int handled[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGTSTP, SIGCONT };
    const struct kernel_sigaction dfl = { 0 };
    const uint64_t none = 0;
    for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++) {
        struct kernel_sigaction now = { 0 };
        syscall(SYS_rt_sigaction, handled[i], NULL, &now, sizeof(now.mask));
        if (now.handler != SIG_IGN) /* what the user wants ignored stays so */
            syscall(SYS_rt_sigaction, handled[i], &dfl, NULL, sizeof(dfl.mask));
    }
    syscall(SYS_rt_sigaction, SIGPIPE, &dfl, NULL, sizeof(dfl.mask));
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
}

/* Put the three descriptors in place; every other one closes at execve. */
IN_CHILD static bool place_fds(const int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (fds[i] != i && dup2(fds[i], i) < 0)
            return false;
    return close_range(3, UINT32_MAX, CLOSE_RANGE_CLOEXEC) == 0 || errno == ENOSYS;
}

/* The group comes first, so that a signal to ours does not meet a half-made worker.
 *
 * A group and not a session, as one might expect: there is no terminal to get away from, the agent has left it already.
 * And Linux gives each session a share of the processor of its own (autogroup). A start that moves into a new share has
 * to wait for its turn there, while we wait for its execve: on a busy machine 64 workers took half as long again. */
IN_CHILD static bool become_worker(const struct child *c)
{
    if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || !place_fds(c->spec->fds))
        return false;
    if (c->spec->nofile != NULL)
        setrlimit(RLIMIT_NOFILE, c->spec->nofile);
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
    if (become_worker(c))
        execve(c->spec->path, c->spec->argv, c->spec->envp);
    c->error = errno;
    _exit(NOT_EXECUTED);
}

/* --- the parent ----------------------------------------------------------------------------------------- */

/* All signals are blocked around the clone: a handler that ran in the child would act on our memory
 * in our name. */
pid_t proc_spawn(const struct proc_spec *spec, int *error)
{
    _Alignas(16) char stack[CHILD_STACK];
    struct child c = { .spec = spec, .parent = getpid() };
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = clone(child_main, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &c);
    int clone_error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);

    *error = pid < 0 ? clone_error : c.error;
    if (pid > 0 && c.error != 0) {
        waitpid(pid, NULL, 0);
        return -1;
    }
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

/* --- looking -------------------------------------------------------------------------------------------- */

void proc_interpreter(const char *path, char *out, size_t size)
{
    char head[256] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof(head) - 1);
    if (fd >= 0)
        close(fd);
    out[0] = '\0';
    if (n > 2 && head[0] == '#' && head[1] == '!') {
        const char *name = head + 2 + strspn(head + 2, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(name, "\r\n"), name);
    }
}

enum program_look proc_look(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR ? LOOK_MISSING : LOOK_UNKNOWN;
    if (S_ISDIR(st.st_mode))
        return LOOK_DIRECTORY;
    return access(path, X_OK) == 0 ? LOOK_FILE : LOOK_NOT_EXECUTABLE;
}
