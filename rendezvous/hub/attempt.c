/* attempt.c -- moves sessions into and out of jobs, frees sessions, and begins and ends attempts. Each attempt after
 * the first starts with an empty set of keys. Workers of the old attempt must not use the new keys, so the hub closes
 * the connections of these workers, at the latest at their next request. */
#include "hub/job.h"
#include "hub/schedule.h"
#include "hub/session.h"

#include "base/clock.h"
#include "base/text.h"
#include "diagnosis/text.h"

#include <stdio.h>
#include <stdlib.h>

/* --- the job of a session ------------------------------------------------------------------------------- */

/* Every session is in hub->sessions. A session may also be in these lists:
 *
 *     job.sessions        while it belongs to a job
 *     member.sessions     while it belongs to a rank of the job
 *     store or barrier    while it waits for keys or in a named barrier (waiter, barrier_waiter)
 *     hub->midway         while a request is unfinished
 *     hub->peers          while its requests are held (peer_identity.c)
 *     hub->gate           while gate.c has not admitted its client on another host
 *     hub->agents         while it is a node
 *     hub->cut            while it is a node with a broken connection */

/* Change the job of the session, and charge its unfinished request to the new job's quota. */
static void set_job(struct hub *hub, struct session *s, struct job *job)
{
    quota_release(session_quota(hub, s), s->in.cap);
    s->job = job;
    quota_charge(session_quota(hub, s), s->in.cap);
}

/* Remove a session from its job. */
static void leave_job(struct session *s, const char *how)
{
    struct job *job = s->job;
    if (job == NULL)
        return;
    job_node_gone(s, how);
    /* Call lost_peer_leaves() first, because it reads the wait and the rank of the session, and the next calls remove
     * both. */
    lost_peer_leaves(s);
    session_leave_wait(s);
    store_acted(job->store, &s->waiter);
    session_detach(s);
    list_remove(&s->in_job);
    set_job(job->hub, s, NULL);
    job->left_ms = job->hub->now_ms;
    job_touch(job);
}

/* Move the session to `job`. If the job waits for nodes, schedule a report about a new plain client. This client may
 * be a torchrun that a user has started on another node instead of ddprun. */
void session_enter(struct session *s, struct job *job)
{
    if (s->job == job)
        return;
    leave_job(s, "the node joined another job");
    set_job(job->hub, s, job);
    list_insert(&job->sessions, &s->in_job);
    /* A new plain client may be a torchrun that the user started instead of ddprun. */
    if (s->role == ROLE_PLAIN && job->watch.waits)
        schedule_hurry(job);
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Free a session and remove it from all structures. Only this function frees sessions. */
void session_free(struct hub *hub, struct session *s, const char *how)
{
    leave_job(s, how);
    list_remove(&s->midway);
    session_end_auth(hub, s);
    /* Call this after leave_job(), which moves the charge from the job's quota to the common quota. */
    quota_release(session_quota(hub, s), s->in.cap);
    buf_free(&s->in);
    table_remove(&hub->sessions, &s->node);
    session_node_free(hub, s);
    torch_client_free(&s->torch);
    free(s->peer);
    free(s);
}

/* Free the session, and close its connection. */
static void drop(struct hub *hub, struct session *s, const char *why, bool is_news)
{
    const conn_id conn = s->id;
    /* The server has already closed a broken connection. */
    const bool is_open = !session_is_cut(s);
    hub->closed_by_us += is_open;
    /* Free the session before sink.close, which may free the connection. */
    session_free(hub, s, why);
    if (is_open)
        hub->sink.close(hub->sink.user, conn, why, is_news);
}

void session_drop(struct hub *hub, struct session *s, const char *why)
{
    drop(hub, s, why, true);
}

void session_replace(struct hub *hub, struct session *s, const char *why)
{
    drop(hub, s, why, false);
}

/* --- broken connections of nodes -------------------------------------------------------------------------- */

/* Drop the bytes of an unfinished request. The node sends this request again. */
static void drop_unfinished(struct session *s)
{
    list_remove(&s->midway);
    quota_release(session_quota(s->job->hub, s), s->in.cap);
    buf_free(&s->in);
}

/* Keep a node in its job if it has a token and its timeout has not passed. Do not keep a node that is FINISHED, because
 * the process of such a node has ended. If the process ended before it had read all pushes, the kernel resets the
 * connection, and the end of the node looks like a broken connection. */
bool session_cut(struct session *s, const char *why)
{
    struct rdzv_facts facts;
    struct rdzv_node_facts of;
    words time;
    struct session_node *node = s->as_node;
    if (!s->is_node || node->token[0] == '\0')
        return false;
    /* The process of a FINISHED node has ended, so do not keep the node. */
    if (!rdzv_node_facts(s->job->rdzv, s->id, &of) || of.state == RDZV_NODE_FINISHED)
        return false;
    struct hub *hub = s->job->hub;
    rdzv_facts(s->job->rdzv, &facts);
    /* Free the node 1 ms before the rendezvous would report it as silent. The report then names the broken
     * connection. */
    node->cut_until_ms = s->last_received_ms + facts.node_timeout_ms - 1;
    if (facts.node_timeout_ms == 0 || node->cut_until_ms <= hub->now_ms)
        return false;
    text_copy(node->cut_why, sizeof(node->cut_why), why);
    list_insert(&hub->cut, &node->cut);
    drop_unfinished(s);
    hub_log(hub, "the connection of the node at %s is broken (%s): the node may connect again within %s",
            s->peer, why, duration(time, node->cut_until_ms - hub->now_ms));
    return true;
}

uint64_t session_cut_deadline(const struct hub *hub)
{
    uint64_t at_ms = UINT64_MAX;
    LIST_EACH(at, &hub->cut)
    at_ms = earlier_of(at_ms, LIST_ENTRY(at, struct session_node, cut)->cut_until_ms);
    return at_ms;
}

/* Return the session of a node whose cut_until_ms has passed, or NULL. */
static struct session *find_overdue(const struct hub *hub)
{
    LIST_EACH(at, &hub->cut)
    {
        const struct session_node *node = LIST_ENTRY(at, struct session_node, cut);
        if (node->cut_until_ms <= hub->now_ms)
            return node->session;
    }
    return NULL;
}

void session_cut_tick(struct hub *hub)
{
    char how[224], silent[TEXT_MS_MAX];
    for (struct session *s; (s = find_overdue(hub)) != NULL;) {
        /* add 1 ms, because cut_until_ms is 1 ms before the timeout, and text_ms() rounds down */
        text_ms(hub->now_ms - s->last_received_ms + 1, silent);
        snprintf(how, sizeof(how),
                 "its connection to the store broke (%s), and the node did not connect again within %s",
                 s->as_node->cut_why, silent);
        session_free(hub, s, how);
    }
}

/* Replace the connection id `from` of a node by its new id `to` in each session.voucher. */
static void move_vouches(struct hub *hub, conn_id from, conn_id to)
{
    EACH_NODE(at, &hub->sessions)
    {
        struct session *s = TABLE_ENTRY(at, struct session, node);
        if (s->voucher == from)
            s->voucher = to;
    }
}

/* Move the node of `old` to `s`, with the session_node and the unconfirmed frames. After the call, `old` is not a node
 * any more, so the caller can free `old` without reporting a lost node. If `old` receives the events of the job, `s`
 * receives them from now on. So each event is sent exactly once. */
void session_moves_node(struct hub *hub, struct session *old, struct session *s)
{
    struct job *job = old->job;
    const conn_id from = old->id;
    const bool takes_events = old->takes_events, is_receiver = job->events.receiver == from;
    const uint64_t joined_ms = old->as_node->joined_ms;
    notices_moved(&job->notices, from, s->id);
    job_node_ends(old);
    session_node_free(hub, s);
    s->as_node = old->as_node;
    s->as_node->session = s;
    old->as_node = NULL;
    list_remove(&s->as_node->cut);
    session_enter(s, job);
    job_node_joined(s);
    s->as_node->joined_ms = joined_ms;
    s->takes_events = takes_events;
    if (is_receiver)
        job->events.receiver = s->id;
    move_vouches(hub, from, s->id);
}

/* Schedule a check of all jobs, because the rejected client may belong to any of them. */
static void hurry_all_jobs(struct hub *hub)
{
    EACH_NODE(node, &hub->jobs)
    {
        struct job *job = TABLE_ENTRY(node, struct job, node);
        schedule_hurry(job);
        job_touch(job);
    }
}

/* Record a rejection, and return true if it should be logged. A rejected client may be a node that the user started
 * wrongly, for example with torchrun. The rejection then explains why a job does not start, so schedule a report. Each
 * source address causes at most one report and one log line a minute. */
bool session_note_reject(struct hub *hub, const struct session *s, const char *why)
{
    struct reject_facts facts = { .peer = s->peer,
                                  .job = hub->asked_job[0] ? hub->asked_job : NULL,
                                  .why = why,
                                  .first = slice_of(s->first, s->n_first),
                                  .is_ddprun = s->role != ROLE_PLAIN || hub->asked_job[0] || s->is_ddprun };
    bool is_news = rejects_note(&hub->rejects, &facts, hub->now_ms);
    /* The client may be a node that the user started wrongly, so report it to the waiting nodes. */
    if (is_news && (facts.is_ddprun || reject_may_be_a_node(reject_kind_of(facts.first))))
        hurry_all_jobs(hub);
    hub->asked_job[0] = '\0';
    return is_news;
}

/* Reject a session. For a foreign client, add its protocol to the reason ("HTTP", for example). The protocol helps the
 * user to find the client. */
void session_reject(struct hub *hub, struct session *s, const char *why)
{
    char longer[512];
    enum reject_kind kind = reject_kind_of(slice_of(s->first, s->n_first));
    bool is_stranger = !s->has_spoken && kind >= REJECT_HTTP && kind <= REJECT_SSH;
    bool is_news = session_note_reject(hub, s, why);
    snprintf(longer, sizeof(longer), "%s (the client uses %s)", why, reject_kind_words(kind));
    drop(hub, s, is_stranger ? longer : why, is_news);
}

/* Return true for a worker whose connection can be closed now. Return false for nodes, because the rendezvous decides
 * when to drop a node. Also return false for the session whose bytes are being processed, because requests.c still uses
 * this session. The next request of this session is rejected (session.era). */
static bool may_be_dropped(const struct session *s)
{
    return s->role == ROLE_WORKER && !s->is_node && s != s->job->hub->processing;
}

/* Detach all sessions from their ranks and drop the workers. attempt_end() has already ended all waits. Plain c10d
 * connections stay open, because a live process of torch 1.13 aborts when its connection closes. But a plain client
 * must not use the keys of the new attempt. So the store closes the connection at the client's next request.
 * Connections of agents and operators stay open. */
static void detach_sessions(struct job *job)
{
    for (struct list *node = job->sessions.next, *next; node != &job->sessions; node = next) {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        next = node->next;
        s->waits_in = 0;
        session_detach(s);
        torch_client_free(&s->torch);
        if (may_be_dropped(s))
            session_drop(job->hub, s, "this connection belongs to an attempt that has ended");
    }
}

/* End all waits for keys and barriers. The clients that wait get no answer. Then detach the sessions from their ranks,
 * and free the members. The store rejects requests for keys from a session whose session.era is below job.era. */
void attempt_end(struct job *job)
{
    /* The new job.era is higher than the session.era of each present session. */
    job->era = ++job->hub->era;
    store_clear(job->store);
    barriers_clear(&job->barriers);
    job->meets = (struct torch_meets){ 0 };
    job->given_up_ms = 0;
    detach_sessions(job);
    members_free(&job->members);
    notices_free(&job->troubles);
    stacks_free(&job->survivors.stacks);
    job->survivors.nodes = 0;
    schedule_attempt(job, false);
}

/* Begin an attempt with an empty set of keys. Only the first attempt keeps all connections and keys, because clients
 * may have used the job before its declaration. The launcher has already killed the workers of the previous attempt. */
bool attempt_begin(struct job *job, const struct job_name *name, bool by_agent)
{
    struct members next = { .quota = job->quota };
    /* Allocate first, so that the previous attempt stays intact if memory is short. */
    if (!members_begin(&next, name, by_agent))
        return false;
    if (job->members.known)
        attempt_end(job);
    job->members = next;
    schedule_attempt(job, true);
    if (strcmp(job->name, name->job) != 0)
        job_rename(job, name->job);
    hub_log(job->hub, "attempt %lld of job '%s' begins with %u rank%s", (long long)name->attempt, name->job,
            name->world_size, name->world_size == 1 ? "" : "s");
    return true;
}
