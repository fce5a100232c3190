/* The store client in a program with threads, against ddp-rendezvous; `make tsan` runs both under
 * ThreadSanitizer. */
#include "run.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(store_threads, .timeout = 120);

Test(store_threads, share_a_handle_and_lose_nothing)
{
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    char port[16];
    snprintf(port, sizeof(port), "%d", d.port);
    const char *argv[] = { bin("tests/prog/store_threads"), "localhost", port, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "sum 1000\n");
    run_free(&r);
    daemon_stop(&d);
}
