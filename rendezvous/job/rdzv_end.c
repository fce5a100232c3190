/* rdzv_end.c -- stop, verdict, the end of the job. See rdzv.h.
 *
 * A verdict needs every member's word: only when nothing of a round is left on any node may the next begin,
 * and only then are the exit codes known. Whether there is a next one:
 *
 *     a worker failed              as --max_restarts and --max_no_progress allow, after the back-off
 *     a node is lost, static       the same, and it has to come again
 *     a node is lost or left, elastic, or the job grows      always, at once: nobody has failed
 *     a node is left, static       never: its user has stopped the job
 *     something cannot be killed   never: the next attempt would meet it
 *
 * "Once" is kept by states: a member that has been told to stop is STOPPING and is not told again, one that
 * has its verdict is RESTING or FINISHED, and neither is a member any more. */
#include "job/rdzv_core.h"

#include "ddp/error.h"

#include <errno.h>
#include <stdio.h>

enum { CODE_SIGNAL = 128, CODE_NOT_FOUND = 127, CODE_CANNOT_RUN = 126 }; /* as shells say it */

/* --- the cause ------------------------------------------------------------------------------------------ */

/* Everything is written, also what this kind of cause does not have: the struct is used again for each, and
 * a node that is lost must not end with the signal of the failure before. */
void rdzv_set_cause(struct rdzv *r, enum rdzv_why why, const struct node *node, int signal, const char *words)
{
    struct rdzv_cause *cause = &r->cause;
    cause->why = why;
    cause->node_rank = node ? node->node_rank : -1;
    rdzv_copy_text(cause->host, sizeof(cause->host), node ? node->host : "");
    cause->rank = cause->local_rank = -1;
    cause->pid = cause->exit_code = cause->error = 0;
    cause->signal = signal;
    cause->no_retry = RDZV_NO_RESTART_NONE;
    cause->after_ms = r->now_ms - r->began_ms;
    cause->is_victim = cause->silent = false;
    rdzv_copy_text(cause->words, sizeof(cause->words), words);
    cause->log[0] = '\0';
    cause->n_stderr_lines = 0;
    r->has_cause = true;
}

/* A worker that gave up because another one was gone says so with its exit code, or PyTorch's in words. It is no cause, only
 * the first to be heard, and gives way to one that is told later. */
bool rdzv_is_victim(const struct rdzv_failure *failure)
{
    return failure->victim ||
           (failure->signal == 0 && failure->error == 0 && failure->exit_code == DDP_EXIT_PEER_LOST);
}

/* The last lines are kept when there are too many: an exception's message stands behind its traceback. */
static void copy_last_words(struct rdzv_cause *cause, const struct rdzv_failure *failure)
{
    size_t n = failure->n_stderr_lines, skip = n > RDZV_STDERR_MAX ? n - RDZV_STDERR_MAX : 0;
    cause->from_stdout = failure->from_stdout;
    cause->n_stderr_lines = (uint32_t)(n - skip);
    for (uint32_t i = 0; i < cause->n_stderr_lines; i++)
        rdzv_copy_text(cause->stderr_lines[i], RDZV_WORDS_MAX, failure->stderr_lines[skip + i]);
    rdzv_copy_text(cause->log, sizeof(cause->log), failure->log);
}

/* A cause that takes another's place keeps its time: the round failed when it was first noticed, whoever is
 * found to be behind it. */
void rdzv_set_failure(struct rdzv *r, const struct node *node, const struct rdzv_failure *failure)
{
    struct rdzv_cause *cause = &r->cause;
    uint64_t after_ms = r->has_cause ? cause->after_ms : r->now_ms - r->began_ms;
    rdzv_set_cause(r, RDZV_WHY_FAILED, node, failure->signal, failure->words);
    cause->after_ms = after_ms;
    cause->rank = failure->rank;
    cause->local_rank = failure->local_rank;
    cause->pid = failure->pid;
    cause->exit_code = failure->exit_code;
    cause->error = failure->error;
    cause->no_retry = failure->no_retry;
    cause->is_victim = rdzv_is_victim(failure);
    copy_last_words(cause, failure);
}

/* A failure is never 0, whatever a peer says of it. Numbers are those of a shell, so that scripts around
 * ddprun need no table of ours; errno outweighs the exit code, since a program that was never started has
 * none. */
static int code_of(const struct rdzv_cause *cause)
{
    bool by_signal = cause->why == RDZV_WHY_FAILED || cause->why == RDZV_WHY_NODE_LEFT;
    if (by_signal && cause->signal > 0)
        return CODE_SIGNAL + cause->signal;
    if (cause->why != RDZV_WHY_FAILED)
        return RDZV_CODE_NO_NODE;
    if (cause->error != 0)
        return cause->error == ENOENT ? CODE_NOT_FOUND : CODE_CANNOT_RUN;
    return cause->exit_code != 0 ? cause->exit_code : 1;
}

/* --- stop ----------------------------------------------------------------------------------------------- */

static void log_stop(struct rdzv *r)
{
    const struct rdzv_cause *cause = &r->cause;
    if (cause->rank >= 0)
        rdzv_note(r, RDZV_RECORD_STOP, NULL, "attempt %" PRIu32 " stops: rank %" PRId32 " on %s %s",
                  r->round - 1, cause->rank, cause->host, cause->words);
    else
        rdzv_note(r, RDZV_RECORD_STOP, NULL, "attempt %" PRIu32 " stops: %s", r->round - 1, cause->words);
}

/* One deadline for all, by the longest grace time: whoever has not answered then never will.
 * RDZV_STOP_EXTRA_MS is for a node to kill, reap and report, on a machine that may be what made the round
 * fail. Members that are gone already may leave nothing to wait for, hence the judgement at the end. */
enum rdzv_state rdzv_stop_round(struct rdzv *r)
{
    struct rdzv_tell tell = {
        .kind = RDZV_TELL_STOP, .round = r->round, .why = r->cause.why, .cause = &r->cause
    };
    uint64_t grace_ms = 0;
    log_stop(r);
    for (uint32_t i = 0; i < r->nnodes; i++) {
        struct node *node = r->member[i];
        if (node == NULL)
            continue;
        grace_ms = node->grace_ms > grace_ms ? node->grace_ms : grace_ms;
        if (node->state != RDZV_NODE_RUNNING && node->state != RDZV_NODE_DONE) /* it has begun by itself */
            continue;
        rdzv_member_becomes(r, node, RDZV_NODE_STOPPING);
        r->env.tell(r->env.user, node->id, &tell);
    }
    r->stop_until_ms = r->now_ms + grace_ms + RDZV_STOP_EXTRA_MS;
    return rdzv_judge_if_stopped(r);
}

/* --- verdict -------------------------------------------------------------------------------------------- */

/* Without a word from rank 0's node its code is the first failure's: 0 would say that all went well. */
static struct rdzv_tell verdict(const struct rdzv *r, enum rdzv_why why)
{
    int first = r->has_cause ? code_of(&r->cause) : 0;
    return (struct rdzv_tell){ .kind = RDZV_TELL_VERDICT,
                               .round = r->round,
                               .why = why,
                               .cause = r->has_cause ? &r->cause : NULL,
                               .attempt = r->round,
                               .step = r->restarts.step,
                               .best_step = r->restarts.best_step,
                               .no_restart = r->no_restart,
                               .exit = { .first = first,
                                         .max = r->max_code > first ? r->max_code : first,
                                         .rank0 = r->has_rank0 ? r->rank0_code : first } };
}

/* Being told is the last thing that happens to a node here. It stays, unwatched, until its connection ends. */
static void finish_node(struct rdzv *r, struct node *node, const struct rdzv_tell *tell)
{
    rdzv_node_is_finished(r, node);
    r->env.tell(r->env.user, node->id, tell);
}

/* The reason that there is no restart is said in the same line; it is the first thing a user asks. */
static void log_end(struct rdzv *r, enum rdzv_why why)
{
    if (why == RDZV_WHY_DONE)
        rdzv_note(r, RDZV_RECORD_VERDICT, NULL, "the job is done");
    else
        rdzv_note(r, RDZV_RECORD_VERDICT, NULL, "the job is over: %s%s%s", rdzv_why_word(why),
                  r->no_restart != RDZV_NO_RESTART_NONE ? ", no restart: " : "",
                  rdzv_no_restart_word(r->no_restart));
}

/* Too few nodes is nobody's failure, whatever an earlier round ended with. Nodes that left before have had
 * their verdict. `say_ms` is put off for ever: nothing is waited for any more. */
enum rdzv_state rdzv_end_job(struct rdzv *r, enum rdzv_why why, enum rdzv_no_restart no_restart)
{
    r->no_restart = no_restart;
    struct rdzv_tell tell = verdict(r, why);
    if (why == RDZV_WHY_TIMEOUT || why == RDZV_WHY_REFUSED)
        tell.exit = (struct rdzv_exit){ RDZV_CODE_NO_NODE, RDZV_CODE_NO_NODE, RDZV_CODE_NO_NODE };
    log_end(r, why);
    LIST_EACH(i, &r->nodes)
    {
        struct node *node = LIST_ENTRY(i, struct node, joined);
        if (node->state != RDZV_NODE_FINISHED)
            finish_node(r, node, &tell);
    }
    r->say_ms = UINT64_MAX;
    return RDZV_OVER;
}

/* Somebody has failed, so --max_restarts is asked. An elastic job is made for nodes that come and go:
 * losing one costs no attempt, else a day of spot machines would use them up. */
static bool is_charged(const struct rdzv *r)
{
    return r->cause.why == RDZV_WHY_FAILED || (r->cause.why == RDZV_WHY_NODE_LOST && !r->rules.elastic);
}

/* What failed before it left comes before its own user's stop. Its reason is lent to the verdict and taken
 * back: the others' job may well go on. One that was done when it was stopped has nothing to be blamed for. */
void rdzv_dismiss(struct rdzv *r, struct node *node, int signal)
{
    bool failed = r->has_cause && node->round == r->round && is_charged(r);
    enum rdzv_no_restart job_s = r->no_restart;
    r->no_restart = RDZV_NO_RESTART_STOPPED;
    struct rdzv_tell tell = verdict(r, RDZV_WHY_NODE_LEFT);
    r->no_restart = job_s;
    if (!failed) {
        int by_itself = node->state == RDZV_NODE_DONE ? 0 : RDZV_CODE_NO_NODE;
        int code = signal > 0 ? CODE_SIGNAL + signal : by_itself;
        tell.exit = (struct rdzv_exit){ code, code, code };
        tell.cause = NULL;
    }
    finish_node(r, node, &tell);
}

/* Members become those who are waited for: n_resting is what the next round holds places for. Each node is
 * told how long to wait, but the next round begins by our clock and not by theirs. */
static void tell_restart(struct rdzv *r, uint64_t backoff_ms)
{
    struct rdzv_tell tell = verdict(r, r->cause.why);
    tell.restart = true;
    tell.backoff_ms = backoff_ms;
    for (uint32_t i = 0; i < r->nnodes; i++) {
        struct node *node = r->member[i];
        if (node == NULL)
            continue;
        node->state = RDZV_NODE_RESTING;
        r->member[i] = NULL;
        r->seats[i].node = 0;
        r->n_resting++;
        r->env.tell(r->env.user, node->id, &tell);
    }
    r->n_members = 0;
}

/* The time to gather begins behind the pause, which else would eat it. */
static enum rdzv_state restart(struct rdzv *r, uint64_t backoff_ms)
{
    rdzv_note(r, RDZV_RECORD_VERDICT, NULL,
              "attempt %" PRIu32 " is over: the next one begins in %" PRIu64 " ms", r->round - 1, backoff_ms);
    tell_restart(r, backoff_ms);
    r->back_off_until_ms = r->now_ms + backoff_ms;
    r->gather_until_ms = r->back_off_until_ms + r->rules.join_timeout_ms;
    r->must_settle = true;
    rdzv_will_say(r);
    return backoff_ms > 0 ? RDZV_BACKING_OFF : RDZV_GATHERING;
}

/* A later reason writes over an earlier one, so the strongest come last: what cannot be killed stands in
 * the way even of a job that the user wants to go on. Progress is only asked for when another attempt is
 * still possible: asking counts this one as standing still. `wanted` keeps "no restart because ..." away
 * from those who have asked for none. */
static enum rdzv_state judge(struct rdzv *r)
{
    enum rdzv_no_restart no = RDZV_NO_RESTART_NONE;
    bool charged = is_charged(r), wanted = !charged || r->restarts.max_restarts > 0;
    if (charged)
        no = restarts_failed(&r->restarts, &r->cause);
    if (r->stopped_by_user)
        no = RDZV_NO_RESTART_STOPPED;
    if (r->unkillable && wanted)
        no = RDZV_NO_RESTART_UNKILLABLE;
    if (charged && wanted && no == RDZV_NO_RESTART_NONE)
        no = restarts_progress(&r->restarts, r->env.progress(r->env.user));
    if (!wanted || no != RDZV_NO_RESTART_NONE)
        return rdzv_end_job(r, r->cause.why, no);
    return restart(r, charged ? restarts_backoff(&r->restarts) : 0);
}

/* With nobody left there is nobody to tell; rdzv.c ends such a job by itself. */
enum rdzv_state rdzv_judge_if_stopped(struct rdzv *r)
{
    return r->n_open > 0 || r->n_live == 0 ? RDZV_STOPPING : judge(r);
}
