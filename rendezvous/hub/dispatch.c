/* dispatch.c -- bytes become requests, and each goes to its handler.
 *
 * Happy path: bytes come -> whole requests are decoded where they lie -> each is handled -> the rest is kept.
 * Only an unfinished request is copied, into session.in, and only once: later bytes are appended behind it.
 *
 * It ends with a close when: the bytes make no sense (wire.c says why), a request may not be asked here, a
 * handler gives up, or memory is short. A connection that is closed for one request has been answered for
 * those before it. */
#include "hub/session.h"

enum {
    REQUEST_MIN =
        64 << 10,  /* a request so short is read even when the store is full: GET and DELETE must work */
    AHEAD_MIN = 4, /* for fewer requests it does not pay */
    AHEAD_MAX = 64,
    AHEAD_KEYS = 1024, /* a store with fewer is near the processor anyway */
    IN_KEPT = 256,     /* a buffer so small is not given back between requests */
};

/* After the fact and even past the maximum: the bytes are here. The next request that needs more is
 * refused. */
static void charge(struct hub *hub, const struct session *s, size_t old_cap, size_t new_cap)
{
    struct quota *quota = session_quota(hub, s);
    quota_give(quota, old_cap);
    quota_charge(quota, new_cap);
}

/* What the request that comes may be long in all. Its own buffer is part of what is used already. */
static uint64_t request_budget(struct hub *hub, const struct session *s)
{
    uint64_t left = quota_left(session_quota(hub, s)) + s->in.cap;
    return left > REQUEST_MIN ? left : REQUEST_MIN;
}

/* What asks for keys must belong to a job. A plain c10d client cannot say which: the only one there is. */
static bool has_job(struct hub *hub, struct session *s, const struct op *op)
{
    if (op->id >= OP_IDENTIFY || op->id == OP_VALIDATE || op->id == OP_PING)
        return true;
    struct job *job = s->job != NULL ? s->job : job_only(hub);
    if (job == NULL)
        return false;
    session_enter(s, job);
    vouch_ask(hub, s);
    return true;
}

/* A connection that was opened in an earlier attempt is a worker that should be dead; its keys are not
 * wanted. */
static bool may_ask(struct hub *hub, const struct session *s, const struct op *op)
{
    if (request_handlers[op->id] == NULL)
        ddp_fail(&hub->err, DDP_ERR_UNSUPPORTED, "%s is not served", op->name);
    else if (s->job != NULL && s->era < s->job->era && !session_is_operator(s))
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP,
                 "%s on a connection of an earlier attempt; now is attempt %lld", op->name,
                 (long long)s->job->members.attempt);
    else
        return true;
    return false;
}

/* What all requests have in common. Whoever sends a request has stopped waiting: a c10d client of torch
 * 1.13 that timed out says nothing, and would read a late answer as that to its next request. */
static bool apply(struct hub *hub, struct session *s, const struct request *req)
{
    s->has_spoken = true;
    hub->requests++;
    list_remove(&s->midway);
    session_leave_wait(s);
    if (s->torch != NULL)
        s->torch->polls = false;
    if (!may_ask(hub, s, req->op))
        return false;
    request_handler handler = request_handlers[req->op->id];
    bool ok = handler(hub, s, req);
    if (s->job != NULL)
        store_acted(s->job->store, &s->waiter);
    return ok;
}

/* Keep the unfinished request, which lies at the end of `in` already or in the caller's memory. */
static bool keep_rest(struct hub *hub, struct session *s, struct slice rest)
{
    size_t old_cap = s->in.cap;
    bool ok = true;
    if (s->in.len > 0)
        buf_consume(&s->in, s->in.len - rest.len);
    else
        ok = buf_append(&s->in, rest.data, rest.len);
    if (s->in.len == 0 && s->in.cap > IN_KEPT)
        buf_free(&s->in);
    charge(hub, s, old_cap, s->in.cap);
    if (s->in.len > 0 && list_is_empty(&s->midway)) {
        s->midway_since_ms = hub->now_ms;
        list_insert(&hub->midway[s->has_spoken], &s->midway);
    }
    return ok;
}

/* Put the new bytes behind the unfinished request, if there is one; else they are read where they lie. */
static bool collect(struct hub *hub, struct session *s, struct slice *bytes)
{
    if (s->in.len == 0)
        return true;
    size_t old_cap = s->in.cap;
    bool ok = buf_append(&s->in, bytes->data, bytes->len);
    charge(hub, s, old_cap, s->in.cap);
    *bytes = buf_slice(&s->in);
    return ok;
}

/* Requests that lie behind each other. They are all decoded before the first is worked off, so that their keys come near from
 * memory meanwhile; a connection without a job has one at a time, since it may have to wait with it. */
struct ahead {
    struct request req[AHEAD_MAX];
    const void *start[AHEAD_MAX];
    uint32_t n;
    struct slice rest;       /* behind them */
    enum wire_status status; /* of the rest; OK = it has not been looked at */
    struct ddp_err err;
};

static void decode_ahead(struct hub *hub, struct session *s, struct slice bytes, struct ahead *out)
{
    const uint32_t most = s->job != NULL ? AHEAD_MAX : 1;
    size_t used;
    out->n = 0;
    out->rest = bytes;
    do {
        out->start[out->n] = out->rest.data;
        out->status =
            wire_decode(&s->wire, out->rest, request_budget(hub, s), &out->req[out->n], &used, &out->err);
        if (out->status != WIRE_OK)
            return;
        out->rest = slice_of((const char *)out->rest.data + used, out->rest.len - used);
    } while (++out->n < most);
}

/* What is no key does no harm; a list, which may be long, is none. */
static void bring_near(const struct session *s, const struct ahead *ahead)
{
    uint32_t hashes[AHEAD_MAX];
    if (s->job == NULL || ahead->n < AHEAD_MIN || store_count(s->job->store) < AHEAD_KEYS)
        return;
    for (uint32_t i = 0; i < ahead->n; i++)
        hashes[i] = ahead->req[i].count == 0 ? table_hash(ahead->req[i].blob[0]) : 0;
    store_expect(s->job->store, hashes, ahead->n);
}

/* The bytes behind the first `done` requests. */
static struct slice rest_after(const struct ahead *ahead, uint32_t done)
{
    const char *end = (const char *)ahead->rest.data + ahead->rest.len;
    const char *start = done < ahead->n ? ahead->start[done] : ahead->rest.data;
    return slice_of(start, (size_t)(end - start));
}

/* Stops at the first that cannot be worked off now (then it is held, or `done` is less than all of them) or at all. */
static bool apply_all(struct hub *hub, struct session *s, const struct ahead *ahead, bool *held,
                      uint32_t *done)
{
    bool ok = true;
    bring_near(s, ahead);
    *done = 0;
    for (uint32_t i = 0; ok && i < ahead->n && !hub->is_backed_up; i++) {
        hub->must_repeat = false;
        *held = !has_job(hub, s, ahead->req[i].op);
        ok = !*held && apply(hub, s, &ahead->req[i]);
        if (hub->must_repeat)
            break;
        *done = i + 1;
    }
    return ok;
}

/* The client must read, or others must, before these requests are worked off. It is not late meanwhile. */
static bool pause_session(struct hub *hub, struct session *s, struct slice rest)
{
    wire_rewind(&s->wire);
    s->is_paused = true;
    const bool ok = keep_rest(hub, s, rest);
    list_remove(&s->midway);
    return ok;
}

/* hub->err without words stands for memory that is short: formatting them needs none, but saying so
 * everywhere does. */
bool dispatch_bytes(struct hub *hub, struct session *s, struct slice bytes)
{
    struct ahead ahead;
    bool held = false;
    uint32_t done;

    hub->err.msg[0] = '\0';
    hub->is_backed_up = hub->must_repeat = false;
    if (!collect(hub, s, &bytes))
        return false;
    if (s->is_paused)
        return s->in.len > 0 || keep_rest(hub, s, bytes);
    if (s->is_held)
        return vouch_holds(hub, s);
    for (ahead.rest = bytes, ahead.status = WIRE_OK; ahead.status == WIRE_OK;) {
        bytes = ahead.rest;
        decode_ahead(hub, s, bytes, &ahead);
        if (!apply_all(hub, s, &ahead, &held, &done))
            return held && keep_rest(hub, s, bytes) && vouch_hold(hub, s);
        bytes = rest_after(&ahead, done);
        if (bytes.len > 0 && (hub->is_backed_up || hub->must_repeat))
            return pause_session(hub, s, bytes);
    }
    if (ahead.status == WIRE_BAD)
        hub->err = ahead.err;
    return ahead.status == WIRE_MORE && keep_rest(hub, s, ahead.rest);
}
