/* output.c -- see output.h. The event loop reads the pipes, and the threads of the writers write, because a slow
 * terminal or disk must not block the loop. */
#include "output/output.h"

#include "base/clock.h"
#include "base/limits.h"
#include "contain/procfs.h"
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

/* The loop is woken by an eventfd instead of a uv_async. If the loop wakes while another thread is in the middle of
 * uv_async_send, the loop spins until the other thread has finished this call. If the loop has a real-time priority
 * (chrt), the spinning loop delays the other thread for a second. */

static void on_ring(uv_poll_t *poll, int status, int events)
{
    struct wakeup *bell = (struct wakeup *)poll;
    uint64_t rings;
    (void)status;
    (void)events;
    /* the read fails if no thread has called wakeup_ring */
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

/* Wake the loop. Ignore a failed write. A write fails only if the counter is full, and the loop then wakes in any
 * case. */
void wakeup_ring(const struct wakeup *bell)
{
    const uint64_t one = 1;
    ssize_t ignored = write(bell->fd, &one, sizeof(one));
    (void)ignored;
}

/* Close the handle before the descriptor, because libuv polls the descriptor until uv_close. */
void wakeup_close(struct wakeup *bell, uv_close_cb closed)
{
    uv_close((uv_handle_t *)&bell->poll, closed);
    close(bell->fd);
    bell->fd = -1;
}

/* --- stream ----------------------------------------------------------------------------------------------- */

/* The bytes of a stream go to three places: the report (only the last bytes), the log file (unchanged) and the console
 * (whole lines).
 *
 * Normal path: open_pipe creates a pipe, and the worker writes to it. on_readable passes the bytes to the tail, to the
 * log file and to the console. At the end of the pipe, stream_end closes the pipe. A sink is stdout, stderr or a log
 * file, with a queue of bytes that are not written yet. If a sink is slow, ddprun stops reading the pipe until the
 * sink's queue is short again. Meanwhile the pipe fills up and the worker blocks in its write, as on a slow terminal.
 *
 * This file reads the pipes itself, without libuv's streams. So each pass of the loop (a turn) reads only one piece
 * from each stream, and a worker that writes without pause does not delay the other workers. A struct stream_pipe is
 * allocated separately from its stream, because libuv uses the member `poll` until libuv calls pipe_closed. The next
 * attempt may open a new pipe for the same stream before libuv calls pipe_closed for the old pipe. */

enum {
    STREAM_NO_SINK = -1,
    STREAM_READ_BYTES = 64 * 1024,
    /* One turn of the loop reads at most this number of bytes from all streams together. If more than
     * TURN_BYTES / BITE_MIN streams are open, a turn may read more, because each stream gets BITE_MIN bytes. */
    TURN_BYTES = 1 << 20,
    BITE_MIN = 8 * 1024,  /* smallest part of TURN_BYTES that one stream gets */
    PIPE_BYTES = 1 << 16, /* capacity of a pipe */
    REST_BYTES = 1 << 20  /* limit in bytes for the last reads of a pipe, because a daemon may write without
                           * end */
};

/* ddprun's end of a pipe. */
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
    char *chunk;           /* buffer for one read, STREAM_READ_BYTES long; owned, and shared by all streams */
    struct buf merged;     /* lines for a shared log file; pass_merged queues these lines */
    int open;              /* number of open pipes */
    void (*ended)(void *); /* called when a pipe has ended */
    /* called when console_stream_add has returned true; starts the timer for console_stream_update */
    void (*bar)(void *, bool screen);
    /* gets the bytes of each read; may be NULL */
    void (*printed)(void *, int local_rank, int stream, struct slice bytes);
    void *printed_user;
    void *user;
};

/* stdout or stderr of one worker. A stream without a pipe has this struct, too, because the report reads `tail`, the
 * last bytes of the stream. */
struct stream {
    struct stream_group *group;
    struct stream_pipe *pipe; /* NULL if there is no pipe to read */
    bool paused;              /* reading has stopped, because the queue of a sink is too long */
    int local_rank, which;    /* `which` is STD_OUT or STD_ERR */
    bool to_console;
    int file;    /* sink number of the stream's log file; STREAM_NO_SINK without a log file */
    bool shared; /* other streams write to the same file */
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

/* Open the log file of a stream. If the pattern gives several streams the same file, use the file that is already
 * open. */
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

/* Initialize a stream for an attempt, and open its log file. Call stream_free even after an error. */
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

/* Queue the lines of `merged`, which all streams share. */
static void pass_merged(struct stream *s)
{
    sinks_write(s->group->sinks, s->file, buf_slice(&s->group->merged));
    s->group->merged.len = 0;
}

/* Pass bytes to all consumers. The console must get the bytes before `filtered`, because `filtered` reuses the time
 * that the console has read from the clock. */
static void pass_bytes(struct stream *s, struct slice bytes)
{
    tail_add(&s->tail, bytes);
    if (s->group->printed != NULL)
        s->group->printed(s->group->printed_user, s->local_rank, s->which, bytes);
    if (s->shared) {
        merge_add(&s->merge, bytes, &s->group->merged);
        pass_merged(s);
    } else if (s->file != STREAM_NO_SINK) {
        sinks_write(s->group->sinks, s->file, bytes);
    }
    if (s->to_console && console_stream_add(&s->console, bytes))
        s->group->bar(s->group->user, console_is_screen(&s->console));
    filtered_add(&s->filtered, bytes);
}

static void pipe_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Close the stream's pipe, if open, and print the unfinished line. `ended` is called last, because this callback may
 * free the stream. */
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
        pass_merged(s);
    }
    if (s->to_console)
        console_stream_finish(&s->console);
    filtered_finish(&s->filtered);
    s->group->ended(s->group->user);
}

/* Read at most `most` bytes that are in the pipe now. The limit is necessary, because a daemon of the worker may write
 * without end. The read of an empty pipe fails at once, because libuv has made the descriptor non-blocking. */
static void read_rest(struct stream *s, size_t most)
{
    size_t done = 0;
    ssize_t n;
    while (s->pipe != NULL && done < most &&
           (n = read(s->pipe->fd, s->group->chunk, STREAM_READ_BYTES)) > 0) {
        pass_bytes(s, slice_of(s->group->chunk, (size_t)n));
        done += (size_t)n;
    }
}

/* Read the bytes that are in the pipe now, without waiting. Then close the pipe. */
static void stream_end_with_rest(struct stream *s)
{
    read_rest(s, REST_BYTES);
    stream_end(s);
}

/* Return true if the queue of any sink of the stream is too long. `resume` is true if the stream is paused. For a
 * paused stream, return true until all queues are short again (see sinks_is_behind). */
static bool is_behind(const struct stream *s, bool resume)
{
    struct sinks *sinks = s->group->sinks;
    return (s->to_console && sinks_is_behind(sinks, s->console.sink, resume)) ||
           (s->file != STREAM_NO_SINK && sinks_is_behind(sinks, s->file, resume)) ||
           filtered_is_behind(&s->filtered, resume);
}

/* Return how many bytes on_readable reads at once. If many streams are open, the number is smaller. */
static size_t bite(const struct stream *s)
{
    const size_t each = TURN_BYTES / (size_t)s->group->open;
    return each > STREAM_READ_BYTES ? STREAM_READ_BYTES : each < BITE_MIN ? BITE_MIN : each;
}

/* Read one piece of the stream and queue the piece. Then pause the stream if the queue of a sink is too long. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status; /* read() reports the error */
    (void)events;
    struct stream *s = poll->data;
    ssize_t n = read(s->pipe->fd, s->group->chunk, bite(s));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        stream_end(s);
    if (n <= 0)
        return;
    pass_bytes(s, slice_of(s->group->chunk, (size_t)n));
    if (s->pipe != NULL && is_behind(s, false)) {
        s->paused = true;
        uv_poll_stop(poll);
    }
}

/* Resume a paused stream if the queues of its sinks are short again. This function is called for every stream
 * after every write, so the cheap checks come first. */
static void stream_resume(struct stream *s)
{
    if (s->pipe == NULL || !s->paused || is_behind(s, true))
        return;
    s->paused = false;
    uv_poll_start(&s->pipe->poll, UV_READABLE | UV_DISCONNECT, on_readable);
}

/* --- starting ------------------------------------------------------------------------------------------- */

/* Create a pipe and begin to read from it. Return the worker's end, or -1 when descriptors or memory are short. */
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

/* Return true if the worker inherits ddprun's stdout, so that the worker can detect a terminal. Only a single worker
 * without prefix and log file inherits stdout. If the job may have several nodes, ddprun reads the worker's lines to
 * detect hangs. Then the worker inherits stdout only if stdout is a terminal and --progress is not given. */
static bool inherits_stdout(const struct stream *s)
{
    if (s->which != STD_OUT || !s->to_console || !s->console.raw || s->file != STREAM_NO_SINK)
        return false;
    const struct plan *plan = s->console.console->plan;
    return plan->meeting.nnodes_max == 1 || (plan->cli->progress == NULL && isatty(STDOUT_FILENO) == 1);
}

/* Return the worker's descriptor, or -1 with the reason in `err`. stderr always passes through ddprun, because the
 * report quotes stderr. */
static int stream_open(struct stream *s, struct ddp_err *err)
{
    if (inherits_stdout(s))
        return STDOUT_FILENO;
    char remedy[FILES_REMEDY_MAX];
    int fd = open_pipe(s);
    if (fd < 0)
        ddp_fail(err, DDP_ERR_IO, "local rank %d: cannot create a pipe for the output: %s%s",
                 s->group->plan->workers[s->local_rank].local_rank, strerror(errno),
                 files_remedy(errno, remedy));
    return fd;
}

enum {
    UPDATE_MS = 1000,      /* interval between updates of a progress bar in a file or pipe */
    REDRAW_MS = 100,       /* interval between updates of a progress bar on a terminal */
    UNREAD_MS = 5000,      /* after the time limit of a drain, check_progress gives up the output or prints
                            * a warning if no sink accepts a byte for this time */
    WATCH_MS = 250,        /* interval between calls of check_progress */
    DISK_REPORT_MS = 5000, /* report a disk that has not answered for this time */
    DISK_CHECK_MS = 2000,
    REPORTED_FILES_MAX = 4
};

/* The output of all workers. Normal path: output_begin_attempt creates the files, output_open creates the pipes.
 * Streams are read, and their lines are queued. The threads of the writers write the lines and wake the loop
 * (on_progress). After a call of output_drain, check_idle calls `idle` when all pipes have ended and all bytes are
 * written.
 *
 * Failures:
 * - A sink is slower than the workers: the workers' streams wait.
 * - The reader of ddprun's stdout or stderr exits: ddprun closes the workers' pipes, so the workers get SIGPIPE.
 * - A disk is full: the user is warned once. The workers wait, or with --log_policy=drop output is lost.
 * - A process outside the job keeps a pipe open: the pipe is closed when the time limit of output_drain is over. */
struct output {
    struct output_options options;
    struct sinks *sinks;
    struct console console;
    struct stream_group group;
    struct stream *streams; /* stdout and stderr of each worker */
    struct tail *tails;     /* result of output_tails */
    struct wakeup progress;
    uv_timer_t update, drain, fold, disk;
    int open_handles;
    int files_reported;      /* how many warnings about log files were printed */
    bool draining, given_up; /* given_up: the drain does not wait for unwritten bytes */
    /* finishing: output_finish was called. finished_well: value of the parameter `well` of output_finish. */
    bool finishing, finished_well;
    bool waiting_reported;
    bool hung_reported;         /* the user was warned about a hanging disk */
    bool checking;              /* check_failures runs, so `idle` must not be called */
    uint64_t written, moved_ms; /* number of bytes written by all sinks, and when that number last changed */
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

/* Print the latest updates of progress bars. The timer runs only while a bar is active. */
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

/* Start the timer that prints folded lines, so that it expires in `us` microseconds. If the timer already expires
 * earlier, do not change the timer. Round `us` up to whole milliseconds, because a timer that expires before the line
 * is due would print nothing. */
static void on_fold_waits(void *user, uint64_t us)
{
    struct output *o = user;
    uint64_t ms = us / 1000 + 1;
    if (!uv_is_active((uv_handle_t *)&o->fold) || uv_timer_get_due_in(&o->fold) > ms)
        uv_timer_start(&o->fold, on_fold_time, ms, 0);
}

/* --- sinks ---------------------------------------------------------------------------------------------- */

/* End the streams of a sink without a reader, so that the workers get SIGPIPE. Streams with a log file stay open. */
static void console_is_closed(struct output *o, int sink)
{
    for (int i = 0; i < n_streams(o); i++) {
        struct stream *s = &o->streams[i];
        if (s->to_console && s->console.sink == sink && s->file == STREAM_NO_SINK)
            stream_end(s);
    }
}

/* Format the error of a sink. If the file system of the sink is full, add the free space or the quota. */
static const char *sink_error(const struct sink_event *e, char why[WRITE_ERROR_MAX])
{
    disk_begin(DISK_MAIN, e->name);
    path_error_text(e->error,
                    e->sink == SINK_STDOUT   ? "/proc/self/fd/1"
                    : e->sink == SINK_STDERR ? "/proc/self/fd/2"
                                             : e->name,
                    "", why);
    disk_end(DISK_MAIN);
    return why;
}

/* Print a message about a sink. If many log files fail, print only the first few messages. */
static void output_report_loss(struct output *o, const struct sink_event *e)
{
    static const char *const what[] = {
        [SINK_RECOVERED] = "can be written again",
        [SINK_MADE_AGAIN] = "was deleted, and was created again as an empty file",
        [SINK_DELETED] = "was deleted and cannot be created again; further output is lost",
        [SINK_NOT_ROTATED] = "cannot be renamed for the rotation; the file keeps growing"
    };
    char why[WRITE_ERROR_MAX];
    const bool waits = o->options.plan->cli->log_policy == LOG_BLOCK &&
                       (e->error == ENOSPC || e->error == EDQUOT) && !o->draining;
    if (e->sink >= SINK_FILES && ++o->files_reported > REPORTED_FILES_MAX) {
        if (o->files_reported == REPORTED_FILES_MAX + 1)
            output_note(o, "warning: further errors of log files are not reported");
    } else if (e->news != SINK_FAILED) {
        output_note(o, "%s%s %s", e->news == SINK_RECOVERED ? "" : "warning: ", e->name, what[e->news]);
    } else if (e->sink != SINK_STDERR || e->error == 0) {
        output_note(o, "warning: %s: cannot write: %s; %s", e->name,
                    e->error != 0 ? sink_error(e, why) : "the reader or the disk is slower than the workers",
                    e->error == EPIPE ? "workers that still write there get SIGPIPE"
                    : waits           ? "workers that write there wait for free space (--log_policy=block)"
                            : "ddprun drops this output until a write succeeds, and reports the number of "
                              "lost bytes at the end");
    }
}

/* Report the events of the sinks. console_is_closed may end the last stream, and `idle` may then close this output,
 * which frees the sinks. `checking` delays `idle` until all events are reported. */
static void check_failures(struct output *o)
{
    struct sink_event e;
    o->checking = true;
    while (sinks_next_event(o->sinks, &e)) {
        if (e.news == SINK_FAILED && e.error == EPIPE && e.sink < SINK_FILES)
            console_is_closed(o, e.sink);
        output_report_loss(o, &e);
    }
    o->checking = false;
}

/* Return true if the drain is complete: all pipes are closed, and all bytes are written or given up. */
static bool is_idle(const struct output *o)
{
    return o->draining && !o->checking && o->group.open == 0 && (o->given_up || sinks_empty(o->sinks));
}

/* Call `idle` once, when the drain is complete. Check the sinks before this call, because their last write may have
 * failed. Messages about such a failure must still be written. */
static void check_idle(struct output *o)
{
    if (is_idle(o))
        check_failures(o);
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
    check_idle(o);
}

/* Check all sinks and streams, because a wake-up does not name its sink, and the kernel may merge several wake-ups
 * into one. */
static void on_progress(void *user)
{
    struct output *o = user;
    check_failures(o);
    for (int i = 0; i < n_streams(o); i++)
        stream_resume(&o->streams[i]);
    check_idle(o);
}

/* Wake the loop. The threads of the writers call this function. */
static void wake_loop(void *user)
{
    const struct output *o = user;
    wakeup_ring(&o->progress);
}

/* Warn once if the disk of a log file does not answer, and report once that the disk answers again. */
static void on_disk_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    char path[DISK_PATH_MAX];
    const bool hung = disk_hangs(DISK_REPORT_MS, path);
    if (hung && !o->hung_reported)
        output_note(o,
                    "warning: %s: the file system has not answered for %d s; output is kept in "
                    "memory%s; press Ctrl-C twice to end the job without this output",
                    path, DISK_REPORT_MS / 1000,
                    o->options.plan->cli->log_policy == LOG_BLOCK
                        ? "; when the memory is used up, the workers wait (--log_policy=block)"
                        : "; when the memory is used up, output is lost (--log_policy=drop)");
    else if (!hung && o->hung_reported)
        output_note(o, "%s: the file system responds again",
                    o->options.plan->log_root != NULL ? o->options.plan->log_root : "log files");
    o->hung_reported = hung;
}

/* --- the object ----------------------------------------------------------------------------------------- */

/* Free the object when its last handle is closed. */
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

/* Initialize the handles before any step that can fail. So output_close() can close the handles in any case. */
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

/* Initialize the group. The streams are read one after the other, so they share one buffer. 512 separate buffers would
 * need 32 MiB. */
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

/* Start to fold lines if the user has requested folding. Events are not folded, because a program needs each
 * event. */
static bool fold_lines(struct output *o)
{
    const struct cli *cli = o->options.plan->cli;
    if (!cli->fold || cli->json || o->console.marks || o->options.plan->nproc == 1)
        return true;
    return console_fold(&o->console, on_fold_waits, o);
}

ddp_status output_new(const struct output_options *options, struct output **out, struct ddp_err *err)
{
    struct output *o = calloc(1, sizeof(*o));
    if (o == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "workers' output: cannot read: out of memory");
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
            uv_timer_start(&o->disk, on_disk_time, DISK_CHECK_MS, DISK_CHECK_MS);
        *out = o;
        return DDP_OK;
    }
    output_close(o);
    char remedy[FILES_REMEDY_MAX];
    return ddp_fail(err, DDP_ERR_NOMEM, "workers' output: cannot read: %s%s",
                    has_bell ? "out of memory" : "out of file descriptors",
                    files_remedy(has_bell ? 0 : EMFILE, remedy));
}

/* End and reset all streams. Close each pipe of the last attempt, even if a process outside the job still holds the
 * pipe open. */
void output_end_attempt(struct output *o)
{
    for (int i = 0; i < n_streams(o); i++) {
        stream_end_with_rest(&o->streams[i]);
        stream_free(&o->streams[i]);
        o->streams[i] = (struct stream){ 0 };
    }
    sinks_end_files(o->sinks);
}

ddp_status output_begin_attempt(struct output *o, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (int i = 0; i < n_streams(o) && status == DDP_OK; i++)
        status = stream_init(&o->streams[i], &o->group, i / 2, i % 2 == 0 ? STD_OUT : STD_ERR, err);
    return status;
}

/* Open both descriptors. After an error, close the descriptor that is already open. */
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

/* Close ddprun's copies of the worker's descriptors. While a copy is open, the pipe has no end of file, even after the
 * worker's exit. Descriptors 0 to 2 are ddprun's own and stay open. */
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

void output_write(struct output *o, const struct buf *lines)
{
    sinks_write(o->sinks, SINK_STDOUT, buf_slice(lines));
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* End all open streams. Read each pipe first, because the report needs the last lines. */
static void end_all(struct output *o)
{
    for (int i = 0; o->streams != NULL && i < n_streams(o); i++)
        stream_end_with_rest(&o->streams[i]);
}

/* Do nothing if a sink has accepted a byte in the last UNREAD_MS. Otherwise, after a successful job, print once that
 * ddprun waits for a reader, such as a pager, and wait without a limit. After a failure, or between two attempts, give
 * up the remaining bytes. */
static void check_progress(struct output *o)
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
    else if (!o->waiting_reported)
        output_note(o,
                    "all workers have ended, but %llu bytes of output wait for a reader; press Ctrl-C to "
                    "end the job without this output",
                    (unsigned long long)sinks_queued(o->sinks));
    o->waiting_reported = true;
    check_idle(o);
}

static void on_watch_time(uv_timer_t *timer)
{
    check_progress(timer->data);
}

/* Close pipes that are still open. At the end of the job, also stop waiting for a full disk. */
static void on_drain_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    end_all(o);
    if (!o->draining)
        return;
    if (o->finishing)
        sinks_wait_no_more(o->sinks);
    o->given_up = !(o->finishing && o->finished_well) && disk_hangs(DISK_HUNG_MS, NULL);
    check_idle(o);
    if (!o->draining)
        return;
    o->written = sinks_written(o->sinks);
    o->moved_ms = clock_ms();
    uv_timer_start(&o->drain, on_watch_time, WATCH_MS, WATCH_MS);
}

/* Record that the job ends, and whether the job was successful. The next drain depends on both facts. */
void output_finish(struct output *o, bool well)
{
    o->finishing = true;
    o->finished_well = well;
}

/* Start the drain. Usually all pipes have ended, and check_idle() completes the drain at once. The timer limits
 * the wait for pipes that another process holds open. */
void output_drain(struct output *o, uint64_t limit_ms)
{
    o->draining = true;
    o->given_up = o->waiting_reported = false;
    uv_timer_start(&o->drain, on_drain_time, limit_ms, 0);
    check_idle(o);
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
    if (inherits_stdout(stream_of(o, 0, which)))
        return NULL;
    struct tail *tails = o->tails + (which == STD_ERR ? nproc : 0);
    for (int i = 0; i < nproc; i++)
        tails[i] = stream_of(o, i, which)->tail; /* copies only the struct; the stream still owns the bytes */
    return tails;
}

const struct tail *output_last_lines(struct output *o, int local_rank)
{
    struct stream *s = stream_of(o, local_rank, STD_ERR);
    read_rest(s, PIPE_BYTES);
    return &s->tail;
}

/* Stop the threads before the handles are closed, because the threads wake the loop through a handle. */
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
