/* session.c -- a session: made when a connection is accepted, found by its id, tied to what it waits for and to the rank it
 * speaks for. Who calls these is above: hub.c for connections that come and go, the handlers for waits and ranks. How a
 * session leaves its job, and ends, is in session_job.c. */
#include "hub/session.h"
#include "hub/job_rdzv.h"

#include <stdio.h>
#include <stdlib.h>

/* --- by id ---------------------------------------------------------------------------------------------- */

/* The id's own bytes are the key, so one kind of table serves ids, keys and names. */
static struct slice id_key(const conn_id *id)
{
    return slice_of(id, sizeof(*id));
}

struct session *session_find(const struct hub *hub, conn_id conn)
{
    struct table_node *node = table_find(&hub->sessions, id_key(&conn), table_hash(id_key(&conn)));
    return node ? TABLE_ENTRY(node, struct session, node) : NULL;
}

struct slice session_address(const struct session *s)
{
    const char *colon = strrchr(s->peer, ':');
    return slice_of(s->peer, colon != NULL ? (size_t)(colon - s->peer) : strlen(s->peer));
}

/* --- what it waits for ---------------------------------------------------------------------------------- */

void session_begin_wait(struct hub *hub, struct session *s, const struct op *op)
{
    s->waits_in = (uint8_t)(1 + op->id);
    s->waits_since_ms = hub->now_ms;
}

/* Only one of the two is ever pending, and both are free to leave when nothing is. */
void session_leave_wait(struct session *s)
{
    if (s->waits_in == 0)
        return;
    s->waits_in = 0;
    if (s->torch != NULL && s->torch->waits)
        s->torch->left_ms = s->job->hub->now_ms;
    store_leave(s->job->store, &s->waiter);
    barriers_leave(&s->job->barriers, &s->seat);
}

/* --- the rank it speaks for ----------------------------------------------------------------------------- */

void session_attach(struct session *s, uint32_t rank)
{
    struct member *member = members_at(&s->job->members, rank);
    s->rank = rank;
    list_insert(&member->sessions, &s->by_rank);
    member->met = true;
    s->job->members.connected++;
}

/* When it was last heard outlives the connection. */
void session_detach(struct session *s)
{
    if (list_is_empty(&s->by_rank))
        return;
    struct member *member = members_at(&s->job->members, s->rank);
    list_remove(&s->by_rank);
    if (s->heard_ms > member->heard_ms)
        member->heard_ms = s->heard_ms;
    s->job->members.connected--;
}

void session_is_process(struct session *s, int pid, bool by_agent)
{
    if (by_agent || s->pid == 0)
        s->pid = pid;
}

/* --- made ----------------------------------------------------------------------------------------------- */

/* Nothing is known of a connection but where it comes from, and when: what began later is not its attempt. */
bool session_new(struct hub *hub, conn_id conn, const char *peer)
{
    struct session *s = calloc(1, sizeof(*s));
    char *copy = strdup(peer);
    if (s == NULL || copy == NULL) {
        free(s);
        free(copy);
        return false;
    }
    s->id = conn;
    s->uid = SESSION_NO_UID;
    s->node =
        (struct table_node){ .key = &s->id, .key_len = sizeof(s->id), .hash = table_hash(id_key(&conn)) };
    s->peer = copy;
    s->heard_ms = hub->now_ms;
    wire_init(&s->wire, hub->limits.dialect_b);
    list_init(&s->midway);
    list_init(&s->by_rank);
    list_init(&s->in_job);
    list_init(&s->seat.node);
    s->era = hub->era;
    table_put(&hub->sessions, &s->node);
    return true;
}

/* Those that are connected and have said nothing belong to it as long as they are silent: they are counted when
 * somebody asks, into a copy. NULL when memory is short; yours (free). */
struct rejects *hub_all_rejects(struct hub *hub)
{
    struct rejects *all = malloc(sizeof(*all));
    if (all == NULL)
        return NULL;
    *all = hub->rejects;
    EACH_NODE(node, &hub->sessions)
    {
        const struct session *s = TABLE_ENTRY(node, struct session, node);
        if (!s->has_spoken && s->n_first == 0)
            rejects_note(all,
                         &(struct reject_facts){ .peer = s->peer, .why = "connected, and has said nothing" },
                         s->heard_ms);
    }
    return all;
}
