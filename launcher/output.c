/* output.c -- see output.h.
 *
 * Happy path: output_attempt makes the files -> output_open makes pipes -> streams are read, lines queued
 * -> the writer's thread writes, wakes the loop (on_progress) -> end of file -> output_drain -> idle.
 *
 * It can go wrong when: a sink is slower than the workers (their streams wait, see stream.c); stdout or
 * stderr is closed by its reader (the pipes behind it are closed, so the workers get SIGPIPE, as if they
 * had written there themselves); a disk is full (told once, the job goes on); somebody outside the job
 * holds a pipe open (given up after the drain time). */
#include "output.h"

#include "logdir.h"
#include "stream.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    UPDATE_MS = 1000, /* how often a progress bar becomes a line of a log */
    REDRAW_MS = 100   /* ... and is drawn anew on a terminal */
};

struct output {
    struct output_options options;
    struct sinks *sinks;
    struct console console;
    struct stream_group group;
    struct stream *streams; /* two for each worker */
    struct tail *tails;     /* collected for output_tails */
    uv_async_t progress;
    uv_timer_t update, drain, fold;
    int open_handles;
    bool draining;
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

/* A progress bar writes many updates per second and no newline. One per second is enough for a log;
 * the last one before a newline or the end is never lost, lines.h keeps it. The timer runs only
 * while there is a bar. */
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

/* Rounded up: a timer that is early would have to run twice. The other console's lines may be due before. */
static void on_fold_waits(void *user, uint64_t us)
{
    struct output *o = user;
    uint64_t ms = us / 1000 + 1;
    if (!uv_is_active((uv_handle_t *)&o->fold) || uv_timer_get_due_in(&o->fold) > ms)
        uv_timer_start(&o->fold, on_fold_time, ms, 0);
}

/* --- sinks ---------------------------------------------------------------------------------------------- */

/* Nobody reads our stdout (stderr) any more: the workers shall know. Streams that a file wants are
 * read on. */
static void console_is_closed(struct output *o, int sink)
{
    for (int i = 0; i < n_streams(o); i++) {
        struct stream *s = &o->streams[i];
        if (s->to_console && s->console.sink == sink && s->file == STREAM_NO_SINK)
            stream_end(s);
    }
}

static void look_for_failures(struct output *o)
{
    const char *name;
    int error;
    for (int sink; (sink = sinks_next_failed(o->sinks, &name, &error)) >= 0;) {
        if (error == EPIPE && sink < SINK_FILES)
            console_is_closed(o, sink);
        if (sink != SINK_STDERR)
            output_note(o, "warning: cannot write %s: %s; %s", name, strerror(error),
                        error == EPIPE ? "its reader is gone, and workers that write on get SIGPIPE"
                                       : "what comes for it is lost from here on");
    }
}

static bool is_idle(const struct output *o)
{
    return o->draining && o->group.open == 0 && sinks_empty(o->sinks);
}

/* Idle is told once, from whatever came last: a pipe's end, or the writer's. A write may fail as the last
 * thing that happens. So when all seems to be written we look for failures once more, and what is said
 * about them has to be written, too. */
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

static void on_progress(uv_async_t *async)
{
    struct output *o = async->data;
    look_for_failures(o);
    for (int i = 0; i < n_streams(o); i++)
        stream_resume(&o->streams[i]);
    look_for_idle(o);
}

/* On the writer's thread. */
static void wake_loop(void *user)
{
    struct output *o = user;
    uv_async_send(&o->progress);
}

/* --- the object ----------------------------------------------------------------------------------------- */

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
    console_free(&o->console);
    free(o);
}

static void init_handles(struct output *o)
{
    uv_loop_t *loop = o->options.loop;
    uv_async_init(loop, &o->progress, on_progress);
    uv_timer_init(loop, &o->update);
    uv_timer_init(loop, &o->drain);
    uv_timer_init(loop, &o->fold);
    o->progress.data = o->update.data = o->drain.data = o->fold.data = o;
    o->open_handles = 4;
}

static void init_group(struct output *o)
{
    o->group = (struct stream_group){ .loop = o->options.loop,
                                      .plan = o->options.plan,
                                      .sinks = o->sinks,
                                      .console = &o->console,
                                      .chunk = malloc(STREAM_READ_BYTES),
                                      .ended = on_stream_ended,
                                      .bar = on_bar,
                                      .user = o };
}

/* Events are for programs, which want each; one worker has nobody to share a line with. */
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
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the workers' output");
    o->options = *options;
    init_handles(o);
    o->sinks = sinks_new(wake_loop, o);
    console_init(&o->console, options->plan, o->sinks, options->started_ms);
    init_group(o);
    const size_t n = (size_t)n_streams(o);
    o->streams = calloc(n, sizeof(*o->streams));
    o->tails = calloc(n, sizeof(*o->tails));
    if (o->streams != NULL && o->tails != NULL && o->group.chunk != NULL && o->sinks != NULL &&
        fold_lines(o)) {
        *out = o;
        return DDP_OK;
    }
    output_close(o);
    return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the workers' output");
}

/* Pipes that somebody outside the job still holds are given up: they belong to an attempt that is over. */
static void forget_attempt(struct output *o)
{
    for (int i = 0; i < n_streams(o); i++) {
        stream_end(&o->streams[i]);
        stream_free(&o->streams[i]);
        o->streams[i] = (struct stream){ 0 };
    }
    sinks_end_files(o->sinks);
}

ddp_status output_attempt(struct output *o, int attempt, struct ddp_err *err)
{
    forget_attempt(o);
    ddp_status status = plan_attempt(o->options.plan, attempt, err);
    if (status == DDP_OK)
        status = logdir_attempt(o->options.plan, err);
    for (int i = 0; i < n_streams(o) && status == DDP_OK; i++)
        status = stream_init(&o->streams[i], &o->group, i / 2, i % 2 == 0 ? STD_OUT : STD_ERR, err);
    return status;
}

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

/* That is for pipes that somebody outside the job keeps open. What has not been read yet is lost here:
 * after the drain time, or when ddprun ends early. */
static void end_all(struct output *o)
{
    for (int i = 0; o->streams != NULL && i < n_streams(o); i++)
        stream_end(&o->streams[i]);
}

static void on_drain_time(uv_timer_t *timer)
{
    end_all(timer->data);
}

void output_drain(struct output *o, uint64_t limit_ms)
{
    o->draining = true;
    uv_timer_start(&o->drain, on_drain_time, limit_ms, 0);
    look_for_idle(o);
}

const struct tail *output_tails(struct output *o, int which)
{
    const int nproc = o->options.plan->nproc;
    struct tail *tails = o->tails + (which == STD_ERR ? nproc : 0);
    for (int i = 0; i < nproc; i++)
        tails[i] = stream_tail(stream_of(o, i, which));
    return tails;
}

void output_close(struct output *o)
{
    if (o == NULL)
        return;
    o->draining = false;
    end_all(o);
    sinks_free(o->sinks);
    o->sinks = NULL;
    uv_close((uv_handle_t *)&o->progress, handle_closed);
    uv_close((uv_handle_t *)&o->update, handle_closed);
    uv_close((uv_handle_t *)&o->drain, handle_closed);
    uv_close((uv_handle_t *)&o->fold, handle_closed);
}
