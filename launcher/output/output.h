/* output.h -- passes the workers' output from their pipes to the console, the log files and the report. If the
 * console or a disk is slow, the workers block, not the event loop. */
#ifndef LAUNCHER_OUTPUT_OUTPUT_H
#define LAUNCHER_OUTPUT_OUTPUT_H

#include "ddp/error.h"
#include "output/console.h"
#include "output/lines.h"
#include "output/log_files.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <uv.h>

/* Wakes the event loop from another thread. Several calls of wakeup_ring may cause one call of `rung`. */
struct wakeup {
    uv_poll_t poll;
    int fd; /* an eventfd; -1 if not open */
    void (*rung)(void *user);
};

/* Open the wakeup. Return false, with nothing to close, if no descriptor is available. */
bool wakeup_open(struct wakeup *bell, uv_loop_t *loop, void (*rung)(void *user), void *user);

/* Wake the loop from any thread, until wakeup_close is called. */
void wakeup_ring(const struct wakeup *bell);

/* Close the wakeup. The loop later calls `closed` with bell->poll, whose `data` is the `user` of wakeup_open. */
void wakeup_close(struct wakeup *bell, uv_close_cb closed);

/* The output of all workers of this node:
 *
 *     pipe -> stream -> console lines -> "[3] text\n" -> writer -> stdout, stderr   (in --json: an event per line)
 *                   \-> unchanged -----------------> writer -> log file
 *                   \-> tail, for the report
 *
 * A single worker may inherit ddprun's stdout instead (inherits_stdout in output.c). With --log_policy=drop,
 * output is dropped and counted instead of blocking the workers. */
struct output;

struct output_options {
    uv_loop_t *loop;
    const struct plan *plan; /* borrowed */
    uint64_t started_ms;     /* start of ddprun; base of the events' times */
    void (*idle)(void *);    /* the drain is complete; see output_drain */
    /* Gets the bytes of each read. May be NULL. */
    void (*printed)(void *, int local_rank, int stream, struct slice bytes);
    void *user;
};

/* Create the output. After DDP_OK, the caller owns *out. */
ddp_status output_new(const struct output_options *options, struct output **out, struct ddp_err *err);

/* End the streams and log files of the attempt, after output_drain. The plan must still have the attempt's paths. */
void output_end_attempt(struct output *o);

/* Create the log files of the next attempt, in the plan's directories, and reset lines and tails. */
ddp_status output_begin_attempt(struct output *o, struct ddp_err *err);

/* Get descriptors 1 and 2 for a worker. Call output_spawned after the fork, even if it failed: it closes ddprun's
 * copies, so that the pipes can end. */
ddp_status output_open(struct output *o, int local_rank, int fds[2], struct ddp_err *err);
void output_spawned(int fds[2]);

/* Record the worker's pid. */
void output_started(struct output *o, int local_rank, pid_t pid);

/* Print a message of ddprun on a new line: "ddprun: ..." on stderr, or with --json an event. */
void output_note(struct output *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Print "  (ddprun explain CODE)" after a message, if log_hint_is_due(). `code` may be NULL or "". */
void output_explain(struct output *o, const char *code);

/* Print events, as whole lines, on stdout. The bytes are copied. */
void output_write(struct output *o, const struct buf *lines);

/* Start to drain, after the last worker of an attempt has exited: read the pipes to their end, write all bytes, and
 * then call `idle` once. Pipes that are still open after `limit_ms` are closed. From then on, the drain gives up if no
 * sink accepts a byte for UNREAD_MS (see output_finish for the exception). */
void output_drain(struct output *o, uint64_t limit_ms);

/* Announce the last drain. If `well`, the job was successful, and the drain waits for a slow reader without a limit. */
void output_finish(struct output *o, bool well);

/* Return true if the output on stderr does not end with a newline. */
bool output_is_midline(const struct output *o);

/* Get the loss of the i-th sink that has lost bytes, queued bytes included. Return false if there is no such sink. */
bool output_loss(struct output *o, size_t i, struct loss *loss);

/* Return the tails of STD_OUT or STD_ERR, indexed by local rank, or NULL if the only worker has inherited ddprun's
 * stdout. The result is valid until the next attempt or output_close. */
const struct tail *output_tails(struct output *o, int stream);

/* Read the rest of the stderr pipe of an exited worker, and return its tail, valid until the next attempt or
 * output_close. */
const struct tail *output_last_lines(struct output *o, int local_rank);

/* Close all streams and sinks without waiting. The loop must run afterwards to free the memory. `o` may be NULL. */
void output_close(struct output *o);

#endif
