/* arrivals.c -- see arrivals.h.
 *
 * When a barrier ends, thousands of agents are told the same at one moment. What they are told is printed for the first
 * of them and kept: whoever is told of the same name, outcome and report gets the same bytes. */
#include "core/arrivals.h"

#include "core/encode.h"
#include "core/rdzv.h"
#include "base/text.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

static uint64_t cost(size_t name_len)
{
    return sizeof(struct arrival) + name_len;
}

/* --- made and freed --------------------------------------------------------------------------------------- */

/* Charged before it is had, like everything that a peer can make grow. The name is kept, since the answer
 * is named by it and the barrier's own may be gone by then. */
static struct arrival *make(struct hub *hub, struct session *agent, struct slice name)
{
    if (!quota_take(&hub->quota, cost(name.len)))
        return NULL;
    struct arrival *a = calloc(1, sizeof(*a) + name.len);
    if (a == NULL) {
        quota_give(&hub->quota, cost(name.len));
        return NULL;
    }
    list_init(&a->seat.node);
    a->seat.of_node = true;
    a->session = agent;
    a->since_ms = hub->now_ms;
    a->name_len = (uint32_t)name.len;
    if (name.len > 0)
        memcpy(a->name, name.data, name.len);
    list_insert(&agent->as_node->arrivals, &a->in_session);
    return a;
}

/* The only place that frees one. */
static void drop(struct hub *hub, struct arrival *a)
{
    quota_give(&hub->quota, cost(a->name_len));
    list_remove(&a->in_session);
    free(a);
}

/* Counted each time: the limit is small, and a count of its own would be one more thing to keep right. */
static bool has_room(const struct session *agent)
{
    uint32_t n = 0;
    LIST_EACH(node, &agent->as_node->arrivals)
    {
        n++;
    }
    return n < ARRIVALS_MAX;
}

/* --- coming and leaving ----------------------------------------------------------------------------------- */

/* The barrier may answer at once, and then the arrival is gone when it returns. */
bool arrivals_come(struct hub *hub, struct session *agent, const struct barrier_call *call)
{
    if (!has_room(agent)) {
        ddp_fail(&hub->err, DDP_ERR_LIMIT, "this agent waits in %d barriers already", (int)ARRIVALS_MAX);
        return false;
    }
    struct arrival *a = make(hub, agent, call->name);
    if (a != NULL && barriers_arrive(&agent->job->barriers, &a->seat, call))
        return true;
    if (a != NULL)
        drop(hub, a);
    ddp_fail(&hub->err, DDP_ERR_LIMIT, "arrive: the store is full");
    return false;
}

/* The barrier forgets the seat before it is freed. */
void arrivals_leave(struct session *agent)
{
    while (agent->as_node != NULL && !list_is_empty(&agent->as_node->arrivals)) {
        struct arrival *a = LIST_ENTRY(agent->as_node->arrivals.next, struct arrival, in_session);
        barriers_leave(&agent->job->barriers, &a->seat);
        drop(agent->job->hub, a);
    }
}

/* An arrival speaks for a run of ranks of one node, so the rank's node is found first. */
const struct arrival *arrivals_of_rank(const struct job *job, uint32_t rank)
{
    const uint64_t node = job->rdzv != NULL ? rdzv_node_of_rank(job->rdzv, rank) : 0;
    const struct session *agent = node != 0 ? session_find(job->hub, node) : NULL;
    if (agent == NULL)
        return NULL;
    LIST_EACH(at, &agent->as_node->arrivals)
    {
        const struct arrival *a = LIST_ENTRY(at, struct arrival, in_session);
        if (rank >= a->seat.rank && rank - a->seat.rank <= a->seat.more)
            return a;
    }
    return NULL;
}

/* --- the answer ------------------------------------------------------------------------------------------- */

static const char *const outcome_words[] = {
    [BARRIER_RELEASED] = "released",   [BARRIER_TIMED_OUT] = "timed_out", [BARRIER_LOST] = "lost",
    [BARRIER_CANCELLED] = "cancelled", [BARRIER_MISUSE] = "misuse",
};

static bool keep(struct buf *kept, struct slice bytes)
{
    kept->len = 0;
    return buf_append(kept, bytes.data, bytes.len);
}

/* {"push":"barrier","name":"epoch-3","outcome":"released"}; what is not "released" has a "report", the JSON that a rank
 * gets which came by itself. */
static bool print(struct barrier_push *push, struct slice name, enum barrier_outcome outcome,
                  struct slice json)
{
    struct buf text = { 0 };
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "barrier");
    if (text_put(&text, name, name.len) && buf_append(&text, "", 1))
        cJSON_AddStringToObject(o, "name", (const char *)text.data);
    cJSON_AddStringToObject(o, "outcome", outcome_words[outcome]);
    text.len = 0;
    if (json.len > 0 && buf_append(&text, json.data, json.len) && buf_append(&text, "", 1))
        cJSON_AddRawToObject(o, "report", (const char *)text.data);
    buf_free(&text);
    char *printed = cJSON_PrintUnformatted(o);
    push->message.len = 0;
    bool ok = printed != NULL && put_blob(&push->message, slice_str(printed));
    cJSON_free(printed);
    cJSON_Delete(o);
    return ok;
}

/* What was printed for the one before will do, when it is about the same. */
static bool print_once(struct barrier_push *push, struct slice name, enum barrier_outcome outcome,
                       struct slice json)
{
    if (push->message.len > 0 && push->outcome == outcome && slice_equal(buf_slice(&push->name), name) &&
        slice_equal(buf_slice(&push->json), json))
        return true;
    push->outcome = outcome;
    if (print(push, name, outcome, json) && keep(&push->name, name) && keep(&push->json, json))
        return true;
    push->message.len = 0;
    return false;
}

void arrivals_forget_push(struct hub *hub)
{
    buf_free(&hub->barrier_push.name);
    buf_free(&hub->barrier_push.json);
    buf_free(&hub->barrier_push.message);
}

/* Memory that is short costs the push; the agent's own deadline then ends the wait. */
void arrivals_answer(struct job *job, struct barrier_seat *seat, enum barrier_outcome outcome,
                     struct slice json)
{
    struct hub *hub = job->hub;
    struct arrival *a = TABLE_ENTRY(seat, struct arrival, seat);
    if (print_once(&hub->barrier_push, slice_of(a->name, a->name_len), outcome, json))
        hub_send(hub, a->session, buf_slice(&hub->barrier_push.message));
    drop(hub, a);
}
