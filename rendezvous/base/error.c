/* error.c -- see ddp/error.h. The text has a fixed size, because the report of missing memory must not allocate
 * memory. */
#include "base/limits.h"
#include "base/not_null.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Return the name of a status. The switch has no default, here and below, so that the compiler reports a missing case.
 * The return after the switch is for values that only a newer library defines. */
const char *ddp_status_name(ddp_status status)
{
    switch (status) {
#define X(name, value, text) \
    case DDP_##name:         \
        return "DDP_" #name;
        DDP_STATUS_LIST(X)
#undef X
    }
    return "DDP_STATUS_?";
}

const char *ddp_status_text(ddp_status status)
{
    switch (status) {
#define X(name, value, text) \
    case DDP_##name:         \
        return text;
        DDP_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

int ddp_exit_code(ddp_status status)
{
    switch (status) {
    case DDP_OK:
        return 0;
    case DDP_ERR_ARG:
        return 2;
    case DDP_ERR_PEER_LOST:
    case DDP_ERR_ABORTED:
        return DDP_EXIT_PEER_LOST;
    default:
        return 1;
    }
}

void (*error_keep)(const char *msg);

enum { WHOLE_MAX = 8192 }; /* bytes of a text before it is shortened; a path may have 4,095 bytes */

/* Return true if the byte is not the first byte of a character of UTF-8. */
static bool continues_character(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Copy `text`. If `text` is too long, replace its middle by "...", because its beginning names the object, and its end
 * has the reason and the remedy. Cut between two characters of UTF-8, because messages are sent as JSON. A character has
 * at most four bytes, so move each cut by at most three bytes: a text that is not UTF-8 must not lose more. */
static void shorten(char to[sizeof(((struct ddp_err *)NULL)->msg)], const char *text)
{
    enum { SIZE = sizeof(((struct ddp_err *)NULL)->msg), TAIL = SIZE / 2, HEAD = SIZE - TAIL - 4, MOST = 3 };
    const size_t len = strlen(text);
    if (len < SIZE) {
        memcpy(to, text, len + 1);
        return;
    }
    size_t head = HEAD, tail = len - TAIL;
    while (HEAD - head < MOST && continues_character(text[head]))
        head--;
    while (tail - (len - TAIL) < MOST && continues_character(text[tail]))
        tail++;
    snprintf(to, SIZE, "%.*s...%s", (int)head, text, text + tail);
}

/* Set the error and return `code`, so that a function can fail in one statement: return ddp_fail(err, ...). Format in a
 * second buffer, because an argument may be err->msg or ddp_last_error(). A text with "out of memory" has the same
 * remedy everywhere, so this function appends the remedy. */
ddp_status ddp_fail(struct ddp_err *err, ddp_status code, const char *fmt, ...)
{
    char msg[sizeof(err->msg)], whole[WHOLE_MAX];
    va_list ap;
    if (err == NULL && error_keep == NULL)
        return code;
    va_start(ap, fmt);
    vsnprintf(whole, sizeof(whole), fmt, ap);
    va_end(ap);
    const char *reason = code == DDP_ERR_NOMEM ? strstr(whole, "out of memory") : NULL;
    if (reason != NULL && strstr(reason, "; ") == NULL) {
        const size_t n = strlen(whole);
        snprintf(whole + n, sizeof(whole) - n, MEMORY_REMEDY);
    }
    shorten(msg, whole);
    if (err != NULL) {
        err->code = code;
        memcpy(err->msg, msg, strlen(msg) + 1);
    }
    if (error_keep != NULL)
        error_keep(msg);
    return code;
}

/* Prepend a text to the error. Each caller may prepend its own context, such as "checkpoint 'a.ckpt': " or "rank 3: ".
 * Build the result in a second buffer, because err->msg has the old text. */
ddp_status ddp_wrap(struct ddp_err *err, const char *fmt, ...)
{
    char whole[WHOLE_MAX];
    const size_t room = sizeof(whole) - sizeof(err->msg) - 2; /* room for the text in front */
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(whole, room, fmt, ap);
    va_end(ap);
    if (n < 0)
        return err->code;
    const size_t used = (size_t)n < room ? (size_t)n : room - 1;
    snprintf(whole + used, sizeof(whole) - used, ": %s", err->msg);
    shorten(err->msg, whole);
    if (error_keep != NULL)
        error_keep(err->msg);
    return err->code;
}
