/* A rank that stops outside of any call, while the others wait for it in one: it is named before any time-out, and what every rank
 * called last is found in files. */
#include "job.h"
#include "run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *dir;

static void make(void)
{
    dir = job_dir();
}

static void done(void)
{
    job_dir_remove(dir);
}

TestSuite(ddprun_still, .init = make, .fini = done, .timeout = 180);

/* A job of two still_workers with logs in `dir`, rank 1 of which does what `how` says. */
static struct run_process *start(const char *how)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--node_timeout=1s", "--grace=1s", "--log_dir",
                                      dir, bin("tests/prog/still_worker"), how, "1");
    cr_assert_not_null(p);
    return p;
}

/* Where rank 0 says that the store is. */
static const char *store_of(struct run_process *p)
{
    static char address[64];
    cr_assert(run_until_output(p, "[1] rank 1 has made 3 steps", PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, "[0] rank 0 has made 3 steps", PATIENCE_MS), "%s", run_output(p));
    const char *at = strstr(run_output(p), "store ");
    cr_assert(at != NULL && sscanf(at, "store %63s", address) == 1, "%s", run_output(p));
    return address;
}

/* Ask the store until it says all of `parts`. */
static void expect_why(const char *store, const char *const parts[])
{
    const char *const ask[] = { bin("ddpctl"), "--addr", store, "why", NULL };
    bool all = false;
    struct run_result r = { 0 };
    for (struct patience p = { 0 }; !all && patience_left(&p);) {
        run_free(&r);
        r = run_command(ask, NULL);
        all = true;
        for (const char *const *part = parts; *part != NULL; part++)
            all = all && strstr(r.out, *part) != NULL;
    }
    cr_expect(all, "%s%s", r.out, r.err);
    run_free(&r);
}

/* What is in the record of `rank`, yours. */
static char *record_of(int rank)
{
    char name[64];
    snprintf(name, sizeof(name), "latest/attempt_0/flight_%d.json", rank);
    return job_file(dir, name);
}

static void expect_record(int rank, const char *const parts[])
{
    char *text = record_of(rank);
    cr_assert_not_null(text, "rank %d has left no record", rank);
    for (; *parts != NULL; parts++)
        cr_expect_not_null(strstr(text, *parts), "'%s' is not in: %s", *parts, text);
    free(text);
}

static void expect_compared(const char *words)
{
    char paths[2][256];
    for (int rank = 0; rank < 2; rank++)
        snprintf(paths[rank], sizeof(paths[rank]), "%s/latest/attempt_0/flight_%d.json", dir, rank);
    const char *const ask[] = { bin("ddpctl"), "flight", paths[0], paths[1], NULL };
    struct run_result r = run_command(ask, NULL);
    cr_expect_eq(r.exit_code, 0);
    cr_expect_not_null(strstr(r.out, words), "%s%s", r.out, r.err);
    run_free(&r);
}

#define PARTS(...) ((const char *const[]){ __VA_ARGS__, NULL })

Test(ddprun_still, a_rank_that_is_stopped_is_named_while_the_other_waits)
{
    struct run_process *p = start("stop");
    const char *store = store_of(p);
    expect_why(store, PARTS("[RANK_STANDS_STILL]", "rank 1 (", "(the last one was 3)",
                            "1 other waits for it in all_reduce #5; it is stopped (state T)"));
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    cr_expect_not_null(strstr(r.err, "ddpctl flight "), "%s", r.err);
    expect_record(0, PARTS("\"state\":\"started\"", "\"collective_seq_id\":5"));
    expect_record(1, PARTS("written by ddprun", "\"last_completed_collective\":4"));
    expect_compared("behind    rank 1; rank 0 came to all_reduce #5 (f32 x 16, sum)\n");
    run_free(&r);
}

Test(ddprun_still, a_rank_that_loops_is_named_and_says_on_request_what_it_did)
{
    char *text = NULL;
    struct run_process *p = start("loop");
    const char *store = store_of(p);
    expect_why(store, PARTS("[RANK_STANDS_STILL]", "rank 1 (", "it computes ("));
    run_signal(p, SIGUSR1);
    for (struct patience w = { 0 }; (text == NULL) && patience_left(&w);)
        text = record_of(1);
    cr_assert_not_null(text);
    cr_expect_not_null(strstr(text, "\"why\":\"SIGUSR1\""), "%s", text);
    free(text);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 143, "%s", r.err);
    run_free(&r);
}

/* Rank 0 may have been stopped by ddprun before it could see what it waited for. */
Test(ddprun_still, a_rank_that_is_killed_has_left_its_record)
{
    struct run_result r = run_wait(start("die"));
    cr_expect_eq(r.exit_code, 137, "%s", r.err);
    expect_record(0, PARTS("\"format\":\"ddp-flight\"", "cpu:all_reduce"));
    expect_record(1, PARTS("killed by SIGKILL", "\"last_completed_collective\":4"));
    run_free(&r);
}

Test(ddprun_still, a_job_that_goes_well_leaves_no_record)
{
    struct run_result r = run_wait(start("go"));
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    cr_expect_null(record_of(0));
    cr_expect_null(record_of(1));
    run_free(&r);
}
