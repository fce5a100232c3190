/* Prints any bytes as the output of a worker. The terminal must get only prefixes, text, newlines, tabs and colours.
 * The input is a template, a NUL, and the bytes of a worker. The template is also parsed as a set of ranks. */
#include "output/lines.h"
#include "tables/prefix.h"
#include "record/rank_set.h"
#include "tables/text.c"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct line_row terminal = { .escape = true };

static void note(void *user, struct slice text, enum line_kind kind)
{
    if (!line_show(user, &terminal, slice_str("[0] "), text, kind))
        abort();
}

/* Return the length of the colour sequence or of the valid character that begins at `p`. Return 0 for anything that a
 * terminal must not get. */
static size_t harmless(const uint8_t *p, size_t len)
{
    size_t n = 2;
    if (p[0] == 0x1b) {
        while (n < len && p[n] != '\0' && strchr("0123456789;:", p[n]) != NULL)
            n++;
        return n < len && p[1] == '[' && p[n] == 'm' ? n + 1 : 0;
    }
    n = utf8_sequence(p, len);
    if (n == 1 && (*p < ' ' || *p == 0x7f) && *p != '\t' && *p != '\n')
        return 0;
    return n > 1 && utf8_code(p, n) < 0xa0 ? 0 : n;
}

/* Check that every row begins with the prefix, so that no worker can forge the output of another worker. */
static void look_at(struct slice shown)
{
    const uint8_t *p = shown.data, *end = p + shown.len;
    for (bool begins = true; p < end;) {
        if (begins && (end - p < 5 || memcmp(p, "[0] ", 4) != 0))
            abort();
        begins = *p == '\n';
        size_t n = harmless(p, (size_t)(end - p));
        if (n == 0)
            abort();
        p += n;
    }
}

static void show(struct slice bytes)
{
    struct buf out = { 0 };
    struct lines lines;
    lines_init(&lines, note, &out, 64);
    lines_append(&lines, bytes);
    lines_show_update(&lines);
    lines_finish(&lines);
    lines_free(&lines);
    if (out.len > 0)
        look_at(buf_slice(&out));
    buf_free(&out);
}

static void parse(const char *text)
{
    static const struct prefix_values unknown;
    struct prefix prefix = { 0 };
    struct rank_set ranks = { 0 };
    struct buf out = { 0 };
    if (prefix_add(&prefix, text, NULL) == DDP_OK && !prefix_render(&prefix, &unknown, 31, &out))
        abort();
    if (memchr(out.data != NULL ? out.data : (const uint8_t *)"", '\n', out.len) != NULL)
        abort();
    if (rank_set_parse(&ranks, text, 100, NULL) == DDP_OK && rank_set_highest(&ranks) >= 100)
        abort();
    rank_set_free(&ranks);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size > 0 ? memchr(data, '\0', size) : NULL;
    if (nul == NULL)
        return 0;
    parse((const char *)data);
    show(slice_of(nul + 1, size - (size_t)(nul + 1 - data)));
    return 0;
}
