/* guardian.h -- the process that the user sees (the guardian), and its child, the agent. They watch each other, because
 * a process that gets SIGKILL cannot stop its children. The other sections are entry points of launcher/node. */
#ifndef LAUNCHER_GUARDIAN_H
#define LAUNCHER_GUARDIAN_H

#include "base/buf.h"
#include "contain/contain.h"
#include "plan/plan.h"
#include "tables/signals.h"

#include <signal.h>

/* Run the agent and return its exit code. `lifeline` is the non-blocking reading end of a pipe. The guardian writes a
 * struct received_signal for each signal, except SIGCHLD. The pipe ends when the guardian dies. All signals of
 * signal_watch_block() are blocked on entry. */
typedef int (*guardian_body)(void *arg, int lifeline);

/* Fork the agent and watch it:
 *
 *     user's shell -> guardian (waits, forwards signals) -> agent (runs the job) -> workers
 *
 * If the agent or the guardian dies, even by kill -9, the other process kills all processes of the job.
 *
 * The signals of `stop` end the job, in addition to those that always do. Call this before threads exist. At the end it
 * removes the resources of `contain`. It returns twice:
 *
 *   - in the agent: the result of `body`
 *   - in the guardian: the agent's exit code; 128 + n if signal n ended the agent; 125 if fork failed */
int guardian_run(guardian_body body, void *arg, signal_set stop, struct contain *contain);

/* Kill all descendants of this agent, because its guardian has died. Return the exit code. */
int guardian_is_gone(struct contain *contain);

/* Block the signals of tables/signals.h that ddprun reads, and store their set in *watched. The set lacks signals that
 * were ignored at the start (nohup), except SIGCHLD and SIGCONT. Call this before threads exist. */
void signal_watch_block(sigset_t *watched);

/* --- node.c: the agent, from its start to its exit code ------------------------------------------------------ */

struct node_job {
    struct plan *plan;       /* borrowed; node_run stores the actual port of the store in the plan */
    struct contain *contain; /* borrowed */
};

/* Run the agent. This is a guardian_body; `job` points to a struct node_job. */
int node_run(void *job, int lifeline);

/* --- flight_shm.c: PyTorch's flight records -------------------------------------------------------------------- */

/* While a job makes no progress, the agent starts `ddprun --flight_calls DIR FIRST N AGE_MS PIDS`. This helper is a
 * separate process, because the file system of the records may hang. It prints lines of JSON. Its steps are:
 *
 *   1. Print each connection of the processes PIDS on which the peer does not acknowledge data.
 *   2. Print the open calls of ranks FIRST to FIRST + N - 1 (flight_call of hub/messages.h), if their records are at
 *      most AGE_MS ms old.
 *   3. Ask these ranks for new records through their FIFOs. A record that is being written cannot be read.
 *   4. Probe the paths to the peers of step 1. Print each connection whose path loses large packets. */
#define FLIGHT_HELPER_OPTION "--flight_calls"
enum { FLIGHT_HELPER_WORDS = 7 }; /* argv[0], the option and its five arguments */

/* Run the helper with its command line and return its exit code. */
int flight_helper_run(int argc, char **argv);

/* --- stack_dump.c: py-spy ------------------------------------------------------------------------------------ */

/* To get the stacks of process PID, the agent starts a helper: `ddprun --py_spy PID WAY PLACE...`. The helper becomes
 * `py-spy dump --json --pid PID WAY`, where WAY is --native or --nonblocking. It is a separate process, because the
 * file system of a PLACE may hang.
 *
 * Each of the four PLACEs is "" or a path where py-spy may be. The helper searches three PLACEs, then PATH, then the
 * last PLACE. A py-spy beside a program of the job must be safe (safe_program), because another user may own its
 * directory. */
#define PY_SPY_HELPER_OPTION "--py_spy"
enum { PY_SPY_HELPER_WORDS = 8 };

/* Become py-spy, as the helper's command line requests. Return an exit code if no safe py-spy exists or execv fails. */
int py_spy_helper_run(char **argv);

/* --- detach.c: jobs without a terminal ------------------------------------------------------------------------ */

struct detached_job {
    const char *id;      /* random letters; names the job in `ddprun list`, `attach` and `stop` */
    const char *rdzv_id; /* value of --rdzv_id; NULL if it is not set */
    char *const *argv;   /* command line of this ddprun, which `ddprun list` shows */
    bool quiet;          /* print only the id */
};

/* Start a supervisor that has no terminal and forks the guardian of the job. Call this before threads exist. Output
 * goes to ddprun-ID.out in the working directory. This function returns three times:
 *
 *   - in the guardian: -1
 *   - in the supervisor: the job's exit code
 *   - in the caller: 0 or the exit code of an error */
int detach_begin(const struct detached_job *job);

/* Append a table with one row for each detached job of this user, or lines of JSON if `json` is true. Return false if
 * memory is short. */
bool detach_list(bool json, struct buf *out);

/* Show the output of a job until its end, or until Ctrl-C. Return its exit code. `id` is the id of `ddprun list`, or
 * the --rdzv_id of exactly one job in the background. */
int detach_attach(const char *id);

/* Send SIGINT to the guardian of a job. Return the exit code of `ddprun stop`. `id` is as in detach_attach. */
int detach_stop(const char *id);

#endif
