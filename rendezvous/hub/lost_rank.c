/* lost_rank.c -- detects a broken connection, and a rank that other ranks still need when this rank ends or gives up
 * a wait. The store must report such a rank itself if the rank exits with 0, because the rank's agent counts this exit
 * as a success. The store records the missing rank as soon as the first rank gives up, because later all ranks have
 * timed out. */

#include "base/limits.h"
#include "base/text.h"
#include "diagnosis/text.h"
#include "hub/job.h"
#include "hub/session.h"
#include "job/rendezvous.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

enum {
    LEAST_MS = 1000, /* a shorter wait is not reported */
    /* Longest time from the timeout of a client's wait until the client closes its connection. This takes some time,
     * because Python first prints the error. */
    THEN_MS = 10000,
    TOGETHER_MS = 10000, /* one report covers all ranks that give up within this time after the first rank */
    FRESH_MS = 60000,    /* longest time from the end of an unsuccessful wait to its report */
};

/* If a rank is missing, a PyTorch process group does not form. The first rank that times out then looks like the cause.
 * So the store records the missing rank when the first rank times out. Later this is not possible, because all ranks
 * have timed out. */

/* Return how long, in ms, the session has been waiting for a key of PyTorch. If the session has given up this wait less
 * than THEN_MS ago, return how long it had waited. In all other cases, return 0. Set *key to the awaited key. */
static uint64_t waited(const struct session *s, struct torch_key *key)
{
    const struct torch_client *torch = s->torch;
    const uint64_t now_ms = s->job->hub->now_ms;
    struct slice name;
    *key = torch->key;
    if (torch->left_ms != 0)
        return now_ms - torch->left_ms < THEN_MS ? torch->left_ms - torch->since_ms : 0;
    if (facts_waits_by(s) == NULL || !facts_awaited(s, 0, &name) || !torch_key_read(name, key))
        return 0;
    return now_ms - s->waits_since_ms;
}

/* Append how many ranks have arrived in PyTorch's barrier. This barrier only counts ranks, and does not record which
 * ranks have arrived. */
static void append_count(const struct session *s, const struct torch_key *key, struct buf *out)
{
    const bool is_barrier = key->kind == TORCH_KEY_BARRIER || key->kind == TORCH_KEY_BARRIER_LAST;
    const struct torch_meet *meet = is_barrier ? torch_meets_of_id(&s->job->meets, s->torch->meet) : NULL;
    const uint32_t ranks = s->job->members.world_size;
    const char *plural = ranks == 1 ? "" : "s";
    if (meet == NULL)
        buf_printf(out, "the missing ranks are unknown, because the key only counts ranks");
    else if (meet->count <= ranks)
        buf_printf(out, "%lld of the %u rank%s of this job have arrived", (long long)meet->count, ranks,
                   plural);
    else
        buf_printf(
            out,
            "%lld ranks have arrived, but this job has %u rank%s: two launches share this store, or the "
            "group was set up twice",
            (long long)meet->count, ranks, plural);
}

/* Append why the wait could not end. For a key, append the state of the rank that must set the key. For a barrier,
 * append the number of ranks that have arrived. */
static void append_why(const struct session *s, const struct torch_key *key, struct buf *out)
{
    const uint32_t world_size = s->job->members.world_size;
    struct snapshot_rank facts;
    struct finding f;
    if (key->rank < 0) {
        append_count(s, key, out);
    } else if (key->rank >= world_size) {
        buf_printf(out, "the highest rank of this job is %u", world_size - 1);
    } else {
        snapshot_of_rank(s->job, (uint32_t)key->rank, &facts);
        diagnose_rank(&facts, &f);
        buf_printf(out, "%s", f.sentence);
    }
}

/* Return the text in a buffer, or "" if memory is short. */
static const char *end_text(struct buf *text)
{
    return buf_append(text, "", 1) ? (const char *)text->data : "";
}

/* Keep the finding that a rank gave up the setup of a group. At the end of the round, report_given_up() reports this
 * finding, but only if this rank failed first. The texts are built now, because the state of the other ranks changes
 * soon. */
static void record_given_up(struct session *s, const struct torch_key *key, uint64_t waited_ms)
{
    struct job *job = s->job;
    const struct snapshot_rank own = member_snapshot(&job->members, s->rank);
    struct buf who = { 0 }, setup = { 0 }, what = { 0 }, why = { 0 };
    words time;
    buf_printf(&who, "rank %u", s->rank);
    if (own.host != NULL)
        buf_printf(&who, " (%.100s, pid %d)", own.host, own.pid);
    torch_key_append_setup(key, &setup);
    torch_key_append(key, &what);
    append_why(s, key, &why);
    finding_make(&job->given_up, FINDING_INIT_ABANDONED, end_text(&who), "setup_function", end_text(&setup),
                 "time", duration(time, waited_ms), "what", end_text(&what), "why", end_text(&why), NULL);
    buf_free(&who);
    buf_free(&setup);
    buf_free(&what);
    buf_free(&why);
}

/* Return the time at which a rank last began or continued the setup of a PyTorch group. Consider all connections of the
 * rank. */
static uint64_t last_try(const struct member *member)
{
    uint64_t last_ms = member->tried_ms;
    LIST_EACH(node, &member->sessions)
    {
        const struct torch_client *torch = LIST_ENTRY(node, struct session, by_rank)->torch;
        if (torch != NULL && torch->tried_ms > last_ms)
            last_ms = torch->tried_ms;
    }
    return last_ms;
}

/* Record that the rank of `s` has given up a wait for the setup of a group. Record nothing if the setup was completed.
 * Also record nothing if the rank has continued the setup after this wait, which usually happens on another connection
 * of the rank. */
void lost_peer_leaves(struct session *s)
{
    struct job *job = s->job;
    struct torch_key key;
    const uint64_t now_ms = job->hub->now_ms;
    if (s->torch == NULL || list_is_empty(&s->by_rank))
        return;
    struct member *member = members_at(&job->members, s->rank);
    member->tried_ms = last_try(member);
    const bool went_on = s->torch->left_ms != 0 && member->tried_ms >= s->torch->left_ms;
    const uint64_t waited_ms = waited(s, &key);
    if (waited_ms < LEAST_MS || went_on || torch_key_when(&key) != TORCH_SETUP || !torch_key_is_for_all(&key))
        return;
    if (job->given_up_ms == 0 || now_ms - job->given_up_ms > TOGETHER_MS) {
        record_given_up(s, &key, waited_ms);
        job->given_up_ms = now_ms;
    }
    member->gave_up_ms = now_ms;
}

/* Check the open connections of an ended rank for a wait that the rank gave up. The rank's agent may report the end
 * before these connections close. */
static void check_open_connections(struct member *member)
{
    LIST_EACH(node, &member->sessions)
    {
        lost_peer_leaves(LIST_ENTRY(node, struct session, by_rank));
    }
}

/* Return job->given_up if the rank gave up the setup of a PyTorch group less than FRESH_MS ago, and has not tried
 * again. Otherwise return NULL. */
static const struct finding *torch_given_up(struct job *job, uint32_t rank)
{
    struct member *member = members_at(&job->members, rank);
    if (member == NULL)
        return NULL;
    check_open_connections(member);
    const uint64_t gave_up_ms = member->gave_up_ms;
    if (gave_up_ms == 0 || last_try(member) >= gave_up_ms || job->hub->now_ms - gave_up_ms > FRESH_MS)
        return NULL;
    return &job->given_up;
}

/* --- a rank that has ended -------------------------------------------------------------------------------- */

/* A rank may exit with 0 while other ranks wait for it. The store can report this only if the other ranks wait in a
 * request to the store. If the other ranks wait in a collective, the store cannot see their wait. */

/* Push {"push":"left_waiting","text":"rank 0 ...","findings":[...]} to all nodes before the waiting ranks fail. The
 * agents then treat the failures of these ranks as consequences of the loss. */
static void push_loss(struct job *job, const struct finding *f)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", "left_waiting");
    cJSON_AddFalseToObject(o, "final");
    const bool whole = diagnosis_add_one(o, f);
    LIST_EACH(node, &job->sessions)
    {
        struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (whole && s->is_node)
            hub_push(job->hub, s, o);
    }
    cJSON_Delete(o);
    events_finding(job, f);
    notices_add(&job->troubles, NOTICE_OF_STORE, finding_code_name(f->code), f->subject, f->sentence,
                f->advice);
}

/* Report that the rank has exited with 0 and is missing in the barrier. Report each rank only for the first barrier in
 * which it is missing. */
void lost_peer_in_barrier(struct job *job, const struct barrier *barrier, uint32_t rank)
{
    struct snapshot_rank facts;
    struct finding f;
    if (!member_has_left(members_at(&job->members, rank)))
        return;
    snapshot_of_rank(job, rank, &facts);
    diagnose_early_exit_of_barrier(barrier, &facts, &f);
    if (!notices_have(&job->troubles, f.code, f.subject))
        push_loss(job, &f);
}

/* Return the rank that libddp names as lost in the text of the failure: "rank 3 (pid 203 on n1) has ended while ...".
 * Only a rank that has exited with 0 counts as lost (member_has_left). Return -1 if the text names no such rank. */
static int64_t lost_in_words(const struct members *members, const struct failure *failure)
{
    char name[64];
    for (uint32_t rank = 0; rank < members->world_size; rank++) {
        const struct member *member = members_at(members, rank);
        if (!member_has_left(member))
            continue;
        snprintf(name, sizeof(name), "rank %u (pid %d on ", rank, member->pid);
        for (int i = 0; i < failure->n_lines; i++)
            if (strstr(failure->lines[i], name) != NULL)
                return rank;
    }
    return -1;
}

/* Report a wait that the failed rank gave up. Do nothing if a signal ended the rank. */
static void report_given_up(struct job *job, const struct failure *failure)
{
    const struct finding *f = failure->signal == 0 ? torch_given_up(job, (uint32_t)failure->rank) : NULL;
    if (f != NULL)
        push_loss(job, f);
}

/* --- a connection between two nodes ----------------------------------------------------------------------- */

/* If a rank reports a lost connection but no rank has ended, the network between two nodes is the likely cause. */

/* Return the last output line in `failure` that contains the host name or an address of `node` as a peer, or NULL. */
static const char *line_of_peer(const struct failure *failure, const struct rdzv_node_facts *node)
{
    for (int i = failure->n_lines - 1; i >= 0; i--)
        if (text_has_peer(failure->lines[i], node->addr) || text_has_peer(failure->lines[i], node->own) ||
            text_has_peer(failure->lines[i], node->host))
            return failure->lines[i];
    return NULL;
}

/* A broken connection: the node of the failed rank, the node of its peer, and the log line that names the peer. */
struct broken {
    struct rdzv_node_facts here, peer;
    const char *line;
};

/* Find the connection that the log of the failed rank reports as lost. Return true if the log names exactly one node as
 * a peer, and this node is not the rank's own node. */
static bool find_broken(struct job *job, const struct failure *failure, struct broken *b)
{
    struct rdzv_node_facts node;
    bool has_here = false;
    int peers = 0;
    for (uint64_t id = 0; (id = rdzv_next_node(job->rdzv, id)) != 0;) {
        if (!rdzv_node_facts(job->rdzv, id, &node) || node.is_spare)
            continue;
        const char *line = line_of_peer(failure, &node);
        if (node.node_rank == failure->node_rank) {
            b->here = node;
            has_here = line == NULL;
        } else if (line != NULL) {
            b->peer = node;
            b->line = line;
            peers++;
        }
    }
    return has_here && peers == 1;
}

/* Format both nodes in the order of their node ranks, so that reports from both ends of the connection have the same
 * text. */
static void format_ends(const struct broken *b, char *out, size_t size)
{
    const bool in_order = b->here.node_rank < b->peer.node_rank;
    const struct rdzv_node_facts *one = in_order ? &b->here : &b->peer, *two = in_order ? &b->peer : &b->here;
    snprintf(out, size, "the connection between node %d (%.40s) and node %d (%.40s)", one->node_rank,
             one->host, two->node_rank, two->host);
}

/* Set `out` to a clause about lost large packets, or to "". failure->lost_bytes is the size of UDP packets that do not
 * reach the peer's host, as the failed worker's agent has found. If lost_bytes is 0, use the finding PATH_LOSES_LARGE,
 * which an agent reports about the path to the store. */
static void format_path(const struct job *job, const struct failure *failure, const struct broken *b,
                        words out)
{
    out[0] = '\0';
    if (failure->lost_bytes > 0)
        snprintf(out, sizeof(words),
                 "; UDP packets of %lld bytes from %.60s to %.60s are lost, but small packets arrive "
                 "(PATH_LOSES_LARGE)",
                 (long long)failure->lost_bytes, b->here.host, b->peer.host);
    else if (notices_have(&job->notices, FINDING_PATH_LOSES_LARGE, NULL))
        snprintf(out, sizeof(words), "; a path between the nodes loses large packets (PATH_LOSES_LARGE)");
}

/* Append how long ago the last message from ddprun on a node arrived. */
static void append_last_message(const struct rdzv_node_facts *node, uint64_t now_ms, words out)
{
    words ago;
    const size_t len = strlen(out);
    snprintf(out + len, sizeof(words) - len, "; the last message from ddprun on %.40s arrived %.20s ago",
             node->host, duration(ago, now_ms - node->last_received_ms));
}

/* Describe the agents of the two nodes. An agent is late if its last message is older than two heartbeat intervals. For
 * each late agent, write the age of its last message. If neither agent is late, write that both agents still reach the
 * store. */
static void format_agents(const struct job *job, const struct broken *b, words out)
{
    struct rdzv_facts facts;
    words here_ago, peer_ago;
    const uint64_t now_ms = job->hub->now_ms;
    rdzv_facts(job->rdzv, &facts);
    const uint64_t limit_ms = 2 * limit_beat_ms(facts.node_timeout_ms);
    const bool here_is_late = now_ms - b->here.last_received_ms > limit_ms;
    const bool peer_is_late = now_ms - b->peer.last_received_ms > limit_ms;
    out[0] = '\0';
    if (!here_is_late && !peer_is_late)
        snprintf(out, sizeof(words),
                 ", and ddprun on both nodes still reaches the store (last messages %.20s and %.20s ago)",
                 duration(here_ago, now_ms - b->here.last_received_ms),
                 duration(peer_ago, now_ms - b->peer.last_received_ms));
    if (here_is_late)
        append_last_message(&b->here, now_ms, out);
    if (peer_is_late)
        append_last_message(&b->peer, now_ms, out);
}

/* Report a broken connection between the node of the failed worker and the node of its peer. */
static void report_broken(struct job *job, const struct failure *failure)
{
    struct broken b;
    struct finding f;
    char ends[FINDING_SUBJECT_MAX], rank[32], line[256];
    words agents, path, time;
    if (!find_broken(job, failure, &b))
        return;
    format_agents(job, &b, agents);
    format_path(job, failure, &b, path);
    format_ends(&b, ends, sizeof(ends));
    snprintf(rank, sizeof(rank), "rank %d", failure->rank);
    snprintf(line, sizeof(line), "%.250s", b.line);
    finding_make(&f, FINDING_CONNECTION_BROKE, ends, "rank", rank, "line", line, "address", b.peer.addr,
                 "host", b.here.host, "peer_host", b.peer.host, "agents", agents, "path", path, "time",
                 duration(time, failure->after_ms), NULL);
    push_loss(job, &f);
}

/* Report why the round failed. First report a wait that the failed rank has given up. If the failed rank is a victim
 * (rdzv_is_victim), it failed because it lost another rank. In this case, also report a lost rank that exited with code
 * 0. If there is no such rank, report a broken connection between two nodes. */
void lost_peer_verdict(struct job *job)
{
    struct rdzv_facts facts;
    struct finding f;
    rdzv_facts(job->rdzv, &facts);
    if (facts.cause == NULL || facts.cause->failure.rank < 0)
        return;
    report_given_up(job, &facts.cause->failure);
    if (!facts.cause->failure.victim || notices_have(&job->troubles, FINDING_RANK_EXITED_EARLY, NULL))
        return;
    if (diagnose_early_exit(&job->members, (uint32_t)facts.cause->failure.rank,
                            lost_in_words(&job->members, &facts.cause->failure), job->hub->now_ms, &f))
        push_loss(job, &f);
    else
        report_broken(job, &facts.cause->failure);
}
