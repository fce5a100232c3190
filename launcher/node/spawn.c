/* spawn.c -- see spawn.h. clone3 creates a worker inside its control group, because a write to cgroup.procs takes up to
 * 7 ms. The C library has no wrapper for clone3, so a few lines of assembly call it. */
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

/* Call clone3. In the child, call `child`, which never returns, on a new stack. The kernel preserves r12 (`arg`) and
 * r13 (`child`). A zero frame pointer ends the backtraces of debuggers. */
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

/* Return -ENOSYS, because this file has no assembly for this architecture. */
static long call_on_new_stack(struct clone_args *args, size_t size, int (*child)(void *), void *arg)
{
    (void)args;
    (void)size;
    (void)child;
    (void)arg;
    return -ENOSYS;
}

#endif

/* Return true if clone3 is not available. E2BIG, EINVAL: no control groups (before Linux 5.7). EPERM: a seccomp
 * filter. */
static bool is_missing(long error)
{
    return error == -ENOSYS || error == -E2BIG || error == -EINVAL || error == -EPERM;
}

/* Run `child(arg)` in a new process on `stack` (16-aligned), with this process's memory and descriptors. This thread
 * waits until the child executes a program or ends. `cgroup_fd` is the directory of the child's control group, or -1
 * for this process's group. Return the pid, or -1 with errno set. ENOSYS: clone3 is missing, so the child cannot be
 * created in a control group. */
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
        /* qemu-user cannot share descriptors between processes */
        if (pid < 0 && errno == EINVAL)
            pid = clone(child, (char *)stack + size, (FLAGS & ~CLONE_FILES) | SIGCHLD, arg);
        return (pid_t)pid;
    }
    errno = is_missing(pid) ? ENOSYS : (int)-pid;
    return -1;
}

/* --- start a process -------------------------------------------------------------------------------------- */

/* Until execve, a child shares the memory of this process, as after vfork, but has its own stack. So it can store the
 * errno of execve. fork would copy page tables, and posix_spawn and uv_spawn cannot set the parent-death signal.
 *
 * Until execve, the child must not allocate memory, lock a mutex or use stdio. Signals are blocked, so no handler of
 * this process runs in the child. */

enum {
    CHILD_STACK = 64 * 1024, /* bytes */
    NOT_EXECUTED = 127,      /* exit status of a child whose execve failed; no caller gets this status */
    FD_GAP = 1024 /* the search for open descriptors ends after this many unused numbers in a row */
};

/* Data that parent and child share, on the stack of the parent, which waits. */
struct child {
    const struct proc_slots *slots;
    const struct proc_spec *spec;
    pid_t parent; /* if getppid() returns another pid, the parent has died */
    int join;     /* descriptor of the control group that the child must join by itself, or -1 */
    /* Results, which the parent reads after the child has ended or called execve(2). */
    bool lived;     /* child_main() has begun; otherwise the kernel has killed the child before */
    int error;      /* errno of the start; 0 if the program runs */
    int join_error; /* errno of joining the control group; 0 on success */
};

/* --- the child ------------------------------------------------------------------------------------------ */

/* execve leaves these functions without returning, so AddressSanitizer's marks would remain on their stack. */
#define IN_CHILD __attribute__((no_sanitize_address))

/* The struct of the system call rt_sigaction, whose signal mask has 8 bytes. */
struct kernel_sigaction {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

/* Reset signals to their default action, then unblock them, so that no handler of the parent runs in shared memory. Use
 * direct system calls, because ThreadSanitizer's sigaction() would change its records of the parent's handlers. */
IN_CHILD static void default_signals(void)
{
    const struct kernel_sigaction dfl = { 0 };
    const uint64_t none = 0;
    for (int i = 0; i < SIGNAL_ROWS; i++) {
        const int sig = signal_rows[i].number;
        struct kernel_sigaction now = { 0 };
        syscall(SYS_rt_sigaction, sig, NULL, &now, sizeof(now.mask));
        /* Keep a signal that the user ignores. ddprun itself ignores the signals with SIGNAL_NONE
         * (signal_watch_block). */
        if (now.handler != SIG_DFL && (now.handler != SIG_IGN || signal_rows[i].act == SIGNAL_NONE))
            syscall(SYS_rt_sigaction, sig, &dfl, NULL, sizeof(dfl.mask));
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
}

/* Close all descriptors from `first` on, because close_range has failed. The descriptor limit may be a million, so stop
 * after FD_GAP unused numbers in a row. */
IN_CHILD static void close_one_by_one(int first)
{
    for (int fd = first, gap = 0; gap < FD_GAP; fd++)
        gap = close(fd) == 0 ? 0 : gap + 1;
}

/* Copy the three reserved descriptors to 0, 1 and 2, and close all others. First leave the parent's table of
 * descriptors: CLOSE_RANGE_UNSHARE copies only the few descriptors up to the highest reserved one; unshare copies the
 * whole table. */
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

/* Join the control group by a write to cgroup.procs. After a failure, the search for leftovers still finds the
 * worker. */
IN_CHILD static void join_group(struct child *c)
{
    int fd = openat(c->join, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1)
        c->join_error = errno;
    if (fd >= 0)
        close(fd);
}

/* Bind the worker to its CPUs. */
IN_CHILD static bool bind_cpus(const struct rank_set *cpus)
{
    return cpus == NULL || cpus->limit == 0 ||
           syscall(SYS_sched_setaffinity, 0, (size_t)cpus->limit / 8, cpus->bits) == 0;
}

/* Prepare the worker. Create its process group first, so that a signal to the agent's group does not reach it. A
 * session for each worker would make the start of 64 workers 50 % slower on a busy machine (autogroup). */
IN_CHILD static bool become_worker(const struct child *c)
{
    /* py-spy, a child of the agent, may read this process (Yama) */
    (void)prctl(PR_SET_PTRACER, c->parent);
    if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
        !place_fds(c->slots, c->spec->keeps_library))
        return false;
    if (c->spec->nofile != NULL)
        setrlimit(RLIMIT_NOFILE, c->spec->nofile);
    if (!bind_cpus(c->spec->cpus))
        return false;
    /* The parent died before PR_SET_PDEATHSIG was set, so no SIGKILL will arrive. */
    if (getppid() != c->parent) {
        errno = ESRCH;
        return false;
    }
    default_signals();
    return true;
}

/* Run the child until execve. A worker that cannot join its control group still starts. */
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

/* Copy `fds` to the reserved descriptor numbers. If `fds` is NULL, copy /dev/null, so that the numbers stay in use. */
static bool fill_slots(const struct proc_slots *slots, const int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (dup3(fds != NULL ? fds[i] : slots->null, slots->at[i], O_CLOEXEC) < 0)
            return false;
    return true;
}

/* Create the child while all signals are blocked, because a handler in the child would change shared memory. */
static pid_t clone_child(struct child *c)
{
    _Alignas(16) char stack[CHILD_STACK];
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = clone_on_stack(child_main, c, stack, sizeof(stack), c->join < 0 ? c->spec->cgroup_fd : -1);
    if (pid < 0)
        c->error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

/* Create the child in its control group by clone3. After one failure, let this and all later children join their groups
 * themselves. A failure is a missing clone3, or a child that the kernel kills, as some kernels do after a kill of the
 * parent's group. */
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

/* Start a process. A child that could not execute the program is reaped here, so the caller never sees its pid. */
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

/* Return 0 if `path` is an executable file, else an errno. execve may still fail. */
static int check_executable(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOTDIR ? ENOENT : errno;
    return S_ISREG(st.st_mode) && access(path, X_OK) == 0 ? 0 : EACCES;
}

/* Find the file that execvp would execute. `path` is the text of PATH, or NULL for the system's default. Write the
 * file's path to `out` and return 0, or return an errno: ENOENT, EACCES (found, but not executable), ENAMETOOLONG. */
static int proc_find(const char *program, const char *path, char *out, size_t size)
{
    if (strchr(program, '/') != NULL)
        return (size_t)snprintf(out, size, "%s", program) < size ? check_executable(out) : ENAMETOOLONG;
    int found = ENOENT;
    const char *dir = path != NULL ? path : "/usr/local/bin:/usr/bin:/bin";
    while (dir != NULL) {
        const char *end = strchrnul(dir, ':');
        /* an empty entry in PATH means the current directory */
        const char *glue = end == dir ? "./" : "/";
        if ((size_t)snprintf(out, size, "%.*s%s%s", (int)(end - dir), dir, glue, program) < size) {
            int error = check_executable(out);
            if (error == 0)
                return 0;
            if (error == EACCES)
                found = EACCES; /* continue the search, as execvp does */
        }
        dir = *end == ':' ? end + 1 : NULL;
    }
    return found;
}

/* --- spawner ---------------------------------------------------------------------------------------------- */

/* The agent prepares descriptors, memory and the path of the program, because only the agent can report an error.
 *
 * This process raises its descriptor limit for many workers. Each worker gets the user's limit again, because select()
 * fails above 1,024. */

enum {
    /* descriptors that ddprun needs in addition to those for workers */
    FDS_OF_OURS = 64,
    FDS_PER_WORKER = 9, /* three pipes with two ends each during the start, two log files, a pidfd */
    /* with --encrypt: more descriptors for each worker, for 8 connections; the relay permits one for every 4
     * descriptors */
    FDS_PER_RELAYED = 32,
};

/* Return how many descriptors this process needs at most. */
static rlim_t fds_needed(const struct plan *plan)
{
    return FDS_OF_OURS + (FDS_PER_WORKER + (plan->encrypt ? FDS_PER_RELAYED : 0)) * (rlim_t)plan->nproc;
}

/* Raise the limit as far as needed and permitted. A start beyond the hard limit reports the error. */
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

/* Grow the table of descriptors now, because this may take 10 ms once this process has several threads. */
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
        return ddp_fail(err, DDP_ERR_IO, "cannot open /dev/null: %s%s", strerror(errno),
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

/* Find the program of all workers, in the PATH of the workers, which --env may have changed. */
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

/* Warn once that workers run outside their control group, so only the search for descendants finds them. */
static void note_outside(struct spawner *s, int error)
{
    if (!s->outside_noted)
        output_note(s->output, "warning: cannot put workers into their control group: %s", strerror(error));
    s->outside_noted = true;
}

/* Start a worker. If its program exists, ENOENT means that its interpreter or loader is missing: return ELIBACC. If the
 * program was removed, the next attempt searches again. */
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
        output_note(s->output, "error: cannot create a pipe for the stdin of a worker: %s%s", strerror(errno),
                    files_remedy(errno, remedy));
        return EMFILE;
    }
    int error = start_with(s, local_rank, (const int[]){ in, out[0], out[1] }, pid);
    input_spawned(s->input, local_rank, in, error == 0);
    return error;
}

/* Start a worker. Always close the worker's ends of the pipes, because the output would never end while they are
 * open. */
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
