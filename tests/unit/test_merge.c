/* test_merge.c -- several streams in one file: whole lines, every byte kept. */
#include "output/lines.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct merge m;
static struct buf out;

static void tear_down(void)
{
    merge_free(&m);
    buf_free(&out);
}

TestSuite(merge, .fini = tear_down);

static void feed(const char *text)
{
    cr_assert(merge_feed(&m, slice_str(text), &out));
}

static void expect_out(const char *text)
{
    cr_expect(slice_equal(buf_slice(&out), slice_str(text)), "'%.*s' instead of '%s'", (int)out.len,
              (const char *)out.data, text);
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
    cr_assert(merge_finish(&m, &out));
    expect_out("[3] last\n");
    cr_assert(merge_finish(&m, &out));
    expect_out("[3] last\n");
}

/* However the bytes are cut into reads, the file is the same. */
Test(merge, how_the_bytes_were_cut_makes_no_difference)
{
    static const char text[] = "a\n\nbb\r\nccc\rd\ne";
    for (size_t cut = 0; cut <= sizeof(text) - 1; cut++) {
        tear_down();
        m = (struct merge){ .prefix = "> " };
        out = (struct buf){ 0 };
        merge_feed(&m, slice_of(text, cut), &out);
        merge_feed(&m, slice_of(text + cut, sizeof(text) - 1 - cut), &out);
        merge_finish(&m, &out);
        expect_out("> a\n> \n> bb\r\n> ccc\rd\n> e\n");
    }
}

Test(merge, a_huge_line_comes_in_pieces_with_one_prefix)
{
    enum { BIG = MERGE_LINE_MAX + 10 };
    char *big = malloc(BIG);
    memset(big, 'x', BIG);
    strcpy(m.prefix, "> ");
    cr_assert(merge_feed(&m, slice_of(big, BIG), &out));
    cr_expect_eq(out.len, BIG + 2);
    cr_expect_eq(m.rest.len, 0, "memory is bounded");
    feed("end\n");
    cr_expect_eq(out.len, BIG + 6);
    free(big);
}
