/* log_files.h -- the files of the workers' output: their directories, names, rotation, filters, and the sinks that
 * write them.
 *
 * One log file on disk: created once, never over another, rotated by size.
 *
 * The writer's thread uses it after it was created; only log_file_news is for others. With a limit the full file gets
 * a number and a new one takes its name: `out.log.1` is the oldest part, `out.log` the newest. Concatenated in that
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

/* Create the file, with the directories above it. NULL: err says why and what to do. Yours; the target's `close`
 * frees it. */
struct log_file *log_file_create(const char *path, struct log_rotate rotate, struct ddp_err *err);

/* An event to report to the user once; usually LOG_NO_NEWS. From any thread, until it is closed. */
enum log_news {
    LOG_NO_NEWS,
    LOG_MADE_AGAIN, /* it was deleted, and is there again */
    LOG_DELETED,    /* it was deleted, and cannot be made again: what comes goes where it has gone */
    LOG_NOT_ROTATED /* it is over its limit, because it cannot be renamed */
};
enum log_news log_file_news(struct log_file *f);

/* It as the target of a writer's slot. */
struct writer_target log_file_target(struct log_file *f);

/* --- logdir ----------------------------------------------------------------------------------------------- */

/* Make the tree of log files that the plan names. */

/* Create the job's directory `root`, a path with a '/'. With `latest`, also create the link of that name beside it,
 * which leads to the job that started last. The name of the root contains random text and must be new: an existing
 * file or directory is rejected. */
ddp_status logdir_make(const char *root, bool latest, struct ddp_err *err);

/* Make every worker's directory of the plan's attempt, below the root. */
ddp_status logdir_attempt(const struct plan *plan, struct ddp_err *err);

/* Create one new file for appending, and the directories above it. Never one that is there already. The workers' output
 * gets the mode that the umask leaves of LOGDIR_OUTPUT, what ddprun itself writes LOGDIR_PRIVATE. Returns the descriptor,
 * which the caller closes, or -1 with the reason in err. */
enum { LOGDIR_OUTPUT = 0666, LOGDIR_PRIVATE = 0600 };
int logdir_create(const char *path, int mode, struct ddp_err *err);

/* mkdir for every '/' in `path` but the last part; what exists is fine. Returns an errno, or 0. */
int logdir_parents(const char *path);

/* --- filtered --------------------------------------------------------------------------------------------- */

/* One more file for the lines of all workers that contain one of some words
 * (--duplicate_stdout_filters, --duplicate_stderr_filters). */

/* A stream's part in it. Zeroed = it has none. */
struct filtered {
    struct sinks *sinks;
    int sink; /* of the file, which others write to as well */
    const struct cli_filters *words;
    const struct console_stream *console; /* what the prefix tells is known there */
    struct lines lines;
    struct buf out; /* lines made from one read */
};

/* `which` as in the plan. Does nothing where there is no such file. Free it also after an error. */
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

/* The event of a sink. */
enum sink_news {
    SINK_FAILED,    /* it takes nothing at the moment; `error` says why, 0: it is too slow */
    SINK_RECOVERED, /* it takes bytes again; `dropped` of them are missing until now */
    SINK_MADE_AGAIN,
    SINK_DELETED,
    SINK_NOT_ROTATED
};

struct sink_event {
    enum sink_news news;
    int sink;
    const char *name; /* "stdout" or a path; the sinks' own */
    int error;
    uint64_t dropped; /* bytes lost since the beginning */
};

/* `progress` as in writer.h. NULL when memory is short. */
struct sinks *sinks_new(enum writer_policy policy, writer_progress progress, void *user);

/* Create the log file `path`. Returns its number; -1: err says why. */
int sinks_add_file(struct sinks *s, const char *path, struct log_rotate rotate, struct ddp_err *err);

/* The number of the log file `path`, -1 without one. */
int sinks_find_file(const struct sinks *s, const char *path);

/* No more for any of the log files: each is closed when all that waits for it is written. Their numbers are
 * given anew. */
void sinks_end_files(struct sinks *s);

/* Queue bytes; they come out in one piece. */
void sinks_put(struct sinks *s, int sink, struct slice bytes);

/* Shall nothing more be put for a while? True when `sink` has a long queue (any for `resume`, a short one), and
 * the policy is to wait. */
bool sinks_is_behind(struct sinks *s, int sink, bool resume);

/* Is everything written, or lost? */
bool sinks_empty(struct sinks *s);

/* Bytes that wait in all sinks, and those written until now. */
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
