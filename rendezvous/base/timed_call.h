/* timed_call.h -- calls a function that may never return, for example because a file server, a name server or a daemon
 * does not answer. The function runs on a separate thread, so the caller waits only for a limited time. The thread may
 * remain until the process exits. */
#ifndef BASE_TIMED_CALL_H
#define BASE_TIMED_CALL_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

struct timed_call;

/* Start a thread that calls run(user). The thread owns `user` until `run` returns. Return NULL and set errno if no
 * thread can be started. End the call with timed_call_end. */
struct timed_call *timed_call_begin(void (*run)(void *user), void (*release)(void *user), void *user);

/* Return a descriptor that becomes readable when `run` has returned. */
int timed_call_fd(const struct timed_call *call);

/* Return true if `run` has returned. The caller may then read `user`. */
bool timed_call_has_returned(const struct timed_call *call);

/* Free the call, without waiting. Return true if `run` has returned; then the caller owns `user` again. Otherwise the
 * thread calls release(user) after `run`. */
bool timed_call_end(struct timed_call *call);

/* Return true if a thread still runs, although timed_call_end or timed_call_run has ended its call. If this thread
 * hangs in the kernel, the process cannot exit. */
bool timed_call_has_left(void);

/* Call run(user) on a thread, and wait at most `limit_ms` until `run` returns. Return true if `run` has returned; then
 * the caller owns `user`. Otherwise the thread calls release(user) after `run`. If no thread can be started, call `run`
 * on the caller's thread, without a limit. */
bool timed_call_run(void (*run)(void *user), void (*release)(void *user), void *user, int limit_ms);

/* Start a thread that blocks all signals, because the other threads of the program must handle signals. Return 0 or an
 * errno. */
static inline int thread_start(pthread_t *thread, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits this mask */
    int error = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
