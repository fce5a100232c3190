/* Sets of ranks are parsed from the text that users type, and are printed in the same form. Reports print sets that
 * users paste into options, so both forms must agree. */
#include "record/rank_set.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT = 200 };

static int member_at(const void *set, int i)
{
    return rank_set_has(set, i) ? i : -1;
}

/* Parse `text` as a set and return the printed set, or "refused" if `text` is not a set. */
static const char *round_trip(const char *text)
{
    static char words[256];
    struct rank_set set = { 0 };
    struct buf out = { 0 };
    ddp_status status = rank_set_parse(&set, text, LIMIT, NULL);
    cr_assert(status == DDP_ERR_ARG ||
              (rank_set_print_each(member_at, &set, set.limit, 100, &out) && buf_append(&out, "", 1)));
    snprintf(words, sizeof(words), "%s", status == DDP_OK ? (const char *)out.data : "refused");
    rank_set_free(&set);
    buf_free(&out);
    return words;
}

Test(rank_set, prints_what_was_typed_in_its_shortest_form)
{
    cr_expect_str_eq(round_trip("0"), "0");
    cr_expect_str_eq(round_trip("0,2-5"), "0,2-5");
    cr_expect_str_eq(round_trip("5,4,3,2,0"), "0,2-5");
    cr_expect_str_eq(round_trip("63,64,65,127-128"), "63-65,127-128");
    cr_expect_str_eq(round_trip("0-199"), "0-199");
    cr_expect_str_eq(round_trip("1,1,1-1"), "1");
}

Test(rank_set, what_is_no_set_is_refused)
{
    static const char *const wrong[] = { "",
                                         ",",
                                         "1,",
                                         ",1",
                                         "1,,2",
                                         "a",
                                         "1a",
                                         "-1",
                                         "1-",
                                         "3-2",
                                         "200",
                                         "0-200",
                                         " 1",
                                         "1 ,2",
                                         "1--2",
                                         "1-2-3",
                                         "99999999999999999999",
                                         "0x1",
                                         "*" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect_str_eq(round_trip(wrong[i]), "refused", "'%s'", wrong[i]);
}

Test(rank_set, a_refused_text_leaves_the_set_and_says_what_would_be_right)
{
    struct rank_set set = { 0 };
    struct ddp_err err;
    cr_assert_eq(rank_set_parse(&set, "3", LIMIT, &err), DDP_OK);
    cr_expect_eq(rank_set_parse(&set, "4,x", LIMIT, &err), DDP_ERR_ARG);
    cr_expect_not_null(strstr(err.msg, "from 0 to 199"), "%s", err.msg);
    cr_expect(rank_set_has(&set, 3));
    cr_expect_eq(rank_set_highest(&set), 3);
    rank_set_free(&set);
}

Test(rank_set, ranks_without_room_are_never_in_it)
{
    struct rank_set set = { 0 };
    cr_expect_not(rank_set_has(&set, 0));
    cr_expect_eq(rank_set_highest(&set), -1);
    cr_assert(rank_set_init(&set, 65));
    rank_set_add(&set, -1);
    rank_set_add(&set, 65);
    cr_expect_eq(rank_set_highest(&set), -1);
    rank_set_add(&set, 64);
    cr_expect_eq(rank_set_highest(&set), 64);
    rank_set_free(&set);
}

static int even(const void *user, int i)
{
    (void)user;
    return i % 2 == 0 ? i + 100 : -1;
}

Test(rank_set, a_long_one_is_cut_behind_a_whole_entry)
{
    struct buf out = { 0 };
    cr_assert(rank_set_print_each(even, NULL, 100, 10, &out) && buf_append(&out, "", 1));
    cr_expect_str_eq((const char *)out.data, "100,102,104,...");
    buf_free(&out);
}
