/* Lines are whole, whatever the reads were: every way to cut the same bytes gives the same lines. */
#include "output/lines.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

/* --- tail: the last words of a stream */

static struct tail tail;
static struct buf out;

static void tear_down(void)
{
    tail_free(&tail);
    buf_free(&out);
}

/* The last `max` lines as text. */
static const char *last(size_t max, size_t expected)
{
    out.len = 0;
    cr_assert_eq(tail_lines(&tail, max, &out), expected);
    cr_assert(buf_append(&out, "", 1));
    return (const char *)out.data;
}

Test(tail, gives_the_last_lines, .fini = tear_down)
{
    cr_assert_str_eq(last(3, 0), "");
    tail_feed(&tail, slice_str("one\ntwo\nthr"));
    tail_feed(&tail, slice_str("ee\nfour"));
    cr_assert_str_eq(last(2, 2), "three\nfour\n");
    cr_assert_str_eq(last(4, 4), "one\ntwo\nthree\nfour\n");
    cr_assert_str_eq(last(9, 4), "one\ntwo\nthree\nfour\n");
    cr_assert_str_eq(last(0, 0), "");
}

Test(tail, leaves_out_blank_lines_at_the_end, .fini = tear_down)
{
    tail_feed(&tail, slice_str("\nboom\n\n\r\n"));
    cr_assert_str_eq(last(1, 1), "boom\n");
    cr_assert_str_eq(last(5, 2), "\nboom\n");
}

Test(tail, forgets_the_oldest_beyond_64_kib, .fini = tear_down)
{
    char line[64];
    for (int i = 0; i < 20000; i++) {
        int n = snprintf(line, sizeof(line), "line %d\n", i);
        tail_feed(&tail, slice_of(line, (size_t)n));
    }
    cr_assert_eq(tail.len, TAIL_BYTES);
    cr_assert_str_eq(last(2, 2), "line 19998\nline 19999\n");
}

Test(tail, of_a_huge_piece_keeps_the_end, .fini = tear_down)
{
    static char huge[3 * TAIL_BYTES];
    memset(huge, 'x', sizeof(huge));
    memcpy(huge + sizeof(huge) - 5, "\nend\n", 5);
    tail_feed(&tail, slice_str("before\n"));
    tail_feed(&tail, slice_of(huge, sizeof(huge)));
    cr_assert_eq(tail.len, TAIL_BYTES);
    cr_assert_str_eq(last(1, 1), "end\n");
    tail_feed(&tail, slice_str("more\n"));
    cr_assert_str_eq(last(2, 2), "end\nmore\n");
}

Test(tail, is_the_same_in_any_pieces, .fini = tear_down)
{
    static char bytes[100000], expected[TAIL_BYTES];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(i % 251);
    memcpy(expected, bytes + sizeof(bytes) - TAIL_BYTES, TAIL_BYTES);
    for (size_t step = 997; step < 70000; step = step * 2 + 1) {
        for (size_t at = 0; at < sizeof(bytes); at += step)
            tail_feed(&tail, slice_of(bytes + at, sizeof(bytes) - at < step ? sizeof(bytes) - at : step));
        for (size_t i = 0; i < TAIL_BYTES; i++)
            cr_assert_eq((char)tail.ring[(tail.start + i) % tail.cap], expected[i], "step %zu byte %zu", step,
                         i);
        tail_free(&tail);
    }
}

/* --- merge: several streams in one file: whole lines, every byte kept */

static struct merge m;
static struct buf merge_out;

static void merge_tear_down(void)
{
    merge_free(&m);
    buf_free(&merge_out);
}

TestSuite(merge, .fini = merge_tear_down);

static void feed(const char *text)
{
    cr_assert(merge_feed(&m, slice_str(text), &merge_out));
}

static void expect_out(const char *text)
{
    cr_expect(slice_equal(buf_slice(&merge_out), slice_str(text)), "'%.*s' instead of '%s'",
              (int)merge_out.len, (const char *)merge_out.data, text);
}

Test(merge, lines_wait_until_they_are_whole)
{
    strcpy(m.prefix, "[3] ");
    feed("on");
    expect_out("");
    feed("e\ntwo\nthr");
    expect_out("[3] one\n[3] two\n");
    feed("ee\n");
    expect_out("[3] one\n[3] two\n[3] three\n");
}

Test(merge, carriage_returns_and_empty_lines_stay)
{
    feed("10%\r20%\r\n\n\nx\r\n");
    expect_out("10%\r20%\r\n\n\nx\r\n");
}

Test(merge, a_last_line_gets_its_newline_and_no_line_gets_none)
{
    strcpy(m.prefix, "[3] ");
    feed("last");
    cr_assert(merge_finish(&m, &merge_out));
    expect_out("[3] last\n");
    cr_assert(merge_finish(&m, &merge_out));
    expect_out("[3] last\n");
}

/* However the bytes are cut into reads, the file is the same. */
Test(merge, how_the_bytes_were_cut_makes_no_difference)
{
    static const char text[] = "a\n\nbb\r\nccc\rd\ne";
    for (size_t cut = 0; cut <= sizeof(text) - 1; cut++) {
        merge_tear_down();
        m = (struct merge){ .prefix = "> " };
        merge_out = (struct buf){ 0 };
        merge_feed(&m, slice_of(text, cut), &merge_out);
        merge_feed(&m, slice_of(text + cut, sizeof(text) - 1 - cut), &merge_out);
        merge_finish(&m, &merge_out);
        expect_out("> a\n> \n> bb\r\n> ccc\rd\n> e\n");
    }
}

Test(merge, a_huge_line_comes_in_pieces_with_one_prefix)
{
    enum { BIG = MERGE_LINE_MAX + 10 };
    char *big = malloc(BIG);
    memset(big, 'x', BIG);
    strcpy(m.prefix, "> ");
    cr_assert(merge_feed(&m, slice_of(big, BIG), &merge_out));
    cr_expect_eq(merge_out.len, BIG + 2);
    cr_expect_eq(m.rest.len, 0, "memory is bounded");
    feed("end\n");
    cr_expect_eq(merge_out.len, BIG + 6);
    free(big);
}
