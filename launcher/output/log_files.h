/* log_files.h -- the files of the workers' output: their directories, names, rotation, filters, and the sinks that
 * write them.
 *
 * A log file on disk is created once, never overwrites another, and is rotated by size.
 *
 * After its creation only the writer's thread uses it; log_file_news is for others. With a limit the full file gets a
 * number and a new one takes its name: `out.log.1` is the oldest part, `out.log` the newest. Concatenated in that
 * order they are the output, byte for byte. A deleted file is created again. */
#ifndef LAUNCHER_OUTPUT_LOG_FILES_H
#define LAUNCHER_OUTPUT_LOG_FILES_H

#include "cli/cli.h"
#include "ddp/error.h"
#include "output/console.h"
#include "output/lines.h"
#include "output/writer.h"
#include "plan/plan.h"

struct log_file;

/* Create the file, with the directories above it. NULL: `err` has the reason and the remedy. The caller owns it; the
 * target's `close` frees it. */
struct log_file *log_file_create(const char *path, struct log_rotate rotate, struct ddp_err *err);

/* An event to report to the user once; usually LOG_NO_NEWS. From any thread, until it is closed. */
enum log_news {
    LOG_NO_NEWS,
    LOG_MADE_AGAIN, /* it was deleted and created again */
    LOG_DELETED,    /* it was deleted and cannot be created again: new output goes to the deleted file */
    LOG_NOT_ROTATED /* it is over its limit, because it cannot be renamed */
};
enum log_news log_file_news(struct log_file *f);

/* Return it as the target of a writer's slot. */
struct writer_target log_file_target(struct log_file *f);

/* --- logdir ----------------------------------------------------------------------------------------------- */

/* Make the tree of log files that the plan names. */

/* Create the job's directory `root`, a path with a '/'. With `latest`, also create a link of that name beside it,
 * which leads to the newest job. The name of the root contains random text and must be new: an existing file or
 * directory is rejected. */
ddp_status logdir_make(const char *root, bool latest, struct ddp_err *err);

/* Create every worker's directory of the plan's attempt, below the root. */
ddp_status logdir_attempt(const struct plan *plan, struct ddp_err *err);

/* Create one new file for appending, and the directories above it; an existing file is an error. Workers' output gets
 * mode LOGDIR_OUTPUT less the umask, ddprun's own files LOGDIR_PRIVATE. Return the descriptor, which the caller
 * closes, or -1 with the reason in `err`. */
enum { LOGDIR_OUTPUT = 0666, LOGDIR_PRIVATE = 0600 };
int logdir_create(const char *path, int mode, struct ddp_err *err);

/* Create the directory at every '/' in `path` except the last part; existing ones are fine. Return an errno, or 0. */
int logdir_parents(const char *path);

/* --- filtered --------------------------------------------------------------------------------------------- */

/* One more file for the lines of all workers that contain one of some words
 * (--duplicate_stdout_filters, --duplicate_stderr_filters). */

/* One stream's part in it. Zeroed = none. */
struct filtered {
    struct sinks *sinks;
    int sink; /* sink of the file, which others write to as well */
    const struct cli_filters *words;
    const struct console_stream *console; /* where the prefix gets its values from */
    struct lines lines;
    struct buf out; /* lines made from one read */
};

/* `which` as in the plan. Does nothing without such a file. Free it even after an error. */
ddp_status filtered_init(struct filtered *f, const struct console_stream *console, struct ddp_err *err);
void filtered_free(struct filtered *f);

void filtered_feed(struct filtered *f, struct slice bytes);

/* The stream has ended. */
void filtered_finish(struct filtered *f);

bool filtered_is_behind(const struct filtered *f, bool resume);

/* --- sinks ------------------------------------------------------------------------------------------------ */

/* The targets of output: stdout, stderr and the log files, each with a writer.
 *
 * stdout and stderr have a thread each, so that one can block without the other. If both are the same terminal, pipe
 * or file they share one, so that their lines cannot tear each other. All log files share a third. The job continues
 * whatever happens to a sink; lost bytes are counted and reported. */

struct sinks;

/* The first two are always there, files have numbers from the third. */
enum { SINK_STDOUT, SINK_STDERR, SINK_FILES };

/* The state of a sink, as an event. */
enum sink_news {
    SINK_FAILED,    /* it takes nothing at the moment; `error` has the reason, 0: it is too slow */
    SINK_RECOVERED, /* it takes bytes again; `dropped` of them were lost */
    SINK_MADE_AGAIN,
    SINK_DELETED,
    SINK_NOT_ROTATED
};

struct sink_event {
    enum sink_news news;
    int sink;
    const char *name; /* "stdout" or a path; owned by the sinks */
    int error;
    uint64_t dropped; /* bytes lost since the beginning */
};

/* `progress` as in writer.h. NULL when memory is short. */
struct sinks *sinks_new(enum writer_policy policy, writer_progress progress, void *user);

/* Create the log file `path`. Return its number; -1: `err` has the reason. */
int sinks_add_file(struct sinks *s, const char *path, struct log_rotate rotate, struct ddp_err *err);

/* Return the number of the log file `path`, -1 without one. */
int sinks_find_file(const struct sinks *s, const char *path);

/* End all log files: each is closed when everything queued for it is written. Their numbers are reused. */
void sinks_end_files(struct sinks *s);

/* Queue bytes; they are written in one piece. */
void sinks_put(struct sinks *s, int sink, struct slice bytes);

/* True if nothing more should be queued for a while: `sink` has a long queue (for `resume`, more than a short one),
 * and the policy is to wait. */
bool sinks_is_behind(struct sinks *s, int sink, bool resume);

/* True if everything is written or lost. */
bool sinks_empty(struct sinks *s);

/* Return the bytes queued in all sinks, and those written until now. */
uint64_t sinks_queued(struct sinks *s);
uint64_t sinks_written(struct sinks *s);

/* Drop pending bytes that cannot be written now: the job ends. */
void sinks_wait_no_more(struct sinks *s);

/* Return the next unreported event; false without one. */
bool sinks_next_event(struct sinks *s, struct sink_event *event);

/* Bytes lost by the i-th sink that lost some, including pending bytes; false after the last one. */
bool sinks_loss(struct sinks *s, size_t i, struct loss *loss);

/* Stop without waiting, free. NULL is allowed. */
void sinks_free(struct sinks *s);

#endif
