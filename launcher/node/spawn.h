/* spawn.h -- start a worker: find its program, create a child in its control group, exec.
 *
 * A worker gets its own process group (kill(-pid) reaches it and its helpers only), SIGKILL as parent-death signal,
 * default signals, an empty signal mask, and exactly three descriptors. */
#ifndef LAUNCHER_NODE_SPAWN_H
#define LAUNCHER_NODE_SPAWN_H

#include "contain/contain.h"
#include "node/stdin.h"
#include "output/output.h"
#include "plan/plan.h"
#include "record/rank_set.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Descriptor numbers below all others of this process, which hold the three descriptors of the next worker. A worker
 * starts with our table of descriptors and keeps only its bottom, so that hundreds of pipes of its siblings need not
 * be copied and closed. */
struct proc_slots {
    int null;  /* /dev/null, which fills the slots between two starts */
    int at[3]; /* in ascending order */
};

/* Reserve them, as early as possible. False: no descriptors (errno). */
bool proc_slots_open(struct proc_slots *slots);
void proc_slots_close(struct proc_slots *slots);

struct proc_spec {
    const char *path;            /* the executed file, from proc_find */
    char *const *argv;           /* NULL-terminated */
    char *const *envp;           /* NULL-terminated */
    int fds[3];                  /* become 0, 1 and 2; stay open here */
    const struct rlimit *nofile; /* descriptor limit of the worker; NULL = as here */
    const struct rank_set *cpus; /* CPUs that it may use; NULL or empty = as here */
    int cgroup_fd;               /* directory of the control group where it is created; -1 = ours */
};

/* Return where execvp would find `program`: itself when it has a '/', else the first executable file along `path`
 * (the text of PATH; NULL = the system's default). 0: `out` holds it. Else an errno: ENOENT, EACCES (found, but not
 * executable), ENAMETOOLONG. */
int proc_find(const char *program, const char *path, char *out, size_t size);

/* Start it. Return the pid, which stays reserved until we wait for it; then *error is 0, or the reason why the worker
 * is not in its control group. Or return -1 with the reason in *error. Call it from a thread that lives as long as
 * the workers, because the parent-death signal follows the thread. */
pid_t proc_spawn(const struct proc_slots *slots, const struct proc_spec *spec, int *error);

/* --- spawner ---------------------------------------------------------------------------------------------- */

/* Starts worker N of the plan: program, environment, descriptors. */
struct spawner {
    const struct plan *plan;
    struct output *output;
    const struct contain *contain;
    struct input *input;
    struct proc_slots slots;
    struct rlimit nofile; /* the user's limit; ours is higher */
    char path[PATH_MAX];  /* the program, found at the first start; "" before */
    bool outside_noted;
    const char *failed; /* the program that could not be started, as found or as named; NULL = none */
};

/* Call it before many descriptors are open. Raises our own limit to what so many workers need. The plan is borrowed,
 * and so are `output`, `contain` and `input`, which must be set before the first start. */
ddp_status spawner_init(struct spawner *s, const struct plan *plan, struct ddp_err *err);

/* Find the program, and the script that Python shall run. Return 0 or an errno; then `failed` is the one that is
 * missing or cannot be executed. */
int spawner_find(struct spawner *s);

/* Return 0 and *pid, or an errno: ENOENT only when the program itself does not exist. */
int spawner_start(struct spawner *s, int local_rank, pid_t *pid);

void spawner_close(struct spawner *s);

#endif
