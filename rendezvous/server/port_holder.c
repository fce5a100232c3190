/* port_holder.c -- see port_holder.h.
 *
 * The kernel's tables name a socket by its inode, and every process shows its descriptors as links like
 * "socket:[inode]". The second part works for our own processes only, unless we are root, which is why the words of
 * port_table.h have grades. A socket that is bound but does not listen is in no table: then nothing is known. */
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
