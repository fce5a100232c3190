/* rdzv_calls.c -- the calls of rdzv.h become events of the machine in rdzv.c. See there.
 *
 * Each call notes the time, looks whether the message may be acted on at all, steps the machine, and settles
 * what follows. Joining is in rdzv_join.c. */
#include "job/rdzv_core.h"

#include <stdio.h>

/* --- what agents say ------------------------------------------------------------------------------------ */

/* The member a message is about, or NULL with the answer. Its sign of life counts even when what it says
 * does not: a node that speaks of an old round is alive. STALE is asked before NO_MEMBER, since it tells
 * the agent more. */
static struct node *hear_member(struct rdzv *r, uint64_t id, uint32_t round, uint64_t now_ms,
                                enum rdzv_answer *answer)
{
    struct node *node = rdzv_find(r, id);
    char name[2 * RDZV_TEXT_MAX];
    r->now_ms = now_ms;
    *answer = RDZV_NO_MEMBER;
    if (node == NULL || node->state == RDZV_NODE_FINISHED)
        return NULL;
    rdzv_touch(r, node);
    if (round != r->round) {
        *answer = RDZV_STALE_ROUND;
        rdzv_note(r, RDZV_RECORD_STALE, node,
                  "%s speaks of round %" PRIu32 ", this is round %" PRIu32 ": not listened to",
                  rdzv_name(node, name, sizeof(name)), round, r->round);
        return NULL;
    }
    *answer = rdzv_is_member(r, node) ? RDZV_OK : RDZV_NO_MEMBER;
    return *answer == RDZV_OK ? node : NULL;
}

static bool has_rank(const struct node *node, int64_t rank)
{
    return rank >= node->first_rank && rank - node->first_rank < node->nproc;
}

/* Step and settle are two, because a cell must not begin a round while another one is being left: it only
 * notes that something has changed. */
static enum rdzv_answer member_says(struct rdzv *r, uint64_t id, uint32_t round,
                                    const struct rdzv_event *event, uint64_t now_ms)
{
    enum rdzv_answer answer;
    struct node *node = hear_member(r, id, round, now_ms, &answer);
    if (node == NULL)
        return answer;
    if (event->failure != NULL && !has_rank(node, event->failure->rank))
        return RDZV_OTHER_RANK;
    rdzv_step(r, node, event);
    rdzv_settle(r, now_ms);
    return RDZV_OK;
}

enum rdzv_answer rdzv_check_rank(const struct rdzv *r, uint64_t id, int64_t rank)
{
    const struct node *node = rdzv_find(r, id);
    if (node == NULL || !rdzv_is_member(r, node))
        return RDZV_NO_MEMBER;
    return has_rank(node, rank) ? RDZV_OK : RDZV_OTHER_RANK;
}

enum rdzv_answer rdzv_failed(struct rdzv *r, uint64_t node, uint32_t round,
                             const struct rdzv_failure *failure, uint64_t now_ms)
{
    return member_says(r, node, round, &(struct rdzv_event){ .type = RDZV_FAILED, .failure = failure },
                       now_ms);
}

enum rdzv_answer rdzv_explain(struct rdzv *r, uint64_t node, uint32_t round,
                              const struct rdzv_failure *failure, uint64_t now_ms)
{
    return member_says(r, node, round, &(struct rdzv_event){ .type = RDZV_EXPLAINED, .failure = failure },
                       now_ms);
}

enum rdzv_answer rdzv_done(struct rdzv *r, uint64_t node, uint32_t round, uint64_t now_ms)
{
    return member_says(r, node, round, &(struct rdzv_event){ .type = RDZV_DONE }, now_ms);
}

enum rdzv_answer rdzv_stopped(struct rdzv *r, uint64_t node, uint32_t round, const struct rdzv_stopped *how,
                              uint64_t now_ms)
{
    return member_says(r, node, round, &(struct rdzv_event){ .type = RDZV_STOPPED, .how = how }, now_ms);
}

/* Who was told the end has nothing more to say. */
static void goes(struct rdzv *r, struct node *node, const struct rdzv_event *event)
{
    if (node->state != RDZV_NODE_FINISHED)
        rdzv_step(r, node, event);
    else if (event->type == RDZV_LOST)
        rdzv_remove_node(r, node);
}

/* Without a round number: its user has stopped it whatever the round. */
void rdzv_leave(struct rdzv *r, uint64_t id, int signal, const char *by, uint64_t now_ms)
{
    struct node *node = rdzv_find(r, id);
    r->now_ms = now_ms;
    if (node == NULL)
        return;
    goes(r, node, &(struct rdzv_event){ .type = RDZV_LEAVE, .signal = signal, .words = by });
    rdzv_settle(r, now_ms);
}

void rdzv_lost(struct rdzv *r, uint64_t id, const char *how, uint64_t now_ms)
{
    struct node *node = rdzv_find(r, id);
    r->now_ms = now_ms;
    if (node == NULL)
        return;
    goes(r, node, &(struct rdzv_event){ .type = RDZV_LOST, .words = how, .silent = rdzv_is_silent(r, node) });
    rdzv_settle(r, now_ms);
}

void rdzv_grow_agreed(struct rdzv *r, uint64_t now_ms)
{
    r->now_ms = now_ms;
    rdzv_step(r, NULL, &(struct rdzv_event){ .type = RDZV_GROW });
    rdzv_settle(r, now_ms);
}

/* Of every request of every node, so it does nothing but this. */
void rdzv_heard(struct rdzv *r, uint64_t id, uint64_t now_ms)
{
    struct node *node = rdzv_find(r, id);
    r->now_ms = now_ms;
    if (node != NULL && node->state != RDZV_NODE_FINISHED)
        rdzv_touch(r, node);
}

/* --- time ----------------------------------------------------------------------------------------------- */

/* A loop, for what settles may change something again; a cell sets the mark again only when it has moved
 * on. */
void rdzv_settle(struct rdzv *r, uint64_t now_ms)
{
    r->now_ms = now_ms;
    while (r->must_settle) {
        r->must_settle = false;
        rdzv_step(r, NULL, &(struct rdzv_event){ .type = RDZV_SETTLE });
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* One time for the shell's one timer. What is still to settle is due now. */
uint64_t rdzv_deadline(const struct rdzv *r)
{
    if (r->must_settle)
        return r->now_ms;
    return earlier(earlier(rdzv_state_deadline(r), r->say_ms), rdzv_watch_deadline(r));
}

/* Dropped before its loss is acted on, so that it cannot speak any more when the others go on. */
static void drop_silent_nodes(struct rdzv *r)
{
    char how[64];
    struct node *node;
    while ((node = rdzv_silent_node(r)) != NULL) {
        snprintf(how, sizeof(how), "silent for %" PRIu64 " ms", r->now_ms - node->heard_ms);
        r->env.drop(r->env.user, node->id, how);
        rdzv_step(r, node, &(struct rdzv_event){ .type = RDZV_LOST, .words = how, .silent = true });
    }
}

/* The silent ones first: a round must not be made with them. What is said to those who wait comes last, when
 * it is known whether they still do. */
void rdzv_tick(struct rdzv *r, uint64_t now_ms)
{
    r->now_ms = now_ms;
    rdzv_check_own_pulse(r);
    drop_silent_nodes(r);
    rdzv_settle(r, now_ms);
    for (int i = 0; i < RDZV_N_STATES && now_ms >= rdzv_state_deadline(r); i++) {
        rdzv_step(r, NULL, &(struct rdzv_event){ .type = RDZV_TIME_UP });
        rdzv_settle(r, now_ms);
    }
    rdzv_say_if_due(r);
}
