/* attempt.c -- a job or an attempt of it begins.
 *
 * A key space belongs to one attempt. When the next one begins the launcher has made sure that the old
 * workers are dead, so what still looks like one of them is let go: identified workers are closed at
 * once, plain c10d connections at their next request (a silent one may be the callback connection of
 * torch 1.13, whose owner would abort when it is closed under it). Agents and operators stay. */
#include "hub/session.h"

/* The rendezvous owns its nodes: it drops one by itself, and may be using one now. Dispatch still uses the session that is
 * being fed; its next request is refused because its attempt is over. */
static bool may_be_dropped(const struct session *s)
{
    return s->role == ROLE_WORKER && !s->is_node && s != s->job->hub->feeding;
}

/* Their waits are over already. The successor is fetched before a session may be freed. */
static void let_everybody_go(struct job *job)
{
    for (struct list *node = job->sessions.next, *next; node != &job->sessions; node = next) {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        next = node->next;
        s->waits_in = 0;
        session_detach(s);
        torch_client_free(&s->torch);
        if (may_be_dropped(s))
            session_drop(job->hub, s, "it belongs to an earlier attempt, a new one begins");
    }
}

/* All waits are ended at once and silently, before any session is touched. The members go last: until then the
 * sessions are attached to them. */
void attempt_end(struct job *job)
{
    job->era = ++job->hub->era;
    store_clear(job->store);
    barriers_clear(&job->barriers);
    job->meets = (struct torch_meets){ 0 };
    job->given_up_ms = 0;
    let_everybody_go(job);
    members_free(&job->members);
    notices_free(&job->troubles);
}

/* The first attempt keeps what is there: connections and keys that came before the job was declared belong to
 * it. */
bool attempt_begin(struct job *job, const struct job_name *name, bool by_agent)
{
    struct members next = { .quota = job->quota };
    if (!members_begin(&next, name, by_agent))
        return false;
    if (job->members.known)
        attempt_end(job);
    job->members = next;
    if (strcmp(job->name, name->job) != 0)
        job_rename(job, name->job);
    hub_log(job->hub, "attempt %lld of job '%s' begins, %u ranks", (long long)name->attempt, name->job,
            name->world_size);
    return true;
}
