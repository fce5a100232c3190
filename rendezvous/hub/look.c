/* look.c -- see look.h.
 *
 * Who takes part in something of PyTorch's that has more members than ranks:
 *
 *     a barrier counts 4 of 2 ranks        all that have counted in it
 *     two processes are rank 0             all that have given their address
 *
 * A second address from the same process is no second process, so the pids are compared. torch 2.x says its own; of
 * older clients their agent does, and where there is none nothing is claimed. */
#include "hub/look.h"

#include "base/text.h"
#include "hub/session.h"
#include "job/rendezvous.h"

#include <stdio.h>
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

/* --- job look --------------------------------------------------------------------------------------------- */

/* Each part counts first, takes memory for so many, and fills it. An array that stays empty needs none.
 *
 * Texts are borrowed from the job, the hub and the rendezvous, so a look is over before the next message is
 * worked off. Every array has one row more than it needs: calloc(0) may answer NULL, which here means that
 * memory is short. */

enum { WAITS_MAX = 64 }; /* different things that are waited for; more is no case for a diagnosis */

void look_free(struct look *l)
{
    free(l->nodes);
    free(l->gone);
    free(l->refused);
    free(l->strangers);
    free(l->notices);
    free(l->waits);
    free(l->claims);
    free(l->ranks);
    free(l->rejects);
    free(l->bytes);
    *l = (struct look){ 0 };
}

/* --- nodes ---------------------------------------------------------------------------------------------- */

/* text.c finds nodes by halves and relies on this order. Comparing and not subtracting: ranks are
 * signed and a difference may run over. */
static int by_node_rank(const void *a, const void *b)
{
    const struct snapshot_node *x = a, *y = b;
    return (x->node_rank > y->node_rank) - (x->node_rank < y->node_rank);
}

static struct snapshot_node node_of(const struct rdzv_node_facts *f, uint64_t now_ms)
{
    return (struct snapshot_node){
        .host = f->host,
        .addr = f->addr,
        .own = f->own,
        .boot_id = f->boot_id,
        .version = f->version,
        .state = f->is_spare ? "spare" : rdzv_node_state_word(f->state),
        .node_rank = f->node_rank,
        .first_rank = f->first_rank,
        .nproc = f->nproc,
        .pid = f->pid,
        .is_spare = f->is_spare,
        .is_stopping = f->state == RDZV_NODE_STOPPING,
        .joined_ms = now_ms - f->joined_ms,
        .heard_ms = now_ms - f->heard_ms,
    };
}

/* A node whose connection is gone, but not yet its place, has left as far as a user is concerned. */
static bool counts(const struct rdzv_node_facts *f)
{
    return f->state != RDZV_NODE_FINISHED && f->state != RDZV_NODE_RESTING;
}

/* One at a time by id, as rendezvous.h offers it, since its nodes are private to it. `n` is compared again: the
 * count and the list are two answers. */
static bool look_at_nodes(const struct job *job, const struct rdzv_facts *facts, struct look *l)
{
    struct rdzv_node_facts f;
    uint32_t n = 0;
    l->nodes = calloc(facts->nodes + 1, sizeof(*l->nodes));
    for (uint64_t id = 0; l->nodes != NULL && n < facts->nodes && (id = rdzv_next_node(job->rdzv, id)) != 0;)
        if (rdzv_node_facts(job->rdzv, id, &f) && counts(&f))
            l->nodes[n++] = node_of(&f, job->hub->now_ms);
    if (n > 0)
        qsort(l->nodes, n, sizeof(*l->nodes), by_node_rank);
    l->snapshot.nodes = l->nodes;
    l->snapshot.n_nodes = n;
    return l->nodes != NULL;
}

/* The latest first: of a node that came and went several times its last end is the one to know. */
static bool look_at_gone(const struct job *job, const struct rdzv_facts *facts, struct look *l)
{
    const uint32_t n = facts->n_gone < RDZV_GONE_MAX ? facts->n_gone : RDZV_GONE_MAX;
    l->gone = calloc(n + 1, sizeof(*l->gone));
    for (uint32_t i = 0; l->gone != NULL && i < n; i++) {
        const struct rdzv_gone *gone = &facts->gone[(facts->n_gone - 1 - i) % RDZV_GONE_MAX];
        l->gone[i] = (struct snapshot_gone){ .host = gone->host,
                                             .how = gone->how,
                                             .node_rank = gone->node_rank,
                                             .pid = gone->pid,
                                             .lost = gone->lost,
                                             .silent = gone->silent,
                                             .ran = gone->round != 0 && gone->round == facts->round,
                                             .stayed_ms = gone->gone_ms - gone->joined_ms,
                                             .gone_ms = job->hub->now_ms - gone->gone_ms };
    }
    l->snapshot.gone = l->gone;
    l->snapshot.n_gone = n;
    return l->gone != NULL;
}

static enum snapshot_phase phase_of(enum rdzv_state state)
{
    switch (state) {
    case RDZV_RUNNING:
        return PHASE_RUNNING;
    case RDZV_STOPPING:
        return PHASE_STOPPING;
    case RDZV_OVER:
        return PHASE_OVER;
    default:
        return PHASE_GATHERING;
    }
}

/* While a round runs, what ended the one before is history. */
static void look_at_cause(const struct rdzv_facts *facts, struct snapshot *s)
{
    const struct rdzv_cause *cause = facts->cause;
    if (cause == NULL || facts->state == RDZV_RUNNING)
        return;
    s->cause = (struct snapshot_cause){ .known = true,
                                        .host = cause->host,
                                        .words = cause->words,
                                        .node_rank = cause->node_rank,
                                        .rank = cause->rank,
                                        .pid = cause->pid,
                                        .error = cause->error,
                                        .after_ms = cause->after_ms };
}

/* Times become "for how long" here, so that the diagnosis needs no clock, and two looks at the same state
 * give the same words. */
static bool look_at_rendezvous(const struct job *job, struct look *l)
{
    struct rdzv_facts facts;
    struct snapshot *s = &l->snapshot;
    const uint64_t now_ms = job->hub->now_ms;
    rdzv_facts(job->rdzv, &facts);
    s->phase = phase_of(facts.state);
    s->elastic = facts.elastic;
    s->min = facts.min;
    s->max = facts.max;
    s->round = facts.round;
    s->world_size = facts.world_size;
    s->waited_ms = now_ms - facts.since_ms;
    s->left_ms = facts.deadline_ms == UINT64_MAX ? UINT64_MAX
                 : facts.deadline_ms > now_ms    ? facts.deadline_ms - now_ms
                                                 : 0;
    s->returning = facts.returning;
    if (s->phase == PHASE_GATHERING)
        s->limit_ms = facts.join_timeout_ms;
    s->knob = facts.join_knob;
    look_at_cause(&facts, s);
    return look_at_nodes(job, &facts, l) && look_at_gone(job, &facts, l);
}

/* --- who was not let in --------------------------------------------------------------------------------- */

/* Where one job is served, a node that asked for another one is shown as well: a mistyped --rdzv_id is just
 * what keeps it from coming. With many jobs that is somebody else's affair. */
static bool look_at_refused(const struct job *job, struct look *l)
{
    const struct refusals *refusals = &job->hub->refusals;
    uint32_t n = 0;
    l->refused = calloc(refusals->count + 1, sizeof(*l->refused));
    for (uint32_t i = 0; l->refused != NULL && i < refusals->count; i++) {
        const struct refusal *r = &refusals->row[i];
        if (job->hub->limits.many_jobs && strcmp(r->job, job->name) != 0)
            continue;
        l->refused[n++] = (struct snapshot_refused){ .code = rdzv_refused_code(r->code),
                                                     .words = r->sentence,
                                                     .host = r->host,
                                                     .node_rank = r->node_rank,
                                                     .pid = r->pid,
                                                     .times = r->times,
                                                     .ago_ms = job->hub->now_ms - r->last_ms };
    }
    l->snapshot.refused = l->refused;
    l->snapshot.n_refused = n;
    return l->refused != NULL;
}

/* "GET / HT" in quotes, and what is no text as numbers. */
static const char *print_first(char *text, size_t size, const struct reject *r)
{
    struct slice first = slice_of(r->first, r->n_first);
    size_t used = 0;
    if (r->n_first > 0 && text_is_plain(first)) {
        snprintf(text, size, "\"%.*s\"", (int)r->n_first, (const char *)r->first);
        return text;
    }
    for (uint32_t i = 0; i < r->n_first && used + 4 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%02x", i > 0 ? " " : "", r->first[i]);
    return r->n_first > 0 ? text : "none";
}

/* PyTorch's clients are no strangers once workers run. Before that nobody has started any. Then a torchrun
 * somewhere was given our address. */
static void add_bare_clients(const struct job *job, struct rejects *all)
{
    LIST_EACH(node, &job->sessions)
    {
        const struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->role == ROLE_PLAIN && s->has_spoken)
            rejects_note(
                all,
                &(struct reject_facts){ .peer = s->peer, .why = "", .first = slice_of(s->first, s->n_first) },
                s->heard_ms);
    }
}

/* A copy of the hub's rows, with the clients that are still connected noted in it: they are no rejects yet,
 * and the hub's count of these must not grow because somebody looked. */
static bool look_at_strangers(const struct job *job, struct look *l)
{
    struct rejects *all = l->rejects = hub_all_rejects(job->hub);
    if (all == NULL)
        return false;
    if (l->snapshot.phase == PHASE_GATHERING)
        add_bare_clients(job, all);
    l->strangers = calloc(all->count + 1, sizeof(*l->strangers));
    l->bytes = calloc(all->count + 1, sizeof(*l->bytes));
    for (uint32_t i = 0; l->strangers != NULL && l->bytes != NULL && i < all->count; i++) {
        const struct reject *r = &all->row[i];
        l->strangers[i] =
            (struct snapshot_stranger){ .kind = r->kind,
                                        .address = r->source,
                                        .bytes = print_first(l->bytes[i], sizeof(l->bytes[i]), r),
                                        .job = r->job,
                                        .times = r->times,
                                        .ago_ms = job->hub->now_ms - r->last_ms };
    }
    l->snapshot.strangers = l->strangers;
    l->snapshot.n_strangers = all->count;
    return l->strangers != NULL && l->bytes != NULL;
}

static void add_notices(const struct notices *notices, struct look *l)
{
    for (uint32_t i = 0; i < notices->count; i++)
        l->notices[l->snapshot.n_notices++] = (struct snapshot_notice){ .code = notices->list[i].code,
                                                                        .subject = notices->list[i].subject,
                                                                        .sentence = notices->list[i].sentence,
                                                                        .advice = notices->list[i].advice };
}

static bool look_at_notices(const struct job *job, struct look *l)
{
    l->notices = calloc(job->notices.count + job->troubles.count + 1, sizeof(*l->notices));
    l->snapshot.notices = l->notices;
    if (l->notices == NULL)
        return false;
    add_notices(&job->notices, l);
    add_notices(&job->troubles, l);
    return true;
}

/* --- who waits for what --------------------------------------------------------------------------------- */

/* The ranks of a job wait in one place or two, so the row is found at once, however many ranks there are. */
static struct snapshot_wait *wait_named(struct look *l, struct slice name, bool is_barrier)
{
    struct snapshot *s = &l->snapshot;
    for (uint32_t i = 0; i < s->n_waits; i++)
        if (diagnose_is_place(l->waits[i].name, l->waits[i].is_barrier, name, is_barrier))
            return &l->waits[i];
    if (s->n_waits == WAITS_MAX)
        return NULL;
    l->waits[s->n_waits] = (struct snapshot_wait){ .name = name, .is_barrier = is_barrier };
    return &l->waits[s->n_waits++];
}

/* A session that waits for several keys counts for the first of them: it is one rank that waits. The
 * longest wait stands for the place, since that is how long the first one has been without an answer. */
static void add_waiter(struct look *l, const struct session *s, uint64_t now_ms)
{
    struct slice name;
    const bool in_barrier = s->seat.barrier != NULL;
    struct snapshot_wait *wait =
        facts_waits_by(s) != NULL && facts_awaited(s, 0, &name) ? wait_named(l, name, in_barrier) : NULL;
    if (wait == NULL)
        return;
    if (wait->waiting++ == 0)
        wait->rank = list_is_empty(&s->by_rank) ? UINT32_MAX : s->rank;
    if (now_ms - s->waits_since_ms > wait->for_ms)
        wait->for_ms = now_ms - s->waits_since_ms;
    if (in_barrier)
        wait->members = s->seat.barrier->members;
}

static bool look_at_waits(const struct job *job, struct look *l)
{
    l->waits = calloc(WAITS_MAX, sizeof(*l->waits));
    l->snapshot.waits = l->waits;
    LIST_EACH(node, &job->sessions)
    {
        const struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (l->waits == NULL)
            break;
        add_waiter(l, s, job->hub->now_ms);
    }
    return l->waits != NULL;
}

/* Only while a round runs, for nobody else asks for them: there may be 100,000. */
static bool look_at_ranks(struct job *job, struct look *l)
{
    const uint32_t n = job->members.known && l->snapshot.phase == PHASE_RUNNING ? job->members.world_size : 0;
    l->ranks = calloc((size_t)n + 1, sizeof(*l->ranks));
    for (uint32_t rank = 0; l->ranks != NULL && rank < n; rank++)
        facts_of_rank(job, rank, &l->ranks[rank]);
    l->snapshot.ranks = l->ranks;
    l->snapshot.n_ranks = n;
    return l->ranks != NULL;
}

/* --- all of it ------------------------------------------------------------------------------------------ */

static void look_at_store(const struct hub *hub, struct snapshot *s)
{
    s->store = (struct snapshot_store){ .host = hub->limits.host,
                                        .endpoint = hub->limits.endpoint,
                                        .accept_overflows = hub->counter[HUB_ACCEPT_OVERFLOWS],
                                        .somaxconn = hub->counter[HUB_SOMAXCONN],
                                        .refused_no_fd = hub->counter[HUB_REFUSED_NO_FD],
                                        .used = hub->quota.used,
                                        .max = hub->quota.max };
}

/* Without a rendezvous (workers started by hand, a store on its own) what is known are its ranks. Half a
 * look is none: what was not seen would be taken for what is not there. */
bool look_at_job(struct job *job, struct look *l)
{
    *l = (struct look){ .snapshot = { .job = job->name,
                                      .knob = "--timeout",
                                      .left_ms = UINT64_MAX,
                                      .phase = job->members.known ? PHASE_RUNNING : PHASE_GATHERING,
                                      .world_size = job->members.world_size } };
    look_at_store(job->hub, &l->snapshot);
    if ((job->rdzv == NULL || look_at_rendezvous(job, l)) && look_at_refused(job, l) &&
        look_at_strangers(job, l) && look_at_notices(job, l) && look_at_waits(job, l) &&
        look_at_ranks(job, l) && torch_crowd(job, &l->snapshot, &l->claims))
        return true;
    look_free(l);
    return false;
}
