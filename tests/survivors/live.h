/* live.h -- a job in progress: its launcher, its output, and its remaining processes. The program of the trial
 * adopts orphans, so it detects every process that remains, whatever the name of the process. */
#ifndef TESTS_SURVIVORS_LIVE_H
#define TESTS_SURVIVORS_LIVE_H

#include "cage.h"
#include "trial.h"

#include <stddef.h>
#include <sys/types.h>

enum { LIVE_TEXT = 4096 };

struct live {
    const struct trial *t;
    struct cage cage; /* opened by the caller of live_start */
    pid_t launcher;
    bool ended; /* the launcher has been reaped */
    int status;
    int out;              /* output of the job: a pipe, or the master of its terminal; -1 = closed */
    int ready;            /* number of workers that are ready */
    char text[LIVE_TEXT]; /* last part of the job's output */
    size_t len;
};

/* Start `workers` workers with `args` (program first). Return false if no descriptor or process is available. */
bool live_start(struct live *l, int workers, const char *const args[]);

/* Wait for the next event, at most until `until_us`. Return false when no process of the job is left. */
bool live_step(struct live *l, uint64_t until_us);

/* Process the events of the next `us` microseconds. Return earlier if the launcher ends. */
void live_wait(struct live *l, uint64_t us);

/* Wait until no process of the job is left, at most until `until_us`. Return false if a process is still left. */
bool live_until_nobody(struct live *l, uint64_t until_us);

/* Close this end of the job's output. If the output is a terminal, this is a hang-up (SIGHUP). */
void live_hang_up(struct live *l);

#endif
