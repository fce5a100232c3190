/* live.c -- see live.h. One poll waits for output and for ends of processes. This process adopts orphans, so wait()
 * reports the ends of all processes. */
#include "live.h"

#include "tree.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Append new output to the text, and count each "ready" in the text. A "ready" may arrive in two parts, so the search
 * includes the earlier output. If the text is more than half full, first drop all but its last 16 bytes. */
static void take_output(struct live *l)
{
    if (l->len > sizeof(l->text) / 2) {
        size_t keep = 16;
        memmove(l->text, l->text + l->len - keep, keep);
        l->len = keep;
    }
    ssize_t n = read(l->out, l->text + l->len, sizeof(l->text) - 1 - l->len);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            live_hang_up(l);
        return;
    }
    l->len += (size_t)n;
    l->text[l->len] = '\0';
    for (char *at = l->text; (at = strstr(at, "ready")) != NULL; l->ready++)
        memcpy(at, "READY", 5);
}

bool live_step(struct live *l, uint64_t until_us)
{
    uint64_t now = clock_us();
    struct pollfd fds[2] = { { l->out, POLLIN, 0 }, { tree_events(), POLLIN, 0 } };
    const uint64_t wait = until_us > now ? until_us - now : 0;
    const struct timespec limit = { .tv_sec = (time_t)(wait / 1000000),
                                    .tv_nsec = (long)(wait % 1000000 * 1000) };
    ppoll(fds, 2, &limit, NULL);
    if (fds[0].revents != 0)
        take_output(l);
    return tree_reap(l->launcher, &l->status, &l->ended);
}

void live_wait(struct live *l, uint64_t us)
{
    const uint64_t until = clock_us() + us;
    while (!l->ended && clock_us() < until && live_step(l, until))
        continue;
}

bool live_until_nobody(struct live *l, uint64_t until_us)
{
    while (live_step(l, until_us))
        if (clock_us() >= until_us)
            return false;
    return true;
}

/* Create the launcher's output: a pipe or a terminal. Return the side to which the launcher writes. The test reads
 * from l->out. */
static int open_output(struct live *l)
{
    int ends[2];
    if (l->t->fault == FAULT_HANGUP) {
        l->out = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
        if (l->out < 0 || grantpt(l->out) != 0 || unlockpt(l->out) != 0)
            return -1;
        return open(ptsname(l->out), O_RDWR | O_NOCTTY | O_CLOEXEC);
    }
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    l->out = ends[0];
    fcntl(l->out, F_SETFL, O_NONBLOCK);
    return ends[1];
}

_Noreturn static void become(const struct live *l, const char *const argv[], int output)
{
    const bool terminal = l->t->fault == FAULT_HANGUP;
    if (terminal)
        setsid();
    else
        setpgid(0, 0);
    if (terminal)
        ioctl(output, TIOCSCTTY, 0);
    cage_enter(&l->cage);
    dup2(terminal ? output : open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    setenv("XDG_RUNTIME_DIR", l->t->record_dir, 1);
    tree_default_signals();
    execvp(argv[0], (char *const *)argv);
    dprintf(STDERR_FILENO, "cannot execute %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

bool live_start(struct live *l, int workers, const char *const args[])
{
    const char *argv[LAUNCHER_ARGS];
    launcher_argv(l->t->by, l->t, workers, args, argv);
    int output = open_output(l);
    if (output < 0)
        return false;
    l->ended = false;
    l->launcher = fork();
    if (l->launcher == 0)
        become(l, argv, output);
    close(output);
    return l->launcher > 0;
}

void live_hang_up(struct live *l)
{
    if (l->out >= 0)
        close(l->out);
    l->out = -1;
}
