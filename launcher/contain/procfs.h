/* procfs.h -- small files of /proc. */
#ifndef LAUNCHER_PROCFS_H
#define LAUNCHER_PROCFS_H

#include "base/buf.h"
#include "contain/proc_stat.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The whole of a file as text in `out`, with a NUL behind its end (not counted); false when it is gone, longer than
 * 1 MiB, or memory is short. The caller frees `out` in any case. */
bool procfs_read(const char *path, struct buf *out);

/* The first line of /proc/PID/`file`, cut to `size`, with what is not printable as '?': a process may call
 * itself anything. "" when it cannot be read. */
void procfs_line(pid_t pid, const char *file, char *to, size_t size);

/* False when there is no such process. */
bool procfs_stat(pid_t pid, struct proc_stat *out);

/* Of this boot of this machine, read once; "" when /proc does not tell. The agent reads what its parent has read. */
const char *procfs_boot_id(void);

/* When this process began, read once: the kernel's start time tells it from another with its pid. 0 = not known. */
uint64_t procfs_own_start(void);

/* May a process of this user still live in the PID namespace with this number? Always true for who does not see all of them: only
 * those in the first namespace of a machine do. */
bool procfs_namespace_lives(uint64_t number);

/* False when /proc is not mounted, or its numbers are those of another PID namespace. */
bool procfs_is_ours(void);

#endif
