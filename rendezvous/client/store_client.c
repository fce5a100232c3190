/* store_client.c -- the calls of PyTorch's protocol; see client.h for the parts that they are made of.
 *
 * Each public function is the list of what goes over the wire: begin, put.., send, take.., end. A wait that
 * runs out of time is taken back before the call returns, and the missing key is looked up for the error,
 * because "timed out" alone helps nobody. */
#include "client/client.h"

#include "base/clock.h"
#include "base/not_null.h"

#include <stdlib.h>

enum { NAMING_MS = 2000 }; /* for finding out which key was missing, after a wait has run out of time */

/* SET has no reply. That it has arrived is known with the answer to any later call on this handle. */
ddp_status ddp_store_set(ddp_store *store, const char *key, const void *value, size_t len,
                         struct ddp_err *err)
{
    NOT_NULL(store, err);
    struct client_call c;
    client_begin(&c, store, OP_SET, key, 0);
    client_put_key(&c, key);
    client_put_blob(&c, FIELD_VALUE, slice_of(value, len));
    client_send(&c);
    return client_end(&c, err);
}

/* A delta of 0 is the usual way to read a counter, and makes it "0" where it was missing. */
ddp_status ddp_store_add(ddp_store *store, const char *key, int64_t delta, int64_t *sum, struct ddp_err *err)
{
    NOT_NULL(store, err);
    struct client_call c;
    client_begin(&c, store, OP_ADD, key, 0);
    client_put_key(&c, key);
    client_put_i64(&c, delta);
    client_send(&c);
    int64_t now = client_take_i64(&c);
    if (client_ok(&c) && sum != NULL)
        *sum = now;
    return client_end(&c, err);
}

/* What it returns is the only way to see whether the value was set. */
ddp_status ddp_store_compare_set(ddp_store *store, const char *key, const void *expected, size_t expected_len,
                                 const void *desired, size_t desired_len, void **current, size_t *current_len,
                                 struct ddp_err *err)
{
    NOT_NULL(store, err);
    struct client_call c;
    size_t len;
    client_begin(&c, store, OP_COMPARE_SET, key, 0);
    client_put_key(&c, key);
    client_put_blob(&c, FIELD_EXPECTED, slice_of(expected, expected_len));
    client_put_blob(&c, FIELD_DESIRED, slice_of(desired, desired_len));
    client_send(&c);
    void *now = client_take_blob(&c, WIRE_MAX_VALUE, &len);
    if (current_len != NULL)
        *current_len = len;
    if (current != NULL)
        *current = now;
    else
        free(now);
    return client_end(&c, err);
}

/* --- waiting -------------------------------------------------------------------------------------------- */

/* CHECK within a call. False also after a failure. */
static bool all_exist(struct client_call *c, const char *const keys[], size_t n)
{
    client_put_op(c, OP_CHECK);
    client_put_keys(c, keys, n);
    client_send(c);
    return client_take_u8(c) == 0 && client_ok(c);
}

/* Halve the list until one key is left; a list of 131,072 keys takes 17 questions. */
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

/* The first missing key, asked for in a call of its own kind: the wait's own time is over. */
static void name_missing(struct client_call *c, const char *const keys[], size_t n)
{
    const unsigned long long waited_ms = clock_ms() - c->start_ms;
    size_t i = 0;
    if (n > 1) {
        c->deadline_ms = clock_ms() + NAMING_MS;
        if (c->store->stale)
            client_connect(c->store, NULL, c->deadline_ms, &c->err);
        i = first_missing(c, keys, n);
        c->op = OP_WAIT;
    }
    c->err.code = DDP_OK; /* a failure of the question must not hide the time-out */
    if (n > 1)
        client_fail(c, DDP_ERR_TIMEOUT, "waited %llu ms for %zu keys, the first missing one is '%.200s'",
                    waited_ms, n, keys[i]);
    else
        client_fail(c, DDP_ERR_TIMEOUT, "waited %llu ms for the key '%.200s'", waited_ms, keys[i]);
}

/* A failure of sending ends it, because nothing is registered then that could be taken back. WAIT, within a
 * call that was begun with OP_WAIT. */
static void wait_for(struct client_call *c, const char *const keys[], size_t n)
{
    if (n == 0)
        return; /* nothing to wait for; client_end drops the opcode */
    client_put_keys(c, keys, n);
    client_send(c);
    if (!client_ok(c))
        return;
    uint8_t answer = client_take_u8(c);
    if (c->err.code == DDP_ERR_TIMEOUT) {
        if (!client_cancel_wait(c))
            name_missing(c, keys, n);
    } else if (client_ok(c) && answer != 0) {
        client_fail(c, DDP_ERR_CORRUPT, "WAIT was answered with %u", answer);
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

/* Two round trips, because a GET of a missing key ends the connection on genuine servers. */
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
    client_put_op(&c, OP_GET);
    client_put_key(&c, key);
    client_send(&c);
    *value = client_take_blob(&c, WIRE_MAX_VALUE, len);
    return client_end(&c, err);
}

/* --- the rest ------------------------------------------------------------------------------------------- */

ddp_status ddp_store_check(ddp_store *store, const char *const keys[], size_t n, int *all,
                           struct ddp_err *err)
{
    NOT_NULL(store, err);
    NOT_NULL(all, err);
    struct client_call c;
    client_begin(&c, store, OP_CHECK, NULL, 0);
    client_put_keys(&c, keys, n);
    client_send(&c);
    uint8_t answer = client_take_u8(&c);
    if (answer > 1)
        client_fail(&c, DDP_ERR_CORRUPT, "CHECK was answered with %u", answer);
    if (client_ok(&c))
        *all = answer == 0;
    return client_end(&c, err);
}

/* The store counts what it removed; a key can be there once. */
ddp_status ddp_store_delete(ddp_store *store, const char *key, int *removed, struct ddp_err *err)
{
    NOT_NULL(store, err);
    struct client_call c;
    client_begin(&c, store, OP_DELETE_KEY, key, 0);
    client_put_key(&c, key);
    client_send(&c);
    int64_t count = client_take_i64(&c);
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
    int64_t count = client_take_i64(&c);
    if (client_ok(&c))
        *n = count;
    return client_end(&c, err);
}
