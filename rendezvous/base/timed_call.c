/* timed_call.c -- see timed_call.h.
 *
 * The caller and the thread share the struct. Each side sets `ended` when it no longer needs the struct. The side that
 * finds `ended` already set frees the struct. libuv's thread pool is not used: four calls that hang would fill the
 * pool, and the process could not exit before these calls return. */
#include "base/timed_call.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct timed_call {
    void (*run)(void *user);
    void (*release)(void *user);
    void *user;
    pthread_t thread;
    int fd;            /* an eventfd, readable after `run` has returned */
    atomic_bool ended; /* set by the side that ends first: the thread, or the caller in timed_call_end */
};

/* Number of calls that have not returned, although the caller has ended them. */
static atomic_int n_left;

static void call_free(struct timed_call *call)
{
    close(call->fd);
    free(call);
}

/* Call `run` on the thread. eventfd_write can use the struct after `ended` is set, because timed_call_end then joins
 * this thread before it frees the struct. */
static void *call_main(void *arg)
{
    struct timed_call *call = arg;
    call->run(call->user);
    if (!atomic_exchange(&call->ended, true)) {
        eventfd_write(call->fd, 1);
        return NULL;
    }
    call->release(call->user);
    call_free(call);
    atomic_fetch_sub(&n_left, 1);
    return NULL;
}

struct timed_call *timed_call_begin(void (*run)(void *user), void (*release)(void *user), void *user)
{
    struct timed_call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return NULL;
    *call = (struct timed_call){ .run = run, .release = release, .user = user };
    call->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = call->fd < 0 ? errno : thread_start(&call->thread, call_main, call);
    if (error == 0)
        return call;
    if (call->fd >= 0)
        close(call->fd);
    free(call);
    errno = error;
    return NULL;
}

int timed_call_fd(const struct timed_call *call)
{
    return call->fd;
}

bool timed_call_has_returned(const struct timed_call *call)
{
    return atomic_load(&call->ended);
}

/* Wait until `run` has returned, for at most `limit_ms`. */
static void timed_call_wait(const struct timed_call *call, int limit_ms)
{
    struct pollfd returned = { call->fd, POLLIN, 0 };
    const uint64_t until_ms = clock_ms() + (uint64_t)limit_ms;
    for (uint64_t now_ms; !timed_call_has_returned(call) && (now_ms = clock_ms()) < until_ms;)
        poll(&returned, 1, (int)(until_ms - now_ms));
}

bool timed_call_end(struct timed_call *call)
{
    const pthread_t thread = call->thread;
    if (!atomic_exchange(&call->ended, true)) {
        /* n_left may be negative before this line, because the thread may have subtracted its 1 already */
        atomic_fetch_add(&n_left, 1);
        pthread_detach(thread); /* not call->thread, because the thread may have freed the struct already */
        return false;
    }
    pthread_join(thread, NULL);
    call_free(call);
    return true;
}

bool timed_call_has_left(void)
{
    return atomic_load(&n_left) > 0;
}

bool timed_call_run(void (*run)(void *user), void (*release)(void *user), void *user, int limit_ms)
{
    struct timed_call *call = timed_call_begin(run, release, user);
    if (call != NULL) {
        timed_call_wait(call, limit_ms);
        return timed_call_end(call);
    }
    run(user);
    return true;
}
