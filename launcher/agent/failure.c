/* failure.c -- see agent.h. */
#include "agent/agent.h"

#include "base/text.h"
#include "ddp/error.h"
#include "base/exit_codes.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Return the exit code. A lost node has no exit code, so return 125. As with `env` and `timeout`, 125 means that the
 * launcher failed and not the program. */
int failure_code(const struct failure *c)
{
    const struct agent_worker how = { .verdict = c->error != 0 ? WORKER_NOT_STARTED : WORKER_FAILED,
                                      .exit_code = c->exit_code,
                                      .signal = c->signal,
                                      .error = c->error };
    if (strcmp(c->why, "node_lost") == 0 || strcmp(c->why, "timeout") == 0 || strcmp(c->why, "refused") == 0)
        return EXIT_CODE_DDPRUN;
    return ending_code(&how);
}

/* Format a name such as "SIGSEGV". Real-time signals are numbered from SIGRTMIN, as in kill -l. */
void signal_name(char out[ENDING_MAX], int sig)
{
    const char *abbrev = signal_abbrev(sig);
    if (abbrev != NULL)
        snprintf(out, ENDING_MAX, "SIG%s", abbrev);
    else if (sig >= SIGRTMIN && sig <= SIGRTMAX)
        snprintf(out, ENDING_MAX, "SIGRTMIN+%d", sig - SIGRTMIN);
    else
        snprintf(out, ENDING_MAX, "signal %d", sig);
}

/* Describe how a process ended, without the reason. */
static void exit_text(char out[ENDING_MAX], const struct agent_worker *worker)
{
    char name[ENDING_MAX];
    if (worker->signal == 0) {
        snprintf(out, ENDING_MAX, "exit %d", worker->exit_code);
        return;
    }
    signal_name(name, worker->signal);
    snprintf(out, ENDING_MAX, "killed by %.40s (signal %d)", name, worker->signal);
}

/* Describe an error of execve or fork. No ddprun program sets a locale, so strerror returns English. */
static void start_error_text(char out[ENDING_MAX], int error)
{
    snprintf(out, ENDING_MAX, "could not be started: %.60s", strerror(error));
}

/* Describe the end of a worker. Only a worker that was started has an exit code or a signal. */
void ending_text(char out[ENDING_MAX], const struct agent_worker *worker)
{
    switch (worker->verdict) {
    case WORKER_PENDING:
        snprintf(out, ENDING_MAX, "not started");
        break;
    case WORKER_ALIVE:
        snprintf(out, ENDING_MAX, "still running");
        break;
    case WORKER_NOT_STARTED:
        start_error_text(out, worker->error);
        break;
    case WORKER_OK:
    case WORKER_FAILED:
    case WORKER_CONSEQUENCE:
        exit_text(out, worker);
        break;
    case WORKER_VICTIM:
        snprintf(out, ENDING_MAX, "exit %d, ended because another rank was lost", worker->exit_code);
        break;
    }
}

/* Return the exit code that a shell reports. */
int ending_code(const struct agent_worker *worker)
{
    if (worker->verdict == WORKER_NOT_STARTED)
        return worker->error == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_RUN;
    return worker->signal != 0 ? EXIT_CODE_SIGNAL + worker->signal : worker->exit_code;
}

/* Return the name of a verdict. The names are part of the formats of events and report.json, and must not change. */
const char *verdict_name(enum worker_verdict verdict)
{
    static const char *const names[] = {
        [WORKER_PENDING] = "pending",
        [WORKER_ALIVE] = "alive",
        [WORKER_OK] = "ok",
        [WORKER_FAILED] = "failed",
        [WORKER_NOT_STARTED] = "not_started",
        [WORKER_CONSEQUENCE] = "consequence",
        [WORKER_VICTIM] = "victim",
    };
    return names[verdict];
}
