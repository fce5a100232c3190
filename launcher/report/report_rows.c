/* report_rows.c -- see report_rows.h.
 *
 * One failure is kept in `ok` and looked at by the caller at the end: a report is a hundred small appends, and
 * half a report is no use, so nobody in between need ask. */
#include "report/report_rows.h"

#include "tables/text.h"

#include <stdarg.h>
#include <stdio.h>

/* Two blanks, the label, a blank: where the text begins. 100 columns fit beside another window, and are not so
 * wide that the eye loses the row. */
enum { LABEL_WIDTH = 8, TEXT_AT = 11, TEXT_WIDTH = ROW_WIDTH - TEXT_AT };

static const char BOLD_RED[] = "\033[1;31m", DIM[] = "\033[2m", PLAIN[] = COLOUR_OFF;

static void put(struct rows *r, const void *bytes, size_t len)
{
    r->ok = r->ok && buf_append(r->out, bytes, len);
}

static void put_colour(struct rows *r, const char *code)
{
    if (r->colour)
        put(r, code, strlen(code));
}

/* Our words, and names that others have given: no colours but those around them. */
static void put_words(struct rows *r, struct slice text)
{
    r->ok = r->ok && escape_put_plain(r->out, text);
}

/* False when the limit is reached. */
static bool begin_line(struct rows *r, const char *label)
{
    char padded[LABEL_WIDTH + 4];
    if (r->lines >= r->limit)
        return false;
    r->lines++;
    snprintf(padded, sizeof(padded), "  %-*s ", LABEL_WIDTH, label);
    put_colour(r, DIM);
    put(r, padded, TEXT_AT);
    put_colour(r, PLAIN);
    return true;
}

/* Not limited in its length: whoever searches a log of many jobs finds rank, host and cause in this one line. */
void rows_headline(struct rows *r, struct slice text)
{
    r->lines++;
    put_colour(r, BOLD_RED);
    put(r, "ddprun: ", 8);
    put_words(r, text);
    put_colour(r, PLAIN);
    put(r, "\n", 1);
}

/* How much of the text goes on this line: up to the last blank that fits, else (a long path) up to the
 * first one. A newline ends a line in any case. */
static size_t line_length(const char *text, size_t len)
{
    size_t end = 0, last_blank = 0;
    while (end < len && text[end] != '\n' && (end <= TEXT_WIDTH || last_blank == 0)) {
        if (text[end] == ' ' && end > 0)
            last_blank = end;
        end++;
    }
    if (end <= TEXT_WIDTH && (end == len || text[end] == '\n'))
        return end;
    return last_blank > 0 ? last_blank : end;
}

/* The last row that is allowed says by " ..." that there was more. */
void rows_text(struct rows *r, const char *label, struct slice text, int max)
{
    const char *p = text.data;
    size_t left = text.len;
    for (int i = 0; i < max && left > 0 && begin_line(r, i == 0 ? label : ""); i++) {
        size_t n = line_length(p, left);
        put_words(r, slice_of(p, n));
        n += n < left; /* the blank or newline itself */
        p += n;
        left -= n;
        put(r, i + 1 == max && left > 0 ? " ...\n" : "\n", i + 1 == max && left > 0 ? 5 : 1);
    }
}

void rows_printf(struct rows *r, const char *label, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    rows_text(r, label,
              slice_of(text, n < 0                      ? 0
                             : (size_t)n < sizeof(text) ? (size_t)n
                                                        : sizeof(text) - 1),
              3);
}

void rows_quote(struct rows *r, const char *label, struct slice line)
{
    const uint8_t *p = line.data;
    bool cut = line.len > ROW_QUOTE_MAX;
    size_t len = cut ? ROW_QUOTE_MAX : line.len;
    while (cut && len > 0 && (p[len] & 0xc0) == 0x80) /* not within a character */
        len--;
    if (!begin_line(r, label))
        return;
    put(r, "| ", 2);
    r->ok = r->ok && escape_put(r->out, slice_of(p, len)); /* a worker's own colours pass */
    put(r, cut ? " ...\n" : "\n", cut ? 5 : 1);
}
