/* The loader in a plain program; `make tsan` runs it under ThreadSanitizer. */
#include "run.h"

#include <criterion/criterion.h>

TestSuite(loader_threads, .timeout = 120);

Test(loader_threads, make_what_one_would_have_made)
{
    const char *argv[] = { bin("tests/prog/loader_threads"), NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "same\n");
    run_free(&r);
}
