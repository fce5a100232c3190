/* comm_thread.c -- see comm_thread.h. One mutex, two conditions: "there is a job", "all jobs are done". The mutex is never held while a
 * job runs. */
#include "core/comm_thread.h"

#include "core/quiet_thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct lane {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t posted, idle;
    struct lane_job *first, **last; /* not begun yet */
    bool running, closing;
};

/* --- the thread ------------------------------------------------------------------------------------------ */

/* The mutex is held, here and in run_one() on both sides of the job. */
static struct lane_job *take(struct lane *lane)
{
    struct lane_job *job = lane->first;
    lane->first = job->next;
    if (lane->first == NULL)
        lane->last = &lane->first;
    return job;
}

static void run_one(struct lane *lane)
{
    struct lane_job *job = take(lane);
    lane->running = true;
    pthread_mutex_unlock(&lane->mutex);
    job->run(job->user, job->what);
    pthread_mutex_lock(&lane->mutex);
    lane->running = false;
    if (lane->first == NULL)
        pthread_cond_broadcast(&lane->idle);
}

/* No look at a clock: who closes the lane wakes it. */
static void *work(void *user)
{
    struct lane *lane = user;
    pthread_mutex_lock(&lane->mutex);
    while (!lane->closing) {
        if (lane->first != NULL)
            run_one(lane);
        else
            pthread_cond_wait(&lane->posted, &lane->mutex);
    }
    pthread_mutex_unlock(&lane->mutex);
    return NULL;
}

/* --- its owner ------------------------------------------------------------------------------------------- */

/* The one place that frees a lane, with a thread or without. */
static void release(struct lane *lane)
{
    pthread_cond_destroy(&lane->posted);
    pthread_cond_destroy(&lane->idle);
    pthread_mutex_destroy(&lane->mutex);
    free(lane);
}

ddp_status lane_open(struct lane **out, struct ddp_err *err)
{
    struct lane *lane = calloc(1, sizeof(*lane));
    if (lane == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for a communication thread");
    lane->last = &lane->first;
    pthread_mutex_init(&lane->mutex, NULL);
    pthread_cond_init(&lane->posted, NULL);
    pthread_cond_init(&lane->idle, NULL);
    int error = quiet_thread(&lane->thread, work, lane);
    if (error != 0) {
        release(lane);
        return ddp_fail(err, DDP_ERR_LIMIT, "no communication thread: %s; `ulimit -u` shows the limit",
                        strerror(error));
    }
    *out = lane;
    return DDP_OK;
}

void lane_post(struct lane *lane, struct lane_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&lane->mutex);
    *lane->last = job;
    lane->last = &job->next;
    pthread_cond_signal(&lane->posted);
    pthread_mutex_unlock(&lane->mutex);
}

/* A job that waited for all jobs would wait for itself. */
void lane_drain(struct lane *lane)
{
    if (lane == NULL || pthread_equal(lane->thread, pthread_self()))
        return;
    pthread_mutex_lock(&lane->mutex);
    while (lane->first != NULL || lane->running)
        pthread_cond_wait(&lane->idle, &lane->mutex);
    pthread_mutex_unlock(&lane->mutex);
}

void lane_close(struct lane *lane)
{
    if (lane == NULL)
        return;
    lane_drain(lane);
    pthread_mutex_lock(&lane->mutex);
    lane->closing = true;
    pthread_cond_signal(&lane->posted);
    pthread_mutex_unlock(&lane->mutex);
    pthread_join(lane->thread, NULL);
    release(lane);
}
