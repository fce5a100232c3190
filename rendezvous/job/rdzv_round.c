/* rdzv_round.c -- when a round is complete, and its beginning.
 *
 * Static: all node ranks are here. Elastic, the first time: MAX nodes are here, or MIN are and the last call
 * is over. Later no last call is made, since nobody new is expected: a round is complete when every member of
 * the last one that has not gone is back, together with the spares, and these are MIN. Only when newcomers had
 * to be waited for, because too few were left, there is a last call again: newcomers seldom come alone. */
#include "job/rdzv_core.h"

/* Who is still to come back keeps its place: a spare must not drive a survivor out. A survivor has its
 * rank, and perhaps a checkpoint on its disk; a spare starts from nothing. */
static uint32_t places_for_newcomers(const struct rdzv *r)
{
    uint32_t held = r->n_back + r->n_resting;
    return r->rules.max > held ? r->rules.max - held : 0;
}

/* How many a round would have if it began now: all survivors that are back, and newcomers as far as there
 * are places. */
uint32_t rdzv_takes(const struct rdzv *r)
{
    uint32_t new = r->n_waiting - r->n_back, places = places_for_newcomers(r);
    return r->n_back + (new < places ? new : places);
}

/* Static jobs wait for exactly all, because their ranks are numbered by hand and a gap could be given to
 * nobody. */
bool rdzv_is_complete(const struct rdzv *r)
{
    if (!r->rules.known)
        return false;
    if (!r->rules.elastic)
        return r->n_waiting == r->rules.max;
    bool all_back = r->round > 0 && r->n_resting == 0 && !r->short_handed;
    return rdzv_takes(r) == r->rules.max || (all_back && rdzv_takes(r) >= r->rules.min);
}

/* Waiting nodes beyond max stay spares: telling the workers of them would end a round for nothing. */
uint32_t rdzv_can_grow_by(const struct rdzv *r)
{
    uint32_t places = r->rules.elastic && r->rules.max > r->nnodes ? r->rules.max - r->nnodes : 0;
    return r->n_waiting < places ? r->n_waiting : places;
}

/* The key space was emptied when the round began, so 0 is what a key that is not there says. Only a
 * change is handed on, since behind the callback a key is written. */
void rdzv_tell_workers_who_waits(struct rdzv *r)
{
    uint32_t count = r->rules.grow == RDZV_GROW_NEVER ? 0 : rdzv_can_grow_by(r);
    if (count == r->waiting_nodes || r->env.waiting_nodes == NULL)
        return;
    r->waiting_nodes = count;
    r->env.waiting_nodes(r->env.user, count);
}

/* Ranks in the order of node ranks, so that those of a node are neighbours. */
static void take_seats(struct rdzv *r, uint32_t n)
{
    r->world_size = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct node *node = r->member[i];
        rdzv_node_stops_waiting(r, node, RDZV_NODE_RUNNING);
        node->node_rank = (int32_t)i;
        node->first_rank = r->world_size;
        r->world_size += node->nproc;
        r->seats[i] = (struct rdzv_seat){ .node = node->id,
                                          .node_rank = i,
                                          .first_rank = node->first_rank,
                                          .nproc = node->nproc,
                                          .store_port = node->store_port,
                                          .host = node->host,
                                          .addr = node->addr,
                                          .own = node->own };
    }
    r->round++;
    for (uint32_t i = 0; i < n; i++)
        r->member[i]->round = r->round;
    r->n_back = r->n_resting = 0; /* who missed this round joins as a newcomer */
    r->nnodes = r->n_members = r->n_open = n;
    r->n_done = 0;
}

/* By name and not by memset: the counts of restarts and progress live on from round to round. */
static void forget_last_end(struct rdzv *r)
{
    r->has_cause = r->unkillable = r->stopped_by_user = r->has_rank0 = false;
    r->grow_agreed = r->short_handed = false;
    r->max_code = r->rank0_code = 0;
    r->waiting_nodes = 0;
    r->began_ms = r->now_ms;
}

/* Do members have different roles? Hardly ever. */
static bool has_roles(const struct rdzv *r)
{
    for (uint32_t i = 1; i < r->nnodes; i++)
        if (strcmp(r->member[i]->role, r->member[0]->role) != 0)
            return true;
    return false;
}

/* Where the workers of each node stand among those of one role; node `first` is the first that has it. */
static void count_role(const struct rdzv *r, uint32_t first)
{
    const char *role = r->member[first]->role;
    uint32_t size = 0;
    for (uint32_t i = first; i < r->nnodes; i++) {
        if (strcmp(r->member[i]->role, role) != 0)
            continue;
        r->member[i]->role_rank = size;
        size += r->member[i]->nproc;
    }
    for (uint32_t i = first; i < r->nnodes; i++)
        if (strcmp(r->member[i]->role, role) == 0)
            r->member[i]->role_size = size;
}

/* Once through the nodes for each role, of which there are few. A size of 0 = all are of one. */
static void count_roles(const struct rdzv *r)
{
    for (uint32_t i = 0; i < r->nnodes; i++)
        r->member[i]->role_rank = r->member[i]->role_size = 0;
    if (!has_roles(r))
        return;
    for (uint32_t i = 0; i < r->nnodes; i++)
        if (r->member[i]->role_size == 0)
            count_role(r, i);
}

/* One struct for all, with what differs beside it: a copy of the list for each node would grow with the
 * square of their number. */
static void tell_all(struct rdzv *r, struct rdzv_round *world)
{
    count_roles(r);
    world->n_seats = r->nnodes <= RDZV_LIST_MAX ? r->nnodes : RDZV_SHORT_LIST_MAX;
    for (uint32_t i = 0; i < r->nnodes; i++) {
        struct rdzv_tell tell = { .kind = RDZV_TELL_ROUND,
                                  .world = world,
                                  .round = r->round,
                                  .attempt = world->attempt,
                                  .node_rank = i,
                                  .first_rank = r->member[i]->first_rank,
                                  .role_rank = r->member[i]->role_rank,
                                  .role_size = r->member[i]->role_size };
        r->env.tell(r->env.user, r->member[i]->id, &tell);
    }
}

/* No node hears of the round before the key space is empty: a worker's first request may come right after.
 * Seats are taken before that, because `begin` is handed the list of them. When there is no memory for
 * it the job ends here and now: a round over the keys of the last one would find its barriers used up. */
enum rdzv_state rdzv_begin_round(struct rdzv *r)
{
    uint32_t n = rdzv_takes(r);
    if (r->rules.elastic)
        rdzv_order_elastic(r, n);
    else
        rdzv_order_static(r);
    take_seats(r, n);
    forget_last_end(r);
    struct rdzv_round world = { .round = r->round,
                                .attempt = r->round - 1,
                                .restarts = r->restarts.failed,
                                .nnodes = n,
                                .world_size = r->world_size,
                                .seats = r->seats,
                                .n_seats = n };
    if (!r->env.begin(r->env.user, &world)) {
        rdzv_set_cause(r, RDZV_WHY_REFUSED, NULL, 0, "the store has no memory for another key space");
        return rdzv_end_job(r, RDZV_WHY_REFUSED, RDZV_NO_RESTART_NOT_READY);
    }
    rdzv_note(r, RDZV_RECORD_ROUND, NULL,
              "attempt %" PRIu32 " begins: %" PRIu32 " node%s, %" PRIu32 " rank%s", r->round - 1, n,
              n == 1 ? "" : "s", r->world_size, r->world_size == 1 ? "" : "s");
    tell_all(r, &world);
    if (r->n_waiting > 0)
        rdzv_will_say(r);
    return RDZV_RUNNING;
}
