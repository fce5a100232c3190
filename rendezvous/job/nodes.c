/* nodes.c -- the nodes of a job: how they join, move between lists, get ranks, send heartbeats and leave, and the
 * messages about them. Memory is allocated only when a node joins, so a lack of memory cannot prevent the beginning or
 * end of a round, or the end of the job. */
#include "job/nodes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- heartbeats ------------------------------------------------------------------------------------------ */

/* The silence of a node is the time since its last message. In the list `watched`, the node with the longest silence is
 * first. A message moves its node to the end, in constant time.
 *
 * After a suspension of the server (a moved VM, SIGSTOP), all nodes seem silent, because their heartbeats are still
 * unread. The server checks the time every CHECK_MS. A check that is more than LATE_MS late shows a suspension. The
 * silence of all nodes is then excused: the silence starts again at the time of this check.
 *
 * On an overloaded server every check is late. So a node is excused at most EXCUSES_MAX times. After that, the node is
 * lost if it stays silent for node_timeout_ms.
 *
 * The server also wakes when the timeout of a silent node ends (rdzv_watch_deadline). Otherwise the server would
 * detect the loss up to CHECK_MS late. With --node_timeout=fast, CHECK_MS is a third of the timeout. */

enum { CHECK_MS = 500, LATE_MS = STOOD_STILL_MS, EXCUSES_MAX = 2 };

void rdzv_touch(struct rdzv *r, struct node *node)
{
    /* no checks run while no node is watched, so set watch_ms again; otherwise the next check would seem to be late */
    const bool is_first = list_is_empty(&r->watched);
    node->last_received_ms = node->silent_since_ms = r->now_ms;
    node->excuses = 0;
    list_remove(&node->watched);
    list_insert(&r->watched, &node->watched);
    if (is_first || r->watch_ms == UINT64_MAX)
        r->watch_ms = r->now_ms + CHECK_MS;
}

static bool is_watching(const struct rdzv *r)
{
    return r->rules.node_timeout_ms > 0 && !list_is_empty(&r->watched);
}

uint64_t rdzv_watch_deadline(const struct rdzv *r)
{
    if (!is_watching(r))
        return UINT64_MAX;
    const struct node *first = LIST_ENTRY(r->watched.next, struct node, watched);
    const uint64_t silent_ms = first->silent_since_ms + r->rules.node_timeout_ms;
    return silent_ms < r->watch_ms ? silent_ms : r->watch_ms;
}

/* Excuse each node that has fewer than EXCUSES_MAX excuses: the silence of the node counts from now. */
void rdzv_excuse_silence(struct rdzv *r, uint64_t now_ms)
{
    /* In the list, no node has more excuses than the node before it. So the nodes that are excused here are at the end
     * of the list, and the list stays sorted by silent_since_ms. */
    r->now_ms = now_ms;
    LIST_EACH(at, &r->watched)
    {
        struct node *node = LIST_ENTRY(at, struct node, watched);
        if (node->excuses < EXCUSES_MAX) {
            node->excuses++;
            node->silent_since_ms = now_ms;
        }
    }
    r->watch_ms = is_watching(r) ? now_ms : UINT64_MAX;
}

/* Plan the next check for silent nodes if the current check is due. A check that is more than LATE_MS late shows that
 * the server was suspended, so excuse the silence of all nodes. Call this function before any node is declared lost. */
void rdzv_check_own_pulse(struct rdzv *r)
{
    if (is_watching(r) && r->now_ms < r->watch_ms)
        return;
    if (is_watching(r) && r->now_ms > r->watch_ms + LATE_MS)
        rdzv_excuse_silence(r, r->now_ms);
    r->watch_ms = is_watching(r) ? r->now_ms + CHECK_MS : UINT64_MAX;
}

bool rdzv_is_silent(const struct rdzv *r, const struct node *node)
{
    const uint64_t limit_ms = r->rules.node_timeout_ms;
    return limit_ms > 0 && r->now_ms >= node->silent_since_ms + limit_ms;
}

struct node *rdzv_silent_node(const struct rdzv *r)
{
    if (!is_watching(r))
        return NULL;
    struct node *node = LIST_ENTRY(r->watched.next, struct node, watched);
    return rdzv_is_silent(r, node) ? node : NULL;
}

/* --- ranks ---------------------------------------------------------------------------------------------- */

/* The assignment of ranks to nodes.
 *
 * Static job: nodes get the node ranks that the user gave. Nodes without a given rank get the free ranks.
 *
 * First round of an elastic job: nodes are sorted by host name, and nodes of the same host by pid. Numbers in host
 * names are compared by value. Hosts of one rack usually have similar names, so they get neighbouring ranks.
 *
 * Later round of an elastic job: nodes of the last round keep their node ranks. If lower ranks are free, the nodes with
 * the highest ranks get these ranks. Newcomers get the next ranks. So if any node of the last round remains, rank 0
 * runs on such a node. Only these nodes have the progress of the job. */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Compare two runs of digits by their value as numbers. First skip the leading zeros of each run. Then the longer run
 * is the larger number. If the runs have the same length, compare them as text. */
static int compare_numbers(const char **a, const char **b)
{
    size_t len_a = 0, len_b = 0;
    while (**a == '0')
        ++*a;
    while (**b == '0')
        ++*b;
    while (is_digit((*a)[len_a]))
        len_a++;
    while (is_digit((*b)[len_b]))
        len_b++;
    int order = len_a != len_b ? (len_a < len_b ? -1 : 1) : memcmp(*a, *b, len_a);
    *a += len_a;
    *b += len_b;
    return order;
}

/* Compare host names, with runs of digits compared as numbers: "node2" is before "node10". */
static int rdzv_compare_names(const char *a, const char *b)
{
    const char *from_a = a, *from_b = b;
    int order = 0;
    while (order == 0 && *a != '\0' && *b != '\0') {
        if (is_digit(*a) && is_digit(*b))
            order = compare_numbers(&a, &b);
        else if (*a != *b)
            order = (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        else
            a++, b++;
    }
    if (order == 0 && (*a != '\0' || *b != '\0'))
        order = *a != '\0' ? 1 : -1;
    return order != 0 ? order : strcmp(from_a, from_b); /* "n01" and "n1" are different names */
}

/* Compare by host name, then by pid, then by id, for qsort. Ids are unique, so the result does not depend on the
 * algorithm of qsort. */
static int by_name(const void *left, const void *right)
{
    const struct node *a = *(struct node *const *)left, *b = *(struct node *const *)right;
    int order = rdzv_compare_names(a->host, b->host);
    if (order == 0 && a->pid != b->pid)
        order = a->pid < b->pid ? -1 : 1;
    return order != 0 ? order : a->id < b->id ? -1 : 1;
}

/* Compare by node rank, for qsort. Do not subtract: the difference could overflow. */
static int by_rank(const void *left, const void *right)
{
    const struct node *a = *(struct node *const *)left, *b = *(struct node *const *)right;
    return a->node_rank < b->node_rank ? -1 : a->node_rank > b->node_rank;
}

static void sort(struct node **nodes, uint32_t n, int (*compare)(const void *, const void *))
{
    qsort(nodes, n, sizeof(*nodes), compare);
}

/* Fill r->run.member, indexed by node rank. A node that requested no rank gets a free rank, and keeps this rank in
 * later rounds. The round is complete, so there is a free rank for each such node. */
void rdzv_order_static(struct rdzv *r)
{
    uint32_t n = 0, at = 0;
    LIST_EACH(i, &r->waiting)
    {
        struct node *node = LIST_ENTRY(i, struct node, waiting);
        if (node->wanted < 0 && (node->node_rank < 0 || r->place[node->node_rank] != node))
            r->run.order[n++] = node;
    }
    sort(r->run.order, n, by_name);
    for (uint32_t rank = 0; rank < r->rules.max; rank++) {
        if (r->place[rank] == NULL)
            r->place[rank] = r->run.order[at++];
        r->run.member[rank] = r->place[rank];
    }
}

/* Assign the node ranks 0 to n - 1 to the first `n` nodes of r->run.order. These are nodes of the last round, in the
 * order of their old ranks. A node whose old rank is below n keeps this rank. The other nodes fill the gaps, the node
 * with the highest old rank first. */
static void close_gaps(struct rdzv *r, uint32_t n)
{
    uint32_t last = n;
    for (uint32_t rank = 0; rank < n; rank++)
        r->run.member[rank] = NULL;
    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)r->run.order[i]->node_rank < n)
            r->run.member[r->run.order[i]->node_rank] = r->run.order[i];
    for (uint32_t rank = 0; rank < n; rank++)
        if (r->run.member[rank] == NULL)
            r->run.member[rank] = r->run.order[--last];
}

/* Fill r->run.member with `n` nodes: first the nodes of the last round, then newcomers. The newcomers that arrived
 * first are accepted, and get their ranks in the order of their host names. */
void rdzv_order_elastic(struct rdzv *r, uint32_t n)
{
    uint32_t old = 0, taken = r->n_back;
    LIST_EACH(i, &r->waiting)
    {
        struct node *node = LIST_ENTRY(i, struct node, waiting);
        bool survivor = node->round != 0 && node->round == r->run.round;
        if (survivor)
            r->run.order[old++] = node;
        else if (taken < n)
            r->run.order[taken++] = node;
    }
    sort(r->run.order, old, by_rank);
    sort(r->run.order + old, n - old, by_name);
    close_gaps(r, old);
    memcpy(r->run.member + old, r->run.order + old, (n - old) * sizeof(*r->run.member));
}

enum { ROOM_MIN = 8 };

/* Return how many bytes the job's three arrays charge to the quota if each has `room` entries. */
static uint64_t room_bytes(uint32_t room)
{
    return (uint64_t)room * (2 * sizeof(struct node *) + sizeof(struct rdzv_row));
}

/* Return how many bytes a job without nodes charges to the quota. */
static uint64_t own_bytes(void)
{
    return sizeof(struct rdzv) + RDZV_GONE_MAX * sizeof(struct rdzv_gone);
}

static struct rdzv *allocate_rdzv(struct quota *quota)
{
    if (!quota_use(quota, own_bytes()))
        return NULL;
    struct rdzv *r = calloc(1, sizeof(*r));
    if (r == NULL)
        quota_release(quota, own_bytes());
    return r;
}

struct rdzv *rdzv_new(const struct rdzv_env *env, struct quota *quota, const char *job, const char *instance)
{
    struct rdzv *r = allocate_rdzv(quota);
    if (r == NULL)
        return NULL;
    *r = (struct rdzv){ .env = *env, .quota = quota, .next_notice_ms = UINT64_MAX, .watch_ms = UINT64_MAX };
    list_init(&r->nodes);
    list_init(&r->watched);
    list_init(&r->waiting);
    text_copy(r->job, sizeof(r->job), job);
    text_copy(r->instance, sizeof(r->instance), instance);
    r->gone = malloc(RDZV_GONE_MAX * sizeof(*r->gone)); /* a ring; only written items are read */
    if (!table_init(&r->by_id) || r->gone == NULL) {
        rdzv_free(r);
        return NULL;
    }
    return r;
}

void rdzv_free(struct rdzv *r)
{
    if (r == NULL)
        return;
    while (!list_is_empty(&r->nodes))
        rdzv_remove_node(r, LIST_ENTRY(r->nodes.next, struct node, joined));
    rdzv_forget_rules(r);
    quota_release(r->quota, room_bytes(r->run.room) + own_bytes());
    free(r->run.member);
    free(r->run.order);
    free(r->run.rows);
    free(r->gone);
    table_free(&r->by_id);
    free(r);
}

const char *rdzv_instance(const struct rdzv *r)
{
    return r->instance;
}

struct node *rdzv_find(const struct rdzv *r, uint64_t id)
{
    struct slice key = slice_of(&id, sizeof(id));
    struct table_node *found = table_find(&r->by_id, key, table_hash(key));
    return found ? TABLE_ENTRY(found, struct node, by_id) : NULL;
}

/* Return true if the job is static and its node `node_rank` waits or runs. */
static bool rdzv_has_node_rank(const struct rdzv *r, uint32_t node_rank)
{
    return r->place != NULL && node_rank < r->rules.max && r->place[node_rank] != NULL &&
           r->place[node_rank]->state != RDZV_NODE_RESTING;
}

/* --- memory for nodes ----------------------------------------------------------------------------------- */

/* Enlarge an array to `room` entries. `array` is the address of a pointer of any type, so memcpy reads and writes it.
 * If memory is short, the old array is unchanged. */
static bool grow_array(void *array, size_t size, uint32_t room)
{
    void *old, *bigger;
    memcpy(&old, array, sizeof(old));
    bigger = realloc(old, size * room);
    if (bigger != NULL)
        memcpy(array, &bigger, sizeof(bigger));
    return bigger != NULL;
}

/* Enlarge the arrays `member`, `order` and `rows` for `nodes` nodes. Charge the quota first, so that one job cannot use
 * the memory of other jobs. */
static bool make_room(struct rdzv *r, uint32_t nodes)
{
    /* set `room` only after all three arrays have grown */
    if (nodes <= r->run.room)
        return true;
    uint32_t room = r->run.room < ROOM_MIN ? ROOM_MIN : r->run.room * 2;
    uint64_t more = room_bytes(room) - room_bytes(r->run.room);
    if (!quota_use(r->quota, more))
        return false;
    if (!grow_array(&r->run.member, sizeof(*r->run.member), room) ||
        !grow_array(&r->run.order, sizeof(*r->run.order), room) ||
        !grow_array(&r->run.rows, sizeof(*r->run.rows), room)) {
        quota_release(r->quota, more);
        return false;
    }
    r->run.room = room;
    return true;
}

/* Allocate the array `place` if the job is static. The array has one pointer for each node rank. So the store checks in
 * constant time whether a node rank is free. The array is small, because is_sound() in admission.c rejects a job of
 * more than 16,384 nodes. An elastic job has no such array. */
bool rdzv_make_places(struct rdzv *r)
{
    uint64_t bytes = r->rules.max * sizeof(struct node *);
    if (r->rules.elastic)
        return true;
    if (!quota_use(r->quota, bytes))
        return false;
    r->place = calloc(r->rules.max, sizeof(struct node *));
    if (r->place == NULL)
        quota_release(r->quota, bytes);
    return r->place != NULL;
}

void rdzv_forget_rules(struct rdzv *r)
{
    if (r->place != NULL)
        quota_release(r->quota, r->rules.max * sizeof(struct node *));
    free(r->place);
    r->place = NULL;
    r->rules = (struct rules){ 0 };
}

/* --- join ----------------------------------------------------------------------------------------------- */

/* Copy the texts of the join, which the hub frees. */
static void fill_node(struct node *node, const struct rdzv_join *join)
{
    text_copy(node->host, sizeof(node->host), join->host);
    text_copy(node->addr, sizeof(node->addr), join->addr);
    text_copy(node->own, sizeof(node->own), join->own);
    text_copy(node->boot_id, sizeof(node->boot_id), join->boot_id);
    text_copy(node->version, sizeof(node->version), join->version);
    text_copy(node->role, sizeof(node->role), join->role);
    node->nproc = join->nproc;
    node->store_port = join->store_port;
    node->pid = join->pid;
    node->grace_ms = join->grace_ms;
}

/* Create a node, and charge its memory to the quota. rdzv_remove_node releases this charge. If memory or quota is
 * short, return NULL and add nothing. */
struct node *rdzv_add_node(struct rdzv *r, uint64_t id, const struct rdzv_join *join)
{
    if (!make_room(r, r->by_id.count + 1) || !quota_use(r->quota, sizeof(struct node)))
        return NULL;
    struct node *node = calloc(1, sizeof(*node));
    if (node == NULL) {
        quota_release(r->quota, sizeof(struct node));
        return NULL;
    }
    fill_node(node, join);
    node->id = id;
    node->state = RDZV_NODE_RESTING; /* A new node does not change n_resting, because n_resting counts only
                                      * members of the last round. */
    node->node_rank = -1;
    node->wanted = r->rules.elastic ? -1 : join->node_rank;
    node->joined_ms = r->now_ms;
    node->by_id.key = &node->id;
    node->by_id.key_len = sizeof(node->id);
    node->by_id.hash = table_hash(slice_of(&node->id, sizeof(node->id)));
    table_insert(&r->by_id, &node->by_id);
    list_insert(&r->nodes, &node->joined);
    r->n_live++;
    list_init(&node->watched);
    list_init(&node->waiting);
    if (node->wanted >= 0)
        r->place[node->wanted] = node;
    rdzv_touch(r, node);
    return node;
}

/* Change the id of a node. node->id is its key in by_id, so remove the node from the table before the change. */
void rdzv_node_moves(struct rdzv *r, struct node *node, uint64_t id)
{
    table_remove(&r->by_id, &node->by_id);
    node->id = id;
    node->by_id.hash = table_hash(slice_of(&node->id, sizeof(node->id)));
    table_insert(&r->by_id, &node->by_id);
    if (rdzv_is_member(r, node))
        r->run.rows[node->node_rank].node = id;
}

/* --- move ----------------------------------------------------------------------------------------------- */

/* The counts n_live, n_waiting, n_back, n_resting, n_members and n_open are updated with each state, so that no
 * decision walks over 16,384 nodes. */

/* Return true if the node was a member of the last round. */
static bool is_survivor(const struct rdzv *r, const struct node *node)
{
    return node->round != 0 && node->round == r->run.round;
}

bool rdzv_is_member(const struct rdzv *r, const struct node *node)
{
    bool in_one = node->state == RDZV_NODE_RUNNING || node->state == RDZV_NODE_DONE ||
                  node->state == RDZV_NODE_STOPPING || node->state == RDZV_NODE_STOPPED;
    return in_one && is_survivor(r, node);
}

/* Append the node to the waiting nodes. The order of this list matters: if there are too few free places, the first
 * newcomers get these places. */
void rdzv_node_waits(struct rdzv *r, struct node *node)
{
    if (is_survivor(r, node)) {
        r->n_resting--;
        r->n_back++;
    }
    node->state = RDZV_NODE_WAITING;
    list_insert(&r->waiting, &node->waiting);
    r->n_waiting++;
}

void rdzv_node_stops_waiting(struct rdzv *r, struct node *node, enum rdzv_node_state next)
{
    list_remove(&node->waiting);
    r->n_waiting--;
    if (is_survivor(r, node))
        r->n_back--;
    node->state = next;
}

/* Return true if a member in this state is open: it must still send `stopped`. The verdict on the round waits until no
 * member is open. */
static bool is_open(enum rdzv_node_state state)
{
    return state == RDZV_NODE_RUNNING || state == RDZV_NODE_DONE || state == RDZV_NODE_STOPPING;
}

/* Change the state of a member and update the counts. Within a round, no member returns to RUNNING. */
void rdzv_member_becomes(struct rdzv *r, struct node *node, enum rdzv_node_state next)
{
    r->run.n_done += (next == RDZV_NODE_DONE) && node->state != RDZV_NODE_DONE;
    r->run.n_open -= is_open(node->state) && !is_open(next);
    node->state = next;
}

/* --- leave ---------------------------------------------------------------------------------------------- */

/* Remove a member from the round. Keep the member's ranks in `rows`, because rdzv_node_of_rank searches all rows. */
static void leave_round(struct rdzv *r, struct node *node)
{
    r->run.n_open -= is_open(node->state);
    r->run.n_members--;
    r->run.member[node->node_rank] = NULL;
    r->run.rows[node->node_rank].node = 0;
}

/* Make the node rank of a static node free, so that another node may join with this rank. */
static void leave_place(struct rdzv *r, const struct node *node)
{
    int32_t held = node->wanted >= 0 ? node->wanted : node->node_rank;
    if (r->place != NULL && held >= 0 && r->place[held] == node)
        r->place[held] = NULL;
}

/* Remove the node from all counts and from `watched`, so that its silence has no effect. A second call does nothing.
 * The struct stays until the node's connection closes. */
void rdzv_node_is_finished(struct rdzv *r, struct node *node)
{
    if (node->state == RDZV_NODE_FINISHED)
        return;
    if (rdzv_is_member(r, node))
        leave_round(r, node);
    else if (node->state == RDZV_NODE_WAITING)
        rdzv_node_stops_waiting(r, node, RDZV_NODE_FINISHED);
    else if (node->state == RDZV_NODE_RESTING && is_survivor(r, node))
        r->n_resting--;
    leave_place(r, node);
    list_remove(&node->watched);
    node->state = RDZV_NODE_FINISHED;
    r->n_live--;
}

void rdzv_remove_node(struct rdzv *r, struct node *node)
{
    rdzv_node_is_finished(r, node);
    list_remove(&node->joined);
    table_remove(&r->by_id, &node->by_id);
    quota_release(r->quota, sizeof(*node));
    free(node);
}

/* Record a node that leaves, before the node is freed. Only the last RDZV_GONE_MAX records are kept. */
void rdzv_remember_gone(struct rdzv *r, const struct node *node, const struct rdzv_event *how,
                        const char *words)
{
    struct rdzv_gone *gone = &r->gone[r->n_gone++ % RDZV_GONE_MAX];
    *gone = (struct rdzv_gone){ .node_rank = node->node_rank >= 0 ? node->node_rank : node->wanted,
                                .pid = node->pid,
                                .round = node->round,
                                .joined_ms = node->joined_ms,
                                .gone_ms = r->now_ms,
                                .lost = how->type == RDZV_LOST,
                                .silent = how->silent };
    text_copy(gone->host, sizeof(gone->host), node->host);
    text_copy(gone->how, sizeof(gone->how), words);
}

/* --- when the state ends by itself ------------------------------------------------------------------------- */

uint64_t rdzv_state_deadline(const struct rdzv *r)
{
    switch (r->state) {
    case RDZV_GATHERING:
        return r->rules.known ? r->until.gather_ms : UINT64_MAX;
    case RDZV_LAST_CALL:
        return r->until.call_ms;
    case RDZV_STOPPING:
        return r->until.stop_ms;
    case RDZV_BACKING_OFF:
        return r->until.back_off_ms;
    default:
        return UINT64_MAX;
    }
}

/* --- words of the protocol; "?" for an invalid value ------------------------------------------------------- */

static const char *word(const char *const *words, unsigned at, unsigned n)
{
    return at < n ? words[at] : "?";
}

#define X(name, word) word,
static const char *const states[] = { RDZV_STATES(X) };
static const char *const whys[] = { RDZV_WHYS(X) };
#undef X
#define X(name, ...) #name,
static const char *const codes[] = { "WELCOME", RDZV_REFUSALS(X) };
#undef X
#define X(name, grade, sentence, advice, ...) advice,
static const char *const advices[] = { "", RDZV_REFUSALS(X) };
#undef X
static const char *const node_states[] = { "waiting", "running", "done",    "stopping",
                                           "stopped", "resting", "finished" };

#define WORD(words, at) word(words, (unsigned)(at), sizeof(words) / sizeof((words)[0]))

const char *rdzv_state_word(enum rdzv_state state)
{
    return WORD(states, state);
}

const char *rdzv_why_word(enum rdzv_why why)
{
    return WORD(whys, why);
}

const char *rdzv_refused_code(enum rdzv_refused refused)
{
    return WORD(codes, refused);
}

const char *rdzv_refused_advice(enum rdzv_refused refused)
{
    return WORD(advices, refused);
}

const char *rdzv_node_state_word(enum rdzv_node_state state)
{
    return WORD(node_states, state);
}

/* --- names ------------------------------------------------------------------------------------------------- */

/* These functions format the name of a node for a message that names two nodes: "node 1 (n1, pid 77)", or "n1 (pid 77)"
 * if the node has no node rank. If both nodes have the same host name, such as "localhost", and different addresses,
 * the address follows the host name. */

struct who rdzv_who(const struct rdzv_join *j)
{
    struct who who = { .node_rank = j->elastic ? -1 : j->node_rank, .pid = j->pid };
    text_copy(who.host, sizeof(who.host), j->host);
    text_copy(who.addr, sizeof(who.addr), j->addr);
    return who;
}

/* Return true if the two nodes have the same host name but different addresses. */
static bool needs_address(const struct who *who, const struct who *beside)
{
    return strcmp(who->host, beside->host) == 0 && who->addr[0] != '\0' &&
           strcmp(who->addr, beside->addr) != 0;
}

/* Write the name of `who`. Cut a long host name, because the message must also have room for the name of `beside`. */
const char *rdzv_name_who(who_name out, const struct who *who, const struct who *beside)
{
    const bool at = needs_address(who, beside), ranked = who->node_rank >= 0;
    char rank[32] = "";
    if (ranked)
        snprintf(rank, sizeof(rank), "node %" PRId32 " (", who->node_rank);
    snprintf(out, sizeof(who_name), "%s%.120s%s%s%spid %d)", rank, who->host, ranked ? ", " : " (",
             at ? who->addr : "", at ? ", " : "", who->pid);
    return out;
}

/* --- log and messages ---------------------------------------------------------------------------------------- */

/* The first message about missing nodes is sent NOTICE_AFTER_MS after a change. Each further message is sent
 * NOTICE_EVERY_MS after the previous message. If more than 1,000 nodes wait, the time between two messages is 1 ms for
 * each waiting node, to limit the load. */

enum { NOTICE_AFTER_MS = 250, NOTICE_EVERY_MS = 1000 };

const char *rdzv_name(const struct node *node, char *room, size_t size)
{
    int32_t rank = node->node_rank >= 0 ? node->node_rank : node->wanted;
    if (rank >= 0)
        snprintf(room, size, "node %" PRId32 " (%s)", rank, node->host);
    else
        snprintf(room, size, "node %s", node->host);
    return room;
}

void rdzv_note(struct rdzv *r, enum rdzv_record_kind kind, const struct node *node, const char *format, ...)
{
    char line[3 * RDZV_WORDS_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (r->env.log != NULL)
        r->env.log(r->env.user, line);
    if (r->env.record == NULL)
        return;
    struct rdzv_record record = { .kind = kind,
                                  .now_ms = r->now_ms,
                                  .round = r->run.round,
                                  .node = node ? node->id : 0,
                                  .node_rank = !node                  ? -1
                                               : node->node_rank >= 0 ? node->node_rank
                                                                      : node->wanted,
                                  .host = node ? node->host : "",
                                  .pid = node ? node->pid : 0,
                                  .nnodes = kind == RDZV_RECORD_ROUND ? r->run.nnodes : 0,
                                  .world_size = kind == RDZV_RECORD_ROUND ? r->run.world_size : 0,
                                  .words = line };
    r->env.record(r->env.user, &record);
}

/* --- messages to waiting nodes ----------------------------------------------------------------------------- */

/* Schedule a message to the waiting nodes. If a message is already scheduled, do nothing. */
void rdzv_schedule_notify(struct rdzv *r)
{
    uint64_t every_ms = r->n_waiting > NOTICE_EVERY_MS ? r->n_waiting : NOTICE_EVERY_MS;
    uint64_t soon_ms = r->now_ms + NOTICE_AFTER_MS, next_ms = r->last_notice_ms + every_ms;
    bool is_first = r->last_notice_ms == 0;
    if (r->next_notice_ms == UINT64_MAX && r->state != RDZV_OVER)
        r->next_notice_ms = is_first || next_ms < soon_ms ? soon_ms : next_ms;
}

/* Return the time until `until_ms`, or 0 if `until_ms` has passed. */
static uint64_t left(const struct rdzv *r, uint64_t until_ms)
{
    return until_ms > r->now_ms ? until_ms - r->now_ms : 0;
}

/* List the node ranks for which no node waits or runs. If a waiting node has requested no rank, the missing ranks are
 * unknown, so list no rank. */
static void list_missing(const struct rdzv *r, struct rdzv_waiting *w)
{
    uint32_t here = 0;
    if (r->place == NULL)
        return;
    for (uint32_t rank = 0; rank < r->rules.max; rank++) {
        if (rdzv_has_node_rank(r, rank))
            here++;
        else if (w->n_missing_listed < RDZV_SHORT_LIST_MAX)
            w->missing[w->n_missing_listed++] = rank;
    }
    w->n_missing = r->rules.max - w->joined;
    if (here < w->joined)
        w->n_missing_listed = 0;
}

static void list_hosts(const struct rdzv *r, struct rdzv_waiting *w)
{
    LIST_EACH(i, &r->waiting)
    {
        if (w->n_hosts == RDZV_SHORT_LIST_MAX)
            break;
        w->hosts[w->n_hosts++] = LIST_ENTRY(i, struct node, waiting)->host;
    }
}

/* Describe the state for the waiting nodes. While a round runs, the waiting nodes are spares, and `joined` is the
 * number of members of the round. */
static struct rdzv_waiting describe_waiting(const struct rdzv *r)
{
    const bool between = r->state != RDZV_RUNNING && r->state != RDZV_STOPPING;
    const bool may_fail = between && r->state != RDZV_LAST_CALL; /* a last call ends with a round */
    struct rdzv_waiting w = { .state = r->state,
                              .joined = between ? r->n_waiting : r->run.n_members,
                              .min = r->rules.min,
                              .max = r->rules.max,
                              .spare = between ? 0 : r->n_waiting,
                              .returning = r->n_resting,
                              .left_ms = may_fail ? left(r, r->until.gather_ms) : UINT64_MAX,
                              .last_call_ms = UINT64_MAX };
    if (r->state == RDZV_LAST_CALL)
        w.last_call_ms = left(r, r->until.call_ms);
    if (r->state == RDZV_BACKING_OFF)
        w.backoff_ms = left(r, r->until.back_off_ms);
    list_hosts(r, &w);
    list_missing(r, &w);
    return w;
}

void rdzv_notify_if_due(struct rdzv *r)
{
    if (r->now_ms < r->next_notice_ms)
        return;
    r->next_notice_ms = UINT64_MAX;
    if (r->n_waiting == 0)
        return;
    r->last_notice_ms = r->now_ms;
    struct rdzv_waiting waiting = describe_waiting(r);
    struct rdzv_notice notice = { .kind = RDZV_NOTICE_WAITING, .waiting = &waiting, .round = r->run.round };
    LIST_EACH(i, &r->waiting)
    r->env.notify(r->env.user, LIST_ENTRY(i, struct node, waiting)->id, &notice);
}
