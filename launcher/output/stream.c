/* stream.c -- see stream.h.
 *
 * Three want the same bytes: the report (the last ones, even when nobody looked at the console), the
 * log file (exactly as they came, \r and all) and the console (whole lines).
 *
 * Happy path: stream_open makes a pipe -> the worker writes -> on_readable -> tail, file, console -> end of
 * file -> stream_end. A sink that is slower than the worker stops the reading until its queue is short
 * again; the pipe then fills up and the worker waits in its write, as it would with a slow terminal of its own.
 *
 * We read ourselves instead of letting libuv do it, because a turn of the loop must take one bite from each
 * stream: a worker that writes without pause would keep the others waiting otherwise. The handle lives on its own
 * until libuv has closed it, so that the next attempt may open the stream again at once. */
#include "output/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    TURN_BYTES = 1 << 20, /* what all streams together may take in one turn of the loop */
    BITE_MIN = 8 * 1024,  /* ... and the least that one gets of it */
    PIPE_BYTES = 1 << 16, /* what a pipe holds */
    REST_BYTES = 1 << 20  /* read at the end: a full pipe, but not what a daemon goes on to write */
};

/* Our end of a pipe. */
struct stream_pipe {
    uv_poll_t poll;
    int fd;
};

static const struct plan_stream *planned(const struct stream *s)
{
    const struct plan_worker *w = &s->group->plan->workers[s->local_rank];
    return s->which == STD_OUT ? &w->out : &w->err;
}

/* The file may be there already when the pattern gives several streams the same name. */
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

ddp_status stream_init(struct stream *s, struct stream_group *group, int local_rank, int which,
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

void stream_free(struct stream *s)
{
    console_stream_free(&s->console);
    merge_free(&s->merge);
    filtered_free(&s->filtered);
    tail_free(&s->tail);
}

/* --- reading -------------------------------------------------------------------------------------------- */

/* With the merge done at once, `merged` is empty between two reads and can be one buffer for all streams. */
static void put_merged(struct stream *s)
{
    sinks_put(s->group->sinks, s->file, buf_slice(&s->group->merged));
    s->group->merged.len = 0;
}

/* The tail first: it is what the report is made of, and nothing that a sink does may keep bytes from it. The console
 * before the chosen lines, which get the time that it has looked at. */
static void take_bytes(struct stream *s, struct slice bytes)
{
    tail_feed(&s->tail, bytes);
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

/* The owner hears of it last, when everything that the stream knew has been handed on: it may look for the end of
 * all. */
void stream_end(struct stream *s)
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

/* A limit, because a daemon that the worker left behind may write for ever. Our end never blocks (libuv sees to
 * that), so the reading stops where the pipe is empty. */
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

void stream_end_with_rest(struct stream *s)
{
    take_rest(s, REST_BYTES);
    stream_end(s);
}

void stream_catch_up(struct stream *s)
{
    take_rest(s, PIPE_BYTES);
}

/* A stream is as slow as the slower of its two sinks. */
static bool is_behind(const struct stream *s, bool resume)
{
    struct sinks *sinks = s->group->sinks;
    return (s->to_console && sinks_is_behind(sinks, s->console.sink, resume)) ||
           (s->file != STREAM_NO_SINK && sinks_is_behind(sinks, s->file, resume)) ||
           filtered_is_behind(&s->filtered, resume);
}

/* One bite; it is smaller where many are served. */
static size_t bite(const struct stream *s)
{
    const size_t each = TURN_BYTES / (size_t)s->group->open;
    return each > STREAM_READ_BYTES ? STREAM_READ_BYTES : each < BITE_MIN ? BITE_MIN : each;
}

/* Reading stops before the next read, not in the middle of this one: what has come is taken. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status; /* an error shows in the read */
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

/* Called for all streams whenever a sink has made progress; most are not paused, and that is the first look. */
void stream_resume(struct stream *s)
{
    if (s->pipe == NULL || !s->paused || is_behind(s, true))
        return;
    s->paused = false;
    uv_poll_start(&s->pipe->poll, UV_READABLE | UV_DISCONNECT, on_readable);
}

/* --- starting ------------------------------------------------------------------------------------------- */

/* A pipe that we read; returns the worker's end, -1 when descriptors or memory are short. */
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

/* A single worker gets our own stdout: it then knows a terminal when it has one. Its stderr comes
 * through us all the same, for the report's sake. */
int stream_open(struct stream *s, struct ddp_err *err)
{
    if (s->to_console && s->console.raw && s->which == STD_OUT && s->file == STREAM_NO_SINK)
        return STDOUT_FILENO;
    int fd = open_pipe(s);
    if (fd < 0)
        ddp_fail(err, DDP_ERR_IO, "cannot make a pipe for the output of local rank %d: %s%s", s->local_rank,
                 strerror(errno), errno == EMFILE ? "; raise the limit with 'ulimit -n'" : "");
    return fd;
}
