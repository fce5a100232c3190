/* stdin.h -- passes ddprun's stdin to the workers that --stdin names (the readers). If ddprun copies stdin to pipes,
 * the next chunk is read when every reader has the whole previous chunk. So one chunk of memory is enough, and the
 * slowest reader decides the speed. */
#ifndef LAUNCHER_NODE_STDIN_H
#define LAUNCHER_NODE_STDIN_H

#include "plan/plan.h"

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

/* The input of this node. A reader that has closed its input or has exited delays no other reader. With --hosts,
 * several nodes get the same input. If all readers of a node have closed their input, this node drops the rest, so that
 * it does not delay other nodes. */
struct input;

/* Create the input. The loop and the plan are borrowed. `guardian` is the pid of the guardian, which is in the
 * terminal's session. The caller owns *out even after an error. The caller ends the input with input_close, and frees
 * it with input_free after the loop has ended. */
ddp_status input_new(uv_loop_t *loop, const struct plan *plan, pid_t guardian, struct input **out,
                     struct ddp_err *err);

/* Begin an attempt. Its workers get the input that was not yet read from stdin. Return DDP_ERR_ARG if --stdin names a
 * rank that the job cannot have. */
ddp_status input_attempt(struct input *input, struct ddp_err *err);

/* Return the descriptor that becomes descriptor 0 of the worker, or -1 with errno set if no descriptor is left. All
 * workers except the readers get /dev/null. A single reader inherits stdin. In three cases, ddprun instead copies stdin
 * to a pipe for each reader: several readers, a background job of a terminal, or readers on other nodes with --hosts.
 *
 * When the worker has started or could not be started, pass the descriptor to input_spawned, which closes the
 * descriptor if needed. */
int input_open(struct input *input, int local_rank);
void input_spawned(struct input *input, int local_rank, int fd, bool runs);

/* Close the stdin pipe of a worker that has exited. Otherwise, children of the worker could keep the pipe open and
 * delay the other workers. If `failed` is true, the worker has failed, and the rest of the input stays for the next
 * attempt. */
void input_ended(struct input *input, int local_rank, bool failed);

/* Stop reading, and close the handles. input_free frees the memory after the loop has closed the handles. NULL is
 * allowed in both functions. */
void input_close(struct input *input);
void input_free(struct input *input);

#endif
