/* guardian.h -- the process that the user sees (the guardian), and its child, the agent. The two processes watch each
 * other, because a process that gets SIGKILL cannot stop its children. Other entry points of launcher/node follow
 * below, one section for each file. */
#ifndef LAUNCHER_GUARDIAN_H
#define LAUNCHER_GUARDIAN_H

#include "base/buf.h"
#include "contain/contain.h"
#include "plan/plan.h"
#include "tables/signals.h"

#include <signal.h>

/* Run the agent and return its exit code. `lifeline` is the reading end of a pipe from the guardian, and does not
 * block. The guardian writes a struct received_signal for each signal that it gets, except SIGCHLD. The pipe ends when
 * the guardian dies. A SIGCONT from the guardian only wakes a stopped agent. All signals of signal_watch_block() are
 * blocked on entry. */
typedef int (*guardian_body)(void *arg, int lifeline);

/* Fork the agent and watch it:
 *
 *     user's shell -> guardian (waits, forwards signals) -> agent (runs the job) -> workers
 *
 * If the agent dies, even by kill -9, the guardian adopts and kills all processes of the job. If the guardian dies, the
 * lifeline (a pipe from guardian to agent) ends, and the agent kills all processes of the job.
 *
 * The signals of `stop` end the job, in addition to the signals that always end the job. This function returns twice.
 * In the agent, it returns the result of `body`. In the guardian, it returns the agent's exit code, or 128 + n if
 * signal n ended the agent, or 125 if fork failed. Call this function before threads exist. At the end the resources of
 * `contain` are removed. */
int guardian_run(guardian_body body, void *arg, signal_set stop, struct contain *contain);

/* Kill all descendants of this agent, because its guardian has died. Return the agent's exit code. */
int guardian_is_gone(struct contain *contain);

/* Block those signals of tables/signals.h that ddprun reads. Each signal then stays pending until ddprun reads it.
 * Store the set of these signals in *watched. A signal that was ignored at the start (nohup, a background job of sh) is
 * not in the set and stays ignored. SIGCHLD and SIGCONT are always in the set. Call this function before threads
 * exist. */
void signal_watch_block(sigset_t *watched);

/* --- node.c: the agent, from its start to its exit code ------------------------------------------------------ */

struct node_job {
    struct plan *plan;       /* borrowed; node_run stores the actual port of the store in the plan */
    struct contain *contain; /* borrowed */
};

/* Run the agent. This function is a guardian_body, and its argument `job` points to a struct node_job. */
int node_run(void *job, int lifeline);

/* --- flight_shm.c: PyTorch's flight records -------------------------------------------------------------------- */

/* While a job makes no progress, the agent starts `ddprun --flight_calls DIR FIRST N AGE_MS PIDS`. This helper is a
 * separate process, because the file system of the records may hang. The helper prints lines of JSON. Its steps are:
 *
 *   1. Print each connection of the processes PIDS on which the peer does not acknowledge data.
 *   2. Print the open calls of ranks FIRST to FIRST + N - 1 (flight_call of hub/messages.h). Use only records that are
 *      at most AGE_MS ms old.
 *   3. Ask these ranks for new records through their FIFOs. This step follows step 2, because a record that is being
 *      written cannot be read.
 *   4. Probe the paths to the peers of step 1. Print each connection whose path loses large packets. */
#define FLIGHT_HELPER_OPTION "--flight_calls"
enum { FLIGHT_HELPER_WORDS = 7 }; /* argv[0], the option and its five arguments */

/* Run the helper with its command line and return its exit code. */
int flight_helper_run(int argc, char **argv);

/* --- stack_dump.c: py-spy ------------------------------------------------------------------------------------ */

/* To get the stacks of process PID, the agent starts a helper: `ddprun --py_spy PID WAY PLACE...`. Each of the four
 * PLACEs is "" or a path where py-spy may be. The helper is a separate process, because the file system of a PLACE may
 * hang. The helper searches the first three PLACEs, then PATH, then the last PLACE. The helper then executes the first
 * py-spy that it finds, as `py-spy dump --json --pid PID WAY`, where WAY is --native or --nonblocking. A py-spy beside
 * a program of the job must be safe (safe_program), because a job may run in a directory of another user. */
#define PY_SPY_HELPER_OPTION "--py_spy"
enum { PY_SPY_HELPER_WORDS = 8 };

/* Replace this process by py-spy, as the command line of the helper requests. Return an exit code if no safe py-spy
 * exists or execv fails. */
int py_spy_helper_run(char **argv);

/* --- detach.c: jobs without a terminal ------------------------------------------------------------------------ */

/* The arguments of detach_begin. All texts are borrowed, and must remain valid until detach_begin returns. */
struct detached_job {
    const char *id;      /* random letters; names the job in `ddprun list`, `attach` and `stop` */
    const char *rdzv_id; /* value of --rdzv_id; NULL if it is not set */
    char *const *argv;   /* command line of this ddprun, which `ddprun list` shows */
    bool quiet;          /* print only the id */
};

/* Start a supervisor that has no terminal and forks the guardian of the job. This function returns three times. In the
 * guardian it returns -1. In the supervisor it returns the job's exit code. In the caller it returns 0 or the exit code
 * of an error. Output goes to ddprun-ID.out in the working directory. Call this function before threads exist. */
int detach_begin(const struct detached_job *job);

/* Append a table with one row for each detached job of this user. If `json` is true, append one line of JSON for each
 * job instead. Return false if memory is short. */
bool detach_list(bool json, struct buf *out);

/* Show the output of a job until its end, or until Ctrl-C. Return its exit code. `id` is the id that `ddprun list`
 * prints, or the --rdzv_id of exactly one job in the background. */
int detach_attach(const char *id);

/* Send SIGINT to the guardian of a job, as Ctrl-C does. Return the exit code of `ddprun stop`. See detach_attach for
 * `id`. */
int detach_stop(const char *id);

#endif
