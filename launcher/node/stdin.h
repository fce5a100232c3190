/* stdin.h -- the input of ddprun for the workers that read it.
 *
 * One input for several readers, a chunk at a time: which readers still need which bytes, and when more is wanted.
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
    FAN_EXPECTED, /* will be started; nothing is taken before that, it would miss it */
    FAN_OPEN,     /* reads */
    FAN_CLOSED    /* has got everything, does not want more, or could not be started */
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

/* A reader will start / has started / does not want more. Input that arrives before the last expected one has started
 * waits for it. */
void fan_expect(struct fan *fan, int reader);
void fan_open(struct fan *fan, int reader);
void fan_close(struct fan *fan, int reader);

/* Those who read have gone: what is left of the chunk was theirs. */
void fan_forget(struct fan *fan);

/* Is there room for a chunk, and a reader for it? */
bool fan_wants(const struct fan *fan);

/* A chunk of `len` bytes has been taken; 0 = the input has ended. */
void fan_fill(struct fan *fan, size_t len);

/* Bytes of the chunk that `reader` has not got, from *at on; 0 = none. */
size_t fan_due(const struct fan *fan, int reader, size_t *at);

/* `reader` has got `len` more. */
void fan_gave(struct fan *fan, int reader, size_t len);

/* Has an open reader got all there will ever be? Then it is to see the end. */
bool fan_is_over(const struct fan *fan, int reader);

/* --- how a worker comes to its input ------------------------------------------------------------------------ */

enum input_way {
    INPUT_NONE,   /* no worker reads it */
    INPUT_DIRECT, /* the one reader inherits it: a program that talks to a terminal notices no difference */
    INPUT_COPIED  /* we read, and write to a pipe for each */
};

/* A job in the background must leave the terminal's input to the shell, so it is read by us, who look first. */
enum input_way input_way(int n_readers, bool terminal, bool background);

/* --- input ------------------------------------------------------------------------------------------------ */

/* ddprun's stdin, for the workers that --stdin names.
 *
 * One reader inherits it. Several get a pipe each, into which ddprun copies. The others read /dev/null. */

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

/* The worker has exited. Its children may hold its pipe open, and must not block the others. */
void input_ended(struct input *input, int local_rank);

/* Stop; NULL is allowed in both. */
void input_close(struct input *input);
void input_free(struct input *input);

#endif
