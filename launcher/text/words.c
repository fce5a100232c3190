/* words.c -- see words.h. */
#include "text/words.h"

#include "base/date.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The word for the gap that begins at `gap`, and where the gap ends. NULL: nobody fills it. */
static const char *fill_of(const char *gap, const struct word *words, size_t n, const char **end)
{
    size_t len = strcspn(gap + 1, "{} ");
    *end = gap + 1 + len;
    if (**end != '}')
        return NULL;
    ++*end;
    for (size_t i = 0; i < n; i++)
        if (strlen(words[i].name) == len && memcmp(words[i].name, gap + 1, len) == 0)
            return words[i].text != NULL ? words[i].text : "";
    return NULL;
}

/* A brace that begins no known word is text: a path or a program's name may have one, and a typing error in a
 * table is better seen than swallowed. */
bool words_fill(struct buf *out, const char *sentence, const struct word *words, size_t n)
{
    bool ok = true;
    while (*sentence != '\0' && ok) {
        size_t plain = strcspn(sentence, "{");
        const char *end, *fill = sentence[plain] == '{' ? fill_of(sentence + plain, words, n, &end) : NULL;
        if (fill != NULL) {
            ok = buf_append(out, sentence, plain) && buf_append(out, fill, strlen(fill));
            sentence = end;
        } else {
            plain += sentence[plain] == '{';
            ok = buf_append(out, sentence, plain);
            sentence += plain;
        }
    }
    return ok;
}

/* One digit behind the point only where the number would else say little: 1.5 GiB, but 64 MiB. */
const char *words_size(char out[SIZE_TEXT_MAX], uint64_t bytes)
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes / 1024;
    size_t unit = 0;
    if (bytes < 1024) {
        snprintf(out, SIZE_TEXT_MAX, "%d bytes", (int)bytes);
        return out;
    }
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    bool whole = value >= 100 || value - (double)(uint64_t)value < 0.05;
    snprintf(out, SIZE_TEXT_MAX, whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return out;
}

/* The unit grows with the number, so that there are few digits at any length: nobody compares hours to the second. */
const char *words_time(char out[TIME_TEXT_MAX], uint64_t ms)
{
    if (ms < 1000)
        snprintf(out, TIME_TEXT_MAX, "%d ms", (int)ms);
    else if (ms < 600 * 1000)
        snprintf(out, TIME_TEXT_MAX, "%.1f s", (double)ms / 1000.0);
    else if (ms < 120 * 60 * 1000)
        snprintf(out, TIME_TEXT_MAX, "%.0f min", (double)ms / 60000.0);
    else
        snprintf(out, TIME_TEXT_MAX, "%.1f h", (double)ms / 3600000.0);
    return out;
}

/* The moment may come from a worker's file: the sum is kept from wrapping and from falling below zero, and the year has
 * no more than the four digits that there is room for. */
const char *words_clock(char out[TIME_TEXT_MAX], uint64_t unix_ms, int offset_s, bool day)
{
    enum { DAY_MS = 24 * 3600 * 1000 };
    int64_t ms = (int64_t)(unix_ms & (UINT64_MAX >> 2)) + (int64_t)offset_s * 1000;
    ms = ms > 0 ? ms : 0;
    const struct date date = date_of((uint64_t)(ms / DAY_MS));
    const int of_day = (int)(ms % DAY_MS);
    int n =
        day ? snprintf(out, TIME_TEXT_MAX, "%04d-%02d-%02d ", date.year % 10000, date.month, date.day) : 0;
    snprintf(out + n, TIME_TEXT_MAX - (size_t)n, "%02d:%02d:%02d.%03d", of_day / 3600000, of_day / 60000 % 60,
             of_day / 1000 % 60, of_day % 1000);
    return out;
}

/* One row of the matrix at a time. */
size_t words_distance(const char *a, const char *b)
{
    size_t row[WORDS_DISTANCE_MAX + 1];
    const size_t len = strlen(b);
    if (len > WORDS_DISTANCE_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= len; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= len; j++) {
            const size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            best = above + 1 < best ? above + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = above;
        }
    }
    return row[len];
}
