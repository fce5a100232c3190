/* events.c -- the events of a job, for an event log; see job.h. Only one node, the receiver, gets the text of each
 * event, because logs on all nodes would contain the same lines. Findings are rare, so the hub sends them to all nodes
 * that have requested events, and the log of each node shows why the job hung. */
#include "hub/job.h"

#include "base/text.h"
#include "hub/session.h"

enum {
    RECENT_BYTES = 64 << 10,           /* maximum size of the events kept for the next receiver, in bytes */
    PER_SECOND = 5000,                 /* maximum number of barrier events per second, of all jobs together */
    ARRIVALS = 1024,                   /* maximum number of arrivals in a barrier event */
    MEMBERS_BYTES = WIRE_MAX_JSON / 2, /* maximum size of the list of nodes in an event, in bytes */
    MISSING = 64,                      /* maximum number of missing ranks in a barrier event */
    NAME_BYTES = 200                   /* maximum length of a barrier's name, in bytes */
};

/* --- receivers -------------------------------------------------------------------------------------------- */

/* Send an event to an agent. Add the text without parsing it, because ddprun itself has formatted this JSON. */
static void push(struct hub *hub, struct session *s, const char *text)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "event");
    cJSON_AddRawToObject(o, "event", text);
    hub_push(hub, s, o);
    cJSON_Delete(o);
}

/* Make `s` the receiver, the node that receives the events of the job and writes the event log. Send the kept events to
 * `s`, because the previous receiver may not have written them. The logs of both receivers may then contain the same
 * event, with equal "instance" and "n". */
static void replace_receiver(struct job *job, struct session *s)
{
    const struct buf *recent = &job->events.recent;
    job->events.receiver = s->id;
    for (size_t at = 0; at < recent->len; at += strlen((const char *)recent->data + at) + 1)
        push(job->hub, s, (const char *)recent->data + at);
}

/* Return the receiver. If the receiver has left, make another node that has requested events the receiver. If no node
 * has requested events, return NULL and clear `asked`, so that later events cause no search. */
static struct session *find_receiver(struct job *job)
{
    struct session *s = session_find(job->hub, job->events.receiver);
    if (s != NULL)
        return s;
    LIST_EACH(node, &job->sessions)
    {
        s = LIST_ENTRY(node, struct session, in_job);
        if (s->takes_events && s->is_node) {
            replace_receiver(job, s);
            return s;
        }
    }
    job->events.asked = false;
    return NULL;
}

void events_ask(struct job *job, struct session *s)
{
    s->takes_events = true;
    if (!job->events.asked || session_find(job->hub, job->events.receiver) == NULL)
        replace_receiver(job, s);
    job->events.asked = true;
}

void events_leave(struct job *job, struct session *s)
{
    s->takes_events = false;
    if (job->events.receiver == s->id)
        job->events.receiver = 0;
}

void events_free(struct job_events *events)
{
    buf_free(&events->recent);
    cJSON_free(events->members);
    *events = (struct job_events){ 0 };
}

/* --- messages --------------------------------------------------------------------------------------------- */

/* Return true if an agent or the server's own log gets the events. */
static bool is_wanted(const struct job *job)
{
    return job->events.asked || job->hub->sink.event != NULL;
}

/* Keep an event in `recent` for the next receiver. If `recent` is full, drop the oldest events. Do not keep an event
 * larger than RECENT_BYTES. */
static void remember(struct job_events *events, const char *text)
{
    const size_t len = strlen(text) + 1;
    struct buf *recent = &events->recent;
    if (len > RECENT_BYTES)
        return;
    while (recent->len > 0 && recent->len + len > RECENT_BYTES)
        buf_consume(recent, strlen((const char *)recent->data) + 1);
    buf_append(recent, text, len);
}

/* Send a finding to all nodes that have requested events. Keep the finding for a later receiver only if no node got it.
 * The next receiver is usually one of these nodes, and would otherwise get the finding twice. */
static void push_to_all(struct job *job, const char *text)
{
    uint32_t receivers = 0;
    (void)find_receiver(job); /* sends the kept events to a new receiver, before this finding */
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->takes_events && s->is_node) {
            push(job->hub, s, text);
            receivers++;
        }
    }
    if (receivers == 0)
        remember(&job->events, text);
}

/* Send an event to the receiver, and keep it for the next receiver. */
static void push_to_receiver(struct job *job, const char *text)
{
    /* Find the receiver before remember() keeps this event. A new receiver gets all kept events at once, and would
     * otherwise get this event twice. */
    struct session *receiver = find_receiver(job);
    if (receiver != NULL)
        push(job->hub, receiver, text);
    if (job->events.asked)
        remember(&job->events, text);
}

/* Send an event to the server's log. If an agent has requested events, also call `send`, which sends the event to one
 * node or to all nodes. Format the event only once. */
static void send_event_to(struct job *job, cJSON *o, void (*send)(struct job *job, const char *text))
{
    struct hub *hub = job->hub;
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (text == NULL)
        return;
    if (hub->sink.event != NULL)
        hub->sink.event(hub->sink.event_user, text);
    if (job->events.asked)
        send(job, text);
    cJSON_free(text);
}

static void send_event(struct job *job, cJSON *o)
{
    send_event_to(job, o, push_to_receiver);
}

/* Return an event with the JSON members that all events of the store have. The number `n` counts the events of all
 * jobs. */
static cJSON *begin_event(struct job *job, enum event_kind kind)
{
    struct hub *hub = job->hub;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "event", event_word(kind));
    cJSON_AddNumberToObject(o, "store_ms", (double)hub->now_ms);
    cJSON_AddStringToObject(o, "job", job->name);
    cJSON_AddStringToObject(o, "instance",
                            job->rdzv != NULL ? rdzv_instance(job->rdzv) : hub->limits.instance);
    cJSON_AddNumberToObject(o, "n", (double)++hub->events.number);
    return o;
}

/* Count an event and return true if it exceeds the limit per second. Without the limit, events of barriers in a
 * tight loop would cost more than the barriers. */
static bool is_too_many(struct job *job)
{
    struct event_limit *l = &job->hub->events;
    const uint64_t second = job->hub->now_ms / 1000;
    if (second != l->second) {
        const uint32_t lost = l->lost;
        l->second = second;
        l->in_second = l->lost = 0;
        if (lost > 0) {
            cJSON *o = begin_event(job, EVENT_EVENTS_LOST);
            cJSON_AddNumberToObject(o, "count", lost);
            send_event(job, o);
        }
    }
    const bool is_over = ++l->in_second > PER_SECOND;
    l->lost += is_over;
    return is_over;
}

/* --- the rendezvous --------------------------------------------------------------------------------------- */

/* Format the list of the round's nodes. Each node is an array of four numbers: the id of the node, its node rank, its
 * first rank, and its number of workers. */
void events_members(struct job *job, const struct rdzv_round *world)
{
    struct buf rows = { 0 };
    cJSON_free(job->events.members);
    job->events.members = NULL;
    if (!is_wanted(job))
        return;
    bool ok = buf_append(&rows, "[", 1);
    for (uint32_t i = 0; ok && i < world->nnodes; i++) {
        const struct rdzv_row *row = &world->rows[i];
        ok = buf_printf(&rows, "%s[%llu,%u,%u,%u]", i > 0 ? "," : "", (unsigned long long)row->node,
                        row->node_rank, row->first_rank, row->nproc);
    }
    ok = ok && buf_append(&rows, "]", 2) && rows.len <= MEMBERS_BYTES;
    if (ok && (job->events.members = cJSON_malloc(rows.len)) != NULL)
        memcpy(job->events.members, rows.data, rows.len);
    buf_free(&rows);
}

/* Add the number of nodes and the number of ranks of the round. Also add the list of nodes that events_members() has
 * stored in `job`, then free this list. */
static void add_world(cJSON *o, struct job *job, const struct rdzv_record *record)
{
    cJSON_AddNumberToObject(o, "nnodes", record->nnodes);
    cJSON_AddNumberToObject(o, "world_size", record->world_size);
    if (job->events.members != NULL)
        cJSON_AddRawToObject(o, "members", job->events.members);
    cJSON_free(job->events.members);
    job->events.members = NULL;
}

/* Add the host and the pid of a node. `ddpctl timeline` uses them to find the log that this node has written. */
static void add_node(cJSON *o, const struct rdzv_record *record)
{
    cJSON_AddNumberToObject(o, "node", (double)record->node);
    if (record->node_rank >= 0)
        cJSON_AddNumberToObject(o, "node_rank", record->node_rank);
    cJSON_AddStringToObject(o, "host", record->host);
    cJSON_AddNumberToObject(o, "pid", record->pid);
}

/* Record an event of the rendezvous. These events are rare, so they have no limit per second. The cast is valid,
 * because each record kind has the same number as its event kind (base/events.h). */
void events_record(void *user, const struct rdzv_record *record)
{
    struct job *job = user;
    if (!is_wanted(job))
        return;
    cJSON *o = begin_event(job, (enum event_kind)record->kind);
    cJSON_AddNumberToObject(o, "round", record->round);
    if (record->kind == RDZV_RECORD_ROUND)
        add_world(o, job, record);
    if (record->node != 0)
        add_node(o, record);
    cJSON_AddStringToObject(o, "words", record->words);
    send_event(job, o);
}

/* --- barriers --------------------------------------------------------------------------------------------- */

static const struct barrier_waiter *waiter_of(const struct list *node)
{
    return LIST_ENTRY(node, struct barrier_waiter, node);
}

/* Return the time at which the rank of `waiter` arrived. */
static uint64_t came_ms(const struct barrier_waiter *waiter)
{
    return TABLE_ENTRY(waiter, struct session, barrier_waiter)->waits_since_ms;
}

/* Return an event of a barrier. If agents run the job, the number of the round is 1 + the number of the attempt.
 * Without agents there are no rounds. */
static cJSON *barrier_event(struct job *job, enum event_kind kind, const struct barrier *barrier)
{
    struct buf name = { 0 };
    cJSON *o = begin_event(job, kind);
    if (job->members.by_agent)
        cJSON_AddNumberToObject(o, "round", (double)job->members.attempt + 1);
    if (text_append(&name, barrier_name(barrier), NAME_BYTES) && buf_append(&name, "", 1))
        cJSON_AddStringToObject(o, "barrier", (const char *)name.data);
    buf_free(&name);
    if (!list_is_empty(&barrier->waiters))
        cJSON_AddNumberToObject(o, "opened_by", waiter_of(barrier->waiters.next)->rank);
    cJSON_AddNumberToObject(o, "needs", barrier->members);
    return o;
}

void events_opened(void *user, const struct barrier *barrier)
{
    struct job *job = user;
    if (is_wanted(job) && !is_too_many(job))
        send_event(job, barrier_event(job, EVENT_BARRIER_OPEN, barrier));
}

/* Add [[RANK, MS], ...]: when each rank arrived, in ms after the first rank. */
static void add_arrivals(cJSON *o, const struct barrier *barrier)
{
    cJSON *arrived = cJSON_AddArrayToObject(o, "arrived");
    uint32_t n = 0;
    LIST_EACH(node, &barrier->waiters)
    {
        const struct barrier_waiter *waiter = waiter_of(node);
        const int row[2] = { (int)waiter->rank, (int)(came_ms(waiter) - barrier->began_ms) };
        if (n++ < ARRIVALS)
            json_append(arrived, cJSON_CreateIntArray(row, 2));
    }
}

/* Add the missing ranks, at most MISSING. */
static void add_missing(cJSON *o, const struct barrier *barrier)
{
    cJSON *missing = cJSON_AddArrayToObject(o, "missing");
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < barrier->world_size && n < MISSING; rank++)
        if (barrier_needs(barrier, rank) && !barrier_has(barrier, rank)) {
            json_append(missing, cJSON_CreateNumber(rank));
            n++;
        }
}

/* Record the end of a barrier. Waiters are in the order of their arrival, so the last waiter is the rank that arrived
 * last. A released barrier has at least one waiter. */
void events_ended(void *user, const struct barrier *barrier, enum barrier_outcome outcome, const char *why)
{
    static const char *const outcomes[] = { [BARRIER_RELEASED] = "released",
                                            [BARRIER_TIMED_OUT] = "timed_out",
                                            [BARRIER_LOST] = "lost",
                                            [BARRIER_CANCELLED] = "cancelled",
                                            [BARRIER_MISUSE] = "misuse" };
    struct job *job = user;
    if (!is_wanted(job) || is_too_many(job))
        return;
    cJSON *o = barrier_event(job, EVENT_BARRIER_END, barrier);
    cJSON_AddNumberToObject(o, "began_ms", (double)barrier->began_ms);
    cJSON_AddStringToObject(o, "outcome", outcomes[outcome]);
    add_arrivals(o, barrier);
    if (outcome == BARRIER_RELEASED) {
        const struct barrier_waiter *last = waiter_of(barrier->waiters.prev);
        cJSON_AddNumberToObject(o, "last", last->rank);
    } else {
        add_missing(o, barrier);
    }
    if (why[0] != '\0')
        cJSON_AddStringToObject(o, "words", why);
    send_event(job, o);
}

/* --- the diagnosis ---------------------------------------------------------------------------------------- */

/* Record a finding without its advice. */
void events_finding(struct job *job, const struct finding *finding)
{
    if (!is_wanted(job))
        return;
    cJSON *o = begin_event(job, EVENT_FINDING);
    cJSON_AddStringToObject(o, "code", finding_code_name(finding->code));
    cJSON_AddStringToObject(o, "subject", finding->subject);
    cJSON_AddStringToObject(o, "words", finding->sentence);
    send_event_to(job, o, push_to_all);
}
