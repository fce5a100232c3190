/* stdin.h -- passes ddprun's stdin to the workers that --stdin names (the readers). The next chunk is read when every
 * reader has the previous one, so one chunk of memory is enough. */
#ifndef LAUNCHER_NODE_STDIN_H
#define LAUNCHER_NODE_STDIN_H

#include "plan/plan.h"

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

/* The input of this node. A reader that has closed its input delays no other reader. With --hosts, a node without
 * readers drops the input, so that it does not delay other nodes. */
struct input;

/* Create the input. The loop and the plan are borrowed. `guardian` is the pid of the guardian. The caller owns *out
 * even after an error. Call input_close to end the input, and input_free after the loop has ended. */
ddp_status input_new(uv_loop_t *loop, const struct plan *plan, pid_t guardian, struct input **out,
                     struct ddp_err *err);

/* Begin an attempt. Its workers get the input that was not yet read. Return DDP_ERR_ARG if --stdin names a rank that
 * the job cannot have. */
ddp_status input_attempt(struct input *input, struct ddp_err *err);

/* Return the descriptor that becomes descriptor 0 of the worker, or -1 with errno set if no descriptor is left:
 *
 *   - a worker that is no reader: /dev/null
 *   - several readers, a background job of a terminal, or readers on other nodes with --hosts: a pipe
 *   - a single reader: stdin itself
 *
 * After the start, or its failure, pass the descriptor to input_spawned, which closes it if needed. */
int input_open(struct input *input, int local_rank);
void input_spawned(struct input *input, int local_rank, int fd, bool runs);

/* Close the stdin pipe of a worker that has exited, which its children could keep open. If `failed` is true, the rest
 * of the input stays for the next attempt. */
void input_ended(struct input *input, int local_rank, bool failed);

/* Stop reading, and close the handles. input_free frees the memory after the loop has closed the handles. Both allow
 * NULL. */
void input_close(struct input *input);
void input_free(struct input *input);

#endif
