/* job_nodes.c -- see job_nodes.h.
 *
 * Between a connection and the rendezvous: a session is a node from its welcome until it ends, and as long
 * as it is one it stands among the hub's agents, whom vouch.c asks. */
#include "core/job_nodes.h"

#include "core/job_events.h"
#include "core/rdzv.h"

void job_node_joined(struct session *s)
{
    s->job->hub->n_nodes += !s->is_node;
    s->is_node = true;
    list_remove(&s->in_agents);
    list_insert(&s->job->hub->agents, &s->in_agents);
}

void job_node_heard(struct session *s)
{
    if (s->is_node)
        rdzv_heard(s->job->rdzv, s->id, s->job->hub->now_ms);
}

/* The events go to another node from here on. */
void job_node_ends(struct session *s)
{
    job_events_leave(s->job, s);
    s->is_node = false;
    s->job->hub->n_nodes--;
    list_remove(&s->in_agents);
}

/* The nodes that wait should hear of it soon: it is one more that is missing. */
void job_node_gone(struct session *s, const char *how)
{
    if (!s->is_node)
        return;
    job_node_ends(s);
    rdzv_lost(s->job->rdzv, s->id, how, s->job->hub->now_ms);
    job_watch_hurry(s->job);
}

/* As if each had just been heard: their beats lie unread in our sockets. */
void job_pardon(struct job *job)
{
    for (uint64_t node = 0; job->rdzv != NULL && (node = rdzv_next_node(job->rdzv, node)) != 0;)
        rdzv_heard(job->rdzv, node, job->hub->now_ms);
}
