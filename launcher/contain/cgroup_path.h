/* cgroup_path.h -- where control groups are: the answers from two files of /proc, as text.
 *
 * Of the hierarchies two matter: version 2 (`v2`), and version 1's with the memory controller. */
#ifndef LAUNCHER_CGROUP_PATH_H
#define LAUNCHER_CGROUP_PATH_H

#include <stdbool.h>
#include <stddef.h>

enum { CGROUP_PATH_MAX = 4096 };

/* Where a hierarchy is mounted. */
struct cgroup_mount {
    char root[CGROUP_PATH_MAX];  /* the part of the hierarchy ... */
    char where[CGROUP_PATH_MAX]; /* ... that lies here */
    bool writable;
};

/* The next such mount in the text of /proc/self/mountinfo, of which `*mounts` is the rest. False: there are no more. */
bool cgroup_next_mount(const char **mounts, bool v2, struct cgroup_mount *m);

/* Our own group, from the text of /proc/self/cgroup. False when there is none, or its path does not fit. */
bool cgroup_own(const char *groups, bool v2, char group[CGROUP_PATH_MAX]);

/* What of `group` is left below the root of a mount: "" or "/..."; NULL when it lies outside. Borrowed from `group`. */
const char *cgroup_below(const char *group, const char *root);

/* `groups` is the text of /proc/self/cgroup, `mounts` of /proc/self/mountinfo. True: `dir` is the directory of our
 * group. False: *why says what is missing, a few words that live for ever. A mount of version 2 beside those of
 * version 1 (hybrid) is as good as any. */
bool cgroup_locate(const char *groups, const char *mounts, char dir[CGROUP_PATH_MAX], const char **why);

/* The name of the group of a job, made fit for a file name: "ddprun-<job>-<first 8 digits of the cookie>". */
enum { CGROUP_NAME_MAX = 96 };
void cgroup_name(char out[CGROUP_NAME_MAX], const char *job, const char *cookie);

/* Is it such a name? */
bool cgroup_is_name(const char *name);

/* Does a file cgroup.events say that somebody is in the group or below? */
bool cgroup_is_populated(const char *events);

#endif
