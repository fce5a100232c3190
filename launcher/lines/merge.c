/* merge.c -- see merge.h. */
#include "lines/merge.h"

/* One line, or a piece of one, with its prefix where it begins. */
static bool put(struct merge *m, const void *data, size_t len, struct buf *out)
{
    const bool begins = !m->midline && m->rest.len == 0;
    return (!begins || buf_append(out, m->prefix, strlen(m->prefix))) && buf_append(out, data, len);
}

/* The beginning of the line that was kept for its end. */
static bool put_rest(struct merge *m, struct buf *out)
{
    struct buf rest = m->rest;
    if (rest.len == 0)
        return true;
    m->rest = (struct buf){ 0 };
    bool ok = put(m, rest.data, rest.len, out);
    buf_free(&rest);
    m->midline = true;
    return ok;
}

bool merge_feed(struct merge *m, struct slice bytes, struct buf *out)
{
    const char *p = bytes.data, *end = p + bytes.len, *newline;
    bool ok = true;
    while (p < end && (newline = memchr(p, '\n', (size_t)(end - p))) != NULL) {
        ok = put_rest(m, out) && put(m, p, (size_t)(newline + 1 - p), out) && ok;
        m->midline = false;
        p = newline + 1;
    }
    ok = buf_append(&m->rest, p, (size_t)(end - p)) && ok;
    if (m->rest.len > MERGE_LINE_MAX)
        ok = put_rest(m, out) && ok;
    return ok;
}

bool merge_finish(struct merge *m, struct buf *out)
{
    const bool open = m->midline || m->rest.len > 0;
    bool ok = put_rest(m, out);
    m->midline = false;
    return !open || (buf_append(out, "\n", 1) && ok);
}

void merge_free(struct merge *m)
{
    buf_free(&m->rest);
}
