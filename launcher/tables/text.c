/* text.c -- see text.h. Texts of workers may contain any bytes. So a terminal gets only known escape sequences, and a
 * JSON string gets only valid UTF-8. */
#include "tables/text.h"

#include "base/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* Decode one UTF-8 character of `len` bytes, and return its code point. In the first byte, the code point's bits
 * follow the prefix (110, 1110 or 11110). In each further byte, the lower six bits belong to the code point. */
static uint32_t utf8_code(const uint8_t *p, size_t len)
{
    static const uint8_t masks[] = { 0x7f, 0x7f, 0x1f, 0x0f, 0x07 };
    uint32_t code = p[0] & masks[len];
    for (size_t i = 1; i < len; i++)
        code = code << 6 | (p[i] & 0x3f);
    return code;
}

/* --- texts ------------------------------------------------------------------------------------------------ */

/* Return the value of the placeholder that begins at `gap`, and set *end to the end of this placeholder. Return NULL if
 * `words` does not contain the placeholder. */
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

/* Fill the placeholders. A brace that begins no known placeholder stays unchanged, because a path may contain
 * braces. */
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

/* Format a time, which may come from a worker's file and have any value. Overflows, negative times and years above
 * 9999 are prevented. */
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

/* Compute the edit distance with the usual matrix. Only one row of the matrix is kept in memory. */
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

bool shell_word(struct buf *out, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+./:=,@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0')
        return buf_printf(out, "%s", word);
    bool ok = buf_append(out, "'", 1);
    for (; *word != '\0'; word++)
        ok = ok && (*word == '\'' ? buf_append(out, "'\\''", 4) : buf_append(out, word, 1));
    return ok && buf_append(out, "'", 1);
}

/* --- escape ----------------------------------------------------------------------------------------------- */

/* Only a few known sequences reach the terminal, because a list of harmful sequences would never be complete. Any
 * other ESC is printed as \x1b, and the bytes after this ESC as text.
 *
 *     bytes                          terminal
 *     ESC [ 31 m                     unchanged: a colour; only digits, ; and : are allowed before the m
 *     ESC [ K, ESC [ 2 K             removed: a progress bar erases its row, but here each update has its own row
 *     BS at the end                  removed: a progress bar moves the cursor back for its next update
 *     ESC, C0, DEL, U+0080-U+009F,   \x1b, \x07, \x7f, \xc2\x9b
 *     bidi and other format codes
 *     not UTF-8                      \xff
 *
 * The caller passes complete lines, so no sequence is cut. Eight bytes are checked at a time, because most text
 * contains only printable ASCII. */

enum { ESC = 0x1b, DEL = 0x7f, PARAMETERS_MAX = 32 };

/* Return true if any of the eight bytes at `p` is a control character, DEL, or not ASCII. */
static bool is_special(const uint8_t *p)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t w, del;
    memcpy(&w, p, sizeof(w));
    del = w ^ ones * DEL;
    return ((w | ((w - ones * ' ') & ~w) | ((del - ones) & ~del)) & ones * 0x80) != 0;
}

/* Return how many bytes at `p` are plain ASCII text. */
static size_t plain_run(const uint8_t *p, size_t len)
{
    size_t n = 0;
    while (len - n >= sizeof(uint64_t) && !is_special(p + n))
        n += sizeof(uint64_t);
    while (n < len && p[n] >= ' ' && p[n] < DEL)
        n++;
    return n;
}

/* Return true for code points that reorder or hide text, and for the control characters U+0080 to U+009F. */
static bool is_format(uint32_t code)
{
    static const struct {
        uint32_t low, high;
    } ranges[] = { { 0x80, 0x9f },     { 0x61c, 0x61c },   { 0x200e, 0x200f },  { 0x2028, 0x202e },
                   { 0x2066, 0x2069 }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f } };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (code >= ranges[i].low && code <= ranges[i].high)
            return true;
    return false;
}

/* Return the length of the character at `p` if this character is a tab or valid text outside ASCII, else 0. */
static size_t text_sequence(const uint8_t *p, size_t len)
{
    size_t n = utf8_sequence(p, len);
    if (n == 1)
        return *p == '\t';
    return n > 0 && !is_format(utf8_code(p, n)) ? n : 0;
}

/* Return how many bytes at `p` can be printed unchanged. */
static size_t text_run(const uint8_t *p, size_t len)
{
    size_t n = plain_run(p, len), more;
    while (n < len && (more = text_sequence(p + n, len - n)) > 0) {
        n += more;
        n += plain_run(p + n, len - n);
    }
    return n;
}

/* Return the length of the sequence "ESC [ parameters final" at `p`, or 0 for other bytes. */
static size_t control_sequence(const uint8_t *p, size_t len, uint8_t final)
{
    static const char parameters[] = "0123456789;:";
    size_t n = 2;
    if (len < 3 || p[0] != ESC || p[1] != '[')
        return 0;
    while (n < len && n < PARAMETERS_MAX && p[n] != '\0' && strchr(parameters, p[n]) != NULL)
        n++;
    return n < len && p[n] == final ? n + 1 : 0;
}

/* Return true for a sequence that switches the colour off: "ESC [ m" or "ESC [ 0 m". */
static bool is_colour_off(const uint8_t *p, size_t len)
{
    for (size_t i = 2; i + 1 < len; i++)
        if (p[i] != '0')
            return false;
    return true;
}

static bool append_visible(struct buf *out, const uint8_t *p, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    bool ok = true;
    for (size_t i = 0; i < len && ok; i++)
        ok = buf_append(out, (const char[]){ '\\', 'x', hex[p[i] >> 4], hex[p[i] & 15] }, 4);
    return ok;
}

static bool append_character(struct buf *out, const uint8_t *p, size_t len, size_t *used)
{
    const size_t sequence = utf8_sequence(p, len);
    *used = sequence > 0 ? sequence : 1;
    return append_visible(out, p, *used);
}

/* Append the special sequence or character at `p`: copy a colour, drop an erase sequence, print other bytes as \xNN.
 * Set *used to the length of this sequence or character. Set *coloured to true if a colour stays on. */
static bool append_special(struct buf *out, const uint8_t *p, size_t len, size_t *used, bool *coloured)
{
    if ((*used = control_sequence(p, len, 'm')) > 0) {
        *coloured = !is_colour_off(p, *used);
        return buf_append(out, p, *used);
    }
    if ((*used = control_sequence(p, len, 'K')) > 0)
        return true;
    return append_character(out, p, len, used);
}

bool escape_append(struct buf *out, struct slice line)
{
    const uint8_t *p = line.data;
    size_t len = line.len;
    bool ok = true, coloured = false;
    while (len > 0 && p[len - 1] == '\b')
        len--;
    for (size_t used; len > 0 && ok; p += used, len -= used) {
        used = text_run(p, len);
        ok = used > 0 ? buf_append(out, p, used) : append_special(out, p, len, &used, &coloured);
    }
    return ok && buf_append(out, COLOUR_OFF, coloured ? sizeof(COLOUR_OFF) - 1 : 0);
}

bool escape_append_plain(struct buf *out, struct slice line)
{
    const uint8_t *p = line.data;
    size_t len = line.len;
    bool ok = true;
    for (size_t used; len > 0 && ok; p += used, len -= used) {
        used = text_run(p, len);
        ok = used > 0 ? buf_append(out, p, used) : append_character(out, p, len, &used);
    }
    return ok;
}

/* --- json text -------------------------------------------------------------------------------------------- */

/* Add an item. If a json_add function fails, the function has already freed its item. So a caller can combine several
 * calls with &&, and after a failure deletes only the root object. */

bool json_add(struct cJSON *object, const char *name, struct cJSON *item)
{
    bool ok = item != NULL && cJSON_AddItemToObject(object, name, item);
    if (!ok)
        cJSON_Delete(item);
    return ok;
}

bool json_add_bytes(struct cJSON *object, const char *name, struct slice bytes)
{
    struct buf clean = { 0 };
    bool ok = utf8_clean(&clean, bytes) && buf_append(&clean, "", 1) &&
              json_add(object, name, cJSON_CreateString((const char *)clean.data));
    buf_free(&clean);
    return ok;
}

bool json_add_text(struct cJSON *object, const char *name, const char *text)
{
    return text != NULL ? json_add_bytes(object, name, slice_str(text)) : json_add_null(object, name);
}

bool json_add_number(struct cJSON *object, const char *name, double value)
{
    return json_add(object, name, cJSON_CreateNumber(value));
}

bool json_add_bool(struct cJSON *object, const char *name, bool value)
{
    return json_add(object, name, cJSON_CreateBool(value));
}

bool json_add_null(struct cJSON *object, const char *name)
{
    return json_add(object, name, cJSON_CreateNull());
}

struct cJSON *json_add_object(struct cJSON *array)
{
    cJSON *o = cJSON_CreateObject();
    if (o != NULL && cJSON_AddItemToArray(array, o))
        return o;
    cJSON_Delete(o);
    return NULL;
}

/* Print an object and free it. When memory is short, `out` stays unchanged. */
bool json_print(struct buf *out, struct cJSON *object, bool indented)
{
    char *text = object == NULL ? NULL : indented ? cJSON_Print(object) : cJSON_PrintUnformatted(object);
    size_t before = out->len;
    bool ok = text != NULL && buf_append(out, text, strlen(text)) && buf_append(out, "\n", 1);
    if (!ok)
        out->len = before;
    cJSON_free(text);
    cJSON_Delete(object);
    return ok;
}

/* --- names of log files ----------------------------------------------------------------------------------- */

static const struct {
    char letter;
    const char *words;
} tokens[] = {
#define X(letter, value, words) { letter, words },
    LOG_PATTERN_TOKENS(X)
#undef X
};
enum { TOKENS = sizeof(tokens) / sizeof(tokens[0]) };

static bool is_known(char letter)
{
    for (int i = 0; i < TOKENS; i++)
        if (tokens[i].letter == letter)
            return true;
    return false;
}

/* Reject a pattern, and list the valid tokens in the error. When memory is short, the list is missing. */
static ddp_status log_pattern_refuse(struct ddp_err *err)
{
    struct buf list = { 0 };
    for (int i = 0; i < TOKENS; i++)
        buf_printf(&list, "%s%%%c %s", i > 0 ? ", " : ", which may contain ", tokens[i].letter,
                   tokens[i].words);
    ddp_status status = ddp_fail(err, DDP_ERR_ARG, "a file name of at most %d characters%.*s",
                                 LOG_PATTERN_MAX, (int)list.len, list.len > 0 ? (const char *)list.data : "");
    buf_free(&list);
    return status;
}

/* Check a pattern. Each '%' must begin a token. A pattern must not end with '/', because such a pattern would name a
 * directory. */
ddp_status log_pattern_check(const char *pattern, struct ddp_err *err)
{
    const size_t len = strlen(pattern);
    bool ok = len > 0 && len <= LOG_PATTERN_MAX && pattern[len - 1] != '/';
    for (const char *p = pattern; ok && (p = strchr(p, '%')) != NULL; p += 2)
        ok = is_known(p[1]);
    return ok ? DDP_OK : log_pattern_refuse(err);
}

/* Return true if the pattern contains the token. The loop skips both characters of a token, so the letter after
 * "%%" is not a token. */
static bool has_token(const char *pattern, char letter)
{
    for (const char *p = pattern; (p = strchr(p, '%')) != NULL; p += 2)
        if (p[1] == letter)
            return true;
    return false;
}

/* Append the value of a token. Each row of LOG_PATTERN_TOKENS formats its value with TEXT or NUMBER. */
static bool add_token(char letter, const struct log_names *names, struct buf *out)
{
#define TEXT(text)     buf_printf(out, "%s", text)
#define NUMBER(number) buf_printf(out, "%d", number)
    switch (letter) {
#define X(token, value, words) \
    case token:                \
        return value;
        LOG_PATTERN_TOKENS(X)
#undef X
    default:
        return true; /* unreachable: log_pattern_check rejects a pattern with any other letter */
    }
#undef TEXT
#undef NUMBER
}

bool log_pattern_name(const char *pattern, const struct log_names *names, struct buf *out)
{
    bool ok = true;
    const char *p = pattern;
    for (const char *token; ok && (token = strchr(p, '%')) != NULL; p = token + 2)
        ok = buf_append(out, p, (size_t)(token - p)) && add_token(token[1], names, out);
    ok = ok && buf_append(out, p, strlen(p));
    if (ok && names->attempt > 0 && !has_token(pattern, 'a'))
        ok = buf_printf(out, ".attempt_%d", names->attempt);
    return ok;
}
