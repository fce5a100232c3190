/* output.c -- see output.h.
 *
 * Happy path: output_open makes a pipe -> the worker writes -> on_read cuts lines, queues them ->
 * the writer's thread writes, wakes the loop (on_progress) -> end of file -> the stream is closed
 * -> output_drain -> idle.
 *
 * It can go wrong when: a sink is slower than the workers (the stream stops reading until its queue
 * is short again); stdout or stderr is closed by its reader (the pipes behind it are closed, so the
 * workers get SIGPIPE, as if they had written there themselves); a disk is full (told once, the job
 * goes on); somebody outside the job holds a pipe open (given up after the drain time). */
#include "output.h"

#include "event_json.h"
#include "lines.h"
#include "logdir.h"
#include "sinks.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    READ_BYTES = 64 * 1024,
    HIGH_WATER = 4 << 20, /* bytes in a sink's queue that stop us reading */
    LOW_WATER = 1 << 20,  /* ... and let us go on */
    UPDATE_MS = 1000,     /* how often a progress bar becomes a line of a log */
    REDRAW_MS = 100,      /* ... and is drawn anew on a terminal */
    NO_SINK = -1
};

/* One of a worker's two streams. Every worker has both of them from the beginning, whether they
 * need a pipe or not: the report asks each for its last words. */
struct stream {
    struct output *o;
    uv_pipe_t pipe;
    bool open;   /* the handle lives */
    bool paused; /* not reading: a sink is behind */
    bool raw;    /* a single worker without prefix: bytes pass as they are, prompts and progress bars work */
    int local_rank, which; /* STD_OUT or STD_ERR */
    int console, file;     /* sinks, NO_SINK when it does not go there */
    struct line_row *row;  /* where its console lines appear */
    struct lines lines;
    char prefix[LINE_PREFIX_MAX];
    struct tail tail;
};

struct output {
    struct output_options options;
    struct sinks *sinks;
    struct stream *streams; /* two for each worker */
    struct tail *tails;     /* collected for output_tails */
    struct line_row screen; /* the terminal, where progress bars are drawn */
    struct line_row plain;  /* everything else */
    struct buf batch;       /* lines made from one read, so that they are queued at once */
    char *chunk;            /* what libuv reads into; used up within the callback */
    uv_async_t progress;
    uv_timer_t update, drain;
    int open_pipes, open_handles;
    bool draining, closing;
};

static int n_streams(const struct output *o)
{
    return 2 * o->options.plan->nproc;
}

static struct stream *stream_of(struct output *o, int local_rank, int which)
{
    return &o->streams[2 * local_rank + (which == STD_ERR)];
}

/* --- lines ---------------------------------------------------------------------------------------------- */

static uint64_t since_start(const struct output *o)
{
    return clock_ms() - o->options.started_ms;
}

/* A line becomes text, or an event, behind those of the same read. Writing each by itself would
 * cost a lock and a system call per line, and a worker that prints fast prints thousands of them. */
static void on_line(void *user, struct slice text, enum line_kind kind)
{
    struct stream *s = user;
    struct output *o = s->o;
    const struct plan *plan = o->options.plan;
    if (plan->cli->json)
        event_output(&o->batch, since_start(o), &plan->workers[s->local_rank], s->which, text, kind);
    else
        line_show(&o->batch, s->row, s->prefix, text, kind);
}

static void queue_batch(struct output *o, int sink)
{
    sinks_put(o->sinks, sink, buf_slice(&o->batch));
    o->batch.len = 0;
}

/* A progress bar writes many updates per second and no newline. One per second is enough for a log;
 * the last one before a newline or the end is never lost, lines.h keeps it. The timer runs only
 * while there is a bar. */
static void on_update_time(uv_timer_t *timer)
{
    struct output *o = timer->data;
    for (int i = 0; i < n_streams(o); i++)
        if (lines_show_update(&o->streams[i].lines))
            queue_batch(o, o->streams[i].console);
}

/* Three want the same bytes: the report (the last ones, even when nobody looked at the console), the
 * log file (exactly as they came, \r and all) and the console (whole lines). */
static void take_bytes(struct stream *s, struct slice bytes)
{
    struct output *o = s->o;
    tail_feed(&s->tail, bytes);
    if (s->file != NO_SINK)
        sinks_put(o->sinks, s->file, bytes);
    if (s->console == NO_SINK)
        return;
    if (s->raw) {
        sinks_put(o->sinks, s->console, bytes);
        return;
    }
    lines_feed(&s->lines, bytes);
    queue_batch(o, s->console);
    if (s->lines.update.len > 0 && !uv_is_active((uv_handle_t *)&o->update))
        uv_timer_start(&o->update, on_update_time, s->row->terminal ? REDRAW_MS : UPDATE_MS, 0);
}

/* --- streams -------------------------------------------------------------------------------------------- */

/* Idle is told once, from whatever came last: a pipe's end, or the writer's. */
static void look_for_failures(struct output *o);

/* A write may fail as the last thing that happens. So when all seems to be written we look for failures once more, and
 * what is said about them has to be written, too. */
static void look_for_idle(struct output *o)
{
    if (o->draining && o->open_pipes == 0 && sinks_empty(o->sinks))
        look_for_failures(o);
    if (!o->draining || o->open_pipes > 0 || !sinks_empty(o->sinks))
        return;
    o->draining = false;
    o->options.idle(o->options.user);
}

static void handle_closed(uv_handle_t *handle)
{
    struct output *o = handle->data;
    if (--o->open_handles > 0 || !o->closing)
        return;
    for (int i = 0; o->streams != NULL && i < n_streams(o); i++) {
        lines_free(&o->streams[i].lines);
        tail_free(&o->streams[i].tail);
    }
    free(o->streams);
    free(o->tails);
    free(o->chunk);
    buf_free(&o->batch);
    free(o);
}

static void pipe_closed(uv_handle_t *handle)
{
    struct stream *s = handle->data;
    struct output *o = s->o;
    handle->data = o;
    handle_closed(handle);
}

/* No more will be read. What was left without a newline goes out now. */
static void stream_end(struct stream *s)
{
    if (!s->open)
        return;
    s->open = false;
    s->o->open_pipes--;
    if (!s->raw && s->console != NO_SINK) {
        lines_finish(&s->lines);
        buf_printf(&s->o->batch, "%s", s->row == &s->o->screen ? line_row_wipe(s->row) : "");
        queue_batch(s->o, s->console);
    }
    uv_close((uv_handle_t *)&s->pipe, pipe_closed);
    look_for_idle(s->o);
}

/* A stream is as slow as the slower of its two sinks. The limit is for a sink's whole queue, not for a
 * stream's share: memory is what is bounded. */
static bool is_over(struct stream *s, uint64_t limit)
{
    struct sinks *sinks = s->o->sinks;
    return (s->console != NO_SINK && sinks_queued(sinks, s->console) > limit) ||
           (s->file != NO_SINK && sinks_queued(sinks, s->file) > limit);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    const struct stream *s = handle->data;
    *buf = uv_buf_init(s->o->chunk, READ_BYTES);
}

/* Reading stops before the next read, not in the middle of this one: what has come is taken. The
 * pipe then fills up and the worker waits in its write, as it would with a slow terminal of its
 * own. */
static void on_read(uv_stream_t *pipe, ssize_t n, const uv_buf_t *buf)
{
    struct stream *s = pipe->data;
    if (n < 0) {
        stream_end(s);
        return;
    }
    take_bytes(s, slice_of(buf->base, (size_t)n));
    if (is_over(s, HIGH_WATER)) {
        s->paused = true;
        uv_read_stop(pipe);
    }
}

static void resume(struct stream *s)
{
    if (!s->open || !s->paused || is_over(s, LOW_WATER))
        return;
    s->paused = false;
    uv_read_start((uv_stream_t *)&s->pipe, on_alloc, on_read);
}

/* --- sinks ---------------------------------------------------------------------------------------------- */

/* Nobody reads our stdout (stderr) any more: the workers shall know. Streams that a file wants are
 * read on. */
static void console_is_closed(struct output *o, int sink)
{
    for (int i = 0; i < n_streams(o); i++) {
        struct stream *s = &o->streams[i];
        if (s->console == sink && s->file == NO_SINK)
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

static void on_progress(uv_async_t *async)
{
    struct output *o = async->data;
    look_for_failures(o);
    for (int i = 0; i < n_streams(o); i++)
        resume(&o->streams[i]);
    look_for_idle(o);
}

/* On the writer's thread. */
static void wake_loop(void *user)
{
    struct output *o = user;
    uv_async_send(&o->progress);
}

/* --- starting ------------------------------------------------------------------------------------------- */

/* Can the cursor be moved there? */
static bool is_screen(const struct plan *plan, int fd)
{
    const char *term = env_find(plan->facts->environ_block, "TERM");
    return term != NULL && strcmp(term, "dumb") != 0 && isatty(fd);
}

/* NO_COLOR is the convention of no-color.org: set and not empty means none. */
static bool has_colour(const struct plan *plan, int fd)
{
    const char *no_color = env_find(plan->facts->environ_block, "NO_COLOR");
    return (no_color == NULL || *no_color == '\0') && is_screen(plan, fd);
}

static const struct plan_stream *planned(const struct plan_worker *w, int which)
{
    return which == STD_OUT ? &w->out : &w->err;
}

/* A file is a sink here only when a console is one too; a worker that writes to a file alone does
 * so without us. */
static ddp_status stream_init(struct stream *s, struct output *o, int local_rank, int which, bool colour,
                              struct ddp_err *err)
{
    const struct plan *plan = o->options.plan;
    const struct plan_stream *to = planned(&plan->workers[local_rank], which);
    *s = (struct stream){
        .o = o, .local_rank = local_rank, .which = which, .console = NO_SINK, .file = NO_SINK
    };
    s->row = is_screen(plan, which == STD_OUT ? STDOUT_FILENO : STDERR_FILENO) ? &o->screen : &o->plain;
    s->raw = plan->nproc == 1 && !plan->prefix && !plan->cli->json;
    lines_init(&s->lines, on_line, s, LINES_LIMIT);
    if (plan->prefix)
        line_prefix(s->prefix, plan->workers[local_rank].rank, colour);
    if (to->console)
        s->console = which == STD_OUT || plan->cli->json ? SINK_STDOUT : SINK_STDERR;
    if (to->console && to->file != NULL && (s->file = sinks_add_file(o->sinks, to->file, err)) < 0)
        return err->code;
    return DDP_OK;
}

static void init_handles(struct output *o)
{
    uv_loop_t *loop = o->options.loop;
    uv_async_init(loop, &o->progress, on_progress);
    uv_timer_init(loop, &o->update);
    uv_timer_init(loop, &o->drain);
    o->progress.data = o->update.data = o->drain.data = o;
    o->open_handles = 3;
}

ddp_status output_new(const struct output_options *options, struct output **out, struct ddp_err *err)
{
    struct output *o = calloc(1, sizeof(*o));
    if (o == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the workers' output");
    o->options = *options;
    o->screen.terminal = true;
    init_handles(o);
    const size_t n = (size_t)n_streams(o);
    o->streams = calloc(n, sizeof(*o->streams));
    o->tails = calloc(n, sizeof(*o->tails));
    o->chunk = malloc(READ_BYTES);
    o->sinks = sinks_new(wake_loop, o);
    ddp_status status = DDP_OK;
    if (o->streams == NULL || o->tails == NULL || o->chunk == NULL || o->sinks == NULL)
        status = ddp_fail(err, DDP_ERR_NOMEM, "no memory for the workers' output");
    const bool colour[2] = { has_colour(options->plan, STDOUT_FILENO),
                             has_colour(options->plan, STDERR_FILENO) };
    for (size_t i = 0; i < n && status == DDP_OK; i++)
        status =
            stream_init(&o->streams[i], o, (int)i / 2, i % 2 == 0 ? STD_OUT : STD_ERR, colour[i % 2], err);
    if (status == DDP_OK)
        *out = o;
    else
        output_close(o);
    return status;
}

/* A pipe that we read; returns the worker's end, -1 when descriptors are short. */
static int open_pipe(struct stream *s)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    struct output *o = s->o;
    uv_pipe_init(o->options.loop, &s->pipe, 0);
    s->pipe.data = s;
    uv_pipe_open(&s->pipe, ends[0]);
    uv_read_start((uv_stream_t *)&s->pipe, on_alloc, on_read);
    s->open = true;
    o->open_pipes++;
    o->open_handles++;
    return ends[1];
}

/* What the worker gets as its descriptor. A single worker gets our own stdout: it then knows a
 * terminal when it has one. Its stderr comes through us all the same, for the report's sake. */
static int open_stream(struct stream *s, struct ddp_err *err)
{
    const struct plan_stream *to = planned(&s->o->options.plan->workers[s->local_rank], s->which);
    if (!to->console)
        return logdir_create(to->file, err);
    if (s->raw && s->which == STD_OUT && s->file == NO_SINK)
        return STDOUT_FILENO;
    int fd = open_pipe(s);
    if (fd < 0)
        ddp_fail(err, DDP_ERR_IO, "cannot make a pipe for the output of local rank %d: %s%s", s->local_rank,
                 strerror(errno), errno == EMFILE ? "; raise the limit with 'ulimit -n'" : "");
    return fd;
}

ddp_status output_open(struct output *o, int local_rank, int fds[2], struct ddp_err *err)
{
    fds[1] = -1;
    fds[0] = open_stream(stream_of(o, local_rank, STD_OUT), err);
    if (fds[0] >= 0)
        fds[1] = open_stream(stream_of(o, local_rank, STD_ERR), err);
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

/* --- our own words -------------------------------------------------------------------------------------- */

void output_note(struct output *o, const char *fmt, ...)
{
    struct buf out = { 0 };
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    const bool json = o->options.plan->cli->json;
    if (json)
        event_note(&out, since_start(o), text);
    else
        buf_printf(&out, "%sddprun: %s\n", line_row_wipe(&o->screen), text);
    sinks_put(o->sinks, json ? SINK_STDOUT : SINK_STDERR, buf_slice(&out));
    buf_free(&out);
}

void output_put(struct output *o, const struct buf *lines)
{
    sinks_put(o->sinks, SINK_STDOUT, buf_slice(lines));
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* That is for pipes that somebody outside the job keeps open. What has not been read yet is lost here: after the drain time, or when ddprun ends early. */
static void end_all(struct output *o)
{
    for (int i = 0; i < n_streams(o); i++)
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

/* The end of a file that a worker has written itself. */
static void tail_of_file(struct tail *t, const char *path)
{
    char bytes[TAIL_BYTES / 4];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    off_t size = lseek(fd, 0, SEEK_END);
    lseek(fd, size > TAIL_BYTES ? size - TAIL_BYTES : 0, SEEK_SET);
    for (ssize_t n; (n = read(fd, bytes, sizeof(bytes))) > 0;)
        tail_feed(t, slice_of(bytes, (size_t)n));
    close(fd);
}

const struct tail *output_tails(struct output *o, int stream)
{
    const int nproc = o->options.plan->nproc;
    struct tail *tails = o->tails + (stream == STD_ERR ? nproc : 0);
    for (int i = 0; i < nproc; i++) {
        struct stream *s = stream_of(o, i, stream);
        const struct plan_stream *to = planned(&o->options.plan->workers[i], stream);
        if (!to->console && to->file != NULL && s->tail.len == 0)
            tail_of_file(&s->tail, to->file);
        tails[i] = s->tail; /* a view: the stream keeps the memory */
    }
    return tails;
}

void output_close(struct output *o)
{
    if (o == NULL)
        return;
    o->draining = false;
    o->closing = true;
    if (o->streams != NULL)
        end_all(o);
    sinks_free(o->sinks);
    o->sinks = NULL;
    uv_close((uv_handle_t *)&o->progress, handle_closed);
    uv_close((uv_handle_t *)&o->update, handle_closed);
    uv_close((uv_handle_t *)&o->drain, handle_closed);
}
