/* listen_queue.c -- see listen_queue.h.
 *
 *     TcpExt: SyncookiesSent SyncookiesRecv ... ListenOverflows ListenDrops ...
 *     TcpExt: 0 0 ... 18 18 ...
 *
 * The names stand in one line and the numbers, in the same order, in the next. */
#include "server/listen_queue.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 16384 };

static bool read_text(const char *path, char text[TEXT_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n = 1;
    while (fd >= 0 && n > 0 && len < TEXT_MAX - 1) {
        n = read(fd, text + len, TEXT_MAX - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    text[len] = '\0';
    if (fd >= 0)
        close(fd);
    return len > 0;
}

/* Which word of a line it is; -1 = none of them. */
static int word_index(const char *line, size_t len, const char *name)
{
    const char *end = line + len;
    for (int i = 0; line < end; i++) {
        const size_t word = strcspn(line, " \n");
        if (word == strlen(name) && memcmp(line, name, word) == 0)
            return i;
        line += word + 1;
    }
    return -1;
}

static uint64_t number_at(const char *line, int index)
{
    for (; index > 0 && *line != '\0' && *line != '\n'; index--) {
        line += strcspn(line, " \n");
        line += *line == ' ';
    }
    return strtoull(line, NULL, 10);
}

uint64_t listen_queue_find(const char *netstat, const char *name)
{
    while (*netstat != '\0') {
        const size_t len = strcspn(netstat, "\n");
        const char *next = netstat + len + (netstat[len] == '\n');
        const int index = word_index(netstat, len, name);
        if (index > 0)
            return number_at(next, index);
        netstat = next;
    }
    return 0;
}

uint64_t listen_queue_overflows(void)
{
    char text[TEXT_MAX];
    return read_text("/proc/net/netstat", text) ? listen_queue_find(text, "ListenOverflows") : 0;
}

uint64_t listen_queue_limit(void)
{
    char text[TEXT_MAX];
    return read_text("/proc/sys/net/core/somaxconn", text) ? strtoull(text, NULL, 10) : 0;
}
