/* spawner.h -- start worker N of the plan: program, environment, descriptors. */
#ifndef LAUNCHER_SPAWNER_H
#define LAUNCHER_SPAWNER_H

#include "contain/contain.h"
#include "node/input.h"
#include "node/proc.h"
#include "output/output.h"
#include "plan/plan.h"

#include <limits.h>
#include <sys/resource.h>
#include <sys/types.h>

struct spawner {
    const struct plan *plan;
    struct output *output;
    const struct contain *contain;
    struct input *input;
    const struct hurry *hurry;
    struct proc_slots slots;
    struct rlimit nofile; /* as the user gave it; ours is raised */
    char path[PATH_MAX];  /* the program, found at the first start; "" before */
    bool outside_noted;
    const char *failed; /* the program that could not be started, as found or as named; NULL = none */
};

/* Early, before many descriptors are open. Raises our own limit of them to what so many workers need.
 * The plan is borrowed, and so are `output`, `contain`,
 * `input` and `hurry`, which must be set before the first start. */
ddp_status spawner_init(struct spawner *s, const struct plan *plan, struct ddp_err *err);

/* Look for the program, and for the script that Python is to run. Returns 0 or an errno; then `failed` is the one that is
 * missing or cannot be executed. */
int spawner_find(struct spawner *s);

/* Returns 0 and *pid, or an errno: ENOENT only when the program itself does not exist. */
int spawner_start(struct spawner *s, int local_rank, pid_t *pid);

void spawner_close(struct spawner *s);

#endif
