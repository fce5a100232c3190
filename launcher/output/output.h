/* output.h -- what the workers print, from their pipes to the console and to the log files.
 *
 *     pipe -> stream -> console lines -> "[3] text\n" -> writer -> stdout, stderr   (in --json: an event per line)
 *                   \-> unchanged -----------------> writer -> log file
 *                   \-> tail, for the report
 *
 * The stdout of a single worker that goes only to the console, without prefix, is inherited. When a console
 * or disk is slow or full, the pipes are not read and their workers block; with --log_policy=drop bytes are lost and
 * counted. Memory is bounded, and the event loop never blocks. */
#ifndef LAUNCHER_OUTPUT_OUTPUT_H
#define LAUNCHER_OUTPUT_OUTPUT_H

#include "ddp/error.h"
#include "output/console.h"
#include "output/lines.h"
#include "output/log_files.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <uv.h>

/* Wakes the loop from another thread. Several calls before it wakes may be merged. */
struct wakeup {
    uv_poll_t poll;
    int fd; /* -1: no descriptor */
    void (*rung)(void *user);
};

/* False when no descriptor is available; then the caller has nothing to close. */
bool wakeup_open(struct wakeup *bell, uv_loop_t *loop, void (*rung)(void *user), void *user);

/* From any thread, until wakeup_close is called. */
void wakeup_ring(const struct wakeup *bell);

/* `closed` gets `poll`, whose data is the `user` of the start, in a later turn of the loop. */
void wakeup_close(struct wakeup *bell, uv_close_cb closed);

struct output;

struct output_options {
    uv_loop_t *loop;
    struct plan *plan;    /* borrowed; the paths in it change for each attempt */
    uint64_t started_ms;  /* zero of the times in events */
    void (*idle)(void *); /* after output_drain: everything is written */
    void (*printed)(void *, int local_rank, int stream, struct slice bytes); /* NULL = not wanted */
    void *user;
};

/* DDP_OK: *out is yours, free it with output_close. */
ddp_status output_new(const struct output_options *options, struct output **out, struct ddp_err *err);

/* A round begins, with a plan for it: create its directories and log files, reset lines and tails. The rest of the
 * previous attempt is dropped, so drain its output first. */
ddp_status output_round(struct output *o, const struct plan_round *round, struct ddp_err *err);

/* Return descriptors 1 and 2 for worker `local_rank`. Return them with output_spawned as soon as it is started or
 * could not be, because only the worker may hold them. */
ddp_status output_open(struct output *o, int local_rank, int fds[2], struct ddp_err *err);
void output_spawned(int fds[2]);

/* Worker `local_rank` runs as `pid`. */
void output_started(struct output *o, int local_rank, pid_t pid);

/* A message of ddprun: "ddprun: ..." on stderr, or an event. It never tears a worker's line. */
void output_note(struct output *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Print whole lines to stdout: events of user_messages.h. They are copied. */
void output_put(struct output *o, const struct buf *lines);

/* The last process of an attempt has exited: read the rest of the pipes for at most `limit_ms` if a process outside
 * still holds one open, wait until everything is written, then call `idle` once. A sink that accepts nothing for some
 * seconds is abandoned. */
void output_drain(struct output *o, uint64_t limit_ms);

/* The next drain is the last one. After a successful job it waits for a slow reader without a limit. */
void output_finish(struct output *o, bool well);

/* True if stderr is within a line of a worker. Then our next text there begins with a newline. */
bool output_is_midline(const struct output *o);

/* Return the i-th sink that lost bytes, or will by output_close; false after the last one. */
bool output_loss(struct output *o, size_t i, struct loss *loss);

/* Return the last lines by local rank. Streams that went only to a file are read from there. Valid until the next
 * attempt, or output_close. */
const struct tail *output_tails(struct output *o, int stream);

/* Return the last lines on stderr of a worker that has just exited: its pipe is read first. Valid as long as those
 * above. */
const struct tail *output_last_words(struct output *o, int local_rank);

/* Close everything without waiting for pending bytes; the memory is freed when the loop has run its close callbacks.
 * NULL is allowed. */
void output_close(struct output *o);

#endif
