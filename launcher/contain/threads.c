/* threads.c -- see threads.h.
 *
 * Every user may read the state of a thread. Reading the system call of a thread requires the right to trace the
 * process (Yama, CAP_SYS_PTRACE). A fact that cannot be read is left out, and threads_explain_ptrace() writes the
 * reason. */
#include "contain/threads.h"

#include "base/endpoint.h"
#include "contain/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_SIZE = 512, ARGS = 2 }; /* ARGS: how many arguments of a system call are read */

/* --- system calls --------------------------------------------------------------------------------------- */

/* The object that an argument of a system call names:
 *
 *   FD        the descriptor in argument 0
 *   PATH      the path in argument 1
 *   POLLED    the array of struct pollfd in argument 0
 *   CHILD     the pid in argument 0
 *   CHILD_ID  the pid in argument 1, if argument 0 is P_PID */
enum subject { NONE, FD, PATH, POLLED, CHILD, CHILD_ID };

/* Calls in which a thread may wait for a long time. */
/* clang-format off */
#define CALLS_ON_FD(X) \
    X(read) X(write) X(readv) X(writev) X(pread64) X(pwrite64) X(preadv) X(pwritev) X(recvfrom) X(sendto) X(recvmsg) X(sendmsg) \
    X(recvmmsg) X(accept) X(accept4) X(connect) X(fsync) X(fdatasync) X(flock) X(fcntl) X(ioctl) X(sendfile) X(ftruncate) \
    X(fallocate) X(getdents64) X(epoll_pwait) X(syncfs)
#define CALLS_ON_PATH(X) X(openat) X(newfstatat) X(statx) X(unlinkat) X(mkdirat)
#define OTHER_CALLS(X) \
    X(futex) X(nanosleep) X(clock_nanosleep) X(pselect6) X(rt_sigsuspend) X(rt_sigtimedwait) X(sched_yield) \
    X(io_getevents) X(io_uring_enter) X(semtimedop) X(msgrcv) X(restart_syscall) X(exit_group) X(munmap) X(mmap) X(madvise) X(sync)

static const struct call {
    long number;
    const char *name;
    enum subject subject;
} calls[] = {
#define X(name) { SYS_##name, #name, FD },
    CALLS_ON_FD(X)
#undef X
#define X(name) { SYS_##name, #name, PATH },
        CALLS_ON_PATH(X)
#undef X
#define X(name) { SYS_##name, #name, NONE },
            OTHER_CALLS(X)
#undef X
                { SYS_ppoll, "ppoll", POLLED },
    { SYS_wait4, "wait4", CHILD },
    { SYS_waitid, "waitid", CHILD_ID },
#ifdef SYS_poll /* newer architectures have only ppoll and similar calls */
    { SYS_poll, "poll", POLLED },
    { SYS_select, "select", NONE },
    { SYS_epoll_wait, "epoll_wait", FD },
    { SYS_pause, "pause", NONE },
#endif
};
/* clang-format on */

static const struct call *find_call(long number)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (calls[i].number == number)
            return &calls[i];
    return NULL;
}

/* Parse a line of /proc/PID/syscall: the number and the first `n` arguments. Return false if the thread is running, or
 * if it is not in a system call. */
static bool syscall_parse(const char *line, long *number, unsigned long *args, int n)
{
    char *end;
    *number = strtol(line, &end, 10);
    if (end == line || *number < 0)
        return false;
    for (int i = 0; i < n; i++) {
        const char *at = end;
        args[i] = strtoul(at, &end, 16);
        if (end == at)
            return false;
    }
    return true;
}

/* --- what a thread waits for ------------------------------------------------------------------------------ */

/* Read the memory of another process without stopping it. Return false if this is forbidden, or if the memory does not
 * exist. */
static bool read_memory(pid_t pid, unsigned long address, void *to, size_t size)
{
    struct iovec here = { to, size }, there = { (void *)address, size };
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

/* Read a path from the memory of a process. Split the read at the end of the memory page, because the next page may be
 * missing. */
static void write_path(pid_t pid, unsigned long address, char *to, size_t size)
{
    const size_t page = 4096 - address % 4096, n = size - 1, first = page < n ? page : n;
    const struct iovec here = { to, n };
    const struct iovec there[] = { { (void *)address, first }, { (void *)(address + first), n - first } };
    const ssize_t got = address != 0 ? process_vm_readv(pid, &here, 1, there, 2, 0) : 0;
    to[got > 0 ? got : 0] = '\0';
}

/* Format an address as "10.0.0.2:29500" or "/run/x.sock". Format an abstract Unix address as "@x". Return false for
 * other families, and for a Unix socket without a name. */
static bool format_address(const struct sockaddr_storage *a, char text[ENDPOINT_TEXT_MAX])
{
    text[0] = '\0';
    if (a->ss_family == AF_INET || a->ss_family == AF_INET6) {
        endpoint_of_sockaddr((const struct sockaddr *)a, text);
    } else if (a->ss_family == AF_UNIX) {
        const struct sockaddr_un *local = (const struct sockaddr_un *)a;
        const int skip = local->sun_path[0] == '\0', max = (int)sizeof(local->sun_path) - skip;
        if (local->sun_path[skip] != '\0')
            snprintf(text, ENDPOINT_TEXT_MAX, "%s%.*s", skip ? "@" : "", max, local->sun_path + skip);
    }
    return text[0] != '\0';
}

/* Read the address to which a TCP socket connects. Before the peer answers, getpeername fails, but SO_PEERNAME reports
 * the address. SO_PEERNAME fails if the buffer is larger than the address, so try the size of IPv6, then of IPv4. */
static bool read_target(int fd, struct sockaddr_storage *to)
{
    socklen_t v6 = sizeof(struct sockaddr_in6), v4 = sizeof(struct sockaddr_in);
    return getsockopt(fd, SOL_SOCKET, SO_PEERNAME, to, &v6) == 0 ||
           getsockopt(fd, SOL_SOCKET, SO_PEERNAME, to, &v4) == 0;
}

/* Format the peer of a socket. If the socket listens, or if its peer has no name, format the socket's own address.
 * Leave `to` unchanged if no address is known. */
static void describe_socket(int fd, char *to, size_t size)
{
    struct sockaddr_storage own = { 0 }, peer = { 0 };
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer), flag_len = sizeof(int);
    int accepts = 0;
    char text[ENDPOINT_TEXT_MAX];
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &flag_len);
    getsockname(fd, (struct sockaddr *)&own, &own_len);
    const bool is_connected = getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0;
    const char *words = NULL;
    if (accepts && format_address(&own, text))
        words = "the listening socket";
    else if (is_connected && format_address(&peer, text))
        words = "the connection to";
    else if (is_connected && format_address(&own, text))
        words = "a connection accepted at";
    else if (read_target(fd, &peer) && format_address(&peer, text))
        words = "the connection attempt to";
    if (words != NULL)
        snprintf(to, size, "%s %.128s", words, text);
}

/* Describe a socket of another process. Use a copy of the descriptor (pidfd_getfd, Linux 5.6). */
static void write_socket(pid_t pid, int fd, char *to, size_t size)
{
    const int pidfd = pids_hold(pid), copy = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
    if (copy >= 0) {
        describe_socket(copy, to, size);
        close(copy);
    }
    if (pidfd >= 0)
        close(pidfd);
}

/* Format the target of a descriptor: "/data/x.bin", "pipe:[1234]", "the connection to 10.0.0.2:29500". For the
 * other texts about sockets see describe_socket(). */
static void write_fd(pid_t pid, unsigned long fd, char *to, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)fd);
    const ssize_t n = readlink(path, to, size - 1);
    to[n > 0 ? n : 0] = '\0';
    if (strncmp(to, "socket:", 7) == 0)
        write_socket(pid, (int)fd, to, size);
}

/* Format the target of the first polled descriptor. */
static void write_polled(pid_t pid, unsigned long address, unsigned long n, char *to, size_t size)
{
    struct pollfd first;
    if (n > 0 && read_memory(pid, address, &first, sizeof(first)))
        write_fd(pid, (unsigned long)first.fd, to, size);
}

/* The state of a process's memory, as is_readable() stores it. A read of LOCKED memory could block. */
enum memory { NOT_CHECKED, READABLE, LOCKED };

/* Check the memory of a process once, and only if a thread's system call has an object in this memory. The check reads
 * a file of each thread. */
static bool is_readable(pid_t pid, enum memory *memory)
{
    if (*memory == NOT_CHECKED)
        *memory = threads_lock_memory(pid) ? LOCKED : READABLE;
    return *memory == READABLE;
}

/* Format the object of a system call (see enum subject). If the object is in memory that cannot be read, write
 * nothing. */
static void write_subject(pid_t pid, const struct call *call, const unsigned long *args, enum memory *memory,
                          char *to, size_t size)
{
    if (call->subject == FD)
        write_fd(pid, args[0], to, size);
    else if (call->subject == PATH && is_readable(pid, memory))
        write_path(pid, args[1], to, size);
    else if (call->subject == POLLED && is_readable(pid, memory))
        write_polled(pid, args[0], args[1], to, size);
}

/* Return the pid of the child for which the system call waits, or 0 if it waits for no such child. */
static int waited_pid(const struct call *call, const unsigned long *args)
{
    int pid = call->subject == CHILD ? (int)args[0] : 0;
    if (call->subject == CHILD_ID && args[0] == P_PID)
        pid = (int)args[1];
    return pid > 0 ? pid : 0;
}

/* --- connections without an answer ---------------------------------------------------------------------- */

size_t sockets_unanswered(pid_t pid, struct buf *out)
{
    static const char *const files[] = { "tcp", "tcp6" };
    size_t n = 0;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[64], line[512];
        struct unanswered u;
        snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)pid, files[i]);
        FILE *file = fopen(path, "re");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL)
            if (proc_tcp_parse(line, &u))
                n += buf_append(out, &u, sizeof(u));
        if (file != NULL)
            fclose(file);
    }
    return n;
}

/* Return the inode in "socket:[1234]", or 0 if the text has another form. */
static uint64_t socket_inode(const char *link)
{
    static const char prefix[] = "socket:[";
    return strncmp(link, prefix, sizeof(prefix) - 1) == 0 ? strtoull(link + sizeof(prefix) - 1, NULL, 10) : 0;
}

uint64_t process_sockets(pid_t pid, const struct unanswered *of, size_t n)
{
    enum { LINKS_MAX = 1 << 16 };
    char path[64], link[40];
    uint64_t found = 0;
    int links = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *fds = n > 0 ? opendir(path) : NULL;
    for (struct dirent *e; fds != NULL && links++ < LINKS_MAX && (e = readdir(fds)) != NULL;) {
        const ssize_t len = readlinkat(dirfd(fds), e->d_name, link, sizeof(link) - 1);
        link[len > 0 ? len : 0] = '\0';
        const uint64_t inode = socket_inode(link);
        for (size_t i = 0; i < n && i < 64 && inode != 0; i++)
            if (of[i].inode == inode)
                found |= UINT64_C(1) << i;
    }
    if (fds != NULL)
        closedir(fds);
    return found;
}

/* --- the lock of a process's memory --------------------------------------------------------------------- */

/* Return true if a system call changes the memory map. */
static bool changes_map(long number)
{
    static const long changing[] = { SYS_mmap,    SYS_munmap, SYS_mremap, SYS_mprotect,
                                     SYS_madvise, SYS_brk,    SYS_execve };
    for (size_t i = 0; i < sizeof(changing) / sizeof(changing[0]); i++)
        if (changing[i] == number)
            return true;
    return false;
}

/* Return true if a thread may hold the lock of its process's memory (see threads_lock_memory). Such a thread is
 * uninterruptible in a page fault, or in a system call that changes the memory map. */
static bool may_hold_lock(pid_t pid, pid_t tid)
{
    char file[48], line[LINE_SIZE];
    struct proc_stat stat;
    long number;
    snprintf(file, sizeof(file), "task/%d/stat", (int)tid);
    procfs_line(pid, file, line, sizeof(line));
    if (!proc_stat_parse(line, &stat) || stat.state != 'D')
        return false;
    snprintf(file, sizeof(file), "task/%d/syscall", (int)tid);
    procfs_line(pid, file, line, sizeof(line));
    return !syscall_parse(line, &number, NULL, 0) || changes_map(number);
}

bool threads_lock_memory(pid_t pid)
{
    char path[64];
    bool locks = false;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    for (struct dirent *e; tasks != NULL && !locks && (e = readdir(tasks)) != NULL;)
        locks = e->d_name[0] != '.' && may_hold_lock(pid, (pid_t)strtol(e->d_name, NULL, 10));
    if (tasks != NULL)
        closedir(tasks);
    return locks;
}

/* --- threads -------------------------------------------------------------------------------------------- */

static const char *state_words(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
    case 'I':
        return "sleeping";
    case 'D':
        return "uninterruptible";
    case 'T':
        return "stopped by a signal";
    case 't':
        return "stopped by a debugger";
    default:
        return "ending";
    }
}

/* Write to `to` what a thread does, such as "sleeping in read". `state` is the letter of /proc/PID/stat. `where` is the
 * system call or kernel function, or "" if it is unknown. */
static void thread_words(char state, const char *where, char to[STACK_NAME_MAX])
{
    snprintf(to, STACK_NAME_MAX, "%s%s%s", state_words(state), where[0] != '\0' ? " in " : "", where);
}

/* Read the kernel function in which the thread waits. Write "" if the thread does not wait, or if the kernel hides
 * the function. */
static void read_function(pid_t pid, const char *dir, char *to, size_t size)
{
    char file[64];
    snprintf(file, sizeof(file), "%s/wchan", dir);
    procfs_line(pid, file, to, size);
    if (strcmp(to, "0") == 0)
        to[0] = '\0';
}

/* Describe what a thread does: "sleeping in read", "uninterruptible in read (nfs_wait)". If the system call cannot be
 * read, print the kernel function. The kernel checks the permission in read(), or already in open() if another user owns
 * the process. */
static void describe(const char *dir, char state, enum memory *memory, struct stack_thread *t)
{
    char file[64], line[LINE_SIZE], function[48] = "", where[100];
    unsigned long args[ARGS] = { 0 };
    long number = -1;
    snprintf(file, sizeof(file), "%s/syscall", dir);
    errno = 0;
    procfs_line(t->pid, file, line, sizeof(line));
    t->is_denied = line[0] == '\0' && (errno == EPERM || errno == EACCES);
    const bool in_call = syscall_parse(line, &number, args, ARGS);
    const struct call *call = in_call ? find_call(number) : NULL;
    if (state == 'D' || (state == 'S' && !in_call))
        read_function(t->pid, dir, function, sizeof(function));
    if (!in_call)
        snprintf(where, sizeof(where), "%s", function);
    else if (call == NULL)
        snprintf(where, sizeof(where), "system call %ld", number);
    else
        snprintf(where, sizeof(where), function[0] != '\0' ? "%s (%s)" : "%s", call->name, function);
    thread_words(state, where, t->does);
    if (call != NULL)
        write_subject(t->pid, call, args, memory, t->object, sizeof(t->object));
    t->waits_for = call != NULL ? waited_pid(call, args) : 0;
}

/* Copy the thread's name, which is between the first and the last parenthesis of the line. */
static void copy_name(const char *line, struct stack_thread *t)
{
    const char *from = strchr(line, '('), *to = strrchr(line, ')');
    if (from != NULL && to != NULL && to > from)
        snprintf(t->name, sizeof(t->name), "%.*s", (int)(to - from - 1), from + 1);
}

/* Set CPU time and number of runs from the file schedstat, which has three numbers: CPU time in ns, time in the queue,
 * number of runs. If the file is missing, set only the CPU time, and compute it from `ticks`. This CPU time is less
 * exact, because the kernel may count no tick for a short run. */
static void read_schedstat(const char *dir, uint64_t ticks, struct stack_thread *t)
{
    char file[48], line[LINE_SIZE];
    unsigned long long ns = 0, queued, runs = 0;
    snprintf(file, sizeof(file), "%s/schedstat", dir);
    procfs_line(t->pid, file, line, sizeof(line));
    if (sscanf(line, "%llu %llu %llu", &ns, &queued, &runs) == 3)
        t->runs = (int64_t)runs;
    t->cpu_ms = ns > 0 ? (int64_t)(ns / 1000000) : (int64_t)(ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK));
}

/* Append one thread to `out`. Return false if the thread has ended. */
static bool add_thread(const struct stack_thread *like, pid_t tid, enum memory *memory, struct buf *out)
{
    char dir[32], file[40], line[LINE_SIZE];
    struct proc_stat stat;
    struct stack_thread t = *like;
    t.tid = tid;
    t.is_main = tid == t.pid;
    snprintf(dir, sizeof(dir), "task/%d", (int)tid);
    snprintf(file, sizeof(file), "%s/stat", dir);
    procfs_line(t.pid, file, line, sizeof(line));
    if (!proc_stat_parse(line, &stat) || stat.state == 'Z' || stat.state == 'X' || proc_stat_is_dying(&stat))
        return false;
    copy_name(line, &t);
    read_schedstat(dir, stat.cpu_ticks, &t);
    describe(dir, stat.state, memory, &t);
    return buf_append(out, &t, sizeof(t));
}

size_t threads_read(const struct stack_thread *like, size_t max, struct buf *out)
{
    char path[64];
    enum memory memory = NOT_CHECKED;
    size_t n = add_thread(like, like->pid, &memory, out);
    snprintf(path, sizeof(path), "/proc/%d/task", like->pid);
    DIR *tasks = n > 0 && max > 1 ? opendir(path) : NULL;
    for (struct dirent *e; tasks != NULL && n < max && (e = readdir(tasks)) != NULL;) {
        const pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);
        if (tid > 0 && tid != like->pid)
            n += add_thread(like, tid, &memory, out);
    }
    if (tasks != NULL)
        closedir(tasks);
    return n;
}

bool threads_is_python(pid_t pid, bool thorough)
{
    char path[64], exe[PATH_MAX];
    struct buf maps = { 0 };
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    const ssize_t n = readlink(path, exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(exe, '/'), *name = slash != NULL ? slash + 1 : exe;
    bool found = strncmp(name, "python", 6) == 0 || strncmp(name, "pypy", 4) == 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    if (!found && thorough && !threads_lock_memory(pid) && procfs_read(path, &maps))
        found = strstr((const char *)maps.data, "/libpython") != NULL;
    buf_free(&maps);
    return found;
}

/* --- permission ----------------------------------------------------------------------------------------- */

/* Return Yama's ptrace_scope from its file, or 0 without Yama. */
static int ptrace_scope(const char *file)
{
    struct buf text = { 0 };
    const int scope = procfs_read(file, &text) ? atoi((const char *)text.data) : 0;
    buf_free(&text);
    return scope;
}

/* Write the note about the missing permission. With a ptrace_scope of 1, ddprun cannot trace a child of a worker.
 * ddprun can trace the worker itself, because the worker allows this (PR_SET_PTRACER). A ptrace_scope of 3 cannot be
 * changed before the next boot. */
void threads_explain_ptrace(const char *file, bool by_py_spy, bool is_child, char note[STACK_NOTE_MAX])
{
    const int scope = ptrace_scope(file);
    const char *missing = by_py_spy ? "Python stacks" : "system calls",
               *reader = by_py_spy ? "py-spy" : "ddprun";
    if (scope > 2)
        snprintf(note, STACK_NOTE_MAX,
                 "no %s: kernel.yama.ptrace_scope is %d, so %s cannot read the process; "
                 "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and reboot the host",
                 missing, scope, reader);
    else if (scope == 2 || (scope == 1 && is_child))
        snprintf(note, STACK_NOTE_MAX,
                 "no %s: kernel.yama.ptrace_scope is %d, so %s cannot read the process; "
                 "run 'sysctl kernel.yama.ptrace_scope=%d' as root",
                 missing, scope, reader, scope - 1);
    else
        snprintf(note, STACK_NOTE_MAX,
                 "no %s: %s cannot read the process: CAP_SYS_PTRACE is missing; give the "
                 "container this capability, or run ddprun as the user of the process",
                 missing, reader);
}
