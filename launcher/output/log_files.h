/* log_files.h -- creates, rotates and filters the log files of the workers, and defines the sinks (stdout, stderr and
 * the log files). A new log file never overwrites another file. After the creation, only the writer's thread uses the
 * file, because a slow disk must not block the event loop. */
#ifndef LAUNCHER_OUTPUT_LOG_FILES_H
#define LAUNCHER_OUTPUT_LOG_FILES_H

#include "cli/cli.h"
#include "ddp/error.h"
#include "output/console.h"
#include "output/lines.h"
#include "output/writer.h"
#include "plan/plan.h"

/* --- directories of the log files ------------------------------------------------------------------------- */

/* Create the job's directory `root`, a path with a '/'. Fail if the directory exists, because another user may own it.
 * If `latest` is true, also create a link named "latest" that leads to this directory. */
ddp_status logdir_make(const char *root, bool latest, struct ddp_err *err);

/* Create the directories of the workers for the plan's attempt. With --flight_recorder, set plan->can_fifo if
 * FIFOs can be created in the directory of the flight records. */
ddp_status logdir_attempt(struct plan *plan, struct ddp_err *err);

/* Modes of new files. LOGDIR_OUTPUT is for the output of workers, and LOGDIR_PRIVATE is for ddprun's own files. */
enum { LOGDIR_OUTPUT = 0666, LOGDIR_PRIVATE = 0600 };
/* Create a new file and its parent directories, and open the file for appending. Fail if the file exists. `mode` is
 * LOGDIR_OUTPUT or LOGDIR_PRIVATE. Return the descriptor, which the caller closes, or -1 with the reason in `err`. */
int logdir_create(const char *path, int mode, struct ddp_err *err);

/* Create the missing parent directories of `path`. Return 0 or an errno. */
int logdir_parents(const char *path);

/* --- files of filtered lines ------------------------------------------------------------------------------ */

/* A log file for all workers together. The file has each line that contains one of the words of
 * --duplicate_stdout_filters or --duplicate_stderr_filters. */

/* The lines of one stream for the log file of all workers. A zeroed struct writes nothing. The struct owns `lines` and
 * `out`. The other pointers are borrowed from the console and the plan, which must outlive the struct. */
struct filtered {
    struct sinks *sinks;
    int sink; /* number of the file's sink, to which other streams also write */
    const struct cli_filters *words;
    const struct console_stream *console; /* the stream; line prefixes show its rank and latest read time */
    struct lines lines;
    struct buf out; /* lines of the latest read that contain a word of `words` */
};

/* Initialize the struct for a stream. Do nothing if the user has not requested the file. Call filtered_free even
 * after an error. */
ddp_status filtered_init(struct filtered *f, const struct console_stream *console, struct ddp_err *err);
void filtered_free(struct filtered *f);

void filtered_add(struct filtered *f, struct slice bytes);

/* Write the unfinished line, because the stream has ended. */
void filtered_finish(struct filtered *f);

/* Return true if the queue of the file is too long. For `resume` see sinks_is_behind. */
bool filtered_is_behind(const struct filtered *f, bool resume);

/* --- sinks ------------------------------------------------------------------------------------------------ */

/* The targets of output: stdout, stderr and the log files. Each sink is a slot of a writer (writer.h).
 *
 * stdout and stderr have separate threads, so a blocked stdout does not block stderr. If both are the same terminal,
 * pipe or file, one thread writes both, so that lines never mix. Another thread writes all log files. If a sink fails,
 * the job continues, and lost bytes are counted and reported. */

struct sinks;

/* Numbers that identify sinks. The first two sinks always exist. Log files have numbers from SINK_FILES up. */
enum { SINK_STDOUT, SINK_STDERR, SINK_FILES };

/* A change of a sink's state. */
enum sink_news {
    SINK_FAILED,     /* the sink accepts no bytes; `error` has the reason */
    SINK_RECOVERED,  /* the sink accepts bytes again; `dropped` is the number of lost bytes */
    SINK_MADE_AGAIN, /* the user deleted the log file, and ddprun has created it again */
    SINK_DELETED,    /* the user deleted the log file, and ddprun cannot create it again */
    SINK_NOT_ROTATED /* the log file has reached its limit but cannot be renamed */
};

struct sink_event {
    enum sink_news news;
    int sink;
    const char *name; /* "stdout", "stderr" or a path; owned by the sinks */
    int error;        /* reason of SINK_FAILED: errno of the latest write, or 0 if the sink is too slow */
    uint64_t dropped; /* number of bytes that this sink has lost so far */
};

/* Return new sinks, which the caller owns, or NULL when memory is short. For `progress` see writer.h. */
struct sinks *sinks_new(enum writer_policy policy, writer_progress progress, void *user);

/* Create the log file `path`. Return its sink number, or -1 with the reason in `err`. A file that the user deletes is
 * created again.
 *
 * A file that has reached its limit is renamed to a part with a number, and a new file is created under the old name:
 * `out.log.1` is the oldest part, and `out.log` is the newest part. Concatenated in this order, the parts are the
 * output, byte for byte. */
int sinks_add_file(struct sinks *s, const char *path, struct log_rotate rotate, struct ddp_err *err);

/* Return the sink number of the open log file `path`, or -1. */
int sinks_find_file(const struct sinks *s, const char *path);

/* Close each log file after its last queued byte. The sink numbers of closed files are reused. */
void sinks_end_files(struct sinks *s);

/* Queue bytes for a sink. The bytes are written in one piece. */
void sinks_write(struct sinks *s, int sink, struct slice bytes);

/* Return true if the caller should not read, because the queue of `sink` is too long. A caller that reads passes false
 * for `resume`. A caller that has stopped reading passes true. The result is then false only when the queue is short
 * again. With WRITER_DROP the result is always false. */
bool sinks_is_behind(struct sinks *s, int sink, bool resume);

/* Return true if no queued bytes are left. */
bool sinks_empty(struct sinks *s);

/* Return the number of bytes that are queued in all sinks. */
uint64_t sinks_queued(struct sinks *s);
/* Return the number of bytes that all sinks have written so far. */
uint64_t sinks_written(struct sinks *s);

/* Stop retrying failed writes, because the job ends. From now on, the bytes of a failed write are dropped. The threads
 * still write the queued bytes. */
void sinks_wait_no_more(struct sinks *s);

/* Get the next event that was not reported yet. Return false after the last event. */
bool sinks_next_event(struct sinks *s, struct sink_event *event);

/* Set *loss to record `i` of the lost output, counted from 0. Bytes that are still queued count as lost. Return false
 * if record `i` does not exist. */
bool sinks_loss(struct sinks *s, size_t i, struct loss *loss);

/* Free the sinks without waiting for queued bytes. `s` may be NULL. */
void sinks_free(struct sinks *s);

#endif
