/* job_rdzv.c -- see job_rdzv.h. */
#include "hub/job_rdzv.h"

#include "base/grow_keys.h"
#include "base/progress_key.h"
#include "hub/control_push.h"
#include "store/store.h"
#include "diagnosis/diagnosis.h"
#include "hub/job_events.h"
#include "hub/job_left.h"
#include "hub/job_nodes.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

/* Clients of c10d put the stroke in front. */
#define WAITING_KEY "/" GROW_WAITING_KEY
#define AGREED_KEY  "/" GROW_AGREED_KEY

/* --- what the rendezvous asks for ------------------------------------------------------------------------- */

/* Is there something about its nodes that is worth a line? How they are connected is told once, with the first round. */
static bool is_ordinary(const struct rdzv_round *world)
{
    for (uint32_t i = 0; i < world->nnodes; i++) {
        const struct rdzv_seat *seat = &world->seats[i];
        if (seat->nproc != world->seats[0].nproc ||
            (world->round == 1 && diagnose_is_translated(seat->own, seat->addr)))
            return false;
    }
    return true;
}

/* The ranks' places are told by worker_started, as they come to life. */
static bool begin(void *user, const struct rdzv_round *world)
{
    struct job *job = user;
    struct job_name name = { .job = job->name, .attempt = world->attempt, .world_size = world->world_size };
    char *nodes = control_round_nodes(world);
    if (nodes == NULL || !attempt_begin(job, &name, true)) {
        free(nodes);
        return false;
    }
    free(job->round_nodes);
    job->round_nodes = nodes;
    if (!is_ordinary(world))
        job_watch_round(job);
    job->agreed = 0;
    job_events_members(job, world);
    return true;
}

/* The worker that came furthest counts: PyTorch programs tell one rank's step, ours every rank's. */
static int64_t progress(void *user)
{
    const struct job *job = user;
    const struct entry *at = NULL;
    struct slice key, value, prefix = slice_str("/" PROGRESS_KEY); /* clients of c10d put it in front */
    int64_t best = -1, step;
    while (store_next(job->store, &at, &key, &value))
        if (key.len > prefix.len && slice_equal(slice_of(key.data, prefix.len), prefix) &&
            decimal_parse(value, &step) && step > best)
            best = step;
    return best;
}

/* A full store keeps the old number: workers are asked a little later then. */
static void waiting_nodes(void *user, uint32_t count)
{
    struct job *job = user;
    char text[DECIMAL_MAX];
    job->spares = count;
    store_set(job->store, slice_str(WAITING_KEY), decimal_print(count, text));
}

/* A node that was frozen finds this when it goes on; without it it would only see a connection that ends. */
static void say_farewell(struct hub *hub, struct session *s, const char *why)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "dropped");
    cJSON_AddStringToObject(o, "why", why);
    hub_push(hub, s, o);
    cJSON_Delete(o);
}

/* Not a node any more, so that its end is not told to the rendezvous, which wants it. The one being fed is closed by
 * hub_feed. */
static void drop(void *user, uint64_t node, const char *why)
{
    struct hub *hub = ((struct job *)user)->hub;
    struct session *s = session_find(hub, node);
    if (s == NULL)
        return;
    job_node_ends(s);
    say_farewell(hub, s, why);
    if (s == hub->feeding)
        ddp_fail(&hub->drop_fed, DDP_ERR_TIMEOUT, "%s", why);
    else
        session_drop(hub, s, why);
}

static void log_line_of(void *user, const char *line)
{
    hub_log(((struct job *)user)->hub, "%s", line);
}

/* A verdict is recorded before anybody is told it. */
static void record(void *user, const struct rdzv_record *what)
{
    if (what->kind == RDZV_RECORD_VERDICT)
        job_left_verdict(user);
    job_events_record(user, what);
}

/* --- its life --------------------------------------------------------------------------------------------- */

/* The hub's nonce tells this store from one of yesterday on the same port, the number one life of the job from the
 * next. */
static struct rdzv *make(struct job *job)
{
    struct hub *hub = job->hub;
    char instance[RDZV_TEXT_MAX];
    struct rdzv_env env = { .user = job,
                            .tell = control_push,
                            .begin = begin,
                            .progress = progress,
                            .waiting_nodes = waiting_nodes,
                            .drop = drop,
                            .log = log_line_of,
                            .record = record };
    snprintf(instance, sizeof(instance), "%s-%u", hub->limits.instance, ++hub->lives);
    return rdzv_new(&env, job->quota, job->name, instance);
}

/* Where one job is served, its end is the end: who comes later is told so. Without room for a new one the old one stays, since
 * nodes may still be in it. */
struct rdzv *job_rdzv(struct job *job)
{
    const bool is_over = job->rdzv != NULL && job->hub->limits.many_jobs && rdzv_is_over(job->rdzv);
    if (job->rdzv != NULL && !is_over)
        return job->rdzv;
    if (is_over)
        attempt_end(job);
    struct rdzv *next = make(job);
    if (next == NULL)
        return NULL;
    rdzv_free(job->rdzv);
    return job->rdzv = next;
}

/* --- growth --------------------------------------------------------------------------------------------- */

/* Looked at with the heartbeats, from the first rank on that had not agreed last time: a request for a key costs
 * nothing, and a world of thousands is walked once. */
void job_look_at_grow_keys(struct job *job)
{
    if (job->rdzv == NULL || job->spares == 0)
        return;
    for (char key[64]; job->agreed < job->members.world_size; job->agreed++) {
        snprintf(key, sizeof(key), AGREED_KEY "%u", job->agreed);
        if (store_get(job->store, slice_str(key)).len == 0)
            return;
    }
    rdzv_grow_agreed(job->rdzv, job->hub->now_ms);
}
