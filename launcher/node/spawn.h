/* spawn.h -- starts a worker: finds its program, creates a child in its control group, and executes the program. A
 * worker gets its own process group, so that kill(-pid) reaches only the worker and the processes that it started. */
#ifndef LAUNCHER_NODE_SPAWN_H
#define LAUNCHER_NODE_SPAWN_H

#include "contain/contain.h"
#include "node/stdin.h"
#include "output/output.h"
#include "plan/plan.h"
#include "record/rank_set.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Three low descriptor numbers that are reserved for the descriptors of the next worker. A worker copies only the
 * lowest part of this process's descriptor table. The pipes of other workers have higher numbers, so the worker does
 * not have to copy and close them. */
struct proc_slots {
    int null;  /* descriptor of /dev/null; between two starts, the numbers in `at` also refer to /dev/null */
    int at[3]; /* the reserved descriptor numbers, in ascending order */
};

struct proc_spec {
    const char *path;  /* the file to execute */
    char *const *argv; /* NULL-terminated */
    char *const *envp; /* NULL-terminated */
    int fds[3];        /* descriptors that become 0, 1 and 2 in the worker; proc_spawn does not close the
                        * caller's copies */
    const struct rlimit *nofile; /* descriptor limit of the worker; NULL for the limit of this process */
    const struct rank_set *cpus; /* CPUs that the worker may use; NULL or empty for this process's CPUs */
    int cgroup_fd;               /* directory of the worker's control group; -1 for this process's group */
    bool keeps_library;          /* keep SHIPPED_LIBRARY_FD open for a new ddprun process */
};

/* Start a process in its own process group. All signals of the process are unblocked and have their default actions,
 * but a signal that the user ignores stays ignored. Only descriptors 0, 1 and 2 are open. If `keeps_library` is true,
 * SHIPPED_LIBRARY_FD is open, too.
 *
 * The process gets SIGKILL when the agent dies (parent-death signal). The kernel sends the parent-death signal when the
 * calling thread ends, so this thread must outlive the workers.
 *
 * Return the pid, which stays reserved until waitpid. *error is then 0, or an errno if the process could not join its
 * control group. If no process was started, return -1, with the errno in *error. */
pid_t proc_spawn(const struct proc_slots *slots, const struct proc_spec *spec, int *error);

/* --- spawner ---------------------------------------------------------------------------------------------- */

/* Data that spawner_start needs to start the workers of the plan. */
struct spawner {
    const struct plan *plan; /* borrowed, like the next three members */
    struct output *output;
    const struct contain *contain;
    struct input *input;
    struct proc_slots slots;
    struct rlimit nofile; /* the user's limit of descriptors; the limit of this process is higher */
    char path[PATH_MAX];  /* path of the program, set at the first start; "" before the first start */
    bool outside_noted;   /* the user was warned that workers are outside their control group */
    const char *failed;   /* the program that could not be started, or NULL */
};

/* Initialize `s`, and raise this process's descriptor limit. Call this while few descriptors are open, so that the
 * numbers in `slots` are low. Before the first start the caller sets `output`, `contain` and `input`. These three and
 * the plan are borrowed. */
ddp_status spawner_init(struct spawner *s, const struct plan *plan, struct ddp_err *err);

/* Find the program, and the Python script if the program is Python. Return 0. On failure, return an errno and set
 * `failed` to the file that is missing or cannot be executed. */
int spawner_find(struct spawner *s);

/* Start worker `local_rank`. Set *pid and return 0, or return an errno. ENOENT means that the program itself does not
 * exist. */
int spawner_start(struct spawner *s, int local_rank, pid_t *pid);

void spawner_close(struct spawner *s);

#endif
