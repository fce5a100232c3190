/* without.c -- run a program on a kernel that lacks some system calls.
 *
 *     without pidfd_open,clone3 -- ddprun ...
 *     without proc_children -- ddprun ...
 *
 * A seccomp filter makes each of these calls fail with ENOSYS, as on an older kernel. The filter also applies to all
 * processes that the program starts. With proc_children, the file /proc/PID/task/TID/children is missing: the filter
 * passes each openat call to a supervisor, which checks the path. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdlib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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
    { "getrandom", SYS_getrandom },
};

/* Convert a list of names such as "a,b" to system call numbers. Return the length of the list, or 0 if a name is
 * unknown. */
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

/* Install the filter: each system call whose number is in `numbers` fails with ENOSYS. The filter allows all calls of
 * another architecture, because the same numbers mean other calls there. */
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

static void filter_opens(struct sock_filter code[6])
{
    code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, 2);
    code[2] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    code[3] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0);
    code[4] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[5] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
}

/* Return true if the process opens a file /proc/.../children. Read the path from the memory of the process. */
static bool opens_children(const struct seccomp_notif *asked)
{
    static const char end[] = "/children";
    char memory[64], path[256] = "";
    snprintf(memory, sizeof(memory), "/proc/%u/mem", asked->pid);
    const int fd = open(memory, O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; fd >= 0 && i + 1 < sizeof(path); i++)
        if (pread(fd, &path[i], 1, (off_t)(asked->data.args[1] + i)) != 1 || path[i] == '\0')
            break;
    if (fd >= 0)
        close(fd);
    const size_t len = strnlen(path, sizeof(path));
    return strncmp(path, "/proc/", 6) == 0 && len > sizeof(end) && strcmp(path + len - strlen(end), end) == 0;
}

/* Answer the filter's requests until every process with the filter has ended. */
static void supervise(int listener)
{
    struct pollfd ready = { .fd = listener, .events = POLLIN };
    while (poll(&ready, 1, -1) >= 0 && (ready.revents & POLLIN) != 0) {
        struct seccomp_notif asked = { 0 };
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0)
            continue;
        struct seccomp_notif_resp answer = { .id = asked.id };
        if (opens_children(&asked))
            answer.error = -ENOENT;
        else
            answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

/* Install the filter with a supervisor. The supervisor is a grandchild, so that the program keeps its parent. The
 * supervisor gets the filter's descriptor before the program is executed. */
static bool install_supervised(void)
{
    struct sock_filter code[6];
    filter_opens(code);
    const struct sock_fprog program = { .len = 6, .filter = code };
    int number = -1, down[2], up[2];
    if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    const pid_t program_pid = getpid();
    const pid_t middle = fork();
    if (middle == 0) {
        if (fork() != 0) /* make the supervisor an orphan, so that the program has no unknown child */
            _exit(0);
        close(down[1]);
        close(up[0]);
        if (read(down[0], &number, sizeof(number)) == (ssize_t)sizeof(number)) {
            const int process = (int)syscall(SYS_pidfd_open, program_pid, 0);
            const int listener = (int)syscall(SYS_pidfd_getfd, process, number, 0);
            close(STDOUT_FILENO);
            close(STDERR_FILENO);
            if (listener < 0 || write(up[1], &number, sizeof(number)) < 0)
                _exit(CANNOT);
            supervise(listener);
        }
        _exit(0);
    }
    close(up[1]);
    waitpid(middle, NULL, 0);
    number = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    return number >= 0 && write(down[1], &number, sizeof(number)) == (ssize_t)sizeof(number) &&
           read(up[0], &number, sizeof(number)) == (ssize_t)sizeof(number);
}

int main(int argc, char **argv)
{
    unsigned numbers[CALLS_MAX];
    if (argc < 4 || strcmp(argv[2], "--") != 0) {
        fprintf(stderr, "usage: without CALL,CALL -- PROGRAM ...\n");
        return CANNOT;
    }
    const bool supervised = strcmp(argv[1], "proc_children") == 0;
    size_t n = supervised ? 0 : parse(argv[1], numbers);
    if (n == 0 && !supervised)
        return CANNOT;
    if (!(supervised ? install_supervised() : install(numbers, n))) {
        fprintf(stderr, "without: no filter of system calls: %s\n", strerror(errno));
        return CANNOT;
    }
    execvp(argv[3], argv + 3);
    fprintf(stderr, "without: cannot execute %s: %s\n", argv[3], strerror(errno));
    return CANNOT;
}
