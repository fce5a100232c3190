/* log_pattern.h -- names of log files: "logs/%j/%h-%r.%s".
 *
 * Pure. A pattern is checked once, when the command line is read, and then made into the name of each stream's
 * file. */
#ifndef LAUNCHER_TABLES_LOG_PATTERN_H
#define LAUNCHER_TABLES_LOG_PATTERN_H

#include "base/buf.h"
#include "ddp/error.h"

/* What stands behind a %, what it becomes, and the words for it. */
#define LOG_PATTERN_TOKENS(X)                       \
    X('h', TEXT(names->host), "host")               \
    X('r', NUMBER(names->rank), "rank")             \
    X('l', NUMBER(names->local_rank), "local rank") \
    X('n', NUMBER(names->node_rank), "node rank")   \
    X('t', TEXT(names->time), "time of the start")  \
    X('j', TEXT(names->job), "job id")              \
    X('a', NUMBER(names->attempt), "attempt")       \
    X('s', TEXT(names->stream), "stdout or stderr") \
    X('%', TEXT("%"), "a percent sign")

struct log_names {
    const char *host, *time, *job, *stream; /* borrowed */
    int rank, local_rank, node_rank, attempt;
};

enum { LOG_PATTERN_MAX = 1024 };

/* DDP_ERR_ARG: err says what would be right. */
ddp_status log_pattern_check(const char *pattern, struct ddp_err *err);

/* Append the name for one stream. Where attempts are not told apart by %a, those after the first get ".attempt_N"
 * at the end: no attempt writes over another. False when memory is short. */
bool log_pattern_name(const char *pattern, const struct log_names *names, struct buf *out);

#endif
