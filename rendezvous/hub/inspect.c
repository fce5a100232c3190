/* inspect.c -- the calls that only read: jobs, status, keys, waiters, barriers, rejects, why. Any client may make these
 * calls. For this reason, the calls change nothing, and do not show the jobs of other tenants. */
#include "hub/messages.h"
#include "hub/session.h"

#include "base/text.h"
#include "hub/monitor.h"
#include "diagnosis/text.h"
#include "job/rendezvous.h"
#include "diagnosis/torch_keys.h"

#include <stdlib.h>

enum {
    LIST_ROOM = 900 << 10, /* maximum printed size of all lists in an answer; an answer may have 1 MiB */
    ITEM_BYTES = 24,       /* upper bound for a printed number, or for the quotes and commas around a text */
    CONTROL_BYTES = 6,     /* upper bound for a printed control character, such as "\u0001" */
    VALUE_SHOWN = 256,     /* maximum length of a shown value, in bytes */
    KEY_SHOWN = 512,       /* maximum length of a shown key, or of a shown name of a barrier, in bytes */
    KEYS_SHOWN = 16,       /* maximum number of keys that are shown for one waiter */
    RANKS_SHOWN = 1024,    /* maximum number of ranks that are shown for one barrier */
};

/* Set the error for a call that names no job. The store cannot choose a job, because this client may use several jobs
 * or none. */
static void fail_unnamed(struct hub *hub, const struct session *s)
{
    const char *whose = s->tenant != NULL ? " with the secret of this connection" : "";
    unsigned n = 0;
    EACH_NODE(node, &hub->jobs)
    {
        n += session_may_use(hub, s, TABLE_ENTRY(node, struct job, node)->name);
    }
    if (n == 0)
        ddp_fail(&hub->err, DDP_ERR_ARG, "this store has no job%s", whose);
    else
        ddp_fail(&hub->err, DDP_ERR_ARG,
                 "this store has %u job%s%s; choose one with ddpctl --job ID, or with \"job\" in the request",
                 n, n == 1 ? "" : "s", whose);
}

/* Return the job `name`. Without a name, return the session's job. If the session has no job, return the only job that
 * the session may use. */
struct job *inspect_job(struct hub *hub, const struct session *s, const char *name)
{
    struct job *job = name != NULL ? job_find(hub, name) : s->job != NULL ? s->job : job_only(hub, s);
    if (job != NULL && !session_may_use(hub, s, job->name))
        job = NULL;
    if (job == NULL && name != NULL)
        ddp_fail(&hub->err, DDP_ERR_ARG, "no job '%s' in this store; 'ddpctl jobs' lists all jobs", name);
    else if (job == NULL)
        fail_unnamed(hub, s);
    return job;
}

/* A JSON array in the answer of a call, such as the array "jobs". An answer is one JSON object of at most 1 MiB. If a
 * row does not fit, the list ends before this row, and the answer has "cut":true. `room` limits the printed size of the
 * rows. The rows of an earlier list in the same answer count, too. */
struct listing {
    cJSON *answer, *array; /* borrowed; control_answer() frees `answer` */
    size_t bytes;          /* upper bound for the printed size of the earlier list and of the rows so far */
    size_t room;
};

/* Start a list. `answer` owns the list's array. */
static struct listing begin_list(cJSON *answer, const char *name)
{
    cJSON *array = cJSON_AddArrayToObject(answer, name);
    return (struct listing){ .answer = answer, .array = array, .room = LIST_ROOM };
}

/* Return an upper bound of the printed size of a text. JSON escapes '"' and '\\' with two bytes, and control
 * characters with at most six. */
static size_t text_bytes(const char *text)
{
    size_t bytes = 0;
    for (; *text != '\0'; text++)
        bytes += (unsigned char)*text < ' ' ? CONTROL_BYTES : *text == '"' || *text == '\\' ? 2 : 1;
    return bytes;
}

/* Return an upper bound of the printed size of an item. */
static size_t printed_bytes(const cJSON *item)
{
    size_t bytes = ITEM_BYTES;
    if (item->string != NULL)
        bytes += strlen(item->string);
    if (cJSON_IsString(item))
        bytes += text_bytes(item->valuestring);
    for (const cJSON *child = item->child; child != NULL; child = child->next)
        bytes += printed_bytes(child);
    return bytes;
}

/* Append `row` to the list, which then owns the row. `row` is NULL if memory is short. Return false and mark the answer
 * as cut if the list is full. */
static bool add_row(struct listing *list, cJSON *row)
{
    if (row == NULL)
        return false;
    list->bytes += printed_bytes(row);
    if (list->bytes <= list->room) {
        json_append(list->array, row);
        return true;
    }
    cJSON_Delete(row);
    if (!cJSON_HasObjectItem(list->answer, "cut"))
        cJSON_AddTrueToObject(list->answer, "cut");
    return false;
}

/* Add the member `name` with `bytes` as its text. A client has sent these bytes, for example as a key. The bytes may be
 * binary, so `put` makes them printable. `put` is text_append() or text_append_hex(). */
static void add_shown_bytes(cJSON *o, const char *name, struct slice bytes, size_t max,
                            bool (*put)(struct buf *out, struct slice bytes, size_t max))
{
    struct buf text = { 0 };
    if (put(&text, bytes, max) && buf_append(&text, "", 1))
        cJSON_AddStringToObject(o, name, (const char *)text.data);
    buf_free(&text);
}

/* --- jobs ----------------------------------------------------------------------------------------------- */

static uint32_t count_sessions(const struct job *job)
{
    uint32_t n = 0;
    LIST_EACH(node, &job->sessions)
    {
        n++;
    }
    return n;
}

/* Return the row of a job. Leave out attempt and world size if they are not known yet. */
static cJSON *job_row(const struct job *job)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "job", job->name);
    if (job->members.known) {
        cJSON_AddNumberToObject(row, "attempt", (double)job->members.attempt);
        cJSON_AddNumberToObject(row, "world_size", job->members.world_size);
    }
    cJSON_AddNumberToObject(row, "keys", (double)store_count(job->store));
    cJSON_AddNumberToObject(row, "connections", count_sessions(job));
    return row;
}

/* List the jobs. Skip an empty job without a name: it exists only because a hub always has at least one job. */
bool inspect_jobs(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    (void)m;
    struct listing list = begin_list(answer, "jobs");
    EACH_NODE(node, &hub->jobs)
    {
        const struct job *job = TABLE_ENTRY(node, struct job, node);
        /* an unused job exists only because a hub always has a job */
        bool unused = job->name[0] == '\0' && store_count(job->store) == 0 && list_is_empty(&job->sessions);
        if (!unused && session_may_use(hub, s, job->name) && !add_row(&list, job_row(job)))
            break;
    }
    return true;
}

/* --- status --------------------------------------------------------------------------------------------- */

static void add_counters(struct hub *hub, cJSON *answer)
{
    static const char *const names[HUB_COUNTERS] = {
        [HUB_REFUSED_NO_FD] = "refused_no_fd",       [HUB_CUT_OFF_SLOW_READER] = "cut_off_slow_reader",
        [HUB_ACCEPT_OVERFLOWS] = "accept_overflows", [HUB_SOMAXCONN] = "somaxconn",
        [HUB_OPEN_FILES] = "open_files_limit",
    };
    cJSON *counters = cJSON_AddObjectToObject(answer, "counters");
    cJSON_AddNumberToObject(counters, "requests", (double)hub->requests);
    cJSON_AddNumberToObject(counters, "closed_by_us", (double)hub->closed_by_us);
    cJSON_AddNumberToObject(counters, "rejected", (double)hub->rejects.total);
    for (int i = 0; i < HUB_COUNTERS; i++)
        cJSON_AddNumberToObject(counters, names[i], (double)hub->counter[i]);
}

/* Add the profile of a rank if the current window (PROFILE_WINDOW) has a sample of the rank. "waits" is the percentage
 * of samples in which the rank waited in a collective. "place" is the most frequent place in the code in the other
 * samples. */
static void add_profile(const struct profile *p, uint32_t rank, cJSON *row)
{
    if (rank >= p->n || p->ranks[rank].seen == 0)
        return;
    const struct profile_rank *r = &p->ranks[rank];
    cJSON_AddNumberToObject(row, "waits", 100.0 * r->waits / r->seen);
    if (profile_place(r)[0] != '\0')
        cJSON_AddStringToObject(row, "place", profile_place(r));
}

/* Add the ranks in order. If the list is cut, only the last ranks are missing. `node_bytes` is the printed size of the
 * nodes. */
static void add_members(struct job *job, cJSON *answer, size_t node_bytes)
{
    struct listing list = begin_list(answer, "members");
    bool fits = true;
    list.bytes = node_bytes;
    for (uint32_t rank = 0; fits && rank < job->members.world_size; rank++) {
        struct snapshot_rank facts;
        snapshot_of_rank(job, rank, &facts);
        cJSON *row = diagnose_json(&facts);
        add_profile(&job->profile.counts, rank, row);
        fits = add_row(&list, row);
    }
}

static uint32_t count_waiters(const struct job *job)
{
    uint32_t n = 0;
    LIST_EACH(node, &job->sessions)
    {
        n += facts_waits_by(LIST_ENTRY(node, struct session, in_job)) != NULL;
    }
    return n;
}

/* Return the row of a node. Times are sent as durations, because the reader has another clock than the store. */
static cJSON *node_row(const struct rdzv_node_facts *f, uint64_t now_ms)
{
    return message_encode_node_status(
        &(struct message_node_status){ .node_rank = f->node_rank >= 0 ? f->node_rank : MESSAGE_NONE,
                                       .host = f->host,
                                       .addr = f->addr,
                                       .pid = f->pid,
                                       .nproc = f->nproc,
                                       .state = f->is_spare ? "spare" : rdzv_node_state_word(f->state),
                                       .joined_ms = (int64_t)(now_ms - f->joined_ms),
                                       .heard_ms = (int64_t)(now_ms - f->last_received_ms) });
}

/* Add the nodes in the order in which they joined, and return their printed size. The list of nodes gets half of
 * LIST_ROOM, because the list of ranks follows. */
static size_t add_nodes(const struct job *job, cJSON *answer)
{
    struct rdzv_facts facts;
    struct rdzv_node_facts f;
    rdzv_facts(job->rdzv, &facts);
    cJSON_AddStringToObject(answer, "state", rdzv_state_word(facts.state));
    cJSON_AddNumberToObject(answer, "round", facts.round);
    cJSON_AddNumberToObject(answer, "restarts", facts.restarts);
    struct listing list = begin_list(answer, "nodes");
    list.room = LIST_ROOM / 2;
    for (uint64_t id = 0; (id = rdzv_next_node(job->rdzv, id)) != 0;)
        if (rdzv_node_facts(job->rdzv, id, &f) && !add_row(&list, node_row(&f, job->hub->now_ms)))
            break;
    return list.bytes;
}

/* Answer `status`. The lists of nodes and ranks are last, because they may be cut (add_row). */
bool inspect_status(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    struct job *job = inspect_job(hub, s, m->status.job);
    if (job == NULL)
        return false;
    if (job->name[0] != '\0')
        cJSON_AddStringToObject(answer, "job", job->name);
    if (job->members.known) {
        cJSON_AddNumberToObject(answer, "attempt", (double)job->members.attempt);
        cJSON_AddNumberToObject(answer, "world_size", job->members.world_size);
    }
    cJSON_AddNumberToObject(answer, "keys", (double)store_count(job->store));
    cJSON_AddNumberToObject(answer, "bytes", (double)hub->quota.used);
    cJSON_AddNumberToObject(answer, "max_bytes", (double)hub->quota.max);
    cJSON_AddNumberToObject(answer, "connections", hub->sessions.count);
    cJSON_AddNumberToObject(answer, "waiters", count_waiters(job));
    cJSON_AddNumberToObject(answer, "barriers", job->barriers.open_count);
    add_counters(hub, answer);
    add_members(job, answer, job->rdzv != NULL ? add_nodes(job, answer) : 0);
    return true;
}

/* --- keys ----------------------------------------------------------------------------------------------- */

/* Add a key and its value, as text if possible, otherwise as hex. A long value is cut. */
static bool add_key(struct listing *list, struct slice key, struct slice value)
{
    cJSON *row = cJSON_CreateObject();
    add_shown_bytes(row, "key", key, KEY_SHOWN, text_append);
    cJSON_AddNumberToObject(row, "size", (double)value.len);
    if (text_is_plain(value))
        add_shown_bytes(row, "value", value, VALUE_SHOWN, text_append);
    else
        add_shown_bytes(row, "hex", value, VALUE_SHOWN / 2, text_append_hex);
    return add_row(list, row);
}

/* List the keys that begin with a prefix, in the arbitrary order of the table. "cut" means that some of these keys are
 * left out. */
bool inspect_keys(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    int64_t limit = m->keys.limit;
    struct job *job = inspect_job(hub, s, m->keys.job);
    if (job == NULL)
        return false;
    struct listing list = begin_list(answer, "keys");
    const struct entry *at = NULL;
    struct slice key, value;
    while (store_next(job->store, &at, &key, &value)) {
        if (!slice_begins_with(key, m->keys.prefix))
            continue;
        if (limit-- == 0) {
            cJSON_AddTrueToObject(answer, "cut");
            break;
        }
        if (!add_key(&list, key, value))
            break;
    }
    return true;
}

/* --- waiters -------------------------------------------------------------------------------------------- */

/* Add the first KEYS_SHOWN keys that a client waits for. */
static void add_awaited_keys(const struct session *s, cJSON *row)
{
    cJSON *keys = cJSON_AddArrayToObject(row, "keys");
    struct slice key;
    for (uint32_t i = 0; i < KEYS_SHOWN && facts_awaited(s, i, &key); i++) {
        struct buf text = { 0 };
        if (text_append(&text, key, KEY_SHOWN) && buf_append(&text, "", 1))
            json_append(keys, cJSON_CreateString((const char *)text.data));
        buf_free(&text);
    }
    if (store_awaited_count(&s->waiter) > KEYS_SHOWN)
        cJSON_AddNumberToObject(row, "more", store_awaited_count(&s->waiter) - KEYS_SHOWN);
}

/* Add the purpose of the first awaited key, if it is a key of PyTorch. */
static void add_torch_key(const struct session *s, cJSON *row)
{
    struct slice name;
    struct torch_key key;
    if (s->barrier_waiter.barrier == NULL && facts_awaited(s, 0, &name) && torch_key_read(name, &key))
        cJSON_AddItemToObject(row, "torch", torch_key_json(&key));
}

/* Add what is known about the process of a client without a rank. */
static void add_stranger(const struct session *s, cJSON *row)
{
    if (s->pid != 0)
        cJSON_AddNumberToObject(row, "pid", s->pid);
    if (s->torch != NULL && s->torch->owner != NULL)
        cJSON_AddStringToObject(row, "owner", s->torch->owner);
}

/* Return the row of a client that waits. A client with a rank is shown with the host and pid that were reported for
 * the rank. */
static cJSON *waiter_row(struct hub *hub, const struct session *s)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "peer", s->peer);
    if (!list_is_empty(&s->by_rank)) {
        const struct member *member = members_at(&s->job->members, s->rank);
        cJSON_AddNumberToObject(row, "rank", s->rank);
        if (member->host != NULL)
            cJSON_AddStringToObject(row, "host", member->host);
        if (member->pid != 0)
            cJSON_AddNumberToObject(row, "pid", member->pid);
    } else {
        add_stranger(s, row);
    }
    cJSON_AddStringToObject(row, "op", facts_waits_by(s));
    add_awaited_keys(s, row);
    add_torch_key(s, row);
    cJSON_AddNumberToObject(row, "since_ms", (double)(hub->now_ms - s->waits_since_ms));
    return row;
}

bool inspect_waiters(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    struct job *job = inspect_job(hub, s, m->waiters.job);
    if (job == NULL)
        return false;
    struct listing list = begin_list(answer, "waiters");
    LIST_EACH(node, &job->sessions)
    {
        const struct session *waiter = LIST_ENTRY(node, struct session, in_job);
        if (facts_waits_by(waiter) != NULL && !add_row(&list, waiter_row(hub, waiter)))
            break;
    }
    return true;
}

/* --- barriers ------------------------------------------------------------------------------------------- */

/* Add the ranks that have arrived, or the missing ranks if `arrived` is false; at most RANKS_SHOWN. */
static void add_ranks(cJSON *row, const char *name, const struct barrier *barrier, bool arrived)
{
    cJSON *array = cJSON_AddArrayToObject(row, name);
    int n = 0;
    for (uint32_t rank = 0; rank < barrier->world_size && n < RANKS_SHOWN; rank++) {
        if (!barrier_needs(barrier, rank) || barrier_has(barrier, rank) != arrived)
            continue;
        json_append(array, cJSON_CreateNumber(rank));
        n++;
    }
}

/* List the open barriers. Barriers that have ended are in the event log. */
bool inspect_barriers(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    struct job *job = inspect_job(hub, s, m->barriers.job);
    if (job == NULL)
        return false;
    struct listing list = begin_list(answer, "barriers");
    LIST_EACH(node, &job->barriers.open)
    {
        const struct barrier *barrier = LIST_ENTRY(node, struct barrier, open);
        const uint64_t left_ms = barrier->deadline_ms > hub->now_ms ? barrier->deadline_ms - hub->now_ms : 0;
        cJSON *row = cJSON_CreateObject();
        add_shown_bytes(row, "name", barrier_name(barrier), KEY_SHOWN, text_append);
        add_ranks(row, "arrived", barrier, true);
        add_ranks(row, "missing", barrier, false);
        cJSON_AddNumberToObject(row, "age_ms", (double)(hub->now_ms - barrier->began_ms));
        cJSON_AddNumberToObject(row, "left_ms", (double)left_ms);
        if (!add_row(&list, row))
            break;
    }
    return true;
}

/* --- rejects -------------------------------------------------------------------------------------------- */

/* A rejected client can be any program, and its bytes may be printed on a terminal. So the rows contain bytes as
 * hex, and unprintable bytes of texts as \xNN. Both lists have a fixed length, so they always fit into an answer. */
_Static_assert(CONTROL_BYTES *(sizeof(struct rejects) + REFUSALS_MAX * sizeof(struct refusal)) < LIST_ROOM,
               "an answer must have room for all rejected clients and nodes");

/* Return the row of a rejected client. In the row, first_ms and last_ms are the times since the first and the last
 * rejection. */
static cJSON *reject_row(const struct reject *r, uint64_t now_ms)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "source", r->source);
    cJSON_AddStringToObject(row, "kind", reject_kind_word(r->kind));
    if (r->job[0] != '\0')
        add_shown_bytes(row, "job", slice_str(r->job), REJECT_WHY_MAX, text_append);
    if (r->n_first > 0)
        add_shown_bytes(row, "first", slice_of(r->first, r->n_first), REJECT_WHY_MAX, text_append_hex);
    add_shown_bytes(row, "why", slice_str(r->why), REJECT_WHY_MAX, text_append);
    cJSON_AddNumberToObject(row, "times", r->times);
    cJSON_AddNumberToObject(row, "first_ms", (double)(now_ms - r->first_ms));
    cJSON_AddNumberToObject(row, "last_ms", (double)(now_ms - r->last_ms));
    return row;
}

/* Return the row of a rejected node. */
static cJSON *refusal_row(const struct refusal *r, uint64_t now_ms)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "code", rdzv_refused_code(r->code));
    cJSON_AddStringToObject(row, "job", r->job);
    cJSON_AddStringToObject(row, "host", r->host);
    cJSON_AddNumberToObject(row, "pid", r->pid);
    cJSON_AddNumberToObject(row, "node_rank", r->node_rank);
    cJSON_AddStringToObject(row, "sentence", r->sentence);
    cJSON_AddStringToObject(row, "advice", rdzv_refused_advice(r->code));
    cJSON_AddNumberToObject(row, "times", r->times);
    cJSON_AddNumberToObject(row, "last_ms", (double)(now_ms - r->last_ms));
    return row;
}

/* List rejected clients and rejected nodes, without rows about the jobs of other tenants. */
bool inspect_rejects(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    (void)m;
    struct rejects *all = hub_all_rejects(hub);
    if (all == NULL)
        return false;
    cJSON *rows = cJSON_AddArrayToObject(answer, "rejects");
    for (uint32_t i = 0; i < all->count; i++)
        if (all->row[i].job[0] == '\0' || session_may_use(hub, s, all->row[i].job))
            json_append(rows, reject_row(&all->row[i], hub->now_ms));
    free(all);
    cJSON *refused = cJSON_AddArrayToObject(answer, "refused");
    for (uint32_t i = 0; i < hub->refusals.count; i++)
        if (session_may_use(hub, s, hub->refusals.row[i].job))
            json_append(refused, refusal_row(&hub->refusals.row[i], hub->now_ms));
    return true;
}

/* --- diagnosis of the error ----------------------------------------------------------------------------- */

/* Answer `why`. The snapshot borrows texts that are valid only until the next message, so free it before returning. */
bool inspect_why(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    struct job_snapshot taken;
    struct diagnosis *d = malloc(sizeof(*d)); /* on the heap, because a diagnosis has 18 KB */
    struct job *job = inspect_job(hub, s, m->why.job);
    bool ok = job != NULL && d != NULL && snapshot_job(job, &taken);
    if (ok) {
        monitor_diagnose(job, &taken, d);
        ok = diagnosis_add_text(answer, &taken.snapshot, d);
        snapshot_free(&taken);
    }
    free(d);
    return ok;
}
