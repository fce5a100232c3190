/* torch_crowd.c -- see torch_crowd.h.
 *
 *     a barrier counts 4 of 2 ranks        all that have counted in it
 *     two processes are rank 0             all that have given their address
 *
 * A second address from the same process is no second process, so the pids are compared. torch 2.x says its own; of
 * older clients their agent does, and where there is none nothing is claimed. */
#include "hub/torch_crowd.h"

#include "hub/session.h"

#include <stdlib.h>

/* --- one that takes part -------------------------------------------------------------------------------- */

static bool is_attached(const struct session *s)
{
    return !list_is_empty(&s->by_rank);
}

static struct snapshot_claim claim_of(const struct session *s)
{
    struct snapshot_claim claim = { .rank = (int64_t)s->torch->rank - 1,
                                    .pid = s->pid,
                                    .address = session_address(s),
                                    .owner = s->torch->owner != NULL ? s->torch->owner : "" };
    if (!is_attached(s))
        return claim;
    const struct member *member = members_at(&s->job->members, s->rank);
    claim.is_ours = true;
    claim.rank = s->rank;
    claim.host = member->host;
    claim.is_child = claim.pid != 0 && member->process_pid != 0 && claim.pid != member->process_pid;
    return claim;
}

/* By rank, and those of this job first. */
static int by_rank(const void *a, const void *b)
{
    const struct snapshot_claim *x = a, *y = b;
    if (x->is_ours != y->is_ours)
        return y->is_ours - x->is_ours;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* --- a barrier that has too many ------------------------------------------------------------------------ */

/* It still stands there: who has gone on had the right count before its eyes. */
static bool is_stuck_in(const struct session *s, const struct torch_meet *meet)
{
    struct slice name;
    struct torch_key key;
    if (s->torch == NULL || s->torch->meet != meet->id)
        return false;
    return s->torch->polls ||
           (facts_awaited(s, 0, &name) && torch_key_read(name, &key) && key.kind == TORCH_KEY_BARRIER_LAST);
}

static bool is_crowd(const struct job *job, const struct torch_meet *meet, struct torch_key *key)
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

static const struct torch_meet *find_crowd(const struct job *job, struct torch_key *key)
{
    for (int i = 0; i < TORCH_MEETS_MAX; i++)
        if (is_crowd(job, &job->meets.meet[i], key))
            return &job->meets.meet[i];
    return NULL;
}

/* --- a rank that is claimed twice ----------------------------------------------------------------------- */

static bool is_other_process(const struct snapshot_claim *a, const struct snapshot_claim *b)
{
    return a->pid != 0 && b->pid != 0 && (a->pid != b->pid || !slice_equal(a->address, b->address));
}

/* Each with the first of its rank that is known; is one another process than some third one, it is another than that. */
static bool are_double(const struct snapshot_claim *claims, uint32_t n)
{
    const struct snapshot_claim *first = claims;
    for (uint32_t i = 0; i < n; i++) {
        if (claims[i].said != first->said || first->pid == 0)
            first = &claims[i];
        if (is_other_process(first, &claims[i]))
            return true;
    }
    return false;
}

static int by_said(const void *a, const void *b)
{
    const struct snapshot_claim *x = a, *y = b;
    return (x->said > y->said) - (x->said < y->said);
}

/* --- all of it ------------------------------------------------------------------------------------------ */

/* Of those that have counted in `meet`, or with NULL of those that have given an address. */
static uint32_t collect(const struct job *job, const struct torch_meet *meet, struct snapshot_claim *claims)
{
    uint32_t n = 0;
    LIST_EACH(node, &job->sessions)
    {
        const struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->torch == NULL || (meet != NULL ? s->torch->meet != meet->id : s->torch->rank == 0))
            continue;
        claims[n] = claim_of(s);
        claims[n++].said = s->torch->rank;
    }
    return n;
}

static bool is_same_claim(const struct snapshot_claim *a, const struct snapshot_claim *b)
{
    return a->pid != 0 && a->is_ours == b->is_ours && a->rank == b->rank && !is_other_process(a, b) &&
           a->pid == b->pid;
}

/* Of a process that has begun anew there are two connections, which stand side by side. How many are left. */
static uint32_t join_same(struct snapshot_claim *claims, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || !is_same_claim(&claims[kept - 1], &claims[i]))
            claims[kept++] = claims[i];
    return kept;
}

static uint32_t count_clients(const struct job *job)
{
    uint32_t n = 0;
    LIST_EACH(node, &job->sessions)
    {
        n += LIST_ENTRY(node, struct session, in_job)->torch != NULL;
    }
    return n;
}

bool torch_crowd(const struct job *job, struct snapshot *s, struct snapshot_claim **claims)
{
    const struct torch_meet *meet = find_crowd(job, &s->crowd.key);
    struct snapshot_claim *list = *claims = calloc(count_clients(job) + 1, sizeof(*list));
    if (list == NULL)
        return false;
    s->crowd.n = collect(job, meet, list);
    s->crowd.claims = list;
    if (meet == NULL) {
        s->crowd.key = (struct torch_key){ 0 };
        qsort(list, s->crowd.n, sizeof(*list), by_said);
        if (!are_double(list, s->crowd.n))
            s->crowd.n = 0;
    }
    s->crowd.is_double = meet == NULL;
    qsort(list, s->crowd.n, sizeof(*list), by_rank);
    s->crowd.n = join_same(list, s->crowd.n);
    s->crowd.count = meet != NULL ? (uint64_t)meet->count : s->crowd.n;
    return true;
}
