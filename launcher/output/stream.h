/* stream.h -- one of a worker's two streams: its pipe, and who wants the bytes.
 *
 * Every worker has both streams from the beginning, whether they need a pipe or not: the report asks
 * each for its last words. */
#ifndef LAUNCHER_STREAM_H
#define LAUNCHER_STREAM_H

#include "lines/merge.h"
#include "lines/tail.h"
#include "output/console.h"
#include "output/filtered.h"

#include <uv.h>

/* What the streams of one node share. Owned by output.c, which gives all of it. */
struct stream_group {
    uv_loop_t *loop;
    const struct plan *plan;
    struct sinks *sinks;
    struct console *console;
    char *chunk;                      /* STREAM_READ_BYTES to read into; used up within the callback */
    struct buf merged;                /* lines for a shared file, made from one read */
    int open;                         /* pipes that are still read */
    void (*ended)(void *);            /* one of them is not any more */
    void (*bar)(void *, bool screen); /* a progress bar waits to be shown */
    void *user;
};

enum { STREAM_READ_BYTES = 64 * 1024, STREAM_NO_SINK = -1 };

struct stream_pipe;

struct stream {
    struct stream_group *group;
    struct stream_pipe *pipe; /* NULL when there is none to read from */
    bool paused;              /* not reading: a sink is behind */
    int local_rank, which;    /* STD_OUT or STD_ERR */
    bool to_console;
    int file;    /* sink of its log file, STREAM_NO_SINK when it has none */
    bool shared; /* ... which other streams write to */
    struct merge merge;
    struct console_stream console;
    struct filtered filtered;
    struct tail tail;
};

/* A stream of a new attempt, with its log file. Free with stream_free also after an error. */
ddp_status stream_init(struct stream *s, struct stream_group *group, int local_rank, int which,
                       struct ddp_err *err);
void stream_free(struct stream *s);

/* What the worker gets as its descriptor; -1: err says why. */
int stream_open(struct stream *s, struct ddp_err *err);

/* No more will be read. Does nothing on one that is not open. */
void stream_end(struct stream *s);

/* The same, after what has come and was not read yet, as far as it goes without waiting. */
void stream_end_with_rest(struct stream *s);

/* Take what has come and was not read yet, as far as it goes without waiting, and go on. */
void stream_catch_up(struct stream *s);

/* Read again, if it was stopped for a slow sink that is not behind any more. */
void stream_resume(struct stream *s);

#endif
