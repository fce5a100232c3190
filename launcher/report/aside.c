/* aside.c -- see aside.h.
 *
 * Who of the two comes first to the mutex decides whose `user` is then, and who comes last frees the rest. */
#include "report/aside.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

struct job {
    struct aside work;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool done, left; /* `run` has ended; nobody waits for it any more */
};

static struct job *job_new(const struct aside *work)
{
    pthread_condattr_t monotonic;
    struct job *job = calloc(1, sizeof(*job));
    if (job == NULL)
        return NULL;
    job->work = *work;
    pthread_mutex_init(&job->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&job->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return job;
}

static void job_free(struct job *job)
{
    pthread_cond_destroy(&job->ended);
    pthread_mutex_destroy(&job->mutex);
    free(job);
}

static void *job_main(void *arg)
{
    struct job *job = arg;
    job->work.run(job->work.user);
    pthread_mutex_lock(&job->mutex);
    job->done = true;
    const bool left = job->left;
    pthread_cond_signal(&job->ended);
    pthread_mutex_unlock(&job->mutex);
    if (left) {
        job->work.release(job->work.user);
        job_free(job);
    }
    return NULL;
}

/* Signals belong to the main thread. */
static bool start(struct job *job, pthread_t *thread)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool ok = job != NULL && pthread_create(thread, NULL, job_main, job) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

/* The thread is joined or let go, by who knows whether it ends: this one. */
static bool wait_for(struct job *job, pthread_t thread, int limit_ms)
{
    const struct timespec end = clock_after_us((uint64_t)limit_ms * 1000);
    int error = 0;
    pthread_mutex_lock(&job->mutex);
    while (!job->done && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&job->ended, &job->mutex, &end);
    const bool done = job->done;
    job->left = !done;
    pthread_mutex_unlock(&job->mutex);
    if (!done) {
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    job_free(job);
    return true;
}

bool aside_run(const struct aside *work, int limit_ms)
{
    struct job *job = job_new(work);
    pthread_t thread;
    if (start(job, &thread))
        return wait_for(job, thread, limit_ms);
    if (job != NULL)
        job_free(job);
    work->run(work->user);
    return true;
}
