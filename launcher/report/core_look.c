/* core_look.c -- see core_look.h.
 *
 * The kernel tells a parent that a core was dumped, and not where. The name follows from the pattern in
 * /proc/sys/kernel/core_pattern, of which only some parts are known here; so the rest becomes a wildcard, and of
 * the files that fit the newest one that is not older than the attempt is taken. */
#include "report/core_look.h"

#include "report/evidence_text.h"
#include "report/file_head.h"

#include <dirent.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    FILE_BYTES = 64 * 1024, /* of a core file: its notes come first */
    PATTERN_MAX = 256,      /* the kernel keeps 127 characters */
    FLAG_MAX = 16
};

/* The kernel's log may have told the address before, with the library; the file knows it also where the log may
 * not be read. */
static void read_fault(const char *path, struct worker_evidence *facts)
{
    char bytes[FILE_BYTES];
    uint64_t address;
    if (!facts->fault_known && core_fault(file_head(path, bytes, FILE_BYTES), &address)) {
        facts->fault_known = true;
        facts->fault = address;
    }
}

/* Is it a core file of this attempt? The newest of them wins. */
static void take_core(const char *path, time_t began, time_t *newest, struct worker_evidence *facts)
{
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_mtime < began || st.st_mtime < *newest)
        return;
    *newest = st.st_mtime;
    facts->core_kind = CORE_FILE;
    facts->core_size = (uint64_t)st.st_size;
    snprintf(facts->core, sizeof(facts->core), "%s", path);
}

/* Only the last part of the pattern may vary: a directory per program is more than anyone sets up. */
static void search_core(const char *glob, time_t began, struct worker_evidence *facts)
{
    char dir[PATH_MAX], path[PATH_MAX];
    const char *slash = strrchr(glob, '/'), *last = slash != NULL ? slash + 1 : glob;
    time_t newest = 0;
    snprintf(dir, sizeof(dir), "%.*s", slash != NULL ? (int)(slash + 1 - glob) : 2,
             slash != NULL ? glob : "./");
    DIR *list = opendir(dir);
    for (struct dirent *d; list != NULL && (d = readdir(list)) != NULL;) {
        int n = snprintf(path, sizeof(path), "%s%s", slash != NULL ? dir : "", d->d_name);
        if (n < PATH_MAX && fnmatch(last, d->d_name, 0) == 0)
            take_core(path, began, &newest, facts);
    }
    if (list != NULL)
        closedir(list);
}

/* The kernel's pattern; "" when it has none, or may not be read. */
static void read_pattern(char out[PATTERN_MAX])
{
    struct slice text = file_head("/proc/sys/kernel/core_pattern", out, PATTERN_MAX - 1);
    out[text.len] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* A relative pattern is looked for where ddprun runs: a worker that has changed its directory has its core there,
 * and is told CORE_LOST with the pattern. */
static void find_core(pid_t pid, int signal, time_t began, struct worker_evidence *facts)
{
    char pattern[PATTERN_MAX], uses_pid[FLAG_MAX], glob[PATH_MAX];
    struct slice flag = file_head("/proc/sys/kernel/core_uses_pid", uses_pid, FLAG_MAX);
    read_pattern(pattern);
    facts->core_kind = pattern[0] == '|' ? CORE_PIPED : CORE_LOST;
    snprintf(facts->core, sizeof(facts->core), "%s", pattern + (pattern[0] == '|'));
    if (core_glob(pattern, limit_in(flag) != 0, pid, signal, glob))
        search_core(glob, began, facts);
    if (facts->core_kind == CORE_FILE)
        read_fault(facts->core, facts);
}

/* Why there is none. */
static void excuse_core(struct worker_evidence *facts)
{
    struct rlimit limit;
    char pattern[PATTERN_MAX];
    read_pattern(pattern);
    if (pattern[0] != '|' && getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0)
        facts->core_kind = CORE_NO_LIMIT;
    else
        facts->core_kind = pattern[0] == '\0' ? CORE_NO_PATTERN : CORE_NOT_DUMPED;
    snprintf(facts->core, sizeof(facts->core), "%s", pattern);
}

/* All that signal(7) lists with the action "core". */
static bool writes_core(int signal)
{
    static const int signals[] = { SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,
                                   SIGFPE,  SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS };
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (signals[i] == signal)
            return true;
    return false;
}

/* Silent about a signal that never leaves a core: to explain why SIGKILL left none would only distract. */
void core_look(pid_t pid, int status, time_t began, struct worker_evidence *facts)
{
    if (!WIFSIGNALED(status))
        return;
    if (WCOREDUMP(status))
        find_core(pid, WTERMSIG(status), began, facts);
    else if (writes_core(WTERMSIG(status)))
        excuse_core(facts);
}
