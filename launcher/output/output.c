/* output.c -- see output.h.
 *
 * Normal path: output_round creates the files -> output_open creates pipes -> streams are read, lines queued -> the
 * writer's thread writes, wakes the loop (on_progress) -> end of file -> output_drain -> idle.
 *
 * Failures: a sink is slower than the workers (their streams wait); the reader of stdout or stderr closes it (ddprun
 * closes the workers' pipes, so workers get SIGPIPE, as if their own reader were gone); a disk is full (reported
 * once, the job continues); a process outside the job holds a pipe open (abandoned after the drain time). */
#include "output/output.h"

#include "base/clock.h"
#include "output/disk_watch.h"
#include "output/log_files.h"
#include "output/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* An eventfd is used instead of uv_async: uv_async_send marks its handle, wakes the loop and marks the handle again,
 * and a loop that wakes before the second mark spins until the second mark. With a real-time priority (chrt), ddprun
 * would take the processor from the sender and spin for a second. */

static void on_ring(uv_poll_t *poll, int status, int events)
{
    struct wakeup *bell = (struct wakeup *)poll;
    uint64_t rings;
    (void)status;
    (void)events;
    /* without a full read, no thread has called wakeup_ring */
    if (read(bell->fd, &rings, sizeof(rings)) == sizeof(rings))
        bell->rung(poll->data);
}

bool wakeup_open(struct wakeup *bell, uv_loop_t *loop, void (*rung)(void *user), void *user)
{
    *bell = (struct wakeup){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .rung = rung };
    if (bell->fd >= 0 && uv_poll_init(loop, &bell->poll, bell->fd) != 0) {
        close(bell->fd);
        bell->fd = -1;
    }
    if (bell->fd < 0)
        return false;
    bell->poll.data = user;
    uv_poll_start(&bell->poll, UV_READABLE, on_ring);
    return true;
}

/* The write fails only when the counter is full. A full counter also wakes the loop. */
void wakeup_ring(const struct wakeup *bell)
{
    const uint64_t one = 1;
    ssize_t ignored = write(bell->fd, &one, sizeof(one));
    (void)ignored;
}

/* Close the handle, then the descriptor, because libuv no longer polls it after uv_close. */
void wakeup_close(struct wakeup *bell, uv_close_cb closed)
{
    uv_close((uv_handle_t *)&bell->poll, closed);
    close(bell->fd);
    bell->fd = -1;
}

/* --- stream ----------------------------------------------------------------------------------------------- */

/* Three consumers get the same bytes: the report (the last bytes, even if the console is not read), the log file
 * (unchanged, including \r) and the console (whole lines).
 *
 * Normal path: open_pipe creates a pipe -> the worker writes -> on_readable -> tail, file, console -> end of file ->
 * stream_end. For a slow sink, reading stops until its queue is short again. Meanwhile the pipe fills up and the
 * worker blocks in its write, as it would on a slow terminal.
 *
 * This file and not libuv reads the pipes, because a turn (one pass of the loop) must read one piece from each
 * stream. Otherwise a worker that writes without pause would delay the other workers. The handle is not part of the
 * stream, because libuv needs it until it is closed, while the next attempt opens the stream again at once. */

enum {
    STREAM_NO_SINK = -1,
    STREAM_READ_BYTES = 64 * 1024,
    TURN_BYTES = 1 << 20, /* bytes that all streams together may read in one turn of the loop */
    BITE_MIN = 8 * 1024,  /* bytes that each stream may read in a turn in any case */
    PIPE_BYTES = 1 << 16, /* capacity of a pipe */
    REST_BYTES = 1 << 20 /* limit at the end: more than a full pipe; stops a daemon that writes without end */
};

/* The end of a pipe that ddprun reads. */
struct stream_pipe {
    uv_poll_t poll;
    int fd;
};

/* The state that the streams of one node share. */
struct stream_group {
    uv_loop_t *loop;
    const struct plan *plan;
    struct sinks *sinks;
    struct console *console;
    char *chunk;           /* buffer of STREAM_READ_BYTES for one read, used only within a callback */
    struct buf merged;     /* lines for a shared file, made from one read */
    int open;              /* pipes that are still read */
    void (*ended)(void *); /* called when a pipe has ended */
    void (*bar)(void *, bool screen); /* called when a progress bar must be shown later */
    void (*printed)(void *, int local_rank, int stream, struct slice bytes); /* NULL = not wanted */
    void *printed_user;
    void *user;
};

/* One of a worker's two streams. Both always exist, with or without a pipe, because the report reads the tail of
 * each. */
struct stream {
    struct stream_group *group;
    struct stream_pipe *pipe; /* NULL without a pipe to read from */
    bool paused;              /* reading is stopped, because a sink is behind */
    int local_rank, which;    /* STD_OUT or STD_ERR */
    bool to_console;
    int file;    /* sink of the stream's log file; STREAM_NO_SINK = no log file */
    bool shared; /* other streams also write to that file */
    struct merge merge;
    struct console_stream console;
    struct filtered filtered;
    struct tail tail;
};

static const struct plan_stream *planned(const struct stream *s)
{
    const struct plan_worker *w = &s->group->plan->workers[s->local_rank];
    return s->which == STD_OUT ? &w->out : &w->err;
}

/* Open the log file of a stream, or find the open file if the pattern gives several streams the same name. */
static ddp_status open_file(struct stream *s, const struct plan_stream *to, struct ddp_err *err)
{
    const struct cli *cli = s->group->plan->cli;
    s->shared = to->shared;
    if (to->shared) {
        s->file = sinks_find_file(s->group->sinks, to->file);
        if (s->group->plan->nproc > 1)
            snprintf(s->merge.prefix, sizeof(s->merge.prefix), "[%d] ",
                     s->group->plan->workers[s->local_rank].rank);
    }
    if (s->file == STREAM_NO_SINK)
        s->file = sinks_add_file(s->group->sinks, to->file, cli->log_rotate, err);
    return s->file >= 0 ? DDP_OK : err->code;
}

/* Start a stream of a new attempt, with its log file. Call stream_free even after an error. */
static ddp_status stream_init(struct stream *s, struct stream_group *group, int local_rank, int which,
                              struct ddp_err *err)
{
    *s = (struct stream){ .group = group, .local_rank = local_rank, .which = which, .file = STREAM_NO_SINK };
    const struct plan_stream *to = planned(s);
    s->to_console = to->console;
    console_stream_init(&s->console, group->console, local_rank, which);
    ddp_status status = to->file != NULL ? open_file(s, to, err) : DDP_OK;
    if (status == DDP_OK && to->file != NULL && to->console)
        status = filtered_init(&s->filtered, &s->console, err);
    return status;
}

static void stream_free(struct stream *s)
{
    console_stream_free(&s->console);
    merge_free(&s->merge);
    filtered_free(&s->filtered);
    tail_free(&s->tail);
}

/* --- reading -------------------------------------------------------------------------------------------- */

/* Queue the merged lines. `merged` is empty between two reads, so one buffer is enough for all streams. */
static void put_merged(struct stream *s)
{
    sinks_put(s->group->sinks, s->file, buf_slice(&s->group->merged));
    s->group->merged.len = 0;
}

/* Pass bytes to all consumers. The tail is first, because the report needs the tail, and the tail never waits for a
 * sink. The console precedes the filtered lines, which use the time that the console has read. */
static void take_bytes(struct stream *s, struct slice bytes)
{
    tail_feed(&s->tail, bytes);
    if (s->group->printed != NULL)
        s->group->printed(s->group->printed_user, s->local_rank, s->which, bytes);
    if (s->shared) {
        merge_feed(&s->merge, bytes, &s->group->merged);
        put_merged(s);
    } else if (s->file != STREAM_NO_SINK) {
        sinks_put(s->group->sinks, s->file, bytes);
    }
    if (s->to_console && console_stream_feed(&s->console, bytes))
        s->group->bar(s->group->user, console_is_screen(&s->console));
    filtered_feed(&s->filtered, bytes);
}

static void pipe_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Close the pipe. Do nothing on a stream that is not open. `ended` is called last, after all bytes of the stream were
 * passed on, because `ended` checks whether all streams have ended. */
static void stream_end(struct stream *s)
{
    struct stream_pipe *pipe = s->pipe;
    if (pipe == NULL)
        return;
    s->pipe = NULL;
    s->group->open--;
    uv_close((uv_handle_t *)&pipe->poll, pipe_closed);
    close(pipe->fd);
    pipe->poll.data = pipe;
    if (s->shared) {
        merge_finish(&s->merge, &s->group->merged);
        put_merged(s);
    }
    if (s->to_console)
        console_stream_finish(&s->console);
    filtered_finish(&s->filtered);
    s->group->ended(s->group->user);
}

/* Read the bytes in the pipe, up to `most` bytes, because a daemon that the worker started may write without end. The
 * descriptor is non-blocking (libuv sets that), so reading stops when the pipe is empty. */
static void take_rest(struct stream *s, size_t most)
{
    size_t done = 0;
    ssize_t n;
    while (s->pipe != NULL && done < most &&
           (n = read(s->pipe->fd, s->group->chunk, STREAM_READ_BYTES)) > 0) {
        take_bytes(s, slice_of(s->group->chunk, (size_t)n));
        done += (size_t)n;
    }
}

/* Read the bytes that have arrived, without waiting. Then close the pipe. */
static void stream_end_with_rest(struct stream *s)
{
    take_rest(s, REST_BYTES);
    stream_end(s);
}

/* Read the bytes that have arrived, without waiting, and continue. */
static void stream_catch_up(struct stream *s)
{
    take_rest(s, PIPE_BYTES);
}

/* Return true if any sink of the stream is behind. */
static bool is_behind(const struct stream *s, bool resume)
{
    struct sinks *sinks = s->group->sinks;
    return (s->to_console && sinks_is_behind(sinks, s->console.sink, resume)) ||
           (s->file != STREAM_NO_SINK && sinks_is_behind(sinks, s->file, resume)) ||
           filtered_is_behind(&s->filtered, resume);
}

/* Return how many bytes to read at once. The number is smaller when many streams are open. */
static size_t bite(const struct stream *s)
{
    const size_t each = TURN_BYTES / (size_t)s->group->open;
    return each > STREAM_READ_BYTES ? STREAM_READ_BYTES : each < BITE_MIN ? BITE_MIN : each;
}

/* Read once. A stream is paused only after its read, because bytes that were read must be used. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status; /* read returns the error */
    (void)events;
    struct stream *s = poll->data;
    ssize_t n = read(s->pipe->fd, s->group->chunk, bite(s));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        stream_end(s);
    if (n <= 0)
        return;
    take_bytes(s, slice_of(s->group->chunk, (size_t)n));
    if (s->pipe != NULL && is_behind(s, false)) {
        s->paused = true;
        uv_poll_stop(poll);
    }
}

/* Read again if the stream was paused and its sinks are no longer behind. Called for all streams whenever a sink has
 * made progress. Most streams are not paused, so `paused` is checked first. */
static void stream_resume(struct stream *s)
{
    if (s->pipe == NULL || !s->paused || is_behind(s, true))
        return;
    s->paused = false;
    uv_poll_start(&s->pipe->poll, UV_READABLE | UV_DISCONNECT, on_readable);
}

/* --- starting ------------------------------------------------------------------------------------------- */

/* Create a pipe that ddprun reads. Return the worker's end, or -1 when descriptors or memory are short. */
static int open_pipe(struct stream *s)
{
    int ends[2];
    struct stream_pipe *pipe = malloc(sizeof(*pipe));
    if (pipe == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        free(pipe);
        return -1;
    }
    if (uv_poll_init(s->group->loop, &pipe->poll, ends[0]) != 0) {
        close(ends[0]);
        close(ends[1]);
        free(pipe);
        return -1;
    }
    pipe->fd = ends[0];
    pipe->poll.data = s;
    uv_poll_start(&pipe->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    s->pipe = pipe;
    s->paused = false;
    s->group->open++;
    return ends[1];
}

/* Return the worker's descriptor, or -1 with the reason in `err`. A single worker may get ddprun's own stdout, so
 * that it detects a terminal. Its stderr always passes through ddprun, because the report quotes stderr. */
static int stream_open(struct stream *s, struct ddp_err *err)
{
    if (s->to_console && s->console.raw && s->which == STD_OUT && s->file == STREAM_NO_SINK)
        return STDOUT_FILENO;
    int fd = open_pipe(s);
    if (fd < 0)
        ddp_fail(err, DDP_ERR_IO, "cannot create a pipe for the output of local rank %d: %s%s", s->local_rank,
                 strerror(errno), errno == EMFILE ? "; raise the limit with 'ulimit -n'" : "");
    return fd;
}

enum {
    UPDATE_MS = 1000,    /* how often a progress bar becomes a line of a log */
    REDRAW_MS = 100,     /* how often a progress bar is redrawn on a terminal */
    UNREAD_MS = 5000,    /* how long a sink may accept nothing after the workers' end */
    WATCH_MS = 250,      /* how often to check this limit */
    DISK_TOLD_MS = 5000, /* a disk is reported after not answering for this long */
    DISK_LOOK_MS = 2000,
    TOLD_FILES_MAX = 4
};

struct output {
    struct output_options options;
    struct sinks *sinks;
    struct console console;
    struct stream_group group;
    struct stream *streams; /* two for each worker */
    struct tail *tails;     /* filled by output_tails */
    struct wakeup progress;
    uv_timer_t update, drain, fold, disk;
    int open_handles;
    int told_files;                /* warnings about log files */
    bool draining, given_up;       /* given_up: the remaining bytes are dropped */
    bool finishing, finished_well; /* see output_finish */
    bool told_waiting;
    bool told_hung;             /* a message about the hanging disk was printed */
    bool looking;               /* true while look_for_failures runs, when `idle` must not be called */
    uint64_t written, moved_ms; /* bytes written by the sinks, and the time of the last change */
};

static int n_streams(const struct output *o)
{
    return 2 * o->options.plan->nproc;
}

static struct stream *stream_of(struct output *o, int local_rank, int which)
{
    return &o->streams[2 * local_rank + (which == STD_ERR)];
}

/* --- progress bars -------------------------------------------------------------------------------------- */

/* Show the latest updates. A progress bar writes many updates per second and no newline. One update per second is
 * enough for a log. The timer runs only while a bar is active. */
static void on_update_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    for (int i = 0; i < n_streams(o); i++)
        if (o->streams[i].to_console)
            console_stream_update(&o->streams[i].console);
}

static void on_bar(void *user, bool screen)
{
    struct output *o = user;
    if (!uv_is_active((uv_handle_t *)&o->update))
        uv_timer_start(&o->update, on_update_time, screen ? REDRAW_MS : UPDATE_MS, 0);
}

/* --- folded lines --------------------------------------------------------------------------------------- */

static void on_fold_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    console_fold_time(&o->console);
}

/* Set the timer. The time is rounded up, because a timer that is too early would have to run twice. The timer may be
 * set already for earlier lines of the other stream. */
static void on_fold_waits(void *user, uint64_t us)
{
    struct output *o = user;
    uint64_t ms = us / 1000 + 1;
    if (!uv_is_active((uv_handle_t *)&o->fold) || uv_timer_get_due_in(&o->fold) > ms)
        uv_timer_start(&o->fold, on_fold_time, ms, 0);
}

/* --- sinks ---------------------------------------------------------------------------------------------- */

/* End the streams of a sink whose reader is gone, because the workers must notice. Streams that also have a file are
 * still read. */
static void console_is_closed(struct output *o, int sink)
{
    for (int i = 0; i < n_streams(o); i++) {
        struct stream *s = &o->streams[i];
        if (s->to_console && s->console.sink == sink && s->file == STREAM_NO_SINK)
            stream_end(s);
    }
}

/* Print a message about a sink. With many files on one full disk, print only the first few messages. */
static void output_report_loss(struct output *o, const struct sink_event *e)
{
    static const char *const what[] = {
        [SINK_RECOVERED] = "can be written again",
        [SINK_MADE_AGAIN] = "was deleted, and was created again as an empty file",
        [SINK_DELETED] = "was deleted and cannot be created again; further output for it is lost",
        [SINK_NOT_ROTATED] = "cannot be renamed for the rotation; the file keeps growing"
    };
    const bool waits = o->options.plan->cli->log_policy == LOG_BLOCK &&
                       (e->error == ENOSPC || e->error == EDQUOT) && !o->draining;
    if (e->sink >= SINK_FILES && ++o->told_files > TOLD_FILES_MAX) {
        if (o->told_files == TOLD_FILES_MAX + 1)
            output_note(o, "warning: more log files have such errors; these are not listed");
    } else if (e->news != SINK_FAILED) {
        output_note(o, "%s%s %s", e->news == SINK_RECOVERED ? "" : "warning: ", e->name, what[e->news]);
    } else if (e->sink != SINK_STDERR || e->error == 0) {
        output_note(o, "warning: cannot write %s: %s; %s", e->name,
                    e->error != 0 ? strerror(e->error) : "too slow for the output",
                    e->error == EPIPE ? "workers that still write there get SIGPIPE"
                    : waits           ? "workers that write there wait for free space (--log_policy=block)"
                                      : "output is lost and counted until a write succeeds again");
    }
}

/* Report the events of the sinks. The close of a stream may be the last event, after which `idle` frees this object.
 * So `looking` delays `idle` until all sinks are reported. */
static void look_for_failures(struct output *o)
{
    struct sink_event e;
    o->looking = true;
    while (sinks_next_event(o->sinks, &e)) {
        if (e.news == SINK_FAILED && e.error == EPIPE && e.sink < SINK_FILES)
            console_is_closed(o, e.sink);
        output_report_loss(o, &e);
    }
    o->looking = false;
}

/* Return true when no more bytes can arrive (all pipes are closed), and all bytes are written or given up. */
static bool is_idle(const struct output *o)
{
    return o->draining && !o->looking && o->group.open == 0 && (o->given_up || sinks_empty(o->sinks));
}

/* Call `idle` once, after the last event: the end of a pipe, or of writing. A failed write may be that event, so the
 * sinks are checked once more, and messages about the sinks are also written. */
static void look_for_idle(struct output *o)
{
    if (is_idle(o))
        look_for_failures(o);
    if (!is_idle(o))
        return;
    o->draining = false;
    uv_timer_stop(&o->drain);
    o->options.idle(o->options.user);
}

static void on_stream_ended(void *user)
{
    struct output *o = user;
    if (o->group.open == 0)
        console_fold_finish(&o->console);
    look_for_idle(o);
}

/* Check all sinks, because several wake-ups may be merged and do not name a sink. */
static void on_progress(void *user)
{
    struct output *o = user;
    look_for_failures(o);
    for (int i = 0; i < n_streams(o); i++)
        stream_resume(&o->streams[i]);
    look_for_idle(o);
}

/* Wake the loop; called on the writer's thread. */
static void wake_loop(void *user)
{
    const struct output *o = user;
    wakeup_ring(&o->progress);
}

/* Report once that a log file's disk does not answer, and once that it answers again. */
static void on_disk_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    char path[DISK_PATH_MAX];
    const bool hung = disk_hangs(DISK_TOLD_MS, path);
    if (hung && !o->told_hung)
        output_note(o,
                    "warning: %s: the file system has not answered for %d s; output for it waits in "
                    "memory%s; press Ctrl-C twice to end the job without it",
                    path, DISK_TOLD_MS / 1000,
                    o->options.plan->cli->log_policy == LOG_BLOCK
                        ? ", then the workers wait (--log_policy=block)"
                        : ", then it is lost (--log_policy=drop)");
    else if (!hung && o->told_hung)
        output_note(o, "%s: the file system responds again",
                    o->options.plan->log_root != NULL ? o->options.plan->log_root : "log files");
    o->told_hung = hung;
}

/* --- the object ----------------------------------------------------------------------------------------- */

/* Free the object when the last handle is closed, because no callback can follow. No other function frees the
 * object. */
static void handle_closed(uv_handle_t *handle)
{
    struct output *o = handle->data;
    if (--o->open_handles > 0)
        return;
    for (int i = 0; o->streams != NULL && i < n_streams(o); i++)
        stream_free(&o->streams[i]);
    free(o->streams);
    free(o->tails);
    free(o->group.chunk);
    buf_free(&o->group.merged);
    console_free(&o->console);
    free(o);
}

/* Initialize the handles before any step that can fail, so that output_close() can close a half-opened object. */
static bool init_handles(struct output *o)
{
    uv_loop_t *loop = o->options.loop;
    uv_timer_init(loop, &o->update);
    uv_timer_init(loop, &o->drain);
    uv_timer_init(loop, &o->fold);
    uv_timer_init(loop, &o->disk);
    o->update.data = o->drain.data = o->fold.data = o->disk.data = o;
    const bool has_bell = wakeup_open(&o->progress, loop, on_progress, o);
    o->open_handles = 4 + has_bell;
    return has_bell;
}

/* Fill the group. All reads share one buffer, because streams are read one after the other; 512 separate buffers
 * would need 32 MiB. */
static void init_group(struct output *o)
{
    o->group = (struct stream_group){ .loop = o->options.loop,
                                      .plan = o->options.plan,
                                      .sinks = o->sinks,
                                      .console = &o->console,
                                      .chunk = malloc(STREAM_READ_BYTES),
                                      .ended = on_stream_ended,
                                      .bar = on_bar,
                                      .printed = o->options.printed,
                                      .printed_user = o->options.user,
                                      .user = o };
}

/* Start the folding of lines. Events are not folded, because a program needs each event. Lines of a single worker are
 * not folded either. */
static bool fold_lines(struct output *o)
{
    const struct cli *cli = o->options.plan->cli;
    if (!cli->fold || cli->json || o->options.plan->nproc == 1)
        return true;
    return console_fold(&o->console, on_fold_waits, o);
}

ddp_status output_new(const struct output_options *options, struct output **out, struct ddp_err *err)
{
    struct output *o = calloc(1, sizeof(*o));
    if (o == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "cannot read the workers' output: out of memory");
    o->options = *options;
    const bool has_bell = init_handles(o);
    o->sinks =
        sinks_new(options->plan->cli->log_policy == LOG_DROP ? WRITER_DROP : WRITER_BLOCK, wake_loop, o);
    console_init(&o->console, options->plan, o->sinks, options->started_ms);
    init_group(o);
    const size_t n = (size_t)n_streams(o);
    o->streams = calloc(n, sizeof(*o->streams));
    o->tails = calloc(n, sizeof(*o->tails));
    if (has_bell && o->streams != NULL && o->tails != NULL && o->group.chunk != NULL && o->sinks != NULL &&
        fold_lines(o)) {
        if (options->plan->log_root != NULL || options->plan->cli->log_file != NULL)
            uv_timer_start(&o->disk, on_disk_time, DISK_LOOK_MS, DISK_LOOK_MS);
        *out = o;
        return DDP_OK;
    }
    output_close(o);
    return ddp_fail(err, DDP_ERR_NOMEM, "cannot read the workers' output: %s",
                    has_bell ? "out of memory" : "no file descriptor left; raise the limit with 'ulimit -n'");
}

/* End and reset all streams. A process outside the job may still hold a pipe of the attempt that is over; such a pipe
 * is abandoned. */
static void forget_attempt(struct output *o)
{
    for (int i = 0; i < n_streams(o); i++) {
        stream_end_with_rest(&o->streams[i]);
        stream_free(&o->streams[i]);
        o->streams[i] = (struct stream){ 0 };
    }
    sinks_end_files(o->sinks);
}

ddp_status output_round(struct output *o, const struct plan_round *round, struct ddp_err *err)
{
    forget_attempt(o);
    ddp_status status = plan_round(o->options.plan, round, err);
    if (status == DDP_OK)
        status = logdir_attempt(o->options.plan, err);
    for (int i = 0; i < n_streams(o) && status == DDP_OK; i++)
        status = stream_init(&o->streams[i], &o->group, i / 2, i % 2 == 0 ? STD_OUT : STD_ERR, err);
    return status;
}

/* Open both pipes or none. After an error, close the pipe that is already open, as after a failed start. */
ddp_status output_open(struct output *o, int local_rank, int fds[2], struct ddp_err *err)
{
    fds[1] = -1;
    fds[0] = stream_open(stream_of(o, local_rank, STD_OUT), err);
    if (fds[0] >= 0)
        fds[1] = stream_open(stream_of(o, local_rank, STD_ERR), err);
    if (fds[1] >= 0)
        return DDP_OK;
    output_spawned(fds);
    return err->code;
}

/* Close ddprun's copies of the worker's descriptors, without which the end of the pipe would never arrive.
 * Descriptors up to 2 are ddprun's own. */
void output_spawned(int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] > STDERR_FILENO)
            close(fds[i]);
}

void output_started(struct output *o, int local_rank, pid_t pid)
{
    console_stream_started(&stream_of(o, local_rank, STD_OUT)->console, pid);
    console_stream_started(&stream_of(o, local_rank, STD_ERR)->console, pid);
}

void output_note(struct output *o, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    console_note(&o->console, text);
}

void output_put(struct output *o, const struct buf *lines)
{
    sinks_put(o->sinks, SINK_STDOUT, buf_slice(lines));
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* End all streams: streams whose pipe a process outside the job keeps open, and streams that are paused for a slow
 * sink. Their pipes are read first, because the last lines of a worker must reach the report. */
static void end_all(struct output *o)
{
    for (int i = 0; o->streams != NULL && i < n_streams(o); i++)
        stream_end_with_rest(&o->streams[i]);
}

/* Check whether the sinks still accept bytes. A successful job waits for its reader (a pager) without a limit, and
 * reports this wait. After a failure, and between two attempts, a sink that accepts nothing for a while is abandoned,
 * because the user waits. */
static void look_for_progress(struct output *o)
{
    const uint64_t now = clock_ms(), written = sinks_written(o->sinks);
    if (written != o->written) {
        o->written = written;
        o->moved_ms = now;
    }
    if (now - o->moved_ms < UNREAD_MS)
        return;
    if (!o->finishing || !o->finished_well)
        o->given_up = true;
    else if (!o->told_waiting)
        output_note(o,
                    "all workers have ended; %llu bytes of their output wait for a reader; press Ctrl-C to "
                    "end without them",
                    (unsigned long long)sinks_queued(o->sinks));
    o->told_waiting = true;
    look_for_idle(o);
}

static void on_watch_time(uv_timer_t *timer)
{
    look_for_progress(timer->data);
}

/* Stop waiting for open pipes. At the end of the job, also stop waiting for a full disk. */
static void on_drain_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    end_all(o);
    if (!o->draining)
        return;
    if (o->finishing)
        sinks_wait_no_more(o->sinks);
    o->given_up = !(o->finishing && o->finished_well) && disk_hangs(DISK_HUNG_MS, NULL);
    look_for_idle(o);
    if (!o->draining)
        return;
    o->written = sinks_written(o->sinks);
    o->moved_ms = clock_ms();
    uv_timer_start(&o->drain, on_watch_time, WATCH_MS, WATCH_MS);
}

/* Record how the job has ended, before the drain, because the time to wait depends on the result. */
void output_finish(struct output *o, bool well)
{
    o->finishing = true;
    o->finished_well = well;
}

/* Start the drain. Usually all pipes have ended, and look_for_idle() finishes the drain at once. The timer is for
 * pipes that another process holds open. */
void output_drain(struct output *o, uint64_t limit_ms)
{
    o->draining = true;
    o->given_up = o->told_waiting = false;
    uv_timer_start(&o->drain, on_drain_time, limit_ms, 0);
    look_for_idle(o);
}

bool output_is_midline(const struct output *o)
{
    return o->console.midline;
}

bool output_loss(struct output *o, size_t i, struct loss *loss)
{
    return sinks_loss(o->sinks, i, loss);
}

const struct tail *output_tails(struct output *o, int which)
{
    const int nproc = o->options.plan->nproc;
    struct tail *tails = o->tails + (which == STD_ERR ? nproc : 0);
    for (int i = 0; i < nproc; i++)
        tails[i] = stream_of(o, i, which)->tail; /* a view of the tail; the stream still owns the memory */
    return tails;
}

const struct tail *output_last_words(struct output *o, int local_rank)
{
    struct stream *s = stream_of(o, local_rank, STD_ERR);
    stream_catch_up(s);
    return &s->tail;
}

/* End the threads before the handles are closed, because the threads wake the loop through one of the handles. */
void output_close(struct output *o)
{
    if (o == NULL)
        return;
    o->draining = false;
    end_all(o);
    sinks_free(o->sinks);
    o->sinks = NULL;
    if (o->progress.fd >= 0)
        wakeup_close(&o->progress, handle_closed);
    uv_close((uv_handle_t *)&o->update, handle_closed);
    uv_close((uv_handle_t *)&o->drain, handle_closed);
    uv_close((uv_handle_t *)&o->fold, handle_closed);
    uv_close((uv_handle_t *)&o->disk, handle_closed);
}
