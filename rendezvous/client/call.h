/* call.h -- declares the types and functions that the files of the store client share. The public header is
 * include/ddp/store.h. A call is a list of steps. The caller checks for a failure only once, at the end, because
 * `client_call` keeps the first failure. */
#ifndef RENDEZVOUS_CLIENT_CALL_H
#define RENDEZVOUS_CLIENT_CALL_H

#include "base/buf.h"
#include "base/endpoint.h"
#include "ddp/store.h"
#include "store/ops.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The functions of TLS for a stream. ddpctl implements these functions with auth/tls.h, because libddp contains no
 * cryptography. The caller owns the struct and `user`, and keeps both until the handle is closed. */
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

/* A connected TCP socket on which every call has a deadline.
 *
 * The socket is non-blocking. A call polls until `deadline_ms` (clock_ms), so that no peer can block the caller longer.
 * Received bytes are buffered, so a short reply costs one recv. Error texts do not contain the address of the store,
 * because the caller adds the address. */
struct client_stream {
    int fd;                       /* owned; -1 if not connected */
    const struct client_tls *tls; /* borrowed; NULL if not encrypted */
    struct buf plain, cipher; /* for TLS: `plain` has decrypted, unread bytes; `cipher` has bytes to send */
    size_t at, len;           /* in[at] to in[len - 1] were received but not read yet */
    uint8_t in[4096];
};

/* Return the time until `deadline_ms` (clock_ms) as a timeout of poll(2). Return 0 if the deadline has passed. */
int client_remaining_ms(uint64_t deadline_ms);

/* Use the connected socket `fd`, and own it. Discard bytes of an earlier socket, which the caller has closed. */
void client_stream_attach(struct client_stream *s, int fd);

/* Complete a TLS handshake on a new socket. The stream is encrypted from then on. */
ddp_status client_stream_encrypt(struct client_stream *s, const struct client_tls *tls, uint64_t deadline_ms,
                                 struct ddp_err *err);

/* Close the socket. Do nothing if it is closed already. */
void client_stream_close(struct client_stream *s);

/* A lock with a deadline. The thread that holds the lock may use the handle. pthread_mutex_clocklock would be simpler,
 * but the ThreadSanitizer of gcc 12 does not support it and reports every unlock as an error. */
struct client_turn {
    pthread_mutex_t lock; /* protects `taken`; held only for a few instructions */
    pthread_cond_t given; /* signalled when `taken` becomes false */
    bool taken;           /* a thread uses the handle */
};

void client_turn_init(struct client_turn *turn);
void client_turn_destroy(struct client_turn *turn);

/* Wait until no other thread uses the handle. Return false if another thread still uses it at the time `deadline_ms`
 * (clock_ms). */
bool client_turn_acquire(struct client_turn *turn, uint64_t deadline_ms);
void client_turn_release(struct client_turn *turn);

/* Functions that prove a secret on a new connection, and that tag the frames after the proof. ddpctl implements these
 * functions with auth/auth.h, because libddp has no secret and contains no cryptography. */
struct client_auth {
    void *user;
    /* Append the first message to `out`. Return false if memory is short. */
    bool (*greet)(void *user, struct buf *out);
    /* Check the store's answer and append the next message to `out`. Return false, with the reason in `err`, if the
     * answer is wrong. */
    bool (*prove)(void *user, struct slice answer, struct buf *out, struct ddp_err *err);
    /* Return true if `prove` has appended the final proof, which gets no answer. */
    bool (*is_proof)(void *user);
    /* Append a blob that consists of the frame and the tag of the frame. Return false if memory is short. */
    bool (*put_frame)(void *user, uint8_t kind, struct slice frame, struct buf *out);
    /* Check the tag of a received frame, and remove the tag from *frame. Return false if the tag is wrong. */
    bool (*open)(void *user, uint8_t kind, struct slice *frame);
    const struct client_tls *tls; /* borrowed; NULL if not encrypted */
};

/* A handle. Only the thread that holds the lock `turn` may use the handle. Other threads may read only the members that
 * never change: `auth`, `rank`, `timeout_ms`, `host`, `port` and `where`. Three files implement its calls:
 *
 *     client.c     the calls of PyTorch's protocol, named barriers, CONTROL
 *     connect.c    connects: finds the dialect, retries, stops at the deadline
 *     call.c       IDENTIFY; a request and its reply, with a deadline for every step that blocks */
struct ddp_store {
    const struct client_auth *auth; /* borrowed; NULL if the caller has no secret */
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
    bool has_turn; /* false if `turn` was not free before the deadline; then do not use the handle */
    bool answered; /* the failure is an answer from the store, so the connection is still usable */
};

/* Append the opcode of a request. A call may have several requests, one after the other or sent together; all have the
 * deadline of the call. Fail if the dialect of the store does not have the request. */
void client_append_op(struct client_call *c, enum op_id op);

/* Return true if no step of the call has failed. */
bool client_ok(const struct client_call *c);

/* Append a value to the request of `c`. If the value is longer than its limit in ops.h, `c` fails with DDP_ERR_LIMIT,
 * and the request is not sent. */
void client_append_u32(struct client_call *c, uint32_t value);
void client_append_i64(struct client_call *c, int64_t value);
void client_append_blob(struct client_call *c, enum field_id field, struct slice bytes);
void client_append_key(struct client_call *c, const char *key); /* appends the key with a leading '/' */
void client_append_keys(struct client_call *c, const char *const keys[], size_t n);

/* Send the request. Fail if unread bytes have already arrived: the client would read these bytes as the reply. */
void client_send(struct client_call *c);

/* Send further bytes without waiting for the reply to earlier bytes. */
void client_send_more(struct client_call *c);

/* Append the JSON of the request `op`, with a tag if the caller has a secret. */
void client_append_json(struct client_call *c, enum op_id op, const char *json);

/* Read a part of the reply. Return 0 or NULL after a failure. */
uint8_t client_read_u8(struct client_call *c);
int64_t client_read_i64(struct client_call *c);
void client_read_bytes(struct client_call *c, void *to, size_t len);

/* Read a blob of at most `limit` bytes into malloc'ed memory, with a NUL at its end. The caller frees the memory. */
void *client_read_blob(struct client_call *c, size_t limit, size_t *len);

/* Read a JSON text as client_read_blob does. If the caller has a secret, check the tag of the text, too. `kind` is the
 * status byte that the store has sent before the text, or 0 if the store has sent no status byte. The caller frees the
 * text. */
char *client_read_json(struct client_call *c, uint8_t kind);

/* Read `n` bytes as client_read_blob does. The caller has already read the length `n`. The caller frees the text. */
char *client_read_text(struct client_call *c, uint64_t n, size_t limit);

/* Clear the failure of a call that timed out before any byte of the reply arrived, and set a new deadline. The caller
 * can then use `c` to send a request that cancels the first request. */
void client_resume(struct client_call *c);

/* Resume the call (client_resume) after its WAIT has timed out, and cancel the WAIT. Return true if the store has
 * answered the WAIT before the cancellation, so the keys exist. */
bool client_cancel_wait(struct client_call *c);

/* Let the call fail with this code and text, unless the call has already failed. */
void client_fail(struct client_call *c, ddp_status code, const char *fmt, ...) DDP_PRINTF(3, 4);

/* Connect like ddp_store_connect, and prove the secret of `auth`. `auth` is NULL if the caller has no secret. Of the
 * functions in this header, only client_open accepts a NULL `err`. `auth` is borrowed until the handle is closed. */
ddp_status client_open(const char *host, int port, const ddp_store_options *options,
                       const struct client_auth *auth, ddp_store **out, struct ddp_err *err);

/* Prove the secret on a new connection, before IDENTIFY. Return DDP_ERR_MISMATCH if the store has a different
 * secret. */
ddp_status client_authenticate(struct ddp_store *store, uint64_t deadline_ms, struct ddp_err *err);

/* Connect `store`, whose host and port are set. Give up at the time `deadline_ms`. If `who` is NULL, do not send
 * IDENTIFY. Call this for the first connection of a handle, and to replace a stale connection. The caller must hold the
 * lock `turn` of the handle, or be its only user. */
ddp_status client_connect(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                          struct ddp_err *err);

/* Send IDENTIFY on a new connection. Return DDP_ERR_MISMATCH, with the reason in `err`, if the store has rejected the
 * client. Return DDP_ERR_UNSUPPORTED if the store is not ddprun's. */
ddp_status client_identify(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                           struct ddp_err *err);

#endif
