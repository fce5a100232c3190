/* console.h -- the workers' streams on stdout and stderr: whole lines, each with its prefix, or with --json an event
 * per line.
 *
 * `struct console` is the state that all streams share. A `struct console_stream` cuts the bytes of one stream into
 * lines. All lines of a read are queued in one piece. A row is the last line of a terminal, on which progress bars
 * are drawn. A sink (log_files.h) is a target of output. */
#ifndef LAUNCHER_CONSOLE_H
#define LAUNCHER_CONSOLE_H

#include "output/lines.h"
#include "output/log_files.h"
#include "plan/plan.h"

#include <sys/types.h>

struct console {
    const struct plan *plan; /* borrowed, as are the sinks */
    struct sinks *sinks;
    uint64_t started_ms;      /* start time, zero of the times in events */
    bool colour[2];           /* on stdout, on stderr */
    struct line_row screen;   /* the terminal, where progress bars are drawn */
    struct line_row dumb;     /* a terminal that cannot move its cursor */
    struct line_row plain;    /* files and pipes */
    struct line_row *rows[2]; /* rows of stdout and stderr; each points to one of the three rows above */
    bool midline;             /* a single worker's stderr, passed through unchanged, is within a line */
    struct buf batch;         /* lines made from one read, queued together */
    size_t held;              /* bytes in unfinished lines of all streams */
    struct console_fold { /* --fold: lines on stdout and stderr that wait for equal lines of other ranks */
        struct console *console;
        struct fold *fold; /* NULL when lines are not folded */
        int sink;
        struct line_row *row;
        struct buf prefix;
    } folds[2];
    void (*waits)(void *user, uint64_t us); /* requests a call of console_fold_time after `us` */
    void *user;
};

/* One of a worker's two streams. */
struct console_stream {
    struct console *console;
    int local_rank, which; /* STD_OUT or STD_ERR */
    int sink;              /* SINK_STDOUT or SINK_STDERR */
    bool raw; /* a single worker without prefix: bytes are passed on unchanged, for prompts and bars */
    struct line_row *row; /* the row on which its lines are printed */
    struct lines lines;
    size_t held;         /* bytes of the unfinished line, a part of the console's sum */
    pid_t pid;           /* 0 = not started */
    struct line_time at; /* time of the latest read */
    struct buf prefix;
    bool has_prefix; /* the prefix is formatted for this worker */
};

void console_init(struct console *c, const struct plan *plan, struct sinks *sinks, uint64_t started_ms);
void console_free(struct console *c);

/* Fold lines from now on. `waits` requests a call of console_fold_time. False when memory is short. */
bool console_fold(struct console *c, void (*waits)(void *user, uint64_t us), void *user);

/* Print the waiting lines that are due. */
void console_fold_time(struct console *c);

/* Print all waiting lines. */
void console_fold_finish(struct console *c);

/* Print a message of ddprun: "ddprun: ..." on stderr, or an event, never within a worker's line. */
void console_note(struct console *c, const char *text);

/* Return true if bars are drawn on a row of this console. Return false if each update becomes a line. */
bool console_is_screen(const struct console_stream *s);

/* Initialize the stream of one attempt; allowed again for the next attempt, after console_stream_free. */
void console_stream_init(struct console_stream *s, struct console *c, int local_rank, int which);
void console_stream_free(struct console_stream *s);

/* Record the pid of the worker, for the prefix of its lines. */
void console_stream_started(struct console_stream *s, pid_t pid);

/* Process bytes as they were read. Return true if a progress bar needs a later call of console_stream_update. */
bool console_stream_feed(struct console_stream *s, struct slice bytes);

/* Print the latest update of a progress bar, if it was not printed yet. */
void console_stream_update(struct console_stream *s);

/* Print the rest of a line without newline, because the stream has ended. */
void console_stream_finish(struct console_stream *s);

#endif
