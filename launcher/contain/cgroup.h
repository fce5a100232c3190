/* cgroup.h -- control groups, version 2: make, kill, wait, remove. The kernel keeps who is in one, so
 * nobody leaves it by setsid, by forking, or by losing its parents.
 *
 * A group that was killed is never used again: on some kernels whoever is born into it dies at once, for ever. */
#ifndef LAUNCHER_CGROUP_H
#define LAUNCHER_CGROUP_H

#include "contain/cgroup_path.h"

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum { CGROUP_WHY_MAX = 160 };

/* Append the mounts of control groups at their usual places, as lines like those of /proc/self/mountinfo; false when nothing
 * is there. The kernel takes 0.1 ms to write the whole file, and a program of a millisecond feels that. Whoever does not find
 * its group by these lines asks the file: a container may have other places, or show only a part of the hierarchy there. */
bool cgroup_usual_mounts(struct buf *mounts);

/* Our own group, when groups can be made below it; nothing is made here. Else `why` says what is in the way. `groups`
 * and `mounts` are the texts of /proc/self/cgroup and /proc/self/mountinfo, "" = it cannot be read. */
bool cgroup_find(const char *groups, const char *mounts, char dir[CGROUP_PATH_MAX], char why[CGROUP_WHY_MAX]);

/* Make the group and return a descriptor of its directory; -1: errno. The caller owns the group until it closes that. EEXIST: one of that name
 * is left, and may have been killed. ENOSYS: the kernel is older than 5.14 and cannot kill a group at once. */
int cgroup_make(const char *dir);

/* SIGKILL to everybody in the group and below, as one act. False when it is gone. */
bool cgroup_kill(const char *dir);

/* How many processes are in the group and below; 0 when it is gone. */
int cgroup_count(const char *dir);

/* Wait until nobody is in it, `limit_ms` at most, and remove it with all groups below. True when it is gone. */
bool cgroup_remove(const char *dir, uint64_t limit_ms);

/* Remove the empty groups of jobs below `parent` whose owner is gone: the process that has made one and holds the descriptor
 * of cgroup_make(). */
void cgroup_sweep(const char *parent);

#endif
