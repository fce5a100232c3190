/* file_timer.h -- torchrun's file timer (TORCHELASTIC_ENABLE_FILE_TIMER=1): a FIFO where workers set timers. If a
 * worker does not release its timer in time, the owner of the FIFO kills the worker.
 * torch/distributed/elastic/timer/file_based_local_timer.py defines the format. */
#ifndef LAUNCHER_NODE_FILE_TIMER_H
#define LAUNCHER_NODE_FILE_TIMER_H

#include "ddp/error.h"
#include "report/exit_text.h"

#include <uv.h>

/* The table of timers. Workers send lines of JSON, and each line sets a timer:
 *
 *     {"version": 1, "pid": 71, "scope_id": "step", "expiration_time": 1700000000.5, "signal": 9}
 *
 * Each process has one timer per scope. A new line replaces the timer, and a negative time releases the timer. The
 * table does not read the clock: the caller passes the time, in seconds since 1970 as in the lines. */

enum {
    TIMERS_MAX = 4096,     /* limits the time of a search, which reads the whole table */
    TIMER_LINE_SIZE = 4096 /* equal to PIPE_BUF, because the kernel may split longer lines */
};

struct timer_row {
    int pid;        /* process that has set the timer; may be wrong, because any process can write any pid */
    int signal;     /* signal to send, as the worker wrote it, so it may be invalid */
    double expires; /* seconds since 1970, by the wall clock */
    /* name of the timer; control characters are replaced, longer names are cut */
    char scope[TIMER_SHOWN];
};

struct file_timer;

struct file_timer_calls {
    /* Called when a timer has expired. Any process may write any pid to the FIFO, so the owner must check that the
     * pid in the row belongs to the job. */
    void (*expired)(void *user, const struct timer_row *row);
    /* Called with a message for the user, without a newline. */
    void (*note)(void *user, const char *words);
    void *user;
};

/* Create the FIFO at `path` and read from it. An existing FIFO is replaced. Any other existing file is kept and
 * causes an error. `path` must live until file_timer_close. */
ddp_status file_timer_open(uv_loop_t *loop, const char *path, const struct file_timer_calls *calls,
                           struct file_timer **out, struct ddp_err *err);

/* Remove the FIFO and stop reading. The loop later frees the memory. NULL is allowed. */
void file_timer_close(struct file_timer *ft);

#endif
