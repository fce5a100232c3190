/* stdin.h -- the input of ddprun for the workers that read it.
 *
 * Copy one input to several readers, a chunk at a time: track which readers still need which bytes, and when to read
 * more.
 *
 * The next chunk is read when every reader has the whole previous one. So memory is one chunk in any case, all
 * readers get every byte, and the slowest sets the pace. A reader that has closed its input or has exited is no
 * longer waited for. Pure: stdin.c moves the bytes. */
#ifndef LAUNCHER_NODE_STDIN_H
#define LAUNCHER_NODE_STDIN_H

#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

enum fan_state {
    FAN_ABSENT,   /* does not read this input */
    FAN_EXPECTED, /* will be started; nothing is read before that, because it would miss it */
    FAN_OPEN,     /* reads */
    FAN_CLOSED    /* has got everything, wants no more, or could not be started */
};

struct fan_reader {
    enum fan_state state;
    size_t done; /* bytes of the chunk that it has */
};

struct fan {
    struct fan_reader *readers; /* owned, `n` of them */
    int n;
    size_t len; /* of the chunk */
    bool ended; /* no bytes follow */
};

/* All absent. False when memory is short. */
bool fan_init(struct fan *fan, int n);
void fan_free(struct fan *fan);

/* A reader will start / has started / wants no more. Input waits until the last expected reader has started. */
void fan_expect(struct fan *fan, int reader);
void fan_open(struct fan *fan, int reader);
void fan_close(struct fan *fan, int reader);

/* The readers have gone, and so has the rest of the chunk. */
void fan_forget(struct fan *fan);

/* True if there is room for a chunk and a reader for it. */
bool fan_wants(const struct fan *fan);

/* A chunk of `len` bytes was read; 0 = the input has ended. */
void fan_fill(struct fan *fan, size_t len);

/* Return how many bytes of the chunk `reader` has not got, from *at on; 0 = none. */
size_t fan_due(const struct fan *fan, int reader, size_t *at);

/* `reader` has got `len` more bytes. */
void fan_gave(struct fan *fan, int reader, size_t len);

/* True if an open reader has got everything and no more will follow, so that its input can be closed. */
bool fan_is_over(const struct fan *fan, int reader);

/* --- input of a worker -------------------------------------------------------------------------------------- */

enum input_way {
    INPUT_NONE,   /* no worker reads it */
    INPUT_DIRECT, /* the only reader inherits it, so that a program notices no difference at a terminal */
    INPUT_COPIED  /* we read, and write to a pipe for each */
};

/* A job in the background must leave the terminal's input to the shell, so ddprun reads it and checks first. */
enum input_way input_way(int n_readers, bool terminal, bool background);

/* --- input ------------------------------------------------------------------------------------------------ */

/* ddprun's stdin, for the workers that --stdin names.
 *
 * One reader inherits it. Several get a pipe each, into which ddprun copies. The others read /dev/null. */

struct input;

/* The loop and the plan are borrowed. `guardian` is the process that the terminal knows. The caller owns *out even
 * after an error: end it with input_close and, when the loop has run, input_free. */
ddp_status input_new(uv_loop_t *loop, const struct plan *plan, pid_t guardian, struct input **out,
                     struct ddp_err *err);

/* A new attempt: its workers continue where the previous ones stopped reading. */
void input_attempt(struct input *input);

/* Return descriptor 0 for a worker; return it with input_spawned when the worker runs or could not be started. -1: no
 * descriptor (errno). */
int input_open(struct input *input, int local_rank);
void input_spawned(struct input *input, int local_rank, int fd, bool runs);

/* The worker has exited. Its children may hold its pipe open and must not block the others. */
void input_ended(struct input *input, int local_rank);

/* Stop; NULL is allowed in both. */
void input_close(struct input *input);
void input_free(struct input *input);

#endif
