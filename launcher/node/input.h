/* input.h -- ddprun's stdin, for the workers that --stdin names.
 *
 * One reader inherits it. Several get a pipe each, into which this copies (fan.h). The others read /dev/null. */
#ifndef LAUNCHER_INPUT_H
#define LAUNCHER_INPUT_H

#include "plan/plan.h"

#include <sys/types.h>
#include <uv.h>

struct input;

/* The loop and the plan are borrowed. `guardian` is who the terminal knows. *out is yours also after an
 * error: end it with input_close and, when the loop has run, input_free. */
ddp_status input_new(uv_loop_t *loop, const struct plan *plan, pid_t guardian, struct input **out,
                     struct ddp_err *err);

/* A new attempt: the workers that come read on where those before have stopped. */
void input_attempt(struct input *input);

/* Descriptor 0 for a worker; give it back with input_spawned when the worker runs, or could not be started. -1: no
 * descriptor (errno). */
int input_open(struct input *input, int local_rank);
void input_spawned(struct input *input, int local_rank, int fd, bool runs);

/* The worker has ended. What it has started may hold its pipe open, and must not hold up the others. */
void input_ended(struct input *input, int local_rank);

/* Stop; NULL is allowed in both. */
void input_close(struct input *input);
void input_free(struct input *input);

#endif
