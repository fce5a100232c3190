/* Identical lines of many ranks are shown once, and no rank's lines ever change places. */
#include "output/lines.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 8, MS = 1000 };

static struct fold *fold;
static struct buf seen;
static uint64_t now_us;

static int member_at(const void *set, int i)
{
    return rank_set_has(set, i) ? i : -1;
}

/* "ranks:text|" for each line that goes out. */
static void note(void *user, const struct fold_line *line)
{
    struct buf *out = user;
    bool ok = line->ranks != NULL ? rank_set_print_each(member_at, line->ranks, line->ranks->limit, 200, out)
                                  : buf_printf(out, "%d", line->rank);
    cr_assert_eq(line->origin, &now_us);
    cr_assert(ok && buf_append(out, ":", 1) && buf_append(out, line->text.data, line->text.len) &&
              buf_append(out, "|", 1));
}

static void begin(void)
{
    now_us = 0;
    fold = fold_new(RANKS, note, &seen);
    cr_assert_not_null(fold);
}

static void end(void)
{
    fold_free(fold);
    buf_free(&seen);
}

TestSuite(fold, .init = begin, .fini = end);

static bool put(struct fold *to, int rank, struct slice text, enum line_kind kind)
{
    const struct fold_line line = {
        .rank = rank, .text = text, .kind = kind, .at = { .since_us = now_us }, .origin = &now_us
    };
    return fold_put(to, &line);
}

static bool print(int rank, const char *text)
{
    return put(fold, rank, slice_str(text), LINE_WHOLE);
}

static uint64_t pass(uint64_t ms)
{
    now_us += ms * MS;
    return fold_flush(fold, now_us);
}

/* What has gone out since the last call. */
static const char *out(void)
{
    static char text[512];
    cr_assert_lt(seen.len, sizeof(text));
    snprintf(text, sizeof(text), "%.*s", (int)seen.len, seen.len > 0 ? (const char *)seen.data : "");
    seen.len = 0;
    return text;
}

Test(fold, the_same_line_of_several_ranks_goes_out_once)
{
    cr_expect(print(3, "warning"), "begins to wait");
    cr_expect_not(print(0, "warning"));
    cr_expect_not(print(7, "warning"));
    pass(1);
    print(1, "warning");
    pass(199);
    cr_expect_str_eq(out(), "");
    cr_expect_eq(pass(1), FOLD_NOTHING);
    cr_expect_str_eq(out(), "0-1,3,7:warning|");
}

Test(fold, a_lone_line_waits_for_the_window_and_not_longer)
{
    print(2, "alone");
    cr_expect_eq(pass(199), 200 * MS);
    cr_expect_str_eq(out(), "");
    cr_expect_eq(pass(1), FOLD_NOTHING);
    cr_expect_str_eq(out(), "2:alone|");
}

Test(fold, a_line_that_all_have_printed_waits_for_nobody)
{
    for (int rank = 0; rank < RANKS; rank++)
        print(rank, "hello");
    cr_expect_str_eq(out(), "0-7:hello|");
}

Test(fold, whoever_comes_late_still_joins_but_not_for_ever)
{
    for (int i = 0; i < 12; i++) {
        print(i % 6, "slow");
        pass(190);
    }
    cr_expect_str_eq(out(), "0-5:slow|", "the second round, in the order of a rank, is another line");
    fold_finish(fold);
    cr_expect_str_eq(out(), "0-5:slow|");
}

Test(fold, a_line_that_many_join_goes_out_after_ten_seconds_in_any_case)
{
    struct fold *big = fold_new(200, note, &seen);
    for (int rank = 0; rank < 101; rank++) {
        put(big, rank, slice_str("x"), LINE_WHOLE);
        now_us += 100 * MS;
        fold_flush(big, now_us);
    }
    cr_expect_str_eq(out(), "0-99:x|");
    fold_finish(big);
    fold_free(big);
    cr_expect_str_eq(out(), "100:x|");
}

Test(fold, a_rank_s_lines_never_change_places)
{
    print(0, "A");
    print(0, "B");
    print(1, "B");
    print(1, "A");
    fold_finish(fold);
    cr_expect_str_eq(out(), "0:A|0-1:B|1:A|");
}

Test(fold, a_rank_that_repeats_itself_is_shown_as_often)
{
    print(0, "tick");
    print(0, "tick");
    print(1, "tick");
    print(1, "tick");
    print(1, "tick");
    fold_finish(fold);
    cr_expect_str_eq(out(), "0-1:tick|0-1:tick|1:tick|");
}

Test(fold, lines_that_differ_in_a_number_are_kept_apart)
{
    print(0, "loss 0.51");
    print(1, "loss 0.52");
    print(2, "loss 0.5");
    fold_finish(fold);
    cr_expect_str_eq(out(), "0:loss 0.51|1:loss 0.52|2:loss 0.5|");
}

Test(fold, a_due_line_takes_along_what_stands_before_it)
{
    print(0, "joined again and again");
    pass(100);
    print(5, "lone");
    pass(90);
    print(1, "joined again and again");
    pass(110);
    cr_expect_str_eq(out(), "0-1:joined again and again|5:lone|");
}

Test(fold, updates_and_parts_are_not_folded_but_keep_their_place)
{
    put(fold, 0, slice_str("50%"), LINE_UPDATE);
    put(fold, 1, slice_str("50%"), LINE_UPDATE);
    put(fold, 1, slice_str("50%"), LINE_WHOLE);
    put(fold, 0, slice_str("50%"), LINE_LAST);
    fold_finish(fold);
    cr_expect_str_eq(out(), "0:50%|1:50%|0-1:50%|");
}

Test(fold, empty_lines_are_lines)
{
    print(0, "");
    print(1, "");
    fold_finish(fold);
    cr_expect_str_eq(out(), "0-1:|");
}

Test(fold, what_waits_is_bounded)
{
    char text[32];
    for (int i = 0; i < FOLD_LINES_MAX + 2; i++) {
        snprintf(text, sizeof(text), "%d", i);
        print(0, text);
    }
    cr_expect_str_eq(out(), "0:0|0:1|");
    fold_finish(fold);
    seen.len = 0;

    struct buf big = { 0 };
    memset(buf_reserve(&big, FOLD_BYTES_MAX + 1), 'x', FOLD_BYTES_MAX + 1);
    print(0, "before");
    put(fold, 1, slice_of(big.data, FOLD_BYTES_MAX), LINE_WHOLE);
    cr_expect_str_eq(out(), "0:before|", "to make room");
    put(fold, 2, slice_of(big.data, FOLD_BYTES_MAX + 1), LINE_WHOLE);
    cr_expect_eq(seen.len, 2 * FOLD_BYTES_MAX + 1 + 6, "too big to wait, and not before what waited");
    buf_free(&big);
}

Test(fold, a_thousand_ranks_with_one_warning_make_one_line)
{
    struct fold *big = fold_new(1024, note, &seen);
    for (int i = 0; i < 1024; i++) {
        put(big, i * 77 % 1024, slice_str("UserWarning: deprecated"), LINE_WHOLE);
        now_us += 1 * MS;
        fold_flush(big, now_us);
    }
    fold_flush(big, now_us);
    fold_free(big);
    cr_expect_str_eq(out(), "0-1023:UserWarning: deprecated|");
}

/* Random lines of random ranks: for each rank, what goes out is what it printed. */
Test(fold, any_lines_in_any_order_keep_each_ranks_order)
{
    enum { LINES = 400 };
    char expected[RANKS][LINES + 1], shown[RANKS][LINES + 1];
    int n[RANKS] = { 0 }, m[RANKS] = { 0 };
    uint64_t dice = 7;
    for (int i = 0; i < LINES; i++) {
        dice = dice * 6364136223846793005u + 1442695040888963407u;
        int rank = (int)(dice >> 33) % RANKS;
        char text[2] = { (char)('a' + (dice >> 40) % 3), '\0' };
        expected[rank][n[rank]++] = text[0];
        print(rank, text);
        pass((dice >> 50) % 30);
    }
    fold_finish(fold);
    cr_assert(buf_append(&seen, "", 1));
    size_t folded = 0;
    for (char *line = strtok((char *)seen.data, "|"); line != NULL; line = strtok(NULL, "|")) {
        struct rank_set set = { 0 };
        char *colon = strchr(line, ':');
        *colon = '\0';
        cr_assert_eq(rank_set_parse(&set, line, RANKS, NULL), DDP_OK);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank_set_has(&set, rank))
                shown[rank][m[rank]++] = colon[1];
        folded += strlen(line) > 1;
        rank_set_free(&set);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        cr_assert_eq(n[rank], m[rank]);
        cr_assert_eq(memcmp(expected[rank], shown[rank], (size_t)n[rank]), 0, "rank %d", rank);
    }
    cr_expect_gt(folded, 20);
}

/* --- show: lines on the console: prefix, escapes, and the row on which bars are drawn */

static struct buf show_out;

/* What has been appended since the last call. */
static const char *shown(void)
{
    static char text[512];
    cr_assert_lt(show_out.len, sizeof(text));
    memcpy(text, show_out.data, show_out.len);
    text[show_out.len] = '\0';
    buf_free(&show_out);
    return text;
}

static void show(struct line_row *row, const char *prefix, const char *text, enum line_kind kind)
{
    cr_assert(line_show(&show_out, row, slice_str(prefix), slice_str(text), kind));
}

Test(show, lines_carry_prefix_and_newline)
{
    struct line_row pipe = { 0 };
    show(&pipe, "[3] ", "text", LINE_WHOLE);
    show(&pipe, "", "half", LINE_CUT);
    show(&pipe, "[1] ", "", LINE_LAST);
    cr_assert_str_eq(shown(), "[3] text\nhalf [line continues]\n[1] \n");
}

Test(show, on_a_terminal_an_update_stays_on_the_last_row_until_a_line_comes)
{
    struct line_row screen = { .terminal = true }, log = { 0 };
    show(&screen, "[0] ", "1%", LINE_UPDATE);
    show(&screen, "[0] ", "2%", LINE_UPDATE);
    show(&log, "[1] ", "3%", LINE_UPDATE);
    show(&screen, "[1] ", "hello", LINE_WHOLE);
    show(&screen, "[1] ", "end", LINE_LAST);
    cr_assert_str_eq(line_row_wipe(&screen), "");
    cr_assert_str_eq(shown(), "[0] 1%\r\033[K[0] 2%[1] 3%\n\r\033[K[1] hello\n[1] end\n");
}

Test(show, escapes_are_made_visible_on_terminals_only)
{
    struct line_row screen = { .terminal = true, .escape = true }, pipe = { 0 };
    show(&screen, "\033[36m[0]\033[0m ", "\033[2Jforged", LINE_WHOLE);
    cr_assert_str_eq(shown(), "\033[36m[0]\033[0m \\x1b[2Jforged\n", "the prefix is ours and stays");
    show(&pipe, "[0] ", "\033[2Jbytes", LINE_WHOLE);
    cr_assert_str_eq(shown(), "[0] \033[2Jbytes\n");
}
