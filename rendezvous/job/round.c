/* round.c -- see round.h. The store sends the verdict only after every member has sent `stopped` or is gone, for two
 * reasons. The verdict depends on the exit codes of all nodes, and a process of the old round could disturb the next
 * round. */
#include "job/round.h"

#include "base/text.h"
#include "ddp/error.h"

#include <errno.h>
#include <string.h>

/* --- restarts --------------------------------------------------------------------------------------------- */

/* A permanent failure allows no restart. Permanent failures are a missing program, a usage error and an import error.
 * The agent detects a permanent failure and reports it as `no_retry`. Lack of memory is not permanent, because a worker
 * that leaks memory may run for hours after a restart. */

void restarts_init(struct restarts *a, const struct rdzv_join *rules)
{
    *a = (struct restarts){ .max_restarts = rules->max_restarts,
                            .max_no_progress = rules->max_no_progress,
                            .backoff_ms = rules->backoff_ms,
                            .backoff_cap_ms = rules->backoff_cap_ms,
                            .step = -1,
                            .best_step = -1 };
}

/* Record a failed attempt. The first rule that applies decides:
 * - if max_restarts is 0, return NO_RESTART_NONE, because the user expects no restart and needs no reason
 * - if the failure is permanent (no_retry), return this reason, because the user must correct the failure
 * - if all restarts are used up, return NO_RESTART_USED_UP
 * - otherwise return NO_RESTART_NONE, because another attempt is allowed */
static enum no_restart restarts_failed(struct restarts *a, const struct rdzv_cause *cause)
{
    /* Stop counting at max_restarts + 1, so that a->failed cannot overflow. */
    if (a->failed <= a->max_restarts)
        a->failed++;
    if (a->max_restarts == 0)
        return NO_RESTART_NONE; /* give no reason, because the user expects no restart */
    if (cause->no_retry != NO_RESTART_NONE)
        return cause->no_retry;
    return a->failed > a->max_restarts ? NO_RESTART_USED_UP : NO_RESTART_NONE;
}

/* Record the progress of an attempt. Return NO_RESTART_NO_PROGRESS after --max_no_progress successive
 * attempts without progress. The limit applies only after some attempt has reported progress. From then on, an attempt
 * without a report counts as an attempt without progress. */
static enum no_restart restarts_progress(struct restarts *a, int64_t step)
{
    a->step = step;
    bool judged = a->best_step >= 0;
    if (step > a->best_step) {
        a->best_step = step;
        a->standing = 0;
    } else {
        a->standing++;
    }
    bool too_often = judged && a->max_no_progress > 0 && a->standing >= a->max_no_progress;
    return too_often ? NO_RESTART_NO_PROGRESS : NO_RESTART_NONE;
}

/* Return the pause before the next attempt, at most backoff_cap_ms. Double backoff_ms for each attempt since the best
 * progress. If no attempt has reported progress, double backoff_ms for each failed attempt after the first. */
static uint64_t restarts_backoff(const struct restarts *a)
{
    uint32_t doublings = a->best_step >= 0 ? a->standing : a->failed > 0 ? a->failed - 1 : 0;
    uint64_t wait_ms = a->backoff_ms;
    /* above half of the cap, doubling could overflow */
    for (; doublings > 0 && wait_ms > 0 && wait_ms <= a->backoff_cap_ms / 2; doublings--)
        wait_ms *= 2;
    if (doublings > 0 && wait_ms > 0)
        return a->backoff_cap_ms;
    return wait_ms < a->backoff_cap_ms ? wait_ms : a->backoff_cap_ms;
}

/* --- rounds ------------------------------------------------------------------------------------------------- */

/* When a round begins:
 *
 *     static             all node ranks have joined
 *     elastic, first     MAX nodes have joined, or the last call is over and at least MIN nodes have joined
 *     elastic, later     all remaining members of the last round have joined again, and at least MIN nodes wait.
 *                        If fewer nodes wait at that time, or if a member does not join again, the rule for the
 *                        first round applies. */

/* Return the number of places for newcomers. A member that may return keeps its place, because it may have a checkpoint
 * on its disk. */
static uint32_t places_for_newcomers(const struct rdzv *r)
{
    uint32_t held = r->n_back + r->n_resting;
    return r->rules.max > held ? r->rules.max - held : 0;
}

/* Return the number of nodes of a round that would begin now. Its nodes are the members of the last round that have
 * joined again, and newcomers for the free places. */
uint32_t rdzv_round_size(const struct rdzv *r)
{
    uint32_t new = r->n_waiting - r->n_back, places = places_for_newcomers(r);
    return r->n_back + (new < places ? new : places);
}

/* Return true if a round can begin. A static round needs all nodes, because the user has assigned their node ranks. */
bool rdzv_is_complete(const struct rdzv *r)
{
    if (!r->rules.known)
        return false;
    if (!r->rules.elastic)
        return r->n_waiting == r->rules.max;
    bool all_back = r->run.round > 0 && r->n_resting == 0 && !r->short_handed;
    return rdzv_round_size(r) == r->rules.max || (all_back && rdzv_round_size(r) >= r->rules.min);
}

/* Return the number of waiting nodes that a restart would add to the round. */
uint32_t rdzv_can_grow_by(const struct rdzv *r)
{
    uint32_t places = r->rules.elastic && r->rules.max > r->run.nnodes ? r->rules.max - r->run.nnodes : 0;
    return r->n_waiting < places ? r->n_waiting : places;
}

/* Store the number of waiting nodes in a key for the workers, if the number has changed. The key does not exist at the
 * beginning of a round, because env.begin deletes all keys. If the key does not exist, the number is 0. */
void rdzv_store_waiting_count(struct rdzv *r)
{
    uint32_t count = r->rules.grow == RDZV_GROW_NEVER ? 0 : rdzv_can_grow_by(r);
    if (count == r->waiting_nodes || r->env.waiting_nodes == NULL)
        return;
    r->waiting_nodes = count;
    r->env.waiting_nodes(r->env.user, count);
}

/* Assign global ranks in the order of node ranks, so that each node has consecutive ranks. */
static void assign_ranks(struct rdzv *r, uint32_t n)
{
    r->run.world_size = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct node *node = r->run.member[i];
        rdzv_node_stops_waiting(r, node, RDZV_NODE_RUNNING);
        node->node_rank = (int32_t)i;
        node->first_rank = r->run.world_size;
        r->run.world_size += node->nproc;
        r->run.rows[i] = (struct rdzv_row){ .node = node->id,
                                            .node_rank = i,
                                            .first_rank = node->first_rank,
                                            .nproc = node->nproc,
                                            .store_port = node->store_port,
                                            .host = node->host,
                                            .addr = node->addr,
                                            .own = node->own };
    }
    r->run.round++;
    for (uint32_t i = 0; i < n; i++)
        r->run.member[i]->round = r->run.round;
    r->n_back = r->n_resting = 0; /* from now on, all waiting nodes are newcomers */
    r->run.nnodes = r->run.n_members = r->run.n_open = n;
    r->run.n_done = 0;
}

/* Reset the facts about the end of the previous round. Restarts and the best step are kept, because they count for the
 * whole job. */
static void forget_last_end(struct rdzv *r)
{
    r->end.has_cause = r->end.unkillable = r->end.stopped_by_user = r->end.has_rank0 = false;
    r->grow_agreed = r->short_handed = false;
    r->end.max_code = r->end.rank0_code = 0;
    r->waiting_nodes = 0;
    r->restarts.step = -1; /* the progress of this attempt is not read yet */
    r->run.began_ms = r->now_ms;
}

/* Return true if members have different roles. */
static bool has_roles(const struct rdzv *r)
{
    for (uint32_t i = 1; i < r->run.nnodes; i++)
        if (strcmp(r->run.member[i]->role, r->run.member[0]->role) != 0)
            return true;
    return false;
}

/* Set role_rank and role_size of all members that have the same role as member `first`. No member before `first` has
 * this role. */
static void count_role(const struct rdzv *r, uint32_t first)
{
    const char *role = r->run.member[first]->role;
    uint32_t size = 0;
    for (uint32_t i = first; i < r->run.nnodes; i++) {
        if (strcmp(r->run.member[i]->role, role) != 0)
            continue;
        r->run.member[i]->role_rank = size;
        size += r->run.member[i]->nproc;
    }
    for (uint32_t i = first; i < r->run.nnodes; i++)
        if (strcmp(r->run.member[i]->role, role) == 0)
            r->run.member[i]->role_size = size;
}

/* Set role_rank and role_size of all members. If all members have the same role, role_size is 0. */
static void count_roles(const struct rdzv *r)
{
    for (uint32_t i = 0; i < r->run.nnodes; i++)
        r->run.member[i]->role_rank = r->run.member[i]->role_size = 0;
    if (!has_roles(r))
        return;
    for (uint32_t i = 0; i < r->run.nnodes; i++)
        if (r->run.member[i]->role_size == 0)
            count_role(r, i);
}

/* Send the round to all members. For a large round, the callback env.notify lists only the first nodes in the
 * message. */
static void send_round(struct rdzv *r, const struct rdzv_round *world)
{
    count_roles(r);
    for (uint32_t i = 0; i < r->run.nnodes; i++) {
        struct rdzv_notice notice = { .kind = RDZV_NOTICE_ROUND,
                                      .world = world,
                                      .round = r->run.round,
                                      .node_rank = i,
                                      .first_rank = r->run.member[i]->first_rank,
                                      .role_rank = r->run.member[i]->role_rank,
                                      .role_size = r->run.member[i]->role_size };
        r->env.notify(r->env.user, r->run.member[i]->id, &notice);
    }
}

/* Begin a round. The callback env.begin empties the key space before any member receives the round, because workers
 * may send requests at once. If memory is short, env.begin fails and the old keys remain. The job then ends, because
 * workers must not read old keys. */
enum rdzv_state rdzv_begin_round(struct rdzv *r)
{
    uint32_t n = rdzv_round_size(r);
    if (r->rules.elastic)
        rdzv_order_elastic(r, n);
    else
        rdzv_order_static(r);
    assign_ranks(r, n);
    forget_last_end(r);
    struct rdzv_round world = { .round = r->run.round,
                                .attempt = r->run.round - 1,
                                .restarts = r->restarts.failed,
                                .nnodes = n,
                                .world_size = r->run.world_size,
                                .rows = r->run.rows };
    if (!r->env.begin(r->env.user, &world)) {
        rdzv_set_cause(r, RDZV_WHY_REFUSED, NULL, 0, "the store has no memory for the keys of this attempt");
        return rdzv_end_job(r, RDZV_WHY_REFUSED, NO_RESTART_NOT_READY);
    }
    rdzv_note(r, RDZV_RECORD_ROUND, NULL,
              "attempt %" PRIu32 " begins: %" PRIu32 " node%s, %" PRIu32 " rank%s", r->run.round - 1, n,
              n == 1 ? "" : "s", r->run.world_size, r->run.world_size == 1 ? "" : "s");
    send_round(r, &world);
    if (r->n_waiting > 0)
        rdzv_schedule_notify(r);
    return RDZV_RUNNING;
}

enum { CODE_SIGNAL = 128, CODE_NOT_FOUND = 127, CODE_CANNOT_RUN = 126 }; /* exit codes of shells */

/* --- the cause ------------------------------------------------------------------------------------------ */

void rdzv_set_cause(struct rdzv *r, enum rdzv_why why, const struct node *node, int signal, const char *words)
{
    r->end.cause = (struct rdzv_cause){ .why = why,
                                        .failure = { .node_rank = node ? node->node_rank : -1,
                                                     .rank = -1,
                                                     .local_rank = -1,
                                                     .signal = signal,
                                                     .after_ms = r->now_ms - r->run.began_ms } };
    text_copy(r->end.cause.failure.host, sizeof(r->end.cause.failure.host), node ? node->host : "");
    text_copy(r->end.cause.failure.words, sizeof(r->end.cause.failure.words), words);
    r->end.has_cause = true;
}

/* Return true if the worker failed only because it lost a peer, as its exit code or its output shows. The failure of
 * such a worker is not the cause of the round's end. */
bool rdzv_is_victim(const struct failure *failure)
{
    return failure->victim ||
           (failure->signal == 0 && failure->error == 0 && failure->exit_code == DDP_EXIT_PEER_LOST);
}

/* Convert `word` to the reason why a restart would not help. Only the four reasons below describe a failure. For any
 * other word, return NO_RESTART_NONE. */
static enum no_restart find_no_retry(const char *word)
{
    const enum no_restart why = no_restart_find(word);
    return why == NO_RESTART_CANNOT_START || why == NO_RESTART_USAGE || why == NO_RESTART_IMPORT ||
                   why == NO_RESTART_HANGS
               ? why
               : NO_RESTART_NONE;
}

void rdzv_set_hang(struct rdzv *r, const struct failure *failure)
{
    rdzv_set_cause(r, RDZV_WHY_HANGS, NULL, 0, failure->words);
    r->end.cause.no_retry = find_no_retry(failure->no_retry);
    text_copy(r->end.cause.failure.code, sizeof(r->end.cause.failure.code), failure->code);
}

/* Set a failure as the cause. If the failure replaces another cause, keep the time of the first cause. */
void rdzv_set_failure(struct rdzv *r, const struct node *node, const struct failure *failure)
{
    const uint64_t after_ms = r->end.has_cause ? r->end.cause.failure.after_ms : r->now_ms - r->run.began_ms;
    r->end.cause = (struct rdzv_cause){ .why = RDZV_WHY_FAILED,
                                        .no_retry = find_no_retry(failure->no_retry),
                                        .failure = *failure };
    r->end.cause.failure.node_rank = node->node_rank;
    r->end.cause.failure.after_ms = after_ms;
    r->end.cause.failure.victim = rdzv_is_victim(failure);
    text_copy(r->end.cause.failure.host, sizeof(r->end.cause.failure.host), node->host);
    r->end.has_cause = true;
}

/* Return the exit code of a failure, as a shell would return it, and never 0. If exec failed, derive the code from the
 * error, because the program has no exit code. */
static int code_of(const struct rdzv_cause *cause)
{
    const struct failure *failure = &cause->failure;
    bool by_signal = cause->why == RDZV_WHY_FAILED || cause->why == RDZV_WHY_NODE_LEFT;
    if (by_signal && failure->signal > 0)
        return CODE_SIGNAL + failure->signal;
    if (cause->why != RDZV_WHY_FAILED)
        return RDZV_CODE_NO_NODE;
    if (failure->error != 0)
        return failure->error == ENOENT ? CODE_NOT_FOUND : CODE_CANNOT_RUN;
    return failure->exit_code != 0 ? failure->exit_code : 1;
}

/* --- stop ----------------------------------------------------------------------------------------------- */

/* Each node receives `stop` only once, because `stop` changes the state of the node to STOPPING. The node also receives
 * its verdict only once, because the verdict changes the state to RESTING or FINISHED. */

/* Log the cause of the stop, with the host of a failed rank. */
static void log_stop(struct rdzv *r)
{
    const struct failure *failure = &r->end.cause.failure;
    if (failure->rank >= 0)
        rdzv_note(r, RDZV_RECORD_STOP, NULL, "attempt %" PRIu32 " stops: rank %d on %s %s", r->run.round - 1,
                  failure->rank, failure->host, failure->words);
    else
        rdzv_note(r, RDZV_RECORD_STOP, NULL, "attempt %" PRIu32 " stops: %s", r->run.round - 1,
                  failure->words);
}

/* Send `stop` to all members, with one deadline for all: the longest grace period plus RDZV_STOP_EXTRA_MS. The extra
 * time is for killing and reaping the workers. If every member has already stopped or is gone, decide on a restart at
 * once. */
enum rdzv_state rdzv_stop_round(struct rdzv *r)
{
    struct rdzv_notice notice = {
        .kind = RDZV_NOTICE_STOP, .round = r->run.round, .why = r->end.cause.why, .cause = &r->end.cause
    };
    uint64_t grace_ms = 0;
    log_stop(r);
    for (uint32_t i = 0; i < r->run.nnodes; i++) {
        struct node *node = r->run.member[i];
        if (node == NULL)
            continue;
        grace_ms = node->grace_ms > grace_ms ? node->grace_ms : grace_ms;
        if (node->state != RDZV_NODE_RUNNING && node->state != RDZV_NODE_DONE)
            continue;
        rdzv_member_becomes(r, node, RDZV_NODE_STOPPING);
        r->env.notify(r->env.user, node->id, &notice);
    }
    r->until.stop_ms = r->now_ms + grace_ms + RDZV_STOP_EXTRA_MS;
    return rdzv_decide_if_stopped(r);
}

/* --- verdict -------------------------------------------------------------------------------------------- */

/* Return the verdict. If rank 0 has no exit code, use the code of the first failure, because 0 would mean success. */
static struct rdzv_notice verdict(const struct rdzv *r, enum rdzv_why why)
{
    int first = r->end.has_cause ? code_of(&r->end.cause) : 0;
    return (struct rdzv_notice){ .kind = RDZV_NOTICE_VERDICT,
                                 .round = r->run.round,
                                 .why = why,
                                 .cause = r->end.has_cause ? &r->end.cause : NULL,
                                 .attempt = r->run.round,
                                 .step = r->restarts.step,
                                 .best_step = r->restarts.best_step,
                                 .no_restart = r->end.no_restart,
                                 .exit = { .first = first,
                                           .max = r->end.max_code > first ? r->end.max_code : first,
                                           .rank0 = r->end.has_rank0 ? r->end.rank0_code : first } };
}

/* Send the final verdict to a node. The struct of the node remains until its connection closes, but its heartbeats are
 * no longer checked. */
static void finish_node(struct rdzv *r, struct node *node, const struct rdzv_notice *notice)
{
    rdzv_node_is_finished(r, node);
    r->env.notify(r->env.user, node->id, notice);
}

/* Log why the job has ended. If there is a reason why the job was not restarted, log this reason, too. */
static void log_end(struct rdzv *r, enum rdzv_why why)
{
    if (why == RDZV_WHY_DONE)
        rdzv_note(r, RDZV_RECORD_VERDICT, NULL, "the job is done");
    else
        rdzv_note(r, RDZV_RECORD_VERDICT, NULL, "the job is over: %s%s%s", rdzv_why_word(why),
                  r->end.no_restart != NO_RESTART_NONE ? ", no restart: " : "",
                  no_restart_word(r->end.no_restart));
}

/* End the job. With the reasons TIMEOUT (too few nodes joined) and REFUSED (the store had no memory), no worker has
 * failed, so the exit code is RDZV_CODE_NO_NODE. With any other reason, the exit code comes from verdict(). */
enum rdzv_state rdzv_end_job(struct rdzv *r, enum rdzv_why why, enum no_restart no_restart)
{
    r->end.no_restart = no_restart;
    struct rdzv_notice notice = verdict(r, why);
    if (why == RDZV_WHY_TIMEOUT || why == RDZV_WHY_REFUSED)
        notice.exit = (struct rdzv_exit){ RDZV_CODE_NO_NODE, RDZV_CODE_NO_NODE, RDZV_CODE_NO_NODE };
    log_end(r, why);
    LIST_EACH(i, &r->nodes)
    {
        struct node *node = LIST_ENTRY(i, struct node, joined);
        if (node->state != RDZV_NODE_FINISHED)
            finish_node(r, node, &notice);
    }
    r->next_notice_ms = UINT64_MAX;
    return RDZV_OVER;
}

/* Return true if a restart after this round counts against --max_restarts. In an elastic job, a restart after the loss
 * of a node does not count, because such losses are normal there. */
static bool is_charged(const struct rdzv *r)
{
    return r->end.cause.why == RDZV_WHY_FAILED || r->end.cause.why == RDZV_WHY_HANGS ||
           (r->end.cause.why == RDZV_WHY_NODE_LOST && !r->rules.elastic);
}

/* Send the final verdict to a node that leaves. If the round has already failed, the verdict contains this failure.
 * Otherwise the exit code is 128 + `signal`. Without a signal, the exit code is 0 for a DONE node, and
 * RDZV_CODE_NO_NODE for any other node. */
void rdzv_dismiss(struct rdzv *r, struct node *node, int signal)
{
    bool failed = r->end.has_cause && node->round == r->run.round && is_charged(r);
    struct rdzv_notice notice = verdict(r, RDZV_WHY_NODE_LEFT);
    notice.no_restart = NO_RESTART_STOPPED;
    if (!failed) {
        int by_itself = node->state == RDZV_NODE_DONE ? 0 : RDZV_CODE_NO_NODE;
        int code = signal > 0 ? CODE_SIGNAL + signal : by_itself;
        notice.exit = (struct rdzv_exit){ code, code, code };
        notice.cause = NULL;
    }
    finish_node(r, node, &notice);
}

/* Send the verdict "restart" to all members and make them RESTING. n_resting counts these members, because the next
 * round keeps a place for each member. The verdict contains the back-off, but the store decides when the next round
 * begins. */
static void send_restart(struct rdzv *r, uint64_t backoff_ms)
{
    struct rdzv_notice notice = verdict(r, r->end.cause.why);
    notice.restart = true;
    notice.backoff_ms = backoff_ms;
    for (uint32_t i = 0; i < r->run.nnodes; i++) {
        struct node *node = r->run.member[i];
        if (node == NULL)
            continue;
        node->state = RDZV_NODE_RESTING;
        r->run.member[i] = NULL;
        r->run.rows[i].node = 0;
        r->n_resting++;
        r->env.notify(r->env.user, node->id, &notice);
    }
    r->run.n_members = 0;
}

/* Begin the back-off before another attempt. The join timeout starts after the back-off. */
static enum rdzv_state restart(struct rdzv *r, uint64_t backoff_ms)
{
    char pause[TEXT_MS_MAX];
    rdzv_note(r, RDZV_RECORD_VERDICT, NULL, "attempt %" PRIu32 " is over: the next attempt begins in %s",
              r->run.round - 1, text_ms(backoff_ms, pause));
    send_restart(r, backoff_ms);
    r->until.back_off_ms = r->now_ms + backoff_ms;
    r->until.gather_ms = r->until.back_off_ms + r->rules.join_timeout_ms;
    r->must_recheck = true;
    rdzv_schedule_notify(r);
    return backoff_ms > 0 ? RDZV_BACKING_OFF : RDZV_GATHERING;
}

/* Decide between a restart and the end of the job, by the cause of the round's end:
 *
 *     cause                                     does the job restart?
 *     a worker failed, or the job hangs         as --max_restarts and --max_no_progress allow, after the back-off
 *     static job: a node is lost                as for a failed worker; the lost node must join again
 *     static job: a node has left               never: its user has stopped the job
 *     elastic job: a node is lost or has left   always, without a back-off
 *     the job grows                             always, without a back-off
 *     a process is unkillable                   never: the process could disturb the next attempt
 *
 * `no` is the reason against a restart; a later check may replace an earlier reason. If --max_restarts is 0 and a
 * restart would count against it (is_charged), the job ends. The user expects this end, so `no` is then
 * NO_RESTART_NONE, unless the user has stopped the job. */
static enum rdzv_state decide_round(struct rdzv *r)
{
    enum no_restart no = NO_RESTART_NONE;
    bool charged = is_charged(r), wanted = !charged || r->restarts.max_restarts > 0;
    if (charged)
        no = restarts_failed(&r->restarts, &r->end.cause);
    if (r->end.stopped_by_user)
        no = NO_RESTART_STOPPED;
    if (r->end.unkillable && wanted)
        no = NO_RESTART_UNKILLABLE;
    if (charged && wanted && no == NO_RESTART_NONE)
        no = restarts_progress(&r->restarts, r->env.progress(r->env.user));
    if (!wanted || no != NO_RESTART_NONE)
        return rdzv_end_job(r, r->end.cause.why, no);
    r->restarts.made += charged;
    return restart(r, charged ? restarts_backoff(&r->restarts) : 0);
}

/* Decide on a restart if every member has stopped or is gone. If the job has no nodes left, do nothing here, because
 * rdzv_step then ends the job. */
enum rdzv_state rdzv_decide_if_stopped(struct rdzv *r)
{
    return r->run.n_open > 0 || r->n_live == 0 ? RDZV_STOPPING : decide_round(r);
}
