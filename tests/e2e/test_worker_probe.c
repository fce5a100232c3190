/* Test libddp workers in three situations: ddprun starts them, a user starts them by hand as ranks of a job, or a
 * worker runs alone without a launcher. The same program must work in all three, because a user starts a worker by
 * hand to find an error. */
#include "run.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* Run ddprun with four probes. */
static struct run_result run_probes(const char *command, const char *argument, const char *more,
                                    const char *last)
{
    const char *argv[] = { bin("ddprun"),
                           "--quiet",
                           "--standalone",
                           "--nproc_per_node=4",
                           bin("tests/prog/worker_probe"),
                           command,
                           argument,
                           more,
                           last,
                           NULL };
    const char *const env[] = { "OMP_NUM_THREADS=1", "DDPRUN_STEP_TIMEOUT_MS=4000", NULL };
    return run_command(argv, &(struct run_options){ .env = env });
}

static void expect_part(const char *text, const char *part)
{
    cr_assert(strstr(text, part) != NULL, "\"%s\" is not in:\n%s", part, text);
}

/* Count only the files in shared memory that belong to this test, because other programs start and end meanwhile. */
static int files_of_ours(const char *directory)
{
    int n = 0;
    DIR *dir = opendir(directory);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
        n += strstr(e->d_name, "ddp") != NULL;
    if (dir != NULL)
        closedir(dir);
    return n;
}

Test(worker_probe, four_workers_reduce_through_private_and_shared_memory)
{
    struct run_result r = run_probes("allreduce", "300001", NULL, NULL);
    cr_assert_eq(r.exit_code, 0, "%s%s", r.out, r.err);
    for (int rank = 0; rank < 4; rank++) {
        char line[64];
        snprintf(line, sizeof(line), "rank %d: all_reduce of 300001: ok", rank);
        expect_part(r.out, line);
    }
}

Test(worker_probe, a_reducer_averages_over_four_workers)
{
    struct run_result r = run_probes("reducer", NULL, NULL, NULL);
    cr_assert_eq(r.exit_code, 0, "%s%s", r.out, r.err);
    expect_part(r.out, "rank 3: average 3 of 2 buckets");
}

/* This test also runs under ThreadSanitizer. */
Test(worker_probe, a_reducer_with_a_thread_averages_over_four_workers)
{
    struct run_result r = run_probes("overlap", NULL, NULL, NULL);
    cr_assert_eq(r.exit_code, 0, "%s%s", r.out, r.err);
    expect_part(r.out, "rank 3: average 3 of 10 buckets");
}

Test(worker_probe, a_named_barrier_names_who_is_missing)
{
    struct run_result r = run_probes("barrier", "data is ready", "700", "2");
    cr_assert_eq(r.exit_code, 3, "%s%s", r.out, r.err);
    expect_part(r.out, "barrier 'data is ready' timed out");
    expect_part(r.out, "rank 2: connected");
}

Test(worker_probe, a_worker_that_hangs_is_named_by_the_others)
{
    struct run_result r = run_probes("hang", "2", NULL, NULL);
    cr_assert_eq(r.exit_code, 3, "%s%s", r.out, r.err);
    expect_part(r.out, "waited 4 s");
    expect_part(r.out, " all_reduce #2 (f32 x 1, sum)");
    expect_part(r.out, "1 of 4 ranks");
    expect_part(r.out, ": rank 2 (pid ");
    expect_part(r.out, "init #1)");
}

Test(worker_probe, nothing_is_left_in_shared_memory_after_a_violent_end)
{
    struct run_result r = run_probes("die", "1", NULL, NULL);
    cr_assert_eq(r.exit_code, 137, "%s%s", r.out, r.err);
    cr_assert_eq(files_of_ours("/dev/shm"), 0);
}

static struct run_result run_bare(const char *const env[])
{
    const char *argv[] = { bin("tests/prog/worker_probe"), "info", NULL };
    return run_command(argv, &(struct run_options){ .env = env });
}

Test(worker_probe, without_any_launcher_it_is_a_world_of_one)
{
    struct run_result r =
        run_bare((const char *const[]){ "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", NULL });
    cr_assert_str_eq(r.out, "rank 0 of 1, local rank 0 of 1, attempt 0\n");
}

Test(worker_probe, half_an_environment_is_refused_with_what_is_missing)
{
    struct run_result r =
        run_bare((const char *const[]){ "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR", "MASTER_PORT", NULL });
    cr_assert_eq(r.exit_code, 3);
    expect_part(r.out, "MASTER_PORT, MASTER_ADDR: missing");
    expect_part(r.out, "RANK, WORLD_SIZE are set");
}

static struct run_process *start_by_hand(const char *port, const char *rank)
{
    char rank_text[32], port_text[64];
    const char *argv[] = { bin("tests/prog/worker_probe"), "allreduce", NULL };
    const char *const env[] = { rank_text, port_text, "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", NULL };
    snprintf(rank_text, sizeof(rank_text), "RANK=%s", rank);
    snprintf(port_text, sizeof(port_text), "MASTER_PORT=%s", port);
    return run_start(argv, &(struct run_options){ .env = env });
}

/* Both runs have no run id. The keys that the first run leaves must not disturb the second run. */
Test(worker_probe, ranks_started_by_hand_meet_at_a_daemon_twice)
{
    struct daemon daemon = daemon_start("127.0.0.1:0", NULL);
    char port[16];
    snprintf(port, sizeof(port), "%d", daemon.port);
    for (int run = 0; run < 2; run++) {
        struct run_process *ranks[2] = { start_by_hand(port, "0"), start_by_hand(port, "1") };
        for (int r = 0; r < 2; r++) {
            struct run_result result = run_wait(ranks[r]);
            cr_assert_eq(result.exit_code, 0, "run %d rank %d: %s", run, r, result.out);
        }
    }
    daemon_stop(&daemon);
}
