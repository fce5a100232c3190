/* sinks.h -- where output ends: stdout, stderr and the log files, each behind a writer.
 *
 * stdout and stderr have a thread each, so that one of them can be stuck without the other; when
 * both are the same terminal, pipe or file they share one, so that their lines cannot tear each
 * other. All log files share a third. The job goes on whatever happens to a sink; what it lost is
 * counted and told. */
#ifndef LAUNCHER_SINKS_H
#define LAUNCHER_SINKS_H

#include "ddp/error.h"
#include "lines/loss.h"
#include "output/log_file.h"
#include "output/writer.h"

struct sinks;

/* The first two are always there, files have numbers from the third. */
enum { SINK_STDOUT, SINK_STDERR, SINK_FILES };

/* What happened to a sink. */
enum sink_news {
    SINK_FAILED,    /* it takes nothing at the moment; `error` says why, 0: it is too slow */
    SINK_RECOVERED, /* it takes bytes again; `dropped` of them are missing until now */
    SINK_MADE_AGAIN,
    SINK_DELETED,
    SINK_NOT_ROTATED /* see log_file.h */
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

/* The number of the log file `path`, -1 when there is none yet. */
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

/* Whatever cannot be written now is lost: the end has come. */
void sinks_wait_no_more(struct sinks *s);

/* The next thing that happened and was not told of yet; false when there is none. */
bool sinks_next_event(struct sinks *s, struct sink_event *event);

/* Bytes lost by the i-th sink of all that ever lost some, those included that are still waiting; false behind the
 * last one. */
bool sinks_loss(struct sinks *s, size_t i, struct loss *loss);

/* Stop without waiting, free. NULL is allowed. */
void sinks_free(struct sinks *s);

#endif
