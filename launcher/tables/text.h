/* text.h -- texts for users: sentences with placeholders, shell words, times, JSON, names of log files. Such texts may
 * contain names and lines of other programs. So this file also has functions that make a text safe for a shell, a
 * terminal or JSON. */
#ifndef LAUNCHER_TABLES_TEXT_H
#define LAUNCHER_TABLES_TEXT_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

/* --- texts ------------------------------------------------------------------------------------------------ */

/* If a function in this file fails, a part of its text may remain in `out`. Only json_print then leaves `out`
 * unchanged. */

/* A placeholder of a sentence such as "{program} is a directory", and its value. Both texts are borrowed. */
struct word {
    const char *name; /* name of the placeholder, without braces */
    const char *text; /* value; NULL counts as "" */
};

/* Append `sentence`, and replace each {name} by the value of this placeholder. A placeholder without a value stays
 * unchanged. Return false when memory is short. */
bool words_fill(struct buf *out, const char *sentence, const struct word *words, size_t n);

/* Append a word, quoted for a POSIX shell if necessary. Return false when memory is short. */
bool shell_word(struct buf *out, const char *word);

enum { TIME_TEXT_MAX = 32 };

/* Format a time (ms since 1970), such as "2026-11-21 12:04:09.613". The time zone is `offset_s` seconds east of UTC. If
 * `day` is false, leave out the date. Return `out`. */
const char *words_clock(char out[TIME_TEXT_MAX], uint64_t unix_ms, int offset_s, bool day);

/* Return the edit distance of `a` and `b` (Levenshtein). Return SIZE_MAX if `b` is longer than WORDS_DISTANCE_MAX. */
enum { WORDS_DISTANCE_MAX = 255 };
size_t words_distance(const char *a, const char *b);

/* --- escape ----------------------------------------------------------------------------------------------- */

/* Functions that make a worker's line safe for a terminal. Text, tabs and colours stay unchanged. Other bytes that a
 * terminal would interpret, and bytes that are not UTF-8, are printed as \xNN. */

#define COLOUR_OFF "\033[0m"
#define ERASE_ROW  "\033[K" /* erases from the cursor to the end of the row */

/* Append a line without its newline, and switch off a colour that is still on. Return false when memory is short. */
bool escape_append(struct buf *out, struct slice line);

/* Append a line, and print the colours in this line as text: "\x1b[...". ddprun's messages use this function, because
 * a message may contain names from other programs. */
bool escape_append_plain(struct buf *out, struct slice line);

/* --- json text -------------------------------------------------------------------------------------------- */

/* cJSON does not check for UTF-8, so these functions replace invalid bytes. */

struct cJSON;

/* Add a member called `name` to `object`. json_add_text adds the JSON value null if `text` is NULL. Return false when
 * memory is short. */
bool json_add_bytes(struct cJSON *object, const char *name, struct slice bytes);
bool json_add_text(struct cJSON *object, const char *name, const char *text);
bool json_add_number(struct cJSON *object, const char *name, double value);
bool json_add_bool(struct cJSON *object, const char *name, bool value);
bool json_add_null(struct cJSON *object, const char *name);

/* Add `item` to `object`, which then owns `item`. On failure free `item` and return false. A NULL `item` also counts
 * as a failure, because the cJSON_Create functions return NULL if memory is short. */
bool json_add(struct cJSON *object, const char *name, struct cJSON *item);

/* Append a new object to `array`. The array owns the object. Return NULL when memory is short. */
struct cJSON *json_add_object(struct cJSON *array);

/* Append the text of `object` and a newline. If `indented` is true, the text has several indented lines. Free `object`
 * in any case. If `object` is NULL, return false. */
bool json_print(struct buf *out, struct cJSON *object, bool indented);

/* --- names of log files ----------------------------------------------------------------------------------- */

/* A pattern such as "logs/%j/%h-%r.%s" contains tokens such as %j. The pattern is checked once before the start. Then
 * each stream's file gets its name from the pattern. */

/* Columns: letter after %, value, description. */
#define LOG_PATTERN_TOKENS(X)                       \
    X('h', TEXT(names->host), "host")               \
    X('r', NUMBER(names->rank), "rank")             \
    X('l', NUMBER(names->local_rank), "local rank") \
    X('n', NUMBER(names->node_rank), "node rank")   \
    X('t', TEXT(names->time), "start time (UTC)")   \
    X('j', TEXT(names->job), "job id")              \
    X('a', NUMBER(names->attempt), "attempt")       \
    X('s', TEXT(names->stream), "stdout or stderr") \
    X('%', TEXT("%"), "a percent sign")

struct log_names {
    const char *host, *time, *job, *stream; /* borrowed */
    int rank, local_rank, node_rank, attempt;
};

enum { LOG_PATTERN_MAX = 1024 };

/* Check a pattern. Return DDP_ERR_ARG for an invalid pattern. `err` then describes a valid pattern. */
ddp_status log_pattern_check(const char *pattern, struct ddp_err *err);

/* Append the name of a stream's file. If the pattern has no %a, append ".attempt_N" from the second attempt on, so
 * that each attempt has its own file. Return false when memory is short. */
bool log_pattern_name(const char *pattern, const struct log_names *names, struct buf *out);

#endif
