/* rendezvous.c -- see rendezvous.h.
 *
 * The machine is the table below. A cell does its work and returns the next state, which rdzv_step stores.
 * Every cell is filled: `ignore` marks the cells without an action, so that a missing one is visibly
 * intended. Messages about a round reach the table only from a member of the present round; hear_member
 * answers "stale" to the others.
 *
 * An accepted node waits, in every state (admission.c). The consequences follow with SETTLE, after the answer
 * has been sent: a round in GATHERING, a key for the workers in RUNNING.
 *
 * The next round begins only when no member of the last one is open any more: each has sent `stopped`, or is
 * lost and so can harm only itself. So two rounds never run at a time. */
#include "job/rendezvous.h"

#include "base/text.h"
#include "job/rendezvous_core.h"

#include "base/clock.h"
#include <stdio.h>
#include <string.h>

enum { RETURN_MS = 10000 }; /* for a node that was asked to join again; it only has to send the join */

typedef enum rdzv_state (*cell)(struct rdzv *r, struct node *node, const struct rdzv_event *e);

static enum rdzv_state ignore(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state joins(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state joins_spare(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state joins_late(struct rdzv *r, struct node *node, const struct rdzv_event *e);
/* No round runs: */
static enum rdzv_state look(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state give_up_job(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state go_on(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state gather(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state leaves(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state is_lost(struct rdzv *r, struct node *node, const struct rdzv_event *e);
/* A round runs: */
static enum rdzv_state fails(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state is_done(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state stops_unasked(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state leaves_round(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state lost_from_round(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state agrees(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state hangs(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state grow_if(struct rdzv *r, struct node *node, const struct rdzv_event *e);
/* It is being stopped: */
static enum rdzv_state better_cause(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state explains(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state has_stopped(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state leaves_late(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state lost_late(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state drop_late(struct rdzv *r, struct node *node, const struct rdzv_event *e);

/* clang-format off */
static const cell machine[RDZV_N_STATES][RDZV_N_EVENTS] = {
/*                      FAILED        EXPLAINED DONE     STOPPED        LEAVE         LOST             GROW    HANGS   SETTLE   TIME_UP      JOIN         */
[RDZV_GATHERING]    = { ignore,       ignore,   ignore,  ignore,        leaves,       is_lost,         ignore, ignore, look,    give_up_job, joins       },
[RDZV_LAST_CALL]    = { ignore,       ignore,   ignore,  ignore,        leaves,       is_lost,         ignore, ignore, look,    go_on,       joins       },
[RDZV_RUNNING]      = { fails,        ignore,   is_done, stops_unasked, leaves_round, lost_from_round, agrees, hangs,  grow_if, ignore,      joins_spare },
[RDZV_STOPPING]     = { better_cause, explains, ignore,  has_stopped,   leaves_late,  lost_late,       ignore, ignore, ignore,  drop_late,   joins_spare },
[RDZV_BACKING_OFF]  = { ignore,       ignore,   ignore,  ignore,        leaves,       is_lost,         ignore, ignore, ignore,  gather,      joins       },
[RDZV_OVER]         = { ignore,       ignore,   ignore,  ignore,        ignore,       ignore,          ignore, ignore, ignore,  ignore,      joins_late  },
};
/* clang-format on */

/* A job without nodes is over, unless it has not begun: then it returns to the state before the first join. */
static enum rdzv_state nobody_left(struct rdzv *r)
{
    r->say_ms = UINT64_MAX;
    r->must_settle = false;
    if (r->run.round == 0) {
        rdzv_forget_rules(r);
        return RDZV_GATHERING;
    }
    rdzv_note(r, RDZV_RECORD_VERDICT, NULL, "the job is over: no node is left");
    return RDZV_OVER;
}

void rdzv_step(struct rdzv *r, struct node *node, const struct rdzv_event *event)
{
    enum rdzv_state next = machine[r->state][event->type](r, node, event);
    if (r->n_live == 0 && next != RDZV_OVER)
        next = nobody_left(r);
    if (next != r->state)
        r->since_ms = r->now_ms;
    r->state = next;
}

static enum rdzv_state ignore(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node, (void)e;
    return r->state;
}

static enum rdzv_state joins(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    rdzv_admit(r, node, e->joining, RDZV_AS_MEMBER);
    return r->state;
}

static enum rdzv_state joins_spare(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    rdzv_admit(r, node, e->joining, RDZV_AS_SPARE);
    return r->state;
}

/* A node that joins now would wait for a round that never begins. */
static enum rdzv_state joins_late(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    rdzv_admit(r, node, e->joining, RDZV_NOBODY);
    return r->state;
}

/* --- no round runs -------------------------------------------------------------------------------------- */

/* A limit for nodes of the last round that have not returned yet, never shorter than RETURN_MS, because they have to
 * reap their workers first. With a last call of 0 the round begins with the nodes that are present. */
static enum rdzv_state last_call(struct rdzv *r)
{
    uint64_t call_ms = r->rules.last_call_ms;
    if (r->n_resting > 0 && call_ms < RETURN_MS)
        call_ms = RETURN_MS;
    if (call_ms == 0)
        return rdzv_begin_round(r);
    r->until.call_ms = r->now_ms + call_ms;
    if (r->n_resting == 0)
        rdzv_note(r, RDZV_RECORD_LAST_CALL, NULL,
                  "enough nodes (%" PRIu32 " of %" PRIu32 " to %" PRIu32 "): last call for %" PRIu64 " ms",
                  rdzv_takes(r), r->rules.min, r->rules.max, call_ms);
    return RDZV_LAST_CALL;
}

/* A node has joined or left: is the round complete now? A newcomer does not restart a running last call, because a
 * steady trickle would postpone it forever. */
static enum rdzv_state look(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node, (void)e;
    if (rdzv_is_complete(r))
        return rdzv_begin_round(r);
    if (!r->rules.elastic)
        return RDZV_GATHERING;
    if (rdzv_takes(r) >= r->rules.min)
        return r->state == RDZV_LAST_CALL ? RDZV_LAST_CALL : last_call(r);
    if (r->n_resting == 0)
        r->short_handed = true;
    if (r->state == RDZV_LAST_CALL)
        rdzv_note(r, RDZV_RECORD_LAST_CALL, NULL, "too few nodes again");
    return RDZV_GATHERING;
}

static enum rdzv_state give_up_job(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node, (void)e;
    rdzv_note(r, RDZV_RECORD_VERDICT, NULL, "too few nodes: %" PRIu32 " of %" PRIu32 " within %" PRIu64 " ms",
              r->n_waiting, r->rules.min, r->rules.join_timeout_ms);
    return rdzv_end_job(r, RDZV_WHY_TIMEOUT, NO_RESTART_TOO_FEW_NODES);
}

/* A member of the last round that has not returned has lost its place to a spare. */
static enum rdzv_state go_on(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node, (void)e;
    r->n_resting = 0;
    return rdzv_begin_round(r);
}

/* The pause is over; check the nodes that joined during it. */
static enum rdzv_state gather(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node, (void)e;
    r->must_settle = true;
    return RDZV_GATHERING;
}

/* Format "SIGTERM from pid 77 (bash) of bob"; an agent that gives up has no signal, only a text. */
static const char *who_stopped_it(const struct rdzv_event *e, char *room, size_t size)
{
    const char *abbrev = signal_abbrev(e->signal), *from = e->words[0] != '\0' ? " from " : "";
    if (e->signal > 0 && abbrev != NULL)
        snprintf(room, size, "SIG%s%s%.150s", abbrev, from, e->words);
    else if (e->signal > 0)
        snprintf(room, size, "signal %d%s%.150s", e->signal, from, e->words);
    else
        snprintf(room, size, "%.180s", e->words[0] != '\0' ? e->words : "its agent itself");
    return room;
}

static void note_leave(struct rdzv *r, const struct node *node, const struct rdzv_event *e, const char *from)
{
    char name[2 * RDZV_TEXT_MAX], by[RDZV_TEXT_MAX];
    rdzv_remember_gone(r, node, e, who_stopped_it(e, by, sizeof(by)));
    rdzv_note(r, RDZV_RECORD_LEAVE, node, "%s leaves%s: %s", rdzv_name(node, name, sizeof(name)), from, by);
}

/* Between two attempts of a static job its user has stopped all of it; before the first, this node may be started
 * again. */
static enum rdzv_state leaves(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    note_leave(r, node, e, "");
    rdzv_dismiss(r, node, e->signal);
    r->must_settle = true;
    rdzv_will_say(r);
    if (r->rules.elastic || r->run.round == 0 || r->state == RDZV_RUNNING || r->state == RDZV_STOPPING)
        return r->state;
    return rdzv_end_job(r, RDZV_WHY_NODE_LEFT, NO_RESTART_STOPPED);
}

/* All losses of a node pass here, by its connection or by its silence. Record the loss before freeing the node,
 * because the diagnosis reports lost nodes. */
static void lose(struct rdzv *r, struct node *node, const struct rdzv_event *how)
{
    char name[2 * RDZV_TEXT_MAX];
    rdzv_note(r, RDZV_RECORD_LOST, node, "%s is lost: %s", rdzv_name(node, name, sizeof(name)), how->words);
    rdzv_remember_gone(r, node, how, how->words);
    rdzv_remove_node(r, node);
    r->must_settle = true;
    rdzv_will_say(r);
}

static enum rdzv_state is_lost(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    lose(r, node, e);
    return r->state;
}

/* --- a round runs --------------------------------------------------------------------------------------- */

/* The first reported failure. If that worker is only the victim of another, better_cause replaces it when the other's
 * report arrives. */
static enum rdzv_state fails(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    rdzv_set_failure(r, node, e->failure);
    return rdzv_stop_round(r);
}

/* No worker has ended, so every node has to be stopped. */
static enum rdzv_state hangs(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node;
    rdzv_set_hang(r, e->failure);
    return rdzv_stop_round(r);
}

/* Nodes that are done stay until all are, because another one may still fail, and then the whole round is repeated. */
static enum rdzv_state is_done(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    char name[2 * RDZV_TEXT_MAX];
    (void)e;
    if (node->state != RDZV_NODE_RUNNING)
        return r->state;
    rdzv_member_becomes(r, node, RDZV_NODE_DONE);
    rdzv_note(r, RDZV_RECORD_NODE_DONE, node, "%s is done (%" PRIu32 " of %" PRIu32 ")",
              rdzv_name(node, name, sizeof(name)), r->run.n_done, r->run.nnodes);
    if (r->run.n_done < r->run.nnodes)
        return r->state;
    return rdzv_end_job(r, RDZV_WHY_DONE, NO_RESTART_NONE);
}

/* An unkillable process on a leaving node does not block the next round, which is without that node. */
static void note_exit(struct rdzv *r, const struct node *node, const struct rdzv_stopped *how)
{
    r->end.unkillable = r->end.unkillable || (how->unkillable && !node->leaving);
    r->end.max_code = how->max_code > r->end.max_code ? how->max_code : r->end.max_code;
    if (!how->has_rank0 || node->first_rank != 0)
        return;
    r->end.has_rank0 = true;
    r->end.rank0_code = how->rank0_code;
}

/* The node stopped without a reason. A node that is done has nothing left to stop. */
static enum rdzv_state stops_unasked(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    char name[2 * RDZV_TEXT_MAX], words[RDZV_WORDS_MAX];
    if (node->state != RDZV_NODE_RUNNING)
        return r->state;
    snprintf(words, sizeof(words), "%.400s stopped without giving a reason",
             rdzv_name(node, name, sizeof(name)));
    rdzv_set_cause(r, RDZV_WHY_FAILED, node, 0, words);
    r->end.cause.failure.exit_code = e->how->max_code > 0 ? e->how->max_code : RDZV_CODE_NO_NODE;
    note_exit(r, node, e->how);
    rdzv_member_becomes(r, node, RDZV_NODE_STOPPED);
    return rdzv_stop_round(r);
}

/* Spares leave without an effect on the round; if the node is done, the round is done. */
static enum rdzv_state leaves_round(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    char name[2 * RDZV_TEXT_MAX], by[RDZV_TEXT_MAX], words[RDZV_WORDS_MAX];
    if (!rdzv_is_member(r, node) || node->state == RDZV_NODE_DONE)
        return leaves(r, node, e);
    note_leave(r, node, e, " its round");
    snprintf(words, sizeof(words), "%.300s %s %s", rdzv_name(node, name, sizeof(name)),
             e->signal > 0 ? "was stopped by" : "gave up:", who_stopped_it(e, by, sizeof(by)));
    rdzv_set_cause(r, RDZV_WHY_NODE_LEFT, node, e->signal, words);
    node->leaving = true;
    node->leave_signal = e->signal;
    r->end.stopped_by_user = !r->rules.elastic;
    rdzv_member_becomes(r, node, RDZV_NODE_STOPPING);
    return rdzv_stop_round(r);
}

static void set_loss(struct rdzv *r, const struct node *node, const struct rdzv_event *how)
{
    char name[2 * RDZV_TEXT_MAX], words[RDZV_WORDS_MAX];
    snprintf(words, sizeof(words), "%.300s is lost: %.180s", rdzv_name(node, name, sizeof(name)), how->words);
    rdzv_set_cause(r, RDZV_WHY_NODE_LOST, node, 0, words);
    r->end.cause.silent = how->silent;
}

/* A spare takes no worker with it, and a node that was done has done its part. */
static enum rdzv_state lost_from_round(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    bool matters = rdzv_is_member(r, node) && node->state != RDZV_NODE_DONE;
    if (matters)
        set_loss(r, node, e);
    lose(r, node, e);
    return matters ? rdzv_stop_round(r) : r->state;
}

/* It ends a round, which costs the work since the last checkpoint. So grow only when the rules or the workers
 * themselves request it. */
static enum rdzv_state grow_if(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    char words[RDZV_WORDS_MAX];
    uint32_t more = rdzv_can_grow_by(r);
    bool wanted = r->rules.grow == RDZV_GROW_NOW || (r->rules.grow == RDZV_GROW_AGREED && r->grow_agreed);
    (void)node, (void)e;
    rdzv_tell_workers_who_waits(r);
    if (!wanted || more == 0)
        return r->state;
    snprintf(words, sizeof(words), "%" PRIu32 " more node%s can join", more, more == 1 ? "" : "s");
    rdzv_set_cause(r, RDZV_WHY_GROW, NULL, 0, words);
    return rdzv_stop_round(r);
}

/* Keep the agreement, because the awaited node may leave and another one may join. */
static enum rdzv_state agrees(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    r->grow_agreed = true;
    return grow_if(r, node, e);
}

/* --- while it is being stopped -------------------------------------------------------------------------- */

/* A worker that has lost its peer reports it before that peer's own end is known. */
static enum rdzv_state better_cause(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    if (r->end.cause.failure.victim && !rdzv_is_victim(e->failure))
        rdzv_set_failure(r, node, e->failure);
    return r->state;
}

/* More about the same worker; the order and the time stay as the store recorded them. */
static enum rdzv_state explains(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    if (r->end.cause.why == RDZV_WHY_FAILED && r->end.cause.failure.node_rank == node->node_rank &&
        r->end.cause.failure.rank == e->failure->rank)
        rdzv_set_failure(r, node, e->failure);
    return r->state;
}

/* Its connection may close right after this, which then is not a cause. */
static enum rdzv_state has_stopped(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    char name[2 * RDZV_TEXT_MAX];
    if (node->state != RDZV_NODE_STOPPING)
        return r->state;
    note_exit(r, node, e->how);
    rdzv_member_becomes(r, node, RDZV_NODE_STOPPED);
    rdzv_note(r, RDZV_RECORD_NODE_STOPPED, node, "%s has stopped%s", rdzv_name(node, name, sizeof(name)),
              e->how->unkillable ? ", but something on it cannot be killed" : "");
    if (node->leaving)
        rdzv_dismiss(r, node, node->leave_signal);
    return rdzv_judge_if_stopped(r);
}

static enum rdzv_state leaves_late(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    if (!rdzv_is_member(r, node))
        return leaves(r, node, e);
    r->end.stopped_by_user = !r->rules.elastic;
    if (node->state == RDZV_NODE_STOPPED)
        return leaves(r, node, e);
    if (!node->leaving)
        note_leave(r, node, e, " its round");
    node->leaving = true;
    node->leave_signal = e->signal;
    return r->state;
}

static enum rdzv_state lost_late(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    bool member = rdzv_is_member(r, node);
    if (member && r->end.cause.failure.victim && node->state == RDZV_NODE_STOPPING && !node->leaving)
        set_loss(r, node, e);
    lose(r, node, e);
    return member ? rdzv_judge_if_stopped(r) : r->state;
}

static enum rdzv_state drop_late(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    const struct rdzv_event how = { .type = RDZV_LOST, .words = "it has not stopped its workers in time" };
    (void)node, (void)e;
    for (uint32_t i = 0; i < r->run.nnodes; i++) {
        struct node *late = r->run.member[i];
        if (late == NULL || late->state != RDZV_NODE_STOPPING)
            continue;
        r->env.drop(r->env.user, late->id, how.words);
        lose(r, late, &how);
    }
    return rdzv_judge_if_stopped(r);
}

/* Each call below records the time, checks whether the message is valid now, steps the machine, and settles the
 * consequences. */

/* --- messages of agents -------------------------------------------------------------------------------- */

/* Return the member of a message, or NULL with the answer. The message counts as a heartbeat even if it is
 * rejected, because a node that sends about an old round is alive. STALE is checked before NO_MEMBER, because
 * it is more informative for the agent. */
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
    if (round != r->run.round) {
        *answer = RDZV_STALE_ROUND;
        rdzv_note(r, RDZV_RECORD_STALE, node,
                  "%s sent a message about round %" PRIu32 ", but the current one is %" PRIu32 ": ignored",
                  rdzv_name(node, name, sizeof(name)), round, r->run.round);
        return NULL;
    }
    *answer = rdzv_is_member(r, node) ? RDZV_OK : RDZV_NO_MEMBER;
    return *answer == RDZV_OK ? node : NULL;
}

static bool has_rank(const struct node *node, int64_t rank)
{
    return rank >= node->first_rank && rank - node->first_rank < node->nproc;
}

/* Step and settle are separate, because a cell must not begin a round while another one ends: it only records that
 * something has changed. */
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

/* Do not settle here: the consequences (the round may be complete now) wait until the answer to the join is sent. */
enum rdzv_refused rdzv_join(struct rdzv *r, uint64_t id, const struct rdzv_join *join, uint64_t now_ms,
                            struct rdzv_refusal *refusal)
{
    struct rdzv_joining joining = { .id = id, .join = join, .refusal = refusal };
    r->now_ms = now_ms;
    rdzv_step(r, rdzv_find(r, id), &(struct rdzv_event){ .type = RDZV_JOIN, .joining = &joining });
    return refusal->code;
}

enum rdzv_answer rdzv_check_rank(const struct rdzv *r, uint64_t id, int64_t rank)
{
    const struct node *node = rdzv_find(r, id);
    if (node == NULL || !rdzv_is_member(r, node))
        return RDZV_NO_MEMBER;
    return has_rank(node, rank) ? RDZV_OK : RDZV_OTHER_RANK;
}

enum rdzv_answer rdzv_failed(struct rdzv *r, uint64_t node, uint32_t round, const struct failure *failure,
                             uint64_t now_ms)
{
    return member_says(r, node, round, &(struct rdzv_event){ .type = RDZV_FAILED, .failure = failure },
                       now_ms);
}

enum rdzv_answer rdzv_explain(struct rdzv *r, uint64_t node, uint32_t round, const struct failure *failure,
                              uint64_t now_ms)
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

/* A node that has received the end has nothing more to report. */
static void goes(struct rdzv *r, struct node *node, const struct rdzv_event *event)
{
    if (node->state != RDZV_NODE_FINISHED)
        rdzv_step(r, node, event);
    else if (event->type == RDZV_LOST)
        rdzv_remove_node(r, node);
}

/* Without a round number, because a user's stop applies to every round. */
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

void rdzv_hangs(struct rdzv *r, const struct failure *failure, uint64_t now_ms)
{
    r->now_ms = now_ms;
    rdzv_step(r, NULL, &(struct rdzv_event){ .type = RDZV_HANGS, .failure = failure });
    rdzv_settle(r, now_ms);
}

/* Called for every request of every node, so it does only this. */
void rdzv_heard(struct rdzv *r, uint64_t id, uint64_t now_ms)
{
    struct node *node = rdzv_find(r, id);
    r->now_ms = now_ms;
    if (node != NULL && node->state != RDZV_NODE_FINISHED)
        rdzv_touch(r, node);
}

/* --- time ----------------------------------------------------------------------------------------------- */

/* A loop, because settling may change something again; a cell sets the mark again only after progress. */
void rdzv_settle(struct rdzv *r, uint64_t now_ms)
{
    r->now_ms = now_ms;
    while (r->must_settle) {
        r->must_settle = false;
        rdzv_step(r, NULL, &(struct rdzv_event){ .type = RDZV_SETTLE });
    }
}

/* One time for the shell's one timer. An open SETTLE is due now. */
uint64_t rdzv_deadline(const struct rdzv *r)
{
    if (r->must_settle)
        return r->now_ms;
    return earlier_of(earlier_of(rdzv_state_deadline(r), r->say_ms), rdzv_watch_deadline(r));
}

/* Each node is dropped before its loss takes effect, so that it can send nothing after the others
 * continue. */
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

/* Silent nodes are dropped first, because a round must not include them. Messages to waiting nodes are sent
 * last, when it is clear whether they still wait. */
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
