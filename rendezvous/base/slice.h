/* slice.h -- a borrowed view of bytes. Whoever made it owns them; a slice is never freed.
 *
 * Keys and values of the store may hold any byte, also 0, so a pointer alone does not say where they end.
 * Passed by value: two registers. */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
    const void *data;
    size_t len;
};

static inline struct slice slice_of(const void *data, size_t len)
{
    return (struct slice){ data, len };
}

static inline struct slice slice_str(const char *text)
{
    return (struct slice){ text, strlen(text) };
}

/* memcmp must not see the NULL of an empty slice, not even with a length of 0. */
static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

#endif
