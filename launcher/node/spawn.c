/* spawn.c -- see spawn.h. clone3 creates a worker inside its control group, because moving the worker by a write to
 * cgroup.procs takes up to 7 ms. The C library has no wrapper for clone3, and the child needs its own stack. So a few
 * lines of assembly call clone3. */
#include "node/spawn.h"

#include "base/limits.h"
#include "base/syscalls.h"

#include "net/messages.h"
#include "tables/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
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

/* Parent and child share memory and descriptors, and the parent waits until the child calls execve or ends. */
enum { FLAGS = CLONE_VM | CLONE_VFORK | CLONE_FILES };

#if defined(__x86_64__)

/* Call clone3. In the child, call `child`, which never returns, on a new stack. The child cannot return from this
 * function, because its new stack has no return address. The kernel preserves the registers r12, which keeps `arg`, and
 * r13, which keeps `child`. A zero frame pointer ends the backtraces of debuggers in the child. */
static long call_on_new_stack(struct clone_args *args, size_t size, int (*child)(void *), void *arg)
{
    long result;
    register void *a __asm__("r12") = arg;
    register int (*f)(void *) __asm__("r13") = child;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %[a], %%rdi\n\t"
                     "call *%[f]\n\t"
                     "hlt\n"
                     "1:"
                     : "=a"(result)
                     : "0"(SYS_clone3), "D"(args), "S"(size), [a] "r"(a), [f] "r"(f)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

#elif defined(__aarch64__)

static long call_on_new_stack(struct clone_args *args, size_t size, int (*child)(void *), void *arg)
{
    register long x8 __asm__("x8") = SYS_clone3;
    register long x0 __asm__("x0") = (long)args;
    register long x1 __asm__("x1") = (long)size;
    register void *a __asm__("x19") = arg;
    register int (*f)(void *) __asm__("x20") = child;
    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, #0\n\t"
                     "mov x30, #0\n\t"
                     "mov x0, %[a]\n\t"
                     "blr %[f]\n\t"
                     "brk #0\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), [a] "r"(a), [f] "r"(f)
                     : "memory", "cc");
    return x0;
}

#else

/* Return -ENOSYS, because this file has no assembly for this architecture. A child then joins its control group by a
 * write to cgroup.procs. */
static long call_on_new_stack(struct clone_args *args, size_t size, int (*child)(void *), void *arg)
{
    (void)args;
    (void)size;
    (void)child;
    (void)arg;
    return -ENOSYS;
}

#endif

/* Return true if clone3 is not available. E2BIG and EINVAL mean that this clone3 cannot create a process in a control
 * group (before Linux 5.7). EPERM means that a seccomp filter forbids clone3. */
static bool is_missing(long error)
{
    return error == -ENOSYS || error == -E2BIG || error == -EINVAL || error == -EPERM;
}

/* Run `child(arg)` in a new process on `stack` (16-aligned). The child shares this process's memory and descriptors,
 * and must not return. This thread waits until the child executes a program or ends. `cgroup_fd` is the directory of
 * the child's control group, or -1 for the group of this process. Return the pid, or return -1 and set errno. ENOSYS
 * means that a control group was requested but clone3 is not available. */
static pid_t clone_on_stack(int (*child)(void *), void *arg, void *stack, size_t size, int cgroup_fd)
{
    const bool grouped = cgroup_fd >= 0;
    struct clone_args args = { .flags = FLAGS | (grouped ? CLONE_INTO_CGROUP : 0),
                               .exit_signal = SIGCHLD,
                               .stack = (uintptr_t)stack,
                               .stack_size = size,
                               .cgroup = grouped ? (uint64_t)cgroup_fd : 0 };
    long pid = call_on_new_stack(&args, sizeof(args), child, arg);
    if (pid >= 0)
        return (pid_t)pid;
    if (is_missing(pid) && !grouped) {
        pid = clone(child, (char *)stack + size, FLAGS | SIGCHLD, arg);
        /* qemu-user fails with EINVAL, because it cannot share descriptors between processes */
        if (pid < 0 && errno == EINVAL)
            pid = clone(child, (char *)stack + size, (FLAGS & ~CLONE_FILES) | SIGCHLD, arg);
        return (pid_t)pid;
    }
    errno = is_missing(pid) ? ENOSYS : (int)-pid;
    return -1;
}

/* --- start a process -------------------------------------------------------------------------------------- */

/* A child is created with CLONE_VM | CLONE_VFORK. Until execve, it shares the memory of this process, as after vfork,
 * but has a separate stack. So it can store the errno of execve in the shared memory. Other functions do not fit: fork
 * would copy page tables without need, and posix_spawn and uv_spawn cannot set the parent-death signal.
 *
 * Until execve, the child must not allocate memory, lock a mutex or use stdio. Signals are blocked, so no handler of
 * this process runs in the child. */

enum {
    CHILD_STACK = 64 * 1024, /* bytes */
    NOT_EXECUTED = 127,      /* exit status of a child whose execve failed; no caller gets this status */
    FD_GAP = 1024 /* the search for open descriptors ends after this many unused numbers in a row */
};

/* Data that parent and child share. This struct is on the parent's stack, because the parent waits until execve
 * succeeds or the child ends. */
struct child {
    const struct proc_slots *slots;
    const struct proc_spec *spec;
    pid_t parent; /* if getppid() returns another pid, the parent has died */
    int join;     /* descriptor of the control group that the child must join by itself, or -1 */
    /* Results, which the parent reads after the child has ended or called execve(2). */
    bool lived;     /* child_main() has begun; if false, the kernel has killed the child before that */
    int error;      /* errno of the start; 0 if the program runs */
    int join_error; /* errno of joining the control group; 0 on success */
};

/* --- the child ------------------------------------------------------------------------------------------ */

/* execve leaves these functions without returning, so AddressSanitizer's marks would remain on their stack. */
#define IN_CHILD __attribute__((no_sanitize_address))

/* A struct for the system call rt_sigaction, whose signal mask has 8 bytes. The struct of the C library is
 * different. */
struct kernel_sigaction {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

/* Reset signals to their default action, and only then unblock all signals. Otherwise a handler of the parent could run
 * in the child and change the memory that parent and child share. Use direct system calls, because ThreadSanitizer's
 * sigaction() would change its records of the parent's handlers. */
IN_CHILD static void default_signals(void)
{
    const struct kernel_sigaction dfl = { 0 };
    const uint64_t none = 0;
    for (int i = 0; i < SIGNAL_ROWS; i++) {
        const int sig = signal_rows[i].number;
        struct kernel_sigaction now = { 0 };
        syscall(SYS_rt_sigaction, sig, NULL, &now, sizeof(now.mask));
        /* A signal that the user ignores stays ignored. But signals with SIGNAL_NONE are always reset, because ddprun
         * ignores them itself (signal_watch_block). */
        if (now.handler != SIG_DFL && (now.handler != SIG_IGN || signal_rows[i].act == SIGNAL_NONE))
            syscall(SYS_rt_sigaction, sig, &dfl, NULL, sizeof(dfl.mask));
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
}

/* Close all descriptors from `first` on, because close_range has failed. ddprun opens its own descriptors with
 * close-on-exec, so the loop is needed only for descriptors that ddprun has inherited. The descriptor limit may be a
 * million, so stop after FD_GAP unused numbers in a row. */
IN_CHILD static void close_one_by_one(int first)
{
    for (int fd = first, gap = 0; gap < FD_GAP; fd++)
        gap = close(fd) == 0 ? 0 : gap + 1;
}

/* Copy the three reserved descriptors to 0, 1 and 2, and close all others. The child still shares the parent's table of
 * descriptors, so first give the child its own table. close_range with CLOSE_RANGE_UNSHARE copies only the few
 * descriptors up to the highest reserved descriptor. If close_range fails, unshare copies the whole table. */
IN_CHILD static bool place_fds(const struct proc_slots *slots, bool keeps_library)
{
    const int first = keeps_library ? SHIPPED_LIBRARY_FD + 1 : STDERR_FILENO + 1;
    const unsigned above = (unsigned)slots->at[2] + 1;
    if (sys_close_range(above, UINT32_MAX, CLOSE_RANGE_UNSHARE) != 0 && unshare(CLONE_FILES) != 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (dup2(slots->at[i], i) < 0)
            return false;
    if (keeps_library)
        close(STDERR_FILENO + 1);
    if (sys_close_range((unsigned)first, UINT32_MAX, 0) != 0)
        close_one_by_one(first);
    return true;
}

/* Join the control group by writing to cgroup.procs. If the write fails, the worker runs outside the group, but the
 * search for leftovers still finds the worker. */
IN_CHILD static void join_group(struct child *c)
{
    int fd = openat(c->join, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1)
        c->join_error = errno;
    if (fd >= 0)
        close(fd);
}

/* Bind the worker to its CPUs. Return true without a change if the plan chose no CPUs. */
IN_CHILD static bool bind_cpus(const struct rank_set *cpus)
{
    return cpus == NULL || cpus->limit == 0 ||
           syscall(SYS_sched_setaffinity, 0, (size_t)cpus->limit / 8, cpus->bits) == 0;
}

/* Prepare the worker. Create its process group first, so that a signal to the agent's group does not reach the
 * worker. A separate session for each worker would make the start of 64 workers 50 % slower on a busy machine
 * (autogroup). */
IN_CHILD static bool become_worker(const struct child *c)
{
    /* Allow the agent and its child py-spy to read this process, even if Yama restricts ptrace. */
    (void)prctl(PR_SET_PTRACER, c->parent);
    if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
        !place_fds(c->slots, c->spec->keeps_library))
        return false;
    if (c->spec->nofile != NULL)
        setrlimit(RLIMIT_NOFILE, c->spec->nofile);
    if (!bind_cpus(c->spec->cpus))
        return false;
    /* If the parent died before PR_SET_PDEATHSIG was set, no SIGKILL will arrive, so end the child here. */
    if (getppid() != c->parent) {
        errno = ESRCH;
        return false;
    }
    default_signals();
    return true;
}

/* Run the child until execve. A worker that cannot join its control group still starts, because a job without a
 * control group is better than no job. */
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

/* Reserve three descriptor numbers (see spawn.h). Call this early, so that the numbers are low. Return false and set
 * errno if no descriptors are left. */
static bool proc_slots_open(struct proc_slots *slots)
{
    slots->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        slots->at[i] = slots->null < 0 ? -1 : fcntl(slots->null, F_DUPFD_CLOEXEC, slots->null);
    return slots->at[2] >= 0;
}

static void proc_slots_close(struct proc_slots *slots)
{
    for (int i = 0; i < 3; i++)
        if (slots->at[i] > STDERR_FILENO)
            close(slots->at[i]);
    if (slots->null > STDERR_FILENO)
        close(slots->null);
}

/* Copy `fds` to the three reserved descriptor numbers. If `fds` is NULL, copy /dev/null, so that the numbers stay in
 * use. */
static bool fill_slots(const struct proc_slots *slots, const int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (dup3(fds != NULL ? fds[i] : slots->null, slots->at[i], O_CLOEXEC) < 0)
            return false;
    return true;
}

/* Create the child while all signals are blocked. The child shares the memory of this process, so a signal handler in
 * the child would change this memory. One thread creates all children, and each child has left the stack when clone
 * returns, so one static stack is enough. An array on this thread's stack would cost a page fault for each of its
 * pages, because the compiler checks large frames page by page. */
static pid_t clone_child(struct child *c)
{
    static _Alignas(16) char stack[CHILD_STACK];
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = clone_on_stack(child_main, c, stack, sizeof(stack), c->join < 0 ? c->spec->cgroup_fd : -1);
    if (pid < 0)
        c->error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

/* Create the child in its control group by clone3. After one failure, create this child and all later children outside
 * their groups, and let them join the groups themselves. A failure is a missing clone3, or a child that the kernel
 * kills before child_main(). After the parent's control group was killed, some kernels kill each child that clone3
 * creates in a control group. */
static pid_t clone_into_group(struct child *c)
{
    static bool by_joining; /* true after clone3 has failed once */
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

/* Start a process. The reserved descriptor numbers in `slots` hold the worker's descriptors only during the start. A
 * child that could not execute the program is reaped here, so the caller never sees its pid. */
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

/* Return 0 if `path` is an executable file, else an errno. This check gives an early error; execve may still fail. */
static int check_executable(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOTDIR ? ENOENT : errno;
    return S_ISREG(st.st_mode) && access(path, X_OK) == 0 ? 0 : EACCES;
}

/* Find the file that execvp would execute: `program` itself if its name contains a '/', else the first executable file
 * in the directories of `path`. `path` is the text of PATH, or NULL for the system's default. Write the file's path to
 * `out` and return 0, or return an errno: ENOENT, EACCES (found, but not executable), ENAMETOOLONG. */
static int proc_find(const char *program, const char *path, char *out, size_t size)
{
    if (strchr(program, '/') != NULL)
        return (size_t)snprintf(out, size, "%s", program) < size ? check_executable(out) : ENAMETOOLONG;
    int found = ENOENT;
    struct stat st;
    const char *dir = path != NULL ? path : "/usr/local/bin:/usr/bin:/bin";
    while (dir != NULL) {
        const char *end = strchrnul(dir, ':');
        /* An empty entry in PATH means the current directory. */
        const char *glue = end == dir ? "./" : "/";
        if ((size_t)snprintf(out, size, "%.*s%s%s", (int)(end - dir), dir, glue, program) < size) {
            int error = check_executable(out);
            if (error == 0)
                return 0;
            /* continue the search, as execvp does; the directory, not the file, may have refused the access */
            if (error == EACCES && stat(out, &st) == 0 && S_ISREG(st.st_mode))
                found = EACCES;
        }
        dir = *end == ':' ? end + 1 : NULL;
    }
    return found;
}

/* --- spawner ---------------------------------------------------------------------------------------------- */

/* The agent, not the child, prepares descriptors, memory and the path of the program, because only the agent can
 * report an error.
 *
 * A launcher of many workers needs more than the usual 1,024 descriptors, so this process raises its limit. Each
 * worker gets the user's limit again, because select() fails above 1,024. */

enum {
    /* number of descriptors that ddprun needs in addition to the descriptors for workers */
    FDS_OF_OURS = 64,
    FDS_PER_WORKER = 9, /* three pipes with two ends each during the start, two log files, a pidfd */
    /* additional descriptors for each worker with --encrypt: the relay allows one connection for every 4 descriptors of
     * this process, and each worker may need 8 connections */
    FDS_PER_RELAYED = 32,
};

/* Return how many descriptors this process needs at most. */
static rlim_t fds_needed(const struct plan *plan)
{
    return FDS_OF_OURS + (FDS_PER_WORKER + (plan->encrypt ? FDS_PER_RELAYED : 0)) * (rlim_t)plan->nproc;
}

/* Raise the limit as far as needed and permitted. If the hard limit is too low, the start of a worker will fail and
 * report the error. */
static void raise_fd_limit(struct spawner *s)
{
    getrlimit(RLIMIT_NOFILE, &s->nofile);
    struct rlimit more = s->nofile;
    const rlim_t need = fds_needed(s->plan);
    if (more.rlim_cur == RLIM_INFINITY || more.rlim_cur >= need)
        return;
    more.rlim_cur = need < more.rlim_max ? need : more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
}

/* Grow the table of descriptors to its final size while this process has one thread. With several threads, the growth
 * may take 10 ms. */
static void reserve_descriptors(const struct plan *plan)
{
    const int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, (int)fds_needed(plan) - 1);
    if (fd >= 0)
        close(fd);
}

ddp_status spawner_init(struct spawner *s, const struct plan *plan, struct ddp_err *err)
{
    char remedy[FILES_REMEDY_MAX];
    *s = (struct spawner){ .plan = plan };
    raise_fd_limit(s);
    reserve_descriptors(plan);
    if (!proc_slots_open(&s->slots))
        return ddp_fail(err, DDP_ERR_IO, "/dev/null: cannot open: %s%s", strerror(errno),
                        files_remedy(errno, remedy));
    return DDP_OK;
}

void spawner_close(struct spawner *s)
{
    proc_slots_close(&s->slots);
}

/* Return true if the script does not exist. Python reports any other error of the script. */
static bool lacks_script(const char *script)
{
    struct stat st;
    return script != NULL && stat(script, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/* Find the program of all workers with one search. Use the PATH of the workers, because --env may have changed it. */
static int find_program(struct spawner *s, const char *program, char *const *envp)
{
    if (s->path[0] != '\0')
        return 0;
    int error = proc_find(program, env_find(envp, "PATH"), s->path, sizeof(s->path));
    s->failed = error != 0 ? program : NULL;
    if (error == 0 && lacks_script(s->plan->script)) {
        s->failed = s->plan->script;
        error = ENOENT;
    }
    if (error != 0)
        s->path[0] = '\0';
    return error;
}

int spawner_find(struct spawner *s)
{
    struct ddp_err err;
    struct worker_env env;
    if (plan_env(s->plan, 0, &env, &err) != DDP_OK)
        return ENOMEM;
    const int error = find_program(s, s->plan->workers[0].argv[0], env.block);
    worker_env_free(&env);
    return error;
}

/* Warn once that workers run outside their control group. Their containment is then weaker: only the search for
 * descendants finds these workers. */
static void note_outside(struct spawner *s, int error)
{
    if (!s->outside_noted)
        output_note(s->output, "warning: control group: cannot put workers into it: %s", strerror(error));
    s->outside_noted = true;
}

/* Start a worker. Its environment exists only during the start, because 256 environments would need megabytes. If
 * proc_spawn() fails with ENOENT although the program exists, the program's interpreter or loader is missing. Return
 * ELIBACC in this case. If the program was removed after an earlier attempt, let the next attempt search for the
 * program again. */
static int start_with(struct spawner *s, int local_rank, const int fds[3], pid_t *pid)
{
    struct ddp_err err;
    struct worker_env env;
    if (plan_env(s->plan, local_rank, &env, &err) != DDP_OK)
        return ENOMEM;
    const struct proc_spec spec = { .path = s->path,
                                    .argv = s->plan->workers[local_rank].argv,
                                    .envp = env.block,
                                    .fds = { fds[0], fds[1], fds[2] },
                                    .nofile = &s->nofile,
                                    .cpus = &s->plan->workers[local_rank].cpus,
                                    .cgroup_fd = contain_cgroup_fd(s->contain) };
    int error = find_program(s, spec.argv[0], env.block);
    if (error == 0 && (*pid = proc_spawn(&s->slots, &spec, &error)) < 0) {
        s->failed = s->path;
        if (error == ENOENT && access(s->path, F_OK) == 0) {
            error = ELIBACC;
        } else if (error == ENOENT) {
            s->failed = spec.argv[0];
            s->path[0] = '\0';
        }
    } else if (error != 0 && *pid > 0) {
        note_outside(s, error);
        error = 0;
    }
    worker_env_free(&env);
    return error;
}

/* Open the worker's stdin, then start the worker. */
static int start_with_input(struct spawner *s, int local_rank, const int out[2], pid_t *pid)
{
    char remedy[FILES_REMEDY_MAX];
    const int in = input_open(s->input, local_rank);
    if (in < 0) {
        output_note(s->output, "error: stdin of a worker: cannot create a pipe: %s%s", strerror(errno),
                    files_remedy(errno, remedy));
        return EMFILE;
    }
    int error = start_with(s, local_rank, (const int[]){ in, out[0], out[1] }, pid);
    input_spawned(s->input, local_rank, in, error == 0);
    return error;
}

/* Start a worker. Close the worker's ends of the pipes in every case: while ddprun has these ends open, it cannot
 * detect the end of the output. */
int spawner_start(struct spawner *s, int local_rank, pid_t *pid)
{
    struct ddp_err err;
    int fds[2];
    if (output_open(s->output, local_rank, fds, &err) != DDP_OK) {
        output_note(s->output, "error: %s", err.msg);
        return EMFILE;
    }
    int error = start_with_input(s, local_rank, fds, pid);
    output_spawned(fds);
    if (error == 0)
        output_started(s->output, local_rank, *pid);
    return error;
}
