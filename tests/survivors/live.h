/* live.h -- a job in progress: its launcher, its output, and its remaining processes. */
#ifndef TESTS_SURVIVORS_LIVE_H
#define TESTS_SURVIVORS_LIVE_H

#include "cage.h"
#include "trial.h"

#include <stddef.h>
#include <sys/types.h>

enum { LIVE_TEXT = 4096 };

struct live {
    const struct trial *t;
    struct cage cage; /* opened by live_start's caller */
    pid_t launcher;
    bool ended; /* the launcher has been reaped */
    int status;
    int out;              /* pipe or terminal's master; -1: closed */
    int ready;            /* number of ready workers */
    char text[LIVE_TEXT]; /* end of the output */
    size_t len;
};

/* Start `workers` workers with `args` (program first). Return false without a descriptor or process. */
bool live_start(struct live *l, int workers, const char *const args[]);

/* Wait for an event until `until_us`. Return false when no process of the job is left. */
bool live_step(struct live *l, uint64_t until_us);

/* Process events for `us` microseconds, or until the launcher's end. */
void live_wait(struct live *l, uint64_t us);

/* Wait until no process is left. Return false at `until_us`. */
bool live_until_nobody(struct live *l, uint64_t until_us);

/* Close this end of the output: for a terminal a hang-up (SIGHUP). */
void live_hang_up(struct live *l);

#endif
