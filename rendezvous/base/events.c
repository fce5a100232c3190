/* events.c -- see events.h. This program has printed each JSON object itself, so event_line checks only the braces and
 * does not parse the object. event_add_text writes only ASCII, so every job id and host name gives valid JSON. */
#include "base/events.h"

#include "base/text.h"

#include <stdio.h>

#define X(name, word) word,
static const char *const words[EVENT_N_KINDS] = { EVENT_KINDS(X) };
#undef X

const char *event_word(enum event_kind kind)
{
    return (unsigned)kind < EVENT_N_KINDS ? words[kind] : "?";
}

enum event_kind event_kind_of(const char *word)
{
    int kind = 0;
    while (kind < EVENT_N_KINDS && strcmp(word, words[kind]) != 0)
        kind++;
    return (enum event_kind)kind;
}

/* Append `object` and a newline. Insert `more` before the last brace of the object. This program has formatted the text
 * of the object, so only newlines can follow the last brace. */
bool event_line(struct buf *out, struct slice object, struct slice more)
{
    const char *text = object.data;
    const size_t before = out->len;
    size_t len = object.len;
    while (len > 0 && text[len - 1] == '\n')
        len--;
    if (len < 3 || text[0] != '{' || text[len - 1] != '}')
        return false;
    if (buf_append(out, text, len - 1) && buf_append(out, more.data, more.len) && buf_append(out, "}\n", 2))
        return true;
    out->len = before;
    return false;
}

bool event_add_text(struct buf *out, const char *name, const char *text)
{
    bool ok = buf_printf(out, ",\"%s\":\"", name);
    for (; ok && *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c >= 0x7f)
            ok = buf_printf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            ok = buf_printf(out, "\\%c", c);
        else
            ok = buf_append(out, text, 1);
    }
    return ok && buf_append(out, "\"", 1);
}

void event_time(char out[EVENT_TIME_MAX], uint64_t unix_us)
{
    const uint64_t s = unix_us / 1000000;
    const struct date date = date_of(s / 86400);
    snprintf(out, EVENT_TIME_MAX, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", date.year % 10000, date.month,
             date.day, (int)(s / 3600 % 24), (int)(s / 60 % 60), (int)(s % 60), (int)(unix_us % 1000000));
}
