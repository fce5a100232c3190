/* launcher/README.md says what the tables say. */
#include "net/dial_plan.h"
#include "base/exit_codes.h"
#include "tables/schedulers.h"
#include "tables/prefix.h"
#include "tables/signals.h"
#include "tables/worker_env.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static char readme[1 << 20];

static void read_it(void)
{
    FILE *file = fopen("launcher/README.md", "r");
    if (file == NULL)
        cr_skip_test("skipped, because the test does not run in the top folder of the sources");
    size_t len = fread(readme, 1, sizeof(readme) - 1, file);
    readme[len] = '\0';
    fclose(file);
    cr_assert_lt(len, sizeof(readme) - 1, "launcher/README.md is longer than this test reads");
}

static void expect_row(const char *row)
{
    cr_assert_not_null(strstr(readme, row), "this row is missing: %s", row);
}

Test(launcher_readme, has_every_exit_code, .init = read_it)
{
    char row[256];
#define X(code, name, text, remedy)                            \
    snprintf(row, sizeof(row), "\n| %d | %s |\n", code, text); \
    expect_row(row);
    EXIT_CODE_LIST(X)
#undef X
}

Test(launcher_readme, has_every_variable_of_a_worker, .init = read_it)
{
#define X(name, format, value, when, text) expect_row("\n| " #name " | " text " |\n");
    WORKER_ENV_LIST(X)
#undef X
}

Test(launcher_readme, has_every_field_of_a_prefix, .init = read_it)
{
#define X(id, name, meaning) expect_row("\n| " name " | " meaning " |\n");
    PREFIX_FIELDS(X)
#undef X
}

Test(launcher_readme, has_every_scheduler, .init = read_it)
{
#define X(id, name, title, rule, tells) expect_row("\n| `" name "` | " title " | " rule " | " tells " |\n");
    SCHEDULERS(X)
#undef X
}

Test(launcher_readme, has_every_signal, .init = read_it)
{
#define X(name, act, may_stop, guardian, agent, worker) \
    expect_row("\n| SIG" #name " | " guardian " | " agent " | " worker " |\n");
    SIGNAL_LIST(X)
#undef X
}

Test(launcher_readme, has_every_finding_and_marks_what_is_told_at_once, .init = read_it)
{
#define X(code, stage, error, least_ms, sure) \
    expect_row(#code);                        \
    if (sure)                                 \
        expect_row(#code " *");
    DIAL_FINDINGS(X)
#undef X
}
