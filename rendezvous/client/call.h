/* call.h -- one request and its reply, one thread at a time.
 *
 * One thread at a time, and nobody waits longer than he said.
 *
 * A mutex with a deadline, by the monotonic clock. pthread_mutex_clocklock would be just that, but gcc 12's
 * ThreadSanitizer does not know it and takes every unlock for a mistake; so it is a mutex, a condition and a
 * flag. */
#ifndef RENDEZVOUS_CLIENT_CALL_H
#define RENDEZVOUS_CLIENT_CALL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct client_turn {
    pthread_mutex_t lock; /* held for moments only */
    pthread_cond_t given;
    bool taken;
};

void client_turn_init(struct client_turn *turn);
void client_turn_destroy(struct client_turn *turn);

/* False when somebody else has it until `deadline_ms` (clock_ms). */
bool client_turn_take(struct client_turn *turn, uint64_t deadline_ms);
void client_turn_give(struct client_turn *turn);

/* Conditions on that clock. The wait may end for no reason, as always; false when the deadline has passed. */
void client_cond_init(pthread_cond_t *cond);
bool client_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ms);

#endif
