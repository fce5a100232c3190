/* bystander.c -- see bystander.h. The second job counts as affected if one of its processes gets a signal or ends.
 * Messages of ddprun do not count. */
#include "bystander.h"

#include "procstat.h"
#include "tree.h"

#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 2, START_MS = 20000 };

static bool start(struct bystander *b, const struct trial *t)
{
    const char *argv[LAUNCHER_ARGS];
    int ends[2];
    launcher_argv(t->by, t, WORKERS, (const char *const[]){ t->worker, "bystander", NULL }, argv);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    b->launcher = fork();
    if (b->launcher == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        tree_default_signals();
        setpgid(0, 0);
        setenv("XDG_RUNTIME_DIR", t->record_dir, 1);
        dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(ends[1]);
    b->out = ends[0];
    fcntl(b->out, F_SETFL, O_NONBLOCK);
    return b->launcher > 0;
}

static bool until_ready(struct bystander *b, char *text, size_t size)
{
    const uint64_t until = clock_ms() + START_MS;
    size_t len = 0;
    for (uint64_t now; (now = clock_ms()) < until && len < size - 1;) {
        poll(&(struct pollfd){ .fd = b->out, .events = POLLIN }, 1, (int)(until - now));
        ssize_t n = read(b->out, text + len, size - 1 - len);
        if (n == 0)
            break;
        len += n > 0 ? (size_t)n : 0;
        text[len] = '\0';
        const char *first = strstr(text, "ready");
        if (first != NULL && strstr(first + 1, "ready") != NULL)
            return true;
    }
    return false;
}

/* Watch `pid` and all its descendants. */
static void watch(struct bystander *b, pid_t pid)
{
    pid_t child;
    if (b->count < BYSTANDERS_MAX)
        b->pidfds[b->count++] = pidfd_open(pid, 0);
    for (int i = 0; (child = procstat_child(pid, i)) > 0; i++)
        watch(b, child);
}

bool bystander_open(struct bystander *b, const struct trial *t, char *why, size_t size)
{
    *b = (struct bystander){ .out = -1 };
    why[0] = '\0';
    if (!start(b, t) || !until_ready(b, why, size))
        return false;
    watch(b, b->launcher);
    return true;
}

const char *bystander_harm(struct bystander *b)
{
    struct pollfd fds[BYSTANDERS_MAX];
    char text[4096];
    for (size_t i = 0; i < b->count; i++)
        fds[i] = (struct pollfd){ .fd = b->pidfds[i], .events = POLLIN };
    if (poll(fds, b->count, 0) > 0)
        return fds[0].revents != 0 ? "its launcher has ended" : "a process ended";
    const ssize_t n = read(b->out, text, sizeof(text));
    if (n == 0)
        return "it closed its output";
    return n > 0 && memmem(text, (size_t)n, "touched", 7) != NULL ? "a worker was signalled" : NULL;
}

/* End the second job with SIGTERM. Before this call, its processes must get no signal. */
void bystander_close(struct bystander *b)
{
    if (b->launcher > 0) {
        kill(b->launcher, SIGTERM);
        waitpid(b->launcher, NULL, 0);
    }
    for (size_t i = 0; i < b->count; i++)
        close(b->pidfds[i]);
    if (b->out >= 0)
        close(b->out);
}
