/* leftovers.h -- find the processes of a dead job by the cookie in their environment, and kill them.
 *
 * Needed when nobody is left who is their ancestor: guardian and agent were killed together. */
#ifndef LAUNCHER_LEFTOVERS_H
#define LAUNCHER_LEFTOVERS_H

#include <stdbool.h>
#include <stdint.h>

/* For what a dead agent, or a dead job, has left: long enough for the largest memory to be given back, short enough for
 * a user who waits for the prompt. */
enum { SWEEP_LIMIT_MS = 5000 };

struct leftovers {
    const char *cookie;   /* value of DDPRUN_COOKIE */
    uint64_t start_ticks; /* what was started before that cannot be the job's */
    int killed;           /* result: how many were found */
};

/* SIGKILL to all of them, and to those born meanwhile, until two looks find nobody. Only processes of this user (root:
 * of all) are looked at. False when some are still there after `limit_ms`, or this kernel has no pidfds: without them
 * a signal could hit a stranger. */
bool leftovers_kill(struct leftovers *l, uint64_t limit_ms);

/* Does the environment of `pid` (0 = of this process) have the cookie? */
bool leftovers_is_marked(int pid, const char *cookie);

#endif
