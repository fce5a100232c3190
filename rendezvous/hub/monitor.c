/* monitor.c -- see monitor.h. A node's first report contains all findings, and its later reports contain only new
 * findings. A finding is new if its digest was not reported yet. The digest leaves out the sentence, because the times
 * in a sentence change with each check. */
#include "hub/monitor.h"

#include "auth/auth.h"
#include "base/text.h"
#include "diagnosis/text.h"
#include "hub/schedule.h"
#include "hub/session.h"
#include "job/rendezvous.h"

#include <ctype.h>
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- a check ------------------------------------------------------------------------------------------------ */

/* The functions that fill a snapshot. Each function allocates one array and fills it.
 *
 * Texts are borrowed, so free the snapshot before the hub processes the next message. Every array has one extra row,
 * because calloc(0) may return NULL. */

enum { WAITS_MAX = 64 }; /* maximum number of awaited keys and barriers in a snapshot */

void snapshot_free(struct job_snapshot *l)
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
    *l = (struct job_snapshot){ 0 };
}

/* --- nodes ---------------------------------------------------------------------------------------------- */

/* Compare two nodes by node rank. Do not subtract: the difference of signed node ranks may overflow. */
static int by_node_rank(const void *a, const void *b)
{
    const struct snapshot_node *x = a, *y = b;
    return (x->node_rank > y->node_rank) - (x->node_rank < y->node_rank);
}

/* Return the row of a node. All times in the row are durations, so that a diagnosis needs no clock. */
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
        .silent_ms = now_ms - f->last_received_ms,
    };
}

/* Return true if a diagnosis counts the node as present: the node waits, or takes part in a round. A node that has
 * received the verdict, or has not joined again after a restart, is absent. */
static bool counts(const struct rdzv_node_facts *f)
{
    return f->state != RDZV_NODE_FINISHED && f->state != RDZV_NODE_RESTING;
}

/* Fill in the present nodes, sorted by node rank for the binary search in diagnosis/text.c. `facts->nodes` is an
 * upper bound of their number. */
static bool check_nodes(const struct job *job, const struct rdzv_facts *facts, struct job_snapshot *l)
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

/* Fill in the departures of nodes, the latest first. A node may have several rows. A diagnosis uses the first of these
 * rows, which shows the node's latest departure. */
static bool check_gone(const struct job *job, const struct rdzv_facts *facts, struct job_snapshot *l)
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

/* Return the phase for a state. The states LAST_CALL and BACKING_OFF count as PHASE_GATHERING, too. */
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

/* Fill in the cause that ended the last round. Do nothing if a new round already runs. */
static void check_cause(const struct rdzv_facts *facts, struct snapshot *s)
{
    const struct rdzv_cause *cause = facts->cause;
    if (cause == NULL || facts->state == RDZV_RUNNING)
        return;
    s->cause = (struct snapshot_cause){ .known = true,
                                        .host = cause->failure.host,
                                        .words = cause->failure.words,
                                        .node_rank = cause->failure.node_rank,
                                        .rank = cause->failure.rank,
                                        .pid = cause->failure.pid,
                                        .error = cause->failure.error,
                                        .after_ms = cause->failure.after_ms };
}

/* Fill in the state of the rendezvous, with durations instead of times. */
static bool check_rendezvous(const struct job *job, struct job_snapshot *l)
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
    s->left_ms = facts.gather_ms == UINT64_MAX ? UINT64_MAX
                 : facts.gather_ms > now_ms    ? facts.gather_ms - now_ms
                                               : 0;
    if (facts.state == RDZV_BACKING_OFF || facts.state == RDZV_LAST_CALL)
        s->pause_ms = facts.deadline_ms > now_ms ? facts.deadline_ms - now_ms : 0;
    s->returning = facts.returning;
    if (s->phase == PHASE_GATHERING)
        s->limit_ms = facts.join_timeout_ms;
    s->knob = facts.join_knob;
    check_cause(&facts, s);
    return check_nodes(job, &facts, l) && check_gone(job, &facts, l);
}

/* --- rejected nodes ------------------------------------------------------------------------------------- */

/* Fill in the rejected nodes. If the hub serves only one job, include nodes that requested another job, probably by
 * a mistyped --rdzv_id. */
static bool check_refused(const struct job *job, struct job_snapshot *l)
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
                                                     .addr = r->addr,
                                                     .node_rank = r->node_rank,
                                                     .pid = r->pid,
                                                     .times = r->times,
                                                     .ago_ms = job->hub->now_ms - r->last_ms };
    }
    l->snapshot.refused = l->refused;
    l->snapshot.n_refused = n;
    return l->refused != NULL;
}

/* Format the first bytes of a connection as quoted text. If a byte is not printable, format all bytes as hex, because
 * control characters must not reach a terminal. If the client has sent no bytes, return "none". */
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

/* Add plain PyTorch clients while no worker runs: such a client is probably a torchrun on another node. */
static void add_bare_clients(const struct job *job, struct rejects *all)
{
    LIST_EACH(node, &job->sessions)
    {
        const struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->role == ROLE_PLAIN && s->has_spoken)
            rejects_note(
                all,
                &(struct reject_facts){ .peer = s->peer, .why = "", .first = slice_of(s->first, s->n_first) },
                s->last_received_ms);
    }
}

/* Return true if the job `name` belongs to the tenant of `job`. A tenant must not see the job names of another
 * tenant. */
static bool is_same_tenant(const struct job *job, const char *name)
{
    const struct secret *first = job->hub->limits.secret;
    return auth_secret_of(first, name) == auth_secret_of(first, job->name);
}

/* Fill in the foreign clients: the hub's rejected clients, and connected clients that have sent nothing. */
static bool check_strangers(const struct job *job, struct job_snapshot *l)
{
    struct rejects *all = l->rejects = hub_all_rejects(job->hub);
    uint32_t n = 0;
    if (all == NULL)
        return false;
    if (l->snapshot.phase == PHASE_GATHERING)
        add_bare_clients(job, all);
    l->strangers = calloc(all->count + 1, sizeof(*l->strangers));
    l->bytes = calloc(all->count + 1, sizeof(*l->bytes));
    for (uint32_t i = 0; l->strangers != NULL && l->bytes != NULL && i < all->count; i++) {
        const struct reject *r = &all->row[i];
        if (r->job[0] != '\0' && !is_same_tenant(job, r->job))
            continue;
        l->strangers[n++] =
            (struct snapshot_stranger){ .kind = r->kind,
                                        .address = r->source,
                                        .bytes = print_first(l->bytes[i], sizeof(l->bytes[i]), r),
                                        .job = r->job,
                                        .times = r->times,
                                        .ago_ms = job->hub->now_ms - r->last_ms };
    }
    l->snapshot.strangers = l->strangers;
    l->snapshot.n_strangers = n;
    return l->strangers != NULL && l->bytes != NULL;
}

/* Append the findings that nodes or ranks have reported about themselves. The caller has allocated the rows. */
static void add_notices(const struct notices *notices, struct job_snapshot *l)
{
    for (uint32_t i = 0; i < notices->count; i++) {
        const struct finding *f = &notices->list[i].finding;
        l->notices[l->snapshot.n_notices++] = (struct snapshot_notice){
            .code = f->code, .subject = f->subject, .sentence = f->sentence, .advice = f->advice
        };
    }
}

static bool check_notices(const struct job *job, struct job_snapshot *l)
{
    l->notices = calloc(job->notices.count + job->troubles.count + 1, sizeof(*l->notices));
    l->snapshot.notices = l->notices;
    if (l->notices == NULL)
        return false;
    add_notices(&job->notices, l);
    add_notices(&job->troubles, l);
    return true;
}

/* --- waiters and their keys ----------------------------------------------------------------------------- */

/* Return the row of a key or barrier, which may be new. Return NULL if all rows are used. */
static struct snapshot_wait *wait_named(struct job_snapshot *l, struct slice name, bool is_barrier)
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

/* Add a waiting session to a row. A session that waits for several keys is counted only for the first key. The row
 * shows the longest wait. */
static void add_waiter(struct job_snapshot *l, const struct session *s, uint64_t now_ms)
{
    struct slice name;
    const bool in_barrier = s->barrier_waiter.barrier != NULL;
    struct snapshot_wait *wait =
        facts_waits_by(s) != NULL && facts_awaited(s, 0, &name) ? wait_named(l, name, in_barrier) : NULL;
    if (wait == NULL)
        return;
    if (wait->waiting++ == 0)
        wait->rank = list_is_empty(&s->by_rank) ? UINT32_MAX : s->rank;
    if (now_ms - s->waits_since_ms > wait->for_ms)
        wait->for_ms = now_ms - s->waits_since_ms;
    wait->barrier = s->barrier_waiter.barrier;
    if (in_barrier)
        wait->members = wait->barrier->members;
}

/* Add all waits of the job to the snapshot. Sessions that wait for the same key share a row, so WAITS_MAX rows are
 * enough for every diagnosis. */
static bool check_waits(const struct job *job, struct job_snapshot *l)
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

/* Return the state of the watch for hangs. Leave out the samples if `compares` is false. In this case, the present
 * suspicion has fewer than two samples, and the kept samples may belong to an older suspicion. */
static struct snapshot_hang hang_of(const struct job *job, bool compares)
{
    const struct job_hang *hang = &job->hang;
    const struct hang_watch *watch = &hang->watch;
    struct snapshot_hang out = { .still_ms = job->hub->now_ms - watch->moved_ms,
                                 .due_ms = watch->due_ms > 0 ? watch->due_ms - watch->moved_ms : 0,
                                 .has_signals = watch->has_signals,
                                 .in_vain = watch->compared,
                                 .why_not = hang->why_not };
    if (!watch->runs)
        return (struct snapshot_hang){ 0 };
    if (!compares)
        return out;
    for (int i = 0; i < 2; i++) {
        out.rows[i] = hang->rows[i];
        out.calls[i] = hang->calls[i];
    }
    out.history = hang->history;
    out.apart_ms = hang->rows_ms[1] - hang->rows_ms[0];
    return out;
}

/* Fill in the ranks in PHASE_RUNNING, if the ranks are known. In other phases, leave the list empty. diagnose_job does
 * not check the ranks in these phases, and filling in 100,000 ranks takes time. */
static bool check_ranks(struct job *job, struct job_snapshot *l)
{
    const uint32_t n = job->members.known && l->snapshot.phase == PHASE_RUNNING ? job->members.world_size : 0;
    l->ranks = calloc((size_t)n + 1, sizeof(*l->ranks));
    for (uint32_t rank = 0; l->ranks != NULL && rank < n; rank++)
        snapshot_of_rank(job, rank, &l->ranks[rank]);
    l->snapshot.ranks = l->ranks;
    l->snapshot.n_ranks = n;
    return l->ranks != NULL;
}

/* --- the whole snapshot --------------------------------------------------------------------------------- */

static void check_store(const struct hub *hub, struct snapshot *s)
{
    s->store = (struct snapshot_store){ .host = hub->limits.host,
                                        .endpoint = hub->limits.endpoint,
                                        .accept_overflows = hub->counter[HUB_ACCEPT_OVERFLOWS],
                                        .somaxconn = hub->counter[HUB_SOMAXCONN],
                                        .refused_no_fd = hub->counter[HUB_REFUSED_NO_FD],
                                        .open_files = hub->counter[HUB_OPEN_FILES],
                                        .used = hub->quota.used,
                                        .max = hub->quota.max };
}

/* Take a snapshot. In a job without agents, only the ranks are known. If memory is short, return false and an empty
 * snapshot. A diagnosis of an incomplete snapshot would report missing rows as missing nodes. */
bool snapshot_job(struct job *job, struct job_snapshot *l)
{
    *l = (struct job_snapshot){ .snapshot = { .job = job->name,
                                              .knob = "--timeout",
                                              .left_ms = UINT64_MAX,
                                              .phase = job->members.known ? PHASE_RUNNING : PHASE_GATHERING,
                                              .world_size = job->members.world_size } };
    check_store(job->hub, &l->snapshot);
    if ((job->rdzv == NULL || check_rendezvous(job, l)) && check_refused(job, l) && check_strangers(job, l) &&
        check_notices(job, l) && check_waits(job, l) && check_ranks(job, l) &&
        torch_surplus(job, &l->snapshot, &l->claims)) {
        l->snapshot.profile = &job->profile.counts;
        l->snapshot.hang = hang_of(job, hang_watch_compares(&job->hang.watch));
        return true;
    }
    snapshot_free(l);
    return false;
}

/* --- findings ------------------------------------------------------------------------------------------------ */

/* All current findings, and those that were not reported yet. The functions that need this struct allocate it on the
 * heap, because it has 36 KB. */
struct findings_now {
    struct diagnosis all, news;
    uint64_t digest[DIAGNOSIS_MAX]; /* digest of each finding in `all`; 0 if the finding causes no report */
    bool trouble;                   /* `all` contains a warning or an error */
};

/* --- which findings are new ----------------------------------------------------------------------------- */

/* Return the digest of a finding, or 0 if the finding causes no report. The digest covers the code and the subject. If
 * the finding counts missing nodes, the digest covers only the code, because a change of the missing nodes alone must
 * cause no report. */
static uint64_t digest_of(const struct finding *f)
{
    /* Notes cause no report. FOREIGN_CLIENT is an exception, because a foreign client may be a node that was started
     * with wrong options. */
    if (!finding_is_trouble(f->code) && f->code != FINDING_FOREIGN_CLIENT)
        return 0;
    const char *code = finding_code_name(f->code);
    const uint64_t digest = hash_bytes(HASH_START, code, strlen(code));
    return finding_is_count(f->code) ? digest : hash_bytes(digest, f->subject, strlen(f->subject));
}

/* Return true if a finding with this digest was reported in the present wait. */
static bool was_reported(const struct schedule_state *w, uint64_t digest)
{
    for (uint32_t i = 0; i < w->n_reported && i < SCHEDULE_REPORTED_MAX; i++)
        if (w->reported[i] == digest)
            return true;
    return false;
}

/* Select the new findings. Select nothing if all current findings are notes, because notes alone need no action. */
static void sort_out(const struct schedule_state *w, struct findings_now *now)
{
    now->trouble = false;
    now->news.n = 0;
    for (uint32_t i = 0; i < now->all.n; i++) {
        const struct finding *f = &now->all.list[i];
        now->digest[i] = digest_of(f);
        now->trouble = now->trouble || finding_is_trouble(f->code);
        if (now->digest[i] != 0 && !was_reported(w, now->digest[i]))
            now->news.list[now->news.n++] = *f;
    }
    if (!now->trouble)
        now->news.n = 0;
}

/* Keep only the digests of the current findings. So a finding that disappears and returns is reported again. */
static void keep(struct schedule_state *w, const struct findings_now *now)
{
    w->n_reported = 0;
    for (uint32_t i = 0; now->trouble && i < now->all.n; i++)
        if (now->digest[i] != 0)
            w->reported[w->n_reported++] = now->digest[i];
}

/* --- messages ------------------------------------------------------------------------------------------- */

/* Create the JSON object of a push "findings". `is_final` is true for the last report before the job fails. */
static cJSON *begin_push(bool is_final)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "findings");
    cJSON_AddBoolToObject(o, "final", is_final);
    return o;
}

/* Convert the push to text, and free the object. Return NULL if memory is short now, or was short when the push was
 * built (`whole` is false). The caller frees the text (cJSON_free). */
static char *end_push(cJSON *o, bool whole)
{
    char *text = whole ? cJSON_PrintUnformatted(o) : NULL;
    cJSON_Delete(o);
    return text;
}

/* A report and its two texts: all findings, and only the new findings. Each text is formatted when the first node needs
 * it, and is then reused for other nodes. report_findings() frees the texts. */
struct report_texts {
    const struct snapshot *s;
    const struct findings_now *now;
    char *all, *news; /* owned; NULL if the text is not formatted yet, or if memory is short */
};

/* Return the text with all findings, or NULL if memory is short. */
static const char *all_of(struct report_texts *t)
{
    if (t->all == NULL) {
        cJSON *o = begin_push(t->s->is_final);
        t->all = end_push(o, diagnosis_add_text(o, t->s, &t->now->all));
    }
    return t->all;
}

/* Return the text with the new findings, or NULL if there is no new finding. */
static const char *news_of(struct report_texts *t)
{
    const struct findings_now *now = t->now;
    if (t->news == NULL && now->news.n > 0) {
        cJSON *o = begin_push(false);
        t->news = end_push(o, diagnosis_add_news(o, t->s, &now->news, now->all.n - now->news.n));
    }
    return t->news;
}

static void push(struct hub *hub, struct session *s, const char *text)
{
    if (text != NULL)
        hub_push_text(hub, s, slice_str(text));
}

/* Return true if both the job and this node have waited long enough for a first report. */
static bool has_waited(const struct session *s, const struct snapshot *now, uint64_t now_ms)
{
    return now->waited_ms >= schedule[SITUATION_NODES_MISSING].first_ms &&
           now_ms - s->as_node->joined_ms >= schedule[SITUATION_NODES_MISSING].first_ms;
}

/* Return true if the node must now receive all findings, because this is the last report before the job fails, or the
 * first report to the node in the present wait. If the function returns false, the node receives only new findings. A
 * node that joins late gets its first report when the next new finding is reported. If there is no new finding, the
 * node gets its first report when it has waited long enough itself. */
static bool gets_all(const struct job *job, const struct session *s, const struct report_texts *t)
{
    const bool got_all = s->as_node->reported_wait == job->watch.wait;
    return t->s->is_final || (!got_all && (t->now->news.n > 0 || has_waited(s, t->s, job->hub->now_ms)));
}

/* Send a report to the nodes of the job, including spare nodes, which wait for the next round. If gets_all() is true, a
 * node gets all findings. Otherwise, a node that has had its first report in the present wait gets the new findings, if
 * there are any. All other nodes get nothing. */
static void send_report(struct job *job, struct report_texts *t)
{
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (!s->is_node)
            continue;
        if (gets_all(job, s, t)) {
            s->as_node->reported_wait = job->watch.wait;
            push(job->hub, s, all_of(t));
        } else if (s->as_node->reported_wait == job->watch.wait) {
            push(job->hub, s, news_of(t));
        }
    }
}

/* Record that a hang is reported to the nodes. Do nothing if `d` contains no finding about a hang. */
static void note_reported(struct job_hang *hang, const struct diagnosis *d)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (finding_names_hang(d->list[i].code, FINDING_NONE)) {
            hang->is_reported = true;
            hang->resumed_ms = 0;
        }
}

/* Report findings to the nodes and to the event log. The event log gets the new findings, or all findings if this
 * is the final report. */
static void report_findings(struct job *job, const struct snapshot *s, const struct findings_now *now)
{
    const struct diagnosis *log = s->is_final ? &now->all : &now->news;
    struct report_texts t = { .s = s, .now = now };
    send_report(job, &t);
    note_reported(&job->hang, &now->all);
    for (uint32_t i = 0; i < log->n; i++)
        events_finding(job, &log->list[i]);
    cJSON_free(t.all);
    cJSON_free(t.news);
}

/* Format a push that contains the findings of `d` and the line of `f`. The nodes print this line. If `f` is NULL, they
 * print nothing. The caller frees the text (cJSON_free). Return NULL if memory is short. */
static char *format_line(const struct diagnosis *d, const struct finding *f)
{
    cJSON *o = begin_push(false);
    const bool whole = f != NULL ? diagnosis_add_line(o, f) : cJSON_AddStringToObject(o, "text", "") != NULL;
    return end_push(o, whole && diagnosis_add_findings(o, d));
}

/* Send the i-th finding as a separate line to all nodes. The node with the id `silent` gets the finding without a line
 * to print. If `silent` is 0, all nodes get the line. */
static void report_line(struct job *job, const struct diagnosis *d, uint32_t i, uint64_t silent)
{
    static const struct diagnosis none;
    const struct diagnosis *findings = i + 1 == d->n ? d : &none;
    char *text = format_line(findings, &d->list[i]);
    char *bare = silent != 0 && findings == d ? format_line(d, NULL) : NULL;
    note_reported(&job->hang, d);
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->is_node)
            push(job->hub, s, s->id == silent ? bare : text);
    }
    cJSON_free(text);
    cJSON_free(bare);
}

static void report_missing(struct job *job, const struct snapshot *s, struct findings_now *now)
{
    diagnose_job(s, &now->all);
    sort_out(&job->watch, now);
    if (s->is_final || now->trouble)
        report_findings(job, s, now);
    keep(&job->watch, now);
}

/* Add the digests of new findings and keep the earlier digests. So a rank that alternates between two findings causes
 * only two reports. */
static void keep_more(struct schedule_state *w, const struct findings_now *now)
{
    for (uint32_t i = 0; i < now->all.n; i++)
        if (now->digest[i] != 0 && !was_reported(w, now->digest[i]))
            w->reported[w->n_reported++ % SCHEDULE_REPORTED_MAX] = now->digest[i];
}

/* Report the new findings about running ranks. Unlike report_missing(), do not repeat a finding that disappears and
 * then returns. */
static void report_news(struct job *job, const struct snapshot *s, struct findings_now *now)
{
    sort_out(&job->watch, now);
    if (now->news.n > 0)
        report_findings(job, s, now);
    keep_more(&job->watch, now);
}

/* Report PyTorch's ranks that have waited at least as long as schedule_torch_limit(). Report a foreign process in a
 * PyTorch group immediately. */
static void report_torch(struct job *job, const struct snapshot *s, struct findings_now *now)
{
    const uint64_t waited_ms = diagnose_torch_waits(s);
    const bool is_due =
        diagnose_torch_surplus(s) || (waited_ms > 0 && waited_ms >= schedule_torch_limit(&job->watch));
    schedule_torch_seen(job, waited_ms, is_due);
    if (!is_due)
        return;
    diagnose_job(s, &now->all);
    report_news(job, s, now);
    if (diagnose_torch_surplus(s))
        job->meets.repeated = 0; /* the report above has listed the processes that claim the same rank */
}

/* Return true if the finding can identify a wait that repeats. Such a finding must have a digest (digest_of). A finding
 * about a barrier cannot identify a wait, because programs often use a new name for each barrier. */
static bool identifies_wait(const struct finding *f)
{
    return digest_of(f) != 0 && f->code != FINDING_BARRIER_INCOMPLETE;
}

/* Return true if a signal has stopped the process of a rank. */
static bool has_stopped_rank(const struct snapshot *s)
{
    for (uint32_t i = 0; i < s->n_ranks; i++)
        if (s->ranks[i].proc_state == 'T' && !s->ranks[i].exited)
            return true;
    return false;
}

/* Return true if the same ranks have waited before in this round, for a similar time. Such a wait is usual and causes
 * no report. For example, the other ranks wait while rank 0 tests the model after each epoch. */
static bool is_usual_wait(const struct job *job, const struct snapshot *s, const struct diagnosis *d,
                          uint64_t waited_ms)
{
    if (!schedule_is_usual(&job->watch, waited_ms) || has_stopped_rank(s))
        return false;
    for (uint32_t i = 0; i < d->n; i++)
        if (identifies_wait(&d->list[i]) && !schedule_knows(&job->watch, digest_of(&d->list[i])))
            return false;
    return true;
}

/* Report ranks that do not move while other ranks wait for them. Do not report a usual wait (is_usual_wait). */
static void report_still(struct job *job, const struct snapshot *s, struct findings_now *now)
{
    const uint64_t in_call_ms = diagnose_still_waits(s), in_barrier_ms = diagnose_barrier_waits(s);
    const uint64_t waited_ms = in_call_ms > in_barrier_ms ? in_call_ms : in_barrier_ms;
    bool is_due = diagnose_stands_still(s, schedule[SITUATION_STANDS_STILL].first_ms) ||
                  diagnose_barrier_hangs(s, schedule[SITUATION_STANDS_STILL].first_ms);
    if (is_due) {
        diagnose_job(s, &now->all);
        is_due = !is_usual_wait(job, s, &now->all, waited_ms);
    }
    schedule_still_seen(job, waited_ms, is_due);
    if (!is_due)
        return;
    report_news(job, s, now);
    for (uint32_t i = 0; i < now->all.n; i++)
        if (identifies_wait(&now->all.list[i]))
            schedule_learn(&job->watch, digest_of(&now->all.list[i]));
}

/* Return the index of the first finding that note() prints. note() prints all findings about translated addresses,
 * because each of them is about a different node. For every other code, note() prints only the last finding. */
static uint32_t first_line(const struct diagnosis *d, enum finding_code code)
{
    return code == FINDING_ADDRESS_TRANSLATED ? 0 : d->n - 1;
}

/* Report the findings with this code, each as a separate line. */
static void note(struct job *job, const struct snapshot *s, struct diagnosis *d, enum finding_code code)
{
    diagnose_job(s, d);
    for (uint32_t i = diagnosis_keep(d, code) ? first_line(d, code) : d->n; i < d->n; i++)
        report_line(job, d, i, 0);
}

/* --- stopped ranks ------------------------------------------------------------------------------------------- */

/* Report each stopped rank once per stop. main_wait() returns the key or barrier that most ranks wait for. Skip a
 * stopped rank that these waiting ranks may need (is_needed), because the report about their wait names the stopped
 * rank. */
static void report_stopped(struct job *job, const struct snapshot *s, struct diagnosis *d)
{
    const struct snapshot_wait *most = main_wait(s);
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const struct snapshot_rank *f = &s->ranks[i];
        struct member *member = members_at(&job->members, i);
        if (member->stop_reported || (most != NULL && is_needed(most, i)) ||
            !diagnose_is_stopped(f, schedule[SITUATION_RANK_STOPPED].first_ms / 2))
            continue;
        member->stop_reported = true;
        d->n = 1;
        diagnose_rank(f, &d->list[0]);
        /* If the state is T, the rank's own agent has already printed a line about the stop, so this agent gets the
         * finding without a line. */
        report_line(job, d, 0, f->proc_state == 'T' ? rdzv_node_of_rank(job->rdzv, i) : 0);
        events_finding(job, &d->list[0]);
    }
}

/* --- ranks that two processes claim -------------------------------------------------------------------------- */

/* Report that two processes act as one rank. Do nothing if an earlier report has already listed these processes. */
void monitor_report_repeated(struct job *job)
{
    words who, time;
    struct diagnosis *d = job->meets.repeated != 0 ? calloc(1, sizeof(*d)) : NULL;
    if (d == NULL)
        return;
    d->n = 1;
    snprintf(who, sizeof(who), "rank %u", job->meets.repeated - 1);
    finding_make(&d->list[0], FINDING_RANK_REPEATED, who, "time",
                 duration(time, job->hub->now_ms - job->meets.repeated_ms), NULL);
    report_line(job, d, 0, 0);
    events_finding(job, &d->list[0]);
    job->meets.repeated = 0;
    free(d);
}

/* --- hangs ------------------------------------------------------------------------------------------------- */

/* Return true while a round runs. */
static bool is_running(const struct job *job)
{
    struct rdzv_facts facts;
    if (job->rdzv == NULL)
        return false;
    rdzv_facts(job->rdzv, &facts);
    return facts.state == RDZV_RUNNING;
}

/* Return true if the processes of all ranks use a CPU (state R). If the round has not shown a sign of progress yet,
 * such a job is not suspected to hang. */
static bool all_compute(struct job *job)
{
    for (uint32_t rank = 0; rank < job->members.world_size; rank++)
        if (job->members.member[rank].proc_state != 'R' || job->members.member[rank].exited)
            return false;
    return true;
}

/* Return true if --on_hang ends a round that hangs. */
static bool may_act(const struct job *job)
{
    return strcmp(job->hang.action, "stop") == 0 || strcmp(job->hang.action, "restart") == 0;
}

/* Stop the round after a hang if --on_hang is "stop" or "restart". */
static void act_on_hang(struct job *job, const struct finding *f)
{
    const bool stops = strcmp(job->hang.action, "stop") == 0;
    struct failure *failure = may_act(job) ? calloc(1, sizeof(*failure)) : NULL;
    if (failure == NULL)
        return;
    text_copy(failure->code, sizeof(failure->code), finding_code_name(f->code));
    text_copy(failure->no_retry, sizeof(failure->no_retry), stops ? no_restart_word(NO_RESTART_HANGS) : "");
    text_copy(failure->words, sizeof(failure->words), f->sentence);
    rdzv_hangs(job->rdzv, failure, job->hub->now_ms);
    free(failure);
}

/* Return true if the present wait of the ranks was already reported. */
static bool is_reported(const struct job *job)
{
    return job->watch.still_reported || job->watch.torch_reported;
}

/* Return true if the cause of this finding was already reported. For RANK_STOPPED, check whether the stop of `rank`
 * was reported. For other findings, check whether the present wait was reported. */
static bool is_known(const struct job *job, const struct finding *f, int64_t rank)
{
    if (f->code == FINDING_RANK_STOPPED)
        return members_at(&job->members, (uint32_t)rank)->stop_reported;
    return is_reported(job);
}

/* Report the finding `f`. If `rank` is -1, the finding is only a hint, and the round goes on. Otherwise `rank` hangs,
 * and the round ends if --on_hang is "stop" or "restart". */
static void report_hang(struct job *job, const struct snapshot *s, struct findings_now *now,
                        const struct finding *f, int64_t rank)
{
    if (!is_known(job, f, rank)) {
        job->watch.wait++;
        job->watch.n_reported = 0;
        diagnose_job(s, &now->all);
        report_news(job, s, now);
    }
    if (rank >= 0)
        act_on_hang(job, f);
}

/* Find the rank that the other ranks wait for, and store a finding about this rank in `d`. First compare the stacks. If
 * the stacks give no verdict, compare the steps that libddp reports. For a C program, only the steps can give a
 * verdict, because stacks without line numbers give none. If the stacks gave the verdict, return the rank. If the steps
 * gave the verdict, return 0, which is not the rank. Return -1 if there is no verdict. */
static int64_t find_verdict(const struct snapshot *s, struct diagnosis *d)
{
    const int64_t rank = diagnose_hang(d, s);
    if (rank >= 0 || !diagnose_stands_still(s, schedule[SITUATION_STANDS_STILL].first_ms))
        return rank;
    diagnose_job(s, d);
    return diagnosis_keep(d, FINDING_RANK_STALLED) ? 0 : -1;
}

/* Return 1 + the rank that should set the missing key, or 0 if this rank is unknown.
 *
 * If the last number in a key is a rank, each rank sets the key with its own number. So the number in the missing key
 * is taken as a rank if all other ranks have set the key with their numbers. But the number may also be an epoch. Then
 * the keys of all earlier epochs exist, and the key of the next epoch is missing. If the number in the missing key is
 * the highest rank, the store cannot distinguish the two cases, so never return the highest rank. */
static uint32_t expected_setter(const struct job *job, struct slice key)
{
    enum { WORLD_MAX = 4096 }; /* larger jobs are not checked, because a check looks up a key for each rank */
    const char *text = key.data;
    const uint32_t world = job->members.world_size;
    size_t end = key.len;
    uint32_t mine = 0;
    while (end > 0 && !isdigit((unsigned char)text[end - 1]))
        end--;
    size_t begin = end;
    while (begin > 0 && isdigit((unsigned char)text[begin - 1]))
        begin--;
    for (size_t i = begin; i < end && mine < WORLD_MAX; i++)
        mine = mine * 10 + (uint32_t)(text[i] - '0');
    bool found = begin < end && mine + 1 < world && world <= WORLD_MAX;
    for (uint32_t rank = 0; found && rank < world; rank++) {
        struct buf name = { 0 };
        found = rank == mine || (buf_append(&name, text, begin) && buf_printf(&name, "%u", rank) &&
                                 buf_append(&name, text + end, key.len - end) &&
                                 store_get(job->store, buf_slice(&name)).len > 0);
        buf_free(&name);
    }
    return found ? mine + 1 : 0;
}

/* Find the verdict (find_verdict). If the verdict names a rank that waits for a key, find the rank that should set this
 * key, and call find_verdict again with this fact. Do not repeat this, because expected_setter() is slow: it looks up
 * one key for each rank. */
static int64_t find_verdict_and_setter(const struct job *job, struct job_snapshot *l, struct diagnosis *d)
{
    const int64_t rank = find_verdict(&l->snapshot, d);
    if (rank < 0 || d->n == 0 || d->list[0].code != FINDING_RANK_NEEDS_KEY)
        return rank;
    l->ranks[rank].waits.setter = expected_setter(job, l->ranks[rank].waits.name);
    d->n = 0;
    return find_verdict(&l->snapshot, d);
}

void monitor_diagnose(const struct job *job, struct job_snapshot *l, struct diagnosis *d)
{
    d->n = d->left_out = 0;
    (void)find_verdict_and_setter(job, l, d);
    diagnose_job(&l->snapshot, d);
}

/* Return why a suspicion has ended without a verdict. `rank` and `digest` are the results of the last comparison. */
static const char *why_in_vain(const struct job_hang *hang, const struct snapshot *s, int64_t rank,
                               uint64_t digest)
{
    if (rank < 0)
        return hang_why_not(s);
    return hang->watch.hint == digest ? "the flight records of some ranks are missing"
                                      : "two comparisons of samples named different ranks or causes";
}

/* Compare the last two samples, and report a hang or a hint. If the samples give no verdict, add the finding with the
 * reason to job->notices, which `ddpctl why` prints. If flight records are missing, ALL_RANKS_WAIT is only a hint,
 * because a late record may still name the rank that hangs. But if --on_hang is "stop" or "restart", ALL_RANKS_WAIT is
 * always a verdict, so that the round ends. */
static void compare_samples(struct job *job, struct job_snapshot *l, struct findings_now *now)
{
    struct job_hang *hang = &job->hang;
    const int64_t rank = find_verdict_and_setter(job, l, &now->news);
    const struct finding verdict = now->news.list[0];
    const bool is_hint = rank < 0 && now->news.n > 0 && verdict.code == FINDING_RANK_STATE_DIFFERS;
    const bool sleeps = verdict.code == FINDING_RANK_SLEEPS || verdict.code == FINDING_RANK_BLOCKED;
    const struct hang_verdict sampled = {
        .digest = rank >= 0 || is_hint ? digest_of(&verdict) : 0,
        .is_certain = !is_hint && (may_act(job) || verdict.code != FINDING_ALL_RANKS_WAIT ||
                                   !hang_lacks_records(&l->snapshot)),
        .wakes = rank >= 0 && sleeps &&
                 (l->snapshot.hang.apart_ms < HANG_APART_MS / 2 || hang_wakes(&l->snapshot, (uint32_t)rank)),
    };
    if (rank < 0)
        monitor_report_repeated(job);
    if (rank < 0 && !is_hint && now->news.n > 0)
        notices_add(&job->notices, NOTICE_OF_STORE, finding_code_name(verdict.code), verdict.subject,
                    verdict.sentence, verdict.advice);
    const uint32_t before = hang->watch.compared;
    const bool reports = hang_watch_sampled(&hang->watch, sampled, job->hub->now_ms);
    if (hang->watch.compared != before)
        hang->why_not = why_in_vain(hang, &l->snapshot, rank, sampled.digest);
    if (reports)
        report_hang(job, &l->snapshot, now, &verdict, rank);
}

/* Add the last sample to the history, and compare it with the previous sample. The first sample of a suspicion is only
 * counted, because a verdict needs two samples. */
static void evaluate_sample(struct job *job)
{
    struct job_snapshot l;
    struct job_hang *hang = &job->hang;
    struct findings_now *now = calloc(1, sizeof(*now));
    if (now == NULL || !snapshot_job(job, &l)) {
        free(now);
        hang_watch_skip(&hang->watch, job->hub->now_ms);
        return;
    }
    l.snapshot.hang = hang_of(job, true);
    hang_history_add(&hang->history, &l.snapshot);
    /* The history shows ranks that loop through several functions. A long evaluation of the model looks like such a
     * loop. So the history is used only with --hang_timeout, which also limits the length of an evaluation. */
    l.snapshot.hang.history = hang->watch.limit_ms > 0 ? hang->history : NULL;
    if (hang->watch.samples == 0)
        (void)hang_watch_sampled(&hang->watch, (struct hang_verdict){ 0 }, job->hub->now_ms);
    else
        compare_samples(job, &l, now);
    snapshot_free(&l);
    free(now);
}

/* Drop one of the two kept samples, and add the new sample (`fresh`) as the later sample. Normally, drop the older
 * sample. If hang->watch.retries is set, drop the later sample instead, because this sample gave no verdict or lacked
 * flight records. */
static void begin_sample(struct job *job)
{
    struct job_hang *hang = &job->hang;
    const int at = hang->watch.retries ? 1 : 0;
    cJSON_Delete(hang->rows[at]);
    cJSON_Delete(hang->calls[at]);
    if (at == 0) {
        hang->rows[0] = hang->rows[1];
        hang->calls[0] = hang->calls[1];
        hang->rows_ms[0] = hang->rows_ms[1];
    }
    hang->rows[1] = hang->fresh;
    hang->calls[1] = hang->fresh_calls;
    hang->rows_ms[1] = job->hub->now_ms;
    hang->fresh = hang->fresh_calls = NULL;
    evaluate_sample(job);
}

/* Check the present wait of the ranks again, and return true if it was already reported. The scheduled checks are up to
 * 30 s apart, so a reported wait may have ended meanwhile. The new check may send a report. */
static bool is_reported_now(struct job *job)
{
    struct job_snapshot l;
    struct findings_now *now = is_reported(job) ? calloc(1, sizeof(*now)) : NULL;
    if (now != NULL && snapshot_job(job, &l)) {
        report_torch(job, &l.snapshot, now);
        report_still(job, &l.snapshot, now);
        snapshot_free(&l);
    }
    free(now);
    return is_reported(job);
}

/* Process a sample that has arrived, or request a sample that is due. In two cases, end the suspicion instead of
 * requesting a sample:
 *
 *   - The present wait was already reported, and --on_hang does not end the round (may_act).
 *   - All ranks compute, and the round has not yet shown a sign of progress. */
static void run_hang(struct job *job)
{
    struct hang_watch *w = &job->hang.watch;
    const bool is_due = hang_watch_due(w, job->hub->now_ms);
    if (!is_due && job->hang.fresh == NULL)
        return;
    if (!is_running(job))
        schedule_attempt(job, false);
    else if (job->hang.fresh != NULL)
        begin_sample(job);
    else if ((is_reported_now(job) && !may_act(job)) || (!w->has_signals && all_compute(job)))
        hang_watch_skip(w, job->hub->now_ms);
    else
        job->hang.asks = true;
}

/* Return true if a reported hang continues although some ranks have made progress. The hang continues while a rank is
 * stopped, or while a reported wait lasts. */
static bool hang_continues(const struct job *job, const struct snapshot *s)
{
    for (uint32_t i = 0; i < s->n_ranks; i++)
        if (diagnose_is_stopped(&s->ranks[i], schedule[SITUATION_RANK_STOPPED].first_ms / 2))
            return true;
    return is_reported(job);
}

/* Send all nodes a push without findings, because the hang is over. */
static void report_over(struct job *job)
{
    static const struct diagnosis none;
    struct job_snapshot l;
    job->hang.is_over = false;
    job->hang.resumed_ms = 0;
    if (!is_running(job) || !snapshot_job(job, &l))
        return;
    job->hang.is_reported = hang_continues(job, &l.snapshot);
    char *text = job->hang.is_reported ? NULL : format_line(&none, NULL);
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s->is_node)
            push(job->hub, s, text);
    }
    cJSON_free(text);
    snapshot_free(&l);
}

/* --- slow ranks ---------------------------------------------------------------------------------------------- */

/* Report a slow rank in one line. */
static void report_slow(struct job *job)
{
    struct job_snapshot l;
    struct diagnosis *d = calloc(1, sizeof(*d));
    job->profile.has_news = false;
    if (d != NULL && snapshot_job(job, &l)) {
        diagnose_slow(d, &l.snapshot);
        if (d->n > 0) {
            report_line(job, d, 0, 0);
            events_finding(job, &d->list[0]);
        }
        snapshot_free(&l);
    }
    free(d);
}

/* Run all due checks. The checks of schedule_due() share one snapshot, and report nothing if memory is short. Run
 * report_missing() last: if its report is the final report, the job then fails at once. */
void monitor_run(struct job *job)
{
    run_hang(job);
    if (job->hang.is_over)
        report_over(job);
    if (job->profile.has_news)
        report_slow(job);
    const struct schedule_due due = schedule_due(job);
    struct job_snapshot l;
    if (!due.any)
        return;
    struct findings_now *now = calloc(1, sizeof(*now));
    if (now == NULL || !snapshot_job(job, &l)) {
        free(now);
        return;
    }
    l.snapshot.is_final = due.is_final;
    if (due.compares) {
        note(job, &l.snapshot, &now->all, FINDING_NPROC_UNEVEN);
        note(job, &l.snapshot, &now->all, FINDING_ADDRESS_TRANSLATED);
    }
    if (due.trouble)
        note(job, &l.snapshot, &now->all, FINDING_PORTS_CLOSED);
    if (due.stopped)
        report_stopped(job, &l.snapshot, &now->all);
    if (due.spares)
        note(job, &l.snapshot, &now->all, FINDING_NODE_IS_SPARE);
    if (due.torch)
        report_torch(job, &l.snapshot, now);
    if (due.still)
        report_still(job, &l.snapshot, now);
    if (due.nodes)
        report_missing(job, &l.snapshot, now);
    snapshot_free(&l);
    free(now);
}
