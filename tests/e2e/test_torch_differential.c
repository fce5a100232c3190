/* One history of operations against PyTorch's own store and against ours; tests/interop/differential compares. */
#include "run.h"
#include "job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(torch_differential, .timeout = 880);

static void expect_no_difference(const char *backend)
{
    char operations[16], seed[16];
    const char *argv[] = { torch_python(),
                           "tests/interop/differential",
                           bin("ddp-rendezvous"),
                           "--operations",
                           operations,
                           "--limit=380",
                           "--seed",
                           seed,
                           backend,
                           NULL };
    snprintf(operations, sizeof(operations), "%d", torch_number("DDP_OPERATIONS", 10000));
    snprintf(seed, sizeof(seed), "%d", torch_number("DDP_SEED", 1));
    struct run_result r = run_command(argv, &(struct run_options){ .timeout_ms = 870000 });
    cr_expect_eq(r.exit_code, 0, "exit %d, signal %d:\n%s%s", r.exit_code, r.signal, r.out, r.err);
    cr_expect_not_null(strstr(r.out, "no difference"), "%s", r.out);
    fputs(r.out, stdout);
    run_free(&r);
}

Test(torch_differential, no_operation_differs_from_the_genuine_store)
{
    torch_skip_without_libuv();
    torch_skip_sanitized();
    expect_no_difference(NULL);
}

Test(torch_differential, nor_from_its_older_server)
{
    torch_skip_without_libuv();
    torch_skip_sanitized();
    if (torch_is_old())
        cr_skip_test("skipped, because torch 1.x has one server only");
    expect_no_difference("--legacy");
}
