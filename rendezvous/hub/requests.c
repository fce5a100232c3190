/* requests.c -- decodes received bytes into requests and calls the handler of each request; see session.h for the rules
 * of handlers. A failed request closes the connection, because PyTorch's protocol has no error answer. Complete
 * requests are decoded in the receive buffer, without a copy. */
#include "auth/auth.h"
#include "diagnosis/diagnosis.h"
#include "hub/messages.h"
#include "hub/session.h"
#include "store/encode.h"

#include <stdio.h>

/* The handlers of ddprun's own requests: IDENTIFY, BARRIER_NAMED, CONTROL. They answer an invalid request with an
 * error text. */

/* --- IDENTIFY ------------------------------------------------------------------------------------------- */

/* A decoded IDENTIFY. The texts are borrowed from its JSON object. */
struct introduction {
    enum role role;
    struct job_name job; /* job.world_size is only valid for a worker */
    int64_t rank, pid;   /* `rank` is only valid for a worker; `pid` is 0 if unknown */
    const char *host;    /* NULL if unknown */
};

static const char *const role_names[ROLE_COUNT] = {
#define X(name, text) [ROLE_##name] = text,
    ROLES(X)
#undef X
};

/* Find a role. A client must not send the role "plain", so the loop begins after this role. */
static bool find_role(const char *text, enum role *role, struct ddp_err *err)
{
    for (*role = ROLE_WORKER; *role < ROLE_COUNT; (*role)++)
        if (strcmp(text, role_names[*role]) == 0)
            return true;
    ddp_fail(err, DDP_ERR_ARG, "\"%s\" is not a known role", text);
    return false;
}

/* Read IDENTIFY. Only a worker sends its rank and world size; other clients send only their role. */
static bool read_introduction(const cJSON *o, struct introduction *who, struct ddp_err *err)
{
    struct message_identify m;
    if (!message_decode(MESSAGE_IDENTIFY, o, &m, err) || !find_role(m.role, &who->role, err))
        return false;
    who->job.job = m.job != NULL ? m.job : "none";
    who->job.attempt = m.attempt;
    who->host = m.host;
    who->pid = m.pid;
    if (who->role != ROLE_WORKER)
        return true;
    who->job.world_size = m.world_size != MESSAGE_NONE ? (uint32_t)m.world_size : 0;
    who->rank = m.rank;
    if (m.world_size == MESSAGE_NONE || m.rank == MESSAGE_NONE)
        ddp_fail(err, DDP_ERR_ARG, "\"%s\": missing", m.world_size == MESSAGE_NONE ? "world_size" : "rank");
    else if (m.rank >= m.world_size)
        ddp_fail(err, DDP_ERR_ARG, "\"rank\": expected a number from 0 to %lld", (long long)m.world_size - 1);
    else
        return true;
    return false;
}

/* Reject a worker. The error names the first value that differs from the running job. */
static bool refuse_job(const struct job *job, const struct job_name *name)
{
    struct hub *hub = job->hub;
    const struct members *m = &job->members;
    if (strcmp(job->name, name->job) != 0)
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "this store serves job '%s', not '%s'", job->name, name->job);
    else if (!m->known)
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "the nodes of job '%s' have not joined yet", job->name);
    else if (m->attempt != name->attempt)
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "attempt %lld is running, not %lld", (long long)m->attempt,
                 (long long)name->attempt);
    else
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "the job has world size %u, not %u", m->world_size,
                 name->world_size);
    return false;
}

/* Find the job of a worker, and enter it. Without an agent, the first worker declares the job. When all workers of such
 * a job have left, the next worker may declare another job. The session gets the present era, because the store rejects
 * sessions of an older era. */
static bool join_job(struct hub *hub, struct session *s, const struct job_name *name)
{
    struct job *job = job_claim(hub, s, name->job);
    if (job == NULL) {
        ddp_fail(
            &hub->err, DDP_ERR_LIMIT,
            "the store has no room for job '%s': the jobs of this user or address have used their share of "
            "the memory; remove keys, or raise --max-bytes of ddp-rendezvous",
            name->job);
        return false;
    }
    bool runs = job_is_at(job, name);
    if (!runs && job->rdzv != NULL)
        return refuse_job(job, name);
    if (!runs && job->members.known && (job->members.by_agent || job->members.connected > 0))
        return refuse_job(job, name);
    if (!runs && !attempt_begin(job, name, false)) {
        ddp_fail(&hub->err, DDP_ERR_NOMEM,
                 "the store has no memory for a job of %u rank%s; remove keys, or use ddp-rendezvous with a "
                 "larger --max-bytes",
                 name->world_size, name->world_size == 1 ? "" : "s");
        return false;
    }
    /* An attempt of this job may have ended after the session connected. session.era is then below job.era. */
    s->era = hub->era;
    session_enter(s, job);
    return true;
}

/* Attach the session to its rank. A rank may have several connections, and may repeat IDENTIFY. */
static bool welcome_worker(struct hub *hub, struct session *s, const struct introduction *who)
{
    if (!join_job(hub, s, &who->job))
        return false;
    session_detach(s);
    s->role = ROLE_WORKER;
    session_attach(s, (uint32_t)who->rank);
    hub_log(hub, "rank %d (%s, pid %d) connected from %s", (int)who->rank,
            who->host ? who->host : "unknown host", (int)who->pid, s->peer);
    return member_place(members_at(&s->job->members, s->rank), who->host, (int)who->pid);
}

/* Return false if a node requests another role. A node must stay an agent, because the store accepts an agent's calls
 * only from a client with this role. */
static bool may_have_role(struct hub *hub, const struct session *s, enum role role)
{
    if (!s->is_node || role == ROLE_AGENT)
        return true;
    ddp_fail(&hub->err, DDP_ERR_ARG,
             "this connection belongs to a node of job '%s' and cannot change its role to \"%s\"",
             s->job->name, role_names[role]);
    return false;
}

/* Give the session its role. An agent enters its job later, by `join` or `job`. An operator enters no job. */
static bool welcome(struct hub *hub, struct session *s, const struct introduction *who)
{
    if (!may_have_role(hub, s, who->role))
        return false;
    if (who->role == ROLE_WORKER)
        return welcome_worker(hub, s, who);
    session_detach(s);
    s->role = who->role;
    return true;
}

/* Return true if role and job in IDENTIFY agree with AUTH. A worker's rank must also run on the node whose agent has
 * confirmed the connection. Otherwise a worker could act as a rank of another job or node. */
static bool is_allowed(struct hub *hub, const struct session *s, const struct introduction *who)
{
    if (who->role == ROLE_AGENT && !gate_is_agent(hub, s))
        ddp_fail(
            &hub->err, DDP_ERR_ARG,
            "this store accepts only agents that have the secret of the job; start all nodes with the same "
            "--secret_file (or PET_SECRET_FILE); under a scheduler, run munged on all nodes");
    else if (s->auth != NULL && who->role != (s->auth->role == AUTH_AGENT ? ROLE_AGENT : ROLE_CTL))
        ddp_fail(&hub->err, DDP_ERR_ARG, "this connection was authenticated for another role than \"%s\"",
                 role_names[who->role]);
    else if (who->role == ROLE_AGENT && !gate_check_job(hub, s, who->job.job))
        return false;
    else if (who->role == ROLE_WORKER && !peer_may_be_rank(hub, s, who->job.job, who->rank))
        ddp_fail(&hub->err, DDP_ERR_MISMATCH,
                 "rank %lld of job '%s' is not on the node whose agent has confirmed this connection",
                 (long long)who->rank, who->job.job);
    else
        return true;
    return false;
}

/* Handle IDENTIFY. A rejected client gets the reason, and its connection is closed. The answer is a status byte and a
 * frame. The authentication tag of the frame also covers the status. */
static bool on_identify(struct hub *hub, struct session *s, const struct request *req)
{
    struct introduction who = { .job.job = "" };
    struct slice frame = req->blob[0];
    if (!gate_check_tag(hub, s, req->op, &frame))
        return false;
    cJSON *o = message_parse(frame, &hub->err);
    bool ok = o != NULL && read_introduction(o, &who, &hub->err) && is_allowed(hub, s, &who) &&
              welcome(hub, s, &who);
    if (!ok && (who.role != ROLE_AGENT || gate_is_agent(hub, s)))
        snprintf(hub->asked_job, sizeof(hub->asked_job), "%s", who.job.job);
    cJSON_Delete(o);
    if (ok)
        return append_u8(&hub->out, 0) && session_append_blob(s, &hub->out, 0, slice_of("", 0));
    append_u8(&hub->out, 1);
    session_append_blob(s, &hub->out, 1, slice_str(hub->err.msg));
    ddp_wrap(&hub->err, "IDENTIFY refused");
    return false;
}

/* --- BARRIER_NAMED -------------------------------------------------------------------------------------- */

/* Append the answer to BARRIER_NAMED: the outcome, and a report as JSON. */
static bool append_outcome(struct buf *out, enum barrier_outcome outcome, struct slice json)
{
    return append_u8(out, (uint8_t)outcome) && append_blob(out, json);
}

/* Answer a wrong BARRIER_NAMED with the outcome "misuse" and the reason. The connection stays open. */
static bool refuse_barrier(struct hub *hub, struct slice name, const char *why)
{
    struct buf report = { 0 };
    bool ok = barrier_report(NULL, name, NULL, NULL, BARRIER_MISUSE, why, &report) &&
              append_outcome(&hub->out, BARRIER_MISUSE, buf_slice(&report));
    buf_free(&report);
    return ok;
}

/* Handle BARRIER_NAMED. Begin the wait before the arrival, because the last arrival ends all waits, including the wait
 * of this session. */
static bool on_barrier_named(struct hub *hub, struct session *s, const struct request *req)
{
    if (s->role != ROLE_WORKER)
        return refuse_barrier(hub, req->blob[0], "the client has no rank; send IDENTIFY as a worker first");
    struct barrier_call call = {
        .name = req->blob[0],
        .timeout_ms = req->number,
        .members = req->blob[2],
        .rank = s->rank,
        .world_size = s->job->members.world_size,
        .now_ms = hub->now_ms,
    };
    session_begin_wait(hub, s, req->op);
    if (s->torch != NULL)
        s->torch->waits = false;
    if (barriers_arrive(&s->job->barriers, &s->barrier_waiter, &call))
        return true;
    session_leave_wait(s);
    return refuse_barrier(
        hub, req->blob[0],
        "the store has no room for this barrier: the job has used its share of the memory, or the "
        "store's memory is full; remove keys, or use ddp-rendezvous with a larger --max-bytes");
}

/* --- CONTROL -------------------------------------------------------------------------------------------- */

/* Pass CONTROL to control.c, which answers it. Call rdzv_recheck() afterwards, because the node must get the answer
 * to its `join` before the message `round`. */
static bool on_control(struct hub *hub, struct session *s, const struct request *req)
{
    struct slice frame = req->blob[0];
    bool ok = gate_check_tag(hub, s, req->op, &frame) && control_answer(hub, s, frame);
    if (ok && s->is_node)
        rdzv_recheck(s->job->rdzv, hub->now_ms);
    return ok;
}

/* Return true if the store has accepted a request. Otherwise set hub->err and return false, which closes the
 * connection. */
static bool check_status(struct hub *hub, const struct session *s, const struct request *req,
                         enum store_status status)
{
    const struct quota *share = s->job->quota;
    if (status == STORE_OK)
        return true;
    if (status == STORE_NOT_A_NUMBER)
        ddp_fail(&hub->err, DDP_ERR_CORRUPT, "%s: the value of the key is not a 64-bit number",
                 req->op->name);
    else if (share->whole != NULL)
        ddp_fail(&hub->err, DDP_ERR_LIMIT,
                 "%s: the share of job '%s' in the store is full (%llu of %llu bytes are used); remove keys, "
                 "or raise --max-bytes of ddp-rendezvous",
                 req->op->name, s->job->name, (unsigned long long)share->used,
                 (unsigned long long)quota_limit(share));
    else
        ddp_fail(&hub->err, DDP_ERR_LIMIT,
                 "%s: the store is full (%llu of %llu bytes are used); remove keys, or use ddp-rendezvous "
                 "with a larger --max-bytes",
                 req->op->name, (unsigned long long)hub->quota.used, (unsigned long long)hub->quota.max);
    return false;
}

static bool on_auth(struct hub *hub, struct session *s, const struct request *req)
{
    return gate_auth(hub, s, req->blob[0]);
}

/* Handle VALIDATE, whose magic number wire.c has checked. */
static bool on_validate(struct hub *hub, struct session *s, const struct request *req)
{
    (void)hub, (void)s, (void)req;
    return true;
}

/* Handle PING. The reply repeats the number in the request. PyTorch sends its pid as this number. */
static bool on_ping(struct hub *hub, struct session *s, const struct request *req)
{
    if (req->number > 0 && req->number <= INT32_MAX)
        session_is_process(s, (int)req->number, false);
    return append_u32(&hub->out, (uint32_t)req->number);
}

static bool on_set(struct hub *hub, struct session *s, const struct request *req)
{
    const enum store_status status = store_set(s->job->store, req->blob[0], req->blob[1]);
    return status == STORE_OK || check_status(hub, s, req, status);
}

static bool on_append(struct hub *hub, struct session *s, const struct request *req)
{
    return check_status(hub, s, req, store_append(s->job->store, req->blob[0], req->blob[1]));
}

static bool on_multi_set(struct hub *hub, struct session *s, const struct request *req)
{
    return check_status(hub, s, req, store_multi_set(s->job->store, req->blob[0]));
}

/* Reply with the value of `key`. A long value is not copied, because the reply holds a reference to its block. */
static bool reply_value(struct hub *hub, struct session *s, struct slice key, struct slice value)
{
    return hub_reply_blob(hub, value, store_holder(s->job->store, key, value));
}

static bool on_compare_set(struct hub *hub, struct session *s, const struct request *req)
{
    struct slice current = store_get(s->job->store, req->blob[0]);
    /* The reply is the stored, the expected or the new value. Check the room for the longest of these three values. */
    uint64_t longest = current.len;
    for (int i = 1; i <= 2; i++)
        longest = req->blob[i].len > longest ? req->blob[i].len : longest;
    if (!hub_may_reply(hub, longest))
        return true;
    enum store_status status =
        store_compare_set(s->job->store, req->blob[0], req->blob[1], req->blob[2], &current);
    return check_status(hub, s, req, status) && reply_value(hub, s, req->blob[0], current);
}

/* Handle GET. Reply with an empty value for a missing key. PyTorch's clients send WAIT before GET, so the key is
 * missing only if another client has deleted it in between. */
static bool on_get(struct hub *hub, struct session *s, const struct request *req)
{
    const struct slice value = store_get(s->job->store, req->blob[0]);
    return !hub_may_reply(hub, value.len) || reply_value(hub, s, req->blob[0], value);
}

/* Reject a reply that is longer than hub_limits.max_unread, because the reply could never be sent. */
static bool check_length(struct hub *hub, const struct request *req, uint64_t bytes)
{
    if (bytes <= hub->limits.max_unread)
        return true;
    ddp_fail(&hub->err, DDP_ERR_LIMIT, "%s: the reply has %llu bytes: expected at most %llu", req->op->name,
             (unsigned long long)bytes, (unsigned long long)hub->limits.max_unread);
    return false;
}

/* Handle MULTI_GET. Check the size of the reply first. One request may name a large value many times, and the reply
 * could then exceed the memory of the store. */
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
    return check_status(hub, s, req, status) && append_i64(&hub->out, sum);
}

static bool on_check(struct hub *hub, struct session *s, const struct request *req)
{
    return append_u8(&hub->out, !store_check(s->job->store, req->blob[0]));
}

/* Handle WAIT and BARRIER. If a key is missing, session_woken() answers later, when all keys exist. */
static bool on_wait_or_barrier(struct hub *hub, struct session *s, const struct request *req)
{
    const uint64_t since_ms = s->waits_since_ms;
    /* Call session_begin_wait() before the store is called, because torch_observer.c then reads and may change
     * waits_since_ms. */
    session_begin_wait(hub, s, req->op);
    const enum store_status status =
        req->op->id == OP_WAIT ? store_wait(s->job->store, &s->waiter, req->blob[0])
                               : store_barrier(s->job->store, &s->waiter, req->blob[0], req->number);
    if (status == STORE_WAITS)
        return true;
    s->waits_in = 0;
    s->waits_since_ms = since_ms;
    return check_status(hub, s, req, status) && append_u8(&hub->out, 0);
}

/* Handle CANCEL_WAIT. requests_process() has already ended the wait. */
static bool on_cancel_wait(struct hub *hub, struct session *s, const struct request *req)
{
    (void)s, (void)req;
    return append_u8(&hub->out, 1);
}

static bool on_getnumkeys(struct hub *hub, struct session *s, const struct request *req)
{
    (void)req;
    return append_u64(&hub->out, store_count(s->job->store));
}

/* Handle WATCH_KEY. The answer 3 means "registered". The store sends no notifications, because torch uses no
 * notifications. */
static bool on_watch_key(struct hub *hub, struct session *s, const struct request *req)
{
    (void)s, (void)req;
    return append_u8(&hub->out, 3);
}

static bool on_delete_key(struct hub *hub, struct session *s, const struct request *req)
{
    return append_i64(&hub->out, store_delete(s->job->store, req->blob[0]));
}

/* Handle LIST_KEYS: reply with the number of keys, then the keys in the arbitrary order of the table. */
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
    bool ok = append_u64(&hub->out, store_count(s->job->store));
    while (ok && store_next(s->job->store, &at, &key, &value))
        ok = hub_reply_blob(hub, key, NULL);
    return ok;
}

static bool on_queue_push(struct hub *hub, struct session *s, const struct request *req)
{
    return check_status(hub, s, req, store_push(s->job->store, req->blob[0], req->blob[1]));
}

/* Handle QUEUE_POP. The reply begins with the length of the queue before the pop. Otherwise the client could not
 * distinguish an empty value from an empty queue. */
static bool on_queue_pop(struct hub *hub, struct session *s, const struct request *req)
{
    uint32_t before;
    const struct queue_item *front = store_front(s->job->store, req->blob[0]);
    /* A popped value cannot be put back. */
    if (front != NULL && !hub_may_reply(hub, store_item_value(front).len))
        return true;
    struct queue_item *item = store_pop(s->job->store, req->blob[0], &before);
    bool ok = append_i64(&hub->out, before);
    if (item != NULL) {
        ok = ok && hub_reply_blob(hub, store_item_value(item), NULL);
        store_item_free(s->job->store, item);
    }
    return ok;
}

static bool on_queue_len(struct hub *hub, struct session *s, const struct request *req)
{
    return append_i64(&hub->out, store_queue_len(s->job->store, req->blob[0]));
}

/* A handler gets a request that is complete, within its limits, and allowed on this connection. */
typedef bool (*request_handler)(struct hub *hub, struct session *s, const struct request *req);

/* One handler per row of ops.h. */
/* clang-format off */
static const request_handler request_handlers[OPS] = {
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
    [OP_CONTROL]     = on_control,     [OP_AUTH]          = on_auth,
};
/* clang-format on */

/* --- from bytes to requests ------------------------------------------------------------------------------- */

/* The calls for a SET, and for a session that waits for its key:
 *
 *     SET    on_read -> on_bytes (server/) -> hub_receive -> requests_process -> wire_decode -> on_set -> store_set
 *            -> another session waits for the key: session_woken -> reply -> conn_send (server/)
 *
 * Only an unfinished request is copied into session.in, to which later bytes are appended. A failed request closes the
 * connection after all earlier requests are answered, and the reason is logged. Invalid bytes, forbidden requests and a
 * lack of memory have the same effect as a failed request. */

enum {
    /* A request of at most this size is read even if the store is full, so that GET and DELETE work. */
    REQUEST_MIN = 64 << 10,
    /* If hub->out has more bytes, these bytes are sent before the next request is handled, because the client may have
     * to read them first. */
    OUT_MAX = 64 << 10,
    AHEAD_MIN = 4,     /* if fewer requests are decoded, no key is prefetched */
    AHEAD_MAX = 64,    /* maximum number of requests that are decoded before the first is handled */
    AHEAD_KEYS = 1024, /* if the store has fewer keys, no key is prefetched: the CPU caches hold all keys */
    IN_KEPT = 256,     /* an empty session buffer is freed if its capacity exceeds this number of bytes */
};

/* Return true if has_job() would change nothing. This function is inline, because a busy store calls it for each
 * request. */
static inline bool is_settled(const struct hub *hub, const struct session *s)
{
    return s->job != NULL &&
           (s->role != ROLE_PLAIN || (s->job->is_observed && (s->was_asked_for || hub->agents.count == 0)));
}

/* Return true if the session has a job or the request needs none. A plain client cannot name its job, so it enters a
 * job only if it may use exactly one job (job_only). At the client's first request for a key, also ask the agents which
 * process owns the connection. Then begin to observe PyTorch's keys. */
static bool has_job(struct hub *hub, struct session *s, const struct op *op)
{
    if (op->id >= OP_IDENTIFY || op->id == OP_VALIDATE || op->id == OP_PING)
        return true;
    struct job *job = s->job != NULL ? s->job : job_only(hub, s);
    if (job == NULL)
        return false;
    if (s->job == NULL)
        session_enter(s, job);
    peer_ask(hub, s);
    if (s->role == ROLE_PLAIN && !job->is_observed)
        torch_observe(job);
    return true;
}

/* Set the reason why a request is refused, and return false. There are three possible reasons: the connection has sent
 * AUTH, the connection belongs to an earlier attempt, or the store serves no job. */
static bool refuse_request(struct hub *hub, const struct session *s, const struct op *op)
{
    if (s->auth != NULL)
        ddp_fail(&hub->err, DDP_ERR_UNSUPPORTED, "%s is not allowed on a connection that has sent AUTH",
                 op->name);
    else if (hub->limits.refusal != NULL)
        ddp_fail(&hub->err, DDP_ERR_UNSUPPORTED,
                 "%s is not allowed: the host of this store cannot run the job, and the store only tells the "
                 "reason",
                 op->name);
    else
        ddp_fail(
            &hub->err, DDP_ERR_MEMBERSHIP,
            "%s is not allowed: this connection belongs to an earlier attempt; the current attempt is %lld",
            op->name, (long long)s->job->members.attempt);
    return false;
}

/* Return true for a request that uses neither keys nor named barriers. */
static bool is_of_agents(enum op_id id)
{
    return id == OP_IDENTIFY || id == OP_CONTROL || id == OP_AUTH || id == OP_PING || id == OP_VALIDATE;
}

/* Update the quota after the capacity of `in` has changed from `old_cap`. The quota may then exceed its limit, because
 * the bytes have already arrived. decode_ahead() then rejects a request that is too large. */
static void charge(struct hub *hub, const struct session *s, size_t old_cap)
{
    struct quota *quota = session_quota(hub, s);
    quota_release(quota, old_cap);
    quota_charge(quota, s->in.cap);
}

/* Keep `rest`, the bytes of an unfinished request. If `in` is empty, copy the bytes, because the server
 * (server/clients.c) owns them. */
static bool keep_rest(struct hub *hub, struct session *s, struct slice rest)
{
    size_t old_cap = s->in.cap;
    bool ok = true;
    /* If `in` has bytes, `rest` is the end of `in`. */
    if (s->in.len > 0)
        buf_consume(&s->in, s->in.len - rest.len);
    else
        ok = buf_append(&s->in, rest.data, rest.len);
    if (s->in.len == 0 && s->in.cap > IN_KEPT)
        buf_free(&s->in);
    charge(hub, s, old_cap);
    /* The time limit starts with the first byte of the request, so that later bytes do not prolong it. */
    if (s->in.len > 0 && list_is_empty(&s->midway)) {
        s->midway_since_ms = hub->now_ms;
        list_insert(&hub->midway[s->has_spoken], &s->midway);
    }
    return ok;
}

/* Append the received bytes to the unfinished request in `in`, and set *bytes to all bytes of `in`. */
static bool collect(struct hub *hub, struct session *s, struct slice *bytes)
{
    size_t old_cap = s->in.cap;
    bool ok = buf_append(&s->in, bytes->data, bytes->len);
    charge(hub, s, old_cap);
    *bytes = buf_slice(&s->in);
    return ok;
}

/* Consecutive requests. All requests are decoded before the first request is handled, so that their keys can be
 * prefetched. While a connection has no job, decode only one request, because the next request may have to wait for the
 * job. All slices borrow from the received bytes or from session.in. */
struct ahead {
    struct request req[AHEAD_MAX];
    const void *start[AHEAD_MAX]; /* address of each request */
    uint32_t n;                   /* number of requests */
    struct slice rest;            /* bytes after the `n` requests */
    /* WIRE_OK if decode_ahead() has decoded its maximum number of requests. Otherwise, the decoding has stopped at the
     * request at the start of `rest`, and `status` is the result for this request. */
    enum wire_status status;
    struct ddp_err err;
};

/* Prefetch the entries of the keys into the processor's caches. Skip requests with a list of keys, which can be
 * long. */
static void bring_near(const struct store *store, const struct ahead *ahead)
{
    uint32_t hashes[AHEAD_MAX];
    for (uint32_t i = 0; i < ahead->n; i++)
        hashes[i] = ahead->req[i].count == 0 ? table_hash(ahead->req[i].blob[0]) : 0;
    store_expect(store, hashes, ahead->n);
}

/* Decode requests up to the first request that is incomplete or invalid. A request may be as large as the free part of
 * the quota plus the session's buffer `in`. This buffer holds the bytes of the request, and is already charged to the
 * quota. A request of REQUEST_MIN bytes is always permitted. */
static void decode_ahead(struct hub *hub, struct session *s, struct slice bytes, struct ahead *out)
{
    const uint32_t most = s->job != NULL ? AHEAD_MAX : 1;
    const uint64_t left = quota_left(session_quota(hub, s)) + s->in.cap; /* `in` is already charged */
    const uint64_t budget = left > REQUEST_MIN ? left : REQUEST_MIN;
    size_t used;
    out->rest = bytes;
    for (out->n = 0; out->n < most; out->n++) {
        out->start[out->n] = out->rest.data;
        out->status = wire_decode(&s->wire, out->rest, budget, &out->req[out->n], &used, &out->err);
        if (out->status != WIRE_OK)
            break;
        out->rest = slice_of((const char *)out->rest.data + used, out->rest.len - used);
    }
    if (out->n >= AHEAD_MIN && s->job != NULL && store_count(s->job->store) >= AHEAD_KEYS)
        bring_near(s->job->store, out);
}

/* Return the bytes after the first `done` requests. */
static struct slice rest_after(const struct ahead *ahead, uint32_t done)
{
    const char *end = (const char *)ahead->rest.data + ahead->rest.len;
    const char *start = done < ahead->n ? ahead->start[done] : ahead->rest.data;
    return slice_of(start, (size_t)(end - start));
}

/* Pause a session until clients have read more of their replies. `rest` begins with the first request that is not
 * handled yet. */
static bool pause_session(struct hub *hub, struct session *s, struct slice rest)
{
    /* Restart the scan, because the first request in `rest` is decoded again later. */
    wire_rewind(&s->wire);
    s->is_paused = true;
    const bool ok = keep_rest(hub, s, rest);
    /* A paused session waits until clients have read more of their replies, so the time limit of an unfinished request
     * does not apply to a paused session. */
    list_remove(&s->midway);
    return ok;
}

/* Process received bytes. A paused or held session only collects the bytes. While the client is a stranger,
 * gate_check() checks each request before it is decoded. Test before each request whether the client is still a
 * stranger, because the previous request may have admitted the client. Handle the requests in order, and stop at the
 * first request that must wait. Such a request waits until clients have read more of their replies (pause_session), the
 * session has a job (peer_hold), or the stranger is admitted (gate_hold).
 *
 * Before a request is handled, end an open wait of the session. The reason is a client of torch 1.13: after its WAIT
 * has timed out, the client sends the next request on the same connection. The client would then mistake a late answer
 * to the WAIT for the answer to the next request.
 *
 * Refuse a request of a client from an earlier attempt. Refuse requests for keys or named barriers if the connection
 * has sent AUTH, or if the store serves no job. */
bool requests_process(struct hub *hub, struct session *s, struct slice bytes)
{
    struct ahead ahead; /* not zeroed, because the struct has 5 KB */

    hub->err.msg[0] = '\0';
    hub->is_backed_up = hub->must_repeat = false;
    if (s->in.len > 0 && !collect(hub, s, &bytes))
        return false;
    if (s->is_paused)
        return s->in.len > 0 || keep_rest(hub, s, bytes);
    if (s->is_held)
        return s->stranger_state != STRANGER_NONE ? gate_holds(hub, s) : peer_holds(hub, s);
    for (ahead.rest = bytes, ahead.status = WIRE_OK; ahead.status == WIRE_OK;) {
        bytes = ahead.rest;
        if (s->stranger_state != STRANGER_NONE) {
            const enum gate_verdict verdict = gate_check(s, bytes);
            if (verdict == GATE_HELLO && !gate_hello(hub, s, &ahead.rest))
                return false;
            if (verdict == GATE_HELLO)
                continue;
            if (verdict == GATE_OTHER_VERSION)
                return gate_refuse_version(hub, s, bytes);
            if (verdict != GATE_PASS)
                return keep_rest(hub, s, bytes) && (verdict == GATE_MORE || gate_hold(hub, s));
        }
        decode_ahead(hub, s, bytes, &ahead);
        if (s->stranger_state != STRANGER_NONE && !gate_count(hub, s, bytes.len - ahead.rest.len))
            return false;
        for (uint32_t i = 0; i < ahead.n; i++) {
            if (hub->is_backed_up)
                return pause_session(hub, s, rest_after(&ahead, i));
            const struct request *req = &ahead.req[i];
            if (!is_settled(hub, s) && !has_job(hub, s, req->op))
                return keep_rest(hub, s, bytes) && peer_hold(hub, s);
            s->has_spoken = true;
            hub->requests++;
            list_remove(&s->midway);
            if (s->waits_in != 0)
                session_leave_wait(s);
            if (s->torch != NULL)
                s->torch->polls = false;
            if (((s->auth != NULL || hub->limits.refusal != NULL) && !is_of_agents(req->op->id)) ||
                (s->job != NULL && s->era < s->job->era && !session_is_operator(s)))
                return refuse_request(hub, s, req->op);
            const bool ok = request_handlers[req->op->id](hub, s, req);
            if (s->waiter.offer != NULL)
                store_acted(s->job->store, &s->waiter);
            if (!ok)
                return false;
            if (hub->out.len > OUT_MAX)
                hub_flush(hub);
            if (hub->must_repeat)
                return pause_session(hub, s, rest_after(&ahead, i));
        }
        if (hub->is_backed_up && ahead.rest.len > 0)
            return pause_session(hub, s, ahead.rest);
    }
    if (ahead.status == WIRE_BAD)
        hub->err = ahead.err;
    return ahead.status == WIRE_MORE &&
           ((ahead.rest.len == 0 && s->in.cap == 0) || keep_rest(hub, s, ahead.rest));
}
