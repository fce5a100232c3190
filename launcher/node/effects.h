/* effects.h -- carries out the effects of the agent's state machine, and handles the ends of children. Effects wait in
 * a queue, because each pass of the event loop carries out only a few effects. If memory for the queue is short, the
 * agent process aborts and the guardian kills the workers, because a lost effect could leave processes behind. */
#ifndef LAUNCHER_NODE_EFFECTS_H
#define LAUNCHER_NODE_EFFECTS_H

#include "node/node.h"

/* Pass an event to the agent. The resulting effects wait for the next node_run_effects(), so callbacks may call this
 * function at any time. The node owns the queue, which has copies of the effects. */
void node_handle_event(struct node *n, struct agent_event event);

/* Record that a request was sent to the store. If no answer arrives within --timeout (default: 60 s), the store
 * counts as lost. */
void node_expect_answer(struct node *n);

/* Record that the store has answered, and that no other answer is expected. */
void node_expect_nothing(struct node *n);

/* Close every handle, and print the report if the job has ended. ddprun exits with `exit_code` when the loop has
 * closed the handles. Only the first call has an effect. */
void node_finish(struct node *n, int exit_code);

/* Drop the pending output and end the node, because the user has requested a stop and the reader is too slow. */
void node_leave_output(struct node *n);

/* Open or close the epoll set, which shows the order in which workers end. Closing the set also closes its pidfds.
 * Without a set, only this order is unknown. */
void exits_open(struct exits *x);
void exits_close(struct exits *x);

/* Carry out some effects. If effects remain, the event loop calls this function again in its next iteration. Every
 * callback that calls node_handle_event() calls this function afterwards. */
void node_run_effects(struct node *n);

/* Open torchrun's file timer if the user has enabled it. node_finish() closes the timer. */
ddp_status node_open_timers(struct node *n, struct ddp_err *err);

/* Hold a port for the store of rank 0, if the workers need such a store. Call this before each join. Each call holds a
 * new port, so that processes of the previous attempt cannot connect to the store. */
void node_offer_port(struct node *n);

/* Append to `words` why the program of this node cannot be started, and the remedy. `error` is the errno of
 * spawner_find(). Return false if memory is short. */
bool node_print_not_started(const struct node *n, int error, struct buf *words);

#endif
