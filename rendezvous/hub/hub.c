/* hub.c -- see hub.h.
 *
 * Connections come and go, bytes come in, time passes. The top of the core; the files
 * below are named in session.h.
 *
 * Every call sets hub->now_ms first, and everything below reads the time there: one call happens at one
 * moment, however long it takes, so a test that gives the times knows every deadline exactly. */
#include "hub/hub.h"

#include "base/limits.h"
#include "hub/job.h"
#include "hub/monitor.h"
#include "hub/rounds.h"
#include "hub/session.h"
#include "hub/torch_observer.h"
#include "job/rendezvous.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* Bytes become requests, and each goes to its handler.
 *
 * Happy path: bytes come -> whole requests are decoded where they lie -> each is handled -> the rest is kept.
 * Only an unfinished request is copied, into session.in, and only once: later bytes are appended behind it.
 *
 * It ends with a close when: the bytes make no sense (wire.c says why), a request may not be asked here, a
 * handler gives up, or memory is short. A connection that is closed for one request has been answered for
 * those before it. */

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
    peer_ask(hub, s);
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
        return peer_holds(hub, s);
    for (ahead.rest = bytes, ahead.status = WIRE_OK; ahead.status == WIRE_OK;) {
        bytes = ahead.rest;
        decode_ahead(hub, s, bytes, &ahead);
        if (!apply_all(hub, s, &ahead, &held, &done))
            return held && keep_rest(hub, s, bytes) && peer_hold(hub, s);
        bytes = rest_after(&ahead, done);
        if (bytes.len > 0 && (hub->is_backed_up || hub->must_repeat))
            return pause_session(hub, s, bytes);
    }
    if (ahead.status == WIRE_BAD)
        hub->err = ahead.err;
    return ahead.status == WIRE_MORE && keep_rest(hub, s, ahead.rest);
}

/* --- jobs ------------------------------------------------------------------------------------------------- */

/* Time passes for all jobs of the hub, see job.h. */

/* The last one only loses what it holds: there is always a job. */
static void forget(struct job *job)
{
    struct hub *hub = job->hub;
    hub_log(hub, "job '%s' is forgotten: nobody has been connected for %d s", job->name,
            (int)((hub->now_ms - job->left_ms) / 1000));
    if (hub->jobs.count > 1) {
        job_free(job);
        return;
    }
    attempt_end(job);
    rdzv_free(job->rdzv);
    job->rdzv = NULL;
    notices_free(&job->notices);
    job_set_source(job, NULL);
    job_rename(job, "");
}

static void tick(struct job *job)
{
    barriers_tick(&job->barriers, job->hub->now_ms);
    monitor_run(job);
    if (job->rdzv != NULL && rdzv_deadline(job->rdzv) <= job->hub->now_ms)
        rdzv_tick(job->rdzv, job->hub->now_ms);
    if (job_forget_at(job) <= job->hub->now_ms)
        forget(job);
}

/* All of them: that is rare, since requests touch only the job they are for. The successor is fetched before a job
 * may be freed, and the next deadline is looked for when nothing changes any more. */
void jobs_tick(struct hub *hub)
{
    struct table_node *node = table_next(&hub->jobs, NULL);
    for (struct table_node *next; node != NULL; node = next) {
        next = table_next(&hub->jobs, node);
        tick(TABLE_ENTRY(node, struct job, node));
    }
    hub->jobs_deadline_ms = UINT64_MAX;
    EACH_NODE(at, &hub->jobs)
    job_touch(TABLE_ENTRY(at, struct job, node));
}

/* --- hub -------------------------------------------------------------------------------------------------- */

/* Has this process stood still, and perhaps its whole machine? Then nobody could be heard, and each node gets its full
 * time again. When it goes on, the end of a connection may be read before it looks at the clock. */
static void feel_pulse(struct hub *hub)
{
    if (hub->jobs_deadline_ms == UINT64_MAX || hub->now_ms <= hub->jobs_deadline_ms + STOOD_STILL_MS)
        return;
    hub->stood_ms = hub->now_ms - hub->jobs_deadline_ms;
    hub->woke_ms = hub->jobs_deadline_ms = hub->now_ms;
    EACH_NODE(node, &hub->jobs)
    job_pardon(TABLE_ENTRY(node, struct job, node));
}

/* --- connections ---------------------------------------------------------------------------------------- */

bool hub_connect(struct hub *hub, conn_id conn, const char *peer, uint64_t now_ms)
{
    hub->now_ms = now_ms;
    return session_new(hub, conn, peer);
}

void hub_disconnect(struct hub *hub, conn_id conn, const char *why, uint64_t now_ms)
{
    struct session *s = session_find(hub, conn);
    hub->now_ms = now_ms;
    feel_pulse(hub);
    if (s == NULL)
        return;
    if (!s->has_spoken)
        session_note_reject(hub, s, why);
    session_free(hub, s, why);
}

/* Kept for the case that nothing comes of it. */
static void note_first(struct session *s, struct slice bytes)
{
    size_t room = sizeof(s->first) - s->n_first, n = bytes.len < room ? bytes.len : room;
    if (n > 0)
        memcpy(s->first + s->n_first, bytes.data, n);
    s->n_first = (uint8_t)(s->n_first + n);
}

/* By the rendezvous, in the middle of its own request. */
static bool was_dropped(struct hub *hub)
{
    if (hub->drop_fed.msg[0] == '\0')
        return false;
    hub->err = hub->drop_fed;
    hub->drop_fed.msg[0] = '\0';
    return true;
}

static void feed(struct hub *hub, struct session *s, struct slice bytes)
{
    hub->feeding = s;
    bool ok = dispatch_bytes(hub, s, bytes);
    ok = !was_dropped(hub) && ok; /* asked in any case: its words are not for whoever is fed next */
    hub_flush(hub);
    hub->feeding = NULL;
    if (s->job != NULL)
        job_touch(s->job);
    if (!ok)
        session_reject(hub, s, hub->err.msg[0] ? hub->err.msg : "out of memory");
}

/* Those whose job has just become known: by another's bytes, or by the time. */
static void feed_released(struct hub *hub)
{
    while (!list_is_empty(&hub->released)) {
        struct session *s = LIST_ENTRY(hub->released.next, struct session, midway);
        list_remove(&s->midway);
        feed(hub, s, slice_of("", 0));
    }
}

void hub_set_uid(struct hub *hub, conn_id conn, uint32_t uid)
{
    struct session *s = session_find(hub, conn);
    if (s != NULL)
        s->uid = uid;
}

bool hub_has_request(struct hub *hub, conn_id conn)
{
    const struct session *s = session_find(hub, conn);
    return s != NULL && s->has_spoken;
}

bool hub_note_refused(struct hub *hub, const char *peer, const char *why, uint64_t now_ms)
{
    return rejects_note(&hub->rejects, &(struct reject_facts){ .peer = peer, .why = why, .is_user = true },
                        now_ms);
}

/* An id that is not known is one we closed ourselves, whose last bytes were under way. */
void hub_feed(struct hub *hub, conn_id conn, struct slice bytes, uint64_t now_ms)
{
    struct session *s = session_find(hub, conn);
    if (s == NULL)
        return;
    hub->now_ms = s->heard_ms = now_ms;
    job_node_heard(s);
    if (!s->has_spoken)
        note_first(s, bytes);
    feed(hub, s, bytes);
    feed_released(hub);
}

void hub_resume(struct hub *hub, conn_id conn, uint64_t now_ms)
{
    struct session *s = session_find(hub, conn);
    if (s == NULL || !s->is_paused)
        return;
    hub->now_ms = now_ms;
    s->is_paused = false;
    feed(hub, s, slice_of("", 0));
    feed_released(hub);
}

/* --- time ----------------------------------------------------------------------------------------------- */

/* Everybody in a line has the same time, so its first is the next to be late: no heap of timers is
 * needed. */
static uint64_t midway_deadline(const struct hub *hub, int spoken)
{
    const struct list *line = &hub->midway[spoken];
    if (list_is_empty(line))
        return UINT64_MAX;
    uint32_t limit = spoken ? hub->limits.command_ms : hub->limits.first_command_ms;
    return LIST_ENTRY(line->next, struct session, midway)->midway_since_ms + limit;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t hub_deadline(const struct hub *hub)
{
    uint64_t unfinished = earlier(midway_deadline(hub, 0), midway_deadline(hub, 1));
    return earlier(earlier(unfinished, peer_deadline(hub)), hub->jobs_deadline_ms);
}

/* The first request has a limit of its own: who connects and says nothing is a scanner, who stops in the
 * middle of a later one mostly a rank whose machine is in trouble. */
static void drop_oldest(struct hub *hub, int spoken)
{
    char why[128];
    struct session *s = LIST_ENTRY(hub->midway[spoken].next, struct session, midway);
    snprintf(why, sizeof(why), "its %srequest is unfinished after %llu ms, with %zu bytes",
             spoken ? "" : "first ", (unsigned long long)(hub->now_ms - s->midway_since_ms), s->in.len);
    session_reject(hub, s, why);
}

void hub_tick(struct hub *hub, uint64_t now_ms)
{
    hub->now_ms = now_ms;
    feel_pulse(hub);
    for (int spoken = 0; spoken < 2; spoken++)
        while (midway_deadline(hub, spoken) <= now_ms)
            drop_oldest(hub, spoken);
    if (hub->jobs_deadline_ms <= now_ms)
        jobs_tick(hub);
    peer_tick(hub);
    feed_released(hub);
}

void hub_count(struct hub *hub, enum hub_counter counter)
{
    hub->counter[counter]++;
}

uint32_t hub_nodes(const struct hub *hub)
{
    return hub->n_nodes;
}

void hub_set_counter(struct hub *hub, enum hub_counter counter, uint64_t value)
{
    hub->counter[counter] = value;
}

/* --- the hub itself ------------------------------------------------------------------------------------- */

struct hub *hub_new(const struct hub_limits *limits, const struct hub_sink *sink)
{
    struct hub *hub = calloc(1, sizeof(*hub));
    if (hub == NULL)
        return NULL;
    hub->limits = *limits;
    hub->sink = *sink;
    hub->observer = torch_observer(hub);
    hub->quota.max = limits->max_bytes;
    hub->strangers.whole = &hub->quota;
    list_init(&hub->midway[0]);
    list_init(&hub->midway[1]);
    list_init(&hub->held);
    list_init(&hub->claimed);
    list_init(&hub->released);
    hub->jobs_deadline_ms = UINT64_MAX;
    if (table_init(&hub->sessions) && table_init(&hub->agents) && table_init(&hub->jobs) &&
        table_init(&hub->sources) && job_new(hub) != NULL)
        return hub;
    hub_free(hub);
    return NULL;
}

/* Works on a half-made hub too, for hub_new. */
void hub_free(struct hub *hub)
{
    if (hub == NULL)
        return;
    EACH_NODE(node, &hub->jobs)
    store_clear(
        TABLE_ENTRY(node, struct job, node)->store); /* so that nobody is woken by the others' leaving */
    struct table_node *node = table_next(&hub->sessions, NULL);
    for (struct table_node *next; node != NULL; node = next) {
        TABLE_ENTRY(node, struct session, node)->is_node = false; /* nobody hears how the store ends */
        next = table_next(&hub->sessions, node);
        session_free(hub, TABLE_ENTRY(node, struct session, node), "the store ends");
    }
    while ((node = table_next(&hub->jobs, NULL)) != NULL)
        job_free(TABLE_ENTRY(node, struct job, node));
    assert(hub->quota.used == 0 && hub->sources.count == 0); /* what was charged was given back */
    table_free(&hub->sessions);
    table_free(&hub->agents);
    table_free(&hub->jobs);
    table_free(&hub->sources);
    buf_free(&hub->out);
    free(hub);
}
