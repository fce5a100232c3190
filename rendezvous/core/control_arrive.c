/* control_arrive.c -- the call `arrive`: ranks of an agent's node have come to a barrier.
 *
 *     {"op":"arrive","round":3,"barrier":"epoch-3","timeout_ms":30000,"ranks":[8,15]}
 *
 * Ranks of one node are neighbours, so a first and a last one name any part of them that a node needs to tell of at once;
 * two parts are two calls. All ranks of the world belong to such a barrier.
 *
 * The answer is the push that says how the barrier ended, and there is no other: where two thousand nodes meet, a second
 * message to each would be half of what the meeting costs. */
#include "core/arrivals.h"
#include "core/control_calls.h"

#include "core/json.h"
#include "core/rdzv.h"

/* [first, last], both of this node. */
static bool read_ranks(struct hub *hub, const struct rdzv_node_facts *node, const cJSON *request,
                       struct barrier_call *call)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(request, "ranks");
    const cJSON *first = cJSON_GetArrayItem(ranks, 0), *last = cJSON_GetArrayItem(ranks, 1);
    if (!cJSON_IsArray(ranks) || cJSON_GetArraySize(ranks) != 2 || !cJSON_IsNumber(first) ||
        !cJSON_IsNumber(last)) {
        ddp_fail(&hub->err, DDP_ERR_ARG, "\"ranks\" must be the first and the last of them");
        return false;
    }
    const double lowest = node->first_rank, highest = lowest + node->nproc - 1;
    if (!(first->valuedouble >= lowest && first->valuedouble <= last->valuedouble &&
          last->valuedouble <= highest)) {
        ddp_fail(&hub->err, DDP_ERR_ARG, "\"ranks\" must be within those of this node, %u to %u",
                 node->first_rank, node->first_rank + node->nproc - 1);
        return false;
    }
    call->rank = (uint32_t)first->valuedouble;
    call->more = (uint32_t)last->valuedouble - call->rank;
    return true;
}

/* Only who runs in a round has ranks. */
static bool has_ranks(struct hub *hub, const struct session *s, struct rdzv_node_facts *node)
{
    if (!control_is_node(hub, s))
        return false;
    if (rdzv_node_facts(s->job->rdzv, s->id, node) && node->state == RDZV_NODE_RUNNING)
        return true;
    ddp_fail(&hub->err, DDP_ERR_ARG, "no workers run on this node");
    return false;
}

static bool arrive(struct hub *hub, struct session *s, const cJSON *request, const char *name, cJSON *answer)
{
    struct barrier_call call = { .name = slice_str(name), .now_ms = hub->now_ms };
    struct rdzv_node_facts node;
    if (control_is_stale(hub, s, request, answer) || !has_ranks(hub, s, &node) ||
        !json_integer(request, "timeout_ms", 0, CONTROL_MS_MAX, &call.timeout_ms, &hub->err) ||
        !read_ranks(hub, &node, request, &call))
        return false;
    call.world_size = s->job->members.world_size;
    return arrivals_come(hub, s, &call);
}

/* A refusal is the push that the agent waits for, too: its words are those of every refused call. */
bool control_arrive(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    const char *name = "";
    hub->answer_is_pushed = json_text(request, "barrier", WIRE_MAX_KEY, &name, &hub->err) &&
                            arrive(hub, s, request, name, answer);
    if (hub->answer_is_pushed)
        return true;
    cJSON_AddStringToObject(answer, "push", "barrier");
    cJSON_AddStringToObject(answer, "name", name);
    cJSON_AddStringToObject(answer, "outcome", "refused");
    return false;
}
