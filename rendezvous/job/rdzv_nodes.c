/* rdzv_nodes.c -- nodes come, move between lists, go. See rdzv_core.h.
 *
 * Memory is asked for when a node joins, never later: the arrays that a round needs grow with the number of
 * nodes, so completing one, stopping it and ending the job cannot fail for want of it.
 *
 * Every move goes through a function of this file, because each changes a count as well (n_live, n_waiting,
 * n_back, n_resting, n_members, n_open): whether a round is complete is then a comparison of numbers, and
 * not a walk over 16,384 nodes at every event. */
#include "job/rdzv_core.h"

#include <stdlib.h>

enum { ROOM_MIN = 8 };

/* What the quota is charged for the three arrays. It must come to the same when it is given back, so it has
 * one formula. */
static uint64_t room_bytes(uint32_t room)
{
    return (uint64_t)room * (2 * sizeof(struct node *) + sizeof(struct rdzv_seat));
}

/* Cut at a character's edge: the rest of a UTF-8 sequence would not be text. */
void rdzv_copy_text(char *to, size_t size, const char *text)
{
    text = text != NULL ? text : "";
    size_t len = strlen(text);
    if (len >= size) {
        len = size - 1;
        while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
            len--;
    }
    memcpy(to, text, len);
    to[len] = '\0';
}

/* What a job takes before anybody has come. */
static uint64_t own_bytes(void)
{
    return sizeof(struct rdzv) + RDZV_GONE_MAX * sizeof(struct rdzv_gone);
}

static struct rdzv *allocate(struct quota *quota)
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
    struct rdzv *r = allocate(quota);
    if (r == NULL)
        return NULL;
    *r = (struct rdzv){ .env = *env, .quota = quota, .say_ms = UINT64_MAX, .watch_ms = UINT64_MAX };
    list_init(&r->nodes);
    list_init(&r->watched);
    list_init(&r->waiting);
    rdzv_copy_text(r->job, sizeof(r->job), job);
    rdzv_copy_text(r->instance, sizeof(r->instance), instance);
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
    quota_give(r->quota, room_bytes(r->room) + own_bytes());
    free(r->member);
    free(r->order);
    free(r->seats);
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

/* `array` is the address of a pointer of whatever type; going through memcpy keeps its type out of it. On
 * failure the old one stays. */
static bool grow(void *array, size_t size, uint32_t room)
{
    void *old, *bigger;
    memcpy(&old, array, sizeof(old));
    bigger = realloc(old, size * room);
    if (bigger != NULL)
        memcpy(array, &bigger, sizeof(bigger));
    return bigger != NULL;
}

/* An array that has grown alone is no harm: `room` is the least of the three. Doubling keeps joining cheap
 * for all together: n nodes copy 2n pointers. The quota is asked before malloc, so that one job cannot take
 * the memory of the others. */
static bool make_room(struct rdzv *r, uint32_t nodes)
{
    if (nodes <= r->room)
        return true;
    uint32_t room = r->room < ROOM_MIN ? ROOM_MIN : r->room * 2;
    uint64_t more = room_bytes(room) - room_bytes(r->room);
    if (!quota_take(r->quota, more))
        return false;
    if (!grow(&r->member, sizeof(*r->member), room) || !grow(&r->order, sizeof(*r->order), room) ||
        !grow(&r->seats, sizeof(*r->seats), room)) {
        quota_give(r->quota, more);
        return false;
    }
    r->room = room;
    return true;
}

/* As many as --nnodes says, not as many as have come: a free rank must be found in one step. At most 16,384
 * pointers, see is_sound in rdzv_join.c. */
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

/* --- come ----------------------------------------------------------------------------------------------- */

/* Copies: the join's texts end with its message, a node lives as long as its connection. */
static void fill(struct node *node, const struct rdzv_join *join)
{
    rdzv_copy_text(node->host, sizeof(node->host), join->host);
    rdzv_copy_text(node->addr, sizeof(node->addr), join->addr);
    rdzv_copy_text(node->own, sizeof(node->own), join->own);
    rdzv_copy_text(node->boot_id, sizeof(node->boot_id), join->boot_id);
    rdzv_copy_text(node->version, sizeof(node->version), join->version);
    rdzv_copy_text(node->role, sizeof(node->role), join->role);
    node->nproc = join->nproc;
    node->store_port = join->store_port;
    node->pid = join->pid;
    node->pid_start = join->pid_start;
    node->grace_ms = join->grace_ms;
}

/* Room for it is made before it is: from here on nothing can fail. It is charged to the quota, and given
 * back in rdzv_remove_node. */
struct node *rdzv_add_node(struct rdzv *r, uint64_t id, const struct rdzv_join *join)
{
    if (!make_room(r, r->by_id.count + 1) || !quota_take(r->quota, sizeof(struct node)))
        return NULL;
    struct node *node = calloc(1, sizeof(*node));
    if (node == NULL) {
        quota_give(r->quota, sizeof(struct node));
        return NULL;
    }
    fill(node, join);
    node->id = id;
    node->state = RDZV_NODE_RESTING; /* until rdzv_node_waits; not one of n_resting, since `round` is 0 */
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

/* Was it in the round that ran last? Then it keeps its rank in the next. */
static bool is_survivor(const struct rdzv *r, const struct node *node)
{
    return node->round != 0 && node->round == r->round;
}

bool rdzv_is_member(const struct rdzv *r, const struct node *node)
{
    bool in_one = node->state == RDZV_NODE_RUNNING || node->state == RDZV_NODE_DONE ||
                  node->state == RDZV_NODE_STOPPING || node->state == RDZV_NODE_STOPPED;
    return in_one && is_survivor(r, node);
}

/* At the end of the list: where there are more newcomers than places, an elastic round takes those who came first. */
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

/* One that is DONE still is open: its word `stopped` has to come before anything of the round is judged. */
static bool is_open(enum rdzv_node_state state)
{
    return state == RDZV_NODE_RUNNING || state == RDZV_NODE_DONE || state == RDZV_NODE_STOPPING;
}

/* Never back to RUNNING: within a round a member only goes on towards its end. */
void rdzv_member_becomes(struct rdzv *r, struct node *node, enum rdzv_node_state next)
{
    r->n_done += (next == RDZV_NODE_DONE) && node->state != RDZV_NODE_DONE;
    r->n_open -= is_open(node->state) && !is_open(next);
    node->state = next;
}

/* --- go ------------------------------------------------------------------------------------------------- */

/* The seat keeps its numbers: a rank of it that is asked for later must still be known to have been there. */
static void leave_round(struct rdzv *r, struct node *node)
{
    r->n_open -= is_open(node->state);
    r->n_members--;
    r->member[node->node_rank] = NULL;
    r->seats[node->node_rank].node = 0;
}

/* A rank it asked for was its place from the start, any other since its first round. */
static void leave_place(struct rdzv *r, const struct node *node)
{
    int32_t held = node->wanted >= 0 ? node->wanted : node->node_rank;
    if (r->place != NULL && held >= 0 && r->place[held] == node)
        r->place[held] = NULL;
}

/* Counted out of whatever it was in, once; it stays in `nodes` so that its connection, which closes later,
 * finds it. From here on its silence is no loss. */
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

/* Called before it is finished, while its rank and round are known. A ring, because a job of months sees
 * more come and go than anybody asks about. */
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
    rdzv_copy_text(gone->host, sizeof(gone->host), node->host);
    rdzv_copy_text(gone->how, sizeof(gone->how), words);
}
