/* signals.h -- the effect of each signal on the guardian (ddprun), the agent and a worker. Each signal has a row, whose
 * texts are also in the manual page and in docs/signals.md. All functions are pure: the caller passes each received
 * signal as a struct. */
#ifndef LAUNCHER_SIGNALS_H
#define LAUNCHER_SIGNALS_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stdint.h>

/* The rows determine which signals are handled, allowed in --signals_to_handle, and reset in a worker (spawn.c).
 *
 * Columns: name; action; whether --signals_to_handle may contain the signal (only if its default action ends a
 * process); then the effect on guardian, agent and worker. */

/* clang-format off */
#define SIGNAL_LIST(X)                                                                                       \
    X(TERM,  STOP,   true,                                                                                   \
      "stops the job within --grace; a second SIGTERM kills the workers",                                    \
      "the same", "runs the worker's handler; without a handler, the worker fails")                          \
    X(INT,   STOP,   true,                                                                                   \
      "like SIGTERM (Ctrl-C)", "the same", "like SIGTERM")                                                   \
    X(HUP,   STOP,   true,                                                                                   \
      "like SIGTERM, but a second SIGHUP changes nothing", "the same",                                       \
      "like SIGTERM")                                                                                        \
    X(QUIT,  STATUS, true,                                                                                   \
      "prints the workers' states and stacks (Ctrl-\\); workers do not get SIGQUIT",                         \
      "the same", "like SIGTERM")                                                                            \
    X(USR1,  PASS,   true,                                                                                   \
      "passes the signal to workers, not to their children", "the same", "like SIGTERM")                     \
    X(USR2,  PASS,   true,                                                                                   \
      "like SIGUSR1", "the same", "like SIGTERM")                                                            \
    X(WINCH, PASS,   false,                                                                                  \
      "like SIGUSR1 (new terminal size)", "the same", "depends on the program")                              \
    X(TSTP,  REST,   false,                                                                                  \
      "suspends the job, then ddprun (Ctrl-Z)", "suspends the job; ddprun waits",                            \
      "suspends this worker; ddprun reports the suspension")                                                           \
    X(CONT,  RESUME, false,                                                                                  \
      "continues the job (fg, bg)", "the same", "continues this worker")                                     \
    X(PIPE,  NONE,   false,                                                                                  \
      "ignored: ddprun reports the write error instead", "the same",                                         \
      "depends on the program (default: ends the worker)")                                                                   \
    X(XFSZ,  NONE,   false,                                                                                  \
      "like SIGPIPE (ulimit -f)", "the same", "like SIGTERM")                                                \
    X(CHLD,  CHILD,  false,                                                                                  \
      "detects the agent's end", "detects which workers ended or stopped",                                   \
      "depends on the program")
/* clang-format on */

enum signal_act {
    SIGNAL_NONE,   /* ignored */
    SIGNAL_STOP,   /* stop the job; a second stop signal kills the workers */
    SIGNAL_STATUS, /* print what each worker does */
    SIGNAL_PASS,   /* pass the signal on to each worker */
    SIGNAL_REST,   /* suspend all processes of the job (Ctrl-Z) */
    SIGNAL_RESUME, /* continue all processes of the job */
    SIGNAL_CHILD   /* a child has exited */
};

/* A row of the table of signals, which is constant. */
struct signal_row {
    int number;
    const char *name; /* "TERM" */
    enum signal_act act;
    bool may_stop;
};

/* ROW_SIGTERM and so on: index of each row. */
enum signal_row_id {
#define X(name, ...) ROW_SIG##name,
    SIGNAL_LIST(X)
#undef X
        SIGNAL_ROWS
};

extern const struct signal_row signal_rows[SIGNAL_ROWS];

/* --- effects of signals ------------------------------------------------------------------------------------- */

/* A set of signals: bit N modulo 64 for signal N. */
typedef uint64_t signal_set;

/* Parse a list such as "SIGTERM,INT", in which "SIG" is optional. Return DDP_ERR_ARG if a name is invalid; `err`
 * then lists the valid names. */
ddp_status signals_parse(const char *text, signal_set *set, struct ddp_err *err);

/* Append a list of all signals that stop the job: "SIGTERM,SIGINT,SIGHUP" and the names in `stop`. A NUL ends the list.
 * Return false when memory is short. */
bool signals_print(signal_set stop, struct buf *out);

/* Return the effect of a signal. `stop` is the set of additional signals that stop the job. */
enum signal_act signals_act(signal_set stop, int signal);

enum { SIGNAL_NAME_MAX = 32 };

/* Format the name of a signal: "SIGSEGV", "SIGRTMIN+3", or "signal 77" if the signal has no name. */
void signal_name(char out[SIGNAL_NAME_MAX], int sig);

/* --- sender ------------------------------------------------------------------------------------------------- */

enum { SENDER_NAME_MAX = 16 };

struct signal_sender {
    bool kernel; /* the kernel sent the signal (a key, a closed terminal); the other members are unset */
    int pid;     /* 0 if the process is in another PID namespace or on another node */
    unsigned uid;
    /* the printable name of the program that has sent the signal; "" if the program has already ended. If `pid` is 0,
     * `name` is instead the node that received the signal ("node 3"), or "" for this node. */
    char name[SENDER_NAME_MAX];
};

/* A received signal, as the guardian passes it to the agent. */
struct received_signal {
    int signal;
    bool by_guardian; /* the guardian has received the signal and passed it on */
    bool by_parent;   /* the guardian's parent (with --hosts the relay) has sent the signal to the guardian */
    struct signal_sender sender;
};

/* Append the signal and its sender, for example "SIGTERM from bash (pid 12, uid 0)". Return false when memory is
 * short. */
bool received_signal_text(const struct received_signal *received, struct buf *out);

/* Append only the sender, for example "slurmstepd (pid 812, uid 0)". */
bool signal_sender_text(const struct received_signal *received, struct buf *out);

/* --- repeated signals --------------------------------------------------------------------------------------- */

/* The last stop signal, and its time. A zeroed struct means that no signal has arrived. */
struct stop_memory {
    struct received_signal last;
    uint64_t at_ms; /* time when `last` arrived: `now_ms` of the call of signals_is_new_stop */
    /* Bits of the routes by which `last` and its copies have arrived. If the same signal arrives again by one of these
     * routes, it is a new request. But a repeated SIGHUP is never a new request. */
    unsigned ways;
};

/* Return true if `received` is a new request to stop. Return false if `received` is a copy of the previous signal. A
 * batch system, systemd or pkill may signal both the guardian and the agent. The agent then gets a copy, because the
 * guardian passes each signal on to the agent. With --hosts, the relay may send another copy to the guardian. A second
 * SIGHUP is never a new request. */
bool signals_is_new_stop(struct stop_memory *memory, const struct received_signal *received, uint64_t now_ms);

#endif
