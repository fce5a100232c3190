/* torch_observer.c -- records the requests of PyTorch's ranks while their process groups form (torch_keys.h), and
 * schedules checks; monitor.c later reports from these records. A busy store calls the functions on_* a million times a
 * second. So each of these functions first compares only a few bytes of the key, because most keys need no further
 * work. */
#include "diagnosis/snapshot.h"
#include "diagnosis/torch_keys.h"
#include "hub/schedule.h"
#include "hub/session.h"

#include <stdlib.h>

enum {
    /* If a client waits for the same key again within this time (ms), the new wait counts as a continuation of the
     * earlier wait. This is necessary because a barrier of torch consists of repeated waits of 10 s. */
    AGAIN_MS = 2000,
    /* In each attempt, the store asks the agents for the owners of at most this many connections. To find an owner, an
     * agent searches all processes of its host. */
    OWNERS_MAX = 6,
};

/* --- barriers ------------------------------------------------------------------------------------------- */

/* Return true if the key is the counter of a barrier of all ranks, and has counted more arrivals than the job has
 * ranks. */
static bool has_surplus(const struct job *job, struct slice key, int64_t count)
{
    struct torch_key read;
    return job->members.known && count > job->members.world_size && torch_key_read(key, &read) && read.of_all;
}

/* Ask the agents for the owner of a connection that no agent has vouched for. Skip a client that has neither entered a
 * barrier of PyTorch nor published an address. Such a client is not a member of a group. */
static void ask_owner(struct job *job, struct session *s)
{
    if (job->meets.owners_asked < OWNERS_MAX && s->torch != NULL &&
        (s->torch->meet != 0 || s->torch->rank != 0) && list_is_empty(&s->by_rank) &&
        peer_ask_owner(job->hub, s))
        job->meets.owners_asked++;
}

/* Handle a group that may have too many members: ask the agents for the owner of the newcomer's connection. If no check
 * is scheduled yet, also ask about the other clients, and schedule a check. */
static void suspect_surplus(struct session *newcomer)
{
    struct job *job = newcomer->job;
    ask_owner(job, newcomer);
    if (job->watch.torch_surplus)
        return;
    LIST_EACH(node, &job->sessions)
    {
        ask_owner(job, LIST_ENTRY(node, struct session, in_job));
    }
    schedule_torch(job, true);
    job_touch(job);
}

/* Return true if the client has read the count of the barrier (`delta` is 0), and this count equals the world size. All
 * ranks have then arrived, and the client leaves the barrier without a further request. */
static bool goes_on(const struct job *job, const struct torch_meet *meet, int64_t delta)
{
    return delta == 0 && job->members.known && meet->count == job->members.world_size;
}

/* Record that a client has read the counter of the barrier `meet` (`delta` 0), or has increased it. Only an increase
 * begins a wait. But a client that has connected again only reads the counter, so its wait begins with the first
 * read. */
static void count_in(struct session *s, struct torch_meet *meet, int64_t delta)
{
    s->torch->polls = !goes_on(s->job, meet, delta);
    s->torch->meet = meet->id;
    if (delta <= 0) {
        if (s->torch->registered_ms == 0)
            s->waits_since_ms = s->torch->registered_ms = s->job->hub->now_ms;
        return;
    }
    s->waits_since_ms = s->torch->tried_ms = s->torch->registered_ms = s->job->hub->now_ms;
    if (has_surplus(s->job, torch_meet_key(meet), meet->count))
        suspect_surplus(s);
    schedule_torch(s->job, false);
    job_touch(s->job);
}

/* Record that a client has changed the counter of a barrier, or has read it by adding 0. hub->processing is the client;
 * NULL means that ddprun itself has changed the key. If memory is short, record nothing. */
static void on_count(void *user, struct slice key, int64_t delta, int64_t sum)
{
    struct session *s = ((struct hub *)user)->processing;
    if (s == NULL || key.len > TORCH_MEET_KEY_MAX || !torch_key_counts(key) ||
        torch_client_at(&s->torch) == NULL)
        return;
    struct torch_meet *meet = torch_meets_find(&s->job->meets, key);
    if (meet == NULL)
        meet = torch_meets_make(&s->job->meets, key);
    meet->count = sum;
    count_in(s, meet, delta);
}

/* --- addresses ------------------------------------------------------------------------------------------ */

/* Return true if another open connection, probably of another process, has published an address of this client's rank.
 * A connection with the same known pid does not count, because one process may set up its group twice, on two
 * connections. */
static bool has_twin(const struct session *s)
{
    LIST_EACH(node, &s->job->sessions)
    {
        const struct session *other = LIST_ENTRY(node, struct session, in_job);
        if (other != s && other->torch != NULL && other->torch->rank == s->torch->rank &&
            (s->pid == 0 || other->pid != s->pid))
            return true;
    }
    return false;
}

/* Record that a rank has published its address in the default group. `anew` is true if the key existed already. In this
 * case a second process may act as this rank. So ask the agents for the owners, and schedule a check. */
static void on_set(void *user, struct slice key, bool anew)
{
    struct session *s = ((struct hub *)user)->processing;
    struct torch_key read;
    if (s == NULL || !torch_key_may_set_up(key) || !torch_key_read(key, &read) || read.rank < 0 ||
        torch_client_at(&s->torch) == NULL || strcmp(read.group, "0") != 0 ||
        torch_key_when(&read) == TORCH_LATER)
        return;
    s->torch->rank = (uint32_t)read.rank + 1;
    s->torch->registered_ms = s->job->hub->now_ms;
    schedule_joined(s->job);
    job_touch(s->job);
    if (!anew)
        return;
    if (has_twin(s)) {
        s->job->meets.repeated = s->torch->rank;
        s->job->meets.repeated_ms = s->job->hub->now_ms;
    }
    suspect_surplus(s);
}

/* --- waits ---------------------------------------------------------------------------------------------- */

/* Record a wait. A rank that waits again has not given up, so clear left_ms. */
static void note_wait(struct session *s, uint32_t awaited, const struct torch_key *key)
{
    struct torch_client *torch = s->torch;
    const uint64_t now_ms = s->job->hub->now_ms;
    if (torch->awaited != awaited || torch->left_ms == 0 || now_ms - torch->left_ms > AGAIN_MS)
        torch->since_ms = now_ms;
    torch->awaited = awaited;
    torch->left_ms = 0;
    torch->waits = true;
    torch->key = *key;
    torch->key.name = (struct slice){ 0 };
    s->waits_since_ms = torch->since_ms;
    if (torch_key_when(key) == TORCH_SETUP)
        torch->tried_ms = now_ms;
}

/* Record that a session begins to wait for a PyTorch key. If the key is not one of PyTorch's keys, only clear left_ms,
 * the time at which the session gave up its setup: the session waits again, so it has not given up. */
static void on_wait(void *user, struct store_waiter *waiter)
{
    struct session *s = TABLE_ENTRY(waiter, struct session, waiter);
    struct slice name;
    struct torch_key read;
    (void)user;
    if (s->torch != NULL)
        s->torch->waits = false;
    if (!facts_awaited(s, 0, &name) || !torch_key_read(name, &read)) {
        if (s->torch != NULL)
            s->torch->left_ms = 0;
        return;
    }
    if (torch_client_at(&s->torch) == NULL)
        return;
    note_wait(s, table_hash(name), &read);
    if (torch_key_when(&read) == TORCH_LATER)
        return;
    schedule_torch(s->job, false);
    job_touch(s->job);
}

/* Record that a client has found its keys and continues its setup. The first key shows the purpose of all keys. */
static void on_found(void *user, struct store_waiter *waiter, struct slice keys)
{
    struct session *s = TABLE_ENTRY(waiter, struct session, waiter);
    struct slice first;
    (void)user;
    struct torch_key read;
    if (s->torch != NULL && wire_next(&keys, &first) && torch_key_may_set_up(first) &&
        torch_key_read(first, &read) && torch_key_when(&read) == TORCH_SETUP) {
        s->torch->tried_ms = s->job->hub->now_ms;
        schedule_joined(s->job);
        job_touch(s->job);
    }
}

/* Observe the keys. The store compares keys with PyTorch's prefixes only after this call. So a job without PyTorch has
 * no extra cost. The functions on_* ignore most requests, and allocate memory only for clients that use PyTorch's keys.
 * store_observe() copies `observer`. */
void torch_observe(struct job *job)
{
    const struct store_observer observer = { .user = job->hub,
                                             .prefixes = torch_key_prefixes,
                                             .written = on_set,
                                             .counted = on_count,
                                             .waits = on_wait,
                                             .found = on_found };
    store_observe(job->store, &observer);
    job->is_observed = true;
}

/* --- groups with more members than ranks ------------------------------------------------------------------ */

/* A claim says that a process acts as a rank. A report about a group with too many members lists claims:
 *
 *     report                                           listed claims
 *     a barrier of 2 ranks has counted 4 arrivals      the claims of all clients that have arrived in this barrier
 *     two processes act as rank 0                      the claims of all clients that have published an address
 *
 * The pids of claims are compared, because one process may publish two addresses. A client of torch 2.x sends its pid;
 * for an older client an agent reports it. Claims without a pid are not compared. */

/* Return the claim of a session. `is_child`: the worker of the rank has started the process, for example with
 * mp.spawn. */
static struct snapshot_claim claim_of(const struct session *s)
{
    struct snapshot_claim claim = { .rank = (int64_t)s->torch->rank - 1,
                                    .pid = s->pid,
                                    .address = session_address(s),
                                    .owner = s->torch->owner != NULL ? s->torch->owner : "" };
    if (list_is_empty(&s->by_rank))
        return claim;
    const struct member *member = members_at(&s->job->members, s->rank);
    claim.is_of_job = true;
    claim.rank = s->rank;
    claim.host = member->host;
    claim.is_child = claim.pid != 0 && member->process_pid != 0 && claim.pid != member->process_pid;
    return claim;
}

/* Compare two claims for sorting. Claims of processes of this job come before all other claims. Within each of these
 * two groups, the claims are in the order of their ranks. */
static int by_claimed_rank(const void *a, const void *b)
{
    const struct snapshot_claim *x = a, *y = b;
    if (x->is_of_job != y->is_of_job)
        return y->is_of_job - x->is_of_job;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* --- a barrier with too many members -------------------------------------------------------------------- */

/* Return true if the client still waits in the barrier. */
static bool is_stuck_in(const struct session *s, const struct torch_meet *meet)
{
    struct slice name;
    struct torch_key key;
    if (s->torch == NULL || s->torch->meet != meet->id)
        return false;
    return s->torch->polls ||
           (facts_awaited(s, 0, &name) && torch_key_read(name, &key) && key.kind == TORCH_KEY_BARRIER_LAST);
}

/* Return true if a group of all ranks has more members than the job has ranks, and a session still waits in its
 * barrier. */
static bool is_surplus(const struct job *job, const struct torch_meet *meet, struct torch_key *key)
{
    if (meet->id == 0 || !job->members.known || meet->count <= job->members.world_size ||
        !torch_key_read(torch_meet_key(meet), key) || !key->of_all)
        return false;
    LIST_EACH(node, &job->sessions)
    {
        if (is_stuck_in(LIST_ENTRY(node, struct session, in_job), meet))
            return true;
    }
    return false;
}

/* Return a barrier with too many members, and set *key to its key. Return NULL if there is no such barrier. */
static const struct torch_meet *find_surplus(const struct job *job, struct torch_key *key)
{
    for (int i = 0; i < TORCH_MEETS_MAX; i++)
        if (is_surplus(job, &job->meets.meet[i], key))
            return &job->meets.meet[i];
    return NULL;
}

/* --- a rank that is claimed twice ----------------------------------------------------------------------- */

/* Return true if two claims certainly belong to different processes. Equal pids on two hosts belong to different
 * processes. */
static bool is_other_process(const struct snapshot_claim *a, const struct snapshot_claim *b)
{
    return a->pid != 0 && b->pid != 0 && (a->pid != b->pid || !slice_equal(a->address, b->address));
}

/* Return true if two processes have published an address of the same rank (`published`). The claims must be sorted by
 * `published`. Compare each claim with the first claim of the same rank that has a known pid. */
static bool are_double(const struct snapshot_claim *claims, uint32_t n)
{
    const struct snapshot_claim *first = claims;
    for (uint32_t i = 0; i < n; i++) {
        if (claims[i].published != first->published || first->pid == 0)
            first = &claims[i];
        if (is_other_process(first, &claims[i]))
            return true;
    }
    return false;
}

/* Compare two claims by the published rank, for qsort. */
static int by_claim(const void *a, const void *b)
{
    const struct snapshot_claim *x = a, *y = b;
    return (x->published > y->published) - (x->published < y->published);
}

/* --- all claims ----------------------------------------------------------------------------------------- */

/* Collect the claims of the clients that have arrived in the barrier `meet`. If `meet` is NULL, collect the claims of
 * the clients that have published an address. Return the number of claims. Raise *last_ms to the latest registered_ms
 * of these clients (struct torch_client). */
static uint32_t collect_claims(const struct job *job, const struct torch_meet *meet,
                               struct snapshot_claim *claims, uint64_t *last_ms)
{
    uint32_t n = 0;
    LIST_EACH(node, &job->sessions)
    {
        const struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->torch == NULL || (meet != NULL ? s->torch->meet != meet->id : s->torch->rank == 0))
            continue;
        claims[n] = claim_of(s);
        claims[n++].published = s->torch->rank;
        *last_ms = s->torch->registered_ms > *last_ms ? s->torch->registered_ms : *last_ms;
    }
    return n;
}

/* Return true if two claims are from the same process. Each connection makes a claim, and a process may have two
 * connections. */
static bool is_same_claim(const struct snapshot_claim *a, const struct snapshot_claim *b)
{
    return a->pid != 0 && a->is_of_job == b->is_of_job && a->rank == b->rank && !is_other_process(a, b) &&
           a->pid == b->pid;
}

/* Merge adjacent claims of the same process. Return how many claims remain. */
static uint32_t join_same(struct snapshot_claim *claims, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || !is_same_claim(&claims[kept - 1], &claims[i]))
            claims[kept++] = claims[i];
    return kept;
}

/* Return the number of sessions that have used a key of PyTorch. Each session has at most one claim. */
static uint32_t count_clients(const struct job *job)
{
    uint32_t n = 0;
    LIST_EACH(node, &job->sessions)
    {
        n += LIST_ENTRY(node, struct session, in_job)->torch != NULL;
    }
    return n;
}

/* Find a barrier with too many members. If there is no such barrier, find two processes that act as one rank. */
bool torch_surplus(const struct job *job, struct snapshot *s, struct snapshot_claim **claims)
{
    const struct torch_meet *meet = find_surplus(job, &s->surplus.key);
    struct snapshot_claim *list = *claims = calloc(count_clients(job) + 1, sizeof(*list));
    uint64_t last_ms = 0;
    if (list == NULL)
        return false;
    s->surplus.n = collect_claims(job, meet, list, &last_ms);
    s->surplus.claims = list;
    s->surplus.for_ms = job->hub->now_ms - last_ms;
    if (meet == NULL) {
        s->surplus.key = (struct torch_key){ 0 };
        /* are_double() needs this order. */
        qsort(list, s->surplus.n, sizeof(*list), by_claim);
        if (!are_double(list, s->surplus.n))
            s->surplus.n = 0;
    }
    s->surplus.is_double = meet == NULL;
    /* join_same() and the report need this order. */
    qsort(list, s->surplus.n, sizeof(*list), by_claimed_rank);
    s->surplus.n = join_same(list, s->surplus.n);
    s->surplus.count = meet != NULL ? (uint64_t)meet->count : s->surplus.n;
    return true;
}
