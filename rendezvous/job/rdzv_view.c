/* rdzv_view.c -- for those who only look: status, diagnosis, and the hub that finds a rank's node.
 *
 * They get copies and never the struct, so that a reader written in a hurry cannot disturb a job, and so
 * that the machine in rdzv.c may keep its facts in whatever way makes its steps cheap. What is borrowed is
 * valid until the rendezvous is spoken to again. */
#include "job/rdzv_core.h"

uint64_t rdzv_state_deadline(const struct rdzv *r)
{
    switch (r->state) {
    case RDZV_GATHERING:
        return r->rules.known ? r->gather_until_ms : UINT64_MAX;
    case RDZV_LAST_CALL:
        return r->call_until_ms;
    case RDZV_STOPPING:
        return r->stop_until_ms;
    case RDZV_BACKING_OFF:
        return r->back_off_until_ms;
    default:
        return UINT64_MAX;
    }
}

/* The failure that ends a job is followed by none. */
static uint32_t restarts_made(const struct rdzv *r)
{
    const struct restarts *a = &r->restarts;
    return a->failed < a->max_restarts ? a->failed : a->max_restarts;
}

/* A copy of numbers and borrowed texts, valid until the rendezvous is spoken to again; so its own struct
 * stays private and may change. */
void rdzv_facts(const struct rdzv *r, struct rdzv_facts *facts)
{
    const struct rules *rules = &r->rules;
    *facts =
        (struct rdzv_facts){ .job = r->job,
                             .instance = r->instance,
                             .state = r->state,
                             .round = r->round,
                             .restarts = restarts_made(r),
                             .max_restarts = r->restarts.max_restarts,
                             .elastic = rules->elastic,
                             .min = rules->min,
                             .max = rules->max,
                             .nodes = r->n_live,
                             .members = r->n_members,
                             .waiting = r->n_waiting,
                             .returning = r->n_resting,
                             .done = r->n_done,
                             .stopped = r->n_members - (r->n_open < r->n_members ? r->n_open : r->n_members),
                             .world_size = r->world_size,
                             .since_ms = r->since_ms,
                             .deadline_ms = rdzv_state_deadline(r),
                             .join_timeout_ms = rules->join_timeout_ms,
                             .join_knob = rules->join_knob,
                             .node_timeout_ms = rules->node_timeout_ms,
                             .last_call_ms = rules->last_call_ms,
                             .no_restart = r->no_restart,
                             .cause = r->has_cause ? &r->cause : NULL,
                             .gone = r->gone,
                             .n_gone = r->n_gone };
}

static bool is_spare(const struct rdzv *r, const struct node *node)
{
    bool runs = r->state == RDZV_RUNNING || r->state == RDZV_STOPPING;
    return node->state == RDZV_NODE_WAITING && (runs || r->n_waiting > r->rules.max);
}

bool rdzv_is_spare(const struct rdzv *r, uint64_t id)
{
    const struct node *node = rdzv_find(r, id);
    return node != NULL && is_spare(r, node);
}

bool rdzv_node_facts(const struct rdzv *r, uint64_t id, struct rdzv_node_facts *facts)
{
    const struct node *node = rdzv_find(r, id);
    if (node == NULL)
        return false;
    *facts = (struct rdzv_node_facts){ .node = node->id,
                                       .state = node->state,
                                       .node_rank = node->node_rank >= 0 ? node->node_rank : node->wanted,
                                       .first_rank = node->first_rank,
                                       .nproc = node->nproc,
                                       .host = node->host,
                                       .addr = node->addr,
                                       .own = node->own,
                                       .version = node->version,
                                       .boot_id = node->boot_id,
                                       .pid = node->pid,
                                       .pid_start = node->pid_start,
                                       .joined_ms = node->joined_ms,
                                       .heard_ms = node->heard_ms,
                                       .leaving = node->leaving,
                                       .is_spare = is_spare(r, node) };
    return true;
}

/* In the order of joining. An id instead of a pointer: between two calls the node may have gone, and then
 * the walk ends. */
uint64_t rdzv_next_node(const struct rdzv *r, uint64_t after)
{
    const struct node *node = after != 0 ? rdzv_find(r, after) : NULL;
    if (after != 0 && node == NULL)
        return 0;
    const struct list *next = node != NULL ? node->joined.next : r->nodes.next;
    return next != &r->nodes ? LIST_ENTRY(next, struct node, joined)->id : 0;
}

/* The last seat whose first rank is not beyond it. Seats keep their ranks when their node has gone. */
uint64_t rdzv_node_of_rank(const struct rdzv *r, uint32_t rank)
{
    bool runs = r->state == RDZV_RUNNING || r->state == RDZV_STOPPING;
    uint32_t low = 0, high = r->nnodes;
    if (!runs || rank >= r->world_size)
        return 0;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (r->seats[middle].first_rank <= rank)
            low = middle;
        else
            high = middle;
    }
    return r->seats[low].node;
}

bool rdzv_is_over(const struct rdzv *r)
{
    return r->state == RDZV_OVER && r->n_live == 0;
}
