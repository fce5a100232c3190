/* diagnosis.c -- see diagnosis.h: turns a snapshot of the whole job into a list of findings. Each check_* function
 * checks for one kind of problem and adds its findings. Most problems are reported only after a minimum duration,
 * because nodes start seconds apart, and ranks do not reach a barrier at the same time. */
#include "diagnosis/diagnosis.h"

#include "base/text.h"
#include "diagnosis/profile.h"
#include "diagnosis/text.h"
#include "record/failure.h"

#include <errno.h>
#include <stdio.h>

enum {
    SETTLED_MS = 3000,   /* a node that never joined is reported after this time, or in the last check */
    WAITS_MS = 10000,    /* shorter waits are reported only by the last check before the job fails */
    STOP_MS = 15000,     /* a node that needs more time to stop is reported */
    REJECTED_MS = 60000, /* while the ranks run, an older rejection is not reported */
    STOPPED_MS = 2000,   /* a shorter stop is not reported, because a debugger stops a process briefly */
};

/* Add a finding if the list has room. The arguments after `code` are passed to finding_make. */
#define ADD(d, code, ...)                                           \
    do {                                                            \
        struct finding *slot_ = diagnosis_slot(d, FINDING_##code);  \
        if (slot_ != NULL)                                          \
            finding_make(slot_, FINDING_##code, __VA_ARGS__, NULL); \
    } while (0)

/* --- start of the nodes --------------------------------------------------------------------------------- */

static bool is_same_address(const char *a, const char *b)
{
    return a[0] != '\0' && strcmp(a, b) == 0;
}

/* Report a rejected node under the code of its rejection. If the requested node rank is taken, also name the free node
 * ranks, because the user may have copied a --node_rank. */
static void check_refusal(struct diagnosis *d, const struct snapshot *s, const struct snapshot_refused *r)
{
    words who, time, unclaimed = "";
    char layout[FINDING_TEXT_MAX];
    const enum finding_code code = finding_by_name(r->code);
    struct finding *slot = code != FINDING_NONE ? diagnosis_slot(d, code) : NULL;
    if (slot == NULL)
        return;
    if (code == FINDING_NODE_RANK_TAKEN)
        unclaimed_ranks(unclaimed, s);
    snprintf(layout, sizeof(layout), "was rejected %s ago: %s", duration(time, r->ago_ms), r->words);
    finding_make(slot, code, process(who, r->host, r->addr, r->pid), "time", time, "words", r->words,
                 "unclaimed", unclaimed, "layout", layout, NULL);
}

/* Return true if a rejection may concern the job. While a round runs, the job needs no further node. So a rejection
 * that is older than REJECTED_MS does not explain a problem of the round. If the job has no agents, it has no rounds
 * (s->round is 0). Then an old rejection concerns the job, too, because the rejected client may be a missing rank. */
static bool concerns_job(const struct snapshot *s, uint64_t ago_ms)
{
    return s->phase != PHASE_RUNNING || s->round == 0 || ago_ms < REJECTED_MS;
}

/* Report rejected nodes. The list `refused` still contains a process that retried after its rejection and has joined.
 * Skip such a process. */
static void check_refused(struct diagnosis *d, const struct snapshot *s)
{
    for (uint32_t i = 0; i < s->n_refused; i++)
        if (concerns_job(s, s->refused[i].ago_ms) && !came_in_later(s, &s->refused[i]))
            check_refusal(d, s, &s->refused[i]);
}

/* --- differences ---------------------------------------------------------------------------------------- */

/* Report that nodes have different numbers of workers. Name only two nodes: a node with the most workers and a node
 * with the fewest workers. */
static void check_nproc(struct diagnosis *d, const struct snapshot *s)
{
    const struct snapshot_node *most = s->nodes, *least = s->nodes;
    words world, who, other;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const struct snapshot_node *node = &s->nodes[i];
        most = node->nproc > most->nproc ? node : most;
        least = node->nproc < least->nproc ? node : least;
        sum += node->nproc;
    }
    if (s->n_nodes < 2 || most->nproc == least->nproc)
        return;
    snprintf(world, sizeof(world), "all nodes together have %llu", (unsigned long long)sum);
    ADD(d, NPROC_UNEVEN, node_words(who, most), "most", counted((words){ 0 }, most->nproc, "worker"), "node",
        node_words(other, least), "least", number((words){ 0 }, least->nproc), "world", world);
}

/* Return true for the address of Istio's sidecar, which forwards the connections of all its clients. */
static bool is_sidecar(const char *address)
{
    return strcmp(address, "127.0.0.6") == 0;
}

/* Return true if the address that the node sent (`own`) differs from the address that the store sees (`seen`). Return
 * false if an address is missing. Also return false if `seen` is a sidecar, because the finding PROXY_BETWEEN reports
 * sidecars. */
bool diagnose_is_translated(const char *own, const char *seen)
{
    return own != NULL && own[0] != '\0' && seen != NULL && seen[0] != '\0' && !is_sidecar(seen) &&
           strcmp(own, seen) != 0;
}

static bool is_translated(const struct snapshot_node *node)
{
    return diagnose_is_translated(node->own, node->addr);
}

/* Report every node behind NAT, because the user must change the network of each such node. diagnosis_slot limits the
 * number of these findings. */
static void check_translation(struct diagnosis *d, const struct snapshot *s)
{
    words who;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const struct snapshot_node *node = &s->nodes[i];
        if (is_translated(node))
            ADD(d, ADDRESS_TRANSLATED, node_words(who, node), "own", node->own, "seen", node->addr);
    }
}

/* Report the first pair of hosts with the same address, such as 127.0.0.1 or the address of docker0. Nodes with equal
 * boot ids are containers on one host, where equal addresses are correct. Nodes behind NAT are skipped, because
 * ADDRESS_TRANSLATED reports them. */
static void check_addresses(struct diagnosis *d, const struct snapshot *s)
{
    enum { ENOUGH = 64 }; /* compare at most 64 nodes: usually, all nodes have the same wrong address */
    words who, other;
    const uint32_t n = s->n_nodes < ENOUGH ? s->n_nodes : ENOUGH;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j++) {
            const struct snapshot_node *a = &s->nodes[i], *b = &s->nodes[j];
            if (!is_same_address(a->addr, b->addr) || a->boot_id[0] == '\0' || b->boot_id[0] == '\0' ||
                strcmp(a->boot_id, b->boot_id) == 0 || is_translated(a) || is_translated(b))
                continue;
            ADD(d, ADDRESS_NOT_UNIQUE, node_words(who, a), "other", node_words(other, b), "address", a->addr);
            return;
        }
}

/* --- rejected clients ----------------------------------------------------------------------------------- */

/* Return true if a node has joined from this address. Other clients that connect from this address without IDENTIFY are
 * usually the workers of this node. */
static bool joined_from(const struct snapshot *s, const char *address)
{
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (strcmp(s->nodes[i].addr, address) == 0)
            return true;
    return false;
}

/* Report a client that is not part of the job. First check whether the address is that of a sidecar, because a sidecar
 * hides the protocol of its client. A client with PyTorch's protocol may be a worker of the job. Report such a client
 * only if no node has joined from its address. */
static void check_stranger(struct diagnosis *d, const struct snapshot *s, const struct snapshot_stranger *x)
{
    words times, time;
    duration(time, x->ago_ms);
    if (x->times > 1)
        snprintf(times, sizeof(times), " (%u times, last %.40s ago)", x->times, time);
    else
        snprintf(times, sizeof(times), " (%.40s ago)", time);
    if (is_sidecar(x->address))
        ADD(d, PROXY_BETWEEN, x->address, "times", times);
    else if (x->kind == REJECT_TLS)
        ADD(d, TLS_CLIENT, x->address, "times", times);
    else if ((x->kind == REJECT_C10D_1 || x->kind == REJECT_C10D_2) && !joined_from(s, x->address))
        ADD(d, TORCHRUN_INSTEAD, x->address, "times", times);
    else if (x->kind == REJECT_DDPRUN && x->job[0] != '\0')
        ADD(d, OTHER_JOB, x->address, "job", x->job, "times", times, "here", s->job);
    else if (x->kind == REJECT_SILENT && !joined_from(s, x->address))
        ADD(d, SILENT_CLIENT, x->address, "times", times);
    else if (x->kind == REJECT_HTTP || x->kind == REJECT_SSH || x->kind == REJECT_OTHER)
        ADD(d, FOREIGN_CLIENT, x->address, "times", times, "kind", reject_kind_words(x->kind), "bytes",
            x->bytes);
}

/* Report foreign clients and problems of the store's machine. If the accept queue is full, the kernel silently drops
 * connections, and clients retry only after seconds. The advice is to raise somaxconn to the number of nodes. If
 * somaxconn is already that high, the advice is to double somaxconn. */
static void check_store(struct diagnosis *d, const struct snapshot *s)
{
    const struct snapshot_store *store = &s->store;
    words count, somaxconn, wanted;
    const uint64_t nodes = s->max > store->somaxconn ? s->max : 2 * store->somaxconn;
    for (uint32_t i = 0; i < s->n_strangers; i++)
        if (concerns_job(s, s->strangers[i].ago_ms))
            check_stranger(d, s, &s->strangers[i]);
    if (store->accept_overflows > 0)
        ADD(d, ACCEPT_QUEUE_OVERFLOWED, store->host, "count", counted(count, store->accept_overflows, "time"),
            "somaxconn", number(somaxconn, store->somaxconn), "queue_length", number(wanted, nodes));
    if (store->refused_no_fd > 0)
        ADD(d, STORE_NO_DESCRIPTORS, store->host, "count", counted(count, store->refused_no_fd, "time"),
            "open_files", number(wanted, store->open_files));
    if (store->max > 0 && store->used > store->max - store->max / 64)
        ADD(d, STORE_NEARLY_FULL, store->host, "used", number(count, store->used), "max",
            number(wanted, store->max));
}

/* --- missing nodes -------------------------------------------------------------------------------------- */

/* Return true if a departed node (`gone`) has joined again. In an elastic job, compare the hosts, because a node
 * gets its node rank only with the next round. */
static bool has_returned(const struct snapshot *s, const struct snapshot_gone *gone)
{
    if (node_with_rank(s, gone->node_rank) != NULL)
        return true;
    for (uint32_t i = 0; s->elastic && i < s->n_nodes; i++)
        if (strcmp(s->nodes[i].host, gone->host) == 0 && s->nodes[i].joined_ms < gone->gone_ms)
            return true;
    return false;
}

/* Report a departed node that has not returned. A running job does not need a node that was never in a round. So report
 * such a node only while the job waits for nodes. Each way of leaving has its own finding, because the remedies
 * differ. */
static void check_gone(struct diagnosis *d, const struct snapshot *s, const struct snapshot_gone *gone)
{
    words who, time, stayed;
    node_named(who, gone->node_rank, gone->host, gone->pid);
    duration(time, gone->gone_ms);
    if (has_returned(s, gone) || (!gone->ran && s->phase != PHASE_GATHERING))
        return;
    if (!gone->lost)
        ADD(d, NODE_LEFT, who, "time", time, "words", gone->how);
    else if (!gone->ran)
        ADD(d, NODE_DIED_WAITING, who, "stayed", duration(stayed, gone->stayed_ms), "time", time, "words",
            gone->how);
    else if (gone->silent)
        ADD(d, NODE_LOST_SILENT, who, "time", time, "words", gone->how);
    else
        ADD(d, NODE_LOST_CLOSED, who, "time", time, "words", gone->how);
}

/* Return true if the job still lacks the rejected node. A static job lacks the node if its node rank is free, and if
 * `r` is the last rejection for that rank. An elastic job lacks the node if too few nodes have joined. */
static bool is_missed(const struct snapshot *s, const struct snapshot_refused *r)
{
    if (s->elastic || r->node_rank < 0)
        return s->n_nodes < s->min && !came_in_later(s, r);
    return (uint32_t)r->node_rank < s->max && node_with_rank(s, r->node_rank) == NULL &&
           refused_as(s, r->node_rank) == r;
}

/* Report rejected nodes that are still missing. A rejected ddprun exits, so the other nodes wait until a user starts
 * the rejected node again. */
static void check_turned_away(struct diagnosis *d, const struct snapshot *s)
{
    words who, left, time, waits = "";
    if (!s->is_final)
        snprintf(waits, sizeof(waits), "; the job waits at most another %.40s (%.60s)",
                 duration(left, s->left_ms), s->knob);
    for (uint32_t i = 0; i < s->n_refused; i++) {
        const struct snapshot_refused *r = &s->refused[i];
        if (is_missed(s, r))
            ADD(d, NODE_REJECTED, node_named(who, s->elastic ? -1 : r->node_rank, r->host, r->pid), "code",
                r->code, "time", duration(time, r->ago_ms), "waits", waits);
    }
}

/* Report the missing node ranks of a static job. */
static void check_never_came(struct diagnosis *d, const struct snapshot *s)
{
    uint32_t never = 0;
    words who, time;
    for (uint32_t rank = 0; rank < s->max; rank++)
        never += never_came(s, (int32_t)rank);
    if (never > 0)
        ADD(d, NODE_MISSING, missing_nodes(who, s, never), "have", never == 1 ? "has" : "have", "time",
            duration(time, s->waited_ms), "store_address", s->store.endpoint);
}

/* Report that an elastic job has too few nodes. Name the hosts of the present nodes, because the store does not know
 * which nodes of an elastic job are missing. */
static void check_too_few(struct diagnosis *d, const struct snapshot *s)
{
    words who, min, hosts, time;
    if (s->n_nodes >= s->min)
        return;
    ADD(d, TOO_FEW_NODES, counted(who, s->n_nodes, "node"), "have", s->n_nodes == 1 ? "has" : "have", "time",
        duration(time, s->waited_ms), "hosts", all_hosts(hosts, s), "min", number(min, s->min),
        "store_address", s->store.endpoint);
}

/* Format ", because node 1 (n1, pid 80) was lost 12.0 s ago" for the nodes of the latest round that have not returned.
 * After LOST_SHOWN nodes, give only the number of the others. Return "" if no such node is known. */
static const char *lost_nodes(words out, const struct snapshot *s)
{
    enum { LOST_SHOWN = 2 };
    uint32_t n = 0;
    size_t len = 0;
    words who, time;
    out[0] = '\0';
    for (uint32_t i = 0; i < s->n_gone; i++) {
        const struct snapshot_gone *gone = &s->gone[i];
        if (!gone->ran || has_returned(s, gone) || n++ >= LOST_SHOWN)
            continue;
        len = strlen(out);
        snprintf(out + len, WORDS_LEN - len, "%s%.60s %s %.20s ago", n == 1 ? ", because " : ", ",
                 node_named(who, gone->node_rank, gone->host, gone->pid), gone->lost ? "was lost" : "left",
                 duration(time, gone->gone_ms));
    }
    len = strlen(out);
    if (n > LOST_SHOWN)
        snprintf(out + len, WORDS_LEN - len, ", and %u more", n - LOST_SHOWN);
    return out;
}

/* Report that too few nodes of a running elastic job are left. Nodes that the store still expects back count as
 * present. Report at once, because the user should start replacements. */
static void check_too_few_left(struct diagnosis *d, const struct snapshot *s)
{
    const uint32_t here = s->n_nodes + s->returning;
    words who, min, missing, left, limit, lost;
    if (here >= s->min)
        return;
    ADD(d, TOO_FEW_LEFT, counted(who, here, "node"), "are", here == 1 ? "is" : "are", "lost",
        lost_nodes(lost, s), "min", number(min, s->min), "missing",
        counted(missing, s->min - here, "more node"), "left", duration(left, s->left_ms), "knob", s->knob,
        "limit", duration(limit, s->limit_ms), "store_address", s->store.endpoint);
}

/* Report lost nodes at once. Report nodes that have never joined only after SETTLED_MS, because nodes start seconds
 * apart. */
static void check_missing_nodes(struct diagnosis *d, const struct snapshot *s)
{
    for (uint32_t i = 0; i < s->n_gone; i++)
        check_gone(d, s, &s->gone[i]);
    if (s->phase != PHASE_GATHERING)
        return;
    check_turned_away(d, s);
    if (s->elastic && s->round > 0)
        check_too_few_left(d, s);
    else if (s->waited_ms < SETTLED_MS && !s->is_final)
        return;
    else if (s->elastic)
        check_too_few(d, s);
    else
        check_never_came(d, s);
}

/* Report spare nodes while a round runs, because a spare node runs no ranks, and shows no error. Report a node that
 * stops slowly, but only after STOP_MS, because the grace period of its workers may be long. */
static void check_members(struct diagnosis *d, const struct snapshot *s)
{
    words who, members, time;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const struct snapshot_node *node = &s->nodes[i];
        node_words(who, node);
        if (node->is_spare && s->phase == PHASE_RUNNING)
            ADD(d, NODE_IS_SPARE, who, "time", duration(time, node->joined_ms), "members",
                counted(members, members_of(s), "node"));
        if (node->is_stopping && s->phase == PHASE_STOPPING && s->waited_ms >= STOP_MS)
            ADD(d, NODE_STOP_SLOW, who, "time", duration(time, s->waited_ms));
    }
}

/* Report a node that could not start the program, `time` after the start of the round. The errno of execve shows
 * whether the program is missing or is not executable, and each of the two has its own remedy. */
static void check_start(struct diagnosis *d, const struct snapshot_cause *cause, const char *time)
{
    static const char front[] = FAILURE_NOT_STARTED;
    words who;
    const bool has_front = strncmp(cause->words, front, strlen(front)) == 0;
    const char *cannot = "cannot start the program",
               *advice = finding_advice(FINDING_PROGRAM_MISSING_ON_NODE);
    if (cause->error == ENOENT) {
        cannot = "lacks the program or its interpreter";
        advice = ADVICE_INSTALL;
    } else if (cause->error == EACCES) {
        cannot = "is not permitted to execute the program";
        advice = ADVICE_PERMIT;
    }
    ADD(d, PROGRAM_MISSING_ON_NODE, node_named(who, cause->node_rank, cause->host, 0), "cannot_start", cannot,
        "advice", advice, "time", time, "words", cause->words + (has_front ? strlen(front) : 0));
}

/* Report the worker whose failure ended the last round. If a lost node is the cause, report nothing here, because
 * check_gone reports the node. */
static void check_cause(struct diagnosis *d, const struct snapshot *s)
{
    const struct snapshot_cause *cause = &s->cause;
    words who, time;
    if (!cause->known || cause->rank < 0)
        return;
    duration(time, cause->after_ms);
    if (cause->error != 0) {
        check_start(d, cause, time);
        return;
    }
    snprintf(who, sizeof(who), "rank %d (%s, pid %d)", cause->rank, cause->host, cause->pid);
    ADD(d, WORKER_FAILED, who, "words", cause->words, "time", time);
}

/* --- PyTorch's ranks -------------------------------------------------------------------------------------- */

/* PyTorch itself fails after half an hour with "4 of 2 workers" or "3 of 4 workers" and names no worker. The findings
 * below name the workers within seconds. Groups that have only some ranks are not checked here, because the store does
 * not know their members. */

enum {
    CLAIMS_SHOWN = 6, /* maximum number of claims (struct snapshot_claim) in a sentence */
    WHO_MAX = 500,    /* size of the list of claims, in bytes; a sentence has FINDING_TEXT_MAX bytes */
    TAIL_MAX = 120    /* number of bytes that are reserved for the text after the claims */
};

/* Return true if the wait is for a key that every rank of the job needs during PyTorch's start. Set *key to the
 * purpose of this key. */
static bool is_torch_wait(const struct snapshot_wait *wait, struct torch_key *key)
{
    return !wait->is_barrier && wait->waiting > 0 && torch_key_read(wait->name, key) &&
           torch_key_when(key) != TORCH_LATER && torch_key_is_for_all(key);
}

static bool waits_for_torch(const struct snapshot_wait *wait)
{
    struct torch_key key;
    return is_torch_wait(wait, &key);
}

/* Return 1 ms more than the longest wait, because 0 means that no rank waits. */
uint64_t diagnose_torch_waits(const struct snapshot *s)
{
    struct torch_key key;
    uint64_t longest = 0;
    for (uint32_t i = 0; i < s->n_waits; i++)
        if (is_torch_wait(&s->waits[i], &key) && s->waits[i].for_ms >= longest)
            longest = s->waits[i].for_ms + 1;
    return longest;
}

/* Write the text of a key to `out`, and return `out`. The function `put` formats the key. */
static const char *words_of(words out, const struct torch_key *key,
                            bool (*put)(const struct torch_key *key, struct buf *out))
{
    struct buf text = { 0 };
    put(key, &text);
    snprintf(out, WORDS_LEN, "%.*s", (int)text.len, text.data != NULL ? (const char *)text.data : "");
    buf_free(&text);
    return out;
}

/* Report that ranks wait for a key of a group's setup. If the key belongs to a rank outside of the job, no rank is
 * missing. In this case report that the program expects a larger world. */
static void setup_unfinished(struct diagnosis *d, const struct snapshot *s, const struct snapshot_wait *w,
                             const struct torch_key *key)
{
    words setup, what, who, time, arrived, members, last;
    const bool is_beyond = key->rank >= (int64_t)s->n_ranks;
    const enum finding_code code = is_beyond ? FINDING_GROUP_BEYOND_JOB : FINDING_INIT_INCOMPLETE;
    struct finding *f = diagnosis_slot(d, code);
    if (f != NULL)
        finding_make(f, code, words_of(setup, key, torch_key_append_setup), "what",
                     words_of(what, key, torch_key_append), "arrived", number(arrived, w->waiting), "members",
                     number(members, s->n_ranks), "missing", absent_ranks(who, s), "time",
                     duration(time, w->for_ms), "last", number(last, s->n_ranks - 1), NULL);
}

/* Return true if the wait is part of the setup of a PyTorch group. The caller then does not report the key of the wait
 * as an ordinary key. Before returning true, report the unfinished setup. But report nothing if the group has too many
 * members and all members have different ranks, because no rank is missing in such a group. */
static bool check_torch_setup(struct diagnosis *d, const struct snapshot *s, const struct snapshot_wait *w)
{
    struct torch_key key;
    if (!is_torch_wait(w, &key) || torch_key_when(&key) != TORCH_SETUP)
        return false;
    if (s->surplus.n == 0 || s->surplus.is_double)
        setup_unfinished(d, s, w, &key);
    return true;
}

/* --- too many members ----------------------------------------------------------------------------------- */

/* Append "rank 0 (n1, pid 71)", "pid 75, started by rank 0", or "pid 90 on n1 (python x.py ...), as rank 0". For an
 * unknown process, append its address. */
static void append_claim(const struct snapshot_claim *c, struct buf *out)
{
    words who;
    if (c->is_child)
        buf_printf(out, "pid %d, started by rank %lld", c->pid, (long long)c->rank);
    else if (c->is_of_job)
        buf_printf(out, "rank %lld (%s%spid %d)", (long long)c->rank, c->host != NULL ? c->host : "",
                   c->host != NULL ? ", " : "", c->pid);
    else if (c->owner[0] != '\0')
        buf_printf(out, "%s", c->owner);
    else if (c->pid != 0)
        buf_printf(out, "pid %d at ", c->pid);
    else
        buf_printf(out, "a process at ");
    if (!c->is_of_job && c->owner[0] == '\0')
        text_append(out, c->address, sizeof(who));
    if (!c->is_of_job && c->rank >= 0)
        buf_printf(out, ", as rank %lld", (long long)c->rank);
}

/* Return the words before the first claim of each launch. If all claims belong to this job, return "". */
static const char *launch_words(const struct snapshot_claim *previous, const struct snapshot_claim *c)
{
    if (!c->is_of_job)
        return previous == NULL ? "the other launch has " : "";
    return previous != NULL && !previous->is_of_job ? "this job has " : "";
}

/* Append a claim. `previous` is the previous claim, or NULL. `room` is the maximum length of `out`. Cut the first claim
 * if it is too long. If a later claim is too long, leave it out and return false. */
static bool add_claim(const struct snapshot_claim *c, const struct snapshot_claim *previous, size_t room,
                      struct buf *out)
{
    const bool is_first = previous == NULL;
    const size_t before = out->len;
    buf_printf(out, "%s%s", is_first ? "" : "; ", launch_words(previous, c));
    append_claim(c, out);
    if (out->len <= room)
        return true;
    out->len = is_first ? room : before;
    return is_first;
}

/* Return the maximum length of the list of claims, including the next claim. If a text such as "; and 3 more" may
 * follow the next claim, keep TAIL_MAX bytes free for this text. */
static size_t room_for(const struct snapshot_surplus *surplus, uint32_t shown)
{
    return shown + 1 == surplus->n && surplus->count <= surplus->n ? WHO_MAX - 1 : WHO_MAX - TAIL_MAX;
}

/* Append up to CLAIMS_SHOWN claims and return their number. Begin with the processes of another launch, and with the
 * children of workers, because they have probably caused the error. */
static uint32_t append_some_claims(const struct snapshot_surplus *surplus, struct buf *out)
{
    const struct snapshot_claim *previous = NULL;
    uint32_t shown = 0;
    for (int part = 0; part <= 2; part++)
        for (uint32_t i = 0; i < surplus->n; i++) {
            const struct snapshot_claim *c = &surplus->claims[i];
            if ((!c->is_of_job ? 0 : c->is_child ? 1 : 2) != part)
                continue;
            if (shown == CLAIMS_SHOWN || !add_claim(c, previous, room_for(surplus, shown), out))
                return shown;
            previous = c;
            shown++;
        }
    return shown;
}

/* Append the claims, then the number of registrations whose connections are closed. The processes that made these
 * registrations are unknown. Some of these processes may also be listed as claims. */
static void append_claims(const struct snapshot_surplus *surplus, struct buf *out)
{
    const uint32_t shown = append_some_claims(surplus, out);
    const unsigned long long others = surplus->count > surplus->n ? surplus->count - surplus->n : 0;
    if (surplus->n > shown)
        buf_printf(out, "; and %u more", surplus->n - shown);
    if (others > 0)
        buf_printf(out, "; %llu of these registrations are from processes that have closed their connections",
                   others);
}

/* Return true if the group contains a process that does not belong to this job (`is_of_job` is false). */
static bool has_strangers(const struct snapshot_surplus *surplus)
{
    for (uint32_t i = 0; i < surplus->n; i++)
        if (!surplus->claims[i].is_of_job)
            return true;
    return false;
}

/* Return true if the group contains a known process that does not belong to the job (is_of_job). Ignore a process whose
 * pid and owner are unknown. Such a process may be a worker whose agent has not answered yet. */
bool diagnose_torch_surplus(const struct snapshot *s)
{
    for (uint32_t i = 0; i < s->surplus.n; i++) {
        const struct snapshot_claim *c = &s->surplus.claims[i];
        if (!c->is_of_job && (c->owner[0] != '\0' || c->pid != 0))
            return true;
    }
    return false;
}

/* Return the words that follow the number of members in the finding's sentence. If connections have closed, the number
 * may count one process twice. The sentence then counts registrations and not processes. */
static const char *surplus_words(const struct snapshot_surplus *surplus)
{
    if (surplus->count > surplus->n)
        return "registrations were made";
    return has_strangers(surplus) ? "processes take part" : "processes of this job take part";
}

/* Format why the members of the group are wrong: two members have the same rank, or the group has more members than the
 * job has ranks. */
static const char *belong(words out, const struct snapshot *s)
{
    if (s->surplus.is_double)
        snprintf(out, WORDS_LEN, "some of them as the same rank");
    else
        snprintf(out, WORDS_LEN, "but the job has %u rank%s", s->world_size, s->world_size == 1 ? "" : "s");
    return out;
}

/* Report a PyTorch group with too many members. The list of members may be too long for the type `words`, so `who` is
 * larger. */
static void check_torch_surplus(struct diagnosis *d, const struct snapshot *s)
{
    char who[WHO_MAX];
    words setup, count, ranks, time;
    struct buf text = { 0 };
    const enum finding_code code =
        has_strangers(&s->surplus) ? FINDING_STORE_SHARED : FINDING_GROUP_TOO_LARGE;
    struct finding *f = s->surplus.n > 0 ? diagnosis_slot(d, code) : NULL;
    if (f == NULL)
        return;
    append_claims(&s->surplus, &text);
    snprintf(who, sizeof(who), "%.*s", (int)text.len, text.data != NULL ? (const char *)text.data : "");
    buf_free(&text);
    finding_make(f, code, words_of(setup, &s->surplus.key, torch_key_append_setup), "count",
                 number(count, s->surplus.count), "come", surplus_words(&s->surplus), "belong",
                 belong(ranks, s), "time", duration(time, s->surplus.for_ms), "who", who, NULL);
}

/* --- ranks that others wait for ------------------------------------------------------------------------- */

/* Find the key or barrier that has the most waiting ranks. Report the ranks that may have to set this key or enter this
 * barrier. Thousands of ranks may have to be reported, so diagnosis_slot accepts at most DIAGNOSIS_SAME findings with
 * the same code. */
static void check_ranks(struct diagnosis *d, const struct snapshot *s)
{
    const struct snapshot_wait *most = main_wait(s);
    for (uint32_t i = 0; most != NULL && i < s->n_ranks; i++) {
        const struct snapshot_rank *f = &s->ranks[i];
        if (waits_in(f, most) || !is_needed(most, f->rank))
            continue;
        struct finding *slot = diagnosis_slot(d, diagnose_rank_code(f));
        if (slot != NULL)
            diagnose_rank(f, slot);
    }
}

/* Report stopped ranks. If ranks wait at main_wait(), skip the ranks that these waiting ranks may need (is_needed),
 * because check_ranks() has already handled the needed ranks. Any other stopped rank may block a PyTorch collective,
 * which does not use the store. */
static void check_stopped(struct diagnosis *d, const struct snapshot *s)
{
    const struct snapshot_wait *most = main_wait(s);
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const struct snapshot_rank *f = &s->ranks[i];
        const bool is_reported = most != NULL && is_needed(most, f->rank);
        struct finding *slot = !is_reported && diagnose_is_stopped(f, STOPPED_MS)
                                   ? diagnosis_slot(d, FINDING_RANK_STOPPED)
                                   : NULL;
        if (slot != NULL)
            diagnose_rank(f, slot);
    }
}

/* Return true if the ranks at `most` need a rank that waits at `other`. Also return true if the needed ranks are
 * unknown. */
static bool keeps_away(const struct snapshot *s, const struct snapshot_wait *most,
                       const struct snapshot_wait *other)
{
    for (uint32_t i = 0; i < s->n_ranks; i++)
        if (waits_in(&s->ranks[i], other) && is_needed(most, s->ranks[i].rank))
            return true;
    return most->barrier == NULL;
}

/* Report ranks that wait at one barrier while another barrier needs, or may need, one of these ranks. The programs have
 * probably made different calls. Ignore ranks that wait for a key, because they may enter the barrier later. */
static void check_ways(struct diagnosis *d, const struct snapshot *s)
{
    const struct snapshot_wait *most = main_wait(s), *other = NULL;
    words what, elsewhere, who, others, time;
    for (uint32_t i = 0; most != NULL && i < s->n_waits && other == NULL; i++)
        if (&s->waits[i] != most && s->waits[i].is_barrier && s->waits[i].waiting > 0 &&
            keeps_away(s, most, &s->waits[i]))
            other = &s->waits[i];
    if (other == NULL || !most->is_barrier)
        return;
    ADD(d, RANKS_DIVERGED, waiters_of(who, other), "what", place(what, other), "other",
        waiters_of(others, most), "elsewhere", place(elsewhere, most), "time", duration(time, most->for_ms));
}

/* Report where most ranks wait. A wait shorter than WAITS_MS is usual, for example during a checkpoint. A wait in
 * PyTorch's start has no minimum here. hub/schedule.c decides when to report such a wait, and `ddpctl why` shows it at
 * once. */
static void check_waits(struct diagnosis *d, const struct snapshot *s)
{
    const struct snapshot_wait *w = main_wait(s);
    words what, time;
    if (w == NULL || check_torch_setup(d, s, w))
        return;
    if (w->for_ms < WAITS_MS && !s->is_final && !waits_for_torch(w))
        return;
    place(what, w);
    duration(time, w->for_ms);
    if (w->is_barrier)
        ADD(d, BARRIER_INCOMPLETE, what, "arrived", number((words){ 0 }, w->waiting), "members",
            number((words){ 0 }, w->members), "missing", absent_ranks((words){ 0 }, s), "time", time);
    else
        ADD(d, KEY_NOT_SET, what, "waiters", named_waiters((words){ 0 }, s, w), "time", time);
}

/* --- all of it ------------------------------------------------------------------------------------------ */

/* Add the findings that nodes have sent. Each of these findings already has its complete subject, sentence and
 * advice. */
static void check_notices(struct diagnosis *d, const struct snapshot *s)
{
    for (uint32_t i = 0; i < s->n_notices; i++) {
        const struct snapshot_notice *notice = &s->notices[i];
        struct finding *f = diagnosis_slot(d, notice->code);
        if (f == NULL)
            continue;
        *f = (struct finding){ .code = notice->code };
        snprintf(f->subject, sizeof(f->subject), "%s", notice->subject);
        snprintf(f->sentence, sizeof(f->sentence), "%s", notice->sentence);
        snprintf(f->advice, sizeof(f->advice), "%s", notice->advice);
    }
}

/* Run all checks. The checks may run in any order, because diagnosis_slot inserts each finding in the order of
 * findings.h. So causes precede consequences, and notes are last. If the loss of a node stops the round, report the
 * node and not its ranks. If diagnose_hang has found a culprit, skip the remaining checks of ranks, because the stacks
 * show more. The store's event loop waits for this function, so each check should be linear in the number of ranks. */
void diagnose_job(const struct snapshot *s, struct diagnosis *out)
{
    out->n = out->left_out = 0;
    check_notices(out, s);
    check_refused(out, s);
    check_nproc(out, s);
    check_translation(out, s);
    check_addresses(out, s);
    check_store(out, s);
    check_missing_nodes(out, s);
    check_members(out, s);
    check_cause(out, s);
    check_torch_surplus(out, s);
    /* When a round stops, its ranks may end in any order. */
    if (s->phase != PHASE_RUNNING)
        return;
    diagnose_slow(out, s);
    if (diagnose_hang(out, s) >= 0)
        return;
    check_ranks(out, s);
    diagnose_still(out, s);
    check_ways(out, s);
    check_waits(out, s);
    check_stopped(out, s);
}
