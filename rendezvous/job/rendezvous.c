/* rendezvous.c -- see rendezvous.h. The table `machine` is the whole state machine: a cell has the function for one
 * event in one state. A round begins only after all members of the previous round have stopped or are lost, so that two
 * rounds never overlap. */
#include "job/rendezvous.h"

#include "base/text.h"
#include "job/round.h"

#include "base/clock.h"
#include <stdio.h>
#include <string.h>

enum { RETURN_MS = 10000 }; /* minimum time of the last call if members of the previous round are missing */

typedef enum rdzv_state (*cell)(struct rdzv *r, struct node *node, const struct rdzv_event *e);

static enum rdzv_state ignore(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state joins(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state joins_spare(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state joins_late(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state back(struct rdzv *r, struct node *node, const struct rdzv_event *e);
/* Actions while no round runs: */
static enum rdzv_state begins(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state give_up_job(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state go_on(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state gather(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state leaves(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state is_lost(struct rdzv *r, struct node *node, const struct rdzv_event *e);
/* Actions while a round runs: */
static enum rdzv_state fails(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state is_done(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state stops_unasked(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state leaves_round(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state lost_from_round(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state agrees(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state hangs(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state grow_if(struct rdzv *r, struct node *node, const struct rdzv_event *e);
/* Actions while a round is being stopped: */
static enum rdzv_state better_cause(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state explains(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state has_stopped(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state leaves_late(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state lost_late(struct rdzv *r, struct node *node, const struct rdzv_event *e);
static enum rdzv_state drop_late(struct rdzv *r, struct node *node, const struct rdzv_event *e);

/* The state machine: a row for each state, a column for each event. The function in a cell returns the next state.
 * Messages about an old round do not reach the table (find_sender). */
/* clang-format off */
static const cell machine[RDZV_N_STATES][RDZV_N_EVENTS] = {
/* FAILED EXPLAINED DONE STOPPED LEAVE LOST BACK GROW HANGS RECHECK TIME_UP JOIN */
[RDZV_GATHERING]    = { ignore,       ignore,   ignore,  ignore,        leaves,       is_lost,         back, ignore, ignore, begins,  give_up_job, joins       },
[RDZV_LAST_CALL]    = { ignore,       ignore,   ignore,  ignore,        leaves,       is_lost,         back, ignore, ignore, begins,  go_on,       joins       },
[RDZV_RUNNING]      = { fails,        ignore,   is_done, stops_unasked, leaves_round, lost_from_round, back, agrees, hangs,  grow_if, ignore,      joins_spare },
[RDZV_STOPPING]     = { better_cause, explains, ignore,  has_stopped,   leaves_late,  lost_late,       back, ignore, ignore, ignore,  drop_late,   joins_spare },
[RDZV_BACKING_OFF]  = { ignore,       ignore,   ignore,  ignore,        leaves,       is_lost,         back, ignore, ignore, ignore,  gather,      joins       },
[RDZV_OVER]         = { ignore,       ignore,   ignore,  ignore,        ignore,       ignore,          back, ignore, ignore, ignore,  ignore,      joins_late  },
};
/* clang-format on */

/* Return the next state of a job without nodes. If the job has already had a round, the job is over. If the job has not
 * had a round yet, the job gathers nodes again, and the next node that joins sets the rules. */
static enum rdzv_state end_without_nodes(struct rdzv *r)
{
    r->next_notice_ms = UINT64_MAX;
    r->must_recheck = false;
    if (r->run.round == 0) {
        rdzv_forget_rules(r);
        return RDZV_GATHERING;
    }
    rdzv_note(r, RDZV_RECORD_VERDICT, NULL, "the job is over: no node is left");
    return RDZV_OVER;
}

/* Apply an event to the state machine. `node` is the node that the event is about. `node` is NULL for GROW, HANGS,
 * RECHECK, TIME_UP, and for the JOIN of a new node. */
static void rdzv_step(struct rdzv *r, struct node *node, const struct rdzv_event *event)
{
    enum rdzv_state next = machine[r->state][event->type](r, node, event);
    if (r->n_live == 0 && next != RDZV_OVER)
        next = end_without_nodes(r);
    if (next != r->state)
        r->since_ms = r->now_ms;
    r->state = next;
}

static enum rdzv_state ignore(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node, (void)e;
    return r->state;
}

/* Replace the broken connection of a node by its new connection. The state of the job does not change, because the node
 * receives all messages that it has missed. */
static enum rdzv_state back(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    char name[2 * RDZV_TEXT_MAX], after[TEXT_MS_MAX];
    rdzv_note(r, RDZV_RECORD_JOIN, node, "%s has connected again after %s",
              rdzv_name(node, name, sizeof(name)), text_ms(r->now_ms - node->last_received_ms, after));
    rdzv_node_moves(r, node, e->next);
    if (node->state != RDZV_NODE_FINISHED)
        rdzv_touch(r, node);
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

/* Reject a node, because the job is over. */
static enum rdzv_state joins_late(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    rdzv_admit(r, node, e->joining, RDZV_NOBODY);
    return r->state;
}

/* --- no round runs -------------------------------------------------------------------------------------- */

/* Begin the last call. If members of the last round are missing, the last call takes at least RETURN_MS, because these
 * members must first reap their workers. If the last call would take no time, begin the round at once. */
static enum rdzv_state last_call(struct rdzv *r)
{
    char within[TEXT_MS_MAX];
    uint64_t call_ms = r->rules.last_call_ms;
    if (r->n_resting > 0 && call_ms < RETURN_MS)
        call_ms = RETURN_MS;
    if (call_ms == 0)
        return rdzv_begin_round(r);
    r->until.call_ms = r->now_ms + call_ms;
    if (r->n_resting == 0)
        rdzv_note(r, RDZV_RECORD_LAST_CALL, NULL,
                  "enough nodes (%" PRIu32 " joined, %" PRIu32 " to %" PRIu32
                  " allowed): more nodes may join within %s",
                  rdzv_round_size(r), r->rules.min, r->rules.max, text_ms(call_ms, within));
    return RDZV_LAST_CALL;
}

/* Return the next state after a join or a leave. Begin a complete round at once. If an elastic job has enough nodes,
 * begin the last call, but do not prolong a last call that has begun. Otherwise continue to gather nodes. */
static enum rdzv_state begins(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node, (void)e;
    if (rdzv_is_complete(r))
        return rdzv_begin_round(r);
    if (!r->rules.elastic)
        return RDZV_GATHERING;
    if (rdzv_round_size(r) >= r->rules.min)
        return r->state == RDZV_LAST_CALL ? RDZV_LAST_CALL : last_call(r);
    if (r->n_resting == 0)
        r->short_handed = true;
    if (r->state == RDZV_LAST_CALL)
        rdzv_note(r, RDZV_RECORD_LAST_CALL, NULL, "too few nodes again: the job waits for more");
    return RDZV_GATHERING;
}

/* End the job, because the join timeout has passed without enough nodes. */
static enum rdzv_state give_up_job(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    char within[TEXT_MS_MAX];
    (void)node, (void)e;
    rdzv_note(r, RDZV_RECORD_VERDICT, NULL, "too few nodes: %" PRIu32 " of %" PRIu32 " joined within %s (%s)",
              r->n_waiting, r->rules.min, text_ms(r->rules.join_timeout_ms, within), r->rules.join_knob);
    return rdzv_end_job(r, RDZV_WHY_TIMEOUT, NO_RESTART_TOO_FEW_NODES);
}

/* Begin the round, because the wait for further nodes (LAST_CALL) has ended. A member of the previous round loses its
 * place if it has not joined again. */
static enum rdzv_state go_on(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node, (void)e;
    r->n_resting = 0;
    return rdzv_begin_round(r);
}

/* End the back-off, and check whether the nodes that have joined suffice. */
static enum rdzv_state gather(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node, (void)e;
    r->must_recheck = true;
    return RDZV_GATHERING;
}

/* Format the reason of a `leave`, such as "SIGTERM from bash (pid 77, uid 1000)". Without a signal, return the reason
 * that the agent has sent. */
static const char *who_stopped_it(const struct rdzv_event *e, char *room, size_t size)
{
    const char *abbrev = signal_abbrev(e->signal), *from = e->words[0] != '\0' ? " from " : "";
    if (e->signal > 0 && abbrev != NULL)
        snprintf(room, size, "SIG%s%s%.150s", abbrev, from, e->words);
    else if (e->signal > 0)
        snprintf(room, size, "signal %d%s%.150s", e->signal, from, e->words);
    else
        text_copy(room, size, e->words[0] != '\0' ? e->words : "no reason was given");
    return room;
}

/* Log that a node leaves, and record the departure for the diagnosis. The text `from` follows the word "leaves" in the
 * log line. `from` is " its round" if workers of the node run, otherwise "". */
static void note_leave(struct rdzv *r, const struct node *node, const struct rdzv_event *e, const char *from)
{
    char name[2 * RDZV_TEXT_MAX], by[RDZV_TEXT_MAX];
    rdzv_remember_gone(r, node, e, who_stopped_it(e, by, sizeof(by)));
    rdzv_note(r, RDZV_RECORD_LEAVE, node, "%s leaves%s: %s", rdzv_name(node, name, sizeof(name)), from, by);
}

/* Let a node without running workers leave. Between two rounds this ends a static job, which cannot continue without
 * the node. Before the first round the job does not end, because the user may start the node again. */
static enum rdzv_state leaves(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    note_leave(r, node, e, "");
    rdzv_dismiss(r, node, e->signal);
    r->must_recheck = true;
    rdzv_schedule_notify(r);
    if (r->rules.elastic || r->run.round == 0 || r->state == RDZV_RUNNING || r->state == RDZV_STOPPING)
        return r->state;
    return rdzv_end_job(r, RDZV_WHY_NODE_LEFT, NO_RESTART_STOPPED);
}

/* Remove a node whose connection has closed, or that was silent for too long. Record the loss before freeing the
 * node. */
static void lose(struct rdzv *r, struct node *node, const struct rdzv_event *how)
{
    char name[2 * RDZV_TEXT_MAX];
    rdzv_note(r, RDZV_RECORD_LOST, node, "%s is lost: %s", rdzv_name(node, name, sizeof(name)), how->words);
    rdzv_remember_gone(r, node, how, how->words);
    rdzv_remove_node(r, node);
    r->must_recheck = true;
    rdzv_schedule_notify(r);
}

static enum rdzv_state is_lost(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    lose(r, node, e);
    return r->state;
}

/* --- a round runs --------------------------------------------------------------------------------------- */

/* Stop the round at the first reported failure. */
static enum rdzv_state fails(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    rdzv_set_failure(r, node, e->failure);
    return rdzv_stop_round(r);
}

static enum rdzv_state hangs(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    (void)node;
    rdzv_set_hang(r, e->failure);
    return rdzv_stop_round(r);
}

/* Record that a node is done. The job is done if all nodes are done. Until then, a node that is done stays a member,
 * because all members restart if another node fails. */
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

/* Record the exit codes of a stopped node. An unkillable process prevents a restart, except on a node that leaves the
 * job. */
static void note_exit(struct rdzv *r, const struct node *node, const struct rdzv_stopped *how)
{
    r->end.unkillable = r->end.unkillable || (how->unkillable && !node->leaving);
    r->end.max_code = how->max_code > r->end.max_code ? how->max_code : r->end.max_code;
    if (!how->has_rank0 || node->first_rank != 0)
        return;
    r->end.has_rank0 = true;
    r->end.rank0_code = how->rank0_code;
}

/* Stop the round, because a node has stopped although it has received no `stop`. Record this as a failure. */
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

/* Handle a node that leaves while a round runs. Stop the round, unless the node is a spare or all its workers have
 * ended with exit code 0. */
static enum rdzv_state leaves_round(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    char name[2 * RDZV_TEXT_MAX], by[RDZV_TEXT_MAX], words[RDZV_WORDS_MAX];
    if (!rdzv_is_member(r, node) || node->state == RDZV_NODE_DONE)
        return leaves(r, node, e);
    note_leave(r, node, e, " its round");
    snprintf(words, sizeof(words), "%.300s %s %s", rdzv_name(node, name, sizeof(name)),
             e->signal > 0 ? "was stopped by" : "gave up:", who_stopped_it(e, by, sizeof(by)));
    rdzv_set_cause(r, RDZV_WHY_NODE_LEFT, node, e->signal, words);
    text_copy(r->end.cause.failure.code, sizeof(r->end.cause.failure.code), e->code);
    node->leaving = true;
    node->leave_signal = e->signal;
    r->end.stopped_by_user = !r->rules.elastic;
    rdzv_member_becomes(r, node, RDZV_NODE_STOPPING);
    return rdzv_stop_round(r);
}

/* Record the loss of a node as the cause of the round's end. */
static void set_loss(struct rdzv *r, const struct node *node, const struct rdzv_event *how)
{
    char name[2 * RDZV_TEXT_MAX], words[RDZV_WORDS_MAX];
    snprintf(words, sizeof(words), "%.300s is lost: %.180s", rdzv_name(node, name, sizeof(name)), how->words);
    rdzv_set_cause(r, RDZV_WHY_NODE_LOST, node, 0, words);
    r->end.cause.silent = how->silent;
}

/* Handle the loss of a node while a round runs. Stop the round, unless the node is a spare or all its workers have
 * ended with exit code 0. Set the cause before lose() frees the node. */
static enum rdzv_state lost_from_round(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    bool matters = rdzv_is_member(r, node) && node->state != RDZV_NODE_DONE;
    if (matters)
        set_loss(r, node, e);
    lose(r, node, e);
    return matters ? rdzv_stop_round(r) : r->state;
}

/* Stop the round to add waiting nodes, if the job has room for them and --grow allows the restart. The value of --grow
 * allows a restart always, never, or only if the workers agree. */
static enum rdzv_state grow_if(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    char words[RDZV_WORDS_MAX];
    uint32_t more = rdzv_can_grow_by(r);
    bool wanted = r->rules.grow == RDZV_GROW_NOW || (r->rules.grow == RDZV_GROW_AGREED && r->grow_agreed);
    (void)node, (void)e;
    rdzv_store_waiting_count(r);
    if (!wanted || more == 0)
        return r->state;
    snprintf(words, sizeof(words), "%" PRIu32 " more node%s can join", more, more == 1 ? "" : "s");
    rdzv_set_cause(r, RDZV_WHY_GROW, NULL, 0, words);
    return rdzv_stop_round(r);
}

/* Record that the workers agree to a restart with more nodes. Without a waiting node, the agreement stays valid for
 * later nodes. */
static enum rdzv_state agrees(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    r->grow_agreed = true;
    return grow_if(r, node, e);
}

/* --- a round is being stopped --------------------------------------------------------------------------- */

/* Handle a further failure. A victim is a worker that failed because it lost a peer. If the present cause is the
 * failure of a victim, and the new failure is not the failure of a victim, the new failure becomes the cause. The peer
 * failed first, but its report may arrive after the report of the victim. */
static enum rdzv_state better_cause(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    if (r->end.cause.failure.victim && !rdzv_is_victim(e->failure))
        rdzv_set_failure(r, node, e->failure);
    return r->state;
}

/* Replace the failure by a more detailed report about the same worker. Keep the time of the first report. */
static enum rdzv_state explains(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    if (r->end.cause.why == RDZV_WHY_FAILED && r->end.cause.failure.node_rank == node->node_rank &&
        r->end.cause.failure.rank == e->failure->rank)
        rdzv_set_failure(r, node, e->failure);
    return r->state;
}

/* Record that a member has stopped. After this, the end of the member's connection does not affect the cause of the
 * round's end any more. */
static enum rdzv_state has_stopped(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    char name[2 * RDZV_TEXT_MAX];
    if (node->state != RDZV_NODE_STOPPING)
        return r->state;
    note_exit(r, node, e->how);
    rdzv_member_becomes(r, node, RDZV_NODE_STOPPED);
    rdzv_note(r, RDZV_RECORD_NODE_STOPPED, node, "%s has stopped%s", rdzv_name(node, name, sizeof(name)),
              e->how->unkillable ? ", but one of its processes cannot be killed" : "");
    if (node->leaving)
        rdzv_dismiss(r, node, node->leave_signal);
    return rdzv_decide_if_stopped(r);
}

/* Let a node leave while the round is being stopped. A node whose workers still run stays until it sends `stopped`. The
 * `leave` does not change the cause of the round's end, but prevents a restart of a static job. */
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

/* Remove a node that is lost while the round is being stopped. If the present cause is the failure of a victim (a
 * worker that lost a peer), the lost node becomes the cause. The lost node probably ran this peer. */
static enum rdzv_state lost_late(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    bool member = rdzv_is_member(r, node);
    if (member && r->end.cause.failure.victim && node->state == RDZV_NODE_STOPPING && !node->leaving)
        set_loss(r, node, e);
    lose(r, node, e);
    return member ? rdzv_decide_if_stopped(r) : r->state;
}

/* Drop the members that have not stopped in time, so that one hanging node cannot prevent the restart of all other
 * nodes. */
static enum rdzv_state drop_late(struct rdzv *r, struct node *node, const struct rdzv_event *e)
{
    const struct rdzv_event how = { .type = RDZV_LOST, .words = DROPPED_STOP_SLOW };
    (void)node, (void)e;
    for (uint32_t i = 0; i < r->run.nnodes; i++) {
        struct node *late = r->run.member[i];
        if (late == NULL || late->state != RDZV_NODE_STOPPING)
            continue;
        r->env.drop(r->env.user, late->id, how.words);
        lose(r, late, &how);
    }
    return rdzv_decide_if_stopped(r);
}

/* Each function below stores the time, checks the message, applies its event, and calls rdzv_recheck. */

/* --- messages of agents -------------------------------------------------------------------------------- */

/* Return the member that has sent a message, or NULL with the reason in *answer. A rejected message also counts as a
 * heartbeat. Check the round before the membership, because STALE_ROUND is the more precise answer. */
static struct node *find_sender(struct rdzv *r, uint64_t id, uint32_t round, uint64_t now_ms,
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
                  "%s sent a message about round %" PRIu32 ", but the current round is %" PRIu32 ": ignored",
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

/* Apply an event of a member, then call rdzv_recheck, which may begin a round. */
static enum rdzv_answer handle_member(struct rdzv *r, uint64_t id, uint32_t round,
                                      const struct rdzv_event *event, uint64_t now_ms)
{
    enum rdzv_answer answer;
    struct node *node = find_sender(r, id, round, now_ms, &answer);
    if (node == NULL)
        return answer;
    if (event->failure != NULL && !has_rank(node, event->failure->rank))
        return RDZV_OTHER_RANK;
    rdzv_step(r, node, event);
    rdzv_recheck(r, now_ms);
    return RDZV_OK;
}

/* Let a node join, but do not call rdzv_recheck. The hub must send the answer to the join before a round begins. */
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
    return handle_member(r, node, round, &(struct rdzv_event){ .type = RDZV_FAILED, .failure = failure },
                         now_ms);
}

enum rdzv_answer rdzv_explain(struct rdzv *r, uint64_t node, uint32_t round, const struct failure *failure,
                              uint64_t now_ms)
{
    return handle_member(r, node, round, &(struct rdzv_event){ .type = RDZV_EXPLAINED, .failure = failure },
                         now_ms);
}

enum rdzv_answer rdzv_done(struct rdzv *r, uint64_t node, uint32_t round, uint64_t now_ms)
{
    return handle_member(r, node, round, &(struct rdzv_event){ .type = RDZV_DONE }, now_ms);
}

enum rdzv_answer rdzv_stopped(struct rdzv *r, uint64_t node, uint32_t round, const struct rdzv_stopped *how,
                              uint64_t now_ms)
{
    return handle_member(r, node, round, &(struct rdzv_event){ .type = RDZV_STOPPED, .how = how }, now_ms);
}

/* Apply the event LEAVE or LOST. If the node already has its final verdict, do not apply the event. In this case LOST
 * only frees the node. */
static void goes(struct rdzv *r, struct node *node, const struct rdzv_event *event)
{
    if (node->state != RDZV_NODE_FINISHED)
        rdzv_step(r, node, event);
    else if (event->type == RDZV_LOST)
        rdzv_remove_node(r, node);
}

/* Let a node leave. The round of the message is not checked, because a node may leave at any time. */
void rdzv_leave(struct rdzv *r, uint64_t id, int signal, const char *by, const char *code, uint64_t now_ms)
{
    struct node *node = rdzv_find(r, id);
    r->now_ms = now_ms;
    if (node == NULL)
        return;
    goes(r, node, &(struct rdzv_event){ .type = RDZV_LEAVE, .signal = signal, .words = by, .code = code });
    rdzv_recheck(r, now_ms);
}

enum { SILENCE_MAX = 64 };

/* Format why a silent node is lost, and return `out`. */
static const char *format_silence(const struct rdzv *r, const struct node *node, char out[SILENCE_MAX])
{
    char silent[TEXT_MS_MAX];
    snprintf(out, SILENCE_MAX, "silent for %s", text_ms(r->now_ms - node->last_received_ms, silent));
    return out;
}

/* Remove a node whose connection has closed. If the node was silent for too long before, report the silence as the
 * cause. */
void rdzv_lost(struct rdzv *r, uint64_t id, const char *how, uint64_t now_ms)
{
    struct node *node = rdzv_find(r, id);
    char silence[SILENCE_MAX];
    r->now_ms = now_ms;
    if (node == NULL)
        return;
    const bool silent = rdzv_is_silent(r, node);
    goes(r, node,
         &(struct rdzv_event){
             .type = RDZV_LOST, .words = silent ? format_silence(r, node, silence) : how, .silent = silent });
    rdzv_recheck(r, now_ms);
}

void rdzv_cut(struct rdzv *r, uint64_t id, const char *how, uint64_t now_ms)
{
    struct node *node = rdzv_find(r, id);
    r->now_ms = now_ms;
    if (node == NULL)
        return;
    goes(r, node, &(struct rdzv_event){ .type = RDZV_LOST, .words = how });
    rdzv_recheck(r, now_ms);
}

bool rdzv_back(struct rdzv *r, uint64_t id, uint64_t next, uint64_t now_ms)
{
    struct node *node = rdzv_find(r, id);
    r->now_ms = now_ms;
    if (node != NULL)
        rdzv_step(r, node, &(struct rdzv_event){ .type = RDZV_BACK, .next = next });
    return node != NULL;
}

void rdzv_grow_agreed(struct rdzv *r, uint64_t now_ms)
{
    r->now_ms = now_ms;
    rdzv_step(r, NULL, &(struct rdzv_event){ .type = RDZV_GROW });
    rdzv_recheck(r, now_ms);
}

void rdzv_hangs(struct rdzv *r, const struct failure *failure, uint64_t now_ms)
{
    r->now_ms = now_ms;
    rdzv_step(r, NULL, &(struct rdzv_event){ .type = RDZV_HANGS, .failure = failure });
    rdzv_recheck(r, now_ms);
}

/* Record a sign of life. The hub calls this function for each received packet of a node, so this function only updates
 * the time. */
void rdzv_received(struct rdzv *r, uint64_t id, uint64_t now_ms)
{
    struct node *node = rdzv_find(r, id);
    r->now_ms = now_ms;
    if (node != NULL && node->state != RDZV_NODE_FINISHED)
        rdzv_touch(r, node);
}

/* --- time ----------------------------------------------------------------------------------------------- */

/* Apply RECHECK events until no event sets must_recheck again. */
void rdzv_recheck(struct rdzv *r, uint64_t now_ms)
{
    r->now_ms = now_ms;
    while (r->must_recheck) {
        r->must_recheck = false;
        rdzv_step(r, NULL, &(struct rdzv_event){ .type = RDZV_RECHECK });
    }
}

/* Return the earliest deadline. While must_recheck is set, the deadline is now. */
uint64_t rdzv_deadline(const struct rdzv *r)
{
    if (r->must_recheck)
        return r->now_ms;
    return earlier_of(earlier_of(rdzv_state_deadline(r), r->next_notice_ms), rdzv_watch_deadline(r));
}

/* Close the connections of silent nodes. Close each connection before applying the loss, because a lost node must not
 * send further messages. */
static void drop_silent_nodes(struct rdzv *r)
{
    char how[SILENCE_MAX];
    struct node *node;
    while ((node = rdzv_silent_node(r)) != NULL) {
        format_silence(r, node, how);
        r->env.drop(r->env.user, node->id, how);
        rdzv_step(r, node, &(struct rdzv_event){ .type = RDZV_LOST, .words = how, .silent = true });
    }
}

/* Apply all deadlines. Remove silent nodes first, because a new round must not include them. Send messages to the
 * waiting nodes last, because the steps before may begin a round. */
void rdzv_tick(struct rdzv *r, uint64_t now_ms)
{
    r->now_ms = now_ms;
    rdzv_check_own_pulse(r);
    drop_silent_nodes(r);
    rdzv_recheck(r, now_ms);
    /* Limit the number of steps, so that a state whose deadline is in the past cannot cause an endless loop. */
    for (int i = 0; i < RDZV_N_STATES && now_ms >= rdzv_state_deadline(r); i++) {
        rdzv_step(r, NULL, &(struct rdzv_event){ .type = RDZV_TIME_UP });
        rdzv_recheck(r, now_ms);
    }
    rdzv_notify_if_due(r);
}

/* --- facts ------------------------------------------------------------------------------------------------ */

/* Copies of facts for readers: status, diagnosis and hub. Pointers in the copies are borrowed, and valid until the next
 * call of the rendezvous. */

void rdzv_facts(const struct rdzv *r, struct rdzv_facts *facts)
{
    const struct rules *rules = &r->rules;
    const bool between =
        r->state == RDZV_GATHERING || r->state == RDZV_LAST_CALL || r->state == RDZV_BACKING_OFF;
    *facts = (struct rdzv_facts){ .state = r->state,
                                  .round = r->run.round,
                                  .restarts = r->restarts.made,
                                  .elastic = rules->elastic,
                                  .min = rules->min,
                                  .max = rules->max,
                                  .nodes = r->n_live,
                                  .members = r->run.n_members,
                                  .waiting = r->n_waiting,
                                  .returning = r->n_resting,
                                  .done = r->run.n_done,
                                  .world_size = r->run.world_size,
                                  .since_ms = r->since_ms,
                                  .deadline_ms = rdzv_state_deadline(r),
                                  .gather_ms = between && rules->known ? r->until.gather_ms : UINT64_MAX,
                                  .join_timeout_ms = rules->join_timeout_ms,
                                  .join_knob = rules->join_knob,
                                  .node_timeout_ms = rules->node_timeout_ms,
                                  .cause = r->end.has_cause ? &r->end.cause : NULL,
                                  .gone = r->gone,
                                  .n_gone = r->n_gone };
}

static bool is_spare(const struct rdzv *r, const struct node *node)
{
    bool runs = r->state == RDZV_RUNNING || r->state == RDZV_STOPPING;
    return node->state == RDZV_NODE_WAITING && (runs || r->n_waiting > r->rules.max);
}

bool rdzv_is_spare(const struct rdzv *r, uint64_t id)
{
    const struct node *node = rdzv_find(r, id);
    return node != NULL && is_spare(r, node);
}

bool rdzv_node_facts(const struct rdzv *r, uint64_t id, struct rdzv_node_facts *facts)
{
    const struct node *node = rdzv_find(r, id);
    if (node == NULL)
        return false;
    *facts = (struct rdzv_node_facts){ .node = node->id,
                                       .state = node->state,
                                       .node_rank = node->node_rank >= 0 ? node->node_rank : node->wanted,
                                       .first_rank = node->first_rank,
                                       .nproc = node->nproc,
                                       .host = node->host,
                                       .addr = node->addr,
                                       .own = node->own,
                                       .version = node->version,
                                       .boot_id = node->boot_id,
                                       .pid = node->pid,
                                       .joined_ms = node->joined_ms,
                                       .last_received_ms = node->last_received_ms,
                                       .leaving = node->leaving,
                                       .is_spare = is_spare(r, node) };
    return true;
}

/* Return the id of the next node in the order of joining. If the node `after` has left, return 0. */
uint64_t rdzv_next_node(const struct rdzv *r, uint64_t after)
{
    const struct node *node = after != 0 ? rdzv_find(r, after) : NULL;
    if (after != 0 && node == NULL)
        return 0;
    const struct list *next = node != NULL ? node->joined.next : r->nodes.next;
    return next != &r->nodes ? LIST_ENTRY(next, struct node, joined)->id : 0;
}

/* Return the id of the node that runs `rank`: find the last row whose first rank is at most `rank`. Return 0 if this
 * node has left. */
uint64_t rdzv_node_of_rank(const struct rdzv *r, uint32_t rank)
{
    bool runs = r->state == RDZV_RUNNING || r->state == RDZV_STOPPING;
    uint32_t low = 0, high = r->run.nnodes;
    if (!runs || rank >= r->run.world_size)
        return 0;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (r->run.rows[middle].first_rank <= rank)
            low = middle;
        else
            high = middle;
    }
    return r->run.rows[low].node;
}

bool rdzv_is_over(const struct rdzv *r)
{
    return r->state == RDZV_OVER && r->n_live == 0;
}
