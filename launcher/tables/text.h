/* text.h -- texts for users: UTF-8, sentences with placeholders, sizes and times, text that is safe for a terminal,
 * JSON. */
#ifndef LAUNCHER_TABLES_TEXT_H
#define LAUNCHER_TABLES_TEXT_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

/* Return the length of the valid UTF-8 sequence at `p` (`len` > 0 bytes); 0 for an invalid one: overlong forms,
 * surrogates and code points above U+10FFFF are invalid. */
size_t utf8_sequence(const uint8_t *p, size_t len);

/* Return the code point of a valid sequence of `len` bytes. */
uint32_t utf8_code(const uint8_t *p, size_t len);

/* --- texts ------------------------------------------------------------------------------------------------ */

/* Sentences with placeholders, "{program} is a directory", and their values. So a table can contain whole sentences,
 * as the user will read them. */

struct word {
    const char *name; /* name of the placeholder, without braces */
    const char *text; /* NULL = "" */
};

/* Append `sentence` with the value of every {name}; a placeholder without a value is kept as text. Return false when
 * memory is short. */
bool words_fill(struct buf *out, const char *sentence, const struct word *words, size_t n);

/* Append a word, quoted so that a POSIX shell reads it back unchanged. Return false when memory is short. */
bool shell_word(struct buf *out, const char *word);

/* Format a size for people: "64 MiB", "1.5 GiB", "512 bytes". Return `out`. */
enum { SIZE_TEXT_MAX = 32 };
const char *words_size(char out[SIZE_TEXT_MAX], uint64_t bytes);

/* Format a duration: "3 ms", "2.5 s", "12 min", "3.4 h". Return `out`. */
enum { TIME_TEXT_MAX = 32 };
const char *words_time(char out[TIME_TEXT_MAX], uint64_t ms);

/* Format a time (ms since 1970) at `offset_s` east of UTC: "2026-11-21 12:04:09.613"; without `day` only the time of
 * day. Return `out`. */
const char *words_clock(char out[TIME_TEXT_MAX], uint64_t unix_ms, int offset_s, bool day);

/* Return how many letters must be inserted, removed or replaced to change one word into the other (Levenshtein);
 * SIZE_MAX when `b` is longer than WORDS_DISTANCE_MAX. */
enum { WORDS_DISTANCE_MAX = 255 };
size_t words_distance(const char *a, const char *b);

/* --- escape ----------------------------------------------------------------------------------------------- */

/* A worker's line, made safe for a terminal.
 *
 * Text, tabs and colours stay unchanged. Everything else that a terminal would execute (moving the cursor, titles,
 * the clipboard, other screens, 8-bit controls, right-to-left overrides), and every byte that is not UTF-8, is
 * printed as \xNN. So a worker can harm neither the terminal nor the text of others on it. */

#define COLOUR_OFF "\033[0m"
#define ERASE_ROW  "\033[K" /* from the cursor to the end of the row */

/* Append one line, without its end; if it leaves a colour on, switch the colour off. Return false when memory is
 * short; then a part may be appended. */
bool escape_put(struct buf *out, struct slice line);

/* Append one line without colours: for other targets than a terminal, and for ddprun's messages, which may contain
 * foreign names. */
bool escape_put_plain(struct buf *out, struct slice line);

/* --- json text -------------------------------------------------------------------------------------------- */

/* Any bytes as a JSON string, and complete objects as lines. cJSON does not check bytes, and workers may print bytes
 * that are not UTF-8. */

struct cJSON;

/* Append `bytes` as UTF-8: each byte that is not part of a valid sequence, and each NUL, becomes U+FFFD. Return false
 * when memory is short. */
bool utf8_clean(struct buf *out, struct slice bytes);

/* Add the member `name` to `object`; return false when memory is short. A NULL text adds null. */
bool json_add_bytes(struct cJSON *object, const char *name, struct slice bytes);
bool json_add_text(struct cJSON *object, const char *name, const char *text);
bool json_add_number(struct cJSON *object, const char *name, double value);
bool json_add_bool(struct cJSON *object, const char *name, bool value);
bool json_add_null(struct cJSON *object, const char *name);

/* Add `item`, and take ownership: it is freed when it cannot be added. NULL means that memory was short before. */
bool json_add(struct cJSON *object, const char *name, struct cJSON *item);

/* Append a new object to `array`, which owns it at once; so after any later failure, cJSON_Delete of the root frees
 * it. Return NULL when memory is short. */
struct cJSON *json_add_object(struct cJSON *array);

/* Append `object` on one line, or indented, with a newline at the end. Free `object` in any case; NULL is allowed and
 * returns false. */
bool json_print(struct buf *out, struct cJSON *object, bool indented);

/* --- names of log files ----------------------------------------------------------------------------------- */

/* A pattern such as "logs/%j/%h-%r.%s" is checked once, when the command line is read. Later it gives the name of
 * each stream's file. */

/* Columns: letter after a %, value, description. */
#define LOG_PATTERN_TOKENS(X)                       \
    X('h', TEXT(names->host), "host")               \
    X('r', NUMBER(names->rank), "rank")             \
    X('l', NUMBER(names->local_rank), "local rank") \
    X('n', NUMBER(names->node_rank), "node rank")   \
    X('t', TEXT(names->time), "time of the start")  \
    X('j', TEXT(names->job), "job id")              \
    X('a', NUMBER(names->attempt), "attempt")       \
    X('s', TEXT(names->stream), "stdout or stderr") \
    X('%', TEXT("%"), "a percent sign")

struct log_names {
    const char *host, *time, *job, *stream; /* borrowed */
    int rank, local_rank, node_rank, attempt;
};

enum { LOG_PATTERN_MAX = 1024 };

/* Check a pattern. DDP_ERR_ARG: `err` has the valid form. */
ddp_status log_pattern_check(const char *pattern, struct ddp_err *err);

/* Append the name for one stream. If the pattern has no %a, ".attempt_N" is appended to the name for later attempts,
 * so that no attempt overwrites another. Return false when memory is short. */
bool log_pattern_name(const char *pattern, const struct log_names *names, struct buf *out);

#endif
