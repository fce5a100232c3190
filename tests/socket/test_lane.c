/* The communication thread: jobs in order, and a drain that waits for all of them. */
#include "core/comm_thread.h"

#include <criterion/criterion.h>
#include <unistd.h>

enum { JOBS = 1000 };

static size_t done[JOBS], count;
static struct lane *lane;

static void note(void *user, size_t what)
{
    (void)user;
    if (what % 100 == 0)
        usleep(100); /* so that the poster is sometimes ahead and sometimes not */
    done[count++] = what;
    lane_drain(lane); /* from a job: does not wait for itself */
}

Test(lane, runs_jobs_in_order_and_is_drained, .timeout = 30)
{
    static struct lane_job jobs[JOBS];
    struct ddp_err err;
    cr_assert_eq(lane_open(&lane, &err), DDP_OK, "%s", err.msg);
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = (struct lane_job){ .run = note, .what = i };
        lane_post(lane, &jobs[i]);
        if (i % 250 == 0)
            lane_drain(lane);
    }
    lane_drain(lane);
    cr_assert_eq(count, JOBS);
    for (size_t i = 0; i < JOBS; i++)
        cr_assert_eq(done[i], i);
    lane_close(lane);
}

Test(lane, none_at_all_is_drained_and_closed_at_once)
{
    lane_drain(NULL);
    lane_close(NULL);
}
