/* procfs.c -- see procfs.h. Formats differ between kernels and containers. So every parser checks for missing fields,
 * and every read has a limit. */
#include "contain/procfs.h"

#include "base/endpoint.h"
#include "base/syscalls.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

bool proc_stat_parse(const char *text, struct proc_stat *out)
{
    unsigned long long start, user, system;
    /* The name in parentheses may contain any bytes, even ')'. So continue after the last ')'. */
    const char *end = strrchr(text, ')');
    if (end == NULL || sscanf(end + 1,
                              " %c %d %d %*d %*d %d %u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %d %*d "
                              "%llu",
                              &out->state, &out->parent, &out->group, &out->foreground, &out->flags, &user,
                              &system, &out->threads, &start) != 9)
        return false;
    out->cpu_ticks = user + system;
    out->start_ticks = start;
    return true;
}

/* --- pids ------------------------------------------------------------------------------------------------- */

int pids_hold(pid_t pid)
{
    return sys_pidfd_open(pid, 0);
}

bool pids_signal(int pidfd, int signal)
{
    return sys_pidfd_send_signal(pidfd, signal) == 0;
}

/* Call both pidfd_open and pidfd_send_signal, because seccomp may allow one and forbid the other. */
bool pids_can_hold(void)
{
    const int self = pids_hold(getpid());
    const bool can = self >= 0 && pids_signal(self, 0);
    if (self >= 0)
        close(self);
    return can;
}

pid_t pids_newest(void)
{
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return pid;
}

enum {
    FILE_MAX = 1 << 20 /* bytes; larger than the mountinfo of any machine */
};

/* Parse a peer in /proc/net/tcp: address, ":" and port, in hexadecimal. An IPv4 address is one word, an IPv6 address
 * four words, each in the byte order of this machine. Write an IPv4 address in IPv6 form (::ffff:10.0.0.2) as IPv4. */
static bool parse_peer(const char *text, char peer[PEER_TEXT_MAX])
{
    struct in6_addr v6;
    char host[INET6_ADDRSTRLEN], address[ENDPOINT_TEXT_MAX];
    unsigned words[4], port;
    const bool is_v6 = strcspn(text, ":") == 32;
    const int n = is_v6 ? sscanf(text, "%8x%8x%8x%8x:%4x", &words[0], &words[1], &words[2], &words[3], &port)
                        : sscanf(text, "%8x:%4x", &words[0], &port);
    if (n != (is_v6 ? 5 : 2))
        return false;
    memcpy(&v6, words, is_v6 ? sizeof(v6) : sizeof(words[0]));
    const bool holds_v4 = is_v6 && IN6_IS_ADDR_V4MAPPED(&v6);
    if (inet_ntop(is_v6 && !holds_v4 ? AF_INET6 : AF_INET, holds_v4 ? &words[3] : words, host,
                  sizeof(host)) == NULL)
        return false;
    snprintf(peer, PEER_TEXT_MAX, "%s", endpoint_print(host, (int)port, address));
    return true;
}

bool proc_tcp_parse(const char *line, struct unanswered *out)
{
    enum { ESTABLISHED = 1, CONNECTING = 2, SENDS_AGAIN = 1 };
    char peer[48]; /* address and port, hexadecimal */
    unsigned state, timer, times;
    unsigned long long inode;
    if (sscanf(line, " %*u: %*s %47s %x %*x:%*x %x:%*x %x %*u %*u %llu", peer, &state, &timer, &times,
               &inode) != 5 ||
        (state != ESTABLISHED && state != CONNECTING) || timer != SENDS_AGAIN || times < UNANSWERED_TIMES)
        return false;
    out->inode = inode;
    return parse_peer(peer, out->peer);
}

/* Read until the end of the file, because the size is unknown and one read returns only a part. `len` does not count
 * the NUL. */
bool procfs_read(const char *path, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const bool ok = read_whole_file(fd, FILE_MAX, out);
    close(fd);
    if (!buf_append(out, "", 1))
        return false;
    out->len--;
    return ok && out->len < FILE_MAX;
}

/* Read the beginning of a short file without allocating memory. Write "" if the file cannot be read. */
static void read_proc_file(pid_t pid, const char *file, char *to, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    (void)read_small_file(AT_FDCWD, path, to, size);
}

void procfs_line(pid_t pid, const char *file, char *to, size_t size)
{
    read_proc_file(pid, file, to, size);
    to[strcspn(to, "\n")] = '\0';
    for (char *p = to; *p != '\0'; p++)
        if (!isprint((unsigned char)*p))
            *p = '?';
}

struct signal_sender procfs_sender(int code, pid_t pid, unsigned uid)
{
    struct signal_sender sender = { .kernel = code > 0, .pid = pid, .uid = uid };
    if (!sender.kernel && pid > 0)
        procfs_line(pid, "comm", sender.name, sizeof(sender.name));
    return sender;
}

/* Read all numbers with one read, so that they are from the same moment. The longest line has less than 512 bytes. */
bool procfs_stat(pid_t pid, struct proc_stat *out)
{
    char text[512];
    read_proc_file(pid, "stat", text, sizeof(text));
    return proc_stat_parse(text, out);
}

bool procfs_in_background(pid_t pid)
{
    struct proc_stat stat;
    return procfs_stat(pid, &stat) && stat.foreground > 0 && stat.group != stat.foreground;
}

const char *procfs_boot_id(void)
{
    static char id[BOOT_ID_CHARS + 1];
    struct buf text = { 0 };
    if (id[0] == '\0' && procfs_read("/proc/sys/kernel/random/boot_id", &text) && text.len >= BOOT_ID_CHARS)
        memcpy(id, text.data, BOOT_ID_CHARS);
    buf_free(&text);
    return id;
}

/* Return the cached start time. A forked child reads its own time, because its inherited cache has the parent's
 * time. */
uint64_t procfs_own_start(void)
{
    static struct {
        pid_t pid;
        uint64_t ticks;
    } own;
    struct proc_stat stat;
    if (own.pid != getpid() && procfs_stat(getpid(), &stat)) {
        own.pid = getpid();
        own.ticks = stat.start_ticks;
    }
    return own.pid == getpid() ? own.ticks : 0;
}

/* Return true if /proc belongs to the PID namespace of this process. In the /proc of another namespace, the link
 * "self" names another pid than getpid(). */
bool procfs_is_own(void)
{
    char text[32];
    ssize_t n = readlink("/proc/self", text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return atoi(text) == (int)getpid();
}

bool procfs_in_first_namespace(enum first_namespace kind)
{
    static const struct {
        const char *link;
        ino_t first;
    } of[] = { [FIRST_PID] = { "/proc/self/ns/pid", 0xEFFFFFFC },
               [FIRST_USER] = { "/proc/self/ns/user", 0xEFFFFFFD },
               [FIRST_CGROUP] = { "/proc/self/ns/cgroup", 0xEFFFFFFB } };
    struct stat st;
    return stat(of[kind].link, &st) == 0 && st.st_ino == of[kind].first;
}

/* Return true if a process is in a PID namespace below the namespace of this process. The status file of such a
 * process lists several pids. */
static bool is_below_us(const char *pid)
{
    char path[64];
    struct buf status = { 0 };
    snprintf(path, sizeof(path), "/proc/%.32s/status", pid);
    const char *numbers = procfs_read(path, &status) ? strstr((const char *)status.data, "\nNSpid:\t") : NULL;
    const bool below = numbers == NULL || numbers[strcspn(numbers + 8, "\t\n") + 8] == '\t';
    buf_free(&status);
    return below;
}

/* Return true if process `pid` may be in PID namespace `number`. If this process is not root, return false for a
 * process of another user. If the namespace of `pid` cannot be read, check only that `pid` is in a namespace below the
 * namespace of this process. */
static bool may_live_in(int proc, const char *pid, uint64_t number)
{
    char path[64];
    struct stat st;
    if (geteuid() != 0 && (fstatat(proc, pid, &st, 0) != 0 || st.st_uid != geteuid()))
        return false;
    snprintf(path, sizeof(path), "%.32s/ns/pid", pid);
    if (fstatat(proc, path, &st, 0) == 0)
        return st.st_ino == number;
    return errno != ENOENT && errno != ESRCH && is_below_us(pid);
}

bool procfs_namespace_lives(uint64_t number)
{
    bool lives = false;
    DIR *proc = opendir("/proc");
    if (proc == NULL || !procfs_in_first_namespace(FIRST_PID))
        lives = true;
    for (struct dirent *e; !lives && (e = readdir(proc)) != NULL;)
        lives = e->d_name[0] >= '1' && e->d_name[0] <= '9' && may_live_in(dirfd(proc), e->d_name, number);
    if (proc != NULL)
        closedir(proc);
    return lives;
}
