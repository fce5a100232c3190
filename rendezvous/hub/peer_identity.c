/* peer_identity.c -- finds the process of a plain c10d connection. PyTorch's client cannot send IDENTIFY, so the hub
 * asks the agents at the client's address which process owns the connection. Every diagnosis then treats the session as
 * a connection of this process's rank, but the session gets no further rights. */
#include "hub/messages.h"
#include "hub/schedule.h"
#include "hub/session.h"

#include <stdio.h>

enum {
    HOLD_MS = 3000,     /* longest wait for a `vouch`; an idle agent answers within milliseconds */
    CLAIM_MS = 300,     /* time for a second job to claim the connection */
    HELD_MAX = 1 << 20, /* maximum number of held bytes of a session, charged to the quota of strangers */
    ADDRESS_MAX = ENDPOINT_TEXT_MAX, /* bytes of an address with its port */
};

/* --- agents at an address ------------------------------------------------------------------------------- */

/* Return true if the kernel has reported the users of the agent and of the client. The kernel reports the user of a
 * client only if the client runs on the store's host. */
static bool users_are_known(const struct session *agent, const struct session *s)
{
    return agent->uid != SESSION_NO_UID && s->uid != SESSION_NO_UID;
}

/* Return true if the agent and the client have the same address. If the kernel has reported the users of the agent and
 * of the client, the users must be equal, too, because all users of a host share its address. An agent of root fits
 * every client, because its workers may run as any user. */
static bool is_at_its_address(const struct session *agent, const struct session *s)
{
    return (!users_are_known(agent, s) || agent->uid == s->uid || agent->uid == 0) &&
           slice_equal(session_address(agent), session_address(s));
}

/* Return true if the agent is able to find the process of the session. The agent and the session must have the same
 * address. The job of the session must be unknown, or equal to the job of the agent. The same applies to the tenant.
 * Return false while the session's TLS handshake is not complete. */
static bool may_identify(const struct session *agent, const struct session *s)
{
    return (s->job == NULL || s->job == agent->job) && (s->tenant == NULL || s->tenant == agent->tenant) &&
           !s->awaits_tls && (s->tls_job == NULL || strcmp(s->tls_job, agent->job->name) == 0) &&
           is_at_its_address(agent, s);
}

/* Return the next agent that can find the process of the session, or NULL. */
static struct session *next_agent(const struct hub *hub, const struct session *s, const struct session *after)
{
    const struct slice address = session_address(s);
    struct table_node *node = after != NULL ? table_find_same(&after->as_node->by_address)
                                            : table_find(&hub->agents, address, table_hash(address));
    for (; node != NULL; node = table_find_same(node)) {
        struct session *agent = TABLE_ENTRY(node, struct session_node, by_address)->session;
        if (may_identify(agent, s))
            return agent;
    }
    return NULL;
}

/* --- who ------------------------------------------------------------------------------------------------ */

/* At the client's first request for a key, the hub asks the agents at the client's address once (`who`):
 *
 *     plain client --SET--> hub --who--> agent (sock_diag: whose socket is that?) --vouch rank, pid--> hub */

/* Ask all agents at the session's address which process owns the connection. The question contains both addresses of
 * the connection, because one address alone does not identify a socket. */
static void ask(struct hub *hub, struct session *s, bool for_owner)
{
    char here[ADDRESS_MAX] = "";
    s->was_asked_for = true;
    if (hub->sink.here != NULL)
        hub->sink.here(hub->sink.user, s->id, here);
    cJSON *o = message_encode_who(
        &(struct message_who){ .conn = (int64_t)s->id, .peer = s->peer, .store = here, .owner = for_owner });
    for (struct session *agent = NULL; (agent = next_agent(hub, s, agent)) != NULL;)
        hub_push(hub, agent, o);
    cJSON_Delete(o);
}

void peer_ask(struct hub *hub, struct session *s)
{
    if (s->role == ROLE_PLAIN && !s->was_asked_for && hub->agents.count > 0)
        ask(hub, s, false);
}

/* Ask the agents about the session, and return true. Return false if no agent passes may_identify(). During the TLS
 * handshake, return true if any agent has the session's address. */
bool peer_ask_user(struct hub *hub, struct session *s)
{
    const struct slice address = session_address(s);
    /* The job is unknown during the TLS handshake, so ask no agent. */
    if (s->awaits_tls)
        return table_find(&hub->agents, address, table_hash(address)) != NULL;
    if (next_agent(hub, s, NULL) == NULL)
        return false;
    ask(hub, s, false);
    return true;
}

bool peer_is_answerable(const struct hub *hub, const struct session *s)
{
    for (const struct session *agent = NULL; (agent = next_agent(hub, s, agent)) != NULL;)
        if (!session_is_cut(agent))
            return true;
    return false;
}

/* Ask which process owns the connection, but only once for each session, because the agent searches all processes of
 * its host. */
bool peer_ask_owner(struct hub *hub, struct session *s)
{
    if (s->role != ROLE_PLAIN || s->torch == NULL || s->torch->asked || hub->agents.count == 0)
        return false;
    s->torch->asked = true;
    ask(hub, s, true);
    return true;
}

/* --- held sessions ---------------------------------------------------------------------------------------- */

/* If the hub serves several jobs, the hub does not know the job of a plain client. So the hub holds the client's
 * requests until an agent vouches for the client, but at most for HOLD_MS. */

/* Hold the session's requests. */
bool peer_hold(struct hub *hub, struct session *s)
{
    s->is_held = true;
    s->midway_since_ms = hub->now_ms;
    /* A held session has its own time limit (HOLD_MS), so the time limit of an unfinished request does not apply to the
     * session. */
    list_remove(&s->midway);
    list_insert(&hub->peers.held, &s->midway);
    peer_ask(hub, s);
    return true;
}

/* Return true if the held bytes from the session are within their limit. */
bool peer_holds(struct hub *hub, const struct session *s)
{
    if (s->in.len <= HELD_MAX)
        return true;
    ddp_fail(&hub->err, DDP_ERR_LIMIT,
             "the client sent too much before an agent identified the client's job: %zu bytes, limit %d "
             "(running jobs: %u)",
             s->in.len, HELD_MAX, hub->jobs.count);
    return false;
}

/* Return the time at which the longest wait of a held session reaches HOLD_MS, or UINT64_MAX if no session is held. */
static uint64_t held_deadline(const struct hub *hub)
{
    if (list_is_empty(&hub->peers.held))
        return UINT64_MAX;
    return LIST_ENTRY(hub->peers.held.next, struct session, midway)->midway_since_ms + HOLD_MS;
}

/* Return the earliest time at which a claim becomes valid, or UINT64_MAX if the hub has no claims. */
static uint64_t claimed_deadline(const struct hub *hub)
{
    if (list_is_empty(&hub->peers.claimed))
        return UINT64_MAX;
    return LIST_ENTRY(hub->peers.claimed.next, struct session, midway)->midway_since_ms + CLAIM_MS;
}

/* Return the earlier of two times: when the next held session times out, and when the next claim becomes valid. Return
 * 0 (at once) if the held bytes of a released session are not processed yet. */
uint64_t peer_deadline(const struct hub *hub)
{
    const uint64_t held = held_deadline(hub), claimed = claimed_deadline(hub);
    if (!list_is_empty(&hub->peers.released))
        return 0;
    return held < claimed ? held : claimed;
}

/* Move a held session into its job. hub.c then processes the held bytes. */
static void release(struct session *s, struct job *job)
{
    session_enter(s, job);
    session_release(job->hub, s);
}

/* Move the session into the job, but hold its requests for CLAIM_MS, because another job may claim the session, too. A
 * second `vouch` from the same job does not prolong the hold. */
static void claim(struct session *s, struct job *job)
{
    struct hub *hub = job->hub;
    if (s->job == job)
        return;
    session_enter(s, job);
    s->is_claim = true;
    s->midway_since_ms = hub->now_ms;
    list_remove(&s->midway);
    list_insert(&hub->peers.claimed, &s->midway);
}

/* Return the job that has agents at the client's address. Return NULL if no job or more than one job has agents
 * there. */
static struct job *job_at_its_address(const struct hub *hub, const struct session *s)
{
    struct job *job = NULL;
    for (const struct session *agent = NULL; (agent = next_agent(hub, s, agent)) != NULL;) {
        if (job != NULL && agent->job != job)
            return NULL;
        job = agent->job;
    }
    return job;
}

/* End the wait for `vouch`. If only one job has agents at the client's address, release the client into this job.
 * Otherwise reject the client, because its keys must not get into a wrong job. */
static void give_up_waiting(struct hub *hub, struct session *s)
{
    char why[128];
    struct job *job = job_at_its_address(hub, s);
    if (job != NULL) {
        release(s, job);
        return;
    }
    snprintf(
        why, sizeof(why),
        "the job of this client is unknown: no agent of the %u jobs identified the connection within %d s",
        hub->jobs.count, HOLD_MS / 1000);
    session_reject(hub, s, why);
}

/* End the waits that have timed out. All sessions of a list have the same timeout, so the first session times out
 * first. */
void peer_tick(struct hub *hub)
{
    while (claimed_deadline(hub) <= hub->now_ms) {
        struct session *s = LIST_ENTRY(hub->peers.claimed.next, struct session, midway);
        release(s, s->job);
    }
    while (held_deadline(hub) <= hub->now_ms)
        give_up_waiting(hub, LIST_ENTRY(hub->peers.held.next, struct session, midway));
}

/* --- vouch ------------------------------------------------------------------------------------------------ */

/* An agent may vouch only for connections of the agent's user. An agent of root may vouch for the connections of all
 * users. The store cannot verify the users of other hosts. If agents of several jobs have the same address, a `vouch`
 * becomes valid only after CLAIM_MS. If an agent of another job vouches for the same connection, too, the connection is
 * closed. */

/* Reject a `vouch`. The agent may still be correct, because the client may have sent IDENTIFY meanwhile. */
static bool refuse_claim(cJSON *answer)
{
    message_add_refusal(&(struct message_refusal){ .code = "VOUCH_REFUSED" }, answer);
    return false;
}

/* Return true if an agent of another job has claimed this session before, and the store cannot decide which agent is
 * right. The store can decide in two cases. If the client has named its job in TLS, may_identify() rejects agents of
 * other jobs. If the kernel has reported the users of the agent and the client, may_identify() rejects agents of other
 * users.
 *
 * Also return false if the session entered its job without a claim. At that time, no other job had an agent at the
 * client's address. A process of a job that started later cannot own the connection, because the connection is older
 * than this process. */
static bool is_claimed_elsewhere(const struct session *agent, const struct session *s)
{
    return s->role == ROLE_PLAIN && s->tls_job == NULL && s->is_claim && s->job != NULL &&
           s->job != agent->job && !users_are_known(agent, s) && is_at_its_address(agent, s);
}

/* Close a connection that agents of two jobs claim. Only one agent can be right, and the keys of the client must not
 * get into the wrong job. */
static void reject_claimed_twice(struct hub *hub, const struct session *agent, struct session *s)
{
    char why[256];
    struct rdzv_node_facts node = { .host = "" };
    (void)rdzv_node_facts(agent->job->rdzv, agent->id, &node);
    snprintf(why, sizeof(why), "job '%.32s' and job '%.32s' (agent on %.32s) both claim this connection",
             s->job->name, agent->job->name, node.host);
    session_reject(hub, s, why);
}

/* Return true if a `vouch` of this agent is valid at once. Any other `vouch` becomes valid after CLAIM_MS if no other
 * job claims the session. The caller has checked that the agent passes may_identify(). The first rule that applies
 * decides:
 * - if the session has a job, return true only if the session is not held
 * - return true if the kernel has reported the users of the agent and of the client, because may_identify() has
 *   compared these users
 * - return true if only one job has agents at the client's address
 * - otherwise return false */
static bool is_certain(const struct hub *hub, const struct session *agent, const struct session *s)
{
    if (s->job != NULL)
        return !s->is_held;
    return users_are_known(agent, s) || job_at_its_address(hub, s) != NULL;
}

/* Return true if the store accepts this `vouch`. The session must be a plain client that the agent can identify
 * (may_identify). If the session is neither held nor a stranger, is_certain() must be true. If the `vouch` names a
 * rank, this rank must be on the agent's node. */
static bool may_vouch(struct hub *hub, const struct session *agent, const struct session *s, int64_t rank)
{
    const bool is_waiting = s->is_held || s->stranger_state != STRANGER_NONE;
    if (s->role != ROLE_PLAIN || !may_identify(agent, s) || !(is_waiting || is_certain(hub, agent, s)))
        ddp_fail(&hub->err, DDP_ERR_ARG, "connection %llu does not belong to this agent",
                 (unsigned long long)s->id);
    else if (rank >= 0 && rdzv_check_rank(agent->job->rdzv, agent->id, rank) != RDZV_OK)
        ddp_fail(&hub->err, DDP_ERR_ARG, "rank %lld is not on this node", (long long)rank);
    else
        return true;
    return false;
}

/* Return true if all agents that may identify the session `s` belong to the tenant of `agent`. */
static bool is_one_tenant(const struct hub *hub, const struct session *agent, const struct session *s)
{
    for (const struct session *other = NULL; (other = next_agent(hub, s, other)) != NULL;)
        if (other->tenant != agent->tenant)
            return false;
    return true;
}

/* Admit a stranger after an agent has confirmed the stranger's user but named no process. If agents of several tenants
 * may identify the stranger, its tenant is unknown, so do nothing. */
static void admit_user(struct hub *hub, const struct session *agent, struct session *s)
{
    if (s->stranger_state == STRANGER_NONE || !may_identify(agent, s) || !is_one_tenant(hub, agent, s))
        return;
    s->tenant = agent->tenant;
    session_admit(hub, s);
}

/* Record that an agent has named the process of the session `s`. If `s` is a stranger, also mark it as held (is_held),
 * because release() and claim() expect a held session. */
static void name_process(struct hub *hub, const struct session *agent, struct session *s)
{
    s->tenant = agent->tenant;
    s->voucher = agent->id;
    if (s->stranger_state == STRANGER_NONE)
        return;
    session_leave_line(hub, s);
    list_remove(&s->midway);
    s->is_held = true;
}

/* Return true if the client may be this rank. A client without a tenant and without a `vouch` may be any rank: the
 * client is on this host, or the store has no secret. For a client with a `vouch`, the agent that sent the `vouch` must
 * run the rank. For a client with only a tenant, at least one agent that can identify the client must run the rank. */
bool peer_may_be_rank(const struct hub *hub, const struct session *s, const char *job, int64_t rank)
{
    if (s->tenant == NULL && s->voucher == 0)
        return true;
    for (const struct session *agent = NULL; (agent = next_agent(hub, s, agent)) != NULL;)
        if ((s->voucher == 0 || s->voucher == agent->id) && strcmp(agent->job->name, job) == 0 &&
            rdzv_check_rank(agent->job->rdzv, agent->id, rank) == RDZV_OK)
            return true;
    return false;
}

/* Handle `vouch`: an agent names the process of a connection. If `pid` is 0, the agent confirms only the user of the
 * connection. An unknown connection is no error, because it may have been closed meanwhile. */
bool control_vouch(struct hub *hub, struct session *agent, const union message *m, cJSON *answer)
{
    const int64_t conn = m->vouch.conn, rank = m->vouch.rank, pid = m->vouch.pid;
    if (!agent->is_node) {
        ddp_fail(&hub->err, DDP_ERR_ARG, "the sender has not joined a job; send `join` first");
        return refuse_claim(answer);
    }
    struct session *s = session_find(hub, (conn_id)conn);
    if (s != NULL && pid == 0)
        admit_user(hub, agent, s);
    if (s == NULL || pid == 0)
        return true;
    if (is_claimed_elsewhere(agent, s)) {
        reject_claimed_twice(hub, agent, s);
        ddp_fail(&hub->err, DDP_ERR_ARG, "connection %lld: another job claims this connection, too",
                 (long long)conn);
        return refuse_claim(answer);
    }
    if (!may_vouch(hub, agent, s, rank))
        return refuse_claim(answer);
    const bool certain = is_certain(hub, agent, s);
    name_process(hub, agent, s);
    if (certain)
        release(s, agent->job);
    else
        claim(s, agent->job);
    session_detach(s); /* an earlier `vouch` may have named another rank */
    session_is_process(s, (int)pid, true);
    /* a connection from an earlier attempt gets no rank, because another process now has this rank */
    if (rank >= 0 && rank < (int64_t)agent->job->members.world_size && s->era >= agent->job->era)
        session_attach(s, (uint32_t)rank);
    return true;
}

/* --- owner ------------------------------------------------------------------------------------------------ */

/* Keep the first description of a connection's process, because several agents may send one. */
static void note_owner(const struct session *agent, struct session *s, int pid, const char *words)
{
    struct rdzv_node_facts node;
    struct buf text = { 0 };
    if (s->torch == NULL || s->torch->owner != NULL || !list_is_empty(&s->by_rank) ||
        !rdzv_node_facts(agent->job->rdzv, agent->id, &node))
        return;
    session_is_process(s, pid, true);
    if (buf_printf(&text, "%s on %.100s", words, node.host) && buf_append(&text, "", 1))
        s->torch->owner = (char *)text.data;
    else
        buf_free(&text);
    schedule_torch(s->job, true); /* the report of this check can now name the process */
    job_touch(s->job);
}

/* Handle `owner`, whose text describes a process that is not a worker of the job. The text is from another host, so the
 * programs that print this text replace its control characters. */
bool control_owner(struct hub *hub, struct session *agent, const union message *m, cJSON *answer)
{
    (void)answer;
    struct session *s = session_find(hub, (conn_id)m->owner.conn);
    if (s != NULL && s->role == ROLE_PLAIN && s->job == agent->job && may_identify(agent, s))
        note_owner(agent, s, (int)m->owner.pid, m->owner.words);
    return true;
}
