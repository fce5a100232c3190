/* signals.c -- see signals.h.
 *
 * A second request to stop kills the workers, so a copy of the first request must not count as the second. A copy
 * reaches the agent by another route than the first signal. A second request reaches the agent by the same route as
 * the first. */
#include "tables/signals.h"

#include "base/options.h"
#include "base/text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { COPY_MS = 1000 }; /* longest time between a signal and its copy; SIGHUP has no limit */

const struct signal_row signal_rows[SIGNAL_ROWS] = {
#define X(name, act, may_stop, ...) { SIG##name, #name, SIGNAL_##act, may_stop },
    SIGNAL_LIST(X)
#undef X
};

static const struct signal_row *signal_row_of(int signal)
{
    for (int i = 0; i < SIGNAL_ROWS; i++)
        if (signal_rows[i].number == signal)
            return &signal_rows[i];
    return NULL;
}

/* --- effects of signals ------------------------------------------------------------------------------------- */

/* Return the bit of a signal, which is unique for the numbers 1 to 64. */
static signal_set bit(int signal)
{
    return UINT64_C(1) << (signal & 63);
}

/* Return the row of the signal called `name` (`len` characters), or NULL if this signal cannot stop a job. */
static const struct signal_row *stopper(const char *name, size_t len)
{
    if (len > 3 && strncasecmp(name, "SIG", 3) == 0) {
        name += 3;
        len -= 3;
    }
    for (int i = 0; i < SIGNAL_ROWS; i++)
        if (signal_rows[i].may_stop && strlen(signal_rows[i].name) == len &&
            strncasecmp(signal_rows[i].name, name, len) == 0)
            return &signal_rows[i];
    return NULL;
}

static ddp_status not_a_list(struct ddp_err *err)
{
    char names[200] = "";
    int last = 0;
    for (int i = 0; i < SIGNAL_ROWS; i++)
        last = signal_rows[i].may_stop ? i : last;
    for (int i = 0; i < SIGNAL_ROWS; i++)
        if (signal_rows[i].may_stop)
            options_list_add(names, sizeof(names), i == last, "'SIG%s'", signal_rows[i].name);
    return ddp_fail(err, DDP_ERR_ARG, "%s, or several of these signals, separated by commas", names);
}

/* Parse a list of signals. Change *set only if all names are valid. */
ddp_status signals_parse(const char *text, signal_set *set, struct ddp_err *err)
{
    signal_set read = 0;
    for (;; text++) {
        const size_t len = strcspn(text, ",");
        const struct signal_row *row = stopper(text, len);
        if (row == NULL)
            return not_a_list(err);
        read |= bit(row->number);
        text += len;
        if (*text == '\0')
            break;
    }
    *set = read;
    return DDP_OK;
}

enum signal_act signals_act(signal_set stop, int signal)
{
    const struct signal_row *row = signal_row_of(signal);
    if (row == NULL)
        return SIGNAL_NONE;
    return row->may_stop && (stop & bit(signal)) != 0 ? SIGNAL_STOP : row->act;
}

bool signals_print(signal_set stop, struct buf *out)
{
    const size_t start = out->len;
    bool ok = true;
    for (int i = 0; i < SIGNAL_ROWS; i++)
        if (signals_act(stop, signal_rows[i].number) == SIGNAL_STOP)
            ok = ok && buf_printf(out, "%sSIG%s", out->len > start ? "," : "", signal_rows[i].name);
    return ok && buf_append(out, "", 1);
}

/* --- sender ------------------------------------------------------------------------------------------------- */

/* Return the source of a signal that the kernel has sent. For a signal that usually comes from a terminal, the source
 * is the terminal. For any other signal, the source is the kernel. */
static const char *kernel_words(int signal)
{
    if (signal == SIGHUP)
        return "the terminal, which was closed";
    return signal == SIGINT || signal == SIGQUIT || signal == SIGTSTP || signal == SIGWINCH ? "the terminal"
                                                                                            : "the kernel";
}

/* Append the signal and its sender, so that users find the process that has stopped their job. */
bool received_signal_text(const struct received_signal *received, struct buf *out)
{
    const struct signal_row *row = signal_row_of(received->signal);
    return buf_printf(out, "SIG%s from ", row != NULL ? row->name : "?") && signal_sender_text(received, out);
}

bool signal_sender_text(const struct received_signal *received, struct buf *out)
{
    const struct signal_sender *from = &received->sender;
    if (from->kernel)
        return buf_printf(out, "%s", kernel_words(received->signal));
    if (from->pid == 0 && from->name[0] != '\0')
        return buf_printf(out, "%s", from->name);
    if (from->pid == 0)
        return buf_printf(out, "a process outside this container (uid %u)", from->uid);
    if (from->name[0] == '\0')
        return buf_printf(out, "a process that has exited (pid %d, uid %u)", from->pid, from->uid);
    return buf_printf(out, "%s (pid %d, uid %u)", from->name, from->pid, from->uid);
}

/* --- repeated signals --------------------------------------------------------------------------------------- */

/* `scancel`, `systemctl stop` and `pkill ddprun` send SIGTERM to every process of ddprun. The agent then gets the
 * signal twice from the same sender: directly, and through the guardian. If a user repeats `kill PID`, both signals
 * take the same route, so the second signal is not a copy.
 *
 * With --hosts, the relay sends another copy to the guardian. */

/* Return the bit of a signal's route: from the guardian's parent, from another sender through the guardian, or
 * directly. */
static unsigned way_of(const struct received_signal *received)
{
    return received->by_parent ? 4 : received->by_guardian ? 2 : 1;
}

/* Return true if the signal is a copy of the previous signal. Every repeated SIGHUP is a copy, because a terminal that
 * closes may send several SIGHUPs. Any other signal is a copy only if all of these conditions are true:
 * - The signal has the same number as the previous signal, and arrives at most COPY_MS later.
 * - Neither the previous signal nor an earlier copy has arrived by the route of this signal (way_of).
 * - The previous signal and this signal have the same sender, or exactly one of the two comes from the guardian's
 *   parent. */
static bool is_copy(const struct stop_memory *memory, const struct received_signal *received, uint64_t now_ms)
{
    const struct received_signal *last = &memory->last;
    if (last->signal != received->signal)
        return false;
    if (received->signal == SIGHUP)
        return true;
    const bool same_sender =
        last->sender.pid == received->sender.pid && last->sender.kernel == received->sender.kernel;
    return (memory->ways & way_of(received)) == 0 && now_ms - memory->at_ms <= COPY_MS &&
           (same_sender || last->by_parent != received->by_parent);
}

bool signals_is_new_stop(struct stop_memory *memory, const struct received_signal *received, uint64_t now_ms)
{
    if (is_copy(memory, received, now_ms)) {
        memory->ways |= way_of(received);
        return false;
    }
    *memory = (struct stop_memory){ .last = *received, .at_ms = now_ms, .ways = way_of(received) };
    return true;
}

/* Format a name such as "SIGSEGV". Real-time signals are numbered from SIGRTMIN, as in kill -l. */
void signal_name(char out[SIGNAL_NAME_MAX], int sig)
{
    const char *abbrev = signal_abbrev(sig);
    if (abbrev != NULL)
        snprintf(out, SIGNAL_NAME_MAX, "SIG%s", abbrev);
    else if (sig >= SIGRTMIN && sig <= SIGRTMAX)
        snprintf(out, SIGNAL_NAME_MAX, "SIGRTMIN+%d", sig - SIGRTMIN);
    else
        snprintf(out, SIGNAL_NAME_MAX, "signal %d", sig);
}
