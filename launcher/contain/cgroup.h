/* cgroup.h -- control groups, version 2: create, kill, wait, remove. The kernel keeps their members, so no process
 * leaves one by setsid, by forking, or by losing its parents.
 *
 * A group that was killed is never used again, because on some kernels every process created in it dies at once. */
#ifndef LAUNCHER_CONTAIN_CGROUP_H
#define LAUNCHER_CONTAIN_CGROUP_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where control groups are, from the text of two files of /proc. Two hierarchies matter: version 2 (`v2`), and
 * version 1's with the memory controller. */

enum { CGROUP_PATH_MAX = 4096 };

/* The mount point of a hierarchy. */
struct cgroup_mount {
    char root[CGROUP_PATH_MAX];  /* the part of the hierarchy ... */
    char where[CGROUP_PATH_MAX]; /* ... that lies here */
    bool writable;
};

/* Return the next such mount in the text of /proc/self/mountinfo, of which `*mounts` is the rest. False: there are no
 * more. */
bool cgroup_next_mount(const char **mounts, bool v2, struct cgroup_mount *m);

/* Copy our own group, from the text of /proc/self/cgroup. False without one, or if its path does not fit. */
bool cgroup_own(const char *groups, bool v2, char group[CGROUP_PATH_MAX]);

/* Return the part of `group` below the root of a mount: "" or "/..."; NULL when it is outside. Borrowed from `group`. */
const char *cgroup_below(const char *group, const char *root);

/* `groups` is the text of /proc/self/cgroup, `mounts` of /proc/self/mountinfo. True: `dir` is the directory of our
 * group. False: *why is a static text with the reason. A mount of version 2 beside those of version 1 (hybrid) will
 * do. */
bool cgroup_locate(const char *groups, const char *mounts, char dir[CGROUP_PATH_MAX], const char **why);

/* Write the name of a job's group, which is a valid file name: "ddprun-<job>-<first 8 digits of the cookie>". */
enum { CGROUP_NAME_MAX = 96 };
void cgroup_name(char out[CGROUP_NAME_MAX], const char *job, const char *cookie);

/* True if it is such a name. */
bool cgroup_is_name(const char *name);

/* True if a file cgroup.events shows a process in the group or below. */
bool cgroup_is_populated(const char *events);

enum { CGROUP_WHY_MAX = 160 };

/* Append the mounts of control groups at their usual places, as lines like those of /proc/self/mountinfo; false
 * without one. The kernel takes 0.1 ms to write the whole file, which matters to a program of a millisecond. If these
 * lines do not contain the group, read the file: a container may have other places, or show only a part of the
 * hierarchy there. */
bool cgroup_usual_mounts(struct buf *mounts);

/* Find our own group, if groups can be created below it; creates nothing. Otherwise `why` has the obstacle. `groups`
 * and `mounts` are the texts of /proc/self/cgroup and /proc/self/mountinfo, "" = unreadable. */
bool cgroup_find(const char *groups, const char *mounts, char dir[CGROUP_PATH_MAX], char why[CGROUP_WHY_MAX]);

/* Create the group and return a descriptor of its directory; -1: errno. The caller owns the group until it closes
 * that. EEXIST: one of that name exists, and may have been killed. ENOSYS: the kernel is older than 5.14 and cannot
 * kill a group at once. */
int cgroup_make(const char *dir);

/* Send SIGKILL to all processes in the group and below, atomically. False when the group is gone. */
bool cgroup_kill(const char *dir);

/* Return how many processes are in the group and below; 0 when it is gone. */
int cgroup_count(const char *dir);

/* Wait until it is empty, for at most `limit_ms`, and remove it with all groups below. True when it is gone. */
bool cgroup_remove(const char *dir, uint64_t limit_ms);

/* Remove the empty groups of jobs below `parent` whose owner is gone: the process that created one and holds the
 * descriptor of cgroup_make(). */
void cgroup_sweep(const char *parent);

#endif
