/* client_turn.c -- see client_turn.h.
 *
 * The mutex guards only the flag and is held for a few instructions, also by threads that wait: a condition
 * gives it back while they sleep. The turn itself may be held for minutes, by a thread that waits for a
 * key. */
#include "client/client_turn.h"

#include <time.h>

/* By default a condition counts wall-clock time; setting the clock back would stretch every deadline. */
void client_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

bool client_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ms)
{
    const struct timespec until = { .tv_sec = (time_t)(deadline_ms / 1000),
                                    .tv_nsec = (long)(deadline_ms % 1000) * 1000000 };
    return pthread_cond_timedwait(cond, lock, &until) == 0;
}

void client_turn_init(struct client_turn *turn)
{
    pthread_mutex_init(&turn->lock, NULL);
    client_cond_init(&turn->given);
    turn->taken = false;
}

void client_turn_destroy(struct client_turn *turn)
{
    pthread_cond_destroy(&turn->given);
    pthread_mutex_destroy(&turn->lock);
}

bool client_turn_take(struct client_turn *turn, uint64_t deadline_ms)
{
    bool in_time = true;
    pthread_mutex_lock(&turn->lock);
    while (turn->taken && in_time)
        in_time = client_cond_wait(&turn->given, &turn->lock, deadline_ms);
    const bool mine = !turn->taken; /* even when it was given in the very moment of the deadline */
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
    return mine;
}

/* One is woken: only one can have it. Who took the turn in between, without waiting, is no harm: the woken one looks at
 * the flag again. */
void client_turn_give(struct client_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->taken = false;
    pthread_cond_signal(&turn->given);
    pthread_mutex_unlock(&turn->lock);
}
