/* job_barriers.c -- what the barriers of a job ask of it: who they speak for, and who hears how they end. */
#include "hub/session.h"
#include "store/encode.h"
#include "hub/job_events.h"
#include "hub/job_left.h"
#include "diagnosis/ranks.h"

#include <stdio.h>

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

static void facts_for(void *user, uint32_t rank, struct rank_facts *facts)
{
    facts_of_rank(user, rank, facts);
}

static void report_barrier(void *user, const struct barrier *barrier, struct slice name,
                           enum barrier_outcome outcome, const char *because, struct buf *out)
{
    barrier_report(barrier, name, facts_for, user, outcome, because, out);
}

static void put_end(void *user, uint32_t rank, char *text, size_t size)
{
    struct rank_facts facts;
    struct finding finding;
    facts_of_rank(user, rank, &facts);
    diagnose_rank(&facts, &finding);
    snprintf(text, size, "%s %s", finding.subject, finding_predicate(&finding));
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
                                 .report = report_barrier,
                                 .end_of = put_end,
                                 .has_ended = barrier_rank_ended,
                                 .log = barrier_log,
                                 .lost = barrier_lost,
                                 .opened = barrier_opened,
                                 .ended = job_events_ended };
}
