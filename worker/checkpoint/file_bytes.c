/* file_bytes.c -- see file_bytes.h. */
#include "checkpoint/file_bytes.h"

#include <errno.h>
#include <unistd.h>

int file_write(int fd, const void *data, size_t len)
{
    const char *from = data;
    while (len > 0) {
        ssize_t n = write(fd, from, len);
        if (n < 0 && errno != EINTR)
            return -1;
        from += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

ssize_t file_read(int fd, uint64_t at, void *to, size_t len)
{
    char *into = to;
    size_t done = 0;
    while (done < len) {
        ssize_t n = pread(fd, into + done, len - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            return -1;
        if (n == 0)
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)done;
}
