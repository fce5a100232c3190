/* comm_thread.c -- see comm_thread.h. Two condition variables, for "there is a job" and "all jobs are done", share one
 * mutex. The thread unlocks the mutex while it runs a job, so that the program can post more jobs. */
#include "core/comm_thread.h"

#include "base/limits.h"
#include "base/timed_call.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* `mutex` protects all fields below it. */
struct comm_thread {
    pthread_t id;
    pthread_mutex_t mutex;
    /* `posted`: there is a job, or `closing` is true; `idle`: all jobs are done */
    pthread_cond_t posted, idle;
    struct comm_job *first; /* the list of jobs that have not begun */
    struct comm_job **last; /* address of the NULL pointer at the end of the list */
    bool running, closing;  /* `running`: a job is running; `closing`: the thread must end */
};

/* --- the thread ------------------------------------------------------------------------------------------ */

/* Remove and return the first job of the list. The caller has locked the mutex. */
static struct comm_job *next_job(struct comm_thread *thread)
{
    struct comm_job *job = thread->first;
    thread->first = job->next;
    if (thread->first == NULL)
        thread->last = &thread->first;
    return job;
}

/* Run the next job. The caller has locked the mutex. The mutex is unlocked only while the job runs, so that the program
 * can post more jobs. */
static void run_job(struct comm_thread *thread)
{
    struct comm_job *job = next_job(thread);
    thread->running = true;
    pthread_mutex_unlock(&thread->mutex);
    job->run(job->user, job->what);
    pthread_mutex_lock(&thread->mutex);
    thread->running = false;
    if (thread->first == NULL)
        pthread_cond_broadcast(&thread->idle);
}

/* Run jobs until comm_thread_close, which wakes the thread. */
static void *run_jobs(void *user)
{
    struct comm_thread *thread = user;
    pthread_mutex_lock(&thread->mutex);
    while (!thread->closing) {
        if (thread->first != NULL)
            run_job(thread);
        else
            pthread_cond_wait(&thread->posted, &thread->mutex);
    }
    pthread_mutex_unlock(&thread->mutex);
    return NULL;
}

/* --- owner ----------------------------------------------------------------------------------------------- */

/* Free the struct of a thread that has ended or never started. */
static void comm_thread_free(struct comm_thread *thread)
{
    pthread_cond_destroy(&thread->posted);
    pthread_cond_destroy(&thread->idle);
    pthread_mutex_destroy(&thread->mutex);
    free(thread);
}

ddp_status comm_thread_open(struct comm_thread **out, struct ddp_err *err)
{
    struct comm_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for a communication thread");
    thread->last = &thread->first;
    pthread_mutex_init(&thread->mutex, NULL);
    pthread_cond_init(&thread->posted, NULL);
    pthread_cond_init(&thread->idle, NULL);
    int error = thread_start(&thread->id, run_jobs, thread);
    if (error != 0) {
        char why[FORK_ERROR_MAX];
        comm_thread_free(thread);
        return ddp_fail(err, DDP_ERR_LIMIT, "cannot start a communication thread: %s",
                        fork_error_text(error, why));
    }
    *out = thread;
    return DDP_OK;
}

void comm_thread_post(struct comm_thread *thread, struct comm_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&thread->mutex);
    *thread->last = job;
    thread->last = &job->next;
    pthread_cond_signal(&thread->posted);
    pthread_mutex_unlock(&thread->mutex);
}

/* Wait until all jobs are done. If a job calls this function, return at once, because the job would wait for
 * itself. */
void comm_thread_drain(struct comm_thread *thread)
{
    if (thread == NULL || pthread_equal(thread->id, pthread_self()))
        return;
    pthread_mutex_lock(&thread->mutex);
    while (thread->first != NULL || thread->running)
        pthread_cond_wait(&thread->idle, &thread->mutex);
    pthread_mutex_unlock(&thread->mutex);
}

void comm_thread_close(struct comm_thread *thread)
{
    if (thread == NULL)
        return;
    comm_thread_drain(thread);
    pthread_mutex_lock(&thread->mutex);
    thread->closing = true;
    pthread_cond_signal(&thread->posted);
    pthread_mutex_unlock(&thread->mutex);
    pthread_join(thread->id, NULL);
    comm_thread_free(thread);
}
