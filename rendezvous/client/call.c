/* call.c -- one request and its reply; see client.h.
 *
 * The mutex guards only the flag and is held for a few instructions, also by threads that wait: a condition
 * gives it back while they sleep. The turn itself may be held for minutes, by a thread that waits for a
 * key. */

#include "base/clock.h"
#include "client/client.h"
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

/* The failures: the peer closes or resets (DDP_ERR_CLOSED), is silent or does not read (DDP_ERR_TIMEOUT), the network
 * reports an error (DDP_ERR_IO). No signal is ever raised (MSG_NOSIGNAL), because this is a library. */

int client_remaining_ms(uint64_t deadline_ms)
{
    uint64_t now = clock_ms();
    if (deadline_ms <= now)
        return 0;
    return deadline_ms - now > INT_MAX ? INT_MAX : (int)(deadline_ms - now);
}

/* The stream owns the socket from here on; bytes of an earlier socket in the buffer are dropped. */
void client_stream_attach(struct client_stream *s, int fd)
{
    s->fd = fd;
    s->at = s->len = 0;
}

void client_stream_close(struct client_stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    client_stream_attach(s, -1);
}

/* ECONNRESET and EPIPE end the connection like EOF. */
static ddp_status broken(int error, struct ddp_err *err)
{
    if (error == 0)
        return ddp_fail(err, DDP_ERR_CLOSED, "the peer closed the connection");
    if (error == ECONNRESET || error == EPIPE)
        return ddp_fail(err, DDP_ERR_CLOSED, "the peer reset the connection");
    return ddp_fail(err, DDP_ERR_IO, "the connection failed: %s", strerror(error));
}

/* Wait until the socket can be read (written) or the deadline passes. */
static ddp_status await(const struct client_stream *s, short events, uint64_t deadline_ms,
                        struct ddp_err *err)
{
    struct pollfd p = { s->fd, events, 0 };
    for (;;) {
        int n = poll(&p, 1, client_remaining_ms(deadline_ms));
        if (n > 0)
            return DDP_OK;
        if (n < 0 && errno != EINTR)
            return broken(errno, err);
        if (clock_ms() >= deadline_ms)
            return ddp_fail(err, DDP_ERR_TIMEOUT, "no answer in time");
    }
}

/* The call would have blocked, or a signal handler of the program interrupted it. */
static bool try_again(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Send all of `bytes`. */
static ddp_status client_stream_send(struct client_stream *s, struct slice bytes, uint64_t deadline_ms,
                                     struct ddp_err *err)
{
    const uint8_t *from = bytes.data;
    for (size_t sent = 0; sent < bytes.len;) {
        ssize_t n = send(s->fd, from + sent, bytes.len - sent, MSG_NOSIGNAL);
        if (n >= 0)
            sent += (size_t)n;
        else if (!try_again(n))
            return broken(errno, err);
        else if (await(s, POLLOUT, deadline_ms, err) != DDP_OK)
            return err->code;
    }
    return DDP_OK;
}

/* Refill the empty input buffer. Polls first: right after a request there is nothing to read yet. */
static ddp_status stream_fill(struct client_stream *s, uint64_t deadline_ms, struct ddp_err *err)
{
    ssize_t n;
    do {
        if (await(s, POLLIN, deadline_ms, err) != DDP_OK)
            return err->code;
        n = recv(s->fd, s->in, sizeof(s->in), 0);
    } while (try_again(n));
    if (n <= 0)
        return broken(n == 0 ? 0 : errno, err);
    s->at = 0;
    s->len = (size_t)n;
    return DDP_OK;
}

/* Read exactly `len` bytes. On DDP_ERR_TIMEOUT some of them may be lost, but none of them if `len` is 1.
 * Read from the buffer first; a big value passes through it in pieces, which costs a copy but avoids a second path. */
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

/* Check before a request that no unrequested byte has arrived. DDP_ERR_CORRUPT: one has, the replies are out of step.
 * DDP_ERR_CLOSED: the peer has closed. */
static ddp_status client_stream_check_quiet(struct client_stream *s, struct ddp_err *err)
{
    if (s->at == s->len) {
        ssize_t n = recv(s->fd, s->in, sizeof(s->in), MSG_DONTWAIT);
        if (try_again(n))
            return DDP_OK;
        if (n <= 0)
            return broken(n == 0 ? 0 : errno, err);
        s->at = 0;
        s->len = (size_t)n;
    }
    return ddp_fail(err, DDP_ERR_CORRUPT, "%zu unexpected bytes arrived", s->len - s->at);
}

/* By default a condition counts wall-clock time; setting the clock back would stretch every deadline. */
static void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

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

bool client_turn_take(struct client_turn *turn, uint64_t deadline_ms)
{
    bool in_time = true;
    pthread_mutex_lock(&turn->lock);
    while (turn->taken && in_time)
        in_time = cond_wait(&turn->given, &turn->lock, deadline_ms);
    const bool mine = !turn->taken; /* even when the turn becomes free just at the deadline */
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
    return mine;
}

/* Wake one thread, because only one can take the turn. If another takes it in between, the woken one checks the flag
 * again. */
void client_turn_give(struct client_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->taken = false;
    pthread_cond_signal(&turn->given);
    pthread_mutex_unlock(&turn->lock);
}

/* --- client call ------------------------------------------------------------------------------------------ */

/* One request and its reply: check, encode, send, read.
 *
 * Happy path: client_begin (client.c) has put the opcode into store->out, client_put_* add to it,
 * client_send sends it in one go, client_take_* read the reply piece by piece. A GET of key 'x':
 *
 *     -> 02  02 00 00 00 00 00 00 00  2f 78                  opcode, length of the key, "/x"
 *     <- 03 00 00 00 00 00 00 00  61 62 63                   length of the value, "abc"
 *
 * A reply has no frame: if we stop reading in the middle, its rest would be read as the next reply. So any failure
 * after the first byte was sent, except the orderly end of a wait, makes the handle permanently unusable, because a
 * wrong answer would be worse than none. */

_Static_assert(DDP_STORE_MAX_KEY == WIRE_MAX_KEY && DDP_STORE_MAX_VALUE == WIRE_MAX_VALUE &&
                   DDP_STORE_MAX_KEYS == WIRE_MAX_KEYS,
               "store.h promises the limits of ops.h");

enum {
    CANCEL_MS = 5000, /* time to leave a wait in order; a slower store counts as lost */
};

/* --- the first failure counts --------------------------------------------------------------------------- */

bool client_ok(const struct client_call *c)
{
    return c->err.code == DDP_OK;
}

/* Later failures are consequences of the first one, and would only hide it. */
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

/* Only growing the request can fail; `ok` has the result. */
static void built(struct client_call *c, bool ok)
{
    if (!ok)
        client_fail(c, DDP_ERR_NOMEM, "out of memory for a request of over %zu bytes", c->store->out.len);
}

/* The one place where a dialect's numbers are looked up. */
void client_put_op(struct client_call *c, enum op_id op)
{
    const int16_t code = op_table[op].code[c->store->dialect];
    if (!client_ok(c))
        return;
    c->op = op;
    if (code < 0)
        client_fail(c, DDP_ERR_UNSUPPORTED,
                    "the store does not know this request (its torch is older than 2.1)");
    else
        built(c, put_u8(&c->store->out, (uint8_t)code));
}

/* --- the request ---------------------------------------------------------------------------------------- */

void client_put_u32(struct client_call *c, uint32_t value)
{
    built(c, !client_ok(c) || put_u32(&c->store->out, value));
}

void client_put_i64(struct client_call *c, int64_t value)
{
    built(c, !client_ok(c) || put_i64(&c->store->out, value));
}

void client_put_blob(struct client_call *c, enum field_id field, struct slice bytes)
{
    if (bytes.data == NULL && bytes.len > 0)
        client_fail(c, DDP_ERR_ARG, "%zu bytes at NULL", bytes.len);
    if (bytes.len > field_table[field].limit)
        client_fail(c, DDP_ERR_LIMIT, "%s of %zu bytes, at most %u are allowed", field_table[field].text,
                    bytes.len, field_table[field].limit);
    built(c, !client_ok(c) || put_blob(&c->store->out, bytes));
}

/* PyTorch's clients put a '/' in front of each key; the same here makes the keys equal. */
void client_put_key(struct client_call *c, const char *key)
{
    struct buf *out = &c->store->out;
    const size_t len = key != NULL ? strlen(key) + 1 : 0;
    if (key == NULL)
        client_fail(c, DDP_ERR_ARG, "a key is NULL");
    if (len > WIRE_MAX_KEY)
        client_fail(c, DDP_ERR_LIMIT, "the key has %zu bytes, at most %u are allowed", len - 1,
                    WIRE_MAX_KEY - 1);
    built(c, !client_ok(c) || (put_u64(out, len) && put_u8(out, '/') && buf_append(out, key, len - 1)));
}

/* The count goes first, then every key as a blob. A key that is too long fails the whole list. */
void client_put_keys(struct client_call *c, const char *const keys[], size_t n)
{
    if (n > WIRE_MAX_KEYS)
        client_fail(c, DDP_ERR_LIMIT, "%zu keys in one list, at most %u are allowed", n, WIRE_MAX_KEYS);
    if (keys == NULL && n > 0)
        client_fail(c, DDP_ERR_ARG, "the list of keys is NULL");
    built(c, !client_ok(c) || put_u64(&c->store->out, n));
    for (size_t i = 0; i < n && client_ok(c); i++)
        client_put_key(c, keys[i]);
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

/* A late or extra reply would shift all later ones by its length. This check is one recv that finds nothing, and it
 * also detects a lost peer early: a SET, which has no reply, would not. */
void client_send(struct client_call *c)
{
    if (client_ok(c) && client_stream_check_quiet(&c->store->stream, &c->err) != DDP_OK)
        c->store->broken = true;
    client_send_more(c);
}

/* --- the reply ------------------------------------------------------------------------------------------ */

/* All reading passes through here, so this is the one place where a missing or incomplete reply makes the handle
 * unusable. After a failure all pieces read as zeros, so that callers need not check each of them. */
void client_take_bytes(struct client_call *c, void *to, size_t len)
{
    if (client_ok(c) && client_stream_read(&c->store->stream, to, len, c->deadline_ms, &c->err) != DDP_OK)
        c->store->broken = true;
    if (!client_ok(c))
        memset(to, 0, len);
}

uint8_t client_take_u8(struct client_call *c)
{
    uint8_t value;
    client_take_bytes(c, &value, sizeof(value));
    return value;
}

int64_t client_take_i64(struct client_call *c)
{
    uint8_t le[8];
    client_take_bytes(c, le, sizeof(le));
    return (int64_t)get_u64(le);
}

/* The peer sends the length: it is compared with the possible answers of the request before anything is allocated,
 * and a wrong length proves that the peer is not a store. Allocate `n` bytes and a NUL, once `n` is known to be
 * possible. */
static char *room_for(struct client_call *c, uint64_t n, size_t limit)
{
    char *data = n <= limit ? malloc(n + 1) : NULL;
    if (n > limit)
        client_fail(c, DDP_ERR_CORRUPT, "the reply announces %llu bytes, at most %zu are allowed",
                    (unsigned long long)n, limit);
    else if (data == NULL)
        client_fail(c, DDP_ERR_NOMEM, "out of memory for a reply of %llu bytes", (unsigned long long)n);
    c->store->broken |= data == NULL;
    return data;
}

char *client_take_text(struct client_call *c, uint64_t n, size_t limit)
{
    char *data = client_ok(c) ? room_for(c, n, limit) : NULL;
    if (data == NULL)
        return NULL;
    client_take_bytes(c, data, n);
    data[n] = '\0';
    if (client_ok(c))
        return data;
    free(data);
    return NULL;
}

void *client_take_blob(struct client_call *c, size_t limit, size_t *len)
{
    const uint64_t n = (uint64_t)client_take_i64(c);
    char *data = client_take_text(c, n, limit);
    *len = data != NULL ? n : 0;
    return data;
}

/* --- the end of a wait ---------------------------------------------------------------------------------- */

void client_resume(struct client_call *c)
{
    c->err = (struct ddp_err){ 0 };
    c->store->broken = false;
    c->deadline_ms = clock_ms() + CANCEL_MS;
}

/* Dialect A cannot cancel. Its server would answer the abandoned wait at some time, before the answer to a later
 * request; only a new connection avoids that, and the next call opens one. */
static void forget_connection(struct client_call *c)
{
    client_stream_close(&c->store->stream);
    c->store->stale = true;
}

/* The answer to the wait may be on its way already. Then it arrives first, followed by the 1 of the
 * cancel. */
bool client_cancel_wait(struct client_call *c)
{
    client_resume(c);
    if (c->store->dialect == DIALECT_A) {
        forget_connection(c);
        return false;
    }
    client_put_op(c, OP_CANCEL_WAIT);
    client_send_more(c);
    uint8_t first = client_take_u8(c);
    uint8_t last = first == 0 ? client_take_u8(c) : first;
    if (last != 1) {
        c->store->broken = true;
        client_fail(c, DDP_ERR_CORRUPT, "CANCEL_WAIT was answered with %u", last);
    }
    c->op = OP_WAIT;
    return client_ok(c) && first == 0;
}

/* --- IDENTIFY --------------------------------------------------------------------------------------------- */

/* Identify: the first request to a ddprun store.
 *
 *     -> 0x80 blob {"role":"worker","job":"mnist","attempt":0,"rank":3,"world_size":4,"host":"n1","pid":77}
 *     <- 0 blob ""                                    welcome
 *     <- 1 blob "the world has 8 ranks, not 4"        rejected, and the store closes the connection
 *
 * A genuine TCPStore has no 0x80: it closes the connection without an answer, which separates the two kinds. So a
 * caller may give a role only if the store is ddprun's (DDPRUN_STORE=1). */

/* Host and pid are for the diagnosis: "rank 3 (n1, pid 77) waits for ...". Malloc'ed text, NULL when memory
 * is short. */
static char *identity_text(const ddp_store_options *who)
{
    char host[256] = "";
    cJSON *json = cJSON_CreateObject();
    gethostname(host, sizeof(host) - 1);
    cJSON_AddStringToObject(json, "role", who->role);
    cJSON_AddStringToObject(json, "job", who->job != NULL ? who->job : "none");
    cJSON_AddNumberToObject(json, "attempt", who->attempt);
    if (who->rank >= 0)
        cJSON_AddNumberToObject(json, "rank", who->rank);
    if (who->world_size > 0)
        cJSON_AddNumberToObject(json, "world_size", who->world_size);
    cJSON_AddStringToObject(json, "host", host);
    cJSON_AddNumberToObject(json, "pid", getpid());
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

/* The store compares this with the agent's data, and may reject it: the rank is outside the world, another
 * job runs here, or the attempt is over. */
ddp_status client_identify(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                           struct ddp_err *err)
{
    struct client_call c = { .store = store, .deadline_ms = deadline_ms };
    char *identity = identity_text(who);
    size_t len;
    if (identity == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    client_put_op(&c, OP_IDENTIFY);
    client_put_blob(&c, FIELD_JSON, slice_str(identity));
    free(identity);
    client_send(&c);
    uint8_t status = client_take_u8(&c);
    char *why = client_take_blob(&c, WIRE_MAX_JSON, &len);
    if (c.err.code == DDP_ERR_CLOSED)
        ddp_fail(&c.err, DDP_ERR_UNSUPPORTED,
                 "it is a store, but not ddprun's: it closed the connection at the request IDENTIFY; set "
                 "DDPRUN_STORE=1 only for the store of ddprun or ddp-rendezvous");
    if (status != 0)
        client_fail(&c, DDP_ERR_MISMATCH, "the store rejected this %s: %s", who->role, why);
    free(why);
    store->ours = client_ok(&c);
    if (!client_ok(&c))
        *err = c.err;
    return c.err.code;
}
