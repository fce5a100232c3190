/* proc.h -- find a program and start one worker.
 *
 * A worker gets: its own process group (kill(-pid) reaches its helpers, and nobody else),
 * SIGKILL as parent-death signal, default signals, an empty signal mask, three descriptors and no
 * other. */
#ifndef LAUNCHER_PROC_H
#define LAUNCHER_PROC_H

#include "contain/hurry.h"
#include "tables/rank_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Descriptor numbers below everything else that this process opens, where the three descriptors of
 * the next worker are laid down. A worker is born with our table of descriptors and keeps its bottom
 * only: it would be a waste to copy and close hundreds of pipes of its siblings. */
struct proc_slots {
    int null;  /* /dev/null, what lies in the slots between two starts */
    int at[3]; /* in ascending order */
};

/* Reserve them, as early as possible. False: no descriptors (errno). */
bool proc_slots_open(struct proc_slots *slots);
void proc_slots_close(struct proc_slots *slots);

struct proc_spec {
    const char *path;            /* what is executed, from proc_find */
    char *const *argv;           /* NULL-terminated */
    char *const *envp;           /* NULL-terminated */
    int fds[3];                  /* become 0, 1 and 2; stay open here */
    const struct rlimit *nofile; /* descriptor limit of the worker; NULL = as here */
    const struct rank_set *cpus; /* CPUs that it may use; NULL or empty = as here */
    const struct hurry *hurry;   /* the one that we may be in; NULL = none */
    int cgroup_fd;               /* directory of the control group where it is born; -1 = ours */
};

/* Where execvp would find `program`: itself when it has a '/', else the first executable file along
 * `path` (the text of PATH; NULL = the system's default). 0: `out` holds it. Else an errno: ENOENT,
 * EACCES (there, but not executable), ENAMETOOLONG. */
int proc_find(const char *program, const char *path, char *out, size_t size);

/* Start it. Returns the pid, which stays ours until we wait for it; then *error is 0, or says why the worker is not in
 * its control group. Or -1 and *error says why. Call
 * it from a thread that lives as long as the workers: the parent-death signal follows the thread. */
pid_t proc_spawn(const struct proc_slots *slots, const struct proc_spec *spec, int *error);

#endif
