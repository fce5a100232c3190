/* words.h -- sentences with gaps: "{program} is a directory" and what to put in. So a table can hold whole
 * sentences, and whoever reads the table reads what the user will. */
#ifndef LAUNCHER_WORDS_H
#define LAUNCHER_WORDS_H

#include "base/buf.h"

struct word {
    const char *name; /* of the gap, without braces */
    const char *text; /* NULL counts as "" */
};

/* Append `sentence` with every {name} filled; a gap that nobody fills stays as it is. False when memory is short. */
bool words_fill(struct buf *out, const char *sentence, const struct word *words, size_t n);

/* "64 MiB", "1.5 GiB", "512 bytes": a size for people. Returns `out`. */
enum { SIZE_TEXT_MAX = 32 };
const char *words_size(char out[SIZE_TEXT_MAX], uint64_t bytes);

/* "3 ms", "2.5 s", "12 min", "3.4 h". Returns `out`. */
enum { TIME_TEXT_MAX = 32 };
const char *words_time(char out[TIME_TEXT_MAX], uint64_t ms);

/* "2026-11-21 12:04:09.613": a moment (ms since 1970) at a place `offset_s` east of Greenwich. Without
 * `day` only the time of that day. Returns `out`. */
const char *words_clock(char out[TIME_TEXT_MAX], uint64_t unix_ms, int offset_s, bool day);

/* Letters to insert, remove or replace to make one word of the other (Levenshtein). SIZE_MAX when `b` is longer than
 * WORDS_DISTANCE_MAX. */
enum { WORDS_DISTANCE_MAX = 255 };
size_t words_distance(const char *a, const char *b);

#endif
