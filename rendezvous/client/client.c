/* client.c -- see call.h and ddp/store.h. A handle serves one call at a time, because a reply does not name its
 * request. So a reply always belongs to the oldest request. */
#include "client/call.h"

#include "base/clock.h"
#include "base/not_null.h"
#include "base/text.h"
#include "store/encode.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    CONNECT_TIMEOUT_MS = 60000, /* shorter than torch's 300 s, because a store that is silent for 60 s has
                                 * ended */
    CALL_TIMEOUT_MS = 300000,   /* the same as in torch, because a rank may load data for minutes before it
                                 * sets a key */
    KEEP_BYTES = 64 * 1024,     /* largest request buffer that is kept after a call */
};

/* --- connect and close ---------------------------------------------------------------------------------- */

/* A handle is connected when it is created, and is closed by its owner:
 *
 *     ddp_store_connect                         returns a handle after a store has answered
 *       client_begin ... client_end             one call; other threads wait (struct client_turn)
 *     ddp_store_close                           closes the connection and frees the handle */

/* Copy the options. A program that was built with an older libddp has a shorter struct (`size`). */
static ddp_store_options read_options(const ddp_store_options *given)
{
    ddp_store_options o = DDP_STORE_OPTIONS_INIT;
    if (given != NULL)
        memcpy(&o, given, given->size < sizeof(o) ? given->size : sizeof(o));
    if (o.connect_timeout_ms == 0)
        o.connect_timeout_ms = CONNECT_TIMEOUT_MS;
    if (o.timeout_ms == 0)
        o.timeout_ms = CALL_TIMEOUT_MS;
    return o;
}

/* Return a handle that is not connected, or NULL if memory is short. */
static ddp_store *store_new(const char *host, int port, const ddp_store_options *o)
{
    ddp_store *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    client_turn_init(&s->turn);
    s->stream.fd = -1;
    s->timeout_ms = o->timeout_ms;
    s->rank = o->rank;
    s->port = port;
    snprintf(s->host, sizeof(s->host), "%s", host);
    endpoint_print(host, port, s->where);
    return s;
}

ddp_status ddp_store_connect(const char *host, int port, const ddp_store_options *options, ddp_store **out,
                             struct ddp_err *err)
{
    return client_open(host, port, options, NULL, out, err);
}

ddp_status client_open(const char *host, int port, const ddp_store_options *options,
                       const struct client_auth *auth, ddp_store **out, struct ddp_err *err)
{
    NOT_NULL(out, err);
    const ddp_store_options o = read_options(options);
    struct ddp_err words = { 0 };
    *out = NULL;
    if (host == NULL || *host == '\0' || strlen(host) >= ENDPOINT_HOST_MAX || port < 1 || port > 65535)
        return ddp_fail(err, DDP_ERR_ARG,
                        "store '%.64s' port %d: expected a host name and a port from 1 to 65535",
                        host != NULL ? host : "", port);
    ddp_store *s = store_new(host, port, &o);
    if (s == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    s->auth = auth;
    client_connect(s, o.role != NULL ? &o : NULL, clock_ms() + o.connect_timeout_ms, &words);
    if (words.code == DDP_OK) {
        *out = s;
    } else {
        ddp_wrap(&words, "store %s", s->where);
        ddp_store_close(s);
    }
    if (err != NULL)
        *err = words;
    return words.code;
}

/* Close the handle. The client sends no final message, because the server detects the closed connection. */
void ddp_store_close(ddp_store *store)
{
    if (store == NULL)
        return;
    client_stream_close(&store->stream);
    buf_free(&store->out);
    client_turn_destroy(&store->turn);
    free(store);
}

char ddp_store_dialect(const ddp_store *store)
{
    if (store->identified)
        return 'D';
    return (char)('A' + (store->dialect - DIALECT_A));
}

ddp_status ddp_store_local_address(const ddp_store *store, char *address, size_t room, struct ddp_err *err)
{
    NOT_NULL(store, err);
    NOT_NULL(address, err);
    struct sockaddr_storage own;
    socklen_t len = sizeof(own);

    if (getsockname(store->stream.fd, (struct sockaddr *)&own, &len) != 0)
        return ddp_fail(err, DDP_ERR_CLOSED, "%s: cannot read the local address of the connection: %s",
                        store->where, strerror(errno));
    int why = getnameinfo((struct sockaddr *)&own, len, address, (socklen_t)room, NULL, 0, NI_NUMERICHOST);
    if (why != 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot format the local address of the connection: %s",
                        store->where, gai_strerror(why));
    return DDP_OK;
}

/* --- one call ------------------------------------------------------------------------------------------- */

/* Between two calls, a handle is in one of three states:
 *
 *     broken   a reply may be incomplete: every call fails
 *     stale    the connection was closed to end a wait: connect again
 *     good     no request is open: the next byte belongs to the next reply */

/* Acquire the lock of the handle, and begin a request. If `timeout_ms` is 0, use the timeout of the handle. The timeout
 * includes the time until the lock is acquired. Call client_end even if client_begin has failed. */
static void client_begin(struct client_call *c, struct ddp_store *store, enum op_id op, const char *subject,
                         uint32_t timeout_ms)
{
    const uint64_t now = clock_ms();
    *c = (struct client_call){ .store = store, .op = op, .subject = subject, .start_ms = now };
    c->deadline_ms = now + (timeout_ms != 0 ? timeout_ms : store->timeout_ms);
    c->has_turn = client_turn_acquire(&store->turn, c->deadline_ms);
    if (!c->has_turn)
        client_fail(c, DDP_ERR_TIMEOUT,
                    "another thread's call on this handle did not end in time; use one handle per thread");
    else if (store->broken)
        client_fail(c, DDP_ERR_CLOSED,
                    "an earlier call failed, and the connection was closed; open a new handle");
    if (client_ok(c) && store->stale)
        client_connect(store, NULL, c->deadline_ms, &c->err);
    client_append_op(c, op);
}

/* Prepend "store HOST:PORT: GET 'key', after 12 ms: " to the error. Omit the duration for an operation that waits,
 * because the error of a wait that has timed out already contains the duration. */
static void prepend_place(struct client_call *c)
{
    const bool named = c->subject != NULL;
    const bool timed = !op_table[c->op].waits;
    char after[TEXT_MS_MAX];
    ddp_wrap(&c->err, "store %s: %s%s%.120s%s%s%s", c->store->where, op_table[c->op].name, named ? " '" : "",
             named ? c->subject : "", named ? "'" : "", timed ? ", after " : "",
             timed ? text_ms(clock_ms() - c->start_ms, after) : "");
}

/* End a call. If the handle is broken, close its socket at once, because the store would report this client as waiting
 * for as long as the socket is open. */
static ddp_status client_end(struct client_call *c, struct ddp_err *err)
{
    struct ddp_store *s = c->store;
    const ddp_status code = c->err.code;
    if (code != DDP_OK && !c->answered)
        prepend_place(c);
    if (err != NULL)
        *err = c->err;
    if (!c->has_turn)
        return code;
    if (s->broken || code == DDP_ERR_CLOSED || code == DDP_ERR_IO || code == DDP_ERR_CORRUPT) {
        s->broken = true;
        client_stream_close(&s->stream);
    }
    s->out.len = 0; /* discard a request that was not sent completely */
    if (s->out.cap > KEEP_BYTES)
        buf_free(&s->out);
    client_turn_release(&s->turn);
    return code;
}

/* --- requests of ddprun --------------------------------------------------------------------------------- */

/* Only a ddprun store supports named barriers and CONTROL, and accepts IDENTIFY. A TCPStore of PyTorch closes the
 * connection on an unknown opcode. */

/* At the timeout of a barrier, a client waits this many ms longer, because the answer of the store usually arrives in
 * this time. */
enum { BARRIER_GRACE_MS = 2000 };

/* --- named barriers ------------------------------------------------------------------------------------- */

/* The status that a call returns for each outcome, in the order of enum barrier_outcome (store/barrier.h). */
static const ddp_status outcome_status[] = {
    DDP_OK, DDP_ERR_TIMEOUT, DDP_ERR_PEER_LOST, DDP_ERR_ABORTED, DDP_ERR_MISMATCH,
};

enum { OUTCOMES = sizeof(outcome_status) / sizeof(*outcome_status) };

/* Fail the call unless the outcome is BARRIER_RELEASED. The error text is the member "message" of the report `json`.
 * The first line of this text names the barrier, and further lines may list missing ranks. */
static void apply_outcome(struct client_call *c, uint8_t outcome, const char *json)
{
    if (!client_ok(c) || outcome == 0)
        return;
    if (outcome >= OUTCOMES) {
        client_fail(
            c, DDP_ERR_CORRUPT,
            "the answer to the barrier has the unknown outcome %u; use the same version of ddprun on all "
            "hosts",
            outcome);
        return;
    }
    cJSON *object = cJSON_Parse(json);
    const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "message"));
    const ddp_status status = outcome_status[outcome];
    if (message != NULL)
        client_fail(c, status, "%s", message);
    else
        client_fail(c, status, "barrier '%.120s': %s", c->subject, ddp_status_text(status));
    c->answered = true;
    cJSON_Delete(object);
}

/* Leave a barrier after the timeout of this client: send CANCEL_WAIT and PING. The store may have sent the outcome
 * before it reads these requests, so the client reads one of two answers:
 *
 *     without an outcome   01 nonce                              (the answers to CANCEL_WAIT and PING)
 *     with an outcome      outcome, u64 length, json, 01 nonce
 *
 * The first byte may be 1 in both cases. The next four bytes are then either the nonce or the low half of the length.
 * As a length, the nonce would be above a gigabyte. No JSON is so long, so the four bytes show which answer has
 * arrived. */
static void leave_barrier(struct client_call *c)
{
    const uint32_t nonce = 0x51500000u;
    const uint64_t waited_ms = clock_ms() - c->start_ms;
    uint8_t low[4], high[4], ones[5];
    client_resume(c);
    client_append_op(c, OP_CANCEL_WAIT);
    client_append_op(c, OP_PING);
    client_append_u32(c, nonce);
    c->op = OP_BARRIER_NAMED;
    client_send_more(c);
    uint8_t outcome = client_read_u8(c);
    client_read_bytes(c, low, sizeof(low));
    if (outcome == 1 && get_u32(low) == nonce) {
        client_fail(c, DDP_ERR_TIMEOUT, "waited %s without an answer from the store, then left the barrier",
                    text_ms(waited_ms, (char[TEXT_MS_MAX]){ 0 }));
        return;
    }
    client_read_bytes(c, high, sizeof(high));
    char *json = client_read_text(c, get_u32(low) | ((uint64_t)get_u32(high) << 32), WIRE_MAX_JSON);
    client_read_bytes(c, ones, sizeof(ones));
    apply_outcome(c, outcome, json);
    free(json);
}

/* Wait for the outcome of the barrier. The store ends the barrier at the deadline of the rank that entered first.
 * Usually all ranks have the same timeout, so the outcome arrives before the deadline of this client. If the rank
 * that entered first has a longer timeout, this client may have to leave the barrier earlier. */
static void wait_for_outcome(struct client_call *c)
{
    size_t len;
    uint8_t outcome = client_read_u8(c);
    if (c->err.code == DDP_ERR_TIMEOUT) {
        leave_barrier(c);
        return;
    }
    char *json = client_read_blob(c, WIRE_MAX_JSON, &len);
    apply_outcome(c, outcome, json);
    free(json);
}

/* Append the list of members in wire format: a little-endian u32 for each rank. */
static void append_members(struct client_call *c, const uint32_t *members, size_t n)
{
    struct buf list = { 0 };
    for (size_t i = 0; i < n && n <= WIRE_MAX_RANKS; i++)
        if (!append_u32(&list, members[i]))
            client_fail(c, DDP_ERR_NOMEM, "out of memory for %zu members", n);
    if (n > WIRE_MAX_RANKS)
        client_fail(c, DDP_ERR_LIMIT, "the list has %zu members: expected at most %u", n, WIRE_MAX_RANKS);
    client_append_blob(c, FIELD_MEMBERS, buf_slice(&list));
    buf_free(&list);
}

/* Fail unless the store has accepted IDENTIFY. Call this before sending a request that only a store of ddprun
 * supports. */
static void need_identify(struct client_call *c)
{
    if (!c->store->identified)
        client_fail(c, DDP_ERR_UNSUPPORTED,
                    "only a store of ddprun supports this call; connect to such a store, and set `role` in "
                    "the options");
}

/* Enter a barrier. At the deadline of the rank that entered first, the store ends the barrier and answers with a list
 * of the missing ranks. Wait BARRIER_GRACE_MS longer than the timeout, so that this answer arrives. */
ddp_status ddp_store_barrier(ddp_store *store, const char *name, const uint32_t *members, size_t n,
                             uint32_t timeout_ms, struct ddp_err *err)
{
    NOT_NULL(store, err);
    NOT_NULL(name, err);
    struct client_call c;
    client_begin(&c, store, OP_BARRIER_NAMED, name, timeout_ms);
    const uint64_t wait_ms = c.deadline_ms - c.start_ms;
    c.deadline_ms += BARRIER_GRACE_MS;
    need_identify(&c);
    if (store->rank < 0)
        client_fail(&c, DDP_ERR_ARG, "this handle has no rank; connect with `rank` in the options");
    client_append_blob(&c, FIELD_NAME, slice_str(name));
    client_append_i64(&c, (int64_t)wait_ms);
    append_members(&c, members, members != NULL ? n : 0);
    client_send(&c);
    if (client_ok(&c))
        wait_for_outcome(&c);
    return client_end(&c, err);
}

/* --- CONTROL -------------------------------------------------------------------------------------------- */

/* Return true if the message has the member "push". Such a message is for an agent, and does not answer a request. */
static bool is_push(const char *json)
{
    cJSON *object = cJSON_Parse(json);
    bool push = cJSON_HasObjectItem(object, "push");
    cJSON_Delete(object);
    return push;
}

/* Send a CONTROL request and return the answer unchanged, even if the store rejects the request. */
ddp_status ddp_store_control(ddp_store *store, const char *request, uint32_t timeout_ms, char **reply,
                             struct ddp_err *err)
{
    NOT_NULL(store, err);
    NOT_NULL(request, err);
    NOT_NULL(reply, err);
    struct client_call c;
    client_begin(&c, store, OP_CONTROL, NULL, timeout_ms);
    need_identify(&c);
    client_append_json(&c, OP_CONTROL, request);
    client_send(&c);
    char *answer = client_read_json(&c, 0);
    while (answer != NULL && is_push(answer)) {
        free(answer);
        answer = client_read_json(&c, 0);
    }
    *reply = answer;
    return client_end(&c, err);
}

/* --- requests of PyTorch's protocol ----------------------------------------------------------------------- */

/* The public functions append the fields of a request in the order of the protocol, send the request, and read the
 * answer (call.h). If the wait for a key times out, the function first cancels the wait in the store. The error then
 * names the missing key. */

enum { NAMING_MS = 2000 }; /* time limit for finding the missing key */

/* Set a key. The store sends no answer to SET. If a later call on this handle gets an answer, the store has certainly
 * stored the value. */
ddp_status ddp_store_set(ddp_store *store, const char *key, const void *value, size_t len,
                         struct ddp_err *err)
{
    NOT_NULL(store, err);
    struct client_call c;
    client_begin(&c, store, OP_SET, key, 0);
    client_append_key(&c, key);
    client_append_blob(&c, FIELD_VALUE, slice_of(value, len));
    client_send(&c);
    return client_end(&c, err);
}

ddp_status ddp_store_add(ddp_store *store, const char *key, int64_t delta, int64_t *sum, struct ddp_err *err)
{
    NOT_NULL(store, err);
    struct client_call c;
    client_begin(&c, store, OP_ADD, key, 0);
    client_append_key(&c, key);
    client_append_i64(&c, delta);
    client_send(&c);
    int64_t now = client_read_i64(&c);
    if (client_ok(&c) && sum != NULL)
        *sum = now;
    return client_end(&c, err);
}

ddp_status ddp_store_compare_set(ddp_store *store, const char *key, const void *expected, size_t expected_len,
                                 const void *desired, size_t desired_len, void **current, size_t *current_len,
                                 struct ddp_err *err)
{
    NOT_NULL(store, err);
    struct client_call c;
    size_t len;
    client_begin(&c, store, OP_COMPARE_SET, key, 0);
    client_append_key(&c, key);
    client_append_blob(&c, FIELD_EXPECTED, slice_of(expected, expected_len));
    client_append_blob(&c, FIELD_DESIRED, slice_of(desired, desired_len));
    client_send(&c);
    void *now = client_read_blob(&c, WIRE_MAX_VALUE, &len);
    if (current_len != NULL)
        *current_len = len;
    if (current != NULL)
        *current = now;
    else
        free(now);
    return client_end(&c, err);
}

/* --- waiting -------------------------------------------------------------------------------------------- */

/* Send CHECK within a call. Return true if all keys exist, and false also after a failure. */
static bool all_exist(struct client_call *c, const char *const keys[], size_t n)
{
    client_append_op(c, OP_CHECK);
    client_append_keys(c, keys, n);
    client_send(c);
    return client_read_u8(c) == 0 && client_ok(c);
}

/* Return the index of the first missing key. Each request halves the range of keys that may contain the index, so
 * 131,072 keys need 17 requests. */
static size_t first_missing(struct client_call *c, const char *const keys[], size_t n)
{
    size_t low = 0, high = n;
    while (high - low > 1 && client_ok(c)) {
        size_t middle = low + (high - low) / 2;
        if (all_exist(c, keys + low, middle - low))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Fail the call with a text that contains the duration of the wait. If there are several keys and the store still
 * answers, the text also names the first missing key. Set a new deadline for this search, because the deadline of the
 * wait has passed. */
static void name_missing(struct client_call *c, const char *const keys[], size_t n)
{
    /* if the cancellation has failed, all keys may exist, so keep the code of this failure and do not search for a
     * missing key */
    const ddp_status lost = c->err.code;
    char waited[TEXT_MS_MAX], what[224];
    size_t i = 0;
    text_ms(clock_ms() - c->start_ms, waited);
    if (n > 1)
        snprintf(what, sizeof(what), "%zu keys", n);
    else
        snprintf(what, sizeof(what), "the key '%.200s'", keys[0]);
    if (n > 1 && lost == DDP_OK) {
        c->deadline_ms = clock_ms() + NAMING_MS;
        if (c->store->stale)
            client_connect(c->store, NULL, c->deadline_ms, &c->err);
        i = first_missing(c, keys, n);
        c->op = OP_WAIT;
    }
    const struct ddp_err why = c->err;
    c->err.code = DDP_OK; /* replace the error of the cancellation or of the search */
    if (why.code != DDP_OK)
        client_fail(c, lost != DDP_OK ? lost : DDP_ERR_TIMEOUT,
                    "waited %s for %s; the store no longer answers: %.200s", waited, what, why.msg);
    else if (n > 1)
        client_fail(c, DDP_ERR_TIMEOUT, "waited %s for %s; first missing key: '%.200s'", waited, what,
                    keys[i]);
    else
        client_fail(c, DDP_ERR_TIMEOUT, "waited %s for %s", waited, what);
}

/* Send WAIT in a call that was begun with OP_WAIT, and read the answer. After a timeout, cancel the wait. If the
 * cancellation fails, report its error instead of the timeout, because the result of the wait is then unknown: the keys
 * may exist. If the request was not sent completely, the store has not begun to wait, so do not cancel. */
static void wait_for(struct client_call *c, const char *const keys[], size_t n)
{
    if (n == 0)
        return; /* no keys to wait for; client_end discards the opcode, which was not sent */
    client_append_keys(c, keys, n);
    client_send(c);
    if (!client_ok(c))
        return;
    uint8_t answer = client_read_u8(c);
    if (c->err.code == DDP_ERR_TIMEOUT) {
        if (!client_cancel_wait(c))
            name_missing(c, keys, n);
    } else if (client_ok(c) && answer != 0) {
        client_fail(c, DDP_ERR_CORRUPT, "the answer to WAIT is %u instead of 0", answer);
    }
}

ddp_status ddp_store_wait(ddp_store *store, const char *const keys[], size_t n, uint32_t timeout_ms,
                          struct ddp_err *err)
{
    NOT_NULL(store, err);
    struct client_call c;
    client_begin(&c, store, OP_WAIT, NULL, timeout_ms);
    wait_for(&c, keys, n);
    return client_end(&c, err);
}

/* Get a value. Send WAIT before GET, because PyTorch's server closes the connection on a GET of a missing key. */
ddp_status ddp_store_get(ddp_store *store, const char *key, uint32_t timeout_ms, void **value, size_t *len,
                         struct ddp_err *err)
{
    NOT_NULL(store, err);
    NOT_NULL(value, err);
    NOT_NULL(len, err);
    struct client_call c;
    client_begin(&c, store, OP_WAIT, NULL, timeout_ms);
    wait_for(&c, &key, 1);
    c.subject = key;
    client_append_op(&c, OP_GET);
    client_append_key(&c, key);
    client_send(&c);
    *value = client_read_blob(&c, WIRE_MAX_VALUE, len);
    return client_end(&c, err);
}

/* --- other calls ---------------------------------------------------------------------------------------- */

ddp_status ddp_store_check(ddp_store *store, const char *const keys[], size_t n, int *all,
                           struct ddp_err *err)
{
    NOT_NULL(store, err);
    NOT_NULL(all, err);
    struct client_call c;
    client_begin(&c, store, OP_CHECK, NULL, 0);
    client_append_keys(&c, keys, n);
    client_send(&c);
    uint8_t answer = client_read_u8(&c);
    if (answer > 1)
        client_fail(&c, DDP_ERR_CORRUPT, "the answer to CHECK is %u instead of 0 or 1", answer);
    if (client_ok(&c))
        *all = answer == 0;
    return client_end(&c, err);
}

ddp_status ddp_store_delete(ddp_store *store, const char *key, int *removed, struct ddp_err *err)
{
    NOT_NULL(store, err);
    struct client_call c;
    client_begin(&c, store, OP_DELETE_KEY, key, 0);
    client_append_key(&c, key);
    client_send(&c);
    int64_t count = client_read_i64(&c);
    if (client_ok(&c) && removed != NULL)
        *removed = count > 0;
    return client_end(&c, err);
}

ddp_status ddp_store_num_keys(ddp_store *store, int64_t *n, struct ddp_err *err)
{
    NOT_NULL(store, err);
    NOT_NULL(n, err);
    struct client_call c;
    client_begin(&c, store, OP_GETNUMKEYS, NULL, 0);
    client_send(&c);
    int64_t count = client_read_i64(&c);
    if (client_ok(&c))
        *n = count;
    return client_end(&c, err);
}
