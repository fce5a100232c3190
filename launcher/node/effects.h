/* effects.h -- carries out the effects of the agent's state machine, and handles the ends of children. If memory for
 * the queue of effects is short, the agent aborts, because a lost effect could leave processes behind. */
#ifndef LAUNCHER_NODE_EFFECTS_H
#define LAUNCHER_NODE_EFFECTS_H

#include "node/node.h"

/* Pass an event to the agent, at any time. The resulting effects wait for the next node_run_effects(). */
void node_handle_event(struct node *n, struct agent_event event);

/* Record that a request was sent to the store. Without an answer within --timeout (default: 60 s), the store counts as
 * lost. */
void node_expect_answer(struct node *n);

/* Record that no further answer of the store is expected. */
void node_expect_nothing(struct node *n);

/* Close every handle, and print the report if the job has ended. ddprun then exits with `exit_code`. Only the first
 * call has an effect. */
void node_finish(struct node *n, int exit_code);

/* Drop the pending output and end the node, because the reader is too slow after a stop. */
void node_leave_output(struct node *n);

/* Open or close the epoll set and its pidfds. Without a set, only the order of the workers' ends is unknown. */
void exits_open(struct exits *x);
void exits_close(struct exits *x);

/* Carry out some effects; the event loop carries out the rest. Call this after each node_handle_event() of a
 * callback. */
void node_run_effects(struct node *n);

/* Open torchrun's file timer if the user has enabled it. node_finish() closes the timer. */
ddp_status node_open_timers(struct node *n, struct ddp_err *err);

/* Hold a new port for the store of rank 0, if the workers need such a store. Call this before each join, so that
 * processes of the previous attempt cannot connect to the store. */
void node_offer_port(struct node *n);

/* Append to `words` why the program of this node cannot be started, and the remedy. `error` is the errno of
 * spawner_find(). Return false if memory is short. */
bool node_print_not_started(const struct node *n, int error, struct buf *words);

#endif
