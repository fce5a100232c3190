/* A stream that arrives in pieces must give the same lines as the stream in one piece. The first two bytes of the input
 * choose the limit of a line and the size of a piece. */
#include "output/lines.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void note(void *user, struct slice text, enum line_kind kind)
{
    uint8_t head[5] = { (uint8_t)kind, (uint8_t)text.len, (uint8_t)(text.len >> 8), (uint8_t)(text.len >> 16),
                        '|' };
    if (!buf_append(user, head, sizeof(head)) || !buf_append(user, text.data, text.len))
        abort();
}

static void cut(struct slice bytes, size_t step, size_t limit, struct buf *seen)
{
    struct lines l;
    struct tail tail = { 0 };
    struct buf last = { 0 };
    const uint8_t *p = bytes.data;
    lines_init(&l, note, seen, limit);
    for (size_t at = 0; at < bytes.len; at += step) {
        struct slice part = slice_of(p + at, bytes.len - at < step ? bytes.len - at : step);
        lines_append(&l, part);
        tail_add(&tail, part);
    }
    lines_finish(&l);
    tail_lines(&tail, 3, &last);
    lines_free(&l);
    tail_free(&tail);
    buf_free(&last);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole = { 0 }, pieces = { 0 };
    if (size < 2)
        return 0;
    size_t limit = (size_t)data[0] + 1, step = (size_t)data[1] + 1;
    struct slice bytes = slice_of(data + 2, size - 2);
    cut(bytes, bytes.len + 1, limit, &whole);
    cut(bytes, step, limit, &pieces);
    if (!slice_equal(buf_slice(&whole), buf_slice(&pieces)))
        abort();
    buf_free(&whole);
    buf_free(&pieces);
    return 0;
}
