/* text.c -- see text.h.
 *
 * Keys and names of clients are printed on terminals and in JSON. text_append escapes all bytes except printable
 * ASCII, so an attacker cannot send escape sequences to the operator's terminal, and every result is valid UTF-8.
 * UTF-8 is checked according to table 3-7 of the Unicode standard. */
#include "base/text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static bool is_printable(uint8_t c)
{
    return c >= 0x20 && c < 0x7f;
}

bool text_is_plain(struct slice bytes)
{
    const uint8_t *p = bytes.data;
    for (size_t i = 0; i < bytes.len; i++)
        if (!is_printable(p[i]))
            return false;
    return true;
}

/* Append "..." if `bytes` is longer than `max`, because the caller appends only the first `max` bytes. */
static bool append_cut(struct buf *out, struct slice bytes, size_t max)
{
    return bytes.len <= max || buf_printf(out, "...");
}

bool text_append(struct buf *out, struct slice bytes, size_t max)
{
    const uint8_t *p = bytes.data;
    bool ok = true;
    for (size_t i = 0; ok && i < bytes.len && i < max; i++)
        ok = buf_printf(out, is_printable(p[i]) ? "%c" : "\\x%02x", p[i]);
    return ok && append_cut(out, bytes, max);
}

/* Replace control bytes. Also replace the control characters U+0080 to U+009F, which UTF-8 encodes as 0xc2 and a second
 * byte. */
void text_disarm(void *text, size_t len, char keep)
{
    uint8_t *p = text;
    for (size_t i = 0; i < len; i++) {
        const uint8_t next = i + 1 < len ? p[i + 1] : 0;
        if ((p[i] < 0x20 && p[i] != (uint8_t)keep) || p[i] == 0x7f)
            p[i] = '?';
        else if (p[i] == 0xc2 && next >= 0x80 && next < 0xa0)
            p[i] = p[i + 1] = '?';
    }
}

/* --- UTF-8 ------------------------------------------------------------------------------------------------ */

/* Return the length of a UTF-8 sequence that begins with `first`, or 0 if no sequence begins with `first`. */
static size_t length_of(uint8_t first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

size_t utf8_sequence(const uint8_t *p, size_t len)
{
    uint8_t low = 0x80, high = 0xbf; /* allowed range of the second byte */
    size_t need = length_of(p[0]);
    if (need <= 1)
        return need;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    if (len < need || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return need;
}

/* Return the length of the UTF-8 sequence at `p`, or 0 if it is invalid. NUL counts as invalid, because cJSON's strings
 * end at a NUL. */
static size_t sequence(const uint8_t *p, size_t len)
{
    return p[0] != 0 ? utf8_sequence(p, len) : 0;
}

/* Copy valid bytes in long pieces, because nearly all texts are valid. */
bool utf8_clean(struct buf *out, struct slice bytes)
{
    const uint8_t *p = bytes.data, *end = p + bytes.len;
    bool ok = true;
    while (p < end && ok) {
        const uint8_t *good = p;
        size_t n;
        while (p < end && (n = sequence(p, (size_t)(end - p))) > 0)
            p += n;
        ok = buf_append(out, good, (size_t)(p - good));
        if (p < end) {
            ok = ok && buf_append(out, "\xef\xbf\xbd", 3);
            p++;
        }
    }
    return ok;
}

bool text_has_peer(const char *line, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = line; len > 0 && (at = strstr(at, name)) != NULL; at += len) {
        const char before = at > line ? at[-1] : ' ';
        if ((before == '[' && at[len] == ']') || (before == ' ' && at[len] == '<'))
            return true;
    }
    return false;
}

void text_hex(char *out, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", p[i]);
}

bool text_append_hex(struct buf *out, struct slice bytes, size_t max)
{
    const uint8_t *p = bytes.data;
    bool ok = true;
    for (size_t i = 0; ok && i < bytes.len && i < max; i++)
        ok = buf_printf(out, "%02x", p[i]);
    return ok && append_cut(out, bytes, max);
}

/* Format a duration, rounded down. Seconds and hours have one decimal. Minutes have one decimal only below 10 min. */
char *text_ms(uint64_t ms, char text[static TEXT_MS_MAX])
{
    static const struct {
        uint64_t from_ms, unit_ms;
        uint64_t tenths_below_ms; /* a shorter duration has one decimal */
        const char *name;
    } units[] = {
        { 36000000, 3600000, UINT64_MAX, "h" },
        { 120000, 60000, 600000, "min" },
        { 1000, 1000, UINT64_MAX, "s" },
        { 0, 1, 0, "ms" },
    };
    size_t i = 0;
    while (ms < units[i].from_ms)
        i++;
    const unsigned long long whole = ms / units[i].unit_ms;
    if (ms < units[i].tenths_below_ms)
        snprintf(text, TEXT_MS_MAX, "%llu.%d %s", whole, (int)(ms % units[i].unit_ms * 10 / units[i].unit_ms),
                 units[i].name);
    else
        snprintf(text, TEXT_MS_MAX, "%llu %s", whole, units[i].name);
    return text;
}

bool text_append_ms(struct buf *out, uint64_t ms)
{
    return buf_printf(out, "%s", text_ms(ms, (char[TEXT_MS_MAX]){ 0 }));
}

/* Format a size. A number below 100 has one decimal, unless the decimal is 0: 1.5 GiB, but 64 MiB. */
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

size_t text_fit(const char *text, size_t max)
{
    size_t len = strnlen(text, max + 1);
    if (len <= max)
        return len;
    do
        len--;
    while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80);
    return len;
}

void text_copy(char *to, size_t size, const char *text)
{
    const size_t len = text != NULL ? text_fit(text, size - 1) : 0;
    memcpy(to, text != NULL ? text : "", len);
    to[len] = '\0';
}

/* Return the date of a day. In this calculation years begin in March, so the leap day is the last day of a year. The
 * lengths of months then repeat every five months (153 days), so a linear function of the day gives the month. */
struct date date_of(uint64_t day)
{
    /* TO_1970: days from 0000-03-01 to 1970-01-01 */
    enum { TO_1970 = 719468, CENTURIES_4 = 146097, CENTURY = 36524, YEARS_4 = 1460, YEAR = 365 };
    uint64_t d = day + TO_1970, cycle = d / CENTURIES_4;
    d %= CENTURIES_4;
    uint64_t y = (d - d / YEARS_4 + d / CENTURY - d / (CENTURIES_4 - 1)) / YEAR;
    d -= YEAR * y + y / 4 - y / 100;
    uint64_t m = (5 * d + 2) / 153;
    struct date date = { .day = (int)(d - (153 * m + 2) / 5 + 1), .month = (int)(m < 10 ? m + 3 : m - 9) };
    date.year = (int)(y + 400 * cycle + (date.month <= 2));
    return date;
}

void json_add_integer(cJSON *o, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)value);
    cJSON_AddRawToObject(o, name, text);
}

/* Append the item. After a failure, free the item, because cJSON does not free it. */
void json_append(cJSON *array, cJSON *item)
{
    if (!cJSON_AddItemToArray(array, item))
        cJSON_Delete(item);
}

const char *signal_abbrev(int signal)
{
#define ROW(name) [SIG##name] = #name
    static const char *const names[] = {
        ROW(HUP),  ROW(INT),  ROW(QUIT), ROW(ILL),  ROW(TRAP), ROW(ABRT),   ROW(BUS),   ROW(FPE),
        ROW(KILL), ROW(USR1), ROW(SEGV), ROW(USR2), ROW(PIPE), ROW(ALRM),   ROW(TERM),  ROW(STKFLT),
        ROW(CHLD), ROW(CONT), ROW(STOP), ROW(TSTP), ROW(TTIN), ROW(TTOU),   ROW(URG),   ROW(XCPU),
        ROW(XFSZ), ROW(PROF), ROW(POLL), ROW(PWR),  ROW(SYS),  ROW(VTALRM), ROW(WINCH),
    };
#undef ROW
    return signal >= 0 && signal < (int)(sizeof(names) / sizeof(names[0])) ? names[signal] : NULL;
}
