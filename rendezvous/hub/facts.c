/* facts.c -- what is known of a rank now: what the members' table holds, and what its open connections show.
 *
 * Nothing is written down when a wait begins or a byte comes; the connections are asked when somebody wants
 * to know. That is rare (a time-out, an operator), and requests are not. */
#include "job/rendezvous.h"
#include "hub/session.h"

/* The barrier of PyTorch's whose count it asks for again and again; NULL = none, or it is complete. */
static const struct torch_meet *polled(const struct session *s)
{
    const struct job *job = s->job;
    if (s->torch == NULL || !s->torch->polls || job == NULL)
        return NULL;
    const struct torch_meet *meet = torch_meets_of_id(&job->meets, s->torch->meet);
    return meet != NULL && !(job->members.known && meet->count == job->members.world_size) ? meet : NULL;
}

/* A barrier counts as the one thing that is awaited, and so does one of PyTorch's that is asked for its count. */
bool facts_awaited(const struct session *s, uint32_t n, struct slice *name)
{
    const uint32_t keys = store_awaited_count(&s->waiter);
    const struct torch_meet *meet = keys == 0 && n == 0 ? polled(s) : NULL;
    const bool in_barrier = s->seat.barrier != NULL && n == 0;
    if (in_barrier)
        *name = barrier_name(s->seat.barrier);
    else if (n < keys)
        *name = store_awaited(&s->waiter, n);
    else if (meet != NULL)
        *name = torch_meet_key(meet);
    return in_barrier || n < keys || meet != NULL;
}

const char *facts_waits_by(const struct session *s)
{
    if (s->waits_in != 0)
        return op_table[s->waits_in - 1].name;
    return polled(s) != NULL ? "ADD" : NULL;
}

static struct rank_wait wait_of(const struct session *s)
{
    struct rank_wait wait = { .in_barrier = s->seat.barrier != NULL };
    const uint32_t keys = store_awaited_count(&s->waiter);
    if (facts_waits_by(s) == NULL || !facts_awaited(s, 0, &wait.name))
        return (struct rank_wait){ 0 };
    wait.more = keys > 1 ? keys - 1 : 0;
    wait.for_ms = s->job->hub->now_ms - s->waits_since_ms;
    return wait;
}

/* While a round runs every rank has a node, unless that is gone. */
static bool node_is_lost(const struct job *job, uint32_t rank)
{
    struct rdzv_facts facts;
    if (job->rdzv == NULL)
        return false;
    rdzv_facts(job->rdzv, &facts);
    return (facts.state == RDZV_RUNNING || facts.state == RDZV_STOPPING) && rank < facts.world_size &&
           rdzv_node_of_rank(job->rdzv, rank) == 0;
}

/* A rank may have several connections: the youngest byte of any counts, and the first wait that is found. */
void facts_of_rank(struct job *job, uint32_t rank, struct rank_facts *facts)
{
    struct hub *hub = job->hub;
    struct member *member = members_at(&job->members, rank);
    uint64_t heard_ms = member->heard_ms;
    *facts = member_facts(&job->members, rank);
    facts->connected = !list_is_empty(&member->sessions);
    LIST_EACH(node, &member->sessions)
    {
        const struct session *s = LIST_ENTRY(node, struct session, by_rank);
        heard_ms = s->heard_ms > heard_ms ? s->heard_ms : heard_ms;
        if (facts->waits.name.data == NULL)
            facts->waits = wait_of(s);
    }
    facts->silent_ms = hub->now_ms - heard_ms;
    facts->state_ms = facts->proc_state != 0 ? hub->now_ms - member->state_since_ms : 0;
    facts->still_ms = member->has_steps ? hub->now_ms - member->stepped_ms : 0;
    facts->node_lost = node_is_lost(job, rank);
}
