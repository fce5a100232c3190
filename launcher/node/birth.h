/* birth.h -- a child that borrows our memory until it executes a program, born into a control group. */
#ifndef LAUNCHER_BIRTH_H
#define LAUNCHER_BIRTH_H

#include <stddef.h>
#include <sys/types.h>

/* Run `child(arg)` in a new process on `stack` (16-aligned), sharing our memory and descriptors, while we
 * wait until it executes a program or ends; it must not return. `cgroup_fd` is the directory of a group, -1
 * = ours. Returns the pid, or -1 and errno: ENOSYS when this kernel or machine cannot be asked for a group
 * at birth. */
pid_t birth(int (*child)(void *arg), void *arg, void *stack, size_t size, int cgroup_fd);

#endif
