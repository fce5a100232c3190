/* timer_table.h -- the timers that workers have set by torchrun's file timer: lines of JSON come in, and who has not
 * released one in time comes out.
 *
 *     {"version": 1, "pid": 71, "scope_id": "step", "expiration_time": 1700000000.5, "signal": 9}
 *
 * One timer for each process and scope; setting it again replaces it, a negative time releases it. Pure: the time is
 * an argument, in seconds since 1970 as in the lines. */
#ifndef LAUNCHER_TIMER_TABLE_H
#define LAUNCHER_TIMER_TABLE_H

#include "report/end_words.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TIMERS_MAX = 4096,     /* searched one by one, while the other duties of this process wait */
    TIMER_LINE_SIZE = 4096 /* PIPE_BUF: what is longer is not written in one piece */
};

struct timer_row {
    int pid;
    int signal; /* 0 or less: nobody is to be killed */
    double expires;
    char scope[TIMER_SHOWN]; /* fit to be shown; a longer one is cut */
};

/* Zeroed = empty. */
struct timer_table {
    struct timer_row *rows; /* owned */
    size_t n, room;
    char line[TIMER_LINE_SIZE]; /* what has come of the next line */
    size_t len;
    bool too_long; /* ... is left out up to its end */
};

void timer_table_free(struct timer_table *t);

/* Take what was read. Returns how many lines were no requests, or could not be kept. */
size_t timer_table_feed(struct timer_table *t, const char *bytes, size_t n);

/* When the next one runs out; false when there is none. */
bool timer_table_next(const struct timer_table *t, double *expires);

/* Take a process with a timer that has run out: *row is the earliest of them that has a signal, or the earliest. All its
 * timers are forgotten. False when there is none. */
bool timer_table_take(struct timer_table *t, double now, struct timer_row *row);

#endif
