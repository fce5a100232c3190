/* signals.h -- the effect of each signal on ddprun (the guardian), its agent and a worker, one row each.
 *
 * These rows define the signals that guardian and agent handle, the signals that spawn.c resets to their default
 * action in a worker, the names that --signals_to_handle accepts, the manual page and docs/signals.md. Pure: a
 * received signal is data.
 *
 * Columns: name; action; whether --signals_to_handle may contain the signal (only if its default action ends a
 * process, so that it also ends workers without a handler); then the texts for the three processes. */
#ifndef LAUNCHER_SIGNALS_H
#define LAUNCHER_SIGNALS_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define SIGNAL_LIST(X)                                                                                       \
    X(TERM,  STOP,   true,                                                                                   \
      "stops the job: the workers get SIGTERM, and SIGKILL after the grace period; a second SIGTERM kills at once",        \
      "the same", "up to the program; if SIGTERM ends the worker, it has failed")                        \
    X(INT,   STOP,   true,                                                                                   \
      "as SIGTERM (Ctrl-C)", "the same", "as SIGTERM")                                                       \
    X(HUP,   STOP,   true,                                                                                   \
      "as SIGTERM, but a second SIGHUP changes nothing, because closing terminals send several", "the same",           \
      "as SIGTERM")                                                                                          \
    X(QUIT,  STATUS, true,                                                                                   \
      "prints what each worker does, with stacks (Ctrl-\\); the workers do not get SIGQUIT", "the same", "as SIGTERM")         \
    X(USR1,  PASS,   true,                                                                                   \
      "is passed to the workers, not their children", "the same", "as SIGTERM")                               \
    X(USR2,  PASS,   true,                                                                                   \
      "as SIGUSR1", "the same", "as SIGTERM")                                                                \
    X(WINCH, PASS,   false,                                                                                  \
      "as SIGUSR1 (the terminal has a new size)", "the same", "up to the program")                      \
    X(TSTP,  REST,   false,                                                                                  \
      "all processes of the job stop, then ddprun (Ctrl-Z)", "all stop, ddprun waits",                       \
      "this worker stops, and ddprun reports it")                                                               \
    X(CONT,  RESUME, false,                                                                                  \
      "all processes of the job continue (fg, bg)", "the same", "this worker continues")                          \
    X(PIPE,  NONE,   false,                                                                                  \
      "nothing: a write detects a closed output", "the same",                            \
      "as SIGTERM, even if SIGPIPE was ignored when ddprun started")                                       \
    X(XFSZ,  NONE,   false,                                                                                  \
      "nothing: a write detects a log file at its limit (ulimit -f)", "the same", "as SIGTERM")   \
    X(CHLD,  CHILD,  false,                                                                                  \
      "checks whether the agent has ended", "checks which workers have ended or stopped", "up to the program")
/* clang-format on */

enum signal_act {
    SIGNAL_NONE,   /* ignored */
    SIGNAL_STOP,   /* the job ends gracefully; at the second signal at once */
    SIGNAL_STATUS, /* print what every worker does */
    SIGNAL_PASS,   /* the signal is passed on to every worker */
    SIGNAL_REST,   /* all processes of the job are stopped */
    SIGNAL_RESUME, /* all processes of the job continue */
    SIGNAL_CHILD   /* a child has exited */
};

struct signal_row {
    int number;
    const char *name; /* "TERM" */
    enum signal_act act;
    bool may_stop;
};

/* A number for each row: ROW_SIGTERM ... */
enum signal_row_id {
#define X(name, ...) ROW_SIG##name,
    SIGNAL_LIST(X)
#undef X
        SIGNAL_ROWS
};

extern const struct signal_row signal_rows[SIGNAL_ROWS];

/* --- effects of signals ------------------------------------------------------------------------------------- */

/* A set of signals that stop the job; the bit of a signal is 1 << number. */
typedef uint64_t signal_set;

/* Parse "SIGTERM,INT"; "SIG" is optional in each name. DDP_ERR_ARG: `err` lists the valid names. */
ddp_status signals_parse(const char *text, signal_set *set, struct ddp_err *err);

/* Append "SIGTERM,SIGINT,SIGHUP", then the other signals of `stop`, and a NUL. Return false when memory is short. */
bool signals_print(signal_set stop, struct buf *out);

/* Return the effect of a signal if the signals in `stop` stop the job. */
enum signal_act signals_act(signal_set stop, int signal);

/* --- sender ------------------------------------------------------------------------------------------------- */

enum { SENDER_NAME_MAX = 16 };

struct signal_sender {
    bool kernel; /* the kernel sent the signal, for a key or a closed terminal; the rest is unset */
    int pid;     /* 0 = the process is outside of this PID namespace */
    unsigned uid;
    char name[SENDER_NAME_MAX]; /* printable; "" = the process had already ended */
};

/* A received signal, as the guardian passes it to the agent. */
struct signal_heard {
    int signal;
    bool by_guardian; /* sent to the guardian, not to the agent */
    struct signal_sender sender;
};

/* Append "SIGTERM from bash (pid 12, uid 0)". Return false when memory is short. */
bool signal_heard_text(const struct signal_heard *heard, struct buf *out);

/* Append only the sender: "slurmstepd (pid 812, uid 0)". */
bool signal_sender_text(const struct signal_heard *heard, struct buf *out);

/* --- repeated signals --------------------------------------------------------------------------------------- */

/* The last request to stop, or the last signal that was passed on. Zeroed = none. */
struct stop_memory {
    struct signal_heard last;
    uint64_t at_ms;
    bool copied; /* the copy has arrived, so the next signal is a new request */
};

/* Return true if this is a new request; false for a copy. A batch system, systemd or pkill sends a signal to all
 * processes of a job, so both guardian and agent get it. SIGHUP is never a second request. */
bool signals_is_new_stop(struct stop_memory *memory, const struct signal_heard *heard, uint64_t now_ms);

#endif
