/* Tests that cut streams into lines, keep the tail of a stream, merge streams, and fold equal lines of several
 * ranks. Workers write in pieces of any size, so the tests cut their input at many places. */
#include "output/lines.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The output, for example "W:text|". The letter is the kind of the line: W for whole, L for last, U for update, and C
 * for cut. */
static struct buf seen;

static void note(void *user, struct slice text, enum line_kind kind)
{
    (void)user;
    cr_assert(buf_printf(&seen, "%c:", "WLUC"[kind]) && buf_append(&seen, text.data, text.len) &&
              buf_append(&seen, "|", 1));
}

/* Feed `bytes` in pieces of `step` bytes, and end the stream. */
static const char *cut(const char *bytes, size_t len, size_t step, size_t limit)
{
    struct lines l;
    seen.len = 0;
    lines_init(&l, note, NULL, limit);
    for (size_t at = 0; at < len; at += step)
        lines_append(&l, slice_of(bytes + at, len - at < step ? len - at : step));
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
    expect("one\nlast lines", "W:one|L:last lines|");
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
    lines_append(&l, slice_str("1%\r2%\r3"));
    cr_assert(lines_show_update(&l));
    cr_assert_not(lines_show_update(&l));
    lines_append(&l, slice_str("%\r\nend\n"));
    cr_assert_not(lines_show_update(&l));
    lines_append(&l, slice_str("4%\r"));
    cr_assert(lines_show_update(&l));
    lines_append(&l, slice_str("\n"));
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

/* --- tail: the last bytes of a stream */

static struct tail tail;
static struct buf out;

static void tear_down(void)
{
    tail_free(&tail);
    buf_free(&out);
}

/* Return the last `max` lines as text. */
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
    tail_add(&tail, slice_str("one\ntwo\nthr"));
    tail_add(&tail, slice_str("ee\nfour"));
    cr_assert_str_eq(last(2, 2), "three\nfour\n");
    cr_assert_str_eq(last(4, 4), "one\ntwo\nthree\nfour\n");
    cr_assert_str_eq(last(9, 4), "one\ntwo\nthree\nfour\n");
    cr_assert_str_eq(last(0, 0), "");
}

Test(tail, leaves_out_blank_lines_at_the_end, .fini = tear_down)
{
    tail_add(&tail, slice_str("\nboom\n\n\r\n"));
    cr_assert_str_eq(last(1, 1), "boom\n");
    cr_assert_str_eq(last(5, 2), "\nboom\n");
}

Test(tail, forgets_the_oldest_beyond_64_kib, .fini = tear_down)
{
    char line[64];
    for (int i = 0; i < 20000; i++) {
        int n = snprintf(line, sizeof(line), "line %d\n", i);
        tail_add(&tail, slice_of(line, (size_t)n));
    }
    cr_assert_eq(tail.len, TAIL_BYTES);
    cr_assert_str_eq(last(2, 2), "line 19998\nline 19999\n");
}

Test(tail, of_a_huge_piece_keeps_the_end, .fini = tear_down)
{
    static char huge[3 * TAIL_BYTES];
    memset(huge, 'x', sizeof(huge));
    memcpy(huge + sizeof(huge) - 5, "\nend\n", 5);
    tail_add(&tail, slice_str("before\n"));
    tail_add(&tail, slice_of(huge, sizeof(huge)));
    cr_assert_eq(tail.len, TAIL_BYTES);
    cr_assert_str_eq(last(1, 1), "end\n");
    tail_add(&tail, slice_str("more\n"));
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
            tail_add(&tail, slice_of(bytes + at, sizeof(bytes) - at < step ? sizeof(bytes) - at : step));
        for (size_t i = 0; i < TAIL_BYTES; i++)
            cr_assert_eq((char)tail.ring[(tail.start + i) % tail.cap], expected[i], "step %zu byte %zu", step,
                         i);
        tail_free(&tail);
    }
}

/* --- merge: several streams write to one file; lines stay whole, and no byte is lost */

static struct merge merged;
static struct buf merge_out;

static void merge_tear_down(void)
{
    merge_free(&merged);
    buf_free(&merge_out);
}

TestSuite(merge, .fini = merge_tear_down);

static void feed(const char *text)
{
    cr_assert(merge_add(&merged, slice_str(text), &merge_out));
}

static void expect_out(const char *text)
{
    cr_expect(slice_equal(buf_slice(&merge_out), slice_str(text)), "'%.*s' instead of '%s'",
              (int)merge_out.len, (const char *)merge_out.data, text);
}

Test(merge, lines_wait_until_they_are_whole)
{
    strcpy(merged.prefix, "[3] ");
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
    strcpy(merged.prefix, "[3] ");
    feed("last");
    cr_assert(merge_finish(&merged, &merge_out));
    expect_out("[3] last\n");
    cr_assert(merge_finish(&merged, &merge_out));
    expect_out("[3] last\n");
}

Test(merge, how_the_bytes_were_cut_makes_no_difference)
{
    static const char text[] = "a\n\nbb\r\nccc\rd\ne";
    for (size_t cut = 0; cut <= sizeof(text) - 1; cut++) {
        merge_tear_down();
        merged = (struct merge){ .prefix = "> " };
        merge_out = (struct buf){ 0 };
        merge_add(&merged, slice_of(text, cut), &merge_out);
        merge_add(&merged, slice_of(text + cut, sizeof(text) - 1 - cut), &merge_out);
        merge_finish(&merged, &merge_out);
        expect_out("> a\n> \n> bb\r\n> ccc\rd\n> e\n");
    }
}

Test(merge, a_huge_line_comes_in_pieces_with_one_prefix)
{
    enum { BIG = MERGE_LINE_MAX + 10 };
    char *big = malloc(BIG);
    memset(big, 'x', BIG);
    strcpy(merged.prefix, "> ");
    cr_assert(merge_add(&merged, slice_of(big, BIG), &merge_out));
    cr_expect_eq(merge_out.len, BIG + 2);
    cr_expect_eq(merged.rest.len, 0, "memory is bounded");
    feed("end\n");
    cr_expect_eq(merge_out.len, BIG + 6);
    free(big);
}

/* --- fold ----------------------------------------------------------------------------------------------------- */

/* Tests of folding. Each rank's lines keep their order. */

enum { RANKS = 8, MS = 1000 };

static struct fold *fold;
static struct buf fold_seen;
static uint64_t now_us;

static int member_at(const void *set, int i)
{
    return rank_set_has(set, i) ? i : -1;
}

/* Append each printed line to the buffer `user` as "ranks:text|". */
static void fold_note(void *user, const struct fold_line *line)
{
    struct buf *fold_out = user;
    bool ok = line->ranks != NULL
                  ? rank_set_print_each(member_at, line->ranks, line->ranks->limit, 200, fold_out)
                  : buf_printf(fold_out, "%d", line->rank);
    cr_assert_eq(line->origin, &now_us);
    cr_assert(ok && buf_append(fold_out, ":", 1) && buf_append(fold_out, line->text.data, line->text.len) &&
              buf_append(fold_out, "|", 1));
}

static void begin(void)
{
    now_us = 0;
    fold = fold_new(RANKS, fold_note, &fold_seen);
    cr_assert_not_null(fold);
}

static void end(void)
{
    fold_free(fold);
    buf_free(&fold_seen);
}

TestSuite(fold, .init = begin, .fini = end);

static bool put(struct fold *to, int rank, struct slice text, enum line_kind kind)
{
    const struct fold_line line = {
        .rank = rank, .text = text, .kind = kind, .at = { .since_us = now_us }, .origin = &now_us
    };
    return fold_add(to, &line);
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

/* Return the output that was printed after the previous call. */
static const char *fold_out(void)
{
    static char text[512];
    cr_assert_lt(fold_seen.len, sizeof(text));
    snprintf(text, sizeof(text), "%.*s", (int)fold_seen.len,
             fold_seen.len > 0 ? (const char *)fold_seen.data : "");
    fold_seen.len = 0;
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
    cr_expect_str_eq(fold_out(), "");
    cr_expect_eq(pass(1), FOLD_NOTHING);
    cr_expect_str_eq(fold_out(), "0-1,3,7:warning|");
}

Test(fold, a_lone_line_waits_for_the_window_and_not_longer)
{
    print(2, "alone");
    cr_expect_eq(pass(199), 200 * MS);
    cr_expect_str_eq(fold_out(), "");
    cr_expect_eq(pass(1), FOLD_NOTHING);
    cr_expect_str_eq(fold_out(), "2:alone|");
}

Test(fold, a_line_that_all_have_printed_waits_for_nobody)
{
    for (int rank = 0; rank < RANKS; rank++)
        print(rank, "hello");
    cr_expect_str_eq(fold_out(), "0-7:hello|");
}

Test(fold, whoever_comes_late_still_joins_but_not_for_ever)
{
    for (int i = 0; i < 12; i++) {
        print(i % 6, "slow");
        pass(190);
    }
    cr_expect_str_eq(fold_out(), "0-5:slow|", "the second round, in the order of a rank, is another line");
    fold_finish(fold);
    cr_expect_str_eq(fold_out(), "0-5:slow|");
}

Test(fold, a_line_that_many_join_goes_out_after_ten_seconds_in_any_case)
{
    struct fold *big = fold_new(200, fold_note, &fold_seen);
    for (int rank = 0; rank < 101; rank++) {
        put(big, rank, slice_str("x"), LINE_WHOLE);
        now_us += 100 * MS;
        fold_flush(big, now_us);
    }
    cr_expect_str_eq(fold_out(), "0-99:x|");
    fold_finish(big);
    fold_free(big);
    cr_expect_str_eq(fold_out(), "100:x|");
}

Test(fold, a_rank_s_lines_never_change_places)
{
    print(0, "A");
    print(0, "B");
    print(1, "B");
    print(1, "A");
    fold_finish(fold);
    cr_expect_str_eq(fold_out(), "0:A|0-1:B|1:A|");
}

Test(fold, a_rank_that_repeats_itself_is_shown_as_often)
{
    print(0, "tick");
    print(0, "tick");
    print(1, "tick");
    print(1, "tick");
    print(1, "tick");
    fold_finish(fold);
    cr_expect_str_eq(fold_out(), "0-1:tick|0-1:tick|1:tick|");
}

Test(fold, lines_that_differ_in_a_number_are_kept_apart)
{
    print(0, "loss 0.51");
    print(1, "loss 0.52");
    print(2, "loss 0.5");
    fold_finish(fold);
    cr_expect_str_eq(fold_out(), "0:loss 0.51|1:loss 0.52|2:loss 0.5|");
}

Test(fold, a_due_line_takes_along_what_stands_before_it)
{
    print(0, "joined many times");
    pass(100);
    print(5, "lone");
    pass(90);
    print(1, "joined many times");
    pass(110);
    cr_expect_str_eq(fold_out(), "0-1:joined many times|5:lone|");
}

Test(fold, updates_and_parts_are_not_folded_but_keep_their_place)
{
    put(fold, 0, slice_str("50%"), LINE_UPDATE);
    put(fold, 1, slice_str("50%"), LINE_UPDATE);
    put(fold, 1, slice_str("50%"), LINE_WHOLE);
    put(fold, 0, slice_str("50%"), LINE_LAST);
    fold_finish(fold);
    cr_expect_str_eq(fold_out(), "0:50%|1:50%|0-1:50%|");
}

Test(fold, empty_lines_are_lines)
{
    print(0, "");
    print(1, "");
    fold_finish(fold);
    cr_expect_str_eq(fold_out(), "0-1:|");
}

Test(fold, what_waits_is_bounded)
{
    char text[32];
    for (int i = 0; i < FOLD_LINES_MAX + 2; i++) {
        snprintf(text, sizeof(text), "%d", i);
        print(0, text);
    }
    cr_expect_str_eq(fold_out(), "0:0|0:1|");
    fold_finish(fold);
    fold_seen.len = 0;

    struct buf big = { 0 };
    memset(buf_reserve(&big, FOLD_BYTES_MAX + 1), 'x', FOLD_BYTES_MAX + 1);
    print(0, "before");
    put(fold, 1, slice_of(big.data, FOLD_BYTES_MAX), LINE_WHOLE);
    cr_expect_str_eq(fold_out(), "0:before|", "to make room");
    put(fold, 2, slice_of(big.data, FOLD_BYTES_MAX + 1), LINE_WHOLE);
    cr_expect_eq(fold_seen.len, 2 * FOLD_BYTES_MAX + 1 + 6, "too big to wait, and not before what waited");
    buf_free(&big);
}

Test(fold, a_thousand_ranks_with_one_warning_make_one_line)
{
    struct fold *big = fold_new(1024, fold_note, &fold_seen);
    for (int i = 0; i < 1024; i++) {
        put(big, i * 77 % 1024, slice_str("UserWarning: deprecated"), LINE_WHOLE);
        now_us += 1 * MS;
        fold_flush(big, now_us);
    }
    fold_flush(big, now_us);
    fold_free(big);
    cr_expect_str_eq(fold_out(), "0-1023:UserWarning: deprecated|");
}

/* Random lines of random ranks are printed so that for each rank the output equals its input. */
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
    cr_assert(buf_append(&fold_seen, "", 1));
    size_t folded = 0;
    for (char *line = strtok((char *)fold_seen.data, "|"); line != NULL; line = strtok(NULL, "|")) {
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

/* --- show: lines on the console, with prefix and escapes, and the row of a progress bar */

static struct buf show_out;

/* Return the text that was appended after the previous call. */
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

/* --- lines of several nodes -------------------------------------------------------------------------------------- */

Test(marked_lines, a_mark_has_rank_world_size_and_prefix)
{
    static const char *const others[] = { "",
                                          "\035",
                                          "text",
                                          "\0351 2\035x",
                                          "\0352 2 0\035x",
                                          "\035-1 2 0\035",
                                          "\0351 2 2\035x",
                                          "\0351 2 0 \035x",
                                          "\0351 2 0x\035x" };
    struct buf marked = { 0 };
    struct marked_line m;
    cr_assert(line_mark(&marked, 7, 16, slice_str("[b:7] ")));
    cr_assert(buf_append(&marked, "a \035 b", 5));
    cr_assert(line_unmark(buf_slice(&marked), &m));
    cr_expect_eq(m.rank, 7);
    cr_expect_eq(m.world_size, 16);
    cr_expect(slice_equal(m.prefix, slice_str("[b:7] ")));
    cr_expect(slice_equal(m.text, slice_str("a \035 b")));
    buf_free(&marked);
    cr_assert(line_mark(&marked, 0, 1, slice_of(NULL, 0)));
    cr_assert(line_unmark(buf_slice(&marked), &m));
    cr_expect_eq(m.text.len, 0);
    buf_free(&marked);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_expect_not(line_unmark(slice_str(others[i]), &m), "%zu", i);
}
