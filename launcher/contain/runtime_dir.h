/* runtime_dir.h -- a directory of this user's alone, for files that live as long as a job: its record (record.h)
 * and its workers' error files. A record is named after the job's cookie, error files after its first digits.
 *
 * It is the first usable one of $XDG_RUNTIME_DIR/ddprun, /run/user/UID/ddprun, /tmp/ddprun-UID, $TMPDIR/ddprun-UID and
 * /var/tmp/ddprun-UID. It belongs to this user alone (owner, 0700, no symbolic link) and lies in a safe directory
 * (safe_dir.h), because workers open their error files there by name. It stays when jobs end: to make and
 * remove a directory on a disk takes as long as to start a worker. */
#ifndef LAUNCHER_RUNTIME_DIR_H
#define LAUNCHER_RUNTIME_DIR_H

#include <limits.h>
#include <stdbool.h>

enum { RUNTIME_DIRS = 5, RUNTIME_NAME_DIGITS = 8 };

/* The n-th of them, when it is there: a descriptor, which the caller closes. -1: it is not, or is not to be trusted. */
int runtime_dir_open(int n);

/* The one to put files into, made where it is not there yet: a descriptor, which the caller closes. -1: errno; `path` is
 * the one that was tried last. */
int runtime_dir_make(char path[PATH_MAX]);

/* Which one that would be; nothing is made. False: none. */
bool runtime_dir_find(char path[PATH_MAX]);

#endif
