/* session.c -- the life of a session: made when a connection is accepted, tied to what it waits for and to
 * the rank it speaks for, freed in one place.
 *
 * A session is known in up to six places: the table by id, the line of unfinished requests (`midway`), its job's
 * list, the store's waits, a barrier's seat, its rank's list. Freeing it takes it out of all of them, so nobody else
 * has to ask whether a session that it holds still lives. Who calls these is above: hub.c for connections
 * that come and go, the handlers for waits and ranks. */
#include "core/arrivals.h"
#include "core/job_rdzv.h"

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

/* --- what it waits for ---------------------------------------------------------------------------------- */

void session_begin_wait(struct hub *hub, struct session *s, const struct op *op)
{
    s->waits_in = op;
    s->waits_since_ms = hub->now_ms;
}

/* Only one of the two is ever pending, and both are free to leave when nothing is. */
void session_leave_wait(struct session *s)
{
    if (s->waits_in == NULL)
        return;
    s->waits_in = NULL;
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

/* --- the job it belongs to ------------------------------------------------------------------------------ */

static void leave_job(struct session *s, const char *how)
{
    struct job *job = s->job;
    if (job == NULL)
        return;
    arrivals_leave(s);
    job_node_gone(s, how);
    session_leave_wait(s);
    store_acted(job->store, &s->waiter);
    session_detach(s);
    list_remove(&s->in_job);
    s->job = NULL;
    job->left_ms = job->hub->now_ms;
    job_touch(job);
}

void session_enter(struct session *s, struct job *job)
{
    if (s->job == job)
        return;
    leave_job(s, "it joined another job");
    s->job = job;
    list_insert(&job->sessions, &s->in_job);
}

/* --- made and freed ------------------------------------------------------------------------------------- */

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
    s->node =
        (struct table_node){ .key = &s->id, .key_len = sizeof(s->id), .hash = table_hash(id_key(&conn)) };
    s->peer = copy;
    s->heard_ms = hub->now_ms;
    wire_init(&s->wire, hub->limits.dialect_b);
    list_init(&s->midway);
    list_init(&s->by_rank);
    list_init(&s->in_job);
    list_init(&s->in_agents);
    list_init(&s->seat.node);
    list_init(&s->arrivals);
    s->era = hub->era;
    table_put(&hub->sessions, &s->node);
    return true;
}

/* The one place that frees a session; whoever else knows of it is told here. */
void session_free(struct hub *hub, struct session *s, const char *how)
{
    leave_job(s, how);
    list_remove(&s->midway);
    quota_give(&hub->quota, s->in.cap);
    buf_free(&s->in);
    table_remove(&hub->sessions, &s->node);
    free(s->peer);
    free(s);
}

/* Forgotten first, closed after: the shell may reuse or free its side in the callback. */
static void drop(struct hub *hub, struct session *s, const char *why, bool is_news)
{
    conn_id conn = s->id;
    hub->closed_by_us++;
    session_free(hub, s, why);
    hub->sink.close(hub->sink.user, conn, why, is_news);
}

void session_drop(struct hub *hub, struct session *s, const char *why)
{
    drop(hub, s, why, true);
}

bool session_note_reject(struct hub *hub, const struct session *s, const char *why)
{
    struct reject_facts facts = { .peer = s->peer,
                                  .job = hub->asked_job[0] ? hub->asked_job : NULL,
                                  .why = why,
                                  .first = slice_of(s->first, s->n_first),
                                  .is_ours = s->role != ROLE_PLAIN || hub->asked_job[0] };
    bool is_news = rejects_note(&hub->rejects, &facts, hub->now_ms);
    hub->asked_job[0] = '\0';
    return is_news;
}

/* What a stranger speaks is said where the bytes tell it: somebody will look for the browser or the proxy. */
void session_reject(struct hub *hub, struct session *s, const char *why)
{
    char words[512];
    enum reject_kind kind = reject_kind_of(slice_of(s->first, s->n_first));
    bool is_stranger = !s->has_spoken && kind >= REJECT_HTTP && kind <= REJECT_SSH;
    bool is_news = session_note_reject(hub, s, why);
    snprintf(words, sizeof(words), "%s (it speaks %s)", why, reject_kind_words(kind));
    drop(hub, s, is_stranger ? words : why, is_news);
}
