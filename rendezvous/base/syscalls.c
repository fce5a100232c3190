/* syscalls.c -- see syscalls.h. Each function uses syscall(2) even if the C library has a function, so that glibc and
 * musl run the same code. */
#include "base/syscalls.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t sys_getrandom(void *buf, size_t len, unsigned flags)
{
    return syscall(SYS_getrandom, buf, len, flags);
}

int sys_memfd_create(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}

int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

/* Pass the offset as two words, as the kernel expects. Only 32-bit machines use the second word. */
ssize_t sys_preadv2(int fd, const struct iovec *parts, int n, off_t at, int flags)
{
    return syscall(SYS_preadv2, fd, parts, n, at, 0L, flags);
}

int sys_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    return (int)syscall(SYS_renameat2, from, old, to, new, flags);
}

int sys_pidfd_open(pid_t pid, unsigned flags)
{
    return (int)syscall(SYS_pidfd_open, pid, flags);
}

int sys_pidfd_send_signal(int pidfd, int signal)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

ssize_t read_small_file(int dir, const char *path, char *text, size_t size)
{
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    const int fd = dir == AT_FDCWD ? open(path, flags) /* ThreadSanitizer does not detect openat */
                                   : openat(dir, path, flags);
    const ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n;
}

bool read_whole_file(int fd, size_t most, struct buf *out)
{
    enum { FIRST = 4 << 10, LARGEST = 64 << 10 }; /* bytes of the first read; most bytes of a later read */
    ssize_t n = 1;
    while (n > 0 && out->len < most) {
        /* Begin with few bytes, because most files in /proc are small. Unused memory costs time, because realloc
         * copies it. */
        const size_t step = out->len < FIRST ? FIRST : out->len < LARGEST ? out->len : LARGEST;
        void *to = buf_reserve(out, step);
        n = to != NULL ? read(fd, to, step) : -1;
        out->len += n > 0 ? (size_t)n : 0;
    }
    return n >= 0;
}
