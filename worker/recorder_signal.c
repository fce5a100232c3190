/* recorder_signal.c -- SIGUSR1 asks the ranks what they did last; `kill -USR1` of ddprun reaches all of its workers.
 *
 * Signals are the program's. So this is done only when a file was asked for, and only where SIGUSR1 would end the process: a handler
 * that is there stays, and one that the program sets later takes the place of ours. What the handler calls is on POSIX's list. A
 * handler knows nothing but what is global, hence the few places below. */
#include "recorder.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>

enum { PLACES = 8, PATIENCE_MS = 2000 };

static _Atomic(struct recorder *) listening[PLACES];
static _Atomic int inside; /* handlers that run now */

static void on_signal(int sig)
{
    (void)sig;
    atomic_fetch_add(&inside, 1);
    for (int i = 0; i < PLACES; i++) {
        struct recorder *r = atomic_load(&listening[i]);
        if (r != NULL)
            recorder_write(r, "SIGUSR1");
    }
    atomic_fetch_sub(&inside, 1);
}

static bool take_place(struct recorder *r)
{
    for (int i = 0; i < PLACES; i++) {
        struct recorder *none = NULL;
        if (atomic_compare_exchange_strong(&listening[i], &none, r))
            return true;
    }
    return false;
}

static bool is_unhandled(const struct sigaction *now)
{
    return !(now->sa_flags & SA_SIGINFO) && now->sa_handler == SIG_DFL;
}

/* SA_RESTART: the program's system calls shall not notice. */
void recorder_listen(struct recorder *r)
{
    struct sigaction now, ours = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&ours.sa_mask);
    if (take_place(r) && sigaction(SIGUSR1, NULL, &now) == 0 && is_unhandled(&now))
        sigaction(SIGUSR1, &ours, NULL);
}

/* The handler stays: without it a signal that comes too late would end the program. One that has just read our place, on another
 * thread, may still be writing; it is waited for, but not for ever, should the disk hang. */
void recorder_leave(struct recorder *r)
{
    for (int i = 0; i < PLACES; i++) {
        struct recorder *ours = r;
        atomic_compare_exchange_strong(&listening[i], &ours, NULL);
    }
    for (int ms = 0; ms < PATIENCE_MS && atomic_load(&inside) != 0; ms++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}
