/* call.c -- one request and its reply; see call.h.
 *
 * Only the thread that holds the lock of a handle (struct client_turn) may use the handle. A thread may hold this lock
 * for minutes while it waits for a key. */

#include "base/clock.h"
#include "client/call.h"
#include "store/encode.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Errors of the functions of a stream:
 *
 *     DDP_ERR_CLOSED     the peer has closed or reset the connection
 *     DDP_ERR_TIMEOUT    the peer does not answer, or does not read, before the deadline
 *     DDP_ERR_IO         another error of the network */

int client_remaining_ms(uint64_t deadline_ms)
{
    uint64_t now = clock_ms();
    if (deadline_ms <= now)
        return 0;
    return deadline_ms - now > INT_MAX ? INT_MAX : (int)(deadline_ms - now);
}

void client_stream_attach(struct client_stream *s, int fd)
{
    s->fd = fd;
    s->at = s->len = 0;
    s->tls = NULL;
    s->plain.len = 0;
}

void client_stream_close(struct client_stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    client_stream_attach(s, -1);
    buf_free(&s->plain);
    buf_free(&s->cipher);
}

/* Fail because the connection is broken. `error` is an errno, or 0 if the peer has closed the connection. */
static ddp_status fail_broken(int error, struct ddp_err *err)
{
    if (error == 0)
        return ddp_fail(err, DDP_ERR_CLOSED, "the peer closed the connection");
    if (error == ECONNRESET || error == EPIPE)
        return ddp_fail(err, DDP_ERR_CLOSED, "the peer reset the connection");
    return ddp_fail(err, DDP_ERR_IO, "the connection failed: %s", strerror(error));
}

/* Wait until the socket can be read or written, or until the deadline passes. */
static ddp_status await(const struct client_stream *s, short events, uint64_t deadline_ms,
                        struct ddp_err *err)
{
    struct pollfd p = { s->fd, events, 0 };
    for (;;) {
        int n = poll(&p, 1, client_remaining_ms(deadline_ms));
        if (n > 0)
            return DDP_OK;
        if (n < 0 && errno != EINTR)
            return fail_broken(errno, err);
        if (clock_ms() >= deadline_ms)
            return ddp_fail(err, DDP_ERR_TIMEOUT, "the peer did not answer in time");
    }
}

/* Return true if the caller must repeat a system call, because the call would have blocked or was interrupted by a
 * signal. */
static bool try_again(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Send all of `bytes` before the deadline, without encryption. */
static ddp_status stream_write(struct client_stream *s, struct slice bytes, uint64_t deadline_ms,
                               struct ddp_err *err)
{
    const uint8_t *from = bytes.data;
    for (size_t sent = 0; sent < bytes.len;) {
        /* MSG_NOSIGNAL, because a library must not raise SIGPIPE */
        ssize_t n = send(s->fd, from + sent, bytes.len - sent, MSG_NOSIGNAL);
        if (n >= 0)
            sent += (size_t)n;
        else if (!try_again(n))
            return fail_broken(errno, err);
        else if (await(s, POLLOUT, deadline_ms, err) != DDP_OK)
            return err->code;
    }
    return DDP_OK;
}

/* Encrypt `bytes` if the stream uses TLS, and send all of them before the deadline. */
static ddp_status client_stream_send(struct client_stream *s, struct slice bytes, uint64_t deadline_ms,
                                     struct ddp_err *err)
{
    if (s->tls == NULL)
        return stream_write(s, bytes, deadline_ms, err);
    s->cipher.len = 0;
    if (!s->tls->send(s->tls->user, bytes, &s->cipher))
        return ddp_fail(err, DDP_ERR_IO, "cannot encrypt a request");
    return stream_write(s, buf_slice(&s->cipher), deadline_ms, err);
}

/* Receive bytes into the empty input buffer. Poll before recv, because the reply to a new request has usually not
 * arrived yet, and recv would fail. */
static ddp_status stream_receive(struct client_stream *s, uint64_t deadline_ms, struct ddp_err *err)
{
    ssize_t n;
    do {
        if (await(s, POLLIN, deadline_ms, err) != DDP_OK)
            return err->code;
        n = recv(s->fd, s->in, sizeof(s->in), 0);
    } while (try_again(n));
    if (n <= 0)
        return fail_broken(n == 0 ? 0 : errno, err);
    s->at = 0;
    s->len = (size_t)n;
    return DDP_OK;
}

/* Pass the received bytes to TLS, and empty the input buffer. Set *state to the result of client_tls.receive. If TLS
 * has failed, still send its alert to the peer. Report the failure of TLS, even if the alert cannot be sent. */
static ddp_status stream_decrypt(struct client_stream *s, const struct client_tls *tls, uint64_t deadline_ms,
                                 int *state, struct ddp_err *err)
{
    s->cipher.len = 0;
    *state = tls->receive(tls->user, slice_of(s->in, s->len), &s->plain, &s->cipher, err);
    s->at = s->len = 0;
    const struct ddp_err why = *err;
    if (s->cipher.len > 0 && stream_write(s, buf_slice(&s->cipher), deadline_ms, err) != DDP_OK &&
        *state >= 0)
        return err->code;
    if (*state < 0)
        *err = why;
    return *state < 0 ? err->code : DDP_OK;
}

/* Fill the empty input buffer with received bytes. If the stream uses TLS, decrypt them. */
static ddp_status stream_fill(struct client_stream *s, uint64_t deadline_ms, struct ddp_err *err)
{
    int state;
    if (s->tls == NULL)
        return stream_receive(s, deadline_ms, err);
    while (s->plain.len == 0)
        if (stream_receive(s, deadline_ms, err) != DDP_OK ||
            stream_decrypt(s, s->tls, deadline_ms, &state, err) != DDP_OK)
            return err->code;
    s->len = s->plain.len < sizeof(s->in) ? s->plain.len : sizeof(s->in);
    memcpy(s->in, s->plain.data, s->len);
    buf_consume(&s->plain, s->len);
    s->at = 0;
    return DDP_OK;
}

ddp_status client_stream_encrypt(struct client_stream *s, const struct client_tls *tls, uint64_t deadline_ms,
                                 struct ddp_err *err)
{
    int state = 0;
    s->cipher.len = 0;
    if (!tls->begin(tls->user, &s->cipher))
        return ddp_fail(err, DDP_ERR_NOMEM, "cannot begin TLS: out of memory");
    if (stream_write(s, buf_slice(&s->cipher), deadline_ms, err) != DDP_OK)
        return err->code;
    while (state == 0)
        if (stream_receive(s, deadline_ms, err) != DDP_OK ||
            stream_decrypt(s, tls, deadline_ms, &state, err) != DDP_OK)
            return err->code;
    s->tls = tls;
    return DDP_OK;
}

/* Read exactly `len` bytes. If DDP_ERR_TIMEOUT ends the read in the middle, the bytes that were read are lost. Large
 * values pass through the input buffer, too. This costs a copy, but a second way to read is not needed. */
static ddp_status client_stream_read(struct client_stream *s, void *to, size_t len, uint64_t deadline_ms,
                                     struct ddp_err *err)
{
    for (size_t have = 0; have < len;) {
        if (s->at == s->len && stream_fill(s, deadline_ms, err) != DDP_OK)
            return err->code;
        size_t n = s->len - s->at < len - have ? s->len - s->at : len - have;
        memcpy((uint8_t *)to + have, s->in + s->at, n);
        s->at += n;
        have += n;
    }
    return DDP_OK;
}

/* Check, before a request is sent, that no bytes have arrived. The client would read such bytes as the reply, so they
 * are an error (DDP_ERR_CORRUPT). Return DDP_ERR_CLOSED if the peer has closed the connection. TLS messages without
 * data, such as close_notify, are allowed. */
static ddp_status client_stream_check_quiet(struct client_stream *s, uint64_t deadline_ms,
                                            struct ddp_err *err)
{
    int state;
    while (s->at == s->len && s->plain.len == 0) {
        ssize_t n = recv(s->fd, s->in, sizeof(s->in), MSG_DONTWAIT);
        if (try_again(n))
            return DDP_OK;
        if (n <= 0)
            return fail_broken(n == 0 ? 0 : errno, err);
        s->at = 0;
        s->len = (size_t)n;
        if (s->tls != NULL && stream_decrypt(s, s->tls, deadline_ms, &state, err) != DDP_OK)
            return err->code;
    }
    return ddp_fail(err, DDP_ERR_CORRUPT, "unexpected bytes (%zu) arrived before the request was sent",
                    s->len - s->at + s->plain.len);
}

/* Initialize a condition variable with the monotonic clock, so that a change of the wall clock does not move a
 * deadline. */
static void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

/* Wait until another thread signals `cond`. Return false after the deadline. */
static bool cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ms)
{
    const struct timespec until = { .tv_sec = (time_t)(deadline_ms / 1000),
                                    .tv_nsec = (long)(deadline_ms % 1000) * 1000000 };
    return pthread_cond_timedwait(cond, lock, &until) == 0;
}

void client_turn_init(struct client_turn *turn)
{
    pthread_mutex_init(&turn->lock, NULL);
    cond_init(&turn->given);
    turn->taken = false;
}

void client_turn_destroy(struct client_turn *turn)
{
    pthread_cond_destroy(&turn->given);
    pthread_mutex_destroy(&turn->lock);
}

bool client_turn_acquire(struct client_turn *turn, uint64_t deadline_ms)
{
    bool in_time = true;
    pthread_mutex_lock(&turn->lock);
    while (turn->taken && in_time)
        in_time = cond_wait(&turn->given, &turn->lock, deadline_ms);
    const bool mine = !turn->taken; /* even after the deadline, acquire the lock if it is free now */
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
    return mine;
}

/* Release the lock. Wake only one thread, because only one thread can hold the lock. If a third thread acquires the
 * lock first, the woken thread waits again. */
void client_turn_release(struct client_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->taken = false;
    pthread_cond_signal(&turn->given);
    pthread_mutex_unlock(&turn->lock);
}

/* --- client call ------------------------------------------------------------------------------------------ */

/* A request and its reply: check, encode, send, read.
 *
 * client_begin (client.c) appends the opcode to store->out, and client_append_* append the fields. client_send sends
 * store->out with one system call. client_read_* read the reply piece by piece. A GET of key 'x':
 *
 *     -> 02  02 00 00 00 00 00 00 00  2f 78                  opcode, length of the key, "/x"
 *     <- 03 00 00 00 00 00 00 00  61 62 63                   length of the value, "abc"
 *
 * A reply does not begin with its total length. If a call stops in the middle of a reply, the next call would read the
 * rest as its own reply. So a failure after the first sent byte makes the handle permanently unusable. The only
 * exception is a wait that could be cancelled. */

_Static_assert(DDP_STORE_MAX_KEY == WIRE_MAX_KEY && DDP_STORE_MAX_VALUE == WIRE_MAX_VALUE &&
                   DDP_STORE_MAX_KEYS == WIRE_MAX_KEYS,
               "the limits in store.h differ from the limits in ops.h");

enum {
    CANCEL_MS = 5000, /* timeout of CANCEL_WAIT; a timeout makes the handle unusable */
};

/* --- failures ------------------------------------------------------------------------------------------- */

bool client_ok(const struct client_call *c)
{
    return c->err.code == DDP_OK;
}

/* Record the first failure. Ignore a later failure, because it is only a consequence of the first. */
void client_fail(struct client_call *c, ddp_status code, const char *fmt, ...)
{
    va_list ap;
    if (!client_ok(c))
        return;
    va_start(ap, fmt);
    c->err.code = code;
    vsnprintf(c->err.msg, sizeof(c->err.msg), fmt, ap);
    va_end(ap);
}

/* Fail the call if `ok` is false: memory was short while the request was built. */
static void check_built(struct client_call *c, bool ok)
{
    if (!ok)
        client_fail(c, DDP_ERR_NOMEM, "out of memory for a request of over %zu bytes", c->store->out.len);
}

void client_append_op(struct client_call *c, enum op_id op)
{
    const int16_t code = op_table[op].code[c->store->dialect];
    if (!client_ok(c))
        return;
    c->op = op;
    if (code < 0)
        client_fail(c, DDP_ERR_UNSUPPORTED,
                    "the store of a PyTorch older than 2.1 does not support this request; update PyTorch");
    else
        check_built(c, append_u8(&c->store->out, (uint8_t)code));
}

/* --- the request ---------------------------------------------------------------------------------------- */

void client_append_u32(struct client_call *c, uint32_t value)
{
    check_built(c, !client_ok(c) || append_u32(&c->store->out, value));
}

void client_append_i64(struct client_call *c, int64_t value)
{
    check_built(c, !client_ok(c) || append_i64(&c->store->out, value));
}

void client_append_blob(struct client_call *c, enum field_id field, struct slice bytes)
{
    if (bytes.data == NULL && bytes.len > 0)
        client_fail(c, DDP_ERR_ARG, "the pointer to a value of %zu bytes is NULL", bytes.len);
    if (bytes.len > field_table[field].limit)
        client_fail(c, DDP_ERR_LIMIT, "the %s has %zu bytes: expected at most %u", field_table[field].text,
                    bytes.len, field_table[field].limit);
    check_built(c, !client_ok(c) || append_blob(&c->store->out, bytes));
}

/* Append '/' and the key. PyTorch's clients also send the '/', so clients of PyTorch and libddp share keys. */
void client_append_key(struct client_call *c, const char *key)
{
    struct buf *out = &c->store->out;
    const size_t len = key != NULL ? strlen(key) + 1 : 0;
    if (key == NULL)
        client_fail(c, DDP_ERR_ARG, "a key is NULL");
    if (len > WIRE_MAX_KEY)
        client_fail(c, DDP_ERR_LIMIT, "the key has %zu bytes: expected at most %u", len - 1,
                    WIRE_MAX_KEY - 1);
    check_built(c, !client_ok(c) ||
                       (append_u64(out, len) && append_u8(out, '/') && buf_append(out, key, len - 1)));
}

/* Append the number of keys, then every key as a blob. */
void client_append_keys(struct client_call *c, const char *const keys[], size_t n)
{
    if (n > WIRE_MAX_KEYS)
        client_fail(c, DDP_ERR_LIMIT, "the list has %zu keys: expected at most %u", n, WIRE_MAX_KEYS);
    if (keys == NULL && n > 0)
        client_fail(c, DDP_ERR_ARG, "the list of keys is NULL");
    check_built(c, !client_ok(c) || append_u64(&c->store->out, n));
    for (size_t i = 0; i < n && client_ok(c); i++)
        client_append_key(c, keys[i]);
}

void client_send_more(struct client_call *c)
{
    struct ddp_store *s = c->store;
    if (!client_ok(c))
        return;
    if (client_stream_send(&s->stream, buf_slice(&s->out), c->deadline_ms, &c->err) != DDP_OK)
        s->broken = true;
    s->out.len = 0;
}

/* Check that no bytes have arrived, then send the request. The check costs one recv, and also detects a closed
 * connection. Without the check, a SET on a closed connection would seem to succeed, because SET has no reply. */
void client_send(struct client_call *c)
{
    if (client_ok(c) && client_stream_check_quiet(&c->store->stream, c->deadline_ms, &c->err) != DDP_OK)
        c->store->broken = true;
    client_send_more(c);
}

/* --- the reply ------------------------------------------------------------------------------------------ */

/* Read the next part of the reply, or zeros after a failure. A failure sets `broken`, because a later call could
 * receive the rest of this reply. */
void client_read_bytes(struct client_call *c, void *to, size_t len)
{
    if (client_ok(c) && client_stream_read(&c->store->stream, to, len, c->deadline_ms, &c->err) != DDP_OK)
        c->store->broken = true;
    if (!client_ok(c))
        memset(to, 0, len);
}

uint8_t client_read_u8(struct client_call *c)
{
    uint8_t value;
    client_read_bytes(c, &value, sizeof(value));
    return value;
}

int64_t client_read_i64(struct client_call *c)
{
    uint8_t le[8];
    client_read_bytes(c, le, sizeof(le));
    return (int64_t)get_u64(le);
}

/* Allocate `n` bytes and a NUL. `n` is the length that the peer has sent. Fail if `n` exceeds `limit`, because a
 * store never sends a longer reply. */
static char *room_for(struct client_call *c, uint64_t n, size_t limit)
{
    char *data = n <= limit ? malloc(n + 1) : NULL;
    if (n > limit)
        client_fail(c, DDP_ERR_CORRUPT, "the reply announces %llu bytes: expected at most %zu",
                    (unsigned long long)n, limit);
    else if (data == NULL)
        client_fail(c, DDP_ERR_NOMEM, "out of memory for a reply of %llu bytes", (unsigned long long)n);
    c->store->broken |= data == NULL;
    return data;
}

char *client_read_text(struct client_call *c, uint64_t n, size_t limit)
{
    char *data = client_ok(c) ? room_for(c, n, limit) : NULL;
    if (data == NULL)
        return NULL;
    client_read_bytes(c, data, n);
    data[n] = '\0';
    if (client_ok(c))
        return data;
    free(data);
    return NULL;
}

void *client_read_blob(struct client_call *c, size_t limit, size_t *len)
{
    const uint64_t n = (uint64_t)client_read_i64(c);
    char *data = client_read_text(c, n, limit);
    *len = data != NULL ? n : 0;
    return data;
}

/* --- cancelling a wait ---------------------------------------------------------------------------------- */

void client_resume(struct client_call *c)
{
    c->err = (struct ddp_err){ 0 };
    c->store->broken = false;
    c->deadline_ms = clock_ms() + CANCEL_MS;
}

/* End a wait in dialect A (torch up to 2.0), which has no CANCEL_WAIT. Close the connection, and let the next call
 * open another one. On the old connection, a late reply to the wait could arrive before the reply to the next
 * request. */
static void replace_connection(struct client_call *c)
{
    client_stream_close(&c->store->stream);
    c->store->stale = true;
}

/* Send CANCEL_WAIT and read its answer, which is 1. If the store has already answered the WAIT, a 0 precedes this 1.
 * Return true if the WAIT was answered. In dialect A, which has no CANCEL_WAIT, replace the connection and return
 * false. */
bool client_cancel_wait(struct client_call *c)
{
    client_resume(c);
    if (c->store->dialect == DIALECT_A) {
        replace_connection(c);
        return false;
    }
    client_append_op(c, OP_CANCEL_WAIT);
    client_send_more(c);
    uint8_t first = client_read_u8(c);
    uint8_t last = first == 0 ? client_read_u8(c) : first;
    if (last != 1) {
        c->store->broken = true;
        client_fail(c, DDP_ERR_CORRUPT, "the answer to CANCEL_WAIT is %u instead of 1", last);
    }
    c->op = OP_WAIT;
    return client_ok(c) && first == 0;
}

/* --- AUTH and frames with tags ------------------------------------------------------------------------------ */

void client_append_json(struct client_call *c, enum op_id op, const char *json)
{
    const struct client_auth *auth = c->store->auth;
    const uint8_t kind = (uint8_t)op_table[op].code[DIALECT_C];
    if (auth == NULL)
        client_append_blob(c, FIELD_JSON, slice_str(json));
    else
        check_built(c, !client_ok(c) || auth->put_frame(auth->user, kind, slice_str(json), &c->store->out));
}

char *client_read_json(struct client_call *c, uint8_t kind)
{
    const struct client_auth *auth = c->store->auth;
    size_t len;
    char *text = client_read_blob(c, WIRE_MAX_JSON, &len);
    struct slice frame = slice_of(text, len);
    if (text == NULL || auth == NULL)
        return text;
    if (auth->open(auth->user, kind, &frame)) {
        text[frame.len] = '\0';
        return text;
    }
    c->store->broken = true;
    client_fail(
        c, DDP_ERR_CORRUPT,
        "a message from the store has a wrong authentication tag: the message changed on the network, "
        "or another program sent it");
    free(text);
    return NULL;
}

/* Send messages of AUTH, and pass each answer to client_auth.prove. The last message is the proof, which gets no
 * answer: a store that rejects the proof closes the connection. */
ddp_status client_authenticate(struct ddp_store *store, uint64_t deadline_ms, struct ddp_err *err)
{
    const struct client_auth *auth = store->auth;
    struct client_call c = { .store = store, .deadline_ms = deadline_ms };
    struct buf message = { 0 };
    size_t len;
    check_built(&c, auth->greet(auth->user, &message));
    do {
        client_append_op(&c, OP_AUTH);
        client_append_blob(&c, FIELD_PROOF, buf_slice(&message));
        client_send_more(&c);
        void *answer = client_read_blob(&c, WIRE_MAX_PROOF, &len);
        message.len = 0;
        if (client_ok(&c) && !auth->prove(auth->user, slice_of(answer, len), &message, err))
            client_fail(&c, DDP_ERR_MISMATCH, "%s", err->msg);
        free(answer);
    } while (client_ok(&c) && !auth->is_proof(auth->user));
    client_append_op(&c, OP_AUTH);
    client_append_blob(&c, FIELD_PROOF, buf_slice(&message));
    client_send_more(&c);
    buf_free(&message);
    *err = c.err;
    return err->code;
}

/* --- IDENTIFY --------------------------------------------------------------------------------------------- */

/* IDENTIFY is the first request to a ddprun store.
 *
 *     -> 0x80 blob {"role":"worker","job":"mnist","attempt":0,"rank":3,"world_size":4,"host":"n1","pid":77}
 *     <- 0 blob ""                                    accepted
 *     <- 1 blob "the world has 8 ranks, not 4"        rejected, and the store closes the connection
 *
 * PyTorch's TCPStore closes the connection at 0x80. So a caller may set a role only if the store is ddprun's
 * (DDPRUN_STORE=1). */

/* Return the identity as JSON text, which the caller frees, or NULL. */
static char *identity_text(const ddp_store_options *who)
{
    char host[256] = "";
    cJSON *json = cJSON_CreateObject();
    gethostname(host, sizeof(host) - 1);
    const bool ok =
        cJSON_AddStringToObject(json, "role", who->role) != NULL &&
        cJSON_AddStringToObject(json, "job", who->job != NULL ? who->job : "none") != NULL &&
        cJSON_AddNumberToObject(json, "attempt", who->attempt) != NULL &&
        (who->rank < 0 || cJSON_AddNumberToObject(json, "rank", who->rank) != NULL) &&
        (who->world_size <= 0 || cJSON_AddNumberToObject(json, "world_size", who->world_size) != NULL) &&
        cJSON_AddStringToObject(json, "host", host) != NULL &&
        cJSON_AddNumberToObject(json, "pid", getpid()) != NULL;
    char *text = ok ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return text;
}

/* Send the identity and read the answer. For example, the store rejects a rank that is not below the world size, a
 * client of another job, or a worker of an earlier attempt. */
ddp_status client_identify(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                           struct ddp_err *err)
{
    struct client_call c = { .store = store, .deadline_ms = deadline_ms };
    char *identity = identity_text(who);
    if (identity == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    client_append_op(&c, OP_IDENTIFY);
    client_append_json(&c, OP_IDENTIFY, identity);
    free(identity);
    client_send(&c);
    uint8_t status = client_read_u8(&c);
    char *why = client_read_json(&c, status);
    if (c.err.code == DDP_ERR_CLOSED)
        ddp_fail(&c.err, DDP_ERR_UNSUPPORTED,
                 "the store is not ddprun's: it closed the connection after the request IDENTIFY; set "
                 "DDPRUN_STORE=1 only for the store of ddprun or ddp-rendezvous");
    if (status != 0)
        client_fail(&c, DDP_ERR_MISMATCH, "the store rejected this %s: %s", who->role, why);
    free(why);
    store->identified = client_ok(&c);
    if (!client_ok(&c))
        *err = c.err;
    return c.err.code;
}
