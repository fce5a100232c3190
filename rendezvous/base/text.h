/* text.h -- format foreign bytes, durations and days as text that is safe for a terminal and a JSON string;
 * append JSON members. */
#ifndef RENDEZVOUS_BASE_TEXT_H
#define RENDEZVOUS_BASE_TEXT_H

#include "base/buf.h"

#include <cjson/cJSON.h>
#include <stdint.h>

/* Check whether every byte is printable ASCII. */
bool text_is_plain(struct slice bytes);

/* Append at most `max` of the bytes. An unprintable byte becomes \xNN, and "..." marks a cut. */
bool text_append(struct buf *out, struct slice bytes, size_t max);

/* Replace every control byte with '?', except `keep` (a newline or '\t'). Use this function before names from other
 * users are printed. UTF-8 is not changed. */
void text_disarm(void *text, size_t len, char keep);

/* Append at most `max` of the bytes as hex digits; "..." marks a cut. */
bool text_append_hex(struct buf *out, struct slice bytes, size_t max);

/* Append a duration: "850 ms", "1.2 s", "12 min". */
bool text_append_ms(struct buf *out, uint64_t ms);

/* Copy at most `size - 1` bytes, and append a NUL. A cut never splits a character. If `text` is NULL, the copy is
 * "". */
void text_copy(char *to, size_t size, const char *text);

struct date {
    int year, month, day; /* month and day from 1 */
};

/* Return the date that is `day` days after 1970-01-01. The C library's calendar is not used, because it reads files
 * and supports only one time zone. */
struct date date_of(uint64_t day);

/* Add the member `name` as raw text. cJSON's own numbers are slow, and inexact above 2^53, because cJSON prints them
 * as floating point. A raw member cannot be read from the object as a number. If memory is short, the member is left
 * out. */
void json_add_integer(cJSON *o, const char *name, int64_t value);

/* Append `item` to `array`, which then owns `item`. If cJSON cannot append the item, free it. `array` and `item` may
 * be NULL. */
void json_append(cJSON *array, cJSON *item);

/* Return "TERM" for SIGTERM, or NULL for a number without a name. The C library has such a function only since version
 * 2.32. */
const char *signal_abbrev(int signal);

#endif
