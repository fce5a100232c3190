/* ctl_watch.c -- see ctl_watch.h.
 *
 * Plain ANSI: home, each line followed by "erase the rest", then "erase below". Nothing flickers, and what was on the
 * terminal before is still there when one scrolls up. */
#include "ctl/ctl_watch.h"

#include "base/buf.h"

#include <poll.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

enum { EVERY_MS = 1000, CTRL_C = 3, CTRL_D = 4 };

static struct termios before;
static bool has_keyboard;

/* Ctrl-C comes as a key, so that there is one way to end, and the terminal is put back on it. */
void ctl_watch_begin(void)
{
    has_keyboard = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    if (!has_keyboard)
        return;
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

void ctl_watch_end(void)
{
    if (has_keyboard)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    has_keyboard = false;
}

static bool put_lines(struct buf *out, struct slice text)
{
    const char *at = text.data, *end = at + text.len;
    bool ok = buf_printf(out, "\033[H");
    while (ok && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t len = (size_t)((newline != NULL ? newline : end) - at);
        ok = buf_append(out, at, len) && buf_printf(out, "\033[K\n");
        at += len + 1;
    }
    return ok && buf_printf(out, "\033[J");
}

bool ctl_watch_show(struct slice text)
{
    struct buf out = { 0 };
    bool ok = isatty(STDOUT_FILENO) ? put_lines(&out, text)
                                    : buf_append(&out, text.data, text.len) && buf_append(&out, "\n", 1);
    ok = ok && fwrite(out.data, 1, out.len, stdout) == out.len && fflush(stdout) == 0;
    buf_free(&out);
    return ok;
}

bool ctl_watch_wait(void)
{
    struct pollfd keys = { .fd = has_keyboard ? STDIN_FILENO : -1, .events = POLLIN };
    char key = 0;
    if (poll(&keys, 1, EVERY_MS) <= 0)
        return true;
    return read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != CTRL_C && key != CTRL_D;
}
