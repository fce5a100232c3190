/* prefix.h -- the prefix of a worker's line, from a template such as "${host}[${rank}] ". The template is parsed once,
 * and the prefix is formatted once per stream. A prefix that contains the time is formatted once per read(2) and not
 * for each line, because workers may print many lines. */
#ifndef LAUNCHER_TABLES_PREFIX_H
#define LAUNCHER_TABLES_PREFIX_H

#include "base/buf.h"
#include "ddp/error.h"

/* Columns: id, name in a template, meaning. */
#define PREFIX_FIELDS(X)                                                                         \
    X(HOST, "host", "this host")                                                                 \
    X(HOSTNAME, "hostname", "the same as ${host}, for torchrun's templates")                     \
    X(RANK, "rank", "rank in the job")                                                           \
    X(LOCAL_RANK, "local_rank", "rank on this node")                                             \
    X(ROLE_NAME, "role_name", "name of the role")                                                \
    X(PID, "pid", "process id")                                                                  \
    X(STREAM, "stream", "stdout or stderr")                                                      \
    X(JOB, "job", "job id")                                                                      \
    X(ATTEMPT, "attempt", "number of earlier starts of the workers")                             \
    X(TIME, "time", "time at which the line was read: UTC, such as 2026-11-21T16:24:00.123456Z") \
    X(ELAPSED, "elapsed", "time at which the line was read: seconds since the start of ddprun")

enum prefix_field {
#define X(id, ...) PREFIX_##id,
    PREFIX_FIELDS(X)
#undef X
        PREFIX_FIELD_COUNT
};

enum { PREFIX_PIECES_MAX = 32, PREFIX_TIME_MAX = 48, PREFIX_NO_COLOUR = 0 };

/* The pieces of parsed templates. A zeroed struct is an empty prefix. The `text` of a piece points into the string
 * passed to prefix_add, so this string must outlive the struct. */
struct prefix {
    struct prefix_piece {
        const char *text; /* text between fields; NULL if the piece is a field */
        size_t len;
        enum prefix_field field;
    } pieces[PREFIX_PIECES_MAX];
    size_t n;
    bool timed;  /* the template contains ${time} or ${elapsed} */
    bool ranked; /* the template contains ${rank} or ${local_rank} */
};

/* Append the pieces of a template: ${name} and $name are fields, and $$ is a dollar sign, as in torchrun. Return
 * DDP_ERR_ARG for an invalid template; `err` then lists the names of all fields. */
ddp_status prefix_add(struct prefix *p, const char *template, struct ddp_err *err);

/* The values of the fields, borrowed. NULL means that a value is unknown. */
struct prefix_values {
    const char *of[PREFIX_FIELD_COUNT];
};

/* Append the prefix. `colour` is an SGR number or PREFIX_NO_COLOUR. Control characters in values are replaced. Return
 * false when memory is short. */
bool prefix_render(const struct prefix *p, const struct prefix_values *values, int colour, struct buf *out);

/* Return the colour of a rank as an SGR number. */
int prefix_colour(int rank);

/* Format the value of ${time} (prefix_time) or ${elapsed} (prefix_elapsed). `unix_us` counts microseconds since 1970.
 * `us` counts microseconds since the start. */
void prefix_time(char out[PREFIX_TIME_MAX], uint64_t unix_us);
void prefix_elapsed(char out[PREFIX_TIME_MAX], uint64_t us);

#endif
