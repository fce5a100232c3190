/* failure.h -- texts and exit codes of a failure, and of the end of any worker. */
#ifndef LAUNCHER_AGENT_FAILURE_H
#define LAUNCHER_AGENT_FAILURE_H

#include "agent/agent.h"
#include "record/failure.h"

/* Return the exit code of ddprun for this failure; 0 = a reason to restart, not a failure. */
int failure_code(const struct failure *cause);

/* The end of a worker as text: one place for "exit 7" and "killed by SIGSEGV (signal 11)". */

enum { ENDING_MAX = 96 };

/* Return "SIGSEGV", "SIGRTMIN+3", or "signal 77" for a signal without a name. */
void signal_name(char out[ENDING_MAX], int sig);

/* Return "exit 7", "killed by SIGSEGV (signal 11)", "could not be started: No such file or directory" or "still
 * running". */
void ending_text(char out[ENDING_MAX], const struct agent_worker *worker);

/* Return the exit code that a shell would give: code, 128 + signal, 126, 127. */
int ending_code(const struct agent_worker *worker);

/* Return a lower-case word for JSON: "pending", "alive", "ok", "failed", "not_started", "consequence", "victim". */
const char *verdict_name(enum worker_verdict verdict);

#endif
