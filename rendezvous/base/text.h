/* text.h -- format foreign bytes, durations and days as text that is safe for a terminal and a JSON string;
 * append JSON members. */
#ifndef RENDEZVOUS_BASE_TEXT_H
#define RENDEZVOUS_BASE_TEXT_H

#include "base/buf.h"

#include <cjson/cJSON.h>
#include <stdint.h>

/* True when every byte is printable ASCII. */
bool text_is_plain(struct slice bytes);

/* Append at most `max` of the bytes; unprintable ones become \xNN, and "..." marks a cut. */
bool text_put(struct buf *out, struct slice bytes, size_t max);

/* Make complete lines with names from other users harmless: every control byte for a terminal becomes '?', except
 * `keep` ('
 * ' or '\t'). UTF-8 stays. */
void text_disarm(void *text, size_t len, char keep);

/* Append at most `max` of the bytes as hex digits, "..." marks a cut. */
bool text_put_hex(struct buf *out, struct slice bytes, size_t max);

/* Append a duration: "850 ms", "1.2 s", "12 min". */
bool text_put_ms(struct buf *out, uint64_t ms);

/* Copy at most `size - 1` bytes and a NUL; a cut never splits a character. `text` NULL: "". */
void text_copy(char *to, size_t size, const char *text);

struct date {
    int year, month, day; /* month and day from 1 */
};

/* Return the day that is `day` days after 1970-01-01. The C library's calendar is not used, because it reads
 * files and supports one time zone only. */
struct date date_of(uint64_t day);

/* Add the member `name` to `o`. cJSON prints every number as a floating one and reads it back to check its
 * precision, which takes two thirds of the time of a short message. It would also round above 2^53. Such a
 * member is raw text: it cannot be read back from the object as a number. If memory is short it is left out,
 * as by cJSON. */
void json_add_integer(cJSON *o, const char *name, int64_t value);

/* Append `item` to the array, which then owns it; it is freed on failure. NULL is allowed for both. */
void json_append(cJSON *array, cJSON *item);

/* Return "TERM" for SIGTERM, or NULL for a number without a name. The C library has such a function since version 2.32 only. */
const char *signal_abbrev(int signal);

#endif
