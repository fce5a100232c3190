/* effects.h -- carries out the effects of the agent's state machine, and handles the ends of children. */
#ifndef LAUNCHER_NODE_EFFECTS_H
#define LAUNCHER_NODE_EFFECTS_H

#include "node/node.h"

/* Pass an event to the agent. The resulting effects wait for the next node_pump(). */
void node_feed(struct node *n, struct agent_event event);

/* Record that a request was sent to the store. Without an answer within --timeout (default 60 s), the store counts as
 * lost. */
void node_expect_answer(struct node *n);

/* Record that the store has answered and no answer is expected. */
void node_expect_nothing(struct node *n);

/* Close every handle, so that the loop ends and ddprun exits with this code. */
void node_finish(struct node *n, int exit_code);

/* Finish without waiting for unread output, because the user has requested a stop. */
void node_leave_output(struct node *n);

/* Open or close the epoll set. Without this set, the order in which workers end is unknown. */
void exits_open(struct exits *x);
void exits_close(struct exits *x);

/* Carry out some effects. The loop calls this function again for the remaining effects. */
void node_pump(struct node *n);

/* Open torchrun's file timer if the user has enabled it. node_finish() closes the timer. */
ddp_status node_open_timers(struct node *n, struct ddp_err *err);

/* Hold a port for the store of rank 0, if the workers need such a store. Call this before each join. Each call holds
 * a new port, so that processes of the last attempt cannot connect to the store. */
void node_offer_port(struct node *n);

/* Print why the program of this node cannot be started (`error` of spawner_find()), and the remedy. Append the
 * text to `words`. Return false if memory is short. */
bool node_print_not_started(const struct node *n, int error, struct buf *words);

#endif
