/* job_look.c -- see job_look.h.
 *
 * Each part counts first, takes memory for so many, and fills it. An array that stays empty needs none.
 *
 * Texts are borrowed from the job, the hub and the rendezvous, so a look is over before the next message is
 * worked off. Every array has one row more than it needs: calloc(0) may answer NULL, which here means that
 * memory is short. */
#include "hub/job_look.h"

#include "base/text.h"
#include "hub/session.h"
#include "job/rendezvous.h"
#include "hub/torch_crowd.h"

#include <stdio.h>
#include <stdlib.h>

enum { WAITS_MAX = 64 }; /* different things that are waited for; more is no case for a diagnosis */

void job_look_free(struct job_look *l)
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
    *l = (struct job_look){ 0 };
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
static bool look_at_nodes(const struct job *job, const struct rdzv_facts *facts, struct job_look *l)
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
static bool look_at_gone(const struct job *job, const struct rdzv_facts *facts, struct job_look *l)
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
static bool look_at_rendezvous(const struct job *job, struct job_look *l)
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
static bool look_at_refused(const struct job *job, struct job_look *l)
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
static bool look_at_strangers(const struct job *job, struct job_look *l)
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

static void add_notices(const struct notices *notices, struct job_look *l)
{
    for (uint32_t i = 0; i < notices->count; i++)
        l->notices[l->snapshot.n_notices++] = (struct snapshot_notice){ .code = notices->list[i].code,
                                                                        .subject = notices->list[i].subject,
                                                                        .sentence = notices->list[i].sentence,
                                                                        .advice = notices->list[i].advice };
}

static bool look_at_notices(const struct job *job, struct job_look *l)
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
static struct snapshot_wait *wait_named(struct job_look *l, struct slice name, bool is_barrier)
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
static void add_waiter(struct job_look *l, const struct session *s, uint64_t now_ms)
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

static bool look_at_waits(const struct job *job, struct job_look *l)
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
static bool look_at_ranks(struct job *job, struct job_look *l)
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
bool job_look(struct job *job, struct job_look *l)
{
    *l = (struct job_look){ .snapshot = { .job = job->name,
                                          .knob = "--timeout",
                                          .left_ms = UINT64_MAX,
                                          .phase = job->members.known ? PHASE_RUNNING : PHASE_GATHERING,
                                          .world_size = job->members.world_size } };
    look_at_store(job->hub, &l->snapshot);
    if ((job->rdzv == NULL || look_at_rendezvous(job, l)) && look_at_refused(job, l) &&
        look_at_strangers(job, l) && look_at_notices(job, l) && look_at_waits(job, l) &&
        look_at_ranks(job, l) && torch_crowd(job, &l->snapshot, &l->claims))
        return true;
    job_look_free(l);
    return false;
}
