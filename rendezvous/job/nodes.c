/* nodes.c -- the nodes of a job: they join, move between lists, get ranks, send heartbeats, and leave.
 *
 * Memory is allocated when a node joins, never later. The arrays of a round grow with the number of nodes that have
 * joined. So completing a round, stopping it and ending the job need no memory.
 *
 * Nodes move only in functions of this file, because each move also changes a count (n_live, n_waiting, n_back,
 * n_resting, n_members, n_open). So comparing numbers is sufficient to check whether a round is complete. A walk over
 * 16,384 nodes at every event would be slow. */
#include "job/rendezvous_core.h"

#include <stdlib.h>

/* --- heartbeats ------------------------------------------------------------------------------------------ */

/* The silence of a node is the time since its last message. All nodes are in one list, the longest silent node first.
 * A heartbeat moves its node to the end of the list, which costs the same with ten thousand nodes as with two.
 *
 * When a suspended server (a moved VM, a closed laptop, SIGSTOP) continues, all nodes seem silent, because their
 * heartbeats are unread in its sockets. So the server checks itself twice a second. If a check is more than half a
 * second late, the silence of every node starts again at this check. The timeout of a silence has its own deadline,
 * because waiting for the next check would add a third to --node_timeout=fast.
 *
 * A busy server is late at every check, so one silence is excused at most PARDONS times. Between two late checks the
 * server reads its sockets, so it receives the messages of a living node. After the last excuse, a silence times out
 * after node_timeout_ms, even if the server is suspended again. */

enum { LOOK_MS = 500, LATE_MS = STOOD_STILL_MS, PARDONS = 2 };

void rdzv_touch(struct rdzv *r, struct node *node)
{
    node->heard_ms = node->spared_ms = r->now_ms;
    node->pardons = 0;
    list_remove(&node->watched);
    list_insert(&r->watched, &node->watched);
    if (r->watch_ms == UINT64_MAX)
        r->watch_ms = r->now_ms + LOOK_MS;
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
    const uint64_t silent_ms = first->spared_ms + r->rules.node_timeout_ms;
    return silent_ms < r->watch_ms ? silent_ms : r->watch_ms;
}

/* Restart the silence of each node that was not excused too often. A node that has been silent longer has at least as
 * many excuses, so the list stays in order. */
void rdzv_pardon(struct rdzv *r, uint64_t now_ms)
{
    r->now_ms = now_ms;
    LIST_EACH(at, &r->watched)
    {
        struct node *node = LIST_ENTRY(at, struct node, watched);
        if (node->pardons < PARDONS) {
            node->pardons++;
            node->spared_ms = now_ms;
        }
    }
    r->watch_ms = is_watching(r) ? now_ms : UINT64_MAX;
}

void rdzv_check_own_pulse(struct rdzv *r)
{
    if (is_watching(r) && r->now_ms < r->watch_ms)
        return;
    if (is_watching(r) && r->now_ms > r->watch_ms + LATE_MS)
        rdzv_pardon(r, r->now_ms);
    r->watch_ms = is_watching(r) ? r->now_ms + LOOK_MS : UINT64_MAX;
}

bool rdzv_is_silent(const struct rdzv *r, const struct node *node)
{
    const uint64_t limit_ms = r->rules.node_timeout_ms;
    return limit_ms > 0 && r->now_ms >= node->spared_ms + limit_ms;
}

struct node *rdzv_silent_node(const struct rdzv *r)
{
    if (!is_watching(r))
        return NULL;
    struct node *node = LIST_ENTRY(r->watched.next, struct node, watched);
    return rdzv_is_silent(r, node) ? node : NULL;
}

/* --- which node gets which rank
 * ------------------------------------------------------------------------------------------- */

/* The assignment of ranks to nodes.
 *
 * In a static job, nodes get the ranks that the user gave, and nodes without a given rank get free ranks. In the
 * first round of an elastic job, nodes are sorted by the natural order of their host names, then by pid. Neighbours
 * in a rack have similar names, so they become neighbours in rings of ranks. In a later round, nodes of the last
 * round keep their node ranks, and the node with the highest rank fills a gap. Newcomers are added at the end. So
 * rank 0 is never a newcomer while a node is left that has the progress of the job.
 *
 * All functions need n log n steps for n nodes of the round, and allocate no memory. */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Compare runs of digits by value. Without leading zeros, the longer run is larger. */
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

int rdzv_compare_names(const char *a, const char *b)
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
    return order != 0 ? order : strcmp(from_a, from_b); /* "n01" and "n1" are not the same host */
}

/* Compare by name for qsort. The id makes the order total and repeatable. */
static int by_name(const void *left, const void *right)
{
    const struct node *a = *(struct node *const *)left, *b = *(struct node *const *)right;
    int order = rdzv_compare_names(a->host, b->host);
    if (order == 0 && a->pid != b->pid)
        order = a->pid < b->pid ? -1 : 1;
    return order != 0 ? order : a->id < b->id ? -1 : 1;
}

/* Compare by node rank for qsort, without a subtraction, which could overflow. All survivors have a rank, so -1 does
 * not occur. */
static int by_rank(const void *left, const void *right)
{
    const struct node *a = *(struct node *const *)left, *b = *(struct node *const *)right;
    return a->node_rank < b->node_rank ? -1 : a->node_rank > b->node_rank;
}

static void sort(struct node **nodes, uint32_t n, int (*compare)(const void *, const void *))
{
    qsort(nodes, n, sizeof(*nodes), compare);
}

/* Fill r->run.member by rank. A node that requested no rank gets a rank here and keeps this rank. */
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

/* Assign the ranks 0 to n - 1 to the first `n` nodes of r->run.order, which are survivors, sorted by rank. Nodes with
 * a rank below n keep their rank. The other nodes fill the gaps, the highest rank first. */
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

/* Fill r->run.member by rank: survivors first, then newcomers. Newcomers are accepted in order of arrival, but get
 * their ranks in the order of names. */
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

/* Return the charge of the three arrays. This function is the only place that computes the charge, because the same
 * amount must be returned later. */
static uint64_t room_bytes(uint32_t room)
{
    return (uint64_t)room * (2 * sizeof(struct node *) + sizeof(struct rdzv_seat));
}

/* Return the charge of a job without nodes. */
static uint64_t own_bytes(void)
{
    return sizeof(struct rdzv) + RDZV_GONE_MAX * sizeof(struct rdzv_gone);
}

static struct rdzv *allocate_rdzv(struct quota *quota)
{
    if (!quota_take(quota, own_bytes()))
        return NULL;
    struct rdzv *r = calloc(1, sizeof(*r));
    if (r == NULL)
        quota_give(quota, own_bytes());
    return r;
}

struct rdzv *rdzv_new(const struct rdzv_env *env, struct quota *quota, const char *job, const char *instance)
{
    struct rdzv *r = allocate_rdzv(quota);
    if (r == NULL)
        return NULL;
    *r = (struct rdzv){ .env = *env, .quota = quota, .say_ms = UINT64_MAX, .watch_ms = UINT64_MAX };
    list_init(&r->nodes);
    list_init(&r->watched);
    list_init(&r->waiting);
    text_copy(r->job, sizeof(r->job), job);
    text_copy(r->instance, sizeof(r->instance), instance);
    r->gone = calloc(RDZV_GONE_MAX, sizeof(*r->gone));
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
    quota_give(r->quota, room_bytes(r->run.room) + own_bytes());
    free(r->run.member);
    free(r->run.order);
    free(r->run.seats);
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

bool rdzv_has_node_rank(const struct rdzv *r, uint32_t node_rank)
{
    return r->place != NULL && node_rank < r->rules.max && r->place[node_rank] != NULL &&
           r->place[node_rank]->state != RDZV_NODE_RESTING;
}

/* --- room for all of them ------------------------------------------------------------------------------- */

/* Enlarge an array. `array` is the address of a pointer of any type; memcpy avoids a cast of this pointer. If memory
 * is short, the old array is unchanged. */
static bool grow_array(void *array, size_t size, uint32_t room)
{
    void *old, *bigger;
    memcpy(&old, array, sizeof(old));
    bigger = realloc(old, size * room);
    if (bigger != NULL)
        memcpy(array, &bigger, sizeof(bigger));
    return bigger != NULL;
}

/* Enlarge the three arrays for `nodes` nodes. If only some arrays have grown, `room` remains the smallest size.
 * Doubling is cheap, because n joins copy at most 2n pointers in each array. The quota is charged before malloc, so
 * that one job cannot use the memory of other jobs. */
static bool make_room(struct rdzv *r, uint32_t nodes)
{
    if (nodes <= r->run.room)
        return true;
    uint32_t room = r->run.room < ROOM_MIN ? ROOM_MIN : r->run.room * 2;
    uint64_t more = room_bytes(room) - room_bytes(r->run.room);
    if (!quota_take(r->quota, more))
        return false;
    if (!grow_array(&r->run.member, sizeof(*r->run.member), room) ||
        !grow_array(&r->run.order, sizeof(*r->run.order), room) ||
        !grow_array(&r->run.seats, sizeof(*r->run.seats), room)) {
        quota_give(r->quota, more);
        return false;
    }
    r->run.room = room;
    return true;
}

/* Allocate a place for each rank of --nnodes, so that a free rank is found in one step. The array has at most 16,384
 * pointers, because is_sound in admission.c checks the limit. */
bool rdzv_make_places(struct rdzv *r)
{
    uint64_t bytes = r->rules.max * sizeof(struct node *);
    if (r->rules.elastic)
        return true;
    if (!quota_take(r->quota, bytes))
        return false;
    r->place = calloc(r->rules.max, sizeof(struct node *));
    if (r->place == NULL)
        quota_give(r->quota, bytes);
    return r->place != NULL;
}

void rdzv_forget_rules(struct rdzv *r)
{
    if (r->place != NULL)
        quota_give(r->quota, r->rules.max * sizeof(struct node *));
    free(r->place);
    r->place = NULL;
    r->rules = (struct rules){ 0 };
}

/* --- join ----------------------------------------------------------------------------------------------- */

/* Copy the texts of the join, because the hub frees these texts with the message. The node exists as long as its
 * connection. */
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
    node->pid_start = join->pid_start;
    node->grace_ms = join->grace_ms;
}

/* Allocate all memory first, so that no later step can fail. rdzv_remove_node returns its charge to the quota. */
struct node *rdzv_add_node(struct rdzv *r, uint64_t id, const struct rdzv_join *join)
{
    if (!make_room(r, r->by_id.count + 1) || !quota_take(r->quota, sizeof(struct node)))
        return NULL;
    struct node *node = calloc(1, sizeof(*node));
    if (node == NULL) {
        quota_give(r->quota, sizeof(struct node));
        return NULL;
    }
    fill_node(node, join);
    node->id = id;
    node->state = RDZV_NODE_RESTING; /* until rdzv_node_waits; not counted in n_resting, since `round` is 0 */
    node->node_rank = -1;
    node->wanted = r->rules.elastic ? -1 : join->node_rank;
    node->joined_ms = r->now_ms;
    node->by_id.key = &node->id;
    node->by_id.key_len = sizeof(node->id);
    node->by_id.hash = table_hash(slice_of(&node->id, sizeof(node->id)));
    table_put(&r->by_id, &node->by_id);
    list_insert(&r->nodes, &node->joined);
    r->n_live++;
    list_init(&node->watched);
    list_init(&node->waiting);
    if (node->wanted >= 0)
        r->place[node->wanted] = node;
    rdzv_touch(r, node);
    return node;
}

/* --- move ----------------------------------------------------------------------------------------------- */

/* Return true if the node was in the last round. Such a node keeps its rank in the next round. */
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

/* Append the node to the waiting nodes. If there are more newcomers than places, an elastic round accepts the
 * earliest. */
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

/* Return true if a member is open: its `stopped` must arrive before the verdict of the round. A DONE node is still
 * open. */
static bool is_open(enum rdzv_node_state state)
{
    return state == RDZV_NODE_RUNNING || state == RDZV_NODE_DONE || state == RDZV_NODE_STOPPING;
}

/* Change the state of a member, never back to RUNNING: within a round, a member only moves towards its end. */
void rdzv_member_becomes(struct rdzv *r, struct node *node, enum rdzv_node_state next)
{
    r->run.n_done += (next == RDZV_NODE_DONE) && node->state != RDZV_NODE_DONE;
    r->run.n_open -= is_open(node->state) && !is_open(next);
    node->state = next;
}

/* --- leave ---------------------------------------------------------------------------------------------- */

/* Remove a member from the round. The seat of the member keeps its ranks, because the hub may later search for the
 * node of such a rank. */
static void leave_round(struct rdzv *r, struct node *node)
{
    r->run.n_open -= is_open(node->state);
    r->run.n_members--;
    r->run.member[node->node_rank] = NULL;
    r->run.seats[node->node_rank].node = 0;
}

/* Free the node rank of a static node: the requested node rank, or the node rank from its first round. */
static void leave_place(struct rdzv *r, const struct node *node)
{
    int32_t held = node->wanted >= 0 ? node->wanted : node->node_rank;
    if (r->place != NULL && held >= 0 && r->place[held] == node)
        r->place[held] = NULL;
}

/* Remove the node from all counts, once. The node stays in `nodes` until its connection closes. After this call,
 * silence of the node is no loss. */
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
    quota_give(r->quota, sizeof(*node));
    free(node);
}

/* Record a node that leaves. Call this before the node is finished, while its rank and round are known. The records
 * are a ring, because in a job of months more nodes leave than any user can read. */
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
