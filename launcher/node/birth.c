/* birth.c -- see birth.h.
 *
 * A process that moves into a group by writing to cgroup.procs makes the kernel wait until all processors have
 * noticed: 7 ms for the first one here. Born in it, it costs nothing. But the group at birth is for clone3 alone, which
 * the C library does not offer, and no C function can return on another stack: hence a few lines of assembly. Where we
 * have none, ENOSYS sends the caller to the other way. */
#include "node/birth.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FLAGS = CLONE_VM | CLONE_VFORK | CLONE_FILES };

#if defined(__x86_64__)

/* The child wakes up with our registers and an empty stack; it calls, and never comes back. */
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

static long call_on_new_stack(struct clone_args *args, size_t size, int (*child)(void *), void *arg)
{
    (void)args;
    (void)size;
    (void)child;
    (void)arg;
    return -ENOSYS;
}

#endif

/* E2BIG, EINVAL: clone3 without groups (before 5.7). EPERM: a filter of system calls. */
static bool is_missing(long error)
{
    return error == -ENOSYS || error == -E2BIG || error == -EINVAL || error == -EPERM;
}

/* Without a group the C library's clone is as good, where there is no clone3. */
pid_t birth(int (*child)(void *), void *arg, void *stack, size_t size, int cgroup_fd)
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
    if (is_missing(pid) && !grouped)
        return clone(child, (char *)stack + size, FLAGS | SIGCHLD, arg);
    errno = is_missing(pid) ? ENOSYS : (int)-pid;
    return -1;
}
