/* job_barriers.c -- what the barriers of a job ask of it: who they speak for, and who hears how they end. */
#include "core/arrivals.h"
#include "core/encode.h"
#include "core/job_events.h"
#include "core/screen.h"

#include <cjson/cJSON.h>

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

/* {"push":"left_waiting","text":"rank 0 ...","findings":[...]} To every agent at once, before those that wait are
 * freed: their words are then read for what they are. */
static void tell_left(struct job *job, const struct finding *finding)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "left_waiting");
    cJSON_AddFalseToObject(o, "final");
    if (screen_add_one(o, finding))
        LIST_EACH(node, &job->sessions)
        {
            struct session *s = LIST_ENTRY(node, struct session, in_job);
            if (s->role == ROLE_AGENT)
                hub_push(job->hub, s, o);
        }
    cJSON_Delete(o);
    job_events_finding(job, finding);
}

/* A rank that fails is told of by its agent. One that ends with 0 looks like a success, and only here is known
 * that others still count on it: the agents hear of it, and whoever asks why. The first barrier that it is missed
 * in is the one to know. */
static void barrier_lost(void *user, const struct barrier *barrier, uint32_t rank)
{
    struct job *job = user;
    struct rank_facts facts;
    struct finding f;
    facts_of_rank(job, rank, &facts);
    if (!facts.exited || facts.signal != 0 || facts.exit_code != 0)
        return;
    diagnose_left(barrier, &facts, &f);
    if (notices_have(&job->troubles, f.code, f.subject))
        return;
    notices_add(&job->troubles, finding_code_name(f.code), f.subject, f.sentence, f.advice);
    tell_left(job, &f);
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
