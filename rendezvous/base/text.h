/* text.h -- formats durations, dates and untrusted bytes as text that is safe for a terminal and for a JSON string;
 * adds members to JSON objects. Functions that append return false if memory is short. */
#ifndef RENDEZVOUS_BASE_TEXT_H
#define RENDEZVOUS_BASE_TEXT_H

#include "base/buf.h"

#include <cjson/cJSON.h>
#include <stdint.h>

/* Return true if every byte is printable ASCII. */
bool text_is_plain(struct slice bytes);

/* Append at most the first `max` bytes, and "..." if bytes are left out. A byte that is not printable ASCII becomes
 * \xNN. */
bool text_append(struct buf *out, struct slice bytes, size_t max);

/* Replace the bytes of every control character with '?', except `keep` (a newline or '\t'). All other UTF-8 characters
 * stay unchanged. Call this function before names from other users are printed. */
void text_disarm(void *text, size_t len, char keep);

/* Return the length of the UTF-8 sequence at `p` (`len` > 0 bytes), or 0 if it is invalid. Overlong forms, surrogates
 * and code points above U+10FFFF are invalid. */
size_t utf8_sequence(const uint8_t *p, size_t len);

/* Append `bytes` as UTF-8. U+FFFD replaces each invalid byte and each NUL, so that a reader notices the damage. Return
 * false if memory is short. */
bool utf8_clean(struct buf *out, struct slice bytes);

/* Write `n` bytes as 2 * n hexadecimal digits and a NUL to `out`. */
void text_hex(char *out, const void *bytes, size_t n);

/* Append at most the first `max` bytes as hexadecimal digits, and "..." if bytes are left out. */
bool text_append_hex(struct buf *out, struct slice bytes, size_t max);

enum { TEXT_MS_MAX = 32 }; /* bytes of a duration as text, with the NUL */
/* Format a duration: "850 ms", "1.2 s", "2.5 min", "125 min", "13.4 h". Return `text`. */
char *text_ms(uint64_t ms, char text[static TEXT_MS_MAX]);
/* Append a duration, formatted by text_ms. */
bool text_append_ms(struct buf *out, uint64_t ms);

/* Format a size as "64 MiB", "1.5 GiB" or "512 bytes". Return `out`. */
enum { SIZE_TEXT_MAX = 32 };
const char *words_size(char out[SIZE_TEXT_MAX], uint64_t bytes);

/* Return the length of `text`. If the text is longer than `max` bytes, return the length at which to cut it between two
 * characters of UTF-8. */
size_t text_fit(const char *text, size_t max);

/* Copy `text`, cut by text_fit to at most `size - 1` bytes, and append a NUL. If `text` is NULL, the copy is "". */
void text_copy(char *to, size_t size, const char *text);

/* Return true if `line` of a log names `name` as a peer: as "[NAME]:41234", like Gloo, or as " NAME<41234>", like NCCL.
 * The brackets are compared, too, because "10.0.0.1" must not match "10.0.0.12". */
bool text_has_peer(const char *line, const char *name);

struct date {
    int year, month, day; /* month and day begin with 1 */
};

/* Return the date that is `day` days after 1970-01-01. The C library's calendar is not used, because it reads files
 * and supports only one time zone. */
struct date date_of(uint64_t day);

/* Add a number as raw text, because cJSON would print the number as floating point. This would be slow, and inexact
 * above 2^53. cJSON cannot read a raw member of `o` as a number. To read the number, print `o` and parse the printed
 * text. If memory is short, the member is left out. */
void json_add_integer(cJSON *o, const char *name, int64_t value);

/* Append `item` to `array`, which then owns `item`. If `array` is NULL or memory is short, free `item`. `item` may be
 * NULL, too. */
void json_append(cJSON *array, cJSON *item);

/* Return "TERM" for SIGTERM, or NULL for a number without a name. The C library has such a function only since version
 * 2.32. The text is constant. */
const char *signal_abbrev(int signal);

#endif
