/* failure.h -- the first cause of an attempt's end over all nodes, as the store tells it.
 *
 * The store orders what it is told by its own clock, so every node hears of the same cause. Most causes are the failure
 * of a worker; a node that is lost, or that its user has stopped, is one too, and then `rank` is -1. */
#ifndef LAUNCHER_AGENT_FAILURE_H
#define LAUNCHER_AGENT_FAILURE_H

#include "agent/agent.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CAUSE_CODE_MAX = 40,
    CAUSE_WHY_MAX = 24,
    CAUSE_HOST_MAX = LIMIT_TEXT,
    CAUSE_WORDS_MAX = LIMIT_WORDS,
    CAUSE_LINES_MAX = LIMIT_LAST_LINES
};

struct cause {
    char code[CAUSE_CODE_MAX]; /* of the finding, "WORKER_FAILED"; "" = none */
    char why[CAUSE_WHY_MAX];   /* "failed", "node_lost", "node_left", "grow" ...; "" = there is none */
    int node_rank;             /* -1 = none */
    char host[CAUSE_HOST_MAX];
    int rank, local_rank; /* of the worker, -1 = it is not about one */
    int pid, exit_code, signal, error;
    uint64_t after_ms; /* since the attempt began, by the store's clock */
    char words[CAUSE_WORDS_MAX], log[CAUSE_WORDS_MAX];
    bool victim;      /* that worker gave up because it had lost another one */
    bool from_stdout; /* its last words: it was silent on stderr */
    int n_lines;
    char lines[CAUSE_LINES_MAX][CAUSE_WORDS_MAX];
};

/* What ddprun exits with because of it; 0 = it is no failure, only a reason to begin anew. */
int cause_code(const struct cause *cause);

/* A worker that gave up because it had lost another one. */
bool cause_is_victim(const struct cause *cause);

/* --- ending ----------------------------------------------------------------------------------------------- */

/* How a worker ended, in words: one place for "exit 7" and "killed by SIGSEGV (signal 11)". */

enum { ENDING_MAX = 96 };

/* "SIGSEGV"; "SIGRTMIN+3"; "signal 77" when it has no name. */
void signal_name(char out[ENDING_MAX], int sig);

/* "exit 7", "killed by SIGSEGV (signal 11)", "could not be started: No such file or directory", "still
 * running". */
void ending_text(char out[ENDING_MAX], const struct agent_worker *worker);

/* The exit code that a shell would give: code, 128 + signal, 126, 127. */
int ending_code(const struct agent_worker *worker);

/* Lower-case word for JSON: "pending", "alive", "ok", "failed", "not_started", "consequence", "victim". */
const char *verdict_name(enum worker_verdict verdict);

#endif
