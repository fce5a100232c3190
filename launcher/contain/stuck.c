/* stuck.c -- see stuck.h.
 *
 * All of it is read from /proc at the very end. The wait channel needs the rights of a tracer, and kernels without
 * symbols show "0"; then the state alone must do. The name of a process is its own choice and is shown with
 * control characters replaced. */
#include "contain/stuck.h"

#include "contain/descendants.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first line of /proc/PID/`file`, cut to `size`; "" when it cannot be read. */
static void read_line(int pid, const char *file, char *to, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, to, size - 1);
    if (fd >= 0)
        close(fd);
    to[n > 0 ? n : 0] = '\0';
    to[strcspn(to, "\n")] = '\0';
    for (char *p = to; *p != '\0'; p++)
        if (!isprint((unsigned char)*p))
            *p = '?';
}

/* Behind the last parenthesis: the name in front of it may hold anything. */
static char state_of(int pid)
{
    char text[512];
    read_line(pid, "stat", text, sizeof(text));
    const char *end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' && end[2] != '\0' ? end[2] : '?';
}

/* A worker that ended is not in `pids` any more, so a number found there is the worker itself. */
static int rank_of(pid_t pid, const pid_t *pids, const struct plan *plan)
{
    for (int i = 0; i < plan->nproc; i++)
        if (pids[i] == pid)
            return plan->workers[i].rank;
    return -1;
}

/* A zombie is dead and only waits to be taken. */
size_t stuck_find(struct stuck found[STUCK_MAX], const pid_t *pids, const struct plan *plan)
{
    pid_t children[STUCK_MAX];
    size_t n = descendants_children(children, STUCK_MAX), stuck = 0;
    for (size_t i = 0; i < n; i++) {
        struct stuck *s = &found[stuck];
        *s = (struct stuck){ .pid = children[i], .rank = rank_of(children[i], pids, plan) };
        s->state = state_of(s->pid);
        read_line(s->pid, "comm", s->name, sizeof(s->name));
        read_line(s->pid, "wchan", s->where, sizeof(s->where));
        if (strcmp(s->where, "0") == 0)
            s->where[0] = '\0';
        stuck += s->state != 'Z' && s->state != 'X';
    }
    return stuck;
}
