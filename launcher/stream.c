/* stream.c -- see stream.h.
 *
 * Three want the same bytes: the report (the last ones, even when nobody looked at the console), the
 * log file (exactly as they came, \r and all) and the console (whole lines).
 *
 * Happy path: stream_open makes a pipe -> the worker writes -> on_read -> tail, file, console -> end of
 * file -> stream_end. A sink that is slower than the worker stops the reading until its queue is short
 * again. The pipe's handle lives on its own until libuv has closed it, so that the next attempt may open
 * the stream again at once. */
#include "stream.h"

#include "logdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    HIGH_WATER = 4 << 20, /* bytes in a sink's queue that stop us reading */
    LOW_WATER = 1 << 20   /* ... and let us go on */
};

static const struct plan_stream *planned(const struct stream *s)
{
    const struct plan_worker *w = &s->group->plan->workers[s->local_rank];
    return s->which == STD_OUT ? &w->out : &w->err;
}

/* A file is a sink here only when a console is one too; a worker that writes to a file alone does
 * so without us. */
ddp_status stream_init(struct stream *s, struct stream_group *group, int local_rank, int which,
                       struct ddp_err *err)
{
    *s = (struct stream){ .group = group, .local_rank = local_rank, .which = which, .file = STREAM_NO_SINK };
    const struct plan_stream *to = planned(s);
    s->to_console = to->console;
    console_stream_init(&s->console, group->console, local_rank, which);
    if (to->console && to->file != NULL && (s->file = sinks_add_file(group->sinks, to->file, err)) < 0)
        return err->code;
    return DDP_OK;
}

void stream_free(struct stream *s)
{
    console_stream_free(&s->console);
    tail_free(&s->tail);
}

/* --- reading -------------------------------------------------------------------------------------------- */

static void take_bytes(struct stream *s, struct slice bytes)
{
    tail_feed(&s->tail, bytes);
    if (s->file != STREAM_NO_SINK)
        sinks_put(s->group->sinks, s->file, bytes);
    if (s->to_console && console_stream_feed(&s->console, bytes))
        s->group->bar(s->group->user, console_is_screen(&s->console));
}

static void pipe_closed(uv_handle_t *handle)
{
    free(handle);
}

void stream_end(struct stream *s)
{
    if (s->pipe == NULL)
        return;
    uv_close((uv_handle_t *)s->pipe, pipe_closed);
    s->pipe = NULL;
    s->group->open--;
    if (s->to_console)
        console_stream_finish(&s->console);
    s->group->ended(s->group->user);
}

/* A stream is as slow as the slower of its two sinks. The limit is for a sink's whole queue, not for a
 * stream's share: memory is what is bounded. */
static bool is_over(const struct stream *s, uint64_t limit)
{
    struct sinks *sinks = s->group->sinks;
    return (s->to_console && sinks_queued(sinks, s->console.sink) > limit) ||
           (s->file != STREAM_NO_SINK && sinks_queued(sinks, s->file) > limit);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    const struct stream *s = handle->data;
    *buf = uv_buf_init(s->group->chunk, STREAM_READ_BYTES);
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

void stream_resume(struct stream *s)
{
    if (s->pipe == NULL || !s->paused || is_over(s, LOW_WATER))
        return;
    s->paused = false;
    uv_read_start((uv_stream_t *)s->pipe, on_alloc, on_read);
}

/* --- starting ------------------------------------------------------------------------------------------- */

/* A pipe that we read; returns the worker's end, -1 when descriptors or memory are short. */
static int open_pipe(struct stream *s)
{
    int ends[2];
    uv_pipe_t *pipe = malloc(sizeof(*pipe));
    if (pipe == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        free(pipe);
        return -1;
    }
    uv_pipe_init(s->group->loop, pipe, 0);
    pipe->data = s;
    uv_pipe_open(pipe, ends[0]);
    uv_read_start((uv_stream_t *)pipe, on_alloc, on_read);
    s->pipe = pipe;
    s->paused = false;
    s->group->open++;
    return ends[1];
}

/* A single worker gets our own stdout: it then knows a terminal when it has one. Its stderr comes
 * through us all the same, for the report's sake. */
int stream_open(struct stream *s, struct ddp_err *err)
{
    if (!s->to_console && planned(s)->file != NULL)
        return logdir_create(planned(s)->file, err);
    if (s->to_console && s->console.raw && s->which == STD_OUT && s->file == STREAM_NO_SINK)
        return STDOUT_FILENO;
    int fd = open_pipe(s);
    if (fd < 0)
        ddp_fail(err, DDP_ERR_IO, "cannot make a pipe for the output of local rank %d: %s%s", s->local_rank,
                 strerror(errno), errno == EMFILE ? "; raise the limit with 'ulimit -n'" : "");
    return fd;
}

/* --- last words ----------------------------------------------------------------------------------------- */

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

struct tail stream_tail(struct stream *s)
{
    const struct plan_stream *to = s->group != NULL ? planned(s) : NULL;
    if (to != NULL && !to->console && to->file != NULL && s->tail.len == 0)
        tail_of_file(&s->tail, to->file);
    return s->tail;
}
