/* failure.h -- the words and codes of a failure, and of the end of any worker. */
#ifndef LAUNCHER_AGENT_FAILURE_H
#define LAUNCHER_AGENT_FAILURE_H

#include "agent/agent.h"
#include "base/failure.h"

/* Return the exit code of ddprun for this failure; 0 = it is a reason to start again, not a failure. */
int failure_code(const struct failure *cause);

/* A worker's end as text: one place for "exit 7" and "killed by SIGSEGV (signal 11)". */

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
