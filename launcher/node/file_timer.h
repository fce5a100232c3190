/* file_timer.h -- torchrun's file timer (TORCHELASTIC_ENABLE_FILE_TIMER=1): a FIFO where workers set timers, and
 * are killed when they do not release them in time. */
#ifndef LAUNCHER_FILE_TIMER_H
#define LAUNCHER_FILE_TIMER_H

#include "node/timer_table.h"

#include "ddp/error.h"

#include <uv.h>

struct file_timer;

struct file_timer_calls {
    /* A timer has run out. Whom it names is for the owner to judge: anybody may write to the FIFO. */
    void (*expired)(void *user, const struct timer_row *row);
    /* Something for the user to know. */
    void (*note)(void *user, const char *words);
    void *user;
};

/* Make the FIFO at `path` and listen. A FIFO that is there already is replaced, anything else is left alone and an
 * error. `path` must live until file_timer_close. */
ddp_status file_timer_open(uv_loop_t *loop, const char *path, const struct file_timer_calls *calls,
                           struct file_timer **out, struct ddp_err *err);

/* Remove the FIFO and stop listening; the rest is freed by the loop. NULL is fine. */
void file_timer_close(struct file_timer *ft);

#endif
