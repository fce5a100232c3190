/* stdin.h -- ddprun's stdin for the workers that read it.
 *
 * One input is copied to several readers, a chunk at a time. The fan records which reader still needs which bytes,
 * and when to read more. The next chunk is read when every reader has the whole previous chunk. So one chunk of
 * memory is enough, all readers get every byte, and the slowest reader decides the speed. A reader that has closed
 * its input or has exited is no longer waited for. The fan is pure: the second part of stdin.c moves the bytes. */
#ifndef LAUNCHER_NODE_STDIN_H
#define LAUNCHER_NODE_STDIN_H

#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

enum fan_state {
    FAN_ABSENT,   /* does not read this input */
    FAN_EXPECTED, /* will be started; no input is read before, because this reader would miss it */
    FAN_OPEN,     /* reads */
    FAN_CLOSED    /* has got all input, has closed its input, or could not be started */
};

struct fan_reader {
    enum fan_state state;
    size_t done; /* bytes of the chunk that this reader has */
};

struct fan {
    struct fan_reader *readers; /* owned, `n` of them */
    int n;
    size_t len; /* length of the chunk */
    bool ended; /* no bytes follow */
};

/* Initialize with absent readers. Return false when memory is short. */
bool fan_init(struct fan *fan, int n);
void fan_free(struct fan *fan);

/* Record that a reader will start, has started, or needs no more input. No input is read until the last expected
 * reader has started. */
void fan_expect(struct fan *fan, int reader);
void fan_open(struct fan *fan, int reader);
void fan_close(struct fan *fan, int reader);

/* Drop the rest of the chunk, because its readers are gone. */
void fan_forget(struct fan *fan);

/* Return true if a chunk has space and a reader. */
bool fan_wants(const struct fan *fan);

/* Record that a chunk of `len` bytes was read. 0 = the input has ended. */
void fan_fill(struct fan *fan, size_t len);

/* Return how many bytes of the chunk `reader` still needs, and set *at to the first of these bytes. */
size_t fan_due(const struct fan *fan, int reader, size_t *at);

/* Record that `reader` has got `len` more bytes. */
void fan_gave(struct fan *fan, int reader, size_t len);

/* Return true if an open reader has got all input and the input has ended, so that the reader's pipe can be
 * closed. */
bool fan_is_over(const struct fan *fan, int reader);

/* --- input of a worker -------------------------------------------------------------------------------------- */

enum input_way {
    INPUT_NONE,   /* no worker reads the input */
    INPUT_DIRECT, /* the only reader inherits the input, so a program notices no difference at a terminal */
    INPUT_COPIED  /* this process reads the input and writes to a pipe for each reader */
};

/* Return how the input is passed on. A job in the background must leave the terminal's input to the shell. For such a
 * job, ddprun copies the input and checks before each read. */
enum input_way input_way(int n_readers, bool terminal, bool background);

/* --- input ------------------------------------------------------------------------------------------------ */

/* ddprun's stdin, for the workers in --stdin.
 *
 * A single reader inherits stdin. Several readers get one pipe each, into which ddprun copies. All other workers read
 * /dev/null. */

struct input;

/* Create the input. The loop and the plan are borrowed. `guardian` is the process in the terminal's session. The
 * caller owns *out even after an error, and ends it with input_close and, after the loop has run, input_free. */
ddp_status input_new(uv_loop_t *loop, const struct plan *plan, pid_t guardian, struct input **out,
                     struct ddp_err *err);

/* Begin an attempt. Its workers continue where the previous workers stopped reading. */
void input_attempt(struct input *input);

/* Return descriptor 0 for a worker, or -1 with errno set if no descriptor is left. Pass the descriptor to
 * input_spawned after the worker was started or could not be started. */
int input_open(struct input *input, int local_rank);
void input_spawned(struct input *input, int local_rank, int fd, bool runs);

/* Handle the exit of a worker. Its children may still hold its pipe, and must not block the other readers. */
void input_ended(struct input *input, int local_rank);

/* Stop reading, and free the memory. NULL is allowed in both functions. */
void input_close(struct input *input);
void input_free(struct input *input);

#endif
