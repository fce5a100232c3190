/* The last words of a stream. */
#include "output/lines.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

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
