/* hub.c -- see hub.h. This file handles new and closed connections, received bytes and timeouts; session.h lists the
 * other files of the hub. The hub reads no clock. It uses hub->now_ms, which the functions of hub.h set, so the time
 * does not change during a call. */
#include "hub/hub.h"

#include "base/clock.h"
#include "base/limits.h"
#include "diagnosis/text.h"
#include "hub/monitor.h"
#include "hub/session.h"
#include "job/rendezvous.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* --- jobs ------------------------------------------------------------------------------------------------- */

/* Drop a job. If this is the only job of the hub, empty the job instead, because a hub always has a job. */
static void forget(struct job *job)
{
    struct hub *hub = job->hub;
    words time;
    hub_log(hub, "job '%s' and its keys are deleted: no client was connected for %s", job->name,
            duration(time, hub->now_ms - job->left_ms));
    if (hub->jobs.count > 1) {
        job_free(job);
        return;
    }
    attempt_end(job);
    rdzv_free(job->rdzv);
    job->rdzv = NULL;
    notices_free(&job->notices);
    events_free(&job->events);
    refusals_forget(&hub->refusals, job->name);
    job_set_source(job, NULL);
    job_rename(job, "");
}

/* Do all work that is due now for a job, in this order:
 *
 *     stacks_tick() passes samples to monitor_run()
 *     monitor_run() may ask for samples, and stacks_ask() sends this request
 *     rdzv_tick() may end the job, so it follows monitor_run(), which sends the last report
 *     forget() may free the job, so it is last */
static void tick(struct job *job)
{
    barriers_tick(&job->barriers, job->hub->now_ms);
    stacks_tick(job);
    monitor_run(job);
    stacks_ask(job);
    if (job->rdzv != NULL && rdzv_deadline(job->rdzv) <= job->hub->now_ms)
        rdzv_tick(job->rdzv, job->hub->now_ms);
    if (job_forget_at(job) <= job->hub->now_ms)
        forget(job);
}

/* Call tick() for all jobs, and find the next deadline. */
static void jobs_tick(struct hub *hub)
{
    struct table_node *node = table_next(&hub->jobs, NULL);
    for (struct table_node *next; node != NULL; node = next) {
        /* Find the next job before tick(), which may free this job. */
        next = table_next(&hub->jobs, node);
        tick(TABLE_ENTRY(node, struct job, node));
    }
    hub->jobs_deadline_ms = UINT64_MAX;
    EACH_NODE(at, &hub->jobs)
    job_touch(TABLE_ENTRY(at, struct job, node));
}

/* Detect that this process or its machine was suspended: the present time is much later than the next deadline. Then
 * restart each node's timeout, because no heartbeat was read meanwhile. */
static void detect_suspension(struct hub *hub)
{
    if (hub->jobs_deadline_ms == UINT64_MAX || hub->now_ms <= hub->jobs_deadline_ms + STOOD_STILL_MS)
        return;
    hub->stood_ms = hub->now_ms - hub->jobs_deadline_ms;
    hub->woke_ms = hub->jobs_deadline_ms = hub->now_ms;
    EACH_NODE(node, &hub->jobs)
    job_excuse_silence(TABLE_ENTRY(node, struct job, node));
    LIST_EACH(at, &hub->cut)
    LIST_ENTRY(at, struct session_node, cut)->cut_until_ms += hub->stood_ms;
}

/* --- connections ---------------------------------------------------------------------------------------- */

bool hub_connect(struct hub *hub, conn_id conn, const char *peer, uint64_t now_ms)
{
    hub->now_ms = now_ms;
    return session_new(hub, conn, peer);
}

/* Detect a suspension of this process first. After a suspension many agents close their connections, and the report of
 * each lost agent must name the suspension. */
void hub_disconnect(struct hub *hub, conn_id conn, const char *why, uint64_t now_ms)
{
    struct session *s = session_find(hub, conn);
    hub->now_ms = now_ms;
    detect_suspension(hub);
    if (s == NULL)
        return;
    if (!s->has_spoken && !session_is_unused(hub, s))
        session_note_reject(hub, s, why);
    session_free(hub, s, why);
}

void hub_cut(struct hub *hub, conn_id conn, const char *why, uint64_t now_ms)
{
    struct session *s = session_find(hub, conn);
    hub->now_ms = now_ms;
    if (s == NULL || !session_cut(s, why))
        hub_disconnect(hub, conn, why, now_ms);
}

/* Keep the first bytes of a connection, for session_note_reject. */
static void note_first(struct session *s, struct slice bytes)
{
    size_t room = sizeof(s->first) - s->n_first, n = bytes.len < room ? bytes.len : room;
    if (n > 0)
        memcpy(s->first + s->n_first, bytes.data, n);
    s->n_first = (uint8_t)(s->n_first + n);
}

/* Process the bytes from a session, and then send all its answers together. Until the answers are sent, no code may
 * free this session. If the rendezvous drops the session meanwhile, only hub->drop_reason is set. This function then
 * frees the session at the end. */
static void process_bytes(struct hub *hub, struct session *s, struct slice bytes)
{
    hub->processing = s;
    bool ok = requests_process(hub, s, bytes);
    if (hub->drop_reason.msg[0] != '\0') {
        hub->err = hub->drop_reason;
        hub->drop_reason.msg[0] = '\0';
        ok = false;
    }
    if (hub->out.len > 0)
        hub_flush(hub);
    hub->processing = NULL;
    if (s->job != NULL)
        job_touch(s->job);
    if (!ok)
        session_reject(hub, s, hub->err.msg[0] ? hub->err.msg : "out of memory");
}

/* Process the held bytes of sessions whose job is now known. Handling these bytes may release further sessions. */
static void process_released(struct hub *hub)
{
    while (!list_is_empty(&hub->peers.released)) {
        struct session *s = LIST_ENTRY(hub->peers.released.next, struct session, midway);
        list_remove(&s->midway);
        process_bytes(hub, s, slice_of("", 0));
    }
}

void hub_set_uid(struct hub *hub, conn_id conn, uint32_t uid)
{
    struct session *s = session_find(hub, conn);
    if (s != NULL)
        s->uid = uid;
}

void hub_set_foreign(struct hub *hub, conn_id conn)
{
    struct session *s = session_find(hub, conn);
    if (s != NULL && hub->limits.guarded)
        gate_meet(hub, s);
}

void hub_expect_tls(struct hub *hub, conn_id conn)
{
    struct session *s = session_find(hub, conn);
    if (s != NULL)
        s->awaits_tls = true;
}

/* Record the secret that the client has proved in TLS. The secret shows the client's tenant. Let gate.c check a
 * stranger again, because gate.c can now ask the tenant's agents at the client's address. */
void hub_set_secret(struct hub *hub, conn_id conn, const struct secret *secret, const char *job,
                    uint64_t now_ms)
{
    struct session *s = session_find(hub, conn);
    if (s == NULL)
        return;
    hub->now_ms = now_ms;
    s->tls_job = strdup(job);
    if (s->tls_job == NULL) {
        session_reject(hub, s, "out of memory");
        return;
    }
    s->awaits_tls = false;
    s->tenant = secret;
    if (s->stranger_state != STRANGER_NONE)
        gate_meet(hub, s);
}

void hub_reject(struct hub *hub, conn_id conn, struct slice bytes, bool is_ddprun, const char *why,
                uint64_t now_ms)
{
    struct session *s = session_find(hub, conn);
    if (s == NULL)
        return;
    hub->now_ms = now_ms;
    s->is_ddprun = s->is_ddprun || is_ddprun;
    if (!s->has_spoken)
        note_first(s, bytes);
    session_reject(hub, s, why);
}

bool hub_has_request(struct hub *hub, conn_id conn)
{
    const struct session *s = session_find(hub, conn);
    return s != NULL && s->has_spoken;
}

bool hub_note_refused(struct hub *hub, const char *peer, const char *why, uint64_t now_ms)
{
    return rejects_note(&hub->rejects, &(struct reject_facts){ .peer = peer, .why = why, .is_user = true },
                        now_ms);
}

/* Ignore the bytes of an unknown id: the server had read these bytes before the hub closed the connection. */
void hub_receive(struct hub *hub, conn_id conn, struct slice bytes, uint64_t now_ms)
{
    struct session *s = session_find(hub, conn);
    if (s == NULL)
        return;
    hub->now_ms = s->last_received_ms = now_ms;
    if (s->is_node)
        rdzv_received(s->job->rdzv, s->id, now_ms); /* any byte counts as a heartbeat */
    if (!s->has_spoken)
        note_first(s, bytes);
    process_bytes(hub, s, bytes);
    if (!list_is_empty(&hub->peers.released))
        process_released(hub);
}

void hub_resume(struct hub *hub, conn_id conn, uint64_t now_ms)
{
    struct session *s = session_find(hub, conn);
    if (s == NULL || !s->is_paused)
        return;
    hub->now_ms = now_ms;
    s->is_paused = false;
    process_bytes(hub, s, slice_of("", 0));
    process_released(hub);
}

/* --- time ----------------------------------------------------------------------------------------------- */

/* Return when the first request of hub->midway[spoken] times out. `spoken` is 0 for the first request of a session,
 * and 1 for later requests. Each list begins with its oldest request. */
static uint64_t midway_deadline(const struct hub *hub, int spoken)
{
    const struct list *line = &hub->midway[spoken];
    if (list_is_empty(line))
        return UINT64_MAX;
    uint32_t limit = spoken ? hub->limits.command_ms : hub->limits.first_command_ms;
    return LIST_ENTRY(line->next, struct session, midway)->midway_since_ms + limit;
}

uint64_t hub_deadline(const struct hub *hub)
{
    uint64_t unfinished = earlier_of(midway_deadline(hub, 0), midway_deadline(hub, 1));
    uint64_t strangers = earlier_of(peer_deadline(hub), gate_deadline(hub));
    return earlier_of(earlier_of(unfinished, strangers),
                      earlier_of(session_cut_deadline(hub), hub->jobs_deadline_ms));
}

/* Drop the first session of hub->midway[spoken], because its request has been unfinished for too long. First requests
 * (`spoken` = 0) have a shorter limit, because most clients without a complete first request are scanners. */
static void drop_oldest(struct hub *hub, int spoken)
{
    char why[128];
    words time;
    struct session *s = LIST_ENTRY(hub->midway[spoken].next, struct session, midway);
    snprintf(why, sizeof(why), "the %srequest is still incomplete after %s (%zu byte%s received)",
             spoken ? "" : "first ", duration(time, hub->now_ms - s->midway_since_ms), s->in.len,
             s->in.len == 1 ? "" : "s");
    session_reject(hub, s, why);
}

void hub_tick(struct hub *hub, uint64_t now_ms)
{
    hub->now_ms = now_ms;
    detect_suspension(hub);
    for (int spoken = 0; spoken < 2; spoken++)
        while (midway_deadline(hub, spoken) <= now_ms)
            drop_oldest(hub, spoken);
    session_cut_tick(hub);
    if (hub->jobs_deadline_ms <= now_ms)
        jobs_tick(hub);
    peer_tick(hub);
    gate_tick(hub);
    process_released(hub);
}

void hub_count(struct hub *hub, enum hub_counter counter)
{
    hub->counter[counter]++;
}

uint32_t hub_nodes(const struct hub *hub)
{
    return hub->n_nodes;
}

void hub_set_counter(struct hub *hub, enum hub_counter counter, uint64_t value)
{
    hub->counter[counter] = value;
}

/* --- the hub itself ------------------------------------------------------------------------------------- */

struct hub *hub_new(const struct hub_limits *limits, const struct hub_sink *sink)
{
    struct hub *hub = calloc(1, sizeof(*hub));
    if (hub == NULL)
        return NULL;
    hub->limits = *limits;
    hub->sink = *sink;
    hub->quota.max = limits->max_bytes;
    hub->strangers.whole = &hub->quota;
    list_init(&hub->midway[0]);
    list_init(&hub->midway[1]);
    list_init(&hub->cut);
    list_init(&hub->peers.held);
    list_init(&hub->peers.claimed);
    list_init(&hub->peers.released);
    for (int i = 0; i < STRANGER_STATES; i++)
        list_init(&hub->gate[i].line);
    hub->jobs_deadline_ms = UINT64_MAX;
    if (table_init(&hub->sessions) && table_init(&hub->agents) && table_init(&hub->jobs) &&
        table_init(&hub->sources) && job_new(hub) != NULL)
        return hub;
    hub_free(hub);
    return NULL;
}

/* Free the hub. hub_new() also calls this for a partly built hub. */
void hub_free(struct hub *hub)
{
    if (hub == NULL)
        return;
    /* Clear the stores first, to end all waits for keys. No key can then wake a session that is already freed. */
    EACH_NODE(node, &hub->jobs)
    store_clear(TABLE_ENTRY(node, struct job, node)->store);
    struct table_node *node = table_next(&hub->sessions, NULL);
    for (struct table_node *next; node != NULL; node = next) {
        /* Clear is_node, so that session_free() reports no lost node to the rendezvous. */
        TABLE_ENTRY(node, struct session, node)->is_node = false;
        next = table_next(&hub->sessions, node);
        session_free(hub, TABLE_ENTRY(node, struct session, node), "the store ends");
    }
    while ((node = table_next(&hub->jobs, NULL)) != NULL)
        job_free(TABLE_ENTRY(node, struct job, node));
    assert(hub->quota.used == 0 && hub->sources.count == 0); /* all charges were returned to the quota */
    table_free(&hub->sessions);
    table_free(&hub->agents);
    table_free(&hub->jobs);
    table_free(&hub->sources);
    buf_free(&hub->out);
    refusals_free(&hub->refusals);
    free(hub);
}
