/* Lines are whole, whatever the reads were: every way to cut the same bytes gives the same lines. */
#include "output/lines.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* What came out, as "W:text|": W whole, L last, U update, C cut. */
static struct buf seen;

static void note(void *user, struct slice text, enum line_kind kind)
{
    (void)user;
    cr_assert(buf_printf(&seen, "%c:", "WLUC"[kind]) && buf_append(&seen, text.data, text.len) &&
              buf_append(&seen, "|", 1));
}

/* Feed in pieces of `step` bytes, and end the stream. */
static const char *cut(const char *bytes, size_t len, size_t step, size_t limit)
{
    struct lines l;
    seen.len = 0;
    lines_init(&l, note, NULL, limit);
    for (size_t at = 0; at < len; at += step)
        lines_feed(&l, slice_of(bytes + at, len - at < step ? len - at : step));
    lines_finish(&l);
    lines_free(&l);
    cr_assert(buf_append(&seen, "", 1));
    return (const char *)seen.data;
}

static void expect(const char *bytes, const char *lines)
{
    size_t len = strlen(bytes);
    for (size_t step = 1; step <= len + 1; step++)
        cr_assert_str_eq(cut(bytes, len, step, LINES_LIMIT), lines, "in steps of %zu", step);
}

Test(lines, end_with_newlines)
{
    expect("one\ntwo\n", "W:one|W:two|");
    expect("\n\na\n", "W:|W:|W:a|");
    expect("dos\r\nunix\n", "W:dos|W:unix|");
}

Test(lines, a_last_line_without_newline_is_kept)
{
    expect("one\nlast words", "W:one|L:last words|");
    expect("bar 99%\r", "L:bar 99%|");
    expect("", "");
    expect("\r", "");
}

Test(lines, of_a_progress_bar_the_last_state_remains)
{
    expect("\r10%\r20%\rdone\n", "W:done|");
    expect("10%\r20%\r\n", "W:20%|");
    expect("10%\r\r\nnext\n", "W:10%|W:next|");
    expect("a\n10%\rb\n", "W:a|W:b|");
}

Test(lines, an_update_is_shown_on_demand_and_only_once)
{
    struct lines l;
    seen.len = 0;
    lines_init(&l, note, NULL, LINES_LIMIT);
    lines_feed(&l, slice_str("1%\r2%\r3"));
    cr_assert(lines_show_update(&l));
    cr_assert_not(lines_show_update(&l));
    lines_feed(&l, slice_str("%\r\nend\n"));
    cr_assert_not(lines_show_update(&l));
    lines_feed(&l, slice_str("4%\r"));
    cr_assert(lines_show_update(&l));
    lines_feed(&l, slice_str("\n"));
    lines_free(&l);
    cr_assert(buf_append(&seen, "", 1));
    cr_assert_str_eq((const char *)seen.data, "U:2%|W:3%|W:end|U:4%|",
                     "shown, and nothing new drawn over it");
}

Test(lines, too_long_ones_are_delivered_in_pieces)
{
    for (size_t step = 1; step < 20; step++) {
        cr_assert_str_eq(cut("12345678\n", 9, step, 8), "W:12345678|");
        cr_assert_str_eq(cut("123456789\nx\n", 12, step, 8), "C:12345678|W:9|W:x|");
        cr_assert_str_eq(cut("1234567890123456\r9", 18, step, 8), "C:12345678|L:9|");
    }
}

Test(lines, any_bytes_cut_anywhere_give_the_same_lines)
{
    static const char letters[] = "ab\n\r\r\n\0\xc3";
    char corpus[300];
    uint64_t dice = 42;
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof(corpus); i++) {
            dice = dice * 6364136223846793005u + 1442695040888963407u;
            corpus[i] = letters[(dice >> 33) % (sizeof(letters) - 1)];
        }
        struct buf whole = { 0 };
        cut(corpus, sizeof(corpus), sizeof(corpus), 16);
        cr_assert(buf_append(&whole, seen.data, seen.len));
        for (size_t step = 1; step < 40; step++) {
            cut(corpus, sizeof(corpus), step, 16);
            cr_assert(slice_equal(buf_slice(&seen), buf_slice(&whole)), "round %d, step %zu", round, step);
        }
        buf_free(&whole);
    }
}

Test(lines, four_mebibytes_come_whole)
{
    enum { LEN = 4 * 1024 * 1024 };
    struct buf big = { 0 };
    char *p = buf_reserve(&big, LEN + 1);
    memset(p, 'x', LEN);
    p[LEN] = '\n';
    cut(p, LEN + 1, 65536, LINES_LIMIT);
    cr_assert_eq(seen.len, LEN + 4, "one line");
    cr_assert_eq(seen.data[0], 'W');
    buf_free(&big);
    buf_free(&seen);
}

Test(lines, an_update_that_only_erases_takes_back_the_one_before)
{
    expect("50%\r\033[K\rdone\n", "W:done|");
    expect("50%\r\033[K\r", "");
}
