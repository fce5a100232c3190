/* pace.h -- a training run whose steps wait for the test: its metrics go into a FIFO that holds a page, and a step whose line
 * finds no room there waits.
 *
 *     struct pace pace;
 *     pace_open(&pace, dir);
 *     ... start `train --metrics PACE.PATH` ...
 *     cr_assert(pace_until(&pace, "\"epoch\":2,"));       (the run is in epoch 2, and not some 30 steps further)
 *     pace_go(&pace);                                     (from here on it waits no more) */
#ifndef TESTS_LIB_PACE_H
#define TESTS_LIB_PACE_H

#include <stdbool.h>

struct pace {
    char path[256];
    int fd; /* both ends: whoever writes there never meets a FIFO without reader */
};

/* The FIFO is dir/metrics, and goes with the directory. */
void pace_open(struct pace *p, const char *dir);

/* Let it go on until its metrics say `text`, which the next call does not see again. False when it does not get there. */
bool pace_until(struct pace *p, const char *text);

/* A thread reads the rest. It lives as long as the test. */
void pace_go(struct pace *p);

#endif
