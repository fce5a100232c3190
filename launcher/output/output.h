/* output.h -- what the workers print, from their pipes to the console and to the log files.
 *
 *     pipe -> stream -> console lines -> "[3] text\n" -> writer -> stdout, stderr   (in --json: an event per line)
 *                   \-> unchanged -----------------> writer -> log file
 *                   \-> tail, for the report
 *
 * A single worker inherits ddprun's stdout if its output is only for the console and has no prefix. While a console
 * or disk is slow or full, the pipes are not read, so their workers block. With --log_policy=drop bytes are lost and
 * counted instead. Memory is bounded, and the event loop never blocks. */
#ifndef LAUNCHER_OUTPUT_OUTPUT_H
#define LAUNCHER_OUTPUT_OUTPUT_H

#include "ddp/error.h"
#include "output/console.h"
#include "output/lines.h"
#include "output/log_files.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <uv.h>

/* Wakes the loop from another thread. Several calls before the loop runs may cause a single wake-up. */
struct wakeup {
    uv_poll_t poll;
    int fd; /* -1 = no descriptor */
    void (*rung)(void *user);
};

/* Open the wakeup. Return false when no descriptor is available. After false the caller closes nothing. */
bool wakeup_open(struct wakeup *bell, uv_loop_t *loop, void (*rung)(void *user), void *user);

/* Wake the loop, from any thread, until wakeup_close is called. */
void wakeup_ring(const struct wakeup *bell);

/* Close the wakeup. A later pass of the loop calls `closed` with `poll`, whose data is the `user` of wakeup_open. */
void wakeup_close(struct wakeup *bell, uv_close_cb closed);

struct output;

struct output_options {
    uv_loop_t *loop;
    struct plan *plan;    /* borrowed; the paths of the plan change for each attempt */
    uint64_t started_ms;  /* start time, zero of the times in events */
    void (*idle)(void *); /* called after output_drain, when everything is written */
    void (*printed)(void *, int local_rank, int stream, struct slice bytes); /* NULL = not wanted */
    void *user;
};

/* Create the output. After DDP_OK the caller owns *out and frees *out with output_close. */
ddp_status output_new(const struct output_options *options, struct output **out, struct ddp_err *err);

/* Begin a round with a plan for it: create its directories and log files, reset lines and tails. The rest of the
 * previous attempt's output is dropped, so call output_drain before. */
ddp_status output_round(struct output *o, const struct plan_round *round, struct ddp_err *err);

/* Get descriptors 1 and 2 for worker `local_rank`. Pass them to output_spawned as soon as the worker is started, or
 * could not be started, because only the worker may keep them open. */
ddp_status output_open(struct output *o, int local_rank, int fds[2], struct ddp_err *err);
void output_spawned(int fds[2]);

/* Record that worker `local_rank` runs as `pid`. */
void output_started(struct output *o, int local_rank, pid_t pid);

/* Print a message of ddprun: "ddprun: ..." on stderr, or an event, never within a worker's line. */
void output_note(struct output *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Print whole lines on stdout: events of user_messages.h. The bytes are copied. */
void output_put(struct output *o, const struct buf *lines);

/* Drain after the last process of an attempt has exited. Read the pipes to their end, for at most `limit_ms` if a
 * process outside the job holds a pipe open. Wait until all bytes are written, then call `idle` once. A sink that
 * accepts nothing for some seconds is abandoned. */
void output_drain(struct output *o, uint64_t limit_ms);

/* Make the next drain the last drain. After a successful job (`well`), the last drain waits for a slow reader without
 * a limit. */
void output_finish(struct output *o, bool well);

/* Return true if stderr is within a line of a worker, so that ddprun's next text on stderr begins with a newline. */
bool output_is_midline(const struct output *o);

/* Get the i-th sink that has lost bytes, or will lose bytes at output_close. Return false after the last sink. */
bool output_loss(struct output *o, size_t i, struct loss *loss);

/* Return the last bytes of each worker, by local rank, also of streams that are written only to a file. The bytes are
 * valid until the next attempt, or output_close. */
const struct tail *output_tails(struct output *o, int stream);

/* Return the last bytes on stderr of a worker that has just exited, after reading its pipe. Valid like
 * output_tails. */
const struct tail *output_last_words(struct output *o, int local_rank);

/* Close all streams and sinks without waiting for pending bytes. The memory is freed after the loop has called its
 * close callbacks. NULL is allowed. */
void output_close(struct output *o);

#endif
