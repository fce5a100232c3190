/* console.h -- the workers' streams on stdout and stderr: whole lines, each with its prefix, or in --json an
 * event per line.
 *
 * `struct console` is what all streams share, `struct console_stream` is one of them: it cuts lines, and they
 * are queued once per read, in one piece. */
#ifndef LAUNCHER_CONSOLE_H
#define LAUNCHER_CONSOLE_H

#include "output/lines.h"
#include "output/log_files.h"
#include "plan/plan.h"

#include <sys/types.h>

struct console {
    const struct plan *plan; /* borrowed, as are the sinks */
    struct sinks *sinks;
    uint64_t started_ms;      /* zero of the times in events */
    bool colour[2];           /* on stdout, on stderr */
    struct line_row screen;   /* the terminal, where progress bars are drawn */
    struct line_row dumb;     /* a terminal that cannot move its cursor */
    struct line_row plain;    /* everything else */
    struct line_row *rows[2]; /* one of these for stdout, one for stderr */
    bool midline;             /* a single worker's stderr, passed on as it is, stands within a line */
    struct buf batch;         /* lines made from one read, so that they are queued at once */
    size_t held;              /* bytes in unfinished lines of all streams */
    struct console_fold {     /* --fold: lines that wait for others, on stdout and stderr */
        struct console *console;
        struct fold *fold; /* NULL when lines are not folded */
        int sink;
        struct line_row *row;
        struct buf prefix;
    } folds[2];
    void (*waits)(void *user, uint64_t us); /* call console_fold_time then */
    void *user;
};

/* One of a worker's two streams, as far as the console sees it. */
struct console_stream {
    struct console *console;
    int local_rank, which; /* STD_OUT or STD_ERR */
    int sink;              /* SINK_STDOUT or SINK_STDERR */
    bool raw; /* a single worker without prefix: bytes pass as they are, prompts and progress bars work */
    struct line_row *row; /* where its lines appear */
    struct lines lines;
    size_t held;         /* of its unfinished line, as it counts in the console's sum */
    pid_t pid;           /* 0 = not started */
    struct line_time at; /* of the latest read */
    struct buf prefix;
    bool has_prefix; /* it was made for this worker */
};

void console_init(struct console *c, const struct plan *plan, struct sinks *sinks, uint64_t started_ms);
void console_free(struct console *c);

/* Fold lines from now on. `waits` asks for a call of console_fold_time. False when memory is short. */
bool console_fold(struct console *c, void (*waits)(void *user, uint64_t us), void *user);

/* Show the lines that no rank joined in time / all waiting lines. */
void console_fold_time(struct console *c);
void console_fold_finish(struct console *c);

/* A message of ddprun: "ddprun: ..." on stderr, or an event. It never tears a worker's line. */
void console_note(struct console *c, const char *text);

/* Does this console have a row on which bars are drawn, or does each update become a line? */
bool console_is_screen(const struct console_stream *s);

/* May be called again for the next attempt, after console_stream_free. */
void console_stream_init(struct console_stream *s, struct console *c, int local_rank, int which);
void console_stream_free(struct console_stream *s);

/* The worker runs: its lines may name it. */
void console_stream_started(struct console_stream *s, pid_t pid);

/* Bytes as they were read. True: a progress bar waits for console_stream_update. */
bool console_stream_feed(struct console_stream *s, struct slice bytes);

/* Show the latest update of a progress bar, when it was not shown yet. */
void console_stream_update(struct console_stream *s);

/* The stream has ended: what was left without a newline goes out. */
void console_stream_finish(struct console_stream *s);

#endif
