/* patience.c -- see patience.h. */
#include "patience.h"

#include "base/clock.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { REST_MS = 5 };

bool patience_left(struct patience *p)
{
    const uint64_t now_ms = clock_ms();
    if (p->until_ms == 0)
        p->until_ms = now_ms + PATIENCE_MS;
    if (now_ms >= p->until_ms)
        return false;
    poll(NULL, 0, REST_MS);
    return true;
}

bool patience_read(int fd, char *seen, unsigned long size, const char *text)
{
    for (size_t len = strlen(seen); strstr(seen, text) == NULL;) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        const ssize_t n = poll(&wait, 1, PATIENCE_MS) == 1 ? read(fd, seen + len, size - 1 - len) : 0;
        if (n <= 0)
            return false;
        len += (size_t)n;
        seen[len] = '\0';
    }
    return true;
}
