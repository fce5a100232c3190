/* spawn.h -- start a worker: find its program, create a child in its control group, exec.
 *
 * A worker gets its own process group (kill(-pid) reaches its helpers, and no other process), SIGKILL as parent-death
 * signal, default signals, an empty signal mask, three descriptors and no other. */
#ifndef LAUNCHER_NODE_SPAWN_H
#define LAUNCHER_NODE_SPAWN_H

#include "contain/contain.h"
#include "node/stdin.h"
#include "output/output.h"
#include "plan/plan.h"
#include "base/rank_set.h"

#include <limits.h>
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

/* --- spawner ---------------------------------------------------------------------------------------------- */

/* Starts worker N of the plan: program, environment, descriptors. */
struct spawner {
    const struct plan *plan;
    struct output *output;
    const struct contain *contain;
    struct input *input;
    struct proc_slots slots;
    struct rlimit nofile; /* as the user gave it; ours is raised */
    char path[PATH_MAX];  /* the program, found at the first start; "" before */
    bool outside_noted;
    const char *failed; /* the program that could not be started, as found or as named; NULL = none */
};

/* Early, before many descriptors are open. Raises our own limit of them to what so many workers need.
 * The plan is borrowed, and so are `output`, `contain` and `input`, which must be set before the first start. */
ddp_status spawner_init(struct spawner *s, const struct plan *plan, struct ddp_err *err);

/* Look for the program, and for the script that Python is to run. Returns 0 or an errno; then `failed` is the one that is
 * missing or cannot be executed. */
int spawner_find(struct spawner *s);

/* Returns 0 and *pid, or an errno: ENOENT only when the program itself does not exist. */
int spawner_start(struct spawner *s, int local_rank, pid_t *pid);

void spawner_close(struct spawner *s);

#endif
