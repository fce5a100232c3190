/* requests.c -- the handlers of PyTorch's requests: unpack, ask the store, answer. See session.h for the
 * rules.
 *
 * A handler is a few lines, since everything else has been done: the request is whole and within its
 * limits (wire.c), an earlier wait is over and the connection may ask (dispatch.c). The protocol has no
 * error answer, so what cannot be done closes the connection; the sentence goes to the log. */
#include "hub/session.h"

#include "store/encode.h"

/* The store refuses for two reasons only; both are the asker's business, and the numbers say how to help. */
static bool give_up(struct hub *hub, const struct session *s, const struct request *req,
                    enum store_status status)
{
    const struct quota *share = s->job->quota;
    if (status == STORE_NOT_A_NUMBER)
        ddp_fail(&hub->err, DDP_ERR_CORRUPT, "%s on a value that is not a 64-bit number", req->op->name);
    else if (share->whole != NULL)
        ddp_fail(&hub->err, DDP_ERR_LIMIT,
                 "%s: job '%s' has used its share of the store (%llu of %llu bytes): one source gets half of "
                 "what others leave, "
                 "one job half of that; raise --max-bytes",
                 req->op->name, s->job->name, (unsigned long long)share->used,
                 (unsigned long long)quota_limit(share));
    else
        ddp_fail(&hub->err, DDP_ERR_LIMIT, "%s: the store is full (%llu of %llu bytes)", req->op->name,
                 (unsigned long long)hub->quota.used, (unsigned long long)hub->quota.max);
    return false;
}

static bool done(struct hub *hub, const struct session *s, const struct request *req,
                 enum store_status status)
{
    return status == STORE_OK || give_up(hub, s, req, status);
}

/* The greeting is checked by wire.c. */
static bool on_validate(struct hub *hub, struct session *s, const struct request *req)
{
    (void)hub, (void)s, (void)req;
    return true;
}

/* The number is any that the client likes; PyTorch's takes its process id. */
static bool on_ping(struct hub *hub, struct session *s, const struct request *req)
{
    if (req->number > 0 && req->number <= INT32_MAX)
        session_is_process(s, (int)req->number, false);
    return put_u32(&hub->out, (uint32_t)req->number);
}

static bool on_set(struct hub *hub, struct session *s, const struct request *req)
{
    return done(hub, s, req, store_set(s->job->store, req->blob[0], req->blob[1]));
}

static bool on_append(struct hub *hub, struct session *s, const struct request *req)
{
    return done(hub, s, req, store_append(s->job->store, req->blob[0], req->blob[1]));
}

static bool on_multi_set(struct hub *hub, struct session *s, const struct request *req)
{
    return done(hub, s, req, store_multi_set(s->job->store, req->blob[0]));
}

/* The value that a request for `key` has found. */
static bool reply_value(struct hub *hub, struct session *s, struct slice key, struct slice value)
{
    return hub_reply_blob(hub, value, store_holder(s->job->store, key, value));
}

static bool on_compare_set(struct hub *hub, struct session *s, const struct request *req)
{
    struct slice current = store_get(s->job->store, req->blob[0]);
    /* The reply is the stored value, the expected one, or the new one. */
    uint64_t longest = current.len;
    for (int i = 1; i <= 2; i++)
        longest = req->blob[i].len > longest ? req->blob[i].len : longest;
    if (!hub_may_reply(hub, longest))
        return true;
    enum store_status status =
        store_compare_set(s->job->store, req->blob[0], req->blob[1], req->blob[2], &current);
    return done(hub, s, req, status) && reply_value(hub, s, req->blob[0], current);
}

/* A missing key reads as empty. Clients WAIT first, so this happens when somebody deleted the key in
 * between, and a closed connection (what PyTorch's older server does) would blame the wrong one. */
static bool on_get(struct hub *hub, struct session *s, const struct request *req)
{
    const struct slice value = store_get(s->job->store, req->blob[0]);
    return !hub_may_reply(hub, value.len) || reply_value(hub, s, req->blob[0], value);
}

static bool check_length(struct hub *hub, const struct request *req, uint64_t bytes)
{
    if (bytes <= hub->limits.max_unread)
        return true;
    ddp_fail(&hub->err, DDP_ERR_LIMIT, "%s of %llu bytes, no more than %llu allowed", req->op->name,
             (unsigned long long)bytes, (unsigned long long)hub->limits.max_unread);
    return false;
}

/* A key may be named many times, so the answer can be far bigger than the store: it is measured first. */
static bool on_multi_get(struct hub *hub, struct session *s, const struct request *req)
{
    struct slice key, keys = req->blob[0];
    uint64_t total = 0;
    while (wire_next(&keys, &key))
        total += 8 + store_get(s->job->store, key).len;
    bool ok = check_length(hub, req, total);
    if (ok && !hub_may_reply(hub, total))
        return true;
    for (keys = req->blob[0]; ok && wire_next(&keys, &key);)
        ok = reply_value(hub, s, key, store_get(s->job->store, key));
    return ok;
}

static bool on_add(struct hub *hub, struct session *s, const struct request *req)
{
    int64_t sum;
    enum store_status status = store_add(s->job->store, req->blob[0], req->number, &sum);
    return done(hub, s, req, status) && put_i64(&hub->out, sum);
}

static bool on_check(struct hub *hub, struct session *s, const struct request *req)
{
    return put_u8(&hub->out, !store_check(s->job->store, req->blob[0]));
}

/* WAIT and BARRIER: answered now, later, or never. The wait is noted before the store is asked, because its observer looks at it. */
static bool on_wait_or_barrier(struct hub *hub, struct session *s, const struct request *req)
{
    const uint64_t since_ms = s->waits_since_ms;
    session_begin_wait(hub, s, req->op);
    const enum store_status status =
        req->op->id == OP_WAIT ? store_wait(s->job->store, &s->waiter, req->blob[0])
                               : store_barrier(s->job->store, &s->waiter, req->blob[0], req->number);
    if (status == STORE_WAITS)
        return true;
    s->waits_in = 0;
    s->waits_since_ms = since_ms;
    return done(hub, s, req, status) && put_u8(&hub->out, 0);
}

/* The wait has been left already, as before every request. */
static bool on_cancel_wait(struct hub *hub, struct session *s, const struct request *req)
{
    (void)s, (void)req;
    return put_u8(&hub->out, 1);
}

static bool on_getnumkeys(struct hub *hub, struct session *s, const struct request *req)
{
    (void)req;
    return put_u64(&hub->out, store_count(s->job->store));
}

/* 3 says "registered". No program of any torch version uses the notifications, so none are sent. */
static bool on_watch_key(struct hub *hub, struct session *s, const struct request *req)
{
    (void)s, (void)req;
    return put_u8(&hub->out, 3);
}

static bool on_delete_key(struct hub *hub, struct session *s, const struct request *req)
{
    return put_i64(&hub->out, store_delete(s->job->store, req->blob[0]));
}

/* Measured, counted and walked in one go: nothing changes the store while one request is worked on. */
static bool on_list_keys(struct hub *hub, struct session *s, const struct request *req)
{
    const struct entry *at = NULL;
    struct slice key, value;
    uint64_t total = 8;
    while (store_next(s->job->store, &at, &key, &value))
        total += 8 + key.len;
    if (!check_length(hub, req, total))
        return false;
    if (!hub_may_reply(hub, total))
        return true;
    at = NULL;
    bool ok = put_u64(&hub->out, store_count(s->job->store));
    while (ok && store_next(s->job->store, &at, &key, &value))
        ok = hub_reply_blob(hub, key, NULL);
    return ok;
}

static bool on_queue_push(struct hub *hub, struct session *s, const struct request *req)
{
    return done(hub, s, req, store_push(s->job->store, req->blob[0], req->blob[1]));
}

/* The length before the pop tells an empty queue from an empty value. */
static bool on_queue_pop(struct hub *hub, struct session *s, const struct request *req)
{
    uint32_t before;
    const struct queue_item *front = store_front(s->job->store, req->blob[0]);
    if (front != NULL && !hub_may_reply(hub, store_item_value(front).len))
        return true;
    struct queue_item *item = store_pop(s->job->store, req->blob[0], &before);
    bool ok = put_i64(&hub->out, before);
    if (item != NULL) {
        ok = ok && hub_reply_blob(hub, store_item_value(item), NULL);
        store_item_free(s->job->store, item);
    }
    return ok;
}

static bool on_queue_len(struct hub *hub, struct session *s, const struct request *req)
{
    return put_i64(&hub->out, store_queue_len(s->job->store, req->blob[0]));
}

/* clang-format off */
const request_handler request_handlers[OPS] = {
    [OP_VALIDATE]    = on_validate,    [OP_SET]           = on_set,
    [OP_COMPARE_SET] = on_compare_set, [OP_GET]           = on_get,
    [OP_ADD]         = on_add,         [OP_CHECK]         = on_check,
    [OP_WAIT]        = on_wait_or_barrier, [OP_GETNUMKEYS]    = on_getnumkeys,
    [OP_WATCH_KEY]   = on_watch_key,   [OP_DELETE_KEY]    = on_delete_key,
    [OP_APPEND]      = on_append,      [OP_MULTI_GET]     = on_multi_get,
    [OP_MULTI_SET]   = on_multi_set,   [OP_CANCEL_WAIT]   = on_cancel_wait,
    [OP_PING]        = on_ping,        [OP_QUEUE_PUSH]    = on_queue_push,
    [OP_QUEUE_POP]   = on_queue_pop,   [OP_QUEUE_LEN]     = on_queue_len,
    [OP_LIST_KEYS]   = on_list_keys,   [OP_BARRIER]       = on_wait_or_barrier,
    [OP_IDENTIFY]    = on_identify,    [OP_BARRIER_NAMED] = on_barrier_named,
    [OP_CONTROL]     = on_control,     /* AUTH is reserved: closed politely */
};
/* clang-format on */
