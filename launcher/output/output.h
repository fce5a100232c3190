/* output.h -- passes the workers' output from their pipes to the console, the log files and the report. By default,
 * ddprun does not read the pipes while the console or a disk is slow or full, so the workers block and memory stays
 * bounded. The event loop never blocks. */
#ifndef LAUNCHER_OUTPUT_OUTPUT_H
#define LAUNCHER_OUTPUT_OUTPUT_H

#include "ddp/error.h"
#include "output/console.h"
#include "output/lines.h"
#include "output/log_files.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <uv.h>

/* A wakeup wakes the event loop from another thread. The loop then calls `rung`. For several calls of wakeup_ring, the
 * loop may call `rung` only once. */
struct wakeup {
    uv_poll_t poll;
    int fd; /* an eventfd; -1 if not open */
    void (*rung)(void *user);
};

/* Open the wakeup. Return false when no descriptor is available; there is then nothing to close. */
bool wakeup_open(struct wakeup *bell, uv_loop_t *loop, void (*rung)(void *user), void *user);

/* Wake the loop. Any thread may call this function until wakeup_close is called. */
void wakeup_ring(const struct wakeup *bell);

/* Close the wakeup. The loop later calls `closed` with the address of bell->poll. bell->poll.data still points to
 * `user`, the argument of wakeup_open. */
void wakeup_close(struct wakeup *bell, uv_close_cb closed);

/* The output of all workers of this node:
 *
 *     pipe -> stream -> console lines -> "[3] text\n" -> writer -> stdout, stderr   (in --json: an event per line)
 *                   \-> unchanged -----------------> writer -> log file
 *                   \-> tail, for the report
 *
 * A single worker without prefix and without log file may inherit ddprun's stdout, see inherits_stdout in output.c.
 * With --log_policy=drop, ddprun drops output instead of blocking the workers, and counts the lost bytes
 * (output_loss). */
struct output;

struct output_options {
    uv_loop_t *loop;
    const struct plan *plan; /* owned by the caller */
    uint64_t started_ms;     /* start of ddprun; the times of events count from this time */
    void (*idle)(void *);    /* the drain is complete; see output_drain */
    /* The output calls `printed` with the bytes of each read. `printed` may be NULL. */
    void (*printed)(void *, int local_rank, int stream, struct slice bytes);
    void *user;
};

/* Create the output. After DDP_OK the caller owns *out, and output_close frees *out. */
ddp_status output_new(const struct output_options *options, struct output **out, struct ddp_err *err);

/* End the streams and log files of the attempt. Call output_drain first, because this function drops unread output.
 * Call this function before the plan gets the paths of the next attempt. */
void output_end_attempt(struct output *o);

/* Create the log files of the next attempt, in the directories of the plan, and reset lines and tails. */
ddp_status output_begin_attempt(struct output *o, struct ddp_err *err);

/* Get descriptors 1 and 2 for worker `local_rank`. Call output_spawned after the worker was started or has failed to
 * start. output_spawned closes ddprun's copies of the descriptors, because otherwise the pipes would never end. */
ddp_status output_open(struct output *o, int local_rank, int fds[2], struct ddp_err *err);
void output_spawned(int fds[2]);

/* Record that worker `local_rank` runs as `pid`. */
void output_started(struct output *o, int local_rank, pid_t pid);

/* Print a message of ddprun: "ddprun: ..." on stderr, or with --json an event. The message never starts within a
 * worker's line. */
void output_note(struct output *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Print events of user_messages.h, as whole lines, on stdout. The bytes are copied. */
void output_write(struct output *o, const struct buf *lines);

/* Start to drain, after the last worker of an attempt has exited. Read the pipes to their end, write all bytes, and
 * then call `idle` once. Pipes that another process keeps open are closed after `limit_ms`. From then on, the drain
 * gives up when no sink has accepted a byte for UNREAD_MS (5 s). After a successful job, the drain instead waits for a
 * slow reader without a limit. */
void output_drain(struct output *o, uint64_t limit_ms);

/* Record that the next drain is the last drain. If `well` is true, the job was successful, and this drain waits for a
 * slow reader without a limit. */
void output_finish(struct output *o, bool well);

/* Return true if the output on stderr does not end with a newline, so that ddprun must print a newline before its own
 * text. */
bool output_is_midline(const struct output *o);

/* Get the loss of the i-th sink that has lost bytes. Queued bytes count as lost, because output_close drops queued
 * bytes. Return false after the last such sink. */
bool output_loss(struct output *o, size_t i, struct loss *loss);

/* Return the tails (last bytes) of STD_OUT or STD_ERR of all workers, as an array indexed by local rank. Streams that
 * are written only to a file have tails too. Return NULL if the only worker has inherited ddprun's stdout, because
 * ddprun then cannot read the output. The result is valid until the next attempt or output_close. */
const struct tail *output_tails(struct output *o, int stream);

/* Read the bytes that are in the stderr pipe of a worker that has exited. Return the last bytes of the stream,
 * valid until the next attempt or output_close. */
const struct tail *output_last_lines(struct output *o, int local_rank);

/* Close all streams and sinks without waiting for pending bytes. The loop must run afterwards, because the last close
 * callback frees the memory. `o` may be NULL. */
void output_close(struct output *o);

#endif
