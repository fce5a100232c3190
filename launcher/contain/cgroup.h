/* cgroup.h -- control groups, version 2: create, kill, wait, remove. The kernel keeps the list of a group's processes.
 * So no process leaves the group by setsid or fork, or when its parent dies. */
#ifndef LAUNCHER_CONTAIN_CGROUP_H
#define LAUNCHER_CONTAIN_CGROUP_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Parsing of /proc/self/cgroup and /proc/self/mountinfo. If `v1` is NULL, the functions use the hierarchy of version 2.
 * Otherwise they use the hierarchy of version 1 that has the controller `v1`, for example "memory". */

enum { CGROUP_PATH_MAX = 4096 };

/* The mount point of a hierarchy. */
struct cgroup_mount {
    char root[CGROUP_PATH_MAX];  /* path of the mounted group in the hierarchy */
    char where[CGROUP_PATH_MAX]; /* path of the mount point */
    bool writable;               /* false if mounted read-only */
};

/* Find the next mount of control groups in `*mounts`, the unread rest of the text of /proc/self/mountinfo. Return
 * false if no mount is left. */
bool cgroup_next_mount(const char **mounts, const char *v1, struct cgroup_mount *m);

/* Copy the path of this process's own group out of the text of /proc/self/cgroup. Return false if the process has no
 * group, or if the path does not fit. */
bool cgroup_own(const char *groups, const char *v1, char group[CGROUP_PATH_MAX]);

/* Return the part of `group` below the root of a mount: "" or "/...". Return NULL if `group` is outside the mount.
 * The result points into `group`. */
const char *cgroup_below(const char *group, const char *root);

/* Write the name of a job's group. The name is a valid file name: "ddprun-<job>-<first 8 digits of the cookie>". */
enum { CGROUP_NAME_MAX = 96 };
void cgroup_name(char out[CGROUP_NAME_MAX], const char *job, const char *cookie);

enum { CGROUP_WHY_MAX = 160 }; /* bytes of a reason, with the NUL */

/* Append the mounts of control groups that are at the usual places, in the format of /proc/self/mountinfo. Return false
 * if no such mount exists. The caller then reads mountinfo. The caller also reads mountinfo if cgroup_find fails with
 * these mounts. The caller does not begin with mountinfo, because reading mountinfo takes 0.1 ms. */
bool cgroup_usual_mounts(struct buf *mounts);

/* Find this process's own group, and check that groups can be created below it. If this is not possible, return false
 * and write the reason to `why`. `groups` and `mounts` are the texts of /proc/self/cgroup and /proc/self/mountinfo. A
 * text is "" if its file cannot be read. */
bool cgroup_find(const char *groups, const char *mounts, char dir[CGROUP_PATH_MAX], char why[CGROUP_WHY_MAX]);

/* Create the group for cgroup_make(). Until cgroup_make() owns the group, cgroup_sweep() may remove it. Return false
 * and set errno on failure. */
bool cgroup_create(const char *dir);

/* Create the group and return a descriptor of its directory. If `is_created` is true, use the group that
 * cgroup_create() has created. The caller owns the group until the caller closes this descriptor. On failure, return
 * -1 and set errno. EEXIST means that another group of this name exists. This group is not reused, because a kill that
 * is meant for an earlier attempt could also hit the new workers. ENOSYS means that the kernel is older than Linux
 * 5.14 and cannot kill a group in one step. */
int cgroup_make(const char *dir, bool is_created);

/* Send SIGKILL in one step to all processes in the group and in all groups below it. A killed group is never used
 * again, because some kernels kill every new process in such a group. Return false if the group does not exist. */
bool cgroup_kill(const char *dir);

/* Return the number of processes in the group and in all groups below it, or 0 if the group does not exist. */
int cgroup_count(const char *dir);

/* Wait at most `limit_ms` until the group is empty, then remove the group and all groups below it. Return true if the
 * group no longer exists. */
bool cgroup_remove(const char *dir, uint64_t limit_ms);

/* Remove the empty groups below `parent` whose owner is gone. The owner of a group is the process that holds the
 * descriptor of cgroup_make(). */
void cgroup_sweep(const char *parent);

#endif
