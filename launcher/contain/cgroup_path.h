/* cgroup_path.h -- where is our own control group (version 2)? The answer from two files of /proc. */
#ifndef LAUNCHER_CGROUP_PATH_H
#define LAUNCHER_CGROUP_PATH_H

#include <stdbool.h>
#include <stddef.h>

enum { CGROUP_PATH_MAX = 4096 };

/* `groups` is the text of /proc/self/cgroup, `mounts` of /proc/self/mountinfo. True: `dir` is the directory of our
 * group. False: *why says what is missing, a few words that live for ever. A mount of version 2 beside those of
 * version 1 (hybrid) is as good as any. */
bool cgroup_locate(const char *groups, const char *mounts, char dir[CGROUP_PATH_MAX], const char **why);

/* The name of the group of a job, made fit for a file name: "ddprun-<job>-<first 8 digits of the cookie>". */
enum { CGROUP_NAME_MAX = 96 };
void cgroup_name(char out[CGROUP_NAME_MAX], const char *job, const char *cookie);

/* Does a file cgroup.events say that somebody is in the group or below? */
bool cgroup_is_populated(const char *events);

#endif
