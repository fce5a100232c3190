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

/* Why no further attempt is made although --max_restarts names some, and the word in messages. */
#define NO_RESTARTS(X)                                                                              \
    X(NONE, "")                       /* there is one, or none was asked for */                     \
    X(USED_UP, "used_up")             /* --max_restarts */                                          \
    X(CANNOT_START, "cannot_start")   /* the program cannot be executed */                          \
    X(USAGE, "usage")                 /* ended soon with 2, 126 or 127: a wrong command line */     \
    X(IMPORT, "import")               /* every worker of a node ended soon with the same error */   \
    X(NO_PROGRESS, "no_progress")     /* --max_no_progress */                                       \
    X(STOPPED, "stopped")             /* by the user */                                             \
    X(UNKILLABLE, "unkillable")       /* a process of the last attempt lives on */                  \
    X(TOO_FEW_NODES, "too_few_nodes") /* not enough nodes (came back) in time */                    \
    X(NOT_READY, "not_ready")         /* no log files, no memory for a key space, a refused node */ \
    X(STORE_LOST, "")                 /* nobody is left to decide; never sent */

#define X(name, word) NO_RESTART_##name,
enum no_restart { NO_RESTARTS(X) N_NO_RESTARTS };
#undef X

/* Return the word of a reason; "?" for a value of no row. */
const char *no_restart_word(enum no_restart why);

/* Return the reason of a word. An unknown word, of a newer program, is no reason. */
enum no_restart no_restart_find(const char *word);

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
