/* job_barriers.c -- what the barriers of a job ask of it: who they speak for, and who hears how they end. */
#include "hub/session.h"
#include "store/encode.h"
#include "hub/job_events.h"
#include "hub/job_left.h"

/* No buffer in between, so that a released barrier needs no memory. */
static void answer_barrier(void *user, struct barrier_seat *seat, enum barrier_outcome outcome,
                           struct slice json)
{
    struct session *s = TABLE_ENTRY(seat, struct session, seat);
    uint8_t head[1 + 8] = { (uint8_t)outcome };
    struct hub *hub = ((struct job *)user)->hub;
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

static void barrier_lost(void *user, const struct barrier *barrier, uint32_t rank)
{
    job_left_barrier(user, barrier, rank);
}

static void barrier_opened(void *user, const struct barrier *barrier)
{
    job_events_opened(user, barrier);
    job_watch_barrier(user);
}

struct barrier_env job_barrier_env(struct job *job)
{
    return (struct barrier_env){ .user = job,
                                 .answer = answer_barrier,
                                 .facts = barrier_facts,
                                 .has_ended = barrier_rank_ended,
                                 .log = barrier_log,
                                 .lost = barrier_lost,
                                 .opened = barrier_opened,
                                 .ended = job_events_ended };
}
