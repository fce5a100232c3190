/* log.c -- see log.h.
 *
 * The line is put together on the stack and leaves in one write(2), without stdio: no lock, no buffer that a fork would
 * copy, no memory. What is longer than the line is cut, since a log line is no reason to fail. */
#include "base/log.h"

#include "base/text.h"

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
    text_disarm(line, len, '\t'); /* names, keys and paths come from others */
    line[len++] = '\n';
    /* A full pipe that nobody reads must not hold whoever has something to say. */
    struct pollfd ready = { .fd = STDERR_FILENO, .events = POLLOUT };
    if (poll(&ready, 1, PATIENCE_MS) <= 0 || write(STDERR_FILENO, line, len) < 0)
        return; /* nobody is left to tell */
}
