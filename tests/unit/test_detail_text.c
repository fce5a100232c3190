/* What ranks tell each other before a call, and how two that differ are told. */
#include "core/collective_check_text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct detail_said said(int rank, const char *call, const char *what, const char *before)
{
    struct detail_said s = { .rank = rank };
    snprintf(s.call, sizeof(s.call), "%s", call);
    snprintf(s.what, sizeof(s.what), "%s", what);
    snprintf(s.before, sizeof(s.before), "%s", before);
    return s;
}

Test(detail_text, what_is_put_is_taken)
{
    char text[DETAIL_TEXT];
    struct detail_said back,
        s = said(7, "all_reduce #3 (f32 x 4, sum)", "bucket 1 of 2: a\nb and 0 more (0)", "");
    const size_t len = detail_put(text, &s);
    cr_assert_eq(len, strlen(text));
    cr_assert(detail_take(text, &back), "%s", text);
    cr_expect_eq(back.rank, 7);
    cr_expect_str_eq(back.call, s.call);
    cr_expect_str_eq(back.what, "bucket 1 of 2: a b and 0 more (0)");
    cr_expect_str_eq(back.before, "");
}

Test(detail_text, the_longest_lines_fit)
{
    char text[DETAIL_TEXT];
    struct detail_said back, s = { .rank = 1048575 };
    memset(s.call, 'a', DETAIL_LINE - 1);
    memset(s.what, 'b', DETAIL_LINE - 1);
    memset(s.before, 'c', DETAIL_LINE - 1);
    detail_put(text, &s);
    cr_assert(detail_take(text, &back));
    cr_expect_str_eq(back.before, s.before);
}

Test(detail_text, what_is_cut_anywhere_is_none)
{
    char text[DETAIL_TEXT];
    struct detail_said back, s = said(0, "barrier #2", "x", "y");
    for (size_t cut = detail_put(text, &s) - 2; cut > 0; cut--) {
        text[cut] = '\0';
        cr_expect_not(detail_take(text, &back), "'%s'", text);
    }
    cr_expect_not(detail_take("", &back));
    cr_expect_not(detail_take("-1\na\nb\nc", &back));
    cr_expect_not(detail_take("1\na\nb\nc\nd", &back));
}

static void expect(struct detail_said a, struct detail_said b, const char *words)
{
    struct ddp_err err = { 0 };
    cr_expect_eq(detail_compare(&a, &b, &err), DDP_ERR_MISMATCH);
    cr_expect_str_eq(err.msg, words);
}

Test(detail_text, the_call_is_told_before_anything_else)
{
    expect(said(3, "barrier #2", "x", "y"), said(1, "broadcast #2 (f32 x 1, root 0)", "", ""),
           "ranks disagree: rank 1 called broadcast #2 (f32 x 1, root 0), rank 3 called barrier #2");
    expect(said(0, "all_reduce #9", "bucket 1", ""), said(1, "all_reduce #9", "", ""),
           "ranks disagree about what all_reduce #9 is for: on rank 0 it is bucket 1, on rank 1 nothing of "
           "the kind");
    expect(said(0, "barrier #9", "", "all_reduce #8 gave 1"),
           said(1, "barrier #9", "", "all_reduce #8 gave 2"),
           "ranks do not have the same values after a call: on rank 0 all_reduce #8 gave 1, on rank 1 "
           "all_reduce #8 gave "
           "2; something wrote into the buffer while the call ran, or memory is damaged");
}

Test(detail_text, the_same_is_the_same_whoever_says_it)
{
    struct ddp_err err;
    struct detail_said a = said(0, "barrier #2", "x", "y"), b = said(9, "barrier #2", "x", "y");
    cr_expect_eq(detail_compare(&a, &b, &err), DDP_OK);
}
