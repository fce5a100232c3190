/* signals.h -- the effect of each signal on the guardian (ddprun), the agent and a worker.
 *
 * Each signal has a row. The rows determine which signals guardian and agent handle, which signals spawn.c resets
 * to their default action in a worker, and which names --signals_to_handle accepts. The manual page and
 * docs/signals.md contain their texts. Pure: a received signal is data.
 *
 * Columns: name; action; whether --signals_to_handle may contain the signal, which requires that its default
 * action ends a process; then the texts for the three processes. */
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
      "ends the worker unless the program handles SIGPIPE; ddprun restores the default action")                                       \
    X(XFSZ,  NONE,   false,                                                                                  \
      "nothing: a write detects a log file at its limit (ulimit -f)", "the same", "as SIGTERM")   \
    X(CHLD,  CHILD,  false,                                                                                  \
      "checks whether the agent has ended", "checks which workers have ended or stopped", "up to the program")
/* clang-format on */

enum signal_act {
    SIGNAL_NONE,   /* ignored */
    SIGNAL_STOP,   /* stop the job gracefully, or at once at the second signal */
    SIGNAL_STATUS, /* print what each worker does */
    SIGNAL_PASS,   /* pass the signal on to each worker */
    SIGNAL_REST,   /* stop all processes of the job (Ctrl-Z) */
    SIGNAL_RESUME, /* continue all processes of the job */
    SIGNAL_CHILD   /* a child has exited */
};

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

/* A set of signals. Bit N modulo 64 represents signal N. */
typedef uint64_t signal_set;

/* Parse a list such as "SIGTERM,INT", in which "SIG" is optional. Return DDP_ERR_ARG if a name is invalid; `err`
 * then lists the valid names. */
ddp_status signals_parse(const char *text, signal_set *set, struct ddp_err *err);

/* Append the names of the signals that stop the job, and a NUL: "SIGTERM,SIGINT,SIGHUP", then the other signals of
 * `stop`. Return false when memory is short. */
bool signals_print(signal_set stop, struct buf *out);

/* Return the effect of a signal. `stop` is the set of additional signals that stop the job. */
enum signal_act signals_act(signal_set stop, int signal);

enum { SIGNAL_NAME_MAX = 32 };

/* Format the name of a signal: "SIGSEGV", "SIGRTMIN+3", or "signal 77" if the signal has no name. */
void signal_name(char out[SIGNAL_NAME_MAX], int sig);

/* --- sender ------------------------------------------------------------------------------------------------- */

enum { SENDER_NAME_MAX = 16 };

struct signal_sender {
    bool kernel; /* the kernel sent the signal, for a key or a closed terminal; the other members are unset */
    int pid;     /* 0 = the process is in another PID namespace */
    unsigned uid;
    char name[SENDER_NAME_MAX]; /* printable name of the program; "" = the process has ended already */
};

/* A received signal, as the guardian passes it to the agent. */
struct signal_heard {
    int signal;
    bool by_guardian; /* the guardian has received the signal and passed it on */
    struct signal_sender sender;
};

/* Append the signal and its sender, for example "SIGTERM from bash (pid 12, uid 0)". Return false when memory is
 * short. */
bool signal_heard_text(const struct signal_heard *heard, struct buf *out);

/* Append only the sender, for example "slurmstepd (pid 812, uid 0)". */
bool signal_sender_text(const struct signal_heard *heard, struct buf *out);

/* --- repeated signals --------------------------------------------------------------------------------------- */

/* The last signal, and when it arrived. A zeroed struct contains none. */
struct stop_memory {
    struct signal_heard last;
    uint64_t at_ms;
    bool copied; /* the copy of `last` has arrived, so the next signal is a new request */
};

/* Return true for a new request, false for a copy of the last one. A batch system, systemd or pkill sends a signal
 * to guardian and agent, and the guardian passes its signal on to the agent. A second SIGHUP is never a new
 * request. */
bool signals_is_new_stop(struct stop_memory *memory, const struct signal_heard *heard, uint64_t now_ms);

#endif
