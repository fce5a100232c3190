/* timed.c -- see timed.h.
 *
 * Spawn a process in a new group, wait on its pidfd with a limit, and kill the group at the limit. */
#include "timed.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

double timed_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double timed_median(double *values, size_t n)
{
    if (n == 0)
        return NAN;
    qsort(values, n, sizeof(*values), by_value);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double timed_quantile(double *values, size_t n, double share)
{
    if (n == 0)
        return NAN;
    qsort(values, n, sizeof(*values), by_value);
    size_t rank = (size_t)ceil(share * (double)n);
    return values[rank > 0 ? rank - 1 : 0];
}

bool timed_have(const char *program)
{
    char path[4096];
    const char *dirs = getenv("PATH");
    while (dirs != NULL && *dirs != '\0') {
        size_t n = strcspn(dirs, ":");
        snprintf(path, sizeof(path), "%.*s/%s", (int)n, dirs, program);
        if (access(path, X_OK) == 0)
            return true;
        dirs += n + (dirs[n] == ':');
    }
    return false;
}

static int spawn(pid_t *pid, char *const argv[], int out_fd)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (out_fd < 0)
        posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    else
        posix_spawn_file_actions_adddup2(&files, out_fd, 1);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attr, 0);
    int rc = posix_spawnp(pid, argv[0], &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return rc;
}

/* Wait for the end of the process. Return false after limit_ms. */
static bool wait_until(pid_t pid, int limit_ms)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return true; /* on an old kernel, wait without a limit */
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int n = poll(&p, 1, limit_ms);
    close(fd);
    return n > 0;
}

struct timed timed_run(char *const argv[], int out_fd, int limit_ms)
{
    struct timed t = { 0 };
    pid_t pid;
    double start = timed_now();
    if (spawn(&pid, argv, out_fd) != 0)
        return t;
    t.hung = !wait_until(pid, limit_ms);
    if (t.hung)
        kill(-pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    t.ms = timed_now() - start;
    t.ok = !t.hung && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return t;
}

enum { RESULTS_FD = 3 };

FILE *results_open(void)
{
    return fcntl(RESULTS_FD, F_SETFD, FD_CLOEXEC) == 0 ? fdopen(RESULTS_FD, "w") : NULL;
}
