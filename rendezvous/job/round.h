/* round.h -- private to the files of rendezvous/job: begins and ends rounds, and decides on restarts. A function that
 * begins or ends a round returns the next state, because only rendezvous.c sets the state of the job. */
#ifndef RENDEZVOUS_JOB_ROUND_H
#define RENDEZVOUS_JOB_ROUND_H

#include "job/nodes.h"

/* Start to count failed attempts. `rules` is the join of the first node, with the limits and the pauses before
 * restarts. `rules` is only read during the call. */
void restarts_init(struct restarts *a, const struct rdzv_join *rules);

/* Return the number of waiting nodes that a round would include if it began now. */
uint32_t rdzv_round_size(const struct rdzv *r);
/* Return true if a round can begin without a last call. */
bool rdzv_is_complete(const struct rdzv *r);
/* Return the number of waiting nodes that could join the running job by a restart. */
uint32_t rdzv_can_grow_by(const struct rdzv *r);
/* Store the number of waiting nodes in a key. Workers read this key to find out whether the job can grow. */
void rdzv_store_waiting_count(struct rdzv *r);
/* Begin a round with the waiting nodes. Return the next state: RUNNING, or OVER if memory is short. */
enum rdzv_state rdzv_begin_round(struct rdzv *r);

/* Return true if the worker failed only because it had lost a peer. */
bool rdzv_is_victim(const struct failure *failure);
/* Set the failure of a worker of `node` as the cause of the round's end. The failure is copied. */
void rdzv_set_failure(struct rdzv *r, const struct node *node, const struct failure *failure);
/* Set a hang as the cause of the round's end. `failure` needs only `code`, `words` and `no_retry`. */
void rdzv_set_hang(struct rdzv *r, const struct failure *failure);
/* Set a cause other than a failure or a hang. `node` is the node that caused the end of the round, or NULL. `signal` is
 * the signal that stopped `node`, or 0. */
void rdzv_set_cause(struct rdzv *r, enum rdzv_why why, const struct node *node, int signal,
                    const char *words);
/* Send `stop` to all members that are not stopping yet. The caller must set r->end.cause before. Return the next
 * state. */
enum rdzv_state rdzv_stop_round(struct rdzv *r);
/* Begin another attempt or end the job, if every member has sent `stopped` or is gone. Return the next state. */
enum rdzv_state rdzv_decide_if_stopped(struct rdzv *r);
/* Send the verdict "finish" to every node that has not got this verdict yet. Return the next state. */
enum rdzv_state rdzv_end_job(struct rdzv *r, enum rdzv_why why, enum no_restart no_restart);
/* Send the verdict "finish" to a node that leaves. `signal` is the signal that stopped the node, or 0 if the agent gave
 * up. */
void rdzv_dismiss(struct rdzv *r, struct node *node, int signal);

#endif
