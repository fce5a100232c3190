/* client.h -- shared by the files of the store client; include/ddp/store.h is the public header.
 *
 *     client.c     the calls of PyTorch's protocol, named barriers, CONTROL: each is begin, put.., send, take.., end
 *     connect.c    connect: which dialect, try again, when to stop
 *     call.c       IDENTIFY; one request and its reply, with a deadline for everything that blocks
 *
 * A `client_call` keeps its first failure, and all later steps do nothing, so that a call is a list of steps with one
 * check at the end. `err` is never NULL below the public functions. */
#ifndef RENDEZVOUS_CLIENT_CLIENT_H
#define RENDEZVOUS_CLIENT_CLIENT_H

#include "base/buf.h"
#include "base/endpoint.h"
#include "ddp/store.h"
#include "store/ops.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A connected TCP socket on which every call has a deadline.
 *
 * The socket is non-blocking; a call tries first or polls until `deadline_ms` (clock_ms), so that no peer can block
 * us longer. Received bytes go through a small buffer: a short reply costs one recv, and unrequested bytes are found
 * before the next request goes out. The text of an error does not name the peer; the caller does. */

struct client_stream {
    int fd;    /* -1: not connected */
    size_t at; /* in[at .. len) has been received and not been read yet */
    size_t len;
    uint8_t in[4096];
};

/* Return the time until `deadline_ms`, in the form for poll(2). */
int client_remaining_ms(uint64_t deadline_ms);

/* Take over a connected socket. */
void client_stream_attach(struct client_stream *s, int fd);

/* Close; allowed any number of times. */
void client_stream_close(struct client_stream *s);

/* One thread at a time, and no thread waits longer than its deadline: a mutex with a deadline by the monotonic clock.
 * pthread_mutex_clocklock would be simpler, but gcc 12's ThreadSanitizer does not support it and reports every unlock as an
 * error; so use a mutex, a condition and a flag. */
struct client_turn {
    pthread_mutex_t lock; /* held for moments only */
    pthread_cond_t given;
    bool taken;
};

void client_turn_init(struct client_turn *turn);
void client_turn_destroy(struct client_turn *turn);

/* False when another thread has it until `deadline_ms` (clock_ms). */
bool client_turn_take(struct client_turn *turn, uint64_t deadline_ms);
void client_turn_give(struct client_turn *turn);

struct ddp_store {
    struct client_turn turn; /* taken from client_begin to client_end */
    struct client_stream stream;
    struct buf out; /* the request that is being made; empty between calls */
    enum dialect dialect;
    bool ours;           /* a ddprun store that has welcomed our IDENTIFY */
    bool stale;          /* abandoned during a wait (an old server cannot cancel): reconnect first */
    bool broken;         /* out of step with the peer, permanently */
    uint32_t timeout_ms; /* deadline of calls without a timeout argument */
    int rank;            /* -1: none */
    char host[ENDPOINT_HOST_MAX];
    int port;
    char where[ENDPOINT_TEXT_MAX]; /* "host:port" for error texts */
};

struct client_call {
    struct ddp_store *store;
    enum op_id op;
    const char *subject; /* key or barrier for error texts; NULL = none; borrowed */
    uint64_t start_ms, deadline_ms;
    struct ddp_err err; /* the first failure */
    bool has_turn;      /* false: another thread's call did not end in time, so this call owns nothing */
    bool answered;      /* the failure is the store's answer, with its text; the connection is intact */
};

/* Take the turn and begin a request. timeout_ms 0 = the store's. Every begun call must be ended. The time in which
 * other threads have the store counts: a call after a long wait may time out before it begins. */
void client_begin(struct client_call *c, struct ddp_store *store, enum op_id op, const char *subject,
                  uint32_t timeout_ms);

/* Append a further request to the current one, or start one after a reply, within the same call and
 * deadline. */
void client_put_op(struct client_call *c, enum op_id op);

bool client_ok(const struct client_call *c);

/* Build the request. A size over its limit (see ops.h) is DDP_ERR_LIMIT before anything is sent. */
void client_put_u32(struct client_call *c, uint32_t value);
void client_put_i64(struct client_call *c, int64_t value);
void client_put_blob(struct client_call *c, enum field_id field, struct slice bytes);
void client_put_key(struct client_call *c, const char *key); /* with the '/' in front */
void client_put_keys(struct client_call *c, const char *const keys[], size_t n);

/* Send the request. Fails if bytes have arrived before, because they would count as the reply. */
void client_send(struct client_call *c);

/* Send further bytes while a reply is awaited. */
void client_send_more(struct client_call *c);

/* Read pieces of the reply; 0 or NULL after a failure. */
uint8_t client_take_u8(struct client_call *c);
int64_t client_take_i64(struct client_call *c);
void client_take_bytes(struct client_call *c, void *to, size_t len);

/* Read a blob of at most `limit` bytes into malloc'ed memory, with a NUL at its end; the caller frees it. */
void *client_take_blob(struct client_call *c, size_t limit, size_t *len);

/* Read `n` bytes in the same way, after their length has been read. */
char *client_take_text(struct client_call *c, uint64_t n, size_t limit);

/* The timeout has passed without a byte of the reply: clear that failure, and allow a few seconds to leave in order. */
void client_resume(struct client_call *c);

/* A WAIT has timed out: cancel it (this begins with client_resume). True if the store answered in the meantime, so
 * the keys exist. */
bool client_cancel_wait(struct client_call *c);

/* Set the call's failure if it is the first. */
void client_fail(struct client_call *c, ddp_status code, const char *fmt, ...) DDP_PRINTF(3, 4);

/* Release the turn and return the outcome: err (may be NULL) gets "store HOST:PORT: GET 'key': ..." . */
ddp_status client_end(struct client_call *c, struct ddp_err *err);

/* Connect `store` (host, port set) until `deadline_ms`; `who` NULL = do not identify. Used for the first
 * connection and for a stale one. The caller has the turn, or is the only user of the store. */
ddp_status client_connect(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                          struct ddp_err *err);

/* Send IDENTIFY on a fresh connection. DDP_ERR_MISMATCH: the store has rejected it, err has the reason.
 * DDP_ERR_UNSUPPORTED: the store is not ddprun's. */
ddp_status client_identify(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                           struct ddp_err *err);

#endif
