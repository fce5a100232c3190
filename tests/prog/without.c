/* without.c -- run a program on a kernel that lacks some system calls.
 *
 *     without pidfd_open,clone3 -- ddprun ...
 *
 * A filter answers each of them with ENOSYS, as a kernel does that was made before them; it holds for
 * everything that the program starts. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLS_MAX = 16, CANNOT = 125 };

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "the audit architecture of this machine is missing here"
#endif

static const struct {
    const char *name;
    unsigned number;
} known[] = {
    { "pidfd_open", SYS_pidfd_open },
    { "pidfd_send_signal", SYS_pidfd_send_signal },
    { "clone3", SYS_clone3 },
    { "close_range", SYS_close_range },
    { "openat2", SYS_openat2 },
    { "epoll_pwait2", SYS_epoll_pwait2 },
    { "memfd_create", SYS_memfd_create },
    { "signalfd4", SYS_signalfd4 },
};

/* "a,b" -> numbers; 0 when one of them is unknown. */
static size_t parse(const char *text, unsigned numbers[CALLS_MAX])
{
    size_t n = 0;
    while (*text != '\0' && n < CALLS_MAX) {
        size_t len = strcspn(text, ","), i = 0;
        const size_t count = sizeof(known) / sizeof(known[0]);
        while (i < count && (strlen(known[i].name) != len || memcmp(known[i].name, text, len) != 0))
            i++;
        if (i == count) {
            fprintf(stderr, "without: unknown call '%.*s'\n", (int)len, text);
            return 0;
        }
        numbers[n++] = known[i].number;
        text += len + (text[len] == ',');
    }
    return n;
}

/* Load the architecture: another one's numbers mean other calls, let them pass. Load the number; for each
 * of ours: equal -> ENOSYS. */
static bool install(const unsigned numbers[], size_t n)
{
    struct sock_filter code[5 + 2 * CALLS_MAX];
    unsigned short at = 0;
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < n; i++) {
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = { .len = at, .filter = code };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int main(int argc, char **argv)
{
    unsigned numbers[CALLS_MAX];
    if (argc < 4 || strcmp(argv[2], "--") != 0) {
        fprintf(stderr, "usage: without CALL,CALL -- PROGRAM ...\n");
        return CANNOT;
    }
    size_t n = parse(argv[1], numbers);
    if (n == 0)
        return CANNOT;
    if (!install(numbers, n)) {
        fprintf(stderr, "without: no filter of system calls: %s\n", strerror(errno));
        return CANNOT;
    }
    execvp(argv[3], argv + 3);
    fprintf(stderr, "without: cannot execute %s: %s\n", argv[3], strerror(errno));
    return CANNOT;
}
