/* tree.c -- see tree.h.
 *
 * This program signals only its children. The pid of a child cannot be reused until this program has waited for the
 * child. When the parent of another descendant dies, the descendant becomes a child of this program and gets a signal
 * in the next round. */
#include "tree.h"

#include "procstat.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES_MAX = 32768, ROUND_MS = 2, NAMED_MAX = 4 };

struct process {
    pid_t pid, parent;
    char state;
    bool ours;
    char name[20];
};

static int events = -1;

bool tree_open(void)
{
    sigset_t child;
    signal(SIGCHLD, SIG_DFL); /* a process that inherits SIG_IGN for SIGCHLD cannot wait for its children */
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    events = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    return events >= 0 && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

int tree_events(void)
{
    return events;
}

static void drain(void)
{
    struct signalfd_siginfo drained;
    while (read(events, &drained, sizeof(drained)) > 0)
        continue;
}

void tree_wait(int ms)
{
    poll(&(struct pollfd){ .fd = events, .events = POLLIN }, 1, ms);
    drain();
}

bool tree_reap(pid_t watched, int *status, bool *ended)
{
    drain();
    pid_t pid;
    int st;
    while ((pid = waitpid(-1, &st, WNOHANG)) > 0) {
        if (pid != watched)
            continue;
        *status = st;
        *ended = true;
    }
    return pid == 0;
}

static bool read_process(const char *pid, struct process *p)
{
    char path[280], line[512];
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    bool ok = fgets(line, sizeof(line), f) != NULL;
    fclose(f);
    const char *open = strchr(line, '('), *close = strrchr(line, ')');
    int parent;
    if (!ok || open == NULL || close == NULL || sscanf(close + 1, " %c %d", &p->state, &parent) != 2)
        return false;
    p->pid = atoi(pid);
    p->parent = parent;
    p->ours = false;
    snprintf(p->name, sizeof(p->name), "%.*s", (int)(close - open - 1), open + 1);
    return true;
}

static size_t read_all(struct process *all)
{
    size_t n = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *e; proc != NULL && n < PROCESSES_MAX && (e = readdir(proc)) != NULL;)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && read_process(e->d_name, &all[n]))
            n++;
    if (proc != NULL)
        closedir(proc);
    return n;
}

/* Mark the descendants. A child may precede its parent in the list, so repeat until nothing changes. */
static void mark_ours(struct process *all, size_t n)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            bool ours = all[i].parent == getpid();
            for (size_t j = 0; j < n && !ours; j++)
                ours = all[j].ours && all[j].pid == all[i].parent;
            more = more || (ours && !all[i].ours);
            all[i].ours = ours;
        }
    }
}

/* Read the first bytes of /proc/PID/FILE as words: NULs and control characters become spaces. */
static void read_words(pid_t pid, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(text, 1, size - 1, f) : 0;
    if (f != NULL)
        fclose(f);
    while (n > 0 && (text[n - 1] == '\0' || text[n - 1] == '\n'))
        n--;
    text[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ')
            text[i] = ' ';
}

/* Append "  123 S (name) in do_wait: program argument\n", or as much of it as fits. Return the length. */
static size_t describe(const struct process *p, char *out, size_t size)
{
    char waits[40], arguments[256];
    read_words(p->pid, "wchan", waits, sizeof(waits));
    read_words(p->pid, "cmdline", arguments, sizeof(arguments));
    const char *program = arguments + strcspn(arguments, " ");
    while (program > arguments && program[-1] != '/')
        program--;
    int n =
        snprintf(out, size, "  %d %c (%s) in %s: %.60s\n", (int)p->pid, p->state, p->name, waits, program);
    return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

size_t tree_count(char *names, size_t size)
{
    struct process *all = malloc(PROCESSES_MAX * sizeof(*all));
    size_t n = all != NULL ? read_all(all) : 0, count = 0, used = 0;
    names[0] = '\0';
    mark_ours(all, n);
    for (size_t i = 0; i < n; i++) {
        if (!all[i].ours || all[i].state == 'Z' || all[i].state == 'X')
            continue;
        if (count++ < NAMED_MAX)
            used += describe(&all[i], names + used, size - used);
    }
    free(all);
    return count;
}

void tree_default_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void kill_children(void)
{
    pid_t pid;
    for (int i = 0; (pid = procstat_child(getpid(), i)) > 0; i++)
        kill(pid, SIGKILL);
}

bool tree_kill(uint64_t limit_ms)
{
    uint64_t end = clock_ms() + limit_ms;
    bool ended = false, left = true;
    int status;
    while ((left = tree_reap(0, &status, &ended)) && clock_ms() < end) {
        kill_children();
        tree_wait(ROUND_MS);
    }
    return !left;
}
