/* memory_file.h -- a file in memory, for programs that try many contents. The memory is faster than a disk, and
 * nothing remains after the program. */
#ifndef TESTS_MEMORY_FILE_H
#define TESTS_MEMORY_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Write these bytes to a file in memory, and return its path. All calls use the same file. */
static inline const char *memory_file(const uint8_t *data, size_t len)
{
    static char path[32];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("input", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, len, 0) != (ssize_t)len)
        abort();
    return path;
}

#endif
