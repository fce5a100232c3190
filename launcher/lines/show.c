/* show.c -- see show.h.
 *
 * The prefix stands in front of every line, whatever was in it, so no line of a worker can be taken for one of ours or
 * of another worker. */
#include "lines/show.h"

#include "text/escape.h"

static bool put_line(struct buf *out, const struct line_row *row, struct slice prefix, struct slice text,
                     enum line_kind kind)
{
    static const char cut_mark[] = " [line continues]";
    size_t mark = kind == LINE_CUT ? sizeof(cut_mark) - 1 : 0;
    return buf_append(out, prefix.data, prefix.len) &&
           (row->escape ? escape_put(out, text) : buf_append(out, text.data, text.len)) &&
           buf_append(out, cut_mark, mark) && buf_append(out, "\n", 1);
}

const char *line_row_wipe(struct line_row *row)
{
    const char *wipe = row->drawn ? "\r" ERASE_ROW : "";
    row->drawn = false;
    return wipe;
}

bool line_show(struct buf *out, struct line_row *row, struct slice prefix, struct slice text,
               enum line_kind kind)
{
    size_t before = out->len;
    bool drawn = row->drawn;
    const char *wipe = line_row_wipe(row);
    if (!buf_append(out, wipe, strlen(wipe)) || !put_line(out, row, prefix, text, kind)) {
        out->len = before;
        row->drawn = drawn;
        return false;
    }
    if (row->terminal && kind == LINE_UPDATE) {
        out->len--; /* the newline: the next line shall come over this one */
        row->drawn = true;
    }
    return true;
}
