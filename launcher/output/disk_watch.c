/* disk_watch.c -- see disk_watch.h.
 *
 * An operation stores its path, then its start time. The time is 0 when no operation runs. A reader copies the
 * path between two reads of the time. If both times are equal, the path belongs to that operation. */
#include "output/disk_watch.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

struct disk_watch {
    atomic_bool left;
    struct disk_slot {
        _Atomic uint64_t since_ms; /* start of the operation; 0 = no operation runs */
        char path[DISK_PATH_MAX];
    } slots[DISK_USERS];
};

static struct disk_watch own, *watch = &own;

/* Share the slots. If mmap fails, the guardian cannot read the agent's slots and waits for the agent without a
 * limit. */
void disk_watch_share(void)
{
    void *shared = mmap(NULL, sizeof(*watch), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared != MAP_FAILED)
        watch = shared;
}

void disk_begin(enum disk_user user, const char *path)
{
    struct disk_slot *slot = &watch->slots[user];
    snprintf(slot->path, sizeof(slot->path), "%s", path);
    atomic_store(&slot->since_ms, clock_ms());
}

void disk_end(enum disk_user user)
{
    atomic_store(&watch->slots[user].since_ms, 0);
}

bool disk_hangs(uint64_t ms, char path[DISK_PATH_MAX])
{
    const uint64_t now_ms = clock_ms();
    for (int i = 0; i < DISK_USERS; i++) {
        struct disk_slot *slot = &watch->slots[i];
        const uint64_t since_ms = atomic_load(&slot->since_ms);
        if (since_ms == 0 || now_ms < since_ms + ms)
            continue;
        if (path != NULL)
            snprintf(path, DISK_PATH_MAX, "%s", slot->path);
        if (atomic_load(&slot->since_ms) == since_ms)
            return true;
    }
    return false;
}

void disk_watch_leave(void)
{
    atomic_store(&watch->left, true);
}

bool disk_watch_left(void)
{
    return atomic_load(&watch->left);
}

/* --- work that may hang ------------------------------------------------------------------------------------ */

/* The caller and the thread share a job. If `run` ends in time, the caller frees the job. If the caller leaves
 * first, the thread releases `user` and frees the job. */

struct job {
    struct aside work;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool done, left; /* done: `run` has returned; left: the caller no longer waits */
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

/* Start the thread. All signals are blocked in the thread, because the main thread processes them. */
static bool start(struct job *job, pthread_t *thread)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool ok = job != NULL && pthread_create(thread, NULL, job_main, job) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

/* Wait for the thread until the limit. Join the thread and free the job, or detach the thread. */
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
