/* log.c -- see log.h.
 *
 * The line is put together on the stack and leaves in one write(2), without stdio: no lock, no buffer that a fork would
 * copy, no memory. What is longer than the line is cut, since a log line is no reason to fail. */
#include "log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { PATIENCE_MS = 1000 };

/* The one global of this folder: set once before any thread starts, only read after that. */
static struct {
    const char *program;
    enum log_level level;
} log_state = { "ddprun", LOG_INFO };

void log_setup(const char *program, enum log_level level)
{
    log_state.program = program;
    log_state.level = level;
}

/* Names, keys and paths come from others: nothing in them may end the line or command a terminal. 0xc2
 * leads in the 8-bit controls of UTF-8. */
static void make_harmless(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)text[i];
        const unsigned char next = i + 1 < len ? (unsigned char)text[i + 1] : 0;
        if ((c < ' ' && c != '\t') || c == 0x7f)
            text[i] = '?';
        else if (c == 0xc2 && next >= 0x80 && next < 0xa0)
            text[i] = text[i + 1] = '?';
    }
}

void log_line(enum log_level level, const char *fmt, ...)
{
    static const char *const prefix[] = { "error: ", "warning: ", "", "debug: " };
    char line[4096];
    if (level > log_state.level)
        return;
    int used = snprintf(line, sizeof(line), "%s: %s", log_state.program, prefix[level]);
    va_list ap;
    va_start(ap, fmt);
    int more = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, fmt, ap);
    va_end(ap);
    size_t len = (size_t)used + (more < 0 ? 0 : (size_t)more);
    if (len > sizeof(line) - 2)
        len = sizeof(line) - 2;
    make_harmless(line, len);
    line[len++] = '\n';
    /* A full pipe that nobody reads must not hold whoever has something to say. */
    struct pollfd ready = { .fd = STDERR_FILENO, .events = POLLOUT };
    if (poll(&ready, 1, PATIENCE_MS) <= 0 || write(STDERR_FILENO, line, len) < 0)
        return; /* nobody is left to tell */
}
