/* job.c -- see job.h: jobs are made, found by name, freed, and know when they want to be looked at.
 *
 * A daemon lives for months, and jobs end without a word: one that nobody is connected to any more is forgotten
 * after a while, keys and all. Only where many are served: the store of a launcher goes with its launcher. */
#include "hub/job_source.h"
#include "job/rendezvous.h"
#include "hub/session.h"

#include <stdio.h>
#include <stdlib.h>

/* One that is over is kept for those who ask how it ended. It stands in nobody's way: who joins again begins anew. */
enum { FORGET_OVER_MS = 60 * 1000 };

enum { RESERVE_MAX = 1 << 20, RESERVES = 1024 };

/* What a job costs beside what is in it, with the first chains of its tables. The one of a launcher is free: nobody
 * can make a second. */
static uint64_t cost(const struct hub *hub)
{
    return hub->limits.many_jobs ? sizeof(struct job) + 4096 : 0;
}

/* What each job is sure of. It is a part of its source's share, which limits the number of jobs. */
static uint64_t floor_of(const struct hub *hub)
{
    const uint64_t reserve = hub->limits.max_bytes / RESERVES;
    return cost(hub) + (reserve < RESERVE_MAX ? reserve : RESERVE_MAX);
}

/* --- made and freed --------------------------------------------------------------------------------------- */

/* WAIT and BARRIER both end with one zero byte. */
static void wake(void *user, struct store_waiter *waiter)
{
    struct session *s = TABLE_ENTRY(waiter, struct session, waiter);
    s->waits_in = 0;
    hub_send(user, s, slice_of("\0", 1));
}

static void put(struct job *job)
{
    struct slice name = slice_str(job->name);
    job->node =
        (struct table_node){ .key = job->name, .key_len = (uint32_t)name.len, .hash = table_hash(name) };
    table_put(&job->hub->jobs, &job->node);
}

struct job *job_new(struct hub *hub)
{
    struct job *job = calloc(1, sizeof(*job));
    if (job == NULL)
        return NULL;
    job->hub = hub;
    if (hub->limits.many_jobs)
        job->share = (struct quota){ .used = cost(hub), .floor = floor_of(hub) };
    quota_move(&job->share, &hub->quota);
    job->quota = hub->limits.many_jobs ? &job->share : &hub->quota;
    job->members.quota = job->quota;
    job->left_ms = hub->now_ms;
    list_init(&job->sessions);
    struct barrier_env env = job_barrier_env(job);
    job->store = store_new(job->quota, wake, hub);
    if (job->store != NULL)
        store_observe(job->store, &hub->observer);
    bool ok = barriers_init(&job->barriers, job->quota, &env) && job->store != NULL;
    put(job);
    if (ok)
        return job;
    job_free(job);
    return NULL;
}

/* Works on a half-made job too, for job_new. */
void job_free(struct job *job)
{
    struct hub *hub = job->hub;
    table_remove(&hub->jobs, &job->node);
    rdzv_free(job->rdzv);
    free(job->round_nodes);
    notices_free(&job->notices);
    notices_free(&job->troubles);
    job_events_free(&job->events);
    store_free(job->store);
    barriers_free(&job->barriers);
    members_free(&job->members);
    job_set_source(job, NULL);
    quota_move(&job->share, NULL);
    free(job);
}

/* --- by name ---------------------------------------------------------------------------------------------- */

struct job *job_find(const struct hub *hub, const char *name)
{
    struct slice key = slice_str(name);
    struct table_node *node = table_find(&hub->jobs, key, table_hash(key));
    return node ? TABLE_ENTRY(node, struct job, node) : NULL;
}

struct job *job_only(const struct hub *hub)
{
    return hub->jobs.count == 1 ? TABLE_ENTRY(table_next(&hub->jobs, NULL), struct job, node) : NULL;
}

void job_rename(struct job *job, const char *name)
{
    table_remove(&job->hub->jobs, &job->node);
    snprintf(job->name, sizeof(job->name), "%s", name);
    put(job);
}

/* A job without a name is the only one and keeps its room. */
static struct job *declare(struct hub *hub, struct job_source *source, const char *name)
{
    struct job *job = job_find(hub, "");
    if (job == NULL && job_source_has_room(source, floor_of(hub)))
        job = job_new(hub);
    if (job == NULL)
        return NULL;
    job_set_source(job, source);
    job_rename(job, name);
    return job;
}

struct job *job_claim(struct hub *hub, const struct session *s, const char *name)
{
    if (!hub->limits.many_jobs)
        return job_only(hub);
    struct job *job = job_find(hub, name);
    if (job != NULL)
        return job;
    struct job_source *source = job_source_of(hub, s);
    if (source == NULL)
        return NULL;
    job = declare(hub, source, name);
    job_source_release(hub, source);
    return job;
}

/* The name of an attempt is all three: the same job with another world size is another job to its ranks. */
bool job_is_at(const struct job *job, const struct job_name *name)
{
    return job->members.known && strcmp(job->name, name->job) == 0 && job->members.attempt == name->attempt &&
           job->members.world_size == name->world_size;
}

/* --- time ------------------------------------------------------------------------------------------------- */

static bool is_blank(const struct job *job)
{
    return job->name[0] == '\0' && store_count(job->store) == 0;
}

uint64_t job_forget_at(const struct job *job)
{
    bool stays = !job->hub->limits.many_jobs || !list_is_empty(&job->sessions) || is_blank(job);
    bool is_over = job->rdzv != NULL && rdzv_is_over(job->rdzv);
    uint64_t keep_ms = job->hub->limits.keep_ms;
    if (is_over && keep_ms > FORGET_OVER_MS)
        keep_ms = FORGET_OVER_MS;
    return stays ? UINT64_MAX : job->left_ms + keep_ms;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t job_deadline(const struct job *job)
{
    uint64_t others = earlier(job_forget_at(job), barriers_deadline(&job->barriers));
    return job->rdzv != NULL ? earlier(earlier(others, job_watch_deadline(job)), rdzv_deadline(job->rdzv))
                             : others;
}

void job_touch(struct job *job)
{
    uint64_t at = job_deadline(job);
    if (at < job->hub->jobs_deadline_ms)
        job->hub->jobs_deadline_ms = at;
}
