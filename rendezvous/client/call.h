/* call.h -- shared by the files of the store client; include/ddp/store.h is the public header. A call is a list of
 * steps with one check at the end, because `client_call` keeps its first failure. */
#ifndef RENDEZVOUS_CLIENT_CALL_H
#define RENDEZVOUS_CLIENT_CALL_H

#include "base/buf.h"
#include "base/endpoint.h"
#include "ddp/store.h"
#include "store/ops.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The functions of TLS for a stream. ddpctl implements them with auth/tls.h, because libddp contains no
 * cryptography. */
struct client_tls {
    void *user;
    /* Begin a new connection, and append the first message to `out`. Return false if memory is short. */
    bool (*begin)(void *user, struct buf *out);
    /* Process received bytes: append decrypted bytes to `plain`, and bytes for the peer to `out`. Return 0 during the
     * handshake and 1 after it. After a failure return -1, with the reason in `err`. */
    int (*receive)(void *user, struct slice bytes, struct buf *plain, struct buf *out, struct ddp_err *err);
    /* Append the encrypted bytes to `out`. Return false after a failure. */
    bool (*send)(void *user, struct slice plain, struct buf *out);
};

/* A connected, non-blocking TCP socket on which every call has a deadline. Received bytes are buffered, so a short
 * reply costs one recv. The caller adds the address of the store to error texts. */
struct client_stream {
    int fd;                       /* owned; -1 if not connected */
    const struct client_tls *tls; /* borrowed; NULL if not encrypted */
    struct buf plain, cipher;     /* for TLS: decrypted, unread bytes, and bytes to send */
    size_t at, len;               /* in[at] to in[len - 1] were received but not read */
    uint8_t in[4096];
};

/* Return the time until `deadline_ms` (clock_ms) as a timeout of poll(2). */
int client_remaining_ms(uint64_t deadline_ms);

/* Use the connected socket `fd`, and own it. Discard bytes of an earlier socket. */
void client_stream_attach(struct client_stream *s, int fd);

/* Complete a TLS handshake on a new socket. */
ddp_status client_stream_encrypt(struct client_stream *s, const struct client_tls *tls, uint64_t deadline_ms,
                                 struct ddp_err *err);

/* Close the socket, if it is open. */
void client_stream_close(struct client_stream *s);

/* A lock with a deadline, for the thread that uses the handle. pthread_mutex_clocklock is not used, because the
 * ThreadSanitizer of gcc 12 does not support it. */
struct client_turn {
    pthread_mutex_t lock; /* protects `taken`; held only for a few instructions */
    pthread_cond_t given; /* signalled when `taken` becomes false */
    bool taken;           /* a thread uses the handle */
};

void client_turn_init(struct client_turn *turn);
void client_turn_destroy(struct client_turn *turn);

/* Wait until no other thread uses the handle. Return false after `deadline_ms` (clock_ms). */
bool client_turn_acquire(struct client_turn *turn, uint64_t deadline_ms);
void client_turn_release(struct client_turn *turn);

/* Functions that prove a secret on a new connection, and tag the frames after the proof. ddpctl implements them with
 * auth/auth.h, because libddp has no secret. */
struct client_auth {
    void *user;
    /* Append the first message to `out`. Return false if memory is short. */
    bool (*greet)(void *user, struct buf *out);
    /* Check the store's answer and append the next message to `out`. Return false, with the reason in `err`, if the
     * answer is wrong. */
    bool (*prove)(void *user, struct slice answer, struct buf *out, struct ddp_err *err);
    /* Return true if `prove` has appended the final proof. */
    bool (*is_proof)(void *user);
    /* Append a blob of the frame and its tag. Return false if memory is short. */
    bool (*put_frame)(void *user, uint8_t kind, struct slice frame, struct buf *out);
    /* Check the tag of a received frame, and remove the tag from *frame. Return false if the tag is wrong. */
    bool (*open)(void *user, uint8_t kind, struct slice *frame);
    const struct client_tls *tls; /* borrowed; NULL if not encrypted */
};

/* A handle. Only the thread that holds the lock `turn` may use it; other threads may read `auth`, `rank`, `timeout_ms`,
 * `host`, `port` and `where`, which never change. Three files implement its calls:
 *
 *     client.c     the calls of PyTorch's protocol, named barriers, CONTROL
 *     connect.c    connects: finds the dialect, retries, stops at the deadline
 *     call.c       IDENTIFY; a request and its reply, with a deadline for every step that blocks */
struct ddp_store {
    const struct client_auth *auth; /* borrowed; NULL without a secret */
    struct client_turn turn;        /* acquired by client_begin, released by client_end */
    struct client_stream stream;
    struct buf out;       /* the request that is being built; empty between calls */
    enum dialect dialect; /* dialect of the first greeting that the store has answered */
    bool identified;      /* the store is ddprun's and has accepted IDENTIFY */
    /* The connection was closed to end a wait in dialect A. The next call connects again. */
    bool stale;
    bool broken;         /* a call has failed in the middle of a reply; all further calls fail */
    uint32_t timeout_ms; /* timeout of calls without a timeout argument */
    int rank;            /* -1 if the caller has no rank */
    char host[ENDPOINT_HOST_MAX];
    int port;
    char where[ENDPOINT_TEXT_MAX]; /* "host:port" for error texts */
};

/* A call: a list of steps (client_begin, client_append_*, client_send, client_read_*, client_end). After the first
 * failure all later steps do nothing. */
struct client_call {
    struct ddp_store *store;        /* borrowed */
    enum op_id op;                  /* the latest request, for error texts */
    const char *subject;            /* borrowed: key or barrier for error texts; NULL if none */
    uint64_t start_ms, deadline_ms; /* clock_ms */
    struct ddp_err err;             /* the first failure */
    bool has_turn;                  /* this call has the lock; otherwise do not use the handle */
    bool answered;                  /* the failure is the store's answer, so the connection is usable */
};

/* Append the opcode of a request. A call may have several requests, which share its deadline. Fail if the dialect does
 * not have the request. */
void client_append_op(struct client_call *c, enum op_id op);

/* Return true if no step of the call has failed. */
bool client_ok(const struct client_call *c);

/* Append a value to the request of `c`. Fail with DDP_ERR_LIMIT, and do not send the request, if the value exceeds its
 * limit in ops.h. */
void client_append_u32(struct client_call *c, uint32_t value);
void client_append_i64(struct client_call *c, int64_t value);
void client_append_blob(struct client_call *c, enum field_id field, struct slice bytes);
void client_append_key(struct client_call *c, const char *key); /* with a leading '/' */
void client_append_keys(struct client_call *c, const char *const keys[], size_t n);

/* Send the request. Fail if unread bytes have already arrived. */
void client_send(struct client_call *c);

/* Send further bytes without waiting for a reply. */
void client_send_more(struct client_call *c);

/* Append the JSON of the request `op`, with a tag if the caller has a secret. */
void client_append_json(struct client_call *c, enum op_id op, const char *json);

/* Read a part of the reply. Return 0 or NULL after a failure. */
uint8_t client_read_u8(struct client_call *c);
int64_t client_read_i64(struct client_call *c);
void client_read_bytes(struct client_call *c, void *to, size_t len);

/* Read a blob of at most `limit` bytes, and append a NUL. The caller frees the memory. */
void *client_read_blob(struct client_call *c, size_t limit, size_t *len);

/* Read a JSON text as client_read_blob does, and check its tag if the caller has a secret. `kind` is the status byte
 * before the text; 0: none. */
char *client_read_json(struct client_call *c, uint8_t kind);

/* Read `n` bytes as client_read_blob does. The length was already read. */
char *client_read_text(struct client_call *c, uint64_t n, size_t limit);

/* Clear the failure of a call that timed out before any byte of the reply, and set a new deadline. The caller then
 * cancels the request. */
void client_resume(struct client_call *c);

/* Resume the call (client_resume) after its WAIT has timed out, and cancel the WAIT. Return true if the WAIT was
 * answered, so the keys exist. */
bool client_cancel_wait(struct client_call *c);

/* Let the call fail with this code and text, unless it has already failed. */
void client_fail(struct client_call *c, ddp_status code, const char *fmt, ...) DDP_PRINTF(3, 4);

/* Connect like ddp_store_connect, and prove the secret of `auth` (may be NULL). Of the functions in this header, only
 * client_open accepts a NULL `err`. */
ddp_status client_open(const char *host, int port, const ddp_store_options *options,
                       const struct client_auth *auth, ddp_store **out, struct ddp_err *err);

/* Prove the secret on a new connection, before IDENTIFY. Return DDP_ERR_MISMATCH for a different secret. */
ddp_status client_authenticate(struct ddp_store *store, uint64_t deadline_ms, struct ddp_err *err);

/* Connect `store`, whose host and port are set, before `deadline_ms`. If `who` is NULL, do not send IDENTIFY. The
 * caller must hold the lock `turn`, or be the only user of the handle. */
ddp_status client_connect(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                          struct ddp_err *err);

/* Send IDENTIFY on a new connection. Return DDP_ERR_MISMATCH, with the reason in `err`, if the store has rejected the
 * client, and DDP_ERR_UNSUPPORTED if the store is not ddprun's. */
ddp_status client_identify(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                           struct ddp_err *err);

#endif
