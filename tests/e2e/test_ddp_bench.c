/* ddp-bench under ddprun: all collectives on the cpu backend, and on both backends with the fake GPU of tests/fake. */
#include "job.h"
#include "ranks.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Hide the GPUs, because with one GPU ddprun would start only one worker. */
#define NO_GPU "CUDA_VISIBLE_DEVICES="

static struct run_result on_cpus(const char *const args[])
{
    static const char *const env[] = { NO_GPU, NULL };
    const struct run_options options = { .env = env };
    return job_run(args, &options);
}

#define CPU_JOB(...) on_cpus((const char *const[]){ __VA_ARGS__, NULL })

static int lines_with(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        n++;
    return n;
}

/* Expect results for two sizes of each of the seven collectives, out of place and in place, without a wrong value. */
static void expect_all_right(const struct run_result *r, const char *backend)
{
    char part[64];
    snprintf(part, sizeof(part), "\"backend\":\"%s\"", backend);
    EXPECT(*r, 0);
    cr_assert_eq(lines_with(r->out, part), 28, "%s", r->out);
    cr_assert_eq(lines_with(r->out, "\"wrong\":0}"), 28, "%s", r->out);
    cr_assert_eq(lines_with(r->out, "\"bench\":\"scatter\""), 4, "%s", r->out);
}

#define QUICK "--collective=all", "-b", "64K", "-e", "256K", "-n", "2", "-w", "1", "--json"

Test(ddp_bench, all_collectives_have_the_right_values_on_cpus, .timeout = 120)
{
    struct run_result r =
        CPU_JOB("--nproc_per_node=3", "--no_prefix", bin("ddp-bench"), QUICK, "--backend=cpu");
    expect_all_right(&r, "cpu");
}

static struct run_result on_fake(const char *backend, const char *memory)
{
    static char cuda[4600], runtime[4600], nccl[4600];
    snprintf(cuda, sizeof(cuda), "DDP_CUDA_LIBRARY=%s", bin("libddp_cuda.so"));
    snprintf(runtime, sizeof(runtime), "DDP_CUDART_LIBRARY=%s", bin("tests/fake/libfake_gpu.so"));
    snprintf(nccl, sizeof(nccl), "DDP_NCCL_LIBRARY=%s", bin("tests/fake/libfake_gpu.so"));
    const char *const env[] = { cuda, runtime, nccl, NO_GPU, "FAKE_CUDA_DEVICES=2", NULL };
    const struct run_options options = { .env = env };
    return job_run((const char *const[]){ "--nproc_per_node=2", "--no_prefix", bin("ddp-bench"), QUICK,
                                          backend, memory, NULL },
                   &options);
}

Test(ddp_bench, and_through_nccl, .timeout = 120)
{
    struct run_result r = on_fake("--backend=nccl", "--memory=gpu");
    expect_all_right(&r, "nccl");
}

Test(ddp_bench, and_with_device_buffers_through_the_cpu_backend, .timeout = 120)
{
    struct run_result r = on_fake("--backend=cpu", "--memory=gpu");
    expect_all_right(&r, "cpu");
    cr_assert_eq(lines_with(r.out, "\"memory\":\"gpu\""), 28);
}

Test(ddp_bench, the_table_has_nccl_tests_columns, .timeout = 120)
{
    struct run_result r = CPU_JOB("--nproc_per_node=2", "--no_prefix", bin("ddp-bench"), "-b", "1K", "-e",
                                  "1K", "-n", "1", "--backend=cpu");
    EXPECT(r, 0);
    cr_assert_not_null(
        strstr(r.out, "size        count    type  redop   root      time   algbw   busbw #wrong"), "%s",
        r.out);
    cr_assert_not_null(strstr(r.out, "1024          256     f32    sum     -1"), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "bounds values : 0 OK"), "%s", r.out);
}

Test(ddp_bench, a_backend_that_is_not_there_is_said, .timeout = 120)
{
    static const char *const env[] = { "DDP_CUDA_LIBRARY=/nowhere/libddp_cuda.so", NULL };
    const struct run_options options = { .env = env };
    struct run_result r =
        run_command((const char *const[]){ bin("ddp-bench"), "--backend=nccl", NULL }, &options);
    EXPECT(r, 1);
    cr_assert_not_null(strstr(r.err, "/nowhere/libddp_cuda.so"), "%s", r.err);
}

/* The error must not be the text of an earlier one, such as that of the search for a GPU. */
Test(ddp_bench, too_large_buffers_are_said, .timeout = 120)
{
    static const char *const kinds[] = { "--memory=arena", "--memory=private" };
    if (bin_is_sanitized())
        cr_skip_test("skipped, because a sanitizer needs its own address space");
    for (int i = 0; i < 2; i++) {
        struct run_result r =
            run_command((const char *const[]){ "bash", "-c", "ulimit -v 4000000; exec \"$@\"", "bash",
                                               bin("ddp-bench"), kinds[i], "-e", "1024G", NULL },
                        NULL);
        EXPECT(r, 1);
        cr_assert_not_null(strstr(r.err, "--maxbytes=1099511627776: "), "%s", r.err);
    }
}

/* A run that compares nothing must not look like a run without errors. */
Test(ddp_bench, says_when_nothing_is_measured, .timeout = 120)
{
    struct run_result r =
        CPU_JOB("--nproc_per_node=2", "--no_prefix", bin("ddp-bench"), "-b", "1", "-e", "2", "--backend=cpu");
    EXPECT(r, 2);
    cr_assert_not_null(strstr(r.err, "every size"), "%s", r.err);
    r = CPU_JOB("--nproc_per_node=2", "--no_prefix", bin("ddp-bench"), "-r", "5", "--backend=cpu");
    EXPECT(r, 2);
    cr_assert_not_null(strstr(r.err, "--root=5: "), "%s", r.err);
}

/* A run that is stopped must keep its lines. The calls of the second size take minutes. */
Test(ddp_bench, each_line_is_written_at_once, .timeout = 120)
{
    struct run_process *bench =
        run_start((const char *const[]){ bin("ddp-bench"), "--backend=cpu", "--json", "--minbytes=4",
                                         "--maxbytes=4M", "--stepfactor=1M", "--iters=1000000", NULL },
                  NULL);
    cr_assert_not_null(bench);
    const bool written = run_until_output(bench, "\"in_place\":true", PATIENCE_MS);
    run_signal(bench, SIGKILL);
    run_wait(bench);
    cr_assert(written);
}
