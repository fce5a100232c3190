/* client_call.c -- one request and its reply: check, encode, send, read.
 *
 * Happy path: client_begin (client_handle.c) has put the opcode into store->out, client_put_* add to it,
 * client_send sends it in one go, client_take_* read the reply piece by piece. A GET of key 'x':
 *
 *     -> 02  02 00 00 00 00 00 00 00  2f 78                  opcode, length of the key, "/x"
 *     <- 03 00 00 00 00 00 00 00  61 62 63                   length of the value, "abc"
 *
 * A reply has no frame: when we stop reading in the middle, the rest of it would be taken for the next reply.
 * So any failure after the first byte went out, except the orderly end of a wait, makes the handle unusable
 * for good; a wrong answer would be worse than none. */
#include "client/client.h"

#include "base/clock.h"
#include "store/encode.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert(DDP_STORE_MAX_KEY == WIRE_MAX_KEY && DDP_STORE_MAX_VALUE == WIRE_MAX_VALUE &&
                   DDP_STORE_MAX_KEYS == WIRE_MAX_KEYS,
               "store.h promises the limits of ops.h");

enum {
    CANCEL_MS = 5000, /* for leaving a wait in order; a store that takes longer is as good as gone */
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

/* Growing the request is the only thing in it that can fail; `ok` says whether it did. */
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

/* The '/' is PyTorch's: its clients put it in front of each key, so without it we would not meet them. */
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

/* The count goes first, then every key as a blob of its own. A key that is too long fails the whole list. */
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

/* A reply that was late, or one too many, would shift all later ones by its length. Looking costs one recv
 * that finds nothing, and also tells early that the peer has gone: a SET, which has no reply, would not
 * notice. */
void client_send(struct client_call *c)
{
    if (client_ok(c) && client_stream_check_quiet(&c->store->stream, &c->err) != DDP_OK)
        c->store->broken = true;
    client_send_more(c);
}

/* --- the reply ------------------------------------------------------------------------------------------ */

/* Everything that is read comes through here, so this is the one place where a reply that stays away, or ends
 * in the middle, makes the handle unusable. After a failure all pieces read as zeros, so that callers need
 * not look after each of them. */
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

/* The length is the peer's word: it is compared with what the request can have as an answer before anything
 * is allocated, and a peer that lies here is no store. Memory for `n` bytes and a NUL, once `n` is known to
 * be possible. */
static char *room_for(struct client_call *c, uint64_t n, size_t limit)
{
    char *data = n <= limit ? malloc(n + 1) : NULL;
    if (n > limit)
        client_fail(c, DDP_ERR_CORRUPT, "the reply announces %llu bytes, at most %zu are possible",
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

/* Dialect A cannot cancel. Its server would answer the forgotten wait some day, in front of the answer to a
 * later request; only a new connection is safe from that, and the next call makes one. */
static void forget_connection(struct client_call *c)
{
    client_stream_close(&c->store->stream);
    c->store->stale = true;
}

/* The answer to the wait may be on its way already; then it comes first, and the cancel's own 1 behind it. */
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
