/* stacks.c -- collects the stacks of a job's ranks: an operator asks, the agents take samples, and the store merges the
 * samples. A job has at most one open request, and operators with the same request share the answer. After a failure
 * the agents record the stacks of the surviving workers without a request. */
#include "hub/messages.h"
#include "hub/session.h"

#include "record/flight_dump.h"
#include "record/rank_set.h"
#include "record/stacks.h"
#include "base/text.h"
#include "job/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASKERS_MAX = 64,           /* maximum number of operators (ddpctl stacks) that wait for the same answer */
    CALLS_MAX = 8192,          /* maximum number of calls from the flight records of all nodes */
    VERDICTS_BYTES = 16 << 20, /* maximum size of the rows in all verdicts of a round together, in bytes */
    SHARE_BYTES = 4 << 10, /* bytes for each node in a verdict, as long as VERDICTS_BYTES are not used up */
    SHARE_ROWS = 8,        /* rows for each node in a verdict, as long as rows are left */
};

/* A node that has not answered yet. */
struct sampled_node {
    conn_id conn;
    int32_t node_rank;
    char host[LIMIT_TEXT];
};

/* Return the array of the nodes that have not answered, valid until sample->nodes changes. */
static struct sampled_node *nodes_of(const struct job_sample *sample, size_t *n)
{
    *n = sample->nodes.len / sizeof(struct sampled_node);
    return (struct sampled_node *)(void *)sample->nodes.data;
}

/* --- the answer ------------------------------------------------------------------------------------------- */

/* Return the nodes that have not answered, at most LIMIT_LISTED. */
static cJSON *encode_missing(const struct job_sample *sample)
{
    size_t n;
    const struct sampled_node *nodes = nodes_of(sample, &n);
    cJSON *missing = cJSON_CreateArray();
    for (size_t i = 0; i < n && i < LIMIT_LISTED; i++)
        json_append(missing, message_encode_node(&(struct message_node){ .node_rank = nodes[i].node_rank,
                                                                         .host = nodes[i].host,
                                                                         .nproc = MESSAGE_NONE,
                                                                         .store_port = MESSAGE_NONE }));
    return missing;
}

/* Answer all operators that still wait. An operator no longer waits after it has disconnected or sent another
 * request. */
static void answer_all(struct job *job, const cJSON *answer)
{
    struct job_sample *sample = &job->sample;
    const conn_id *ids = (const conn_id *)(const void *)sample->askers.data;
    for (size_t i = 0; i < sample->askers.len / sizeof(*ids); i++) {
        struct session *s = session_find(job->hub, ids[i]);
        if (s == NULL || s->waits_in != 1 + OP_CONTROL)
            continue;
        s->waits_in = 0;
        hub_push(job->hub, s, answer);
    }
}

/* Add the sample to the profile (diagnosis/profile.h). Begin a new profile with the first sample of an attempt. */
static void count_profile(struct job *job)
{
    struct job_profile *profile = &job->profile;
    const uint32_t n = job->members.known ? job->members.world_size : 0;
    struct snapshot_rank *facts = calloc((size_t)n + 1, sizeof(*facts));
    for (uint32_t rank = 0; facts != NULL && rank < n; rank++)
        snapshot_of_rank(job, rank, &facts[rank]);
    if (facts != NULL && (profile->counts.n == n || profile_begin(&profile->counts, n)) &&
        profile_add(&profile->counts, job->sample.stacks.rows, facts, job->hang.watch.moved_ms)) {
        profile->has_news = true;
        job_touch(job);
    }
    free(facts);
}

static void free_answers(struct job_sample *sample)
{
    cJSON_Delete(sample->calls);
    sample->calls = NULL;
    stacks_free(&sample->stacks);
    buf_free(&sample->nodes);
}

/* End the request: pass the rows to the monitor and the profile, and answer the operators. */
static void sample_finish(struct job *job)
{
    struct job_sample *sample = &job->sample;
    const struct message_stacks_lists lists = { .stacks = sample->stacks.rows,
                                                .missing = encode_missing(sample),
                                                .cut = sample->stacks.is_cut };
    cJSON *answer = cJSON_CreateObject();
    if (sample->for_hang) {
        cJSON_Delete(job->hang.fresh);
        /* Copy the rows, because message_add_stacks_lists() moves them into the answer. */
        job->hang.fresh = cJSON_Duplicate(sample->stacks.rows, true);
        cJSON_Delete(job->hang.fresh_calls);
        job->hang.fresh_calls = sample->calls;
        sample->calls = NULL;
        job_touch(job);
    }
    if (sample->for_profile)
        count_profile(job);
    if (job->hang.asks)
        job_touch(job);
    sample->for_hang = sample->for_profile = false;
    sample->stacks.rows = NULL;
    message_add_stacks_lists(&lists, answer);
    message_add_answer(&(struct message_answer){ .ok = true }, answer);
    answer_all(job, answer);
    cJSON_Delete(answer);
    sample->until_ms = 0;
    free_answers(sample);
    buf_free(&sample->askers);
}

/* --- the question ----------------------------------------------------------------------------------------- */

/* The path of a request:
 *
 *     ddpctl --stacks--> hub --sample--> agents --sampled--> hub (equal stacks are folded) --> ddpctl
 *
 * The operator gets the answer when all nodes have answered, or after STACKS_STORE_MS with the names of the missing
 * nodes. */

/* Return true if the node runs a rank of the set `ranks`. A set with limit 0 means all ranks. */
static bool has_rank(const struct rdzv_node_facts *node, const struct rank_set *ranks)
{
    for (uint32_t i = 0; i < node->nproc; i++)
        if (ranks->limit == 0 || rank_set_has(ranks, (int)(node->first_rank + i)))
            return true;
    return false;
}

static bool add_node(struct job_sample *sample, const struct rdzv_node_facts *facts)
{
    struct sampled_node node = { .conn = facts->node, .node_rank = facts->node_rank };
    text_copy(node.host, sizeof(node.host), facts->host);
    return buf_append(&sample->nodes, &node, sizeof(node));
}

/* Add to the sample each node that runs a rank in `ranks`. */
static bool find_nodes(struct job *job, const struct rank_set *ranks)
{
    struct rdzv_node_facts f;
    bool ok = true;
    for (uint64_t id = 0; job->rdzv != NULL && ok && (id = rdzv_next_node(job->rdzv, id)) != 0;)
        if (rdzv_node_facts(job->rdzv, id, &f) && !f.is_spare &&
            (f.state == RDZV_NODE_RUNNING || f.state == RDZV_NODE_STOPPING) && has_rank(&f, ranks))
            ok = add_node(&job->sample, &f);
    return ok;
}

/* Ask all nodes of the sample for stacks. If the sample is for a hang, also ask for the flight records since the last
 * progress. */
static void ask_nodes(struct job *job)
{
    struct job_sample *sample = &job->sample;
    size_t n;
    const struct sampled_node *nodes = nodes_of(sample, &n);
    const uint64_t still_ms = job->hub->now_ms - job->hang.watch.moved_ms;
    cJSON *question = message_encode_sample(
        &(struct message_sample){ .id = sample->id,
                                  .ranks = sample->ranks,
                                  .native = sample->native,
                                  .still_ms = sample->for_hang ? (int64_t)still_ms : MESSAGE_NONE });
    for (size_t i = 0; i < n; i++) {
        struct session *s = session_find(job->hub, nodes[i].conn);
        if (s != NULL)
            hub_push(job->hub, s, question);
    }
    cJSON_Delete(question);
}

/* Begin a request. The request ends at sample->until_ms, even if some nodes have not answered. If the result is false,
 * the caller calls sample_refuse(). If the result is true, the caller registers the operator, if any, then calls
 * ask_nodes(). */
static bool sample_begin(struct job *job, const struct message_stacks *m, const struct rank_set *ranks)
{
    struct hub *hub = job->hub;
    struct job_sample *sample = &job->sample;
    if (!stacks_init(&sample->stacks, STACKS_JOB_BYTES) || !find_nodes(job, ranks)) {
        ddp_fail(&hub->err, DDP_ERR_NOMEM, "the store is out of memory");
        return false;
    }
    if (sample->nodes.len == 0) {
        ddp_fail(&hub->err, DDP_ERR_ARG,
                 "no worker with one of these ranks is running; 'ddpctl status' lists the ranks");
        return false;
    }
    sample->id++;
    text_copy(sample->ranks, sizeof(sample->ranks), m->ranks);
    sample->native = m->native;
    sample->until_ms = hub->now_ms + STACKS_STORE_MS;
    job_touch(job);
    return true;
}

/* Free the state of a request that could not start. Return false. */
static bool sample_refuse(struct job_sample *sample)
{
    sample->until_ms = 0;
    free_answers(sample);
    return false;
}

/* Parse the requested ranks. "" means all ranks and leaves `ranks` empty. The caller frees `ranks` in any case. */
static bool check_ranks(struct job *job, const char *text, struct rank_set *ranks)
{
    struct hub *hub = job->hub;
    struct ddp_err err;
    const int world = (int)job->members.world_size;
    if (text[0] == '\0' || rank_set_parse(ranks, text, world > 0 ? world : 1, &err) == DDP_OK)
        return true;
    ddp_fail(&hub->err, DDP_ERR_ARG, "\"ranks\" \"%.60s\": expected %.120s", text, err.msg);
    return false;
}

/* Return true if an operator cannot share the open request. This is the case if the open request is for other stacks
 * than the operator requests, or if too many operators wait for its answer. */
static bool is_other(const struct job_sample *sample, const struct message_stacks *m)
{
    return strcmp(sample->ranks, m->ranks) != 0 || sample->native != m->native ||
           sample->askers.len >= ASKERS_MAX * sizeof(conn_id);
}

/* Request a sample for the monitor or the profile. While another request is open, the monitor waits, and the profile
 * skips its sample. The monitor and the profile never use an operator's sample. Such a sample may be older than the
 * suspicion of a hang, and has no flight records. */
void stacks_ask(struct job *job)
{
    static const struct message_stacks all = { .ranks = "" };
    static const struct rank_set none;
    struct job_sample *sample = &job->sample;
    const bool is_free = sample->until_ms == 0;
    const bool profiles = job->profile.due_ms != 0 && job->profile.due_ms <= job->hub->now_ms;
    if (profiles)
        job->profile.due_ms = job->hub->now_ms + PROFILE_EVERY_MS;
    if (!is_free || (!job->hang.asks && !profiles))
        return;
    sample->for_hang = job->hang.asks;
    sample->for_profile = profiles;
    job->hang.asks = false;
    if (sample_begin(job, &all, &none)) {
        ask_nodes(job);
        return;
    }
    sample->for_hang = sample->for_profile = false;
    (void)sample_refuse(sample);
}

void stacks_moved(struct job *job, conn_id from, conn_id to)
{
    size_t n;
    struct sampled_node *nodes = nodes_of(&job->sample, &n);
    for (size_t i = 0; i < n; i++)
        if (nodes[i].conn == from)
            nodes[i].conn = to;
}

/* Return true if a node of the round must still send `stopped`. */
static bool is_stopping(const struct job *job)
{
    struct rdzv_facts facts = { .state = RDZV_OVER };
    if (job->rdzv != NULL)
        rdzv_facts(job->rdzv, &facts);
    return facts.state == RDZV_STOPPING;
}

void stacks_tick(struct job *job)
{
    if (job->sample.until_ms != 0 && job->sample.until_ms <= job->hub->now_ms)
        sample_finish(job);
    if (job->survivors.stacks.rows != NULL && !is_stopping(job))
        stacks_free(&job->survivors.stacks);
}

/* Handle an operator's request `stacks`. Ask the nodes last: if the operator cannot be registered, no node takes a
 * sample. An operator that sends a new request gets no answer to its old request (answer_all). */
bool control_stacks(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    (void)answer;
    struct rank_set ranks = { 0 };
    struct job *job = inspect_job(hub, s, m->stacks.job);
    if (job == NULL || !check_ranks(job, m->stacks.ranks, &ranks))
        return false;
    struct job_sample *sample = &job->sample;
    const bool begins = sample->until_ms == 0;
    const bool begun = begins && sample_begin(job, &m->stacks, &ranks);
    rank_set_free(&ranks);
    if (begins && !begun)
        return sample_refuse(sample);
    if (is_other(sample, &m->stacks)) {
        ddp_fail(&hub->err, DDP_ERR_LIMIT, "another request for stacks is in progress; ask again in %d s",
                 STACKS_STORE_MS / 1000);
        return false;
    }
    if (!buf_append(&sample->askers, &s->id, sizeof(s->id)))
        return begins && sample_refuse(sample);
    session_begin_wait(hub, s, &op_table[OP_CONTROL]);
    hub->answers_later = true;
    if (begins)
        ask_nodes(job);
    return true;
}

/* Convert a call to JSON. The encoder stores numbers as raw text, which the monitor could not read as numbers. So print
 * the encoded object and parse the printed text. */
static cJSON *encode_call(const struct message_flight_call *m)
{
    cJSON *row = message_encode_flight_call(m);
    char *text = row != NULL ? cJSON_PrintUnformatted(row) : NULL;
    cJSON *parsed = text != NULL ? cJSON_Parse(text) : NULL;
    cJSON_free(text);
    cJSON_Delete(row);
    return parsed;
}

/* Add to sample->calls the collective calls that a node has reported. Ignore calls of ranks that the node does not run.
 * Replace control characters in the texts. If not all calls fit, add none, because a rank with an incomplete record
 * would seem to be behind. */
static void merge_calls(struct job_sample *sample, const cJSON *rows, uint32_t first, uint32_t n)
{
    const cJSON *row;
    if (sample->calls == NULL && rows != NULL)
        sample->calls = cJSON_CreateArray();
    if (cJSON_GetArraySize(rows) > CALLS_MAX - cJSON_GetArraySize(sample->calls))
        return;
    cJSON_ArrayForEach(row, rows)
    {
        struct message_flight_call m;
        char texts[6][FLIGHT_PLACE_MAX];
        const char **from[] = { &m.group, &m.name, &m.state, &m.dtype, &m.reduce, &m.at };
        message_read_flight_call(row, &m);
        if (m.rank < 0 || (uint64_t)m.rank - first >= n)
            continue;
        for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
            text_copy(texts[i], sizeof(texts[i]), *from[i]);
            text_disarm(texts[i], strlen(texts[i]), '\0');
            *from[i] = texts[i];
        }
        json_append(sample->calls, encode_call(&m));
    }
}

/* Handle a node's answer. Ignore an answer to an earlier request, and a second answer of the same node. The answer of
 * the last missing node ends the request. */
bool control_sampled(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    (void)hub, (void)answer;
    struct job_sample *sample = &s->job->sample;
    struct rdzv_node_facts node = { .nproc = 0 };
    size_t n;
    struct sampled_node *nodes = nodes_of(sample, &n);
    for (size_t i = 0; i < n && sample->until_ms != 0 && m->sampled.id == sample->id; i++) {
        if (nodes[i].conn != s->id)
            continue;
        (void)rdzv_node_facts(s->job->rdzv, s->id, &node);
        stacks_merge(&sample->stacks, m->sampled.stacks, node.first_rank, node.nproc);
        sample->stacks.is_cut = sample->stacks.is_cut || m->sampled.cut;
        if (sample->for_hang)
            merge_calls(sample, m->sampled.calls, node.first_rank, node.nproc);
        nodes[i] = nodes[n - 1];
        sample->nodes.len -= sizeof(*nodes);
        if (sample->nodes.len == 0)
            sample_finish(s->job);
        return true;
    }
    return true;
}

/* --- the survivors of a failure --------------------------------------------------------------------------- */

/* The path of the survivors' stacks, which no operator requests:
 *
 *     agents --stopped--> hub (equal stacks are folded) --verdict--> agents */

/* Return true if the node is a member of the round and has not reported `stopped` before. */
static bool is_first_stop(const struct rdzv_facts *facts, uint32_t round, const struct rdzv_node_facts *node)
{
    return round == facts->round && (node->state == RDZV_NODE_RUNNING || node->state == RDZV_NODE_STOPPING);
}

/* Return how many bytes or rows a node may use. `left` is the number of bytes or rows that remain. `nodes` is the
 * number of nodes whose rows have not been merged yet, including this node. Each of these nodes gets an equal part of
 * `left`, so that the later nodes also have space. But a part is at least `least`, and at most `left`. */
static size_t share_of_node(size_t left, uint32_t nodes, size_t least)
{
    const size_t share = left / nodes;
    return share > least ? share : left < least ? left : least;
}

/* Merge the rows of a node into the rows of all nodes, but at most as much as share_of_node() permits. */
static void merge_share(struct stacks *all, const cJSON *rows, const struct rdzv_node_facts *node,
                        uint32_t nodes)
{
    const int n = cJSON_GetArraySize(all->rows);
    const size_t room = share_of_node(all->room, nodes, SHARE_BYTES), rest = all->room - room;
    all->room = room;
    all->rows_max = n + (int)share_of_node((size_t)(STACKS_ROWS_MAX - n), nodes, SHARE_ROWS);
    stacks_merge(all, rows, node->first_rank, node->nproc);
    all->room += rest;
}

/* Merge the rows of a node into the rows of all nodes. The store keeps a copy of all rows for each node until the node
 * confirms the copy. So if the round has many nodes, the limit for the size of all rows is lower. */
void stacks_add_survivors(struct session *s, uint32_t round, const cJSON *rows)
{
    struct job_survivors *all = &s->job->survivors;
    struct rdzv_facts facts;
    struct rdzv_node_facts node;
    rdzv_facts(s->job->rdzv, &facts);
    if (!rdzv_node_facts(s->job->rdzv, s->id, &node) || !is_first_stop(&facts, round, &node))
        return;
    const uint32_t nodes = facts.members > all->nodes ? facts.members - all->nodes : 1;
    const size_t each = VERDICTS_BYTES / (facts.members > 0 ? facts.members : 1);
    const size_t room = each < STACKS_AGENT_BYTES ? each : STACKS_AGENT_BYTES;
    if (rows != NULL && (all->stacks.rows != NULL || stacks_init(&all->stacks, room)))
        merge_share(&all->stacks, rows, &node, nodes);
    all->nodes++;
}

cJSON *stacks_of_survivors(const struct job *job)
{
    const cJSON *rows = job->survivors.stacks.rows;
    return rows != NULL ? cJSON_CreateArrayReference(rows->child) : NULL;
}
