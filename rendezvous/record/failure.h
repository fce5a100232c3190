/* failure.h -- the first failure of an attempt, as one record that travels from the failed node to all reports.
 * Optional facts are rows of FAILURE_ROWS, so that a new fact needs only a row and the code that fills it. */
#ifndef RENDEZVOUS_RECORD_FAILURE_H
#define RENDEZVOUS_RECORD_FAILURE_H

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum failure_shown { FAILURE_HIDDEN, FAILURE_BYTES };

/* Optional facts about a failure; 0, false or "" means unknown. The columns of a row of R:
 *
 *     X
 *     kind, name, least, most, value if missing, description     the arguments of X, as in hub/messages.h
 *     shown as     BYTES: reports print the fact after the label; HIDDEN: reports do not print it
 *     label */
#define FAILURE_ROWS(R, X)                                                                        \
    R(X, MARK, from_stdout, 0, 0, 0, "the lines are from stdout", HIDDEN, "")                     \
    R(X, WHOLE, peak_rss, 0, MESSAGE_NUMBER_MAX, 0, "peak memory in bytes", BYTES, "peak memory") \
    R(X, WHOLE, lost_bytes, 0, UINT16_MAX, 0, "size of packets lost on the path", HIDDEN, "")     \
    R(X, TEXT, gpu, 0, 63, 0, "worker's GPU", HIDDEN, "")                                         \
    R(X, TEXT, gpu_users, 0, 127, 0, "other processes on `gpu`", HIDDEN, "")

#define FAILURE_FACT(X, kind, name, least, most, missing, what, ...) X(kind, name, least, most, missing, what)
#define FAILURE_FACTS(X)                                             FAILURE_ROWS(FAILURE_FACT, X)

#define FAILURE_WHOLE(name, most)                    int64_t name;
#define FAILURE_MARK(name, most)                     bool name;
#define FAILURE_TEXT(name, most)                     char name[(most) + 1];
#define FAILURE_MEMBER(kind, name, least, most, ...) FAILURE_##kind(name, most)

/* Reasons why no further attempt follows, and their words in messages. */
#define NO_RESTARTS(X)                                                                                    \
    X(NONE, "")                       /* no reason: the job restarts or is done, or --max_restarts=0 */   \
    X(USED_UP, "used_up")             /* --max_restarts */                                                \
    X(CANNOT_START, "cannot_start")   /* the program cannot be executed */                                \
    X(USAGE, "usage")                 /* a worker exited with code 2, 126 or 127 soon after its start */  \
    X(IMPORT, "import")               /* all workers of a node exited early with the same import error */ \
    X(NO_PROGRESS, "no_progress")     /* --max_no_progress */                                             \
    X(HANGS, "hangs")                 /* --on_hang=stop */                                                \
    X(STOPPED, "stopped")             /* the user stopped the job */                                      \
    X(UNKILLABLE, "unkillable")       /* a process of the last attempt is still alive */                  \
    X(TOO_FEW_NODES, "too_few_nodes") /* too few nodes joined in time */                                  \
    X(NOT_READY, "not_ready")         /* a node or the store could not prepare the next attempt */        \
    X(STORE_LOST, "")                 /* the node has lost the store; never sent */

#define X(name, word) NO_RESTART_##name,
enum no_restart { NO_RESTARTS(X) N_NO_RESTARTS };
#undef X

static const char *const no_restart_words[N_NO_RESTARTS] = {
#define X(name, word) [NO_RESTART_##name] = word,
    NO_RESTARTS(X)
#undef X
};

/* Return the word of a reason, or "?" for an unknown value. */
static inline const char *no_restart_word(enum no_restart why)
{
    return why < N_NO_RESTARTS ? no_restart_words[why] : "?";
}

/* Return the reason with this word. For an unknown word, which a newer program may send, return NONE. */
static inline enum no_restart no_restart_find(const char *word)
{
    for (int why = 0; why < N_NO_RESTARTS; why++)
        if (strcmp(word, no_restart_words[why]) == 0)
            return (enum no_restart)why;
    return NO_RESTART_NONE;
}

/* The value of the field `why` if ddprun --hosts has ended the job because of a finding about a host. ddprun has
 * already printed the finding. No message contains this value. */
#define FAILURE_HOST_LOST "host_lost"

/* The beginning of the field `words` if the worker could not be started. The cause follows. */
#define FAILURE_NOT_STARTED "could not be started: "

/* The failure of a worker. The field `rank` is -1 if a node was lost or was stopped by its user. The agent that detects
 * the end of a worker fills in the record (launcher/node). hub/messages.h encodes and decodes the record. The store
 * copies the whole record, and launcher/report prints it in every node's report. */
struct failure {
    char code[40];        /* code of the finding, such as "WORKER_FAILED"; "" without a finding */
    char why[24];         /* why the round ended, such as "failed" or "node_lost"; "" without a reason */
    int node_rank;        /* node rank of the failed node; -1 if unknown, or if no node failed */
    int rank, local_rank; /* global and local rank of the worker; -1 if the failure is not of a worker */
    int pid, exit_code, signal;
    int error; /* errno if the worker could not be started, otherwise 0 */
    /* Time in ms from the start of the attempt to the failure. In the record of the worker's agent, the time begins at the
     * start of the worker. */
    uint64_t after_ms;
    bool victim;       /* the worker failed because another worker was lost */
    char no_retry[16]; /* reason against a restart: "cannot_start", "usage", "import" or "hangs"; else "" */
    char host[LIMIT_TEXT];
    char words[LIMIT_WORDS]; /* how the worker ended, as a part of a sentence */
    char log[LIMIT_WORDS];   /* path of the worker's log; "" if it has no log */
    FAILURE_FACTS(FAILURE_MEMBER)
    int n_lines;
    char lines[LIMIT_LAST_LINES][LIMIT_WORDS]; /* last lines of the worker's log, oldest first */
};

#endif
