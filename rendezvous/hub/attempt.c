/* attempt.c -- moves sessions into and out of jobs, frees sessions, and begins and ends attempts.
 *
 * Each attempt has a separate set of keys. Before the next attempt begins, the launcher makes sure that the old
 * workers are dead. The store then closes the connections of identified workers at once. A plain c10d connection is
 * closed at its next request, because a close aborts a live process of torch 1.13. Agents and operators stay
 * connected. */
#include "hub/job.h"
#include "hub/schedule.h"
#include "hub/session.h"

#include "base/clock.h"
#include "base/text.h"
#include "diagnosis/text.h"

#include <stdio.h>
#include <stdlib.h>

/* --- the job it belongs to ------------------------------------------------------------------------------ */

/* A session is in hub->sessions. It may also be in the lists of its job and of its rank. While it waits, it is among
 * the waiters of the store or of a named barrier. While its requests are unfinished or held, it is in a list through
 * `midway`. A stranger is in the list of its stranger_state (gate.c). The session of a node is also in hub->agents,
 * and in hub->cut while its connection is broken. session_free removes the session from all these lists and tables. */

/* Change the job of the session. The quota of the new job then pays for the unfinished request. */
static void set_job(struct hub *hub, struct session *s, struct job *job)
{
    quota_release(session_quota(hub, s), s->in.cap);
    s->job = job;
    quota_charge(session_quota(hub, s), s->in.cap);
}

/* Remove a session from its job. Call lost_peer_leaves() before the session loses its wait and its rank, because
 * lost_peer_leaves() needs both. */
static void leave_job(struct session *s, const char *how)
{
    struct job *job = s->job;
    if (job == NULL)
        return;
    job_node_gone(s, how);
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
    if (s->role == ROLE_PLAIN && job->watch.waits)
        schedule_hurry(job);
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Free a session and remove it from all structures. No other function frees a session. The memory of its unfinished
 * request is charged to a quota. Return this charge only after leave_job(), because leave_job() moves the charge from
 * the job to the common quota. */
void session_free(struct hub *hub, struct session *s, const char *how)
{
    leave_job(s, how);
    list_remove(&s->midway);
    session_end_auth(hub, s);
    quota_release(session_quota(hub, s), s->in.cap);
    buf_free(&s->in);
    table_remove(&hub->sessions, &s->node);
    session_node_free(hub, s);
    torch_client_free(&s->torch);
    free(s->peer);
    free(s);
}

/* Free the session, and then close its connection (sink.close). The shell may free the connection during sink.close,
 * so the session must not exist any more. Do not close a broken connection (session_is_cut), because the shell has
 * already closed it. */
static void drop(struct hub *hub, struct session *s, const char *why, bool is_news)
{
    const conn_id conn = s->id;
    const bool is_open = !session_is_cut(s);
    hub->closed_by_us += is_open;
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

/* Drop the bytes of an unfinished request. The store has not counted this request, so the node sends it again. */
static void drop_unfinished(struct session *s)
{
    list_remove(&s->midway);
    quota_release(session_quota(s->job->hub, s), s->in.cap);
    buf_free(&s->in);
}

/* Keep the place of a node if it has a token and its timeout has not passed. Do not keep the place of a node that has
 * its last verdict. Such a node has ended, and its kernel resets the connection if the node has not read all
 * pushes. */
bool session_cut(struct session *s, const char *why)
{
    struct rdzv_facts facts;
    struct rdzv_node_facts of;
    words time;
    struct session_node *node = s->as_node;
    if (!s->is_node || node->token[0] == '\0')
        return false;
    if (!rdzv_node_facts(s->job->rdzv, s->id, &of) || of.state == RDZV_NODE_FINISHED)
        return false;
    struct hub *hub = s->job->hub;
    rdzv_facts(s->job->rdzv, &facts);
    /* Give up the place 1 ms before the rendezvous would report the node as silent. The report then names the broken
     * connection. */
    node->cut_until_ms = s->heard_ms + facts.node_timeout_ms - 1;
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

/* Return a node that has not connected again before its cut_until_ms, or NULL. */
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
    char how[192];
    for (struct session *s; (s = find_overdue(hub)) != NULL;) {
        snprintf(how, sizeof(how),
                 "its connection to the store broke (%s), and the node did not connect again within %.3g s",
                 s->as_node->cut_why, (double)(hub->now_ms - s->heard_ms) / 1000);
        session_free(hub, s, how);
    }
}

/* Replace the connection id `from` of a node by its new id `to` in each session that the node has vouched for. */
static void move_vouches(struct hub *hub, conn_id from, conn_id to)
{
    EACH_NODE(at, &hub->sessions)
    {
        struct session *s = TABLE_ENTRY(at, struct session, node);
        if (s->voucher == from)
            s->voucher = to;
    }
}

/* Move session_node, with the unconfirmed frames, instead of copying it. The old session is then no node, so freeing
 * it does not report a lost node. If the old session receives the events of the job, the new session receives them
 * from now on. So no event is lost or sent twice. */
void session_moves_node(struct hub *hub, struct session *old, struct session *s)
{
    struct job *job = old->job;
    const conn_id from = old->id;
    const bool takes_events = old->takes_events, is_taker = job->events.taker == from;
    const uint64_t joined_ms = old->as_node->joined_ms;
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
    if (is_taker)
        job->events.taker = s->id;
    move_vouches(hub, from, s->id);
}

/* Schedule a check of all jobs, because the job of a rejected connection is unknown. */
static void hurry_all_jobs(struct hub *hub)
{
    EACH_NODE(node, &hub->jobs)
    {
        struct job *job = TABLE_ENTRY(node, struct job, node);
        schedule_hurry(job);
        job_touch(job);
    }
}

/* Record a rejection. A rejected client that may be a node, such as a torchrun, can explain why a job does not start.
 * So the jobs get a report soon, but at most one report a minute for each source. */
bool session_note_reject(struct hub *hub, const struct session *s, const char *why)
{
    struct reject_facts facts = { .peer = s->peer,
                                  .job = hub->asked_job[0] ? hub->asked_job : NULL,
                                  .why = why,
                                  .first = slice_of(s->first, s->n_first),
                                  .is_ours = s->role != ROLE_PLAIN || hub->asked_job[0] || s->is_ddprun };
    bool is_news = rejects_note(&hub->rejects, &facts, hub->now_ms);
    if (is_news && (facts.is_ours || reject_may_be_a_node(reject_kind_of(facts.first))))
        hurry_all_jobs(hub);
    hub->asked_job[0] = '\0';
    return is_news;
}

/* Add the protocol of a foreign client, such as "HTTP", to the reason, because it helps the user to find the
 * client. */
void session_reject(struct hub *hub, struct session *s, const char *why)
{
    char longer[512];
    enum reject_kind kind = reject_kind_of(slice_of(s->first, s->n_first));
    bool is_stranger = !s->has_spoken && kind >= REJECT_HTTP && kind <= REJECT_SSH;
    bool is_news = session_note_reject(hub, s, why);
    snprintf(longer, sizeof(longer), "%s (the client uses %s)", why, reject_kind_words(kind));
    drop(hub, s, is_stranger ? longer : why, is_news);
}

/* Return true for a worker whose connection can be closed now. The session whose bytes are being processed stays,
 * because requests.c still uses it; its era (session.era) is lower than the era of the job, so its next request is
 * rejected. Nodes are dropped by the rendezvous. */
static bool may_be_dropped(const struct session *s)
{
    return s->role == ROLE_WORKER && !s->is_node && s != s->job->hub->feeding;
}

/* Detach all sessions from their ranks and drop the workers. attempt_end() has already ended all waits. */
static void detach_sessions(struct job *job)
{
    for (struct list *node = job->sessions.next, *next; node != &job->sessions; node = next) {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        next = node->next;
        s->waits_in = 0;
        session_detach(s);
        torch_client_free(&s->torch);
        if (may_be_dropped(s))
            session_drop(job->hub, s,
                         "the connection belongs to an earlier attempt; the next attempt begins");
    }
}

/* End the attempt in this order: end all waits without an answer, detach the sessions from their ranks, free the
 * members. Increase hub->era and store it in job->era. The store then rejects requests for keys from all older
 * connections, because their session.era is lower. */
void attempt_end(struct job *job)
{
    job->era = ++job->hub->era;
    store_clear(job->store);
    barriers_clear(&job->barriers);
    job->meets = (struct torch_meets){ 0 };
    job->given_up_ms = 0;
    detach_sessions(job);
    members_free(&job->members);
    notices_free(&job->troubles);
    schedule_attempt(job, false);
}

/* Allocate the ranks before anything changes, so that the old attempt goes on if memory is short. The first attempt
 * keeps all connections and keys, because clients may connect before the job is declared. */
bool attempt_begin(struct job *job, const struct job_name *name, bool by_agent)
{
    struct members next = { .quota = job->quota };
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
