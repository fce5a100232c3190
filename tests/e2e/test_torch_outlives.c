/* The store of a job is there until its last worker has gone, however the job ends. A worker with torch 1.13 that loses its store
 * spins for the rest of its life, or aborts: its second connection belongs to a thread that cannot bear the end of it. */
#include "job.h"
#include "run.h"
#include "torch.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

TestSuite(torch_outlives, .timeout = 120);

static struct run_process *start(const char *how)
{
    return job_start((const char *const[]){ "--nproc_per_node=2", "--no_prefix", "--grace=20s",
                                            "tests/interop/programs/outlives.py", how, NULL },
                     &(struct run_options){ .env = torch_env(), .timeout_ms = 100000 });
}

static void expect_outlived(struct run_process *job, int code, int last_rank)
{
    static const char *const words[] = { "rank 0: the store has outlived it",
                                         "rank 1: the store has outlived it" };
    struct run_result r = run_wait(job);
    EXPECT(r, code);
    cr_expect_eq(job_count(r.out, words[last_rank]), 1, "%s%s", r.out, r.err);
    cr_expect_null(strstr(r.err, "SIGABRT"), "%s", r.err);
    run_free(&r);
}

Test(torch_outlives, a_rank_that_ends_late)
{
    torch_skip_without();
    expect_outlived(start("end"), 0, 1);
}

Test(torch_outlives, a_rank_that_is_stopped_after_a_failure)
{
    torch_skip_without();
    expect_outlived(start("fail"), 7, 1);
}

Test(torch_outlives, all_when_the_user_stops_the_job)
{
    torch_skip_without();
    struct run_process *job = start("stay");
    cr_assert(run_until_output(job, "rank 0 looks\n", 60000) &&
              run_until_output(job, "rank 1 looks\n", 60000));
    run_signal(job, SIGTERM);
    expect_outlived(job, 128 + SIGTERM, 0);
}
