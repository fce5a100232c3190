/* tail.h -- the last 64 KiB of a stream, for the report. A zeroed struct is empty; memory is taken when bytes
 * come. */
#ifndef LAUNCHER_TAIL_H
#define LAUNCHER_TAIL_H

#include "base/buf.h"

enum { TAIL_BYTES = 64 * 1024 };

struct tail {
    uint8_t *ring;
    size_t cap;   /* bytes allocated, at most TAIL_BYTES */
    size_t start; /* where the oldest byte is; 0 until the ring is full size */
    size_t len;
};

/* Remember `bytes`, forget the oldest. When memory is short the older bytes stay and these are dropped. */
void tail_feed(struct tail *t, struct slice bytes);

/* Append the last `max` lines to `out`, each ended by a newline; a final line without one counts as a line.
 * Blank lines at the end are left out. Returns the number of lines; 0 also when memory is short. */
size_t tail_lines(const struct tail *t, size_t max, struct buf *out);

void tail_free(struct tail *t);

#endif
