/* Tests of ddp-bench under ddprun: all collectives on the cpu backend, and on both backends with the fake GPU of
 * tests/fake. A golden file has the help, errors and output of ddp-bench. */
#include "job.h"
#include "ranks.h"

#include <criterion/criterion.h>
#include <ctype.h>
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

/* Replace each number by N, and several blanks by a single blank, in place. */
static const char *without_numbers(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        char c = isdigit((unsigned char)*from) ? 'N' : *from;
        if (c == '.' && to > text && to[-1] == 'N')
            c = 'N';
        if ((c != 'N' && c != ' ') || to == text || to[-1] != c)
            *to++ = c;
    }
    *to = '\0';
    return text;
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
    cr_expect_str_eq(
        without_numbers(r.out),
        "# ddp-bench N: all_reduce, backend cpu, arena memory, N ranks, N warmup N iters, validation N\n"
        "#\n"
        "# out-of-place in-place\n"
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s) \n"
        " N N fN sum -N N N N N N N N N\n"
        "# Out of bounds values : N OK\n"
        "# Avg bus bandwidth : N GB/s\n"
        "\n");
}

Test(ddp_bench, a_json_line_has_these_members, .timeout = 120)
{
    struct run_result r = CPU_JOB("--nproc_per_node=1", "--no_prefix", bin("ddp-bench"), "-b", "1K", "-e",
                                  "1K", "-n", "1", "-c", "0", "--backend=cpu", "--json");
    EXPECT(r, 0);
    cr_expect_str_eq(
        without_numbers(r.out),
        "{\"bench\":\"all_reduce\",\"backend\":\"cpu\",\"memory\":\"arena\",\"ranks\":N,\"bytes\":N,"
        "\"count\":N,\"type\":\"fN\",\"redop\":\"sum\",\"root\":-N,\"in_place\":false,\"us\":N,"
        "\"algbw\":N,\"busbw\":N,\"wrong\":null}\n"
        "{\"bench\":\"all_reduce\",\"backend\":\"cpu\",\"memory\":\"arena\",\"ranks\":N,\"bytes\":N,"
        "\"count\":N,\"type\":\"fN\",\"redop\":\"sum\",\"root\":-N,\"in_place\":true,\"us\":N,"
        "\"algbw\":N,\"busbw\":N,\"wrong\":null}\n");
}

Test(ddp_bench, the_help_is_worded_like_this, .timeout = 120)
{
    struct run_result r = run_command((const char *const[]){ bin("ddp-bench"), "--help", NULL }, NULL);
    EXPECT(r, 0);
    cr_expect_str_eq(r.out,
                     "Usage: ddprun --nproc_per_node=N ddp-bench [OPTIONS]\n"
                     "\n"
                     "Measure the speed of libddp's collectives and check their values. The output has the "
                     "columns of nccl-tests.\n"
                     "\n"
                     "  --collective NAME       all_reduce (default), all_gather, broadcast, reduce,\n"
                     "                          reduce_scatter, gather, scatter, or all\n"
                     "  --backend NAME          cpu or nccl (default: nccl with a GPU and without\n"
                     "                          --memory, otherwise cpu)\n"
                     "  --memory KIND           memory of the cpu backend's buffers: arena\n"
                     "                          (ddp_shared_alloc, default), private (malloc), or gpu\n"
                     "                          (copied through host memory)\n"
                     "  -b, --minbytes SIZE     smallest size in bytes, such as 64K or 2G (default: 4)\n"
                     "  -e, --maxbytes SIZE     largest size in bytes (default: 64M)\n"
                     "  -i, --stepbytes SIZE    bytes to add for the next size (default: 0, which uses\n"
                     "                          --stepfactor)\n"
                     "  -f, --stepfactor N      factor for the next size, if --stepbytes is 0\n"
                     "                          (default: 4)\n"
                     "  -n, --iters N           number of calls that are timed together (default: 20)\n"
                     "  -w, --warmup_iters N    number of untimed calls before the timed calls\n"
                     "                          (default: 5)\n"
                     "  -c, --check N           1: compare every element of one call with its expected\n"
                     "                          value; 0: do not compare (default: 1)\n"
                     "  -d, --datatype TYPE     f32 (default), f64, f16, bf16, i32, i64, u8, or the\n"
                     "                          name in nccl-tests (float, double, half ...)\n"
                     "  -o, --op OP             sum (default), avg, min, max or prod\n"
                     "  -r, --root RANK         root of broadcast, reduce, gather and scatter\n"
                     "                          (default: 0)\n"
                     "  --json                  print JSON, one object per line, instead of the table\n"
                     "  -h, --help              print this list\n"
                     "  --version               print the version\n");
}

Test(ddp_bench, mistakes_are_worded_like_this, .timeout = 120)
{
    const struct {
        const char *word[4], *says;
    } cases[] = {
        { { "-b", "2M", "-e", "1M" }, "--maxbytes=1048576: expected at least --minbytes, which is 2097152" },
        { { "--minbytes=0" }, "--minbytes=0: expected a size from 1 to 1024G, such as 8, 64K, 1M or 2G" },
        { { "-i", "x" }, "-i x: expected a size from 0 to 1024G, such as 8, 64K, 1M or 2G" },
        { { "-f", "1" }, "-f 1: expected a factor from 2 to 1024G, such as 8, 64K, 1M or 2G" },
        { { "-n", "0" }, "-n 0: expected a number from 1 to 1000000" },
        { { "-d", "f8" },
          "-d f8: expected 'f32', 'float', 'f64', 'double', 'f16', 'half', 'bf16', 'bfloat16', 'i32', "
          "'int32', "
          "'i64', 'int64', 'u8' or 'uint8'" },
        { { "-o", "mean" }, "-o mean: expected 'sum', 'avg', 'min', 'max' or 'prod'" },
        { { "--collective=alltoall" },
          "--collective=alltoall: expected 'all_reduce', 'all_gather', 'broadcast', 'reduce', "
          "'reduce_scatter', 'gather', 'scatter' or 'all'" },
        { { "--backend=gloo" }, "--backend=gloo: expected 'cpu' or 'nccl'" },
        { { "--memory=disk" }, "--memory=disk: expected 'arena', 'private' or 'gpu'" },
        { { "-r", "5", "--backend=cpu" }, "--root=5: expected 0, because the job has one rank" },
        { { "-c", "2" }, "-c 2: expected 0 or 1" },
        { { "-c", "1", "--json=1" }, "--json=1: unexpected value: --json is a switch; leave out the value" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), "ddp-bench: error: %s\n", cases[i].says);
        struct run_result r =
            run_command((const char *const[]){ bin("ddp-bench"), cases[i].word[0], cases[i].word[1],
                                               cases[i].word[2], cases[i].word[3], NULL },
                        NULL);
        EXPECT(r, 2);
        cr_expect_str_eq(r.err, text);
    }
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

Test(ddp_bench, a_store_that_does_not_answer_has_a_remedy, .timeout = 120)
{
    char port[32];
    snprintf(port, sizeof(port), "MASTER_PORT=%d", free_port());
    struct run_result r =
        run_command((const char *const[]){ "env", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", port,
                                           "DDPRUN_INIT_TIMEOUT_MS=200", bin("ddp-bench"), NULL },
                    NULL);
    EXPECT(r, 1);
    SAYS(r, "; check MASTER_ADDR");
}

Test(ddp_bench, says_when_nothing_is_measured, .timeout = 120)
{
    struct run_result r =
        CPU_JOB("--nproc_per_node=2", "--no_prefix", bin("ddp-bench"), "-b", "1", "-e", "2", "--backend=cpu");
    EXPECT(r, 2);
    SAYS(r, "ddp-bench: error: --maxbytes: nothing to measure: every size has less than one element for each "
            "rank; use "
            "a larger --maxbytes\n");
    r = CPU_JOB("--nproc_per_node=2", "--no_prefix", bin("ddp-bench"), "-r", "5", "--backend=cpu");
    EXPECT(r, 2);
    cr_assert_not_null(strstr(r.err, "--root=5: expected a number from 0 to 1\n"), "%s", r.err);
}

/* Expect the line of the first size while ddp-bench still measures the second size, whose calls take minutes. Then kill
 * ddp-bench. */
Test(ddp_bench, each_line_is_written_at_once, .timeout = 120)
{
    struct run_process *bench =
        run_start((const char *const[]){ bin("ddp-bench"), "--backend=cpu", "--json", "--minbytes=4",
                                         "--maxbytes=16M", "--stepfactor=4M", "--iters=100000", NULL },
                  NULL);
    cr_assert_not_null(bench);
    const bool written = run_until_output(bench, "\"in_place\":true", PATIENCE_MS);
    run_signal(bench, SIGKILL);
    run_wait(bench);
    cr_assert(written);
}
