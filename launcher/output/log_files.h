/* log_files.h -- the files of the workers' output: their directories, names, rotation, filters, and the sinks that
 * write them.
 *
 * A log file is created once, never overwrites another file, and is rotated by size. After its creation only the
 * writer's thread uses the file; other threads may call only log_file_news.
 *
 * With a limit, a full file is renamed with a number, and a new file gets its name: `out.log.1` is the oldest part,
 * `out.log` the newest. In that order, the concatenated parts are the output, byte for byte. A file that the user
 * deletes is created again. */
#ifndef LAUNCHER_OUTPUT_LOG_FILES_H
#define LAUNCHER_OUTPUT_LOG_FILES_H

#include "cli/cli.h"
#include "ddp/error.h"
#include "output/console.h"
#include "output/lines.h"
#include "output/writer.h"
#include "plan/plan.h"

struct log_file;

/* Create the file, and the directories above it. Return NULL, with reason and remedy in `err`, if the file cannot be
 * created. The caller owns the result until log_file_target passes it to a writer, which closes it. */
struct log_file *log_file_create(const char *path, struct log_rotate rotate, struct ddp_err *err);

/* An event that was not reported to the user yet. The usual value is LOG_NO_NEWS. Any thread may call log_file_news
 * until the file is closed. */
enum log_news {
    LOG_NO_NEWS,
    LOG_MADE_AGAIN, /* the file was deleted, and was created again */
    LOG_DELETED,    /* the file was deleted and cannot be created again, so output goes to the deleted file */
    LOG_NOT_ROTATED /* the file is over its limit, because it cannot be renamed */
};
enum log_news log_file_news(struct log_file *f);

/* Return the file as the target of a writer's slot. */
struct writer_target log_file_target(struct log_file *f);

/* --- logdir ----------------------------------------------------------------------------------------------- */

/* The directories of the log files that the plan names. */

/* Create the job's directory `root`, a path with a '/'. With `latest`, also create a link of that name beside `root`,
 * which leads to the newest job. The name of `root` contains random text, so an existing file or directory is
 * rejected. */
ddp_status logdir_make(const char *root, bool latest, struct ddp_err *err);

/* Create each worker's directory for the plan's attempt, below the root. */
ddp_status logdir_attempt(const struct plan *plan, struct ddp_err *err);

/* Create a new file for appending, and the directories above it. An existing file is an error. `mode` is
 * LOGDIR_OUTPUT (less the umask) for workers' output, and LOGDIR_PRIVATE for ddprun's own files. Return the
 * descriptor, which the caller closes, or -1 with the reason in `err`. */
enum { LOGDIR_OUTPUT = 0666, LOGDIR_PRIVATE = 0600 };
int logdir_create(const char *path, int mode, struct ddp_err *err);

/* Create all directories of `path`, without its last part. Accept existing directories. Return 0 or an errno. */
int logdir_parents(const char *path);

/* --- filtered --------------------------------------------------------------------------------------------- */

/* One more file, for the lines of all workers that contain at least one of several words (--duplicate_stdout_filters,
 * --duplicate_stderr_filters). */

/* One stream's lines for that file. A zeroed struct has no file. */
struct filtered {
    struct sinks *sinks;
    int sink; /* sink of the file, to which other streams also write */
    const struct cli_filters *words;
    const struct console_stream *console; /* provides the values of the prefix */
    struct lines lines;
    struct buf out; /* lines made from one read */
};

/* Start for a stream. Do nothing if the user has requested no such file. Call filtered_free even after an error. */
ddp_status filtered_init(struct filtered *f, const struct console_stream *console, struct ddp_err *err);
void filtered_free(struct filtered *f);

void filtered_feed(struct filtered *f, struct slice bytes);

/* Write the rest, because the stream has ended. */
void filtered_finish(struct filtered *f);

bool filtered_is_behind(const struct filtered *f, bool resume);

/* --- sinks ------------------------------------------------------------------------------------------------ */

/* The targets of output: stdout, stderr and the log files, each a slot of a writer.
 *
 * stdout and stderr have one thread each, so that stdout may block without stderr. If both are the same terminal,
 * pipe or file, they share one thread, so that no line is written into another line. One more thread writes all log
 * files. The job continues after any failure of a sink. Lost bytes are counted and reported. */

struct sinks;

/* The first two sinks always exist. Files have numbers from SINK_FILES. */
enum { SINK_STDOUT, SINK_STDERR, SINK_FILES };

/* A change of a sink's state. */
enum sink_news {
    SINK_FAILED,    /* the sink accepts no bytes at the moment; `error` has the reason, 0 = too slow */
    SINK_RECOVERED, /* the sink accepts bytes again; `dropped` bytes were lost */
    SINK_MADE_AGAIN,
    SINK_DELETED,
    SINK_NOT_ROTATED
};

struct sink_event {
    enum sink_news news;
    int sink;
    const char *name; /* "stdout" or a path; owned by the sinks */
    int error;
    uint64_t dropped; /* bytes lost since the start */
};

/* Return new sinks, or NULL when memory is short. `progress` is as in writer.h. */
struct sinks *sinks_new(enum writer_policy policy, writer_progress progress, void *user);

/* Create the log file `path`. Return its number, or -1 with the reason in `err`. */
int sinks_add_file(struct sinks *s, const char *path, struct log_rotate rotate, struct ddp_err *err);

/* Return the number of the log file `path`, or -1 if the file is not open. */
int sinks_find_file(const struct sinks *s, const char *path);

/* Close each log file as soon as all its queued bytes are written. The numbers of closed files are reused. */
void sinks_end_files(struct sinks *s);

/* Queue bytes, which are written in one piece. */
void sinks_put(struct sinks *s, int sink, struct slice bytes);

/* Return true if the caller should wait before it queues more bytes, because the policy is to wait and the queue of
 * `sink` is long. With `resume`, return true until the queue is short again. */
bool sinks_is_behind(struct sinks *s, int sink, bool resume);

/* Return true if everything is written or lost. */
bool sinks_empty(struct sinks *s);

/* Return the bytes queued in all sinks, and the bytes written so far. */
uint64_t sinks_queued(struct sinks *s);
uint64_t sinks_written(struct sinks *s);

/* Drop pending bytes that cannot be written now, because the job ends. */
void sinks_wait_no_more(struct sinks *s);

/* Get the next event that was not reported yet. Return false without an event. */
bool sinks_next_event(struct sinks *s, struct sink_event *event);

/* Get the lost bytes of the i-th sink that has lost bytes. Pending bytes are included. Return false after the last
 * sink. */
bool sinks_loss(struct sinks *s, size_t i, struct loss *loss);

/* Stop without waiting, and free the sinks. NULL is allowed. */
void sinks_free(struct sinks *s);

#endif
