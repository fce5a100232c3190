/* log_files.h -- creates, rotates and filters the log files of the workers, and defines the sinks. A new log file
 * never overwrites another file. Then only the writer's thread uses it. */
#ifndef LAUNCHER_OUTPUT_LOG_FILES_H
#define LAUNCHER_OUTPUT_LOG_FILES_H

#include "cli/cli.h"
#include "ddp/error.h"
#include "output/console.h"
#include "output/lines.h"
#include "output/writer.h"
#include "plan/plan.h"

/* --- directories of the log files ------------------------------------------------------------------------- */

/* Create the job's directory `root`, a path with a '/'. Fail if it exists, because another user may own it. If
 * `latest`, also create a link "latest" to it. */
ddp_status logdir_make(const char *root, bool latest, struct ddp_err *err);

/* Create the workers' directories for the plan's attempt. With --flight_recorder, set plan->can_fifo if FIFOs work
 * there. */
ddp_status logdir_attempt(struct plan *plan, struct ddp_err *err);

/* Modes of new files, for the output of workers and for ddprun's own files. */
enum { LOGDIR_OUTPUT = 0666, LOGDIR_PRIVATE = 0600 };
/* Create a new file of this `mode` and its parent directories, for appending. Return the descriptor, which the caller
 * closes, or -1 with the reason in `err`. */
int logdir_create(const char *path, int mode, struct ddp_err *err);

/* Create the missing parent directories of `path`. Return 0 or an errno. */
int logdir_parents(const char *path);

/* --- files of filtered lines ------------------------------------------------------------------------------ */

/* A log file for all workers together: the lines with a word of --duplicate_stdout_filters or
 * --duplicate_stderr_filters. */

/* The lines of one stream for this file. A zeroed struct writes nothing. */
struct filtered {
    struct sinks *sinks;
    int sink; /* the file's sink, which other streams share */
    const struct cli_filters *words;
    const struct console_stream *console; /* the stream, for its rank and latest read time */
    struct lines lines;
    struct buf out; /* matching lines of the latest read */
};

/* Initialize the struct for a stream, if the user has requested the file. Call filtered_free even after an error. */
ddp_status filtered_init(struct filtered *f, const struct console_stream *console, struct ddp_err *err);
void filtered_free(struct filtered *f);

void filtered_add(struct filtered *f, struct slice bytes);

/* Write the unfinished line at the stream's end. */
void filtered_finish(struct filtered *f);

/* Return true if the queue of the file is too long. For `resume` see sinks_is_behind. */
bool filtered_is_behind(const struct filtered *f, bool resume);

/* --- sinks ------------------------------------------------------------------------------------------------ */

/* The targets of output: stdout, stderr and the log files. Each is a slot of a writer (writer.h).
 *
 * stdout and stderr have separate threads, unless both are the same terminal, pipe or file. Another thread writes
 * all log files. If a sink fails, the job continues, and lost bytes are counted. */

struct sinks;

/* Numbers that identify sinks. The first two sinks always exist. Log files have numbers from SINK_FILES up. */
enum { SINK_STDOUT, SINK_STDERR, SINK_FILES };

/* A change of a sink's state. */
enum sink_news {
    SINK_FAILED,     /* the sink accepts no bytes, because of `error` */
    SINK_RECOVERED,  /* the sink has lost `dropped` bytes and accepts bytes again */
    SINK_MADE_AGAIN, /* a deleted log file was created again */
    SINK_DELETED,    /* a deleted log file cannot be created again */
    SINK_NOT_ROTATED /* the log file is full but cannot be renamed */
};

struct sink_event {
    enum sink_news news;
    int sink;
    const char *name; /* "stdout", "stderr" or a path; owned by the sinks */
    int error;        /* of SINK_FAILED: errno of the latest write; 0: too slow */
    uint64_t dropped; /* bytes that this sink has lost so far */
};

/* Return new sinks, which the caller owns, or NULL when memory is short. For `progress`, see writer.h. */
struct sinks *sinks_new(enum writer_policy policy, writer_progress progress, void *user);

/* Create the log file `path`. Return its sink number, or -1 with the reason in `err`.
 *
 * A deleted file is created again. A full file is renamed to a part with a number, of which `out.log.1` is the
 * oldest. The parts, then `out.log`, are the whole output. */
int sinks_add_file(struct sinks *s, const char *path, struct log_rotate rotate, struct ddp_err *err);

/* Return the sink number of the open log file `path`, or -1. */
int sinks_find_file(const struct sinks *s, const char *path);

/* Close each log file after its last queued byte. The sink numbers of closed files are reused. */
void sinks_end_files(struct sinks *s);

/* Queue bytes for a sink. The bytes are written in one piece. */
void sinks_write(struct sinks *s, int sink, struct slice bytes);

/* Return true if the queue of `sink` is too long to read more. If the caller has stopped reading (`resume`), return
 * true until the queue is short again. With WRITER_DROP, return false. */
bool sinks_is_behind(struct sinks *s, int sink, bool resume);

/* Return true if no queued bytes are left. */
bool sinks_empty(struct sinks *s);

/* Return the number of queued bytes. */
uint64_t sinks_queued(struct sinks *s);
/* Return the number of written bytes. */
uint64_t sinks_written(struct sinks *s);

/* Drop the bytes of failed writes from now on, instead of retrying, because the job ends. */
void sinks_wait_no_more(struct sinks *s);

/* Get the next new event. Return false after the last one. */
bool sinks_next_event(struct sinks *s, struct sink_event *event);

/* Set *loss to record `i` of the lost output, from 0. Queued bytes count as lost. Return false if there is no such
 * record. */
bool sinks_loss(struct sinks *s, size_t i, struct loss *loss);

/* Free the sinks without waiting for queued bytes. `s` may be NULL. */
void sinks_free(struct sinks *s);

#endif
