/* merge.h -- lets several streams share one log file: whole lines, each with the name of its worker.
 *
 * Pure. Unlike lines.h it keeps every byte: what is written to the file, without the prefixes, is what the stream
 * had, \r and all. */
#ifndef LAUNCHER_MERGE_H
#define LAUNCHER_MERGE_H

#include "base/buf.h"

enum { MERGE_LINE_MAX = 1 << 20, MERGE_PREFIX_MAX = 32 };

struct merge {
    char prefix[MERGE_PREFIX_MAX]; /* in front of each line; may be "" */
    struct buf rest;               /* of a line that has no end yet */
    bool midline; /* the file got the beginning of the line already, because it was too long */
};

/* Append to `out` what is complete with these bytes. A line above MERGE_LINE_MAX is given in pieces, and another
 * stream's line may come between them. False when memory is short: bytes are missing then. */
bool merge_feed(struct merge *m, struct slice bytes, struct buf *out);

/* The stream has ended: what has no newline gets one, so that the next line of the file is not spoilt. */
bool merge_finish(struct merge *m, struct buf *out);

void merge_free(struct merge *m);

#endif
