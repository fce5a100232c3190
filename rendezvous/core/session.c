/* session.c -- the life of a session: made when a connection is accepted, tied to what it waits for and to
 * the rank it speaks for, freed in one place.
 *
 * A session is known in up to five places: the table by id, the line of unfinished requests (`midway`), the
 * store's waits, a barrier's seat, its rank's list. Freeing it takes it out of all of them, so nobody else
 * has to ask whether a session that it holds still lives. Who calls these is above: hub.c for connections
 * that come and go, the handlers for waits and ranks. */
#include "core/session.h"

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

/* --- what it waits for ---------------------------------------------------------------------------------- */

void session_begin_wait(struct hub *hub, struct session *s, const struct op *op)
{
    s->waits_in = op;
    s->waits_since_ms = hub->now_ms;
}

/* Only one of the two is ever pending, and both are free to leave when nothing is. */
void session_leave_wait(struct hub *hub, struct session *s)
{
    if (s->waits_in == NULL)
        return;
    s->waits_in = NULL;
    store_leave(hub->store, &s->waiter);
    barriers_leave(&hub->barriers, &s->seat);
}

/* --- the rank it speaks for ----------------------------------------------------------------------------- */

void session_attach(struct hub *hub, struct session *s, uint32_t rank)
{
    struct member *member = members_at(&hub->members, rank);
    s->role = ROLE_WORKER;
    s->rank = rank;
    list_insert(&member->sessions, &s->by_rank);
    member->met = true;
    hub->members.connected++;
}

/* When it was last heard outlives the connection. */
void session_detach(struct hub *hub, struct session *s)
{
    if (list_is_empty(&s->by_rank))
        return;
    struct member *member = members_at(&hub->members, s->rank);
    list_remove(&s->by_rank);
    if (s->heard_ms > member->heard_ms)
        member->heard_ms = s->heard_ms;
    hub->members.connected--;
}

/* --- made and freed ------------------------------------------------------------------------------------- */

/* Nothing is known of a connection but where it comes from; the attempt that runs now is the one it
 * belongs to. */
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
    s->node =
        (struct table_node){ .key = &s->id, .key_len = sizeof(s->id), .hash = table_hash(id_key(&conn)) };
    s->peer = copy;
    s->heard_ms = hub->now_ms;
    wire_init(&s->wire, hub->limits.dialect_b);
    list_init(&s->midway);
    list_init(&s->by_rank);
    list_init(&s->seat.node);
    s->era = hub->era;
    table_put(&hub->sessions, &s->node);
    return true;
}

/* The one place that frees a session; whoever else knows of it is told here. */
void session_free(struct hub *hub, struct session *s)
{
    session_leave_wait(hub, s);
    store_acted(hub->store, &s->waiter);
    session_detach(hub, s);
    list_remove(&s->midway);
    quota_give(&hub->quota, s->in.cap);
    buf_free(&s->in);
    table_remove(&hub->sessions, &s->node);
    free(s->peer);
    free(s);
}

/* Forgotten first, closed after: the shell may reuse or free its side in the callback. */
void session_drop(struct hub *hub, struct session *s, const char *why)
{
    conn_id conn = s->id;
    hub->closed_by_us++;
    session_free(hub, s);
    hub->sink.close(hub->sink.user, conn, why);
}
