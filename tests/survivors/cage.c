/* cage.c -- see cage.h. Limits are set by control groups where possible, because root is exempt from RLIMIT_NPROC. */
#include "cage.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The limit of processes is far above the number that 64 chains of processes need, and below the number that a machine
 * allows. The limit of memory is enough for a launcher under AddressSanitizer. */
#define PROCESSES "1500"
#define MEMORY    "201326592"

#define ROOT "/sys/fs/cgroup"

static bool put(const char *dir, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Return the directory at the top of the hierarchy of `controller`, or "" if no hierarchy is writable on this
 * machine. */
static const char *hierarchy(const char *controller, bool *v1)
{
    static char path[128];
    char text[512] = "";
    snprintf(path, sizeof(path), ROOT "/%s", controller);
    *v1 = access(path, W_OK) == 0;
    if (*v1)
        return path;
    FILE *f = fopen(ROOT "/cgroup.subtree_control", "re");
    if (f != NULL) {
        if (fgets(text, sizeof(text), f) == NULL)
            text[0] = '\0';
        fclose(f);
    }
    return strstr(text, controller) != NULL && access(ROOT, W_OK) == 0 ? ROOT : "";
}

bool cage_has_memory(void)
{
    bool v1;
    return geteuid() == 0 && hierarchy("memory", &v1)[0] != '\0';
}

bool cage_has_processes(void)
{
    bool v1;
    return geteuid() != 0 || hierarchy("pids", &v1)[0] != '\0';
}

/* Make a control group of `controller` and write `value` to its limit file, `v1_file` or `v2_file`. Set `dir` to the
 * path of the group, or to "" on failure. */
static void make_group(char dir[160], const char *controller, const char *v1_file, const char *v2_file,
                       const char *value, bool *v1)
{
    const char *root = geteuid() == 0 ? hierarchy(controller, v1) : "";
    dir[0] = '\0';
    if (root[0] == '\0')
        return;
    snprintf(dir, 160, "%s/survivors-%s-%d", root, controller, (int)getpid());
    if (mkdir(dir, 0700) != 0 || !put(dir, *v1 ? v1_file : v2_file, value)) {
        rmdir(dir);
        dir[0] = '\0';
    }
}

void cage_open(struct cage *c, bool with_memory)
{
    bool v1;
    *c = (struct cage){ 0 };
    make_group(c->processes, "pids", "pids.max", "pids.max", PROCESSES, &v1);
    if (!with_memory)
        return;
    make_group(c->memory, "memory", "memory.limit_in_bytes", "memory.max", MEMORY, &c->memory_v1);
    /* if the machine has swap, the processes must not use it */
    put(c->memory, c->memory_v1 ? "memory.memsw.limit_in_bytes" : "memory.swap.max",
        c->memory_v1 ? MEMORY : "0");
}

void cage_enter(const struct cage *c)
{
    const rlim_t most = strtoul(PROCESSES, NULL, 10);
    if (c->processes[0] != '\0')
        put(c->processes, "cgroup.procs", "0");
    else
        setrlimit(RLIMIT_NPROC, &(struct rlimit){ most, most });
    if (c->memory[0] != '\0')
        put(c->memory, "cgroup.procs", "0");
}

int cage_oom_kills(const struct cage *c)
{
    char path[256], line[128];
    int kills = 0;
    snprintf(path, sizeof(path), "%s/%s", c->memory, c->memory_v1 ? "memory.oom_control" : "memory.events");
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        sscanf(line, "oom_kill %d", &kills);
    if (f != NULL)
        fclose(f);
    return kills;
}

/* Remove a control group. Retry for one second, because a process may stay in its group for a moment after wait() has
 * reported its end. */
static void remove_group(const char *dir)
{
    for (int i = 0; dir[0] != '\0' && rmdir(dir) != 0 && i < 200; i++)
        poll(NULL, 0, 5);
}

void cage_close(struct cage *c)
{
    remove_group(c->processes);
    remove_group(c->memory);
}
