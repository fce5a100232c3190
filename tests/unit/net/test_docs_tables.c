/* The pages in docs/ show every row of the tables. The code is the only source of these facts, so a row that a page
 * lacks is an error. */
#include "net/dial_plan.h"
#include "base/exit_codes.h"
#include "cli/options.h"
#include "tables/signals.h"
#include "tables/worker_env.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static char page[1 << 16];

static void read_page(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        cr_skip_test("skipped, because the test does not run in the top folder of the sources");
    size_t len = fread(page, 1, sizeof(page) - 1, file);
    page[len] = '\0';
    fclose(file);
    cr_assert_lt(len, sizeof(page) - 1, "%s is longer than this test reads", path);
}

/* Return the cell for `text`. The page leaves the cell empty if `text` is `usual`. */
static const char *unless(const char *usual, const char *text)
{
    return strcmp(text, usual) == 0 ? "" : text;
}

static void expect_row(const char *row)
{
    cr_assert_not_null(strstr(page, row), "this row is missing: %s", row);
}

Test(docs_tables, signals_page_has_every_exit_code_and_signal)
{
    char row[256];
    read_page("docs/signals.md");
#define X(code, name, text, ...)                           \
    snprintf(row, sizeof(row), "\n|%d|%s|\n", code, text); \
    expect_row(row);
    EXIT_CODE_LIST(X)
#undef X
    expect_row("\n|other|" EXIT_CODE_OTHER_MEANING "|\n");
#define X(name, act, may_stop, guardian, agent, worker)                                            \
    snprintf(row, sizeof(row), "\n|SIG" #name "|" guardian "|%s|%s|\n", unless("the same", agent), \
             unless("like SIGTERM", worker));                                                      \
    expect_row(row);
    SIGNAL_LIST(X)
#undef X
}

Test(docs_tables, options_page_has_every_variable_of_a_worker)
{
    read_page("docs/options.md");
    /* The variables of --flight_recorder share a row. */
#define X(name, format, value, when, text) \
    expect_row(strstr(#when, "torch_flight") != NULL ? "\n|TORCH_FR_*" : "\n|" #name "|" text "|\n");
    WORKER_ENV_LIST(X)
#undef X
}

Test(docs_tables, schedulers_page_has_every_scheduler)
{
    read_page("docs/schedulers.md");
#define X(id, name, title, rule, tells) expect_row("\n|`" name "`|" title "|" rule "|" tells "|\n");
    SCHEDULERS(X)
#undef X
}

Test(docs_tables, nodes_page_has_every_dial_finding_and_marks_those_reported_at_once)
{
    read_page("docs/several-nodes.md");
#define X(code, stage, error, least_ms, sure) \
    expect_row(#code);                        \
    if (sure)                                 \
        expect_row(#code " *");
    DIAL_FINDINGS(X)
#undef X
}
