/* text.h -- foreign bytes, durations and days as text that a terminal and a JSON string can take; pieces of JSON to be printed. */
#ifndef RENDEZVOUS_BASE_TEXT_H
#define RENDEZVOUS_BASE_TEXT_H

#include "base/buf.h"

#include <cjson/cJSON.h>
#include <stdint.h>

/* True when every byte is printable ASCII. */
bool text_is_plain(struct slice bytes);

/* Append at most `max` of the bytes; what is not printable becomes \xNN, and "..." marks a cut. */
bool text_put(struct buf *out, struct slice bytes, size_t max);

/* Lines that are ready, with names of others somewhere in them: every byte that a terminal obeys becomes '?', but for `keep`
 * ('\n' or '\t'). What is UTF-8 stays. */
void text_disarm(void *text, size_t len, char keep);

/* Append at most `max` of the bytes as hex digits, "..." marks a cut. */
bool text_put_hex(struct buf *out, struct slice bytes, size_t max);

/* Append a duration: "850 ms", "1.2 s", "12 min". */
bool text_put_ms(struct buf *out, uint64_t ms);

/* Copy at most `size - 1` bytes and a NUL; a cut is between two characters. `text` NULL: "". */
void text_copy(char *to, size_t size, const char *text);

struct date {
    int year, month, day; /* month and day from 1 */
};

/* Return the day that is `day` days after 1970-01-01. The C library's own calendar reads files, and knows one time zone only. */
struct date date_of(uint64_t day);

/* Add the member `name` to `o`. cJSON prints every number as a floating one and reads it back to find what was lost, which takes
 * two thirds of the time of a short message; and it would round above 2^53. Such a member is text for the printer: in the object
 * it cannot be read as a number. When memory is short it is left out, as by cJSON. */
void json_add_integer(cJSON *o, const char *name, int64_t value);

/* Hand `item` over to the array; it is freed when that fails. NULL is allowed for both. */
void json_append(cJSON *array, cJSON *item);

#endif
