/* Lines on the console: prefix, escapes, and the row on which bars are drawn. */
#include "output/fold.h"

#include <criterion/criterion.h>
#include <string.h>

static struct buf out;

/* What has been appended since the last call. */
static const char *shown(void)
{
    static char text[512];
    cr_assert_lt(out.len, sizeof(text));
    memcpy(text, out.data, out.len);
    text[out.len] = '\0';
    buf_free(&out);
    return text;
}

static void show(struct line_row *row, const char *prefix, const char *text, enum line_kind kind)
{
    cr_assert(line_show(&out, row, slice_str(prefix), slice_str(text), kind));
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
