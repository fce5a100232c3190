/* escape.c -- see escape.h.
 *
 * What is allowed is listed, not what is forbidden: new sequences are invented by every terminal, and nobody can list
 * them all. An ESC that is not allowed becomes four harmless characters, and then what follows it is text, however it
 * would have gone on.
 *
 *     bytes                          terminal
 *     ESC [ 31 m                     passes: colours and the like, with digits, ; and : only (">4;1m" sets a keyboard)
 *     ESC [ K, ESC [ 2 K             nothing: a bar erases its row, but here each update has a row of its own
 *     BS at the end                  nothing: moves the cursor to where the bar's next update begins
 *     ESC, C0, DEL, U+0080-U+009F,   \x1b, \x07, \x7f, \xc2\x9b
 *     bidi and other format codes
 *     not UTF-8                      \xff
 *
 * Lines are whole when they come here, so no sequence is cut by the size of a read. Plain text is the
 * common case: it is looked at eight bytes at a time. */
#include "text/escape.h"

#include "text/utf8.h"

#include <string.h>

enum { ESC = 0x1b, DEL = 0x7f, PARAMETERS_MAX = 32 };

/* Does one of eight bytes need a look: below a space, DEL, or above ASCII? */
static bool is_special(const uint8_t *p)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t w, del;
    memcpy(&w, p, sizeof(w));
    del = w ^ ones * DEL;
    return ((w | ((w - ones * ' ') & ~w) | ((del - ones) & ~del)) & ones * 0x80) != 0;
}

/* How many bytes from `p` on are plain text. */
static size_t plain_run(const uint8_t *p, size_t len)
{
    size_t n = 0;
    while (len - n >= sizeof(uint64_t) && !is_special(p + n))
        n += sizeof(uint64_t);
    while (n < len && p[n] >= ' ' && p[n] < DEL)
        n++;
    return n;
}

/* Code points that move text about or hide it instead of being text. */
static bool is_format(uint32_t code)
{
    static const struct {
        uint32_t low, high;
    } ranges[] = { { 0x80, 0x9f },     { 0x61c, 0x61c },   { 0x200e, 0x200f },  { 0x2028, 0x202e },
                   { 0x2066, 0x2069 }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f } };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (code >= ranges[i].low && code <= ranges[i].high)
            return true;
    return false;
}

/* Length of one character that is text but not plain, 0 when it is none. */
static size_t text_sequence(const uint8_t *p, size_t len)
{
    size_t n = utf8_sequence(p, len);
    if (n == 1)
        return *p == '\t';
    return n > 0 && !is_format(utf8_code(p, n)) ? n : 0;
}

/* How many bytes from `p` on pass as they are. */
static size_t text_run(const uint8_t *p, size_t len)
{
    size_t n = plain_run(p, len), more;
    while (n < len && (more = text_sequence(p + n, len - n)) > 0) {
        n += more;
        n += plain_run(p + n, len - n);
    }
    return n;
}

/* Length of "ESC [ parameters final", 0 when it is something else. Nothing after `len` is looked at. */
static size_t control_sequence(const uint8_t *p, size_t len, uint8_t final)
{
    static const char parameters[] = "0123456789;:";
    size_t n = 2;
    if (len < 3 || p[0] != ESC || p[1] != '[')
        return 0;
    while (n < len && n < PARAMETERS_MAX && p[n] != '\0' && strchr(parameters, p[n]) != NULL)
        n++;
    return n < len && p[n] == final ? n + 1 : 0;
}

/* "ESC [ m" and "ESC [ 0 m" are. */
static bool is_colour_off(const uint8_t *p, size_t len)
{
    for (size_t i = 2; i + 1 < len; i++)
        if (p[i] != '0')
            return false;
    return true;
}

static bool put_visible(struct buf *out, const uint8_t *p, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    bool ok = true;
    for (size_t i = 0; i < len && ok; i++)
        ok = buf_append(out, (const char[]){ '\\', 'x', hex[p[i] >> 4], hex[p[i] & 15] }, 4);
    return ok;
}

static bool put_character(struct buf *out, const uint8_t *p, size_t len, size_t *used)
{
    const size_t sequence = utf8_sequence(p, len);
    *used = sequence > 0 ? sequence : 1;
    return put_visible(out, p, *used);
}

/* Append what the bytes at `p`, which do not begin with text, look like; *used says how many they were. */
static bool put_special(struct buf *out, const uint8_t *p, size_t len, size_t *used, bool *coloured)
{
    if ((*used = control_sequence(p, len, 'm')) > 0) {
        *coloured = !is_colour_off(p, *used);
        return buf_append(out, p, *used);
    }
    if ((*used = control_sequence(p, len, 'K')) > 0)
        return true;
    return put_character(out, p, len, used);
}

bool escape_put(struct buf *out, struct slice line)
{
    const uint8_t *p = line.data;
    size_t len = line.len;
    bool ok = true, coloured = false;
    while (len > 0 && p[len - 1] == '\b')
        len--;
    for (size_t used; len > 0 && ok; p += used, len -= used) {
        used = text_run(p, len);
        ok = used > 0 ? buf_append(out, p, used) : put_special(out, p, len, &used, &coloured);
    }
    return ok && buf_append(out, COLOUR_OFF, coloured ? sizeof(COLOUR_OFF) - 1 : 0);
}

bool escape_put_plain(struct buf *out, struct slice line)
{
    const uint8_t *p = line.data;
    size_t len = line.len;
    bool ok = true;
    for (size_t used; len > 0 && ok; p += used, len -= used) {
        used = text_run(p, len);
        ok = used > 0 ? buf_append(out, p, used) : put_character(out, p, len, &used);
    }
    return ok;
}
