/* console.h -- the workers' streams on stdout and stderr: whole lines with prefixes, or with --json one event per line.
 * All lines from one read(2) are queued in one piece, because this costs one call of the writer instead of one for each
 * line. */
#ifndef LAUNCHER_CONSOLE_H
#define LAUNCHER_CONSOLE_H

#include "output/lines.h"
#include "output/log_files.h"
#include "plan/plan.h"

#include <sys/types.h>

/* Folded lines (lines.h): equal lines of several ranks are printed once. stdout and stderr are folded separately,
 * because no order exists between their lines. The struct owns the folds and both buffers. All other pointers are
 * borrowed from the console. */
struct folds {
    struct folded_stream {
        struct folds *folds;
        struct fold *fold; /* NULL if lines are not folded */
        int sink;
        struct line_row *row;
    } of[2];
    struct sinks *sinks;
    struct buf batch;  /* lines that are ready to be queued */
    struct buf prefix; /* prefix of the line that is formatted now */
    /* Formats the prefix of a line when all its ranks are known. */
    void (*put_prefix)(void *user, const struct fold_line *line, struct buf *out);
    void (*waits)(void *user, uint64_t us); /* requests a call of folds_time in `us` microseconds */
    void *prefix_user, *waits_user;
};

/* The state that all streams share. A row is the last line of a terminal, where progress bars are drawn. A sink
 * (log_files.h) is a target of output. */
struct console {
    const struct plan *plan; /* plan and sinks belong to the caller */
    struct sinks *sinks;
    uint64_t started_ms;      /* start of ddprun; the times of events count from this time */
    bool colour[2];           /* whether colours are used on stdout [0] and stderr [1] */
    struct line_row screen;   /* a terminal whose cursor can be moved */
    struct line_row dumb;     /* a terminal whose cursor cannot be moved */
    struct line_row plain;    /* files and pipes */
    struct line_row *rows[2]; /* [0] for stdout, [1] for stderr: each points to screen, dumb or plain */
    bool midline;             /* the last bytes of a raw stream on stderr did not end with a newline */
    struct buf batch;         /* lines from one read; they are queued together */
    size_t held;              /* bytes in unfinished lines of all streams */
    bool marks; /* each line gets a mark (line_mark), by which the starter (remote.h) folds the line */
    struct folds folds; /* --fold */
};

/* stdout or stderr of one worker. A console_stream cuts the bytes of its stream into lines. */
struct console_stream {
    struct console *console;
    int local_rank, which; /* `which` is STD_OUT or STD_ERR */
    int sink;              /* SINK_STDOUT or SINK_STDERR */
    bool raw;              /* true for a single worker without prefix: bytes are passed on unchanged */
    struct line_row *row;  /* where the lines are printed */
    struct lines lines;
    size_t held;         /* bytes of the unfinished line; console.held includes this number */
    pid_t pid;           /* pid of the worker; 0 before its start */
    struct line_time at; /* time of the latest read */
    struct buf prefix;
    bool has_prefix; /* `prefix` is valid */
};

/* Initialize the console for the descriptors 1 and 2 of this process. */
void console_init(struct console *c, const struct plan *plan, struct sinks *sinks, uint64_t started_ms);
void console_free(struct console *c);

/* Fold lines from now on. When lines wait, the console calls `waits`. Then, `us` microseconds later, the owner must
 * call console_fold_time. Return false when memory is short. */
bool console_fold(struct console *c, void (*waits)(void *user, uint64_t us), void *user);

/* Print the waiting lines that are due now. */
void console_fold_time(struct console *c);

/* Print all waiting lines. */
void console_fold_finish(struct console *c);

/* Print a message of ddprun: "ddprun: ..." on stderr, or with --json an event on stdout. The message begins on a
 * new line, even if a worker has printed half a line. */
void console_note(struct console *c, const char *text);

/* Return true if a progress bar of the stream is redrawn in place. Return false if each update becomes a new line. */
bool console_is_screen(const struct console_stream *s);

/* Initialize a stream for one attempt. Call console_stream_free before the stream is initialized again. */
void console_stream_init(struct console_stream *s, struct console *c, int local_rank, int which);
void console_stream_free(struct console_stream *s);

/* Record the pid of the worker, for the prefix of its lines. */
void console_stream_started(struct console_stream *s, pid_t pid);

/* Process the bytes of one read. Return true if console_stream_update must be called later for a progress bar. */
bool console_stream_add(struct console_stream *s, struct slice bytes);

/* Print the latest update of a progress bar if this update was not printed before. */
void console_stream_update(struct console_stream *s);

/* Print an unfinished line, because the stream has ended. */
void console_stream_finish(struct console_stream *s);

/* --- lines of several nodes ------------------------------------------------------------------------------ */

/* Console of a ddprun with --hosts. With --fold, it folds the lines that the hosts' ddpruns have marked. */
struct hosts_console {
    const struct cli *cli; /* cli and sinks belong to the caller */
    bool is_one_worker;    /* the job has exactly one worker; false if this is not known */
    uint64_t started_us;
    struct line_row rows[2];
    struct prefix prefix; /* prefix of lines that several ranks printed */
    int ranks;            /* world size, from the first marked line; 0 until this line arrives */
    struct folds folds;
};

/* Initialize the console. After a call of `waits`, the caller must call hosts_console_time in `us` microseconds.
 * Return DDP_ERR_ARG if the template of the prefix is wrong. */
ddp_status hosts_console_init(struct hosts_console *c, const struct cli *cli, bool is_one_worker,
                              void (*waits)(void *user, uint64_t us), void *user, struct ddp_err *err);
void hosts_console_free(struct hosts_console *c);

/* Print lines of a host to `sink`, which is SINK_STDOUT or SINK_STDERR. With --fold, a worker's line has a mark and
 * waits for equal lines of other ranks. A line of the host's ddprun has no mark and is printed at once. */
void hosts_console_print(struct hosts_console *c, int sink, struct slice lines);

/* Print the waiting lines that are due now (hosts_console_time), or all waiting lines (hosts_console_finish). */
void hosts_console_time(struct hosts_console *c);
void hosts_console_finish(struct hosts_console *c);

#endif
