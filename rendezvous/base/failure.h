/* failure.h -- how an attempt of a job failed first: one record, from the agent that sees a worker end, through the store, to
 * the last line of every node's report.
 *
 * The agent fills it (launcher/node), hub/messages.h encodes and decodes it, the store copies it whole, and launcher/report
 * words it. A new fact is a row of FAILURE_ROWS and the place that fills it. */
#ifndef BASE_FAILURE_H
#define BASE_FAILURE_H

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum failure_shown { FAILURE_HIDDEN, FAILURE_BYTES };

/* R(X, kind, name, least, most, when missing, what it is, shown as, label): the first six for X, a row of hub/messages.h of kind
 * WHOLE or MARK, where 0 or false is not known. Reports, text and JSON, show BYTES with the label; HIDDEN has a use of its own. */
#define FAILURE_ROWS(R, X)                                                                       \
    R(X, MARK, from_stdout, 0, 0, 0, "the lines are of stdout: stderr was silent", HIDDEN, "")   \
    R(X, WHOLE, peak_rss, 0, MESSAGE_NUMBER_MAX, 0, "most memory that it held, in bytes", BYTES, \
      "peak memory")

#define FAILURE_FACT(X, kind, name, least, most, missing, what, ...) X(kind, name, least, most, missing, what)
#define FAILURE_FACTS(X)                                             FAILURE_ROWS(FAILURE_FACT, X)

#define FAILURE_TYPE_WHOLE              int64_t
#define FAILURE_TYPE_MARK               bool
#define FAILURE_MEMBER(kind, name, ...) FAILURE_TYPE_##kind name;

/* Most are the failure of a worker. A node that is lost, or that its user has stopped, is one too: then `rank` is -1. */
struct failure {
    char code[40];        /* of the finding, "WORKER_FAILED"; "" = none */
    char why[24];         /* "failed", "node_lost", "node_left", "grow" ...; "" = there is none */
    int node_rank;        /* -1 = none */
    int rank, local_rank; /* of the worker, -1 = it is not about one */
    int pid, exit_code, signal;
    int error; /* errno of the start, not 0: it never ran */
    uint64_t
        after_ms; /* since the attempt began, by the store's clock; for the agent's own: since the worker did */
    bool victim;       /* that worker gave up because it had lost another one */
    char no_retry[16]; /* why the same would happen again: "cannot_start", "usage", "import"; else "" */
    char host[LIMIT_TEXT];
    char words[LIMIT_WORDS]; /* how it ended, as part of a sentence */
    char log[LIMIT_WORDS];   /* path of its log; "" = none */
    FAILURE_FACTS(FAILURE_MEMBER)
    int n_lines;
    char lines[LIMIT_LAST_LINES][LIMIT_WORDS]; /* its last words, oldest first */
};

#endif
