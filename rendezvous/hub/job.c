/* job.c -- see job.h. This file creates, finds and frees jobs, and handles their barriers and nodes. A daemon runs for
 * months, and a job may end without a message to the store. So a store that serves many jobs frees a job and its keys
 * after some time without connections. */
#include "hub/job.h"

#include "base/clock.h"
#include "base/text.h"
#include "diagnosis/diagnosis.h"
#include "hub/schedule.h"
#include "hub/session.h"
#include "job/rendezvous.h"
#include "store/encode.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

/* The sources of jobs. job.h explains what a source is. */

enum { KEY_MAX = 64, NETWORK_BYTES = 8 };

struct job_source {
    struct table_node node; /* entry in hub->sources; the key is `key` */
    struct quota share;     /* the part of hub->quota that the jobs of this source share */
    uint32_t jobs;          /* number of jobs of this source; a source without jobs is freed */
    char key[KEY_MAX];      /* "uid 1000", "10.0.0.2" or "net 20010db800000000" */
};

/* Format the key of an IPv6 address, or return false for any other address. The key is the address's /64 network,
 * because one host may use all addresses of this network. Otherwise each address would be a source with its own
 * share. */
static bool format_network(struct slice address, char key[static KEY_MAX])
{
    char text[INET6_ADDRSTRLEN + 2];
    uint8_t bytes[16];
    snprintf(text, sizeof(text), "%.*s", (int)address.len, (const char *)address.data);
    text[strcspn(text, "]%")] = '\0';
    if (text[0] != '[' || inet_pton(AF_INET6, text + 1, bytes) != 1)
        return false;
    text_hex(key + snprintf(key, KEY_MAX, "net "), bytes, NETWORK_BYTES);
    return true;
}

/* Format the key of a connection's source. The kernel reports the users of this host, so each user is a source. The
 * store cannot verify users of other hosts. So all clients on one host, or in one IPv6 /64 network, are one source. */
static void format_key(const struct session *s, char key[static KEY_MAX])
{
    struct slice address = session_address(s);
    if (s->uid != SESSION_NO_UID)
        snprintf(key, KEY_MAX, "uid %u", s->uid);
    else if (!format_network(address, key))
        snprintf(key, KEY_MAX, "%.*s", (int)address.len, (const char *)address.data);
}

/* Return the source of the connection `s`, or NULL if memory is short. A new source has no job yet, so the caller must
 * pass the source to job_set_source(), or free it by job_source_release(). */
static struct job_source *job_source_of(struct hub *hub, const struct session *s)
{
    char key[KEY_MAX];
    format_key(s, key);
    const uint32_t hash = table_hash(slice_str(key));
    struct table_node *node = table_find(&hub->sources, slice_str(key), hash);
    if (node != NULL)
        return TABLE_ENTRY(node, struct job_source, node);
    struct job_source *source = calloc(1, sizeof(*source));
    if (source == NULL)
        return NULL;
    snprintf(source->key, sizeof(source->key), "%s", key);
    source->share.whole = &hub->quota;
    source->node =
        (struct table_node){ .key = source->key, .key_len = (uint32_t)strlen(source->key), .hash = hash };
    table_insert(&hub->sources, &source->node);
    return source;
}

/* Free `source` if it has no job; NULL is allowed. */
static void job_source_release(struct hub *hub, struct job_source *source)
{
    if (source == NULL || source->jobs > 0)
        return;
    table_remove(&hub->sources, &source->node);
    free(source);
}

/* Return true if the source's share has `bytes` left for one more job. Without this limit, one user could fill the
 * store with empty jobs. */
static bool job_source_has_room(const struct job_source *source, uint64_t bytes)
{
    return quota_left(&source->share) >= bytes;
}

/* Count the job at its new source before releasing its old source, because the new source may be the same as the old
 * source. If that source had no other job, the reverse order would free the source too early. */
void job_set_source(struct job *job, struct job_source *source)
{
    struct job_source *before = job->source;
    quota_move(&job->share, source != NULL ? &source->share : &job->hub->quota);
    job->source = source;
    if (source != NULL)
        source->jobs++;
    if (before != NULL)
        before->jobs--;
    job_source_release(job->hub, before);
}

/* --- barriers --------------------------------------------------------------------------------------------- */

/* The callbacks of a job's barriers. */

/* Send the outcome of a barrier: a byte, the length of the report in 8 bytes, and the report. Allocate no memory, so
 * that a full store still releases its barriers. */
static void answer_barrier(void *user, struct barrier_waiter *waiter, enum barrier_outcome outcome,
                           struct slice json)
{
    struct session *s = TABLE_ENTRY(waiter, struct session, barrier_waiter);
    uint8_t head[1 + 8] = { (uint8_t)outcome };
    struct hub *hub = ((struct job *)user)->hub;
    write_le(head + 1, json.len, 8);
    s->waits_in = 0;
    hub_send(hub, s, slice_of(head, sizeof(head)));
    if (json.len > 0)
        hub_send(hub, s, json);
}

/* Call snapshot_of_rank() for barrier_report(), which passes the job as a void pointer. */
static void facts_for(void *user, uint32_t rank, struct snapshot_rank *facts)
{
    snapshot_of_rank(user, rank, facts);
}

static void report_barrier(void *user, const struct barrier *barrier, struct slice name,
                           enum barrier_outcome outcome, const char *because, struct buf *out)
{
    barrier_report(barrier, name, facts_for, user, outcome, because, out);
}

/* Format how a rank ended, for the report of a barrier in which this rank is missing. */
static void format_end(void *user, uint32_t rank, char *text, size_t size)
{
    struct snapshot_rank facts;
    struct finding finding;
    snapshot_of_rank(user, rank, &facts);
    diagnose_rank(&facts, &finding);
    snprintf(text, size, "%s %s", finding.subject, finding_predicate(&finding));
}

/* Return true if an agent has reported the end of the rank. A closed connection does not prove the end, because the
 * worker may reconnect. */
static bool barrier_rank_ended(void *user, uint32_t rank)
{
    const struct job *job = user;
    return members_at(&job->members, rank)->exited;
}

void job_log(void *job, const char *line)
{
    hub_log(((struct job *)job)->hub, "%s", line);
}

static void barrier_lost(void *user, const struct barrier *barrier, uint32_t rank)
{
    lost_peer_in_barrier(user, barrier, rank);
}

/* Record that the first rank has arrived in a barrier. The arrival is a sign of progress. It also begins a wait, so
 * schedule a check of this wait. */
static void barrier_opened(void *user, const struct barrier *barrier)
{
    events_opened(user, barrier);
    schedule_barrier(user);
    schedule_moved(user, 0);
}

/* Return the functions that a job's barriers call. */
static struct barrier_env job_barrier_env(struct job *job)
{
    return (struct barrier_env){ .user = job,
                                 .answer = answer_barrier,
                                 .report = report_barrier,
                                 .end_of = format_end,
                                 .has_ended = barrier_rank_ended,
                                 .log = job_log,
                                 .lost = barrier_lost,
                                 .opened = barrier_opened,
                                 .ended = events_ended };
}

/* --- nodes ------------------------------------------------------------------------------------------------ */

/* A session is a node from its accepted join until it leaves the job or is freed. hub->agents contains the sessions
 * of all nodes, for peer_identity.c. */

/* A suspension of this process counts as the cause of a closed connection if it lasted STOOD_LONG_MS and ended
 * within the last JUST_NOW_MS. */
enum { STOOD_LONG_MS = 1000, JUST_NOW_MS = 1000 };

bool job_node_room(struct session *s)
{
    if (s->as_node == NULL && (s->as_node = calloc(1, sizeof(*s->as_node))) != NULL) {
        s->as_node->session = s;
        list_init(&s->as_node->cut);
    }
    return s->as_node != NULL;
}

/* Register the session as a node. Ignore a repeated join on the same connection. */
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
    table_insert(&s->job->hub->agents, &s->as_node->by_address);
}

void job_node_ends(struct session *s)
{
    events_leave(s->job, s);
    notices_moved(&s->job->notices, s->id, NOTICE_OF_STORE);
    s->is_node = false;
    s->job->hub->n_nodes--;
    table_remove(&s->job->hub->agents, &s->as_node->by_address);
}

/* Return true if a suspension of this store ended at most JUST_NOW_MS ago. A node that closes its connection now
 * probably does so because of this suspension. */
static bool just_stood_still(const struct hub *hub)
{
    return hub->stood_ms >= STOOD_LONG_MS && hub->now_ms - hub->woke_ms <= JUST_NOW_MS;
}

/* Remove the node of a closed connection, and schedule a report to the waiting nodes. */
void job_node_gone(struct session *s, const char *how)
{
    char words[256], stood[TEXT_MS_MAX];
    struct hub *hub;
    if (!s->is_node)
        return;
    hub = s->job->hub;
    job_node_ends(s);
    snprintf(words, sizeof(words), "%s", how);
    if (just_stood_still(hub))
        snprintf(words, sizeof(words),
                 "%.120s, after the process or machine of the store was suspended for %s", how,
                 text_ms(hub->stood_ms, stood));
    (session_is_cut(s) ? rdzv_cut : rdzv_lost)(s->job->rdzv, s->id, words, hub->now_ms);
    schedule_hurry(s->job);
}

void job_excuse_silence(struct job *job)
{
    if (job->rdzv != NULL)
        rdzv_excuse_silence(job->rdzv, job->hub->now_ms);
}

/* Time in ms for which a finished rendezvous is kept, so that operators can ask how the job ended. If an agent joins
 * during this time, a new rendezvous replaces the finished rendezvous. */
enum { FORGET_OVER_MS = 60 * 1000 };

/* Each job reserves 1/RESERVES of the store's memory, at most RESERVE_MAX bytes. So large jobs cannot leave a small
 * job without memory. */
enum { RESERVE_MAX = 1 << 20, RESERVES = 1024 };

/* Return how many bytes an empty job charges to the quota: its struct, and 4 KiB for its tables. Return 0 in a
 * launcher, whose hub has only one job. */
static uint64_t job_cost(const struct hub *hub)
{
    return hub->limits.many_jobs ? sizeof(struct job) + 4096 : 0;
}

/* Return how many bytes of a source's share are reserved for each job. This limits the number of jobs per
 * source. */
static uint64_t floor_of(const struct hub *hub)
{
    const uint64_t reserve = hub->limits.max_bytes / RESERVES;
    return job_cost(hub) + (reserve < RESERVE_MAX ? reserve : RESERVE_MAX);
}

/* --- creating and freeing a job --------------------------------------------------------------------------- */

/* Insert the job into hub->jobs. The key is job->name, so remove the job before its name changes. */
static void add_to_hub(struct job *job)
{
    struct slice name = slice_str(job->name);
    job->node =
        (struct table_node){ .key = job->name, .key_len = (uint32_t)name.len, .hash = table_hash(name) };
    table_insert(&job->hub->jobs, &job->node);
}

struct job *job_new(struct hub *hub)
{
    struct job *job = calloc(1, sizeof(*job));
    if (job == NULL)
        return NULL;
    job->hub = hub;
    if (hub->limits.many_jobs)
        job->share = (struct quota){ .used = job_cost(hub), .floor = floor_of(hub) };
    quota_move(&job->share, &hub->quota);
    job->quota = hub->limits.many_jobs ? &job->share : &hub->quota;
    job->members.quota = job->quota;
    job->left_ms = hub->now_ms;
    list_init(&job->sessions);
    struct barrier_env env = job_barrier_env(job);
    job->store = store_new(job->quota, session_woken, hub);
    bool ok = barriers_init(&job->barriers, job->quota, &env) && job->store != NULL;
    add_to_hub(job);
    if (ok)
        return job;
    job_free(job);
    return NULL;
}

/* Free the job. job_new() also calls this for a partly built job. Release the share last, because the store, the
 * barriers and the members return their charges to the share. */
void job_free(struct job *job)
{
    struct hub *hub = job->hub;
    table_remove(&hub->jobs, &job->node);
    refusals_forget(&hub->refusals, job->name);
    rdzv_free(job->rdzv);
    free(job->round_nodes);
    notices_free(&job->notices);
    notices_free(&job->troubles);
    events_free(&job->events);
    schedule_attempt(job, false);
    stacks_free(&job->sample.stacks);
    stacks_free(&job->survivors.stacks);
    cJSON_Delete(job->sample.calls);
    buf_free(&job->sample.askers);
    buf_free(&job->sample.nodes);
    store_free(job->store);
    barriers_free(&job->barriers);
    members_free(&job->members);
    job_set_source(job, NULL);
    quota_move(&job->share, NULL);
    free(job);
}

/* --- finding a job by name -------------------------------------------------------------------------------- */

struct job *job_find(const struct hub *hub, const char *name)
{
    struct slice key = slice_str(name);
    struct table_node *node = table_find(&hub->jobs, key, table_hash(key));
    return node ? TABLE_ENTRY(node, struct job, node) : NULL;
}

/* Return the only job that the session may use, or NULL if the session may use no job or several jobs. If the client
 * has named a job in TLS, the session may use only this job. A session without a tenant may use all jobs. */
struct job *job_only(const struct hub *hub, const struct session *s)
{
    struct job *only = NULL;
    if (hub->limits.many_jobs && s->tls_job != NULL && s->tls_job[0] != '\0')
        return job_find(hub, s->tls_job);
    if (s->tenant == NULL && hub->jobs.count > 1)
        return NULL;
    EACH_NODE(node, &hub->jobs)
    {
        struct job *job = TABLE_ENTRY(node, struct job, node);
        if (!session_may_use(hub, s, job->name))
            continue;
        if (only != NULL)
            return NULL;
        only = job;
    }
    return only;
}

void job_rename(struct job *job, const char *name)
{
    table_remove(&job->hub->jobs, &job->node);
    snprintf(job->name, sizeof(job->name), "%s", name);
    add_to_hub(job);
}

/* Give `name` to the nameless job, because clients may already have stored keys in this job. If there is no nameless
 * job, create a job. */
static struct job *declare(struct hub *hub, struct job_source *source, const char *name)
{
    struct job *job = job_find(hub, "");
    if (job == NULL && job_source_has_room(source, floor_of(hub)))
        job = job_new(hub);
    if (job == NULL)
        return NULL;
    job_set_source(job, source);
    job_rename(job, name);
    job->left_ms = hub->now_ms;
    return job;
}

struct job *job_claim(struct hub *hub, const struct session *s, const char *name)
{
    if (!hub->limits.many_jobs)
        return job_only(hub, s);
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

/* Return true if the job's name, attempt and world size are equal to the values in `name`. */
bool job_is_at(const struct job *job, const struct job_name *name)
{
    return job->members.known && strcmp(job->name, name->job) == 0 && job->members.attempt == name->attempt &&
           job->members.world_size == name->world_size;
}

/* --- time ------------------------------------------------------------------------------------------------- */

/* Return true if the job is not declared and its store has no keys. */
static bool is_blank(const struct job *job)
{
    return job->name[0] == '\0' && store_count(job->store) == 0;
}

/* Return when to drop the job. The store of a launcher never drops its job, because the store itself ends with the
 * launcher. */
uint64_t job_forget_at(const struct job *job)
{
    bool stays = !job->hub->limits.many_jobs || !list_is_empty(&job->sessions) || is_blank(job);
    bool is_over = job->rdzv != NULL && rdzv_is_over(job->rdzv);
    uint64_t keep_ms = job->hub->limits.keep_ms;
    if (is_over && keep_ms > FORGET_OVER_MS)
        keep_ms = FORGET_OVER_MS;
    return stays ? UINT64_MAX : job->left_ms + keep_ms;
}

/* Return when tick() in hub.c has something to do for the job; UINT64_MAX means never. */
static uint64_t job_deadline(const struct job *job)
{
    const uint64_t sample_ms = job->sample.until_ms != 0 ? job->sample.until_ms : UINT64_MAX;
    const uint64_t others =
        earlier_of(earlier_of(job_forget_at(job), sample_ms), barriers_deadline(&job->barriers));
    return job->rdzv != NULL
               ? earlier_of(earlier_of(others, schedule_deadline(job)), rdzv_deadline(job->rdzv))
               : others;
}

/* Lower the hub's deadline to the job's deadline, in constant time. This function never raises the hub's deadline, so
 * the hub's deadline may be too early. The hub then ticks once too often, and this tick computes the exact deadline. */
void job_touch(struct job *job)
{
    uint64_t at = job_deadline(job);
    /* A deadline in the past would look like a suspension of this process. */
    if (at < job->hub->now_ms)
        at = job->hub->now_ms;
    if (at < job->hub->jobs_deadline_ms)
        job->hub->jobs_deadline_ms = at;
}
