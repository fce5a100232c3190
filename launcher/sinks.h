/* sinks.h -- where output ends: stdout, stderr and the log files, each behind a writer.
 *
 * stdout and stderr have a thread each, so that one of them can be stuck without the other; when
 * both are the same terminal, pipe or file they share one, so that their lines cannot tear each
 * other. All log files share a third. A sink that cannot be written is told of once; what comes
 * for it is thrown away, and the job goes on. */
#ifndef LAUNCHER_SINKS_H
#define LAUNCHER_SINKS_H

#include "ddp/error.h"
#include "writer.h"

struct sinks;

enum {
    SINK_STDOUT,
    SINK_STDERR,
    SINK_FILES
}; /* the first two are always there, files have numbers from the third */

/* `progress` as in writer.h. NULL when memory is short. */
struct sinks *sinks_new(writer_progress progress, void *user);

/* Create the log file `path`. Returns its number; -1: err says why. */
int sinks_add_file(struct sinks *s, const char *path, struct ddp_err *err);

/* No more for any of the log files: each is closed when all that waits for it is written. Their numbers are
 * given anew. */
void sinks_end_files(struct sinks *s);

/* Queue bytes; they come out in one piece. */
void sinks_put(struct sinks *s, int sink, struct slice bytes);

/* Bytes waiting in the writer behind `sink`. */
uint64_t sinks_queued(struct sinks *s, int sink);

/* Is everything written? */
bool sinks_empty(struct sinks *s);

/* The next sink that has failed and was not told of yet: its number, its name and the errno; -1
 * when there is none. */
int sinks_next_failed(struct sinks *s, const char **name, int *error);

/* Stop without waiting, free. NULL is allowed. */
void sinks_free(struct sinks *s);

#endif
