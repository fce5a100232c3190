/* client_handle.c -- the life of a handle: made and connected, taken for one call at a time, closed.
 *
 *     ddp_store_connect                         a handle exists once a store has answered, never before
 *       client_begin ... client_end             one call; other threads queue for the next (client_turn)
 *     ddp_store_close
 *
 * Between two calls a handle is in one of three states, and client_begin looks at them in this order:
 *
 *     broken   out of step with the store: every call fails at once, until the owner closes the handle
 *     stale    the connection was given up with a wait in it (an old server cannot cancel): connect anew
 *     good     nothing is under way; the next byte that comes is the next reply's
 *
 * This file is above connecting and above framing (client_connect, client_call), so that neither has to know
 * that a call may have to connect first. */
#include "client/client.h"

#include "base/clock.h"
#include "base/not_null.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    CONNECT_TIMEOUT_MS = 60000, /* torch's own is 300 s; a launcher that is not there in one minute is gone */
    CALL_TIMEOUT_MS = 300000,   /* as torch: a slow rank may load data for minutes before it comes */
    KEEP_BYTES = 64 * 1024,     /* a request buffer grown beyond this is given back */
};

/* --- connect and close ---------------------------------------------------------------------------------- */

/* A caller that was built with an older, shorter struct has only what it knew set; the rest keeps our
 * defaults. */
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

/* Not connected yet. NULL when memory is short. */
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

/* The server notices by itself; there is nothing to say goodbye to. */
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
    if (store->ours)
        return 'D';
    return store->dialect == DIALECT_C ? 'C' : 'A';
}

ddp_status ddp_store_local_address(const ddp_store *store, char *address, size_t room, struct ddp_err *err)
{
    NOT_NULL(store, err);
    NOT_NULL(address, err);
    struct sockaddr_storage own;
    socklen_t len = sizeof(own);

    if (getsockname(store->stream.fd, (struct sockaddr *)&own, &len) != 0)
        return ddp_fail(err, DDP_ERR_CLOSED, "%s: the connection has no address: %s", store->where,
                        strerror(errno));
    int why = getnameinfo((struct sockaddr *)&own, len, address, (socklen_t)room, NULL, 0, NI_NUMERICHOST);
    if (why != 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: the address of this end: %s", store->where, gai_strerror(why));
    return DDP_OK;
}

/* --- one call ------------------------------------------------------------------------------------------- */

void client_begin(struct client_call *c, struct ddp_store *store, enum op_id op, const char *subject,
                  uint32_t timeout_ms)
{
    const uint64_t now = clock_ms();
    *c = (struct client_call){ .store = store, .op = op, .subject = subject, .start_ms = now };
    c->deadline_ms = now + (timeout_ms != 0 ? timeout_ms : store->timeout_ms);
    c->has_turn = client_turn_take(&store->turn, c->deadline_ms);
    if (!c->has_turn)
        client_fail(c, DDP_ERR_TIMEOUT, "a call of another thread on this handle has not ended in time");
    else if (store->broken)
        client_fail(c, DDP_ERR_CLOSED, "an earlier call has failed, the connection is given up");
    if (client_ok(c) && store->stale)
        client_connect(store, NULL, c->deadline_ms, &c->err);
    client_put_op(c, op);
}

/* "store HOST:PORT: GET 'key', after 12 ms: ..."; a wait says by itself how long it was. */
static void say_where(struct client_call *c)
{
    const bool named = c->subject != NULL;
    char after[40] = "";
    if (!op_table[c->op].waits)
        snprintf(after, sizeof(after), ", after %llu ms", (unsigned long long)(clock_ms() - c->start_ms));
    ddp_wrap(&c->err, "store %s: %s%s%.120s%s%s", c->store->where, op_table[c->op].name, named ? " '" : "",
             named ? c->subject : "", named ? "'" : "", after);
}

/* The one place where a handle becomes unusable in public: its socket is closed at once, so that the server
 * and its diagnosis see this client go. */
ddp_status client_end(struct client_call *c, struct ddp_err *err)
{
    struct ddp_store *s = c->store;
    const ddp_status code = c->err.code;
    if (code != DDP_OK && !c->answered)
        say_where(c);
    if (err != NULL)
        *err = c->err;
    if (!c->has_turn)
        return code;
    if (s->broken || code == DDP_ERR_CLOSED || code == DDP_ERR_IO || code == DDP_ERR_CORRUPT) {
        s->broken = true;
        client_stream_close(&s->stream);
    }
    s->out.len = 0; /* of a request that was given up while it was made */
    if (s->out.cap > KEEP_BYTES)
        buf_free(&s->out);
    client_turn_give(&s->turn);
    return code;
}
