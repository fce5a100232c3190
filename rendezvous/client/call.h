/* call.h -- one request and its reply, one thread at a time.
 *
 * One thread at a time, and nobody waits longer than he said.
 *
 * A mutex with a deadline, by the monotonic clock. pthread_mutex_clocklock would be just that, but gcc 12's
 * ThreadSanitizer does not know it and takes every unlock for a mistake; so it is a mutex, a condition and a
 * flag. */
#ifndef RENDEZVOUS_CLIENT_CALL_H
#define RENDEZVOUS_CLIENT_CALL_H

#include "base/buf.h"
#include "ddp/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A connected TCP socket on which every call has a deadline.
 *
 * The socket is non-blocking; a call tries first or polls until `deadline_ms` (clock_ms), so that no peer can
 * hold us longer than we said. What comes in goes through a small buffer: a short reply costs one recv, and
 * bytes that nobody asked for are found before the next request goes out. The words of an error do not name
 * the peer; the caller does. */

struct client_stream {
    int fd;    /* -1: not connected */
    size_t at; /* in[at .. len) has been received and not been read yet */
    size_t len;
    uint8_t in[4096];
};

/* What is left until `deadline_ms`, in the form that poll(2) wants. */
int client_remaining_ms(uint64_t deadline_ms);

/* Take over a connected socket. */
void client_stream_attach(struct client_stream *s, int fd);

/* Close; allowed any number of times. */
void client_stream_close(struct client_stream *s);

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
