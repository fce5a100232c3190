/* trial.h -- one job, one fault, and the processes that survive the fault. The trials are all combinations of the
 * tables below, because a launcher may handle a fault with one kind of worker only. */
#ifndef TESTS_SURVIVORS_TRIAL_H
#define TESTS_SURVIVORS_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

/* The kinds of workers (tests/prog/survivor.c has the same names). */
#define KINDS(X)                                             \
    X(PLAIN, "plain", "plain")                               \
    X(FORKS, "forks", "forks children")                      \
    X(DAEMON, "daemon", "setsid + double fork")              \
    X(DEAF, "deaf", "ignores SIGTERM")                       \
    X(STOPPED, "stopped", "stopped by SIGSTOP")              \
    X(PIDNS, "pidns", "own PID namespace")                   \
    X(LOADER, "loader", "loader holds stdout, parent ended") \
    X(CHAINS, "chains", "64 fork-and-setsid chains")

/* The faults. A trial has one fault. */
#define FAULTS(X)                                      \
    X(TERM, "term", "SIGTERM to the launcher")         \
    X(GUARDIAN, "guardian", "SIGKILL of the guardian") \
    X(AGENT, "agent", "SIGKILL of ddprun's agent")     \
    X(BOTH, "both", "SIGKILL of both at once")         \
    X(HANGUP, "hangup", "terminal closed")             \
    X(OOM, "oom", "OOM kill")

/* The launchers. ddprun counts as one launcher for each value of --contain. */
#define LAUNCHERS(X)                                  \
    X(PLAIN, "plain", "ddprun --contain=plain")       \
    X(CGROUP, "cgroup", "ddprun --contain=cgroup")    \
    X(PIDNS_LAYER, "pidns", "ddprun --contain=pidns") \
    X(HYDRA, "hydra", "mpiexec.hydra")                \
    X(OPENMPI, "openmpi", "mpirun.openmpi")           \
    X(TORCHRUN, "torchrun", "torchrun")

#define X(id, name, words) KIND_##id,
enum kind { KINDS(X) KIND_COUNT };
#undef X
#define X(id, name, words) FAULT_##id,
enum fault { FAULTS(X) FAULT_COUNT };
#undef X
#define X(id, name, words) BY_##id,
enum launcher { LAUNCHERS(X) BY_COUNT };
#undef X
#define BY_PEERS BY_HYDRA /* the first launcher that is not ddprun */

enum { TRIAL_GRACE_MS = 300, TRIAL_AFTER_MS = 2000, TRIAL_WORDS = 1000 };

struct trial {
    enum launcher by;
    enum kind kind;
    enum fault fault;
    uint64_t seed;      /* selects the moment of the fault: during the start or after it */
    int after_ms;       /* added to the time limits for the end of ddprun's job and for ddprun's next start */
    const char *ddprun; /* paths of the programs */
    const char *worker;
    const char *without;    /* system calls that fail in ddprun (tests/prog/without.c); NULL = none */
    const char *record_dir; /* directory in which ddprun keeps its records for its next start */
};

enum trial_end {
    TRIAL_LOST,     /* the trial itself has died */
    TRIAL_DONE,     /* the fault happened; `survivors`, `ms` and `words` have the result */
    TRIAL_NO_FAULT, /* the job did not start, or the fault could not be made: `words` has the reason */
};

struct trial_result {
    enum trial_end end;
    int survivors;     /* number of processes that are alive at the time limit */
    int left_for_next; /* for FAULT_BOTH: number of processes that were alive when ddprun was started again */
    double ms;         /* time in ms until the last process had gone; measured from the fault, or from the
                        * next start of ddprun if ddprun was started again after FAULT_BOTH */
    bool during_start; /* true if the fault happened during the start of the job */
    char words[TRIAL_WORDS]; /* lines of text: the survivors, or why there was no fault */
};

/* Run the trial in a new process, which adopts everything that the job leaves. */
void trial_run(const struct trial *t, struct trial_result *r);

/* Write to `argv` the command line of the launcher `by` for `workers` workers, which get the arguments `args`. `argv`
 * has room for LAUNCHER_ARGS entries. The numbers in the command line are texts in static memory. */
enum { LAUNCHER_ARGS = 28 };
void launcher_argv(enum launcher by, const struct trial *t, int workers, const char *const args[],
                   const char *argv[LAUNCHER_ARGS]);

/* Return how long the launcher of `t` may take after a fault. */
uint64_t launcher_limit_ms(const struct trial *t);

#endif
