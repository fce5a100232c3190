/* Tests of ddp-bench: sizes, bandwidths as nccl-tests counts them, known values, and the command line. The module is
 * pure, so the tests need no ranks. */
#include "bench/bench_core.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct bench_case make(enum bench_kind kind, ddp_dtype dtype, ddp_op op, size_t bytes)
{
    struct bench_case c = { kind, dtype, op, 1, 4, 0, false };
    c.count = bench_count(kind, dtype, 4, bytes);
    return c;
}

Test(bench, parts_of_ranks_share_the_bytes)
{
    struct bench_case c = make(BENCH_ALL_GATHER, DDP_F32, DDP_SUM, 1 << 20);
    cr_assert(c.count == 65536 && bench_bytes(&c) == 1 << 20);
    cr_assert(bench_in_count(&c) == 65536 && bench_out_count(&c) == 262144);
    c = make(BENCH_ALL_REDUCE, DDP_F16, DDP_SUM, 1 << 20);
    cr_assert(c.count == 524288 && bench_bytes(&c) == 1 << 20);
    cr_assert_eq(bench_count(BENCH_SCATTER, DDP_F64, 4, 31), 0);
}

/* The formulas of nccl-tests (doc/PERFORMANCE.md) give these factors for 8 ranks. */
Test(bench, factors_are_those_of_nccl_tests)
{
    cr_assert(fabs(bench_algbw(1000000000, 1e6) - 1) < 1e-12);
    cr_assert(fabs(bench_busbw(BENCH_ALL_REDUCE, 8, 100) - 175) < 1e-9);
    cr_assert(fabs(bench_busbw(BENCH_REDUCE_SCATTER, 8, 100) - 87.5) < 1e-9);
    cr_assert(fabs(bench_busbw(BENCH_ALL_GATHER, 8, 100) - 87.5) < 1e-9);
    cr_assert(fabs(bench_busbw(BENCH_BROADCAST, 8, 100) - 100) < 1e-9);
    cr_assert(fabs(bench_busbw(BENCH_ALL_REDUCE, 1, 100)) < 1e-9);
}

Test(bench, wrong_elements_are_counted)
{
    struct bench_case c = make(BENCH_ALL_GATHER, DDP_BF16, DDP_SUM, 64);
    uint16_t out[32];
    for (int r = 0; r < 4; r++)
        bench_fill(&c, r, out + r * 8);
    cr_assert_eq(bench_wrong(&c, 2, out), 0);
    out[9]++;
    out[31]++;
    cr_assert_eq(bench_wrong(&c, 2, out), 2);
}

Test(bench, averages_may_be_rounded_twice_and_sums_not)
{
    struct bench_case c = make(BENCH_ALL_REDUCE, DDP_F32, DDP_AVG, 4);
    float values[4], sum = 0;
    for (int r = 0; r < 4; r++) {
        bench_fill(&c, r, &values[r]);
        sum += values[r];
    }
    float average = sum / 4, off = nextafterf(average, 10), far = average * 1.00001f;
    cr_assert_eq(bench_wrong(&c, 0, &average), 0);
    cr_assert_eq(bench_wrong(&c, 0, &off), 0);
    cr_assert_eq(bench_wrong(&c, 0, &far), 1);
    c.op = DDP_SUM;
    float sum_off = nextafterf(sum, 100);
    cr_assert_eq(bench_wrong(&c, 0, &sum), 0);
    cr_assert_eq(bench_wrong(&c, 0, &sum_off), 1);
}

#define WORDS(...) ((char *[]){ "ddp-bench", __VA_ARGS__, NULL })
static struct bench_options o;
static struct ddp_err err;

static ddp_status parse(char *const words[])
{
    int n = 0;
    while (words[n] != NULL)
        n++;
    return bench_options_parse(n, words, &o, &err);
}

Test(bench, letters_are_those_of_nccl_tests)
{
    cr_assert_eq(parse(WORDS("-b", "8", "-e", "1G", "-f", "2", "-n", "7", "-w", "3", "-c", "0", "-d", "half",
                             "-o", "avg", "-r", "2")),
                 DDP_OK, "%s", err.msg);
    cr_assert(o.least == 8 && o.most == 1u << 30 && o.factor == 2 && o.iters == 7 && o.warmup == 3 &&
              !o.check);
    cr_assert(o.dtype == DDP_F16 && o.op == DDP_AVG && o.root == 2);
    cr_assert_eq(
        parse(WORDS("--minbytes=64K", "--stepbytes", "64K", "--collective", "reduce_scatter", "--json")),
        DDP_OK);
    cr_assert(o.least == 65536 && bench_next(o.least, o.step, o.factor) == 131072 && o.json);
    cr_assert_eq(o.kind, BENCH_REDUCE_SCATTER);
}

Test(bench, sizes_that_no_number_holds_are_the_last)
{
    cr_assert_eq(parse(WORDS("-b", "16M", "-e", "64M", "-f", "1024G")), DDP_OK);
    cr_assert_eq(bench_next(o.least, o.step, o.factor), SIZE_MAX);
    cr_assert_eq(bench_next(SIZE_MAX - 4, 5, 2), SIZE_MAX);
    cr_assert_eq(bench_next(SIZE_MAX - 5, 5, 2), SIZE_MAX);
}

/* --memory selects the buffers of the cpu backend, so --memory without --backend also selects this backend. Otherwise a
 * rank with a GPU would use nccl, and --memory would have no effect. */
Test(bench, memory_is_that_of_the_cpu_backend)
{
    static char *const kinds[] = { "arena", "private", "gpu" };
    static char *const wrong[] = { "0", "-1", "1e99", "4GiBx", "", "Arena", "nccl" };
    char says[32];
    cr_assert(parse(WORDS("-c", "0")) == DDP_OK && o.backend == NULL && !o.gpu && !o.private_memory);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(parse(WORDS("--memory", kinds[i])), DDP_OK, "%s", err.msg);
        cr_expect_str_eq(o.backend, "cpu");
        cr_expect(o.private_memory == (i == 1) && o.gpu == (i == 2), "%s", kinds[i]);
        cr_expect_eq(parse(WORDS("--backend=cpu", "--memory", kinds[i])), DDP_OK);
        cr_expect_eq(parse(WORDS("--memory", kinds[i], "--backend=nccl")), i == 2 ? DDP_OK : DDP_ERR_ARG);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(says, sizeof(says), "--memory=%s: ", wrong[i]);
        cr_assert_eq(parse(WORDS("--memory", wrong[i])), DDP_ERR_ARG);
        cr_expect_eq(strncmp(err.msg, says, strlen(says)), 0, "%s", err.msg);
    }
}

/* "4GiBx" must not be read as 4G, and "1e9" must not be read as 1. */
Test(bench, sizes_have_no_other_form)
{
    static char *const wrong[] = { "0",   "-1", "+1", " 1", "1e99",  "4GiBx",
                                   "4GG", "4T", "G",  "",   "1025G", "99999999999999999999" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_expect_eq(parse(WORDS("-e", wrong[i])), DDP_ERR_ARG, "%s", wrong[i]);
        cr_expect_eq(parse(WORDS("-f", wrong[i])), DDP_ERR_ARG, "%s", wrong[i]);
    }
    cr_expect_eq(parse(WORDS("-e", "1024G")), DDP_OK, "%s", err.msg);
}

Test(bench, mistakes_are_named)
{
    cr_assert_eq(parse(WORDS("-b", "2M", "-e", "1M")), DDP_ERR_ARG);
    cr_assert_not_null(strstr(err.msg, "--maxbytes=1048576: "));
    cr_assert_eq(parse(WORDS("-d", "f8")), DDP_ERR_ARG);
    cr_assert_not_null(strstr(err.msg, "-d f8: "));
    cr_assert_eq(parse(WORDS("-b", "9999999999T")), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "-b 9999999999T: ") == err.msg, "%s", err.msg);
    cr_assert_eq(parse(WORDS("--minbytes=0")), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "--minbytes=0: ") == err.msg, "%s", err.msg);
    cr_assert_eq(parse(WORDS("-n")), DDP_ERR_ARG);
    cr_expect_eq(strncmp(err.msg, "-n: ", 4), 0, "%s", err.msg);
    cr_assert_eq(parse(WORDS("-h=1")), DDP_ERR_ARG);
    cr_expect_eq(strncmp(err.msg, "-h=1: ", 6), 0, "%s", err.msg);
    cr_assert_eq(parse(WORDS("-n", "0")), DDP_ERR_ARG);
    cr_assert_eq(parse(WORDS("--collective", "alltoall")), DDP_ERR_ARG);
}
