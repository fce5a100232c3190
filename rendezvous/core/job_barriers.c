/* job_barriers.c -- what the barriers of a job ask of it: who they speak for, and who hears how they end. */
#include "core/arrivals.h"
#include "core/encode.h"
#include "core/job_events.h"
#include "core/json.h"
#include "base/text.h"

/* Of a barrier's name, and of the ranks in it, so much is told to agents. */
enum { PUSHED_NAME = 200, PUSHED_RANKS = 1024 };

/* No buffer in between, so that a released barrier needs no memory. */
static void answer_barrier(void *user, struct barrier_seat *seat, enum barrier_outcome outcome,
                           struct slice json)
{
    struct session *s = TABLE_ENTRY(seat, struct session, seat);
    uint8_t head[1 + 8] = { (uint8_t)outcome };
    struct hub *hub = ((struct job *)user)->hub;
    if (seat->of_node) {
        arrivals_answer(user, seat, outcome, json);
        return;
    }
    write_le(head + 1, json.len, 8);
    s->waits_in = 0;
    hub_send(hub, s, slice_of(head, sizeof(head)));
    if (json.len > 0)
        hub_send(hub, s, json);
}

static void barrier_facts(void *user, uint32_t rank, struct rank_facts *facts)
{
    facts_of_rank(user, rank, facts);
}

/* By its agent's word: a connection that has closed may only be a worker that connects anew. */
static bool barrier_rank_ended(void *user, uint32_t rank)
{
    const struct job *job = user;
    return members_at(&job->members, rank)->exited;
}

static void barrier_log(void *user, const char *line)
{
    hub_log(((struct job *)user)->hub, "%s", line);
}

/* {"push":"left_waiting","rank":0,"barrier":"epoch-3","waiting":[1,2]} The ranks are cut to what a message
 * has room for. */
static cJSON *left_waiting_json(const struct barrier *barrier, uint32_t rank)
{
    struct buf name = { 0 };
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "left_waiting");
    cJSON_AddNumberToObject(o, "rank", rank);
    if (text_put(&name, barrier_name(barrier), PUSHED_NAME) && buf_append(&name, "", 1))
        cJSON_AddStringToObject(o, "barrier", (const char *)name.data);
    buf_free(&name);
    cJSON *waiting = cJSON_AddArrayToObject(o, "waiting");
    for (uint32_t r = 0, n = 0; r < barrier->world_size && n < PUSHED_RANKS; r++)
        if (barrier_has(barrier, r)) {
            json_append(waiting, cJSON_CreateNumber(r));
            n++;
        }
    return o;
}

/* A rank that fails is told of by its agent. One that ends with 0 looks like a success, and only here is known
 * that others still count on it: the agents hear of it. */
static void barrier_lost(void *user, const struct barrier *barrier, uint32_t rank)
{
    struct job *job = user;
    const struct member *member = members_at(&job->members, rank);
    if (!member->exited || member->signal != 0 || member->exit_code != 0)
        return;
    cJSON *o = left_waiting_json(barrier, rank);
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->role == ROLE_AGENT)
            hub_push(job->hub, s, o);
    }
    cJSON_Delete(o);
}

struct barrier_env job_barrier_env(struct job *job)
{
    return (struct barrier_env){ .user = job,
                                 .answer = answer_barrier,
                                 .facts = barrier_facts,
                                 .has_ended = barrier_rank_ended,
                                 .log = barrier_log,
                                 .lost = barrier_lost,
                                 .opened = job_events_opened,
                                 .ended = job_events_ended };
}
