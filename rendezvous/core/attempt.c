/* attempt.c -- a job or an attempt of it begins.
 *
 * A key space belongs to one attempt. When the next one begins the launcher has made sure that the old
 * workers are dead, so what still looks like one of them is let go: identified workers are closed at
 * once, plain c10d connections at their next request (a silent one may be the callback connection of
 * torch 1.13, whose owner would abort when it is closed under it). Agents and operators stay. */
#include "core/session.h"

static bool is_operator(const struct session *s)
{
    return s->role == ROLE_AGENT || s->role == ROLE_CTL;
}

/* Its wait is over already (begin_new_era); what it is told depends on who it is. */
static void let_go(struct hub *hub, struct session *s)
{
    s->waits_in = NULL;
    if (is_operator(s))
        s->era = hub->era;
    if (s->role != ROLE_WORKER)
        return;
    session_drop(hub, s, "it belongs to an earlier attempt, a new one begins");
}

/* All waits are ended at once and silently, before any session is touched. */
static void begin_new_era(struct hub *hub)
{
    hub->era++;
    store_clear(hub->store);
    barriers_clear(&hub->barriers);
}

/* The successor is fetched before a session may be freed. */
static void let_everybody_go(struct hub *hub)
{
    struct table_node *node = table_next(&hub->sessions, NULL);
    for (struct table_node *next; node != NULL; node = next) {
        next = table_next(&hub->sessions, node);
        let_go(hub, TABLE_ENTRY(node, struct session, node));
    }
}

/* The new members come last: until then the sessions of the old ones are attached to the old array. The
 * first attempt keeps what is there: connections and keys that came before any job was declared belong to
 * it. */
bool attempt_begin(struct hub *hub, const struct job_name *name, bool by_agent)
{
    bool is_first = !hub->members.known;
    struct members next = { .quota = &hub->quota };
    if (!members_begin(&next, name, by_agent))
        return false;
    if (!is_first) {
        begin_new_era(hub);
        let_everybody_go(hub);
    }
    members_free(&hub->members);
    hub->members = next;
    hub_log(hub, "attempt %lld of job '%s' begins, %u ranks", (long long)name->attempt, name->job,
            name->world_size);
    return true;
}
