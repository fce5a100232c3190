/* sigusr1.h -- SIGUSR1 asks the ranks what they did last; `kill -USR1` of ddprun reaches all of its workers.
 *
 * Signals are the program's. So a handler is set only where SIGUSR1 would end the process: one that is there stays, and one that
 * the program sets later takes the place of ours. */
#ifndef WORKER_CORE_SIGUSR1_H
#define WORKER_CORE_SIGUSR1_H

#include <stdbool.h>

/* Who wants to hear of it: `asked` is called in the signal handler, on any thread. */
struct usr1 {
    void (*asked)(struct usr1 *usr1);
};

/* Borrowed from now on. A few can listen at once, the next ones do not hear it. */
void usr1_listen(struct usr1 *usr1);

/* No more. False when a handler that has begun does not come to its end: then what it may still use must stay. */
bool usr1_leave(struct usr1 *usr1);

#endif
