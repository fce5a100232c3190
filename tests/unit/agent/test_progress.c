/* Tests of which lines of a worker are signs of progress, and which tracebacks are remembered. Both are guesses from
 * text, because most programs do not report their progress in another way. */
#include "agent/progress.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct progress p;

static void begin(void)
{
    p = (struct progress){ .n = 2 };
}

static void end(void)
{
    progress_reset(&p);
}

TestSuite(progress, .init = begin, .fini = end);

static void print_at(uint64_t now_ms, int which, const char *text)
{
    progress_add(&p, 0, which, slice_str(text), now_ms);
}

/* Print `n` lines of one kind, at 1, 2 ... ms. */
static void print_steps(int n)
{
    char line[64];
    for (int i = 1; i <= n; i++) {
        snprintf(line, sizeof(line), "step %d loss %.3f lr 1e-%02d\n", i, 1.0 / i, i);
        print_at((uint64_t)i, 0, line);
    }
}

Test(progress, the_fifth_line_that_differs_only_in_numbers_is_a_sign)
{
    print_steps(PROGRESS_SEEN - 1);
    cr_expect_eq(p.moved_ms, 0);
    print_steps(PROGRESS_SEEN);
    cr_expect_neq(p.moved_ms, 0);
}

Test(progress, later_ones_are_signs_with_their_time)
{
    print_steps(20);
    cr_expect_eq(p.moved_ms, 20);
    print_at(900, 0, "checkpoint written to /data/7\n");
    cr_expect_eq(p.moved_ms, 20, "a line that was seen once is none");
}

Test(progress, bars_that_are_drawn_over_count)
{
    char bar[160];
    for (int i = 1; i <= 9; i++) {
        snprintf(bar, sizeof(bar), "\r %d%%|%.*s%.*s| %d/9 [00:0%d<00:02, 4.%dit/s]", i * 11, i, "#########",
                 9 - i, "         ", i, i, i);
        print_at((uint64_t)i, 1, bar);
    }
    cr_expect_eq(p.moved_ms, 9, "the last bar begins, which ends the one before: %llu",
                 (unsigned long long)p.moved_ms);
}

Test(progress, lines_that_all_differ_are_no_signs)
{
    char line[64];
    for (int i = 0; i < 1000; i++) {
        snprintf(line, sizeof(line), "word%c%c%c happened\n", 'a' + i % 26, 'a' + i / 26 % 26,
                 'a' + i * 7 % 26);
        print_at(1, 0, line);
    }
    cr_expect_eq(p.moved_ms, 0);
}

/* A helper thread may print the same line forever, even while the rank hangs. */
Test(progress, lines_that_only_repeat_are_no_signs)
{
    for (int i = 0; i < 2 * PROGRESS_SEEN; i++) {
        print_at(1, 0, "watchdog: alive\n");
        print_at(1, 0, "step 7\n");
    }
    cr_expect_eq(p.moved_ms, 0);
    print_steps(9);
    cr_expect_eq(p.moved_ms, 9);
    print_at(50, 0, "step 9 loss 0.111 lr 1e-09\n");
    cr_expect_eq(p.moved_ms, 9, "it repeats the line before");
}

Test(progress, a_pattern_survives_other_lines)
{
    char line[64];
    for (int i = 0; i < 500; i++) {
        snprintf(line, sizeof(line), "%c%c%c\n", 'a' + i % 26, 'a' + i / 26 % 26, 'a' + i * 7 % 26);
        if (i % 5 == 0)
            snprintf(line, sizeof(line), "epoch %d done\n", i);
        print_at(1, 0, line);
    }
    p.moved_ms = 0;
    print_at(777, 0, "epoch 4 done\n");
    cr_expect_eq(p.moved_ms, 777);
}

Test(progress, a_line_in_pieces_is_one_line)
{
    print_steps(9);
    print_at(50, 0, "step 10 lo");
    cr_expect_eq(p.moved_ms, 9);
    print_at(60, 0, "ss 0.1 lr 1e-3\n");
    cr_expect_eq(p.moved_ms, 60);
}

Test(progress, of_a_flood_the_last_bytes_are_looked_at)
{
    struct buf flood = { 0 };
    print_steps(9);
    for (int i = 0; i < 3000; i++)
        buf_printf(&flood, "xyz%d\n", i);
    buf_printf(&flood, "step 11 loss 0 lr 0\n");
    progress_add(&p, 0, 0, buf_slice(&flood), 4000);
    cr_expect_eq(p.moved_ms, 4000);
    buf_free(&flood);
}

Test(progress, a_regular_expression_alone_decides)
{
    regex_t regex;
    cr_assert_eq(regcomp(&regex, "^epoch [0-9]+ done", REG_EXTENDED | REG_NOSUB), 0);
    p.regex = &regex;
    print_steps(20);
    cr_expect_eq(p.moved_ms, 0);
    print_at(33, 0, "epoch 1 done\n");
    cr_expect_eq(p.moved_ms, 33);
    regfree(&regex);
}

Test(progress, a_traceback_is_remembered_until_something_moves)
{
    print_steps(9);
    print_at(20, 1, "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\n");
    cr_expect_str_empty(p.ranks[0].error);
    print_at(21, 1, "ValueError: batch 7 \033is empty\n");
    cr_expect_str_eq(p.ranks[0].error, "ValueError: batch 7 ?is empty");
    cr_expect_str_empty(p.ranks[1].error);
    print_at(22, 0, "step 10 loss 0.1 lr 1e-4\n");
    cr_expect_str_empty(p.ranks[0].error);
}

Test(progress, a_traceback_with_the_prefix_of_pytorch)
{
    print_at(20, 1,
             "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\", line 3, in f\n[rank1]:  "
             "   g()\n"
             "[rank1]:     ~^^\n[rank1]: IndexError: index 7\n");
    cr_expect_str_eq(p.ranks[0].error, "IndexError: index 7");
}

Test(progress, foreign_ranks_and_a_new_attempt)
{
    print_steps(9);
    progress_add(&p, 2, 0, slice_str("step 1 loss 1 lr 1\n"), 50);
    progress_add(&p, -1, 0, slice_str("step 1 loss 1 lr 1\n"), 50);
    cr_expect_eq(p.moved_ms, 9);
    progress_reset(&p);
    cr_expect_eq(p.moved_ms, 0);
    print_steps(1);
    cr_expect_eq(p.moved_ms, 0);
}
