/* signals.h -- the effect of each signal on ddprun (the guardian), its agent and a worker. One row each.
 *
 * From these rows come: the signals that guardian and agent watch, those that spawn.c resets to default in a worker,
 * the names that --signals-to-handle accepts, the manual page and docs/signals.md. Pure: a received signal is
 * data.
 *
 * Columns: name, action, whether it may be configured to stop the job (its default action ends a process, so workers
 * without a handler end by it, too), then the texts for the three processes. */
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
      "stops the job: the workers get it, and SIGKILL after the grace period; a second one kills at once",        \
      "the same", "up to the program; if the worker ends by it, it has failed")                        \
    X(INT,   STOP,   true,                                                                                   \
      "as SIGTERM (Ctrl-C)", "the same", "as SIGTERM")                                                       \
    X(HUP,   STOP,   true,                                                                                   \
      "as SIGTERM, but a second one changes nothing: a closing terminal sends several", "the same",           \
      "as SIGTERM")                                                                                          \
    X(QUIT,  STATUS, true,                                                                                   \
      "prints what each worker does, with stacks (Ctrl-\\); the workers do not get it", "the same", "as SIGTERM")         \
    X(USR1,  PASS,   true,                                                                                   \
      "goes to every worker, not to their children", "the same", "as SIGTERM")                               \
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
      "nothing: a closed output is detected when it is written to", "the same",                            \
      "as SIGTERM, even when ddprun was started with it ignored")                                       \
    X(XFSZ,  NONE,   false,                                                                                  \
      "nothing: a log file at its limit (ulimit -f) is detected when it is written to", "the same", "as SIGTERM")   \
    X(CHLD,  CHILD,  false,                                                                                  \
      "checks whether the agent has ended", "checks which workers have ended or stopped", "up to the program")
/* clang-format on */

enum signal_act {
    SIGNAL_NONE,   /* ignored */
    SIGNAL_STOP,   /* the job ends gracefully; the second time at once */
    SIGNAL_STATUS, /* print what every worker does */
    SIGNAL_PASS,   /* every worker gets it */
    SIGNAL_REST,   /* the whole job stops ... */
    SIGNAL_RESUME, /* ... and continues */
    SIGNAL_CHILD   /* a child has exited */
};

struct signal_row {
    int number;
    const char *name; /* "TERM" */
    enum signal_act act;
    bool may_stop;
};

/* One value for each row: ROW_SIGTERM ... */
enum signal_row_id {
#define X(name, ...) ROW_SIG##name,
    SIGNAL_LIST(X)
#undef X
        SIGNAL_ROWS
};

extern const struct signal_row signal_rows[SIGNAL_ROWS];

/* --- effects of signals ------------------------------------------------------------------------------------- */

/* Signals that stop the job, as bits 1 << number. */
typedef uint64_t signal_set;

/* Parse "SIGTERM,INT"; each name with or without SIG. DDP_ERR_ARG: `err` lists the valid names. */
ddp_status signals_parse(const char *text, signal_set *set, struct ddp_err *err);

/* Write "SIGTERM,SIGINT,SIGHUP", then those of `stop` that are not among them, and a NUL. False when memory is short. */
bool signals_print(signal_set stop, struct buf *out);

/* Return the effect of a signal when those of `stop` stop the job. */
enum signal_act signals_act(signal_set stop, int signal);

/* --- sender ------------------------------------------------------------------------------------------------- */

enum { SENDER_NAME_MAX = 16 };

struct signal_sender {
    bool kernel; /* the kernel sent it: a key, or the end of a terminal; the rest is unset */
    int pid;     /* 0 = not in a PID namespace visible to us */
    unsigned uid;
    char name[SENDER_NAME_MAX]; /* printable; "" = the process has ended already */
};

/* A received signal, as the guardian passes it to the agent. */
struct signal_heard {
    int signal;
    bool by_guardian; /* it was sent to the guardian, not to the agent */
    struct signal_sender sender;
};

/* Append "SIGTERM from bash (pid 12, uid 0)". False when memory is short. */
bool signal_heard_text(const struct signal_heard *heard, struct buf *out);

/* Append only the sender: "slurmstepd (pid 812, uid 0)". */
bool signal_sender_text(const struct signal_heard *heard, struct buf *out);

/* --- repeated signals --------------------------------------------------------------------------------------- */

/* The last request to stop, or the last signal that was passed on. Zeroed = none yet. */
struct stop_memory {
    struct signal_heard last;
    uint64_t at_ms;
    bool copied; /* its copy has arrived; the next one is a new request */
};

/* True if this is a new request. False for a copy: a batch system, systemd or pkill signals all processes of a job,
 * so both guardian and agent get it. A hangup is never a second request. */
bool signals_is_new_stop(struct stop_memory *memory, const struct signal_heard *heard, uint64_t now_ms);

#endif
