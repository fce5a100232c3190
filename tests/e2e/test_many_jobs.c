/* Several jobs at once through one ddp-rendezvous, with real ddpruns. */
#include "run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct daemon store;
static char endpoint[64];

static void start(void)
{
    store = daemon_start("127.0.0.1:0", NULL);
    snprintf(endpoint, sizeof(endpoint), "--rdzv_endpoint=127.0.0.1:%d", store.port);
}

static void stop(void)
{
    daemon_stop(&store);
}

TestSuite(many_jobs, .init = start, .fini = stop, .timeout = 120);

/* One of two nodes, with one worker; `script` is the worker's. */
static struct run_process *node(const char *id, const char *script)
{
    const char *argv[] = { bin("ddprun"),
                           "--nnodes=2",
                           "--rdzv_backend=c10d",
                           endpoint,
                           id,
                           "--host_store=no",
                           "--nproc_per_node=1",
                           "--max_restarts=1",
                           "--restart_backoff=0",
                           "--grace=1",
                           "sh",
                           "-c",
                           script,
                           NULL };
    return run_start(argv, NULL);
}

static void expect_end(struct run_process *process, int exit_code, const char *words, const char *absent)
{
    struct run_result r = run_wait(process);
    cr_assert_eq(r.exit_code, exit_code, "%d: %s%s", r.exit_code, r.out, r.err);
    cr_assert_not_null(strstr(r.out, words), "no \"%s\" in %s%s", words, r.out, r.err);
    cr_assert_null(strstr(r.out, absent), "\"%s\" in %s", absent, r.out);
    run_free(&r);
}

/* Job a fails once and is restarted on both of its nodes, job b runs through. */
Test(many_jobs, a_restart_stays_in_its_job)
{
    const char *fails_once =
        "echo a rank $RANK of $WORLD_SIZE, start $TORCHELASTIC_RESTART_COUNT;"
        "test $TORCHELASTIC_RESTART_COUNT = 1 || { test $RANK = 1 && exit 3; sleep 20; }";
    const char *runs = "echo b rank $RANK of $WORLD_SIZE, start $TORCHELASTIC_RESTART_COUNT; sleep 2";
    struct run_process *a[] = { node("--rdzv_id=a", fails_once), node("--rdzv_id=a", fails_once) };
    struct run_process *b[] = { node("--rdzv_id=b", runs), node("--rdzv_id=b", runs) };
    for (int i = 0; i < 2; i++)
        expect_end(a[i], 0, "of 2, start 1", "b rank");
    for (int i = 0; i < 2; i++)
        expect_end(b[i], 0, "of 2, start 0", "start 1");
}
