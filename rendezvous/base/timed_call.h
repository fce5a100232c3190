/* timed_call.h -- calls that may never return, for example because a file server, a name server or a daemon does not
 * answer. Such a call runs on a separate thread. The caller waits for a limited time, and then abandons the thread.
 *
 *     timed_call_begin -> the call -> timed_call_fd is readable -> timed_call_end: the caller owns `user` again
 *                                  -> timed_call_end before:      the thread releases `user`, whenever the call ends */
#ifndef BASE_TIMED_CALL_H
#define BASE_TIMED_CALL_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

struct timed_call;

/* Call run(user) on a thread. Return NULL and set errno if that is impossible. Otherwise end the call with
 * timed_call_end. */
struct timed_call *timed_call_begin(void (*run)(void *user), void (*release)(void *user), void *user);

/* Return a descriptor that becomes readable when `run` has returned. */
int timed_call_fd(const struct timed_call *call);

/* Return true if `run` has returned. The caller may then read `user`. */
bool timed_call_has_returned(const struct timed_call *call);

/* Free the call, without waiting. Return true if `run` has returned; then the caller owns `user` again. Otherwise the
 * thread calls release(user) after `run`. */
bool timed_call_end(struct timed_call *call);

/* Make a whole call, with timed_call_end. If no thread can be created, call `run` directly, without a limit. */
bool timed_call_run(void (*run)(void *user), void (*release)(void *user), void *user, int limit_ms);

/* Start a thread with all signals blocked, because they are for the threads of the program. Return 0 or an errno. A
 * thread inherits the signal mask of its creator, so the mask is changed around pthread_create. */
static inline int thread_start(pthread_t *thread, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
