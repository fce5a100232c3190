/* sigusr1.c -- see sigusr1.h. What the handler calls is on POSIX's list. A handler knows nothing but what is global, hence the few places
 * below. */
#include "core/sigusr1.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

enum { PLACES = 8, PATIENCE_MS = 2000 };

static _Atomic(struct usr1 *) listening[PLACES];
static _Atomic int inside; /* handlers that run now */

static void on_signal(int sig)
{
    (void)sig;
    atomic_fetch_add(&inside, 1);
    for (int i = 0; i < PLACES; i++) {
        struct usr1 *usr1 = atomic_load(&listening[i]);
        if (usr1 != NULL)
            usr1->asked(usr1);
    }
    atomic_fetch_sub(&inside, 1);
}

static bool take_place(struct usr1 *usr1)
{
    for (int i = 0; i < PLACES; i++) {
        struct usr1 *none = NULL;
        if (atomic_compare_exchange_strong(&listening[i], &none, usr1))
            return true;
    }
    return false;
}

static bool is_unhandled(const struct sigaction *now)
{
    return !(now->sa_flags & SA_SIGINFO) && now->sa_handler == SIG_DFL;
}

/* SA_RESTART: the program's system calls shall not notice. */
void usr1_listen(struct usr1 *usr1)
{
    struct sigaction now, ours = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&ours.sa_mask);
    if (take_place(usr1) && sigaction(SIGUSR1, NULL, &now) == 0 && is_unhandled(&now))
        sigaction(SIGUSR1, &ours, NULL);
}

/* The handler stays: without it a signal that comes too late would end the program. One that has just read our place, on another
 * thread, may still be writing; it is waited for, but not for ever, should the disk hang. */
bool usr1_leave(struct usr1 *usr1)
{
    for (int i = 0; i < PLACES; i++) {
        struct usr1 *ours = usr1;
        atomic_compare_exchange_strong(&listening[i], &ours, NULL);
    }
    for (int ms = 0; ms < PATIENCE_MS && atomic_load(&inside) != 0; ms++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return atomic_load(&inside) == 0;
}
