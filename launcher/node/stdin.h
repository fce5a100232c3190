/* stdin.h -- ddprun's stdin for the workers that read it.
 *
 * One input is copied to several readers, a chunk at a time. The struct fan records which reader still needs which
 * bytes. The next chunk is read when every reader has the whole previous chunk. So one chunk of memory is enough, and
 * the slowest reader decides the speed. A reader that has closed its input or has exited delays no other reader. The
 * fan is pure, and the second part of stdin.c moves the bytes. */
#ifndef LAUNCHER_NODE_STDIN_H
#define LAUNCHER_NODE_STDIN_H

#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

enum fan_state {
    FAN_ABSENT,   /* does not read this input */
    FAN_EXPECTED, /* will be started; no chunk is read before the start */
    FAN_OPEN,     /* reads */
    FAN_CLOSED    /* has all input, has closed its input, or could not be started */
};

struct fan_reader {
    enum fan_state state;
    size_t done; /* bytes of the present chunk that this reader has */
};

struct fan {
    struct fan_reader *readers; /* owned, `n` of them */
    int n;
    size_t len; /* length of the chunk */
    bool ended; /* the input has ended after this chunk */
};

/* Initialize with absent readers. Return false when memory is short. */
bool fan_init(struct fan *fan, int n);
void fan_free(struct fan *fan);

/* Record that a reader will start. Until this reader has started, no input is read. fan_open and fan_close record the
 * start and the end. */
void fan_expect(struct fan *fan, int reader);
void fan_open(struct fan *fan, int reader);
void fan_close(struct fan *fan, int reader);

/* Drop the rest of the chunk, which no reader needs. */
void fan_forget(struct fan *fan);

/* Return true if the next chunk may be read: a reader is open, and all readers have the whole last chunk. */
bool fan_wants(const struct fan *fan);

/* Record that a chunk of `len` bytes was read. 0 = the input has ended. */
void fan_fill(struct fan *fan, size_t len);

/* Return how many bytes of the chunk `reader` still needs, and set *at to the first of these bytes. */
size_t fan_due(const struct fan *fan, int reader, size_t *at);

/* Record that `reader` has got `len` more bytes. */
void fan_gave(struct fan *fan, int reader, size_t len);

/* Return true if the input has ended and this open reader has all bytes, so its pipe can be closed. */
bool fan_is_over(const struct fan *fan, int reader);

/* --- input of a worker -------------------------------------------------------------------------------------- */

enum input_way {
    INPUT_NONE,   /* no worker reads the input */
    INPUT_DIRECT, /* the only reader inherits the input */
    INPUT_COPIED  /* this process reads the input and writes to a pipe for each reader */
};

/* Return how ddprun passes the input on. If the job is in the background, ddprun copies the input, because the
 * terminal's input then belongs to the shell. */
enum input_way input_way(int n_readers, bool terminal, bool background);

/* --- input ------------------------------------------------------------------------------------------------ */

/* ddprun's stdin, for the workers in --stdin.
 *
 * A single reader inherits stdin. Each of several readers has a pipe, to which ddprun copies stdin. All other workers
 * read /dev/null. */

struct input;

/* Create the input. The loop and the plan are borrowed. `guardian` is the pid of the guardian, which is in the
 * terminal's session. The caller owns *out even after an error, and calls input_close and, after the loop has run,
 * input_free. */
ddp_status input_new(uv_loop_t *loop, const struct plan *plan, pid_t guardian, struct input **out,
                     struct ddp_err *err);

/* Begin an attempt. Its workers continue where the previous workers stopped reading. */
void input_attempt(struct input *input);

/* Return a worker's descriptor 0, or -1 with errno set if no descriptor is left. When the worker has started or could
 * not be started, pass the descriptor to input_spawned. */
int input_open(struct input *input, int local_rank);
void input_spawned(struct input *input, int local_rank, int fd, bool runs);

/* Close the pipe of a worker that has exited. Children of the worker may still have the pipe open, and must not delay
 * other readers. */
void input_ended(struct input *input, int local_rank);

/* Stop reading. input_free frees the memory. NULL is allowed in both functions. */
void input_close(struct input *input);
void input_free(struct input *input);

#endif
