/* prefix.h -- the prefix of a worker's line, from a template such as "${host}[${rank}] ".
 *
 * The template is parsed once into pieces. A prefix is formatted from them once per stream, or once per read if it
 * contains the time, but not once per line. */
#ifndef LAUNCHER_TABLES_PREFIX_H
#define LAUNCHER_TABLES_PREFIX_H

#include "base/buf.h"
#include "ddp/error.h"

/* Columns: id, name in a template, meaning. */
#define PREFIX_FIELDS(X)                                                           \
    X(HOST, "host", "this host")                                                   \
    X(HOSTNAME, "hostname", "the same, under torchrun's name")                     \
    X(RANK, "rank", "rank in the job")                                             \
    X(LOCAL_RANK, "local_rank", "rank on this node")                               \
    X(ROLE_NAME, "role_name", "name of the role")                                  \
    X(PID, "pid", "process id")                                                    \
    X(STREAM, "stream", "stdout or stderr")                                        \
    X(JOB, "job", "job id")                                                        \
    X(ATTEMPT, "attempt", "0, or how often the workers were restarted")            \
    X(TIME, "time", "when the line was read: UTC, as 2026-11-21T16:24:00.123456Z") \
    X(ELAPSED, "elapsed", "the same in seconds since the start of ddprun, to the microsecond")

enum prefix_field {
#define X(id, ...) PREFIX_##id,
    PREFIX_FIELDS(X)
#undef X
        PREFIX_FIELD_COUNT
};

enum { PREFIX_PIECES_MAX = 32, PREFIX_TIME_MAX = 48, PREFIX_NO_COLOUR = 0 };

/* A parsed template. Zeroed = empty: no prefix. Literal text is borrowed from the template. */
struct prefix {
    struct prefix_piece {
        const char *text; /* a literal text; NULL for a field */
        size_t len;
        enum prefix_field field;
    } pieces[PREFIX_PIECES_MAX];
    size_t n;
    bool timed;  /* contains a field that differs for every read */
    bool ranked; /* contains the rank or the local rank */
};

/* Append the pieces of one more template: ${name} and $name are fields, $$ is a dollar sign, as in torchrun.
 * DDP_ERR_ARG: `err` has the reason and the names of all fields. */
ddp_status prefix_add(struct prefix *p, const char *template, struct ddp_err *err);

/* The value of each field; NULL if unknown. Borrowed. */
struct prefix_values {
    const char *of[PREFIX_FIELD_COUNT];
};

/* Append the prefix, in `colour` (an SGR number, PREFIX_NO_COLOUR = none). Control characters in values are replaced.
 * Return false when memory is short. */
bool prefix_render(const struct prefix *p, const struct prefix_values *values, int colour, struct buf *out);

/* Return the colour of a rank. */
int prefix_colour(int rank);

/* Format PREFIX_TIME from microseconds since 1970, PREFIX_ELAPSED from microseconds. */
void prefix_time(char out[PREFIX_TIME_MAX], uint64_t unix_us);
void prefix_elapsed(char out[PREFIX_TIME_MAX], uint64_t us);

#endif
