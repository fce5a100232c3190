/* port_holder.c -- see port_holder.h.
 *
 * The kernel's tables name a socket by its inode, and every process shows its descriptors as links like
 * "socket:[inode]". The second part works for our own processes only, unless we are root, which is why the words of
 * port_holder.h have grades. A socket that is bound but does not listen is in no table: then nothing is known. */
#include "server/port_holder.h"

#include "base/buf.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A listener and an old connection, as /proc/net/tcp shows them (addresses in the host's byte order, all in hex but the
 * uid and the inode):
 *
 *     0: 0100007F:72D8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 1 ...
 *     1: 0100007F:72D8 0100007F:C350 06 00000000:00000000 03:00000B7A 00000000     0        0 0 3 ...
 *
 * Inode 0 means that no process has it any more: the kernel waits for stray packets (TIME_WAIT). */

enum { STATE_LISTEN = 0x0a };

/* One line: "sl: LOCAL:PORT REMOTE:PORT STATE queues timer retransmissions uid timeout inode ..." */
static bool parse_line(const char *line, int *port, unsigned *state, struct port_holder *out)
{
    unsigned local_port = 0;
    int n = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %u %*s %lu", &local_port,
                   state, &out->uid, &out->inode);
    *port = (int)local_port;
    return n == 4;
}

/* The connections of a listener have its port too, and may come first; so a line is kept only until a better one. */
bool port_table_find(const char *table, int port, struct port_holder *out)
{
    *out = (struct port_holder){ 0 };
    for (const char *line = table; line != NULL && *line != '\0';) {
        struct port_holder row = { 0 };
        unsigned state;
        int row_port;
        const char *end = strchr(line, '\n');
        if (parse_line(line, &row_port, &state, &row) && row_port == port) {
            if (row.inode == 0)
                out->leftover = out->inode == 0; /* TIME_WAIT and the like */
            else if (out->inode == 0 || state == STATE_LISTEN)
                *out = row;
            if (state == STATE_LISTEN)
                break;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return out->inode != 0;
}

/* ", for 45 s", ", for 12 min", ", for 3 h"; nothing when it is not known. */
static int age_words(char *text, size_t size, long age_s)
{
    if (age_s <= 0)
        return 0;
    if (age_s < 120)
        return snprintf(text, size, ", for %ld s", age_s);
    return age_s < 7200 ? snprintf(text, size, ", for %ld min", age_s / 60)
                        : snprintf(text, size, ", for %ld h", age_s / 3600);
}

/* ", rank 1 of ddprun job k3", ", a worker of torchrun job none"; nothing when it is of no job. */
static void job_words(char *text, size_t size, const struct port_holder *h)
{
    if (h->job[0] != '\0')
        snprintf(text, size, ", %s%s of %s job %s", h->rank[0] != '\0' ? "rank " : "a worker", h->rank,
                 h->by_torchrun ? "torchrun" : "ddprun", h->job);
}

/* "redis-server (pid 812, user redis, for 3 h: redis-server *:6379)" */
static void put_process(const struct port_holder *h, char *text, size_t size)
{
    char age[40] = "", job[120] = "";
    age_words(age, sizeof(age), h->age_s);
    job_words(job, sizeof(job), h);
    snprintf(text, size, "%s (pid %d%s%s%s%s%s%s)", h->name, h->pid, h->user[0] != '\0' ? ", user " : "",
             h->user, age, job, h->command[0] != '\0' ? ": " : "", h->command);
}

/* The best that is known comes first; each line is one grade less certain. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size)
{
    if (holder->pid > 0)
        put_process(holder, text, size);
    else if (holder->inode != 0 && holder->user[0] != '\0')
        snprintf(text, size, "a process of user %s (its pid cannot be seen by this user)", holder->user);
    else if (holder->inode != 0)
        snprintf(text, size, "a process of user id %u (its pid cannot be seen by this user)", holder->uid);
    else if (holder->leftover)
        snprintf(text, size, "old connections that are still closing (a minute at most)");
    else
        snprintf(text, size, "a process that cannot be seen from here");
    return text;
}

/* --- port holder ------------------------------------------------------------------------------------------ */

/* The whole of a file of /proc, with a NUL; the caller frees `text`. */
static bool read_file(const char *path, struct buf *text)
{
    enum { STEP = 64 * 1024 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;
    while (fd >= 0 && buf_reserve(text, STEP) != NULL && (n = read(fd, text->data + text->len, STEP)) > 0)
        text->len += (size_t)n;
    if (fd >= 0)
        close(fd);
    return n == 0 && buf_append(text, "", 1);
}

static bool in_table(const char *path, int port, struct port_holder *out)
{
    struct buf text = { 0 };
    *out = (struct port_holder){ 0 };
    bool found = read_file(path, &text) && port_table_find((const char *)text.data, port, out);
    buf_free(&text);
    return found;
}

/* Does this process hold it? Of a process we may not look into the directory cannot be opened: then no. */
static bool has_socket(const char *pid, const char *link_wanted)
{
    char path[64], target[64];
    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    DIR *dir = opendir(path);
    bool found = false;
    struct dirent *entry;
    while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        found = strcmp(target, link_wanted) == 0;
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

static void name_process(struct port_holder *out)
{
    char path[64];
    struct buf text = { 0 };
    snprintf(path, sizeof(path), "/proc/%d/comm", out->pid);
    if (read_file(path, &text))
        snprintf(out->name, sizeof(out->name), "%.*s", (int)strcspn((char *)text.data, "\n"),
                 (char *)text.data);
    buf_free(&text);
}

/* Whose it is; the number stays when there is no name. */
static void name_user(struct port_holder *out)
{
    char space[1024];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(out->uid, &entry, space, sizeof(space), &found) == 0 && found != NULL)
        snprintf(out->user, sizeof(out->user), "%.31s", found->pw_name);
}

/* Words of the command line end with a NUL each. */
static void put_command(struct port_holder *out)
{
    char path[64];
    struct buf text = { 0 };
    size_t n = 0;
    snprintf(path, sizeof(path), "/proc/%d/cmdline", out->pid);
    if (read_file(path, &text))
        for (; n + 2 < text.len && n + 1 < sizeof(out->command); n++)
            out->command[n] = (char)(text.data[n] == '\0'         ? ' '
                                     : isprint(text.data[n]) != 0 ? text.data[n]
                                                                  : '?');
    out->command[n] = '\0';
    buf_free(&text);
}

/* The value of `name` ("RANK=") in the text of an environment, printable, or nothing. */
static void put_variable(const struct buf *text, const char *name, char *out, size_t size)
{
    for (size_t at = 0; at < text->len; at += strlen((char *)text->data + at) + 1)
        if (strncmp((char *)text->data + at, name, strlen(name)) == 0)
            snprintf(out, size, "%s", (char *)text->data + at + strlen(name));
    for (char *p = out; *p != '\0'; p++)
        if (isprint((unsigned char)*p) == 0)
            *p = '?';
}

/* A worker tells by its environment whose it is, also when it has outlived its launcher. ddprun's have torchrun's
 * variables as well. */
static void put_job(struct port_holder *out)
{
    char path[64];
    struct buf text = { 0 };
    snprintf(path, sizeof(path), "/proc/%d/environ", out->pid);
    if (read_file(path, &text)) {
        put_variable(&text, "TORCHELASTIC_RUN_ID=", out->job, sizeof(out->job));
        out->by_torchrun = out->job[0] != '\0';
        put_variable(&text, "RANK=", out->rank, sizeof(out->rank));
    }
    if (text.len > 0 && out->by_torchrun) {
        char job[sizeof(out->job)] = "";
        put_variable(&text, "DDPRUN_JOB=", job, sizeof(job));
        out->by_torchrun = job[0] == '\0';
    }
    buf_free(&text);
}

/* Behind the name, which may hold anything, "start" is the 20th field; in ticks since the machine came up. */
static void put_age(struct port_holder *out)
{
    char path[64];
    struct buf stat = { 0 }, uptime = { 0 };
    unsigned long long start = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", out->pid);
    if (read_file(path, &stat) && read_file("/proc/uptime", &uptime)) {
        const char *fields = strrchr((char *)stat.data, ')');
        if (fields != NULL && sscanf(fields,
                                     ") %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                     "%*s %*s %*s %llu",
                                     &start) == 1)
            out->age_s = atol((char *)uptime.data) - (long)(start / (unsigned long long)sysconf(_SC_CLK_TCK));
    }
    buf_free(&stat);
    buf_free(&uptime);
}

/* Slow (every descriptor of every process), but it is done once, on the way to an error message. */
static void find_process(struct port_holder *out)
{
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "socket:[%lu]", out->inode);
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc != NULL && out->pid == 0 && (entry = readdir(proc)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]) && has_socket(entry->d_name, wanted))
            out->pid = atoi(entry->d_name);
    if (proc != NULL)
        closedir(proc);
    if (out->pid <= 0)
        return;
    name_process(out);
    put_command(out);
    put_job(out);
    put_age(out);
}

/* A socket for IPv6 may block the port for IPv4 as well, and stands in the other table only. */
bool port_holder_find(int port, struct port_holder *out)
{
    if (!in_table("/proc/net/tcp", port, out)) {
        bool leftover = out->leftover;
        if (!in_table("/proc/net/tcp6", port, out)) {
            out->leftover |= leftover;
            return false;
        }
    }
    name_user(out);
    find_process(out);
    return true;
}

bool port_holder_of_socket(unsigned long inode, struct port_holder *out)
{
    *out = (struct port_holder){ .inode = inode };
    find_process(out);
    return out->pid > 0;
}
