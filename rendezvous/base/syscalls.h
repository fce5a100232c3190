/* syscalls.h -- system calls for which glibc 2.17 has no functions. The packages are built with glibc 2.17, so that
 * their programs start on every distribution since 2014. */
#ifndef BASE_SYSCALLS_H
#define BASE_SYSCALLS_H

#include "base/buf.h"

#include <linux/close_range.h> /* CLOSE_RANGE_ */
#include <linux/memfd.h>       /* MFD_ */
#include <linux/random.h>      /* GRND_ */
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* glibc defines these constants in stdio.h, but musl does not. linux/fs.h also defines them, but conflicts with
 * sys/mount.h. */
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1 << 0)
#define RENAME_EXCHANGE  (1 << 1)
#endif

/* Arguments, results and errno are as in the manual page of each system call. If the kernel does not have the call,
 * errno is ENOSYS. */

ssize_t sys_getrandom(void *buf, size_t len, unsigned flags);
int sys_memfd_create(const char *name, unsigned flags);
int sys_close_range(unsigned first, unsigned last, unsigned flags);
ssize_t sys_preadv2(int fd, const struct iovec *parts, int n, off_t at, int flags);
int sys_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int sys_pidfd_open(pid_t pid, unsigned flags);
int sys_pidfd_send_signal(int pidfd, int signal);

/* Read at most `size` - 1 bytes of the file `path` in the directory `dir` (or AT_FDCWD) with one read, and append a
 * NUL. Return the number of bytes, or -1 after a failure; the text is then "". One read is enough for a small file of
 * /proc or /sys. The open does not block, even if `path` names a FIFO. */
ssize_t read_small_file(int dir, const char *path, char *text, size_t size);

/* Append the bytes of `fd` to `out`, until the file ends or `out` has at least `most` bytes. The function reads up to
 * 64 KiB at a time, so `out` may get more than `most` bytes. Return false with errno after a failure. The caller owns
 * `out` and frees it in any case. */
bool read_whole_file(int fd, size_t most, struct buf *out);

#endif
