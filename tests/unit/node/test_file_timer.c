/* Test the table of torchrun's file timers. The table parses lines with requests, and returns the processes whose
 * timers have expired. */
#include "node/file_timer.c"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct timer_table table;
static struct timer_row row;

static void tear_down(void)
{
    timer_table_free(&table);
}

/* Write a request as FileTimerRequest.to_json does. */
static size_t ask(int pid, const char *scope, double expires, int signal)
{
    char line[512];
    const int n = snprintf(line, sizeof(line),
                           "{\"version\": 1, \"pid\": %d, \"scope_id\": \"%s\", \"expiration_time\": %f, "
                           "\"signal\": %d}\n",
                           pid, scope, expires, signal);
    return timer_table_add(&table, line, (size_t)n);
}

Test(timer_table, who_does_not_release_in_time_is_late, .fini = tear_down)
{
    double next;
    cr_assert_not(timer_table_next(&table, &next));
    cr_assert_eq(ask(7, "step", 100.5, 9), 0);
    cr_assert(timer_table_next(&table, &next));
    cr_assert_float_eq(next, 100.5, 1e-9);
    cr_assert_not(timer_table_remove(&table, 100.4, &row));
    cr_assert(timer_table_remove(&table, 100.5, &row));
    cr_assert_eq(row.pid, 7);
    cr_assert_eq(row.signal, 9);
    cr_assert_str_eq(row.scope, "step");
    cr_assert_not(timer_table_remove(&table, 101, &row), "once");
}

Test(timer_table, a_timer_is_released_or_set_again, .fini = tear_down)
{
    double next;
    ask(7, "a", 10, 9);
    ask(7, "b", 20, 9);
    ask(8, "a", 30, 9);
    ask(7, "a", -1, 0);
    ask(7, "a", -1, 0);
    cr_assert(timer_table_next(&table, &next));
    cr_assert_eq(next, 20);
    ask(7, "b", 40, 9);
    cr_assert(timer_table_next(&table, &next));
    cr_assert_eq(next, 30);
}

/* The first two names are one letter each, with two bytes in UTF-8. These names differ only in the second byte. A C1
 * control character has two bytes, too, and each of these bytes becomes '?'. */
Test(timer_table, names_that_are_not_ascii_are_different_names, .fini = tear_down)
{
    ask(7, "\xc3\xa4", 10, 9);
    ask(7, "\xc3\xb6", 20, 9);
    cr_assert_eq(table.n, 2);
    ask(7, "\xc3\xa4", -1, 0);
    cr_assert_eq(table.n, 1);
    cr_expect_str_eq(table.rows[0].scope, "\xc3\xb6");
    ask(8, "s\xc2\x9b\x7f", 30, 9);
    cr_expect_str_eq(table.rows[1].scope, "s???");
}

Test(timer_table, of_several_the_earliest_with_a_signal_counts, .fini = tear_down)
{
    ask(7, "quiet", 10, 0);
    ask(7, "late", 12, 9);
    ask(8, "other", 11, 15);
    ask(7, "later", 13, 15);
    cr_assert(timer_table_remove(&table, 20, &row));
    cr_assert_str_eq(row.scope, "late");
    cr_assert(timer_table_remove(&table, 20, &row));
    cr_assert_eq(row.pid, 8);
    cr_assert_not(timer_table_remove(&table, 20, &row), "all of 7's are forgotten");
}

Test(timer_table, lines_may_come_in_pieces_and_wrong_ones_are_left_out, .fini = tear_down)
{
    static const char line[] =
        "{\"version\":1,\"pid\":3,\"scope_id\":\"s\\u001b[2J\",\"expiration_time\":5,\"signal\":9}\n";
    static char long_line[TIMER_LINE_SIZE + 10];
    for (size_t i = 0; i < sizeof(line) - 1; i++)
        cr_assert_eq(timer_table_add(&table, &line[i], 1), 0);
    cr_assert_eq(table.n, 1);
    cr_assert_str_eq(table.rows[0].scope, "s?[2J");
    static const char *const wrong[] = {
        "\n",
        "{\n",
        "[1]\n",
        "{\"pid\":1}\n",
        "{\"pid\":-1,\"scope_id\":\"s\",\"expiration_time\":5,\"signal\":9}\n",
        "{\"pid\":1e99,\"scope_id\":\"s\",\"expiration_time\":5,\"signal\":9}\n",
        "{\"pid\":1,\"scope_id\":7,\"expiration_time\":5,\"signal\":9}\n",
        "{\"pid\":1,\"scope_id\":\"s\",\"expiration_time\":\"5\",\"signal\":9}\n"
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect_eq(timer_table_add(&table, wrong[i], strlen(wrong[i])), 1, "%s", wrong[i]);
    memset(long_line, ' ', sizeof(long_line));
    long_line[sizeof(long_line) - 1] = '\n';
    cr_expect_eq(timer_table_add(&table, long_line, sizeof(long_line)), 1);
    cr_expect_eq(ask(3, "t", 6, 9), 0, "the next line is read again");
    cr_expect_eq(table.n, 2);
}

Test(timer_table, holds_many_but_not_any_number, .fini = tear_down)
{
    for (int i = 0; i < 100; i++)
        cr_assert_eq(ask(1000 + i, "s", i, 9), 0);
    for (int i = 0; i < 100; i++) {
        cr_assert(timer_table_remove(&table, 1000, &row));
        cr_assert_geq(row.pid, 1000);
    }
    cr_assert_eq(table.n, 0);
}
