/* procfs.c -- see procfs.h. */
#include "contain/procfs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PART = 4096, FILE_MAX = 1 << 20 };

bool procfs_read(const char *path, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = 0;
    char *to;
    while ((to = buf_reserve(out, PART)) != NULL && out->len < FILE_MAX && (n = read(fd, to, PART - 1)) > 0)
        out->len += (size_t)n;
    close(fd);
    if (to != NULL)
        *to = '\0';
    return to != NULL && n == 0;
}

bool procfs_stat(pid_t pid, struct proc_stat *out)
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return proc_stat_parse(text, out);
}

bool procfs_is_ours(void)
{
    char text[32];
    ssize_t n = readlink("/proc/self", text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return atoi(text) == (int)getpid();
}
