/* procstat.c -- see procstat.h. Each function opens a file of /proc, reads it and closes it again. So a process may end
 * at any time: the function then returns the value for a missing process. */
#include "procstat.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

pid_t procstat_child(pid_t of, int n)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)of, (int)of);
    FILE *f = fopen(path, "re");
    for (int i = 0; f != NULL && i <= n; i++)
        if (fscanf(f, "%d", &pid) != 1)
            pid = 0;
    if (f != NULL)
        fclose(f);
    return pid;
}

static long status_kib(pid_t pid, const char *field)
{
    char path[64], line[256];
    long kib = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && kib < 0 && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, field, strlen(field)) == 0)
            sscanf(line + strlen(field), " %ld", &kib);
    if (f != NULL)
        fclose(f);
    return kib;
}

long procstat_rss_kib(pid_t pid)
{
    return status_kib(pid, "VmRSS:");
}

long procstat_peak_kib(pid_t pid)
{
    return status_kib(pid, "VmHWM:");
}

long procstat_cpu_ms(pid_t pid)
{
    char path[64], text[1024] = "";
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t len = f != NULL ? fread(text, 1, sizeof(text) - 1, f) : 0;
    if (f != NULL)
        fclose(f);
    text[len] = '\0';
    const char *rest = strrchr(text, ')'); /* skip the program's name, which may contain any character */
    if (rest == NULL ||
        sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        return -1;
    return (long)((user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK));
}

int procstat_fds(pid_t pid)
{
    char path[64];
    int count = -2; /* do not count "." and ".." */
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    if (dir == NULL)
        return -1;
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

bool procstat_is_sanitized(pid_t pid)
{
    char path[64], line[512];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
        found = strstr(line, "/libasan.so") != NULL || strstr(line, "/libtsan.so") != NULL;
    if (f != NULL)
        fclose(f);
    return found;
}

/* --- rlimits ---------------------------------------------------------------------------------------------- */

uint32_t limits_raise_descriptors(uint32_t most)
{
    struct rlimit limit = { 0 }, wanted = { most, most };
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < most && setrlimit(RLIMIT_NOFILE, &wanted) == 0)
        return most;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur < UINT32_MAX ? (uint32_t)limit.rlim_cur : UINT32_MAX;
}

void limits_cut_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
}
