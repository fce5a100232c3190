/* job_nodes.c -- see job_nodes.h.
 *
 * Between a connection and the rendezvous: a session is a node from its welcome until it ends, and as long
 * as it is one it stands among the hub's agents, whom peer_lookup.c asks. */
#include "hub/job_nodes.h"

#include "hub/job_events.h"
#include "job/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>

enum { STOOD_LONG_MS = 1000, JUST_NOW_MS = 1000 };

bool job_node_room(struct session *s)
{
    if (s->as_node == NULL && (s->as_node = calloc(1, sizeof(*s->as_node))) != NULL)
        s->as_node->session = s;
    return s->as_node != NULL;
}

/* Counted once, however often it joins on the same connection; moved to the end of the line of agents. */
void job_node_joined(struct session *s)
{
    const struct slice address = session_address(s);
    if (s->is_node)
        return;
    s->job->hub->n_nodes++;
    s->is_node = true;
    s->as_node->joined_ms = s->job->hub->now_ms;
    s->as_node->by_address = (struct table_node){ .key = address.data,
                                                  .key_len = (uint32_t)address.len,
                                                  .hash = table_hash(address) };
    table_put(&s->job->hub->agents, &s->as_node->by_address);
}

/* With every byte and not only with beats: a node that talks is alive. */
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
    table_remove(&s->job->hub->agents, &s->as_node->by_address);
}

/* A node that closes its connection just when this store goes on has given it up meanwhile, and is not to blame. */
static bool just_stood_still(const struct hub *hub)
{
    return hub->stood_ms >= STOOD_LONG_MS && hub->now_ms - hub->woke_ms <= JUST_NOW_MS;
}

/* The nodes that wait should hear of it soon: it is one more that is missing. */
void job_node_gone(struct session *s, const char *how)
{
    char words[256];
    struct hub *hub;
    if (!s->is_node)
        return;
    hub = s->job->hub;
    job_node_ends(s);
    snprintf(words, sizeof(words), "%s", how);
    if (just_stood_still(hub))
        snprintf(words, sizeof(words),
                 "%.120s, after the store itself had stood still for %.3g s: frozen, or its machine was", how,
                 (double)hub->stood_ms / 1000);
    rdzv_lost(s->job->rdzv, s->id, words, hub->now_ms);
    job_watch_hurry(s->job);
}

void job_pardon(struct job *job)
{
    if (job->rdzv != NULL)
        rdzv_pardon(job->rdzv, job->hub->now_ms);
}
