/* The output of a worker can neither harm a terminal nor imitate the output of another worker. The escaped text is
 * compared byte by byte, because one missed byte is enough to control a terminal. */
#include "tables/text.c"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

/* Return the line as a terminal gets it. */
static const char *escaped(const char *bytes, size_t len)
{
    static char text[1024];
    struct buf out = { 0 };
    cr_assert(escape_append(&out, slice_of(bytes, len)) && buf_append(&out, "", 1));
    cr_assert_leq(out.len, sizeof(text));
    memcpy(text, out.data, out.len);
    buf_free(&out);
    return text;
}

static void expect(const char *bytes, const char *text)
{
    cr_expect_str_eq(escaped(bytes, strlen(bytes)), text);
}

/* Return true if `text` has only printable characters, tabs and colours, which harm no terminal. */
static bool is_harmless(const char *text)
{
    const uint8_t *p = (const uint8_t *)text;
    for (size_t n; *p != '\0'; p += n) {
        n = utf8_sequence(p, strlen((const char *)p));
        if (*p == 0x1b && p[1] == '[') {
            n = 2 + strspn((const char *)p + 2, "0123456789;:");
            if (p[n++] != 'm')
                return false;
        } else if (n == 0 || (n == 1 && (*p < ' ' || *p == 0x7f) && *p != '\t')) {
            return false;
        } else if (n == 2 && utf8_code(p, n) < 0xa0) {
            return false;
        }
    }
    return true;
}

Test(escape, plain_text_of_every_length_passes)
{
    char text[64] = "";
    for (size_t len = 0; len < sizeof(text) - 1; len++) {
        text[len] = (char)(' ' + len);
        expect(text, text);
    }
    expect("a\ttab, a tilde ~ and a \\ backslash", "a\ttab, a tilde ~ and a \\ backslash");
    expect("Gr\xc3\xbc\xc3\x9f Gott \xe2\x82\xac \xf0\x9f\x9a\x80",
           "Gr\xc3\xbc\xc3\x9f Gott \xe2\x82\xac \xf0\x9f\x9a\x80");
}

/* ddprun's own messages have no colours, so a control sequence in a name must be printed as text. */
Test(escape, no_sequence_passes_where_there_are_no_colours)
{
    struct buf out = { 0 };
    cr_assert(escape_append_plain(
                  &out, slice_str("node n\033[31m1\033[2J\r\nx\b \xc2\x9b\xff Gr\xc3\xbc\xc3\x9f\t.")) &&
              buf_append(&out, "", 1));
    cr_expect_str_eq((const char *)out.data,
                     "node n\\x1b[31m1\\x1b[2J\\x0d\\x0ax\\x08 \\xc2\\x9b\\xff Gr\xc3\xbc\xc3\x9f\t.");
    buf_free(&out);
}

Test(escape, colours_pass_and_end_with_their_line)
{
    expect("\033[1;31mred\033[0m", "\033[1;31mred\033[0m");
    expect("\033[31mred", "\033[31mred\033[0m");
    expect("\033[38;2;1;2;3mx\033[m y", "\033[38;2;1;2;3mx\033[m y");
    expect("\033[38:5:200mx", "\033[38:5:200mx\033[0m");
}

Test(escape, what_looks_like_a_colour_but_sets_a_keyboard_does_not_pass)
{
    expect("\033[>4;2m", "\\x1b[>4;2m");
    expect("\033[?4m", "\\x1b[?4m");
    expect("\033[31", "\\x1b[31");
    expect("\033[31 m", "\\x1b[31 m");
    expect("\033[1111111111111111111111111111111111111111m",
           "\\x1b[1111111111111111111111111111111111111111m");
}

Test(escape, what_bars_write_to_erase_their_row_is_left_out)
{
    expect("\033[K50%", "50%");
    expect("\033[2K50%\033[0K", "50%");
    expect("50%\b\b\b", "50%");
    expect("5\b6", "5\\x086");
}

Test(escape, everything_a_terminal_would_obey_becomes_visible)
{
    expect("\033[2J\033[1;1H", "\\x1b[2J\\x1b[1;1H");
    expect("\033]0;title\007", "\\x1b]0;title\\x07");
    expect("\033]52;c;cm0gLXJm\033\\", "\\x1b]52;c;cm0gLXJm\\x1b\\");
    expect("\033P+q544e\033\\", "\\x1bP+q544e\\x1b\\");
    expect("\033[?1049h\033c\033[6n", "\\x1b[?1049h\\x1bc\\x1b[6n");
    expect("\xc2\x9b"
           "2J",
           "\\xc2\\x9b2J");
    expect("\x9b"
           "2J",
           "\\x9b2J");
    expect("\013\014\016\017\177", "\\x0b\\x0c\\x0e\\x0f\\x7f");
    expect("\xe2\x80\xaeoof\xe2\x81\xa6", "\\xe2\\x80\\xaeoof\\xe2\\x81\\xa6");
    cr_expect_str_eq(escaped("a\0b", 3), "a\\x00b");
}

Test(escape, bytes_that_are_not_utf8_become_visible)
{
    expect("\xff\xfe", "\\xff\\xfe");
    expect("cut \xe2\x82", "cut \\xe2\\x82");
    expect("\xc0\xaf overlong", "\\xc0\\xaf overlong");
    expect("\xed\xa0\x80 surrogate", "\\xed\\xa0\\x80 surrogate");
}

/* Every pair of bytes, alone and after each introducer of a control sequence, must become text. */
Test(escape, no_pair_of_bytes_behind_an_introducer_passes)
{
    static const char *const introducers[] = { "",      "\033",     "\033[",    "\033]",  "\033P",
                                               "\033(", "\033#",    "\033[?",   "\033[>", "\033[31;",
                                               "\xc2",  "\xe2\x80", "\xc2\x9b", "\x9d",   "\033[1;2" };
    for (size_t i = 0; i < sizeof(introducers) / sizeof(introducers[0]); i++) {
        for (int c = 0; c < 65536; c++) {
            char line[16];
            size_t len = strlen(introducers[i]);
            memcpy(line, introducers[i], len);
            line[len] = (char)(c >> 8);
            line[len + 1] = (char)c;
            cr_assert(is_harmless(escaped(line, len + 2)), "introducer %zu, bytes %04x", i, (unsigned)c);
        }
    }
}
