/* job_left.c -- see job_left.h.
 *
 * A barrier names who is missed. Collectives pass the store by: there only what is left is known, ranks that gave up and ranks that
 * ended well, and that every other has told its end before the round was over. */
#include "hub/job_left.h"

#include "hub/job_events.h"
#include "job/rendezvous.h"
#include "diagnosis/screen.h"
#include "hub/session.h"
#include "hub/torch_watch.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* {"push":"left_waiting","text":"rank 0 ...","findings":[...]} Before those that wait are freed, or the verdict comes:
 * their words are then read for what they are. */
static void tell(struct job *job, const struct finding *f)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "left_waiting");
    cJSON_AddFalseToObject(o, "final");
    const bool whole = screen_add_one(o, f);
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (whole && s->is_node)
            hub_push(job->hub, s, o);
    }
    cJSON_Delete(o);
    job_events_finding(job, f);
    notices_add(&job->troubles, finding_code_name(f->code), f->subject, f->sentence, f->advice);
}

/* The first place where it is missed is the one to know. */
void job_left_barrier(struct job *job, const struct barrier *barrier, uint32_t rank)
{
    struct rank_facts facts;
    struct finding f;
    if (!member_has_left(members_at(&job->members, rank)))
        return;
    facts_of_rank(job, rank, &facts);
    diagnose_left_barrier(barrier, &facts, &f);
    if (!notices_have(&job->troubles, f.code, f.subject))
        tell(job, &f);
}

/* libddp says whom it has lost, "rank 3 (pid 203 on n1) has ended while ...". Others may well have ended before: who has sent its
 * part to the root of a gather has no more to do with it. -1: the words name nobody who has left. */
static int64_t lost_in_words(const struct members *members, const struct rdzv_cause *cause)
{
    char name[64];
    for (uint32_t rank = 0; rank < members->world_size; rank++) {
        const struct member *member = members_at(members, rank);
        if (!member_has_left(member))
            continue;
        snprintf(name, sizeof(name), "rank %u (pid %d on ", rank, member->pid);
        for (uint32_t i = 0; i < cause->n_stderr_lines; i++)
            if (strstr(cause->stderr_lines[i], name) != NULL)
                return rank;
    }
    return -1;
}

/* Who was killed has given up nothing. */
static void tell_given_up(struct job *job, const struct rdzv_cause *cause)
{
    const struct finding *f = cause->signal == 0 ? torch_given_up(job, (uint32_t)cause->rank) : NULL;
    if (f != NULL)
        tell(job, f);
}

void job_left_verdict(struct job *job)
{
    struct rdzv_facts facts;
    struct finding f;
    rdzv_facts(job->rdzv, &facts);
    if (facts.cause == NULL || facts.cause->rank < 0)
        return;
    tell_given_up(job, facts.cause);
    if (!facts.cause->is_victim || notices_have(&job->troubles, FINDING_RANK_LEFT_EARLY, NULL))
        return;
    if (diagnose_left_call(&job->members, (uint32_t)facts.cause->rank,
                           lost_in_words(&job->members, facts.cause), &f))
        tell(job, &f);
}
