/* session.c -- see session.h. This file creates and finds sessions, and records their waits and ranks. attempt.c moves
 * sessions between jobs and frees sessions, because these steps also change the job. */
#include "hub/session.h"

#include "auth/auth.h"
#include "base/buf.h"
#include "base/text.h"
#include "job/rendezvous.h"
#include "store/encode.h"

#include <cjson/cJSON.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- sessions by id ------------------------------------------------------------------------------------- */

/* Return an id as a table key, which borrows from `id`. */
static struct slice id_key(const conn_id *id)
{
    return slice_of(id, sizeof(*id));
}

struct session *session_find(const struct hub *hub, conn_id conn)
{
    struct table_node *node = table_find(&hub->sessions, id_key(&conn), table_hash(id_key(&conn)));
    return node ? TABLE_ENTRY(node, struct session, node) : NULL;
}

/* Return true if the session may use the job `name`. A session with a tenant may use only the jobs of this tenant, and
 * a session without a tenant may use all jobs. Clients of this host, and all clients of a store without a secret, have
 * no tenant. */
bool session_may_use(const struct hub *hub, const struct session *s, const char *name)
{
    return s->tenant == NULL || auth_secret_of(hub->limits.secret, name) == s->tenant;
}

struct slice session_address(const struct session *s)
{
    const char *colon = strrchr(s->peer, ':');
    return slice_of(s->peer, colon != NULL ? (size_t)(colon - s->peer) : strlen(s->peer));
}

/* --- awaited conditions --------------------------------------------------------------------------------- */

void session_begin_wait(struct hub *hub, struct session *s, const struct op *op)
{
    s->waits_in = (uint8_t)(1 + op->id);
    s->waits_since_ms = hub->now_ms;
}

/* Answer a WAIT or BARRIER with one zero byte. Send the byte directly, because hub->out is only for the session whose
 * request is being processed (hub->processing). The waiting session is not that session: a new request would have ended
 * its wait (requests_process() in requests.c). */
void session_woken(void *user, struct store_waiter *waiter)
{
    struct hub *hub = user;
    struct session *s = TABLE_ENTRY(waiter, struct session, waiter);
    s->waits_in = 0;
    hub->sink.send(hub->sink.user, s->id, slice_of("\0", 1), NULL);
}

/* End a session's wait for keys or in a barrier, without an answer. Do nothing if the session does not wait. */
void session_leave_wait(struct session *s)
{
    if (s->waits_in == 0)
        return;
    s->waits_in = 0;
    if (s->job == NULL) /* this session is an operator that waits for stacks */
        return;
    if (s->torch != NULL && s->torch->waits)
        s->torch->left_ms = s->job->hub->now_ms;
    store_leave(s->job->store, &s->waiter);
    barriers_leave(&s->job->barriers, &s->barrier_waiter);
}

/* --- the rank of a session ------------------------------------------------------------------------------ */

/* Attach the session to its rank. A job that a worker has declared ends when members.connected becomes 0. */
void session_attach(struct session *s, uint32_t rank)
{
    struct member *member = members_at(&s->job->members, rank);
    s->rank = rank;
    list_insert(&member->sessions, &s->by_rank);
    member->met = true;
    s->job->members.connected++;
}

/* Detach the session from its rank. The rank keeps the time of the session's last byte. */
void session_detach(struct session *s)
{
    if (list_is_empty(&s->by_rank))
        return;
    struct member *member = members_at(&s->job->members, s->rank);
    list_remove(&s->by_rank);
    if (s->last_received_ms > member->last_received_ms)
        member->last_received_ms = s->last_received_ms;
    s->job->members.connected--;
}

/* Record the pid of the client. A pid from an agent replaces a pid from PING, because the agent has read the pid from
 * the kernel. */
void session_is_process(struct session *s, int pid, bool by_agent)
{
    if (by_agent || s->pid == 0)
        s->pid = pid;
}

/* --- new sessions --------------------------------------------------------------------------------------- */

/* Add a session for a new connection, and set session.era to hub->era. When an attempt of the session's job ends later,
 * job.era becomes higher than session.era, and the store then rejects the session's requests. */
bool session_new(struct hub *hub, conn_id conn, const char *peer)
{
    struct session *s = calloc(1, sizeof(*s));
    char *copy = strdup(peer);
    if (s == NULL || copy == NULL) {
        free(s);
        free(copy);
        return false;
    }
    s->id = conn;
    s->uid = SESSION_NO_UID;
    s->node =
        (struct table_node){ .key = &s->id, .key_len = sizeof(s->id), .hash = table_hash(id_key(&conn)) };
    s->peer = copy;
    s->last_received_ms = hub->now_ms;
    wire_init(&s->wire, hub->limits.dialect_b);
    list_init(&s->midway);
    list_init(&s->stranger);
    list_init(&s->by_rank);
    list_init(&s->in_job);
    list_init(&s->barrier_waiter.node);
    s->era = hub->era;
    table_insert(&hub->sessions, &s->node);
    return true;
}

struct quota *session_quota(struct hub *hub, const struct session *s)
{
    if (s->job != NULL)
        return s->job->quota;
    return hub->limits.many_jobs ? &hub->strangers : &hub->quota;
}

bool session_is_unused(const struct hub *hub, const struct session *s)
{
    const struct slice address = session_address(s);
    return !s->has_spoken && s->n_first == 0 && s->stranger_state == STRANGER_NONE &&
           (s->job != NULL || table_find(&hub->agents, address, table_hash(address)) != NULL);
}

/* Return a copy of hub->rejects, which the caller frees. Return NULL if memory is short. In the copy, add a reject for
 * each open connection of a foreign client that has sent nothing so far. */
struct rejects *hub_all_rejects(struct hub *hub)
{
    struct rejects *all = malloc(sizeof(*all));
    if (all == NULL)
        return NULL;
    *all = hub->rejects;
    EACH_NODE(node, &hub->sessions)
    {
        const struct session *s = TABLE_ENTRY(node, struct session, node);
        if (!s->has_spoken && s->n_first == 0 && !session_is_unused(hub, s))
            rejects_note(all,
                         &(struct reject_facts){ .peer = s->peer, .why = "connected, but has sent nothing" },
                         s->last_received_ms);
    }
    return all;
}

/* --- connections of other hosts, see gate.c ------------------------------------------------------------- */

/* Remove a stranger from the list of its state. */
void session_leave_line(struct hub *hub, struct session *s)
{
    if (s->stranger_state == STRANGER_NONE)
        return;
    list_remove(&s->stranger);
    hub->gate[s->stranger_state].count--;
    hub->held_kib -= s->stranger_kib;
    s->stranger_kib = 0;
    s->stranger_state = STRANGER_NONE;
}

void session_admit(struct hub *hub, struct session *s)
{
    session_leave_line(hub, s);
    session_release(hub, s);
}

/* Queue the session, so that hub.c processes its held bytes later. This function must not process these bytes itself,
 * because the caller may be the handler of another session's `vouch`. hub.c processes the bytes of only one session at
 * a time. */
void session_release(struct hub *hub, struct session *s)
{
    if (s->is_stopped)
        hub->sink.read(hub->sink.user, s->id, true);
    s->is_stopped = false;
    if (!s->is_held)
        return;
    s->is_held = false;
    list_remove(&s->midway);
    list_insert(&hub->peers.released, &s->midway);
}

void session_end_auth(struct hub *hub, struct session *s)
{
    session_leave_line(hub, s);
    if (s->auth != NULL)
        auth_wipe(s->auth);
    free(s->auth);
    free(s->tls_job);
}

/* --- frames that a node has not confirmed ---------------------------------------------------------------- */

/* A node confirms frames with each heartbeat. A node with 4 MiB of unconfirmed frames does not read. */
enum { KEPT_MAX = 4 << 20 };

/* Charge the memory of the kept frames to the hub, because the job of a node may change. */
static void charge_kept(struct hub *hub, const struct kept *sent, size_t before)
{
    quota_release(&hub->quota, before);
    quota_charge(&hub->quota, sent->bytes.cap);
}

/* Create a token of 128 random bits, which no other client can guess. Without a source of random numbers, the node
 * gets no token and cannot resume. */
void session_may_resume(struct session *s)
{
    struct hub *hub = s->job->hub;
    uint8_t bytes[LIMIT_TOKEN / 2];
    if (s->as_node->token[0] == '\0' && hub->sink.random != NULL &&
        hub->sink.random(hub->sink.user, bytes, sizeof(bytes)))
        text_hex(s->as_node->token, bytes, sizeof(bytes));
}

/* Forbid the node to resume, and free its kept frames. Call this if a frame was not kept, or if the node has miscounted
 * the received frames. The store then cannot resend exactly the frames that the node has missed. */
static void session_forgets_frames(struct session *s)
{
    if (s->as_node == NULL || s->as_node->token[0] == '\0')
        return;
    s->as_node->token[0] = '\0';
    quota_release(&s->job->hub->quota, s->as_node->sent.bytes.cap);
    buf_free(&s->as_node->sent.bytes);
}

/* Keep a sent frame until the node confirms it. If the unconfirmed frames exceed KEPT_MAX, free all of them, because a
 * node must not fill the memory of the store. This node can then no longer resume. */
static void session_keeps(struct session *s, struct slice frame)
{
    struct kept *sent = &s->as_node->sent;
    const size_t before = sent->bytes.cap;
    if (s->as_node->token[0] == '\0')
        return;
    if (sent->bytes.len + frame.len > KEPT_MAX || !kept_add(sent, frame)) {
        session_forgets_frames(s);
        return;
    }
    charge_kept(s->job->hub, sent, before);
}

/* Drop the confirmed frames. A node that confirms a frame that was never sent has miscounted, and must not resume. */
void session_confirms(struct session *s, uint64_t received)
{
    if (s->as_node->token[0] != '\0' && !kept_confirm(&s->as_node->sent, received))
        session_forgets_frames(s);
}

void session_node_free(struct hub *hub, struct session *s)
{
    if (s->as_node == NULL)
        return;
    quota_release(&hub->quota, s->as_node->sent.bytes.cap);
    buf_free(&s->as_node->sent.bytes);
    list_remove(&s->as_node->cut);
    free(s->as_node);
    s->as_node = NULL;
}

/* Append a frame with its tag. Keep the frame without the tag, because a new connection has other keys and needs
 * another tag. */
bool session_append_blob(struct session *s, struct buf *out, uint8_t kind, struct slice frame)
{
    if (s->is_node)
        session_keeps(s, frame);
    return session_append_frame(s, out, kind, frame);
}

bool session_append_frame(struct session *s, struct buf *out, uint8_t kind, struct slice frame)
{
    return s->auth != NULL ? auth_append_frame(s->auth, kind, frame, out) : append_blob(out, frame);
}

/* --- output ----------------------------------------------------------------------------------------------- */

/* The output: bytes to connections, lines to the log. All answers go through these functions.
 *
 * While the hub processes the bytes of one connection (`processing`), it collects the answers in `out`, and sends them
 * together at the end. A hundred requests in one packet then need only one send. Bytes for other connections are sent
 * at once. For example, B waits for x, and A sets x:
 *
 *     A sends  SET x, GET x, GET y   ->   to B: the zero byte of its WAIT x   (at once)
 *                                         to A: value of x, value of y        (one send, at the end) */

enum {
    OUT_DIRECT = SHARED_MIN, /* a value of at least this size is sent without a copy */
    OUT_KEPT = 1 << 20,      /* an output buffer that has grown beyond this size is freed */
};

/* Ask the server whether it has room for a large reply. A small reply needs no permission, because check_backlog()
 * limits small replies. */
bool hub_may_reply(struct hub *hub, uint64_t bytes)
{
    if (bytes >= OUT_DIRECT && hub->sink.may_reply != NULL)
        hub->must_repeat = !hub->sink.may_reply(hub->sink.user, hub->processing->id, bytes);
    return !hub->must_repeat;
}

/* Ask the server whether the current session reads its replies. If the result is false, requests_process() pauses the
 * session, because a client that only sends could fill the memory. */
static void check_backlog(struct hub *hub)
{
    if (hub->sink.may_reply != NULL)
        hub->is_backed_up = !hub->sink.may_reply(hub->sink.user, hub->processing->id, 0);
}

void hub_flush(struct hub *hub)
{
    if (hub->out.len > 0) {
        hub->sink.send(hub->sink.user, hub->processing->id, buf_slice(&hub->out), NULL);
        check_backlog(hub);
    }
    hub->out.len = 0;
    if (hub->out.cap > OUT_KEPT)
        buf_free(&hub->out);
}

/* Send bytes to a session. If `s` is the session whose bytes are being processed, first send the answers in
 * hub->out. */
void hub_send(struct hub *hub, struct session *s, struct slice bytes)
{
    if (s == hub->processing)
        hub_flush(hub);
    hub->sink.send(hub->sink.user, s->id, bytes, NULL);
    if (s == hub->processing)
        check_backlog(hub);
}

/* Push a text. If memory is short, drop the whole push. If the connection of the node is broken, do not send the text,
 * but keep it until `resume`. */
void hub_push_text(struct hub *hub, struct session *s, struct slice text)
{
    struct buf direct = { 0 }, *out = s == hub->processing ? &hub->out : &direct;
    size_t before = out->len;
    if (!session_append_blob(s, out, 0, text)) {
        session_forgets_frames(s); /* this push was not kept, so the node must not resume */
        out->len = before;
    } else if (s != hub->processing && !session_is_cut(s)) {
        hub_send(hub, s, buf_slice(&direct));
    }
    buf_free(&direct);
}

void hub_push(struct hub *hub, struct session *s, const struct cJSON *o)
{
    enum { USUAL_BYTES = 1024 };
    char *text = o != NULL ? cJSON_PrintBuffered(o, USUAL_BYTES, false) : NULL;
    if (text != NULL)
        hub_push_text(hub, s, slice_str(text));
    cJSON_free(text);
}

/* Reply with a blob: its length, then its bytes. A value of at least OUT_DIRECT bytes is sent without a copy. If
 * `holder` is not NULL, it owns the value's memory. A reference to `holder` keeps this memory even if the key of the
 * value is deleted before the value is sent. */
bool hub_reply_blob(struct hub *hub, struct slice value, struct shared *holder)
{
    if (!append_u64(&hub->out, value.len))
        return false;
    if (hub->out.len >= OUT_DIRECT || value.len >= OUT_DIRECT)
        hub_flush(hub);
    if (value.len < OUT_DIRECT)
        return buf_append(&hub->out, value.data, value.len);
    hub->sink.send(hub->sink.user, hub->processing->id, value, holder);
    check_backlog(hub);
    return true;
}

void hub_log(struct hub *hub, const char *fmt, ...)
{
    char line[1024];
    if (hub->sink.log == NULL)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    hub->sink.log(hub->sink.user, line);
}

/* --- facts ------------------------------------------------------------------------------------------------ */

/* Return the incomplete PyTorch barrier whose count the session polls, or NULL. */
static const struct torch_meet *polled(const struct session *s)
{
    const struct job *job = s->job;
    if (s->torch == NULL || !s->torch->polls || job == NULL)
        return NULL;
    const struct torch_meet *meet = torch_meets_of_id(&job->meets, s->torch->meet);
    return meet != NULL && !(job->members.known && meet->count == job->members.world_size) ? meet : NULL;
}

/* Set *name to the n-th key that the session waits for. A named barrier, or a counter that the session polls, counts
 * as one key. */
bool facts_awaited(const struct session *s, uint32_t n, struct slice *name)
{
    const uint32_t keys = store_awaited_count(&s->waiter);
    const struct torch_meet *meet = keys == 0 && n == 0 ? polled(s) : NULL;
    const bool in_barrier = s->barrier_waiter.barrier != NULL && n == 0;
    if (in_barrier)
        *name = barrier_name(s->barrier_waiter.barrier);
    else if (n < keys)
        *name = store_awaited(&s->waiter, n);
    else if (meet != NULL)
        *name = torch_meet_key(meet);
    return in_barrier || n < keys || meet != NULL;
}

/* Return the name of the request with which the session waits, or NULL. A client of torch 1.13 waits in a barrier by
 * repeating ADD of 0. This poll counts as a wait, too. */
const char *facts_waits_by(const struct session *s)
{
    if (s->waits_in != 0)
        return op_table[s->waits_in - 1].name;
    return polled(s) != NULL ? "ADD" : NULL;
}

/* Return the session's present wait: its first key or its barrier, the number of its other keys, and its duration. If
 * the session does not wait, all fields are zero. */
static struct rank_wait wait_of(const struct session *s)
{
    struct rank_wait wait = { .in_barrier = s->barrier_waiter.barrier != NULL };
    const uint32_t keys = store_awaited_count(&s->waiter);
    if (facts_waits_by(s) == NULL || !facts_awaited(s, 0, &wait.name))
        return (struct rank_wait){ 0 };
    wait.more = keys > 1 ? keys - 1 : 0;
    wait.for_ms = s->job->hub->now_ms - s->waits_since_ms;
    return wait;
}

/* Return true if the node of a rank has left the running round. */
static bool node_is_lost(const struct job *job, uint32_t rank)
{
    struct rdzv_facts facts;
    if (job->rdzv == NULL)
        return false;
    rdzv_facts(job->rdzv, &facts);
    return (facts.state == RDZV_RUNNING || facts.state == RDZV_STOPPING) && rank < facts.world_size &&
           rdzv_node_of_rank(job->rdzv, rank) == 0;
}

/* Return the time since the running round began, or 0 if no round runs. */
static uint64_t round_ms(const struct job *job)
{
    struct rdzv_facts facts;
    if (job->rdzv == NULL)
        return 0;
    rdzv_facts(job->rdzv, &facts);
    return facts.state == RDZV_RUNNING ? job->hub->now_ms - facts.since_ms : 0;
}

/* Fill in the facts about a rank. If the rank has several connections, silent_ms counts from the latest byte on any
 * connection. `waits` is the wait of the first connection that waits. */
void snapshot_of_rank(struct job *job, uint32_t rank, struct snapshot_rank *facts)
{
    struct hub *hub = job->hub;
    struct member *member = members_at(&job->members, rank);
    uint64_t last_received_ms = member->last_received_ms;
    *facts = member_snapshot(&job->members, rank);
    facts->connected = !list_is_empty(&member->sessions);
    LIST_EACH(node, &member->sessions)
    {
        const struct session *s = LIST_ENTRY(node, struct session, by_rank);
        last_received_ms = s->last_received_ms > last_received_ms ? s->last_received_ms : last_received_ms;
        if (facts->waits.name.data == NULL)
            facts->waits = wait_of(s);
    }
    facts->silent_ms = hub->now_ms - last_received_ms;
    facts->round_ms = facts->met ? 0 : round_ms(job);
    facts->state_ms = facts->proc_state != 0 || facts->exited ? hub->now_ms - member->state_since_ms : 0;
    facts->still_ms = member->has_steps ? hub->now_ms - member->stepped_ms : 0;
    facts->node_lost = node_is_lost(job, rank);
}
