/* hanging.c -- see hanging.h. */
#include "hanging.h"

#include "procstat.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 8, CHILDREN_MAX = 32 };

/* The first line of a thread's file in /proc, without its end. */
static void first_line(pid_t pid, int thread, const char *file, char *out, int size)
{
    char path[96];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, thread, file);
    FILE *f = fopen(path, "re");
    if (f == NULL || fgets(out, size, f) == NULL)
        snprintf(out, (size_t)size, "?");
    out[strcspn(out, "\n")] = '\0';
    if (f != NULL)
        fclose(f);
}

static void describe_thread(pid_t pid, int thread, struct buf *out)
{
    char stat[512], where[64], name[64];
    first_line(pid, thread, "stat", stat, sizeof(stat));
    first_line(pid, thread, "wchan", where, sizeof(where));
    first_line(pid, thread, "comm", name, sizeof(name));
    const char *state = strrchr(stat, ')'); /* behind the name, which may hold anything */
    buf_printf(out, "run: still there: %s, pid %d, thread %d, state%.2s, in %s\n", name, (int)pid, thread,
               state != NULL ? state + 1 : " ?", where);
}

static void describe_threads(pid_t pid, struct buf *out)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    if (threads == NULL)
        return;
    for (struct dirent *e; (e = readdir(threads)) != NULL;)
        if (e->d_name[0] != '.')
            describe_thread(pid, atoi(e->d_name), out);
    closedir(threads);
}

static void describe(pid_t pid, int depth, struct buf *out)
{
    pid_t child;
    describe_threads(pid, out);
    for (int n = 0; depth < DEPTH_MAX && n < CHILDREN_MAX && (child = procstat_child(pid, n)) != 0; n++)
        describe(child, depth + 1, out);
}

void hanging_describe(pid_t pid, struct buf *out)
{
    describe(pid, 0, out);
}
