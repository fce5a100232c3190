/* patient_write.c -- see patient_write.h.
 *
 * Whoever asked for poll(2) and then writes a whole page of text may wait all the same: a pipe is called writable as soon as
 * it has room for PIPE_BUF bytes. So it gets no more at once. */
#include "output/patient_write.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

/* How much went out; 0 = not now. -1: an error, or the time is over. */
static ssize_t write_some(int fd, const char *at, size_t len, uint64_t end_ms)
{
    struct pollfd ready = { .fd = fd, .events = POLLOUT };
    const uint64_t now = clock_ms();
    const int n_ready = poll(&ready, 1, now < end_ms ? (int)(end_ms - now) : 0);
    if (n_ready == 0)
        errno = ETIMEDOUT;
    const ssize_t n = n_ready > 0 ? write(fd, at, len < PIPE_BUF ? len : PIPE_BUF) : -1;
    if (n >= 0 || (errno != EINTR && errno != EAGAIN))
        return n;
    poll(NULL, 0, 1); /* a terminal may have room for less than the next letter */
    return 0;
}

int patient_write(int fd, struct slice bytes, int unread_ms)
{
    const char *at = bytes.data;
    size_t left = bytes.len;
    uint64_t end_ms = clock_ms() + (uint64_t)unread_ms;
    while (left > 0) {
        const ssize_t n = write_some(fd, at, left, end_ms);
        if (n < 0)
            return errno;
        if (n > 0)
            end_ms = clock_ms() + (uint64_t)unread_ms;
        at += n;
        left -= (size_t)n;
    }
    return 0;
}
