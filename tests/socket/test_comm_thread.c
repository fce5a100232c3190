/* The communication thread: jobs in order, and a drain that waits for all of them. */
#include "core/comm_thread.h"

#include <criterion/criterion.h>
#include <unistd.h>

enum { JOBS = 1000 };

static size_t done[JOBS], count;
static struct comm_thread *thread;

static void note(void *user, size_t what)
{
    (void)user;
    if (what % 100 == 0)
        usleep(100); /* so that the poster is sometimes ahead and sometimes not */
    done[count++] = what;
    comm_thread_drain(thread); /* from a job: does not wait for itself */
}

Test(comm_thread, runs_jobs_in_order_and_is_drained, .timeout = 30)
{
    static struct comm_job jobs[JOBS];
    struct ddp_err err;
    cr_assert_eq(comm_thread_open(&thread, &err), DDP_OK, "%s", err.msg);
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = (struct comm_job){ .run = note, .what = i };
        comm_thread_post(thread, &jobs[i]);
        if (i % 250 == 0)
            comm_thread_drain(thread);
    }
    comm_thread_drain(thread);
    cr_assert_eq(count, JOBS);
    for (size_t i = 0; i < JOBS; i++)
        cr_assert_eq(done[i], i);
    comm_thread_close(thread);
}

Test(comm_thread, none_at_all_is_drained_and_closed_at_once)
{
    comm_thread_drain(NULL);
    comm_thread_close(NULL);
}
