/* file_head.c -- see file_head.h. */
#include "report/file_head.h"

#include <fcntl.h>
#include <unistd.h>

/* O_NONBLOCK: a FIFO by that name has no writer, and would hold us for ever. */
struct slice file_head(const char *path, char *bytes, size_t size)
{
    size_t len = 0;
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (fd >= 0 && len < size && (n = read(fd, bytes + len, size - len)) > 0)
        len += (size_t)n;
    if (fd >= 0)
        close(fd);
    return slice_of(bytes, len);
}
