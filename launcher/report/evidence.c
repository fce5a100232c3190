/* evidence.c -- see evidence.h.
 *
 * All input is untrusted: files of the kernel, a file that a worker wrote, a program that the user named. So open
 * and read never block, no link in a worker's directory is followed, and lengths are limited. */
#include "report/evidence.h"

#include "contain/cgroup.h"
#include "contain/procfs.h"
#include "report/exit_text.h"
#include "report/spawn_error.h"
#include "tables/text.h"

#include "base/limits.h"
#include "base/syscalls.h"
#include "base/text.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CORE_FILE_BYTES = 64 * 1024, /* bytes to read from a core file; enough for the notes at its beginning */
    PATTERN_MAX = 256,           /* bytes for core_pattern, which the kernel limits to 127 characters */
    FLAG_MAX = 16
};

/* Read up to `size` bytes of a file. Return an empty slice if the file cannot be read. O_NONBLOCK is set, because
 * opening a FIFO could block. */
static struct slice file_head(const char *path, char *bytes, size_t size)
{
    size_t len = 0;
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (fd >= 0 && len < size && (n = read(fd, bytes + len, size - len)) > 0)
        len += (size_t)n;
    if (fd >= 0)
        close(fd);
    return slice_of(bytes, len);
}

/* Read the address of the fault from the core file, if the kernel's log does not contain this address. */
static void read_fault(const char *path, struct worker_evidence *facts)
{
    char bytes[CORE_FILE_BYTES];
    uint64_t address;
    if (!facts->fault_known && coredump_fault(file_head(path, bytes, CORE_FILE_BYTES), &address)) {
        facts->fault_known = true;
        facts->fault = address;
    }
}

/* Record the core file at `path` if this file was written after `began` and is newer than all core files that were
 * found so far. */
static void record_core(const char *path, time_t began, time_t *newest, struct worker_evidence *facts)
{
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_mtime < began || st.st_mtime < *newest)
        return;
    *newest = st.st_mtime;
    facts->coredump_kind = CORE_FILE;
    facts->coredump_size = (uint64_t)st.st_size;
    snprintf(facts->core, sizeof(facts->core), "%s", path);
}

/* Find the newest core file that matches `glob`. Only the last part of the path may contain wildcards. */
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
            record_core(path, began, &newest, facts);
    }
    if (list != NULL)
        closedir(list);
}

/* Read the kernel's pattern for core files. Write "" if the pattern is empty or cannot be read. */
static void read_pattern(char out[PATTERN_MAX])
{
    struct slice text = file_head("/proc/sys/kernel/core_pattern", out, PATTERN_MAX - 1);
    out[text.len] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* Find the core file that the kernel has written. A relative pattern is searched in ddprun's working directory. If the
 * worker has changed its working directory, the file is not found, and coredump_kind stays CORE_LOST. */
static void find_core(pid_t pid, int signal, time_t began, struct worker_evidence *facts)
{
    char pattern[PATTERN_MAX], uses_pid[FLAG_MAX], glob[PATH_MAX];
    struct slice flag = file_head("/proc/sys/kernel/core_uses_pid", uses_pid, FLAG_MAX);
    read_pattern(pattern);
    facts->coredump_kind = pattern[0] == '|' ? CORE_PIPED : CORE_LOST;
    snprintf(facts->core, sizeof(facts->core), "%s", pattern + (pattern[0] == '|'));
    if (coredump_glob(pattern, limit_in(flag) != 0, pid, signal, glob))
        search_core(glob, began, facts);
    if (facts->coredump_kind == CORE_FILE)
        read_fault(facts->core, facts);
}

/* Record why the kernel has not written a core file. */
static void excuse_core(struct worker_evidence *facts)
{
    struct rlimit limit;
    char pattern[PATTERN_MAX];
    read_pattern(pattern);
    if (pattern[0] != '|' && getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0)
        facts->coredump_kind = CORE_NO_LIMIT;
    else
        facts->coredump_kind = pattern[0] == '\0' ? CORE_NO_PATTERN : CORE_NOT_DUMPED;
    snprintf(facts->core, sizeof(facts->core), "%s", pattern);
}

/* Return true if the signal's default action writes a core file, see signal(7). */
static bool writes_core(int signal)
{
    static const int signals[] = { SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,
                                   SIGFPE,  SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS };
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (signals[i] == signal)
            return true;
    return false;
}

/* Record the core file of a worker, or the reason why it is missing. `status` is from waitpid. Ignore files that
 * are older than `began`, a time before the worker's start. Do nothing after a signal that writes no core file,
 * such as SIGKILL. */
static void coredump_find(pid_t pid, int status, time_t began, struct worker_evidence *facts)
{
    if (!WIFSIGNALED(status))
        return;
    if (WCOREDUMP(status))
        find_core(pid, WTERMSIG(status), began, facts);
    else if (writes_core(WTERMSIG(status)))
        excuse_core(facts);
}

/* This part reads the files of the kernel. exit_text.c parses their texts.
 *
 * All files are read as soon as a worker is reaped, before the other workers are stopped. Later the control group
 * is gone, /dev/shm has free space again, and the log has other lines. Reading delays the stop by about 0.1 ms, so
 * only the first few failures are examined. */

enum {
    WATCHES_MAX = 24,        /* maximum number of watched control groups: the groups of ddprun and of the job,
                              * and all groups that contain these groups */
    EXAMINED_MAX = 8,        /* limit of failures that are examined in one attempt */
    GROUP_FILE_BYTES = 4096, /* size of the buffer for a file of a control group */
    FILE_BYTES = 64 * 1024,  /* size of the buffer for a file of /proc */
    LOG_RECORDS_MAX = 65536, /* limit of records that one call reads; a record takes 1 us */
    LOG_BYTES_MAX = 256 * 1024,
};

/* The hierarchies of control groups. A flag `v2` is also used as an index: false is MEMORY_V1, and true is ALL_V2. */
enum { MEMORY_V1, ALL_V2, PIDS_V1, HIERARCHIES };

static const char *const controllers[HIERARCHIES] = { [MEMORY_V1] = "memory", [PIDS_V1] = "pids" };

struct watch {
    char *dir;               /* owned */
    char name[CGROUP_SHOWN]; /* name of the group, as in /proc/PID/cgroup */
    struct oom_watch counts;
};

struct evidence {
    struct cgroup_mount mounts[HIERARCHIES];
    bool mounted[HIERARCHIES];
    const char *groups; /* text of /proc/self/cgroup; borrowed */
    struct watch watches[WATCHES_MAX];
    size_t n_watches;
    unsigned long long system_kills; /* number of the machine's OOM kills when the attempt began */
    int log;                         /* descriptor of /dev/kmsg; -1 if /dev/kmsg cannot be read */
    struct buf lines;                /* records of the kernel's log; about LOG_BYTES_MAX bytes at most */
    time_t began;        /* start of the attempt by the wall clock; older core files are ignored */
    uint64_t open_files; /* ulimit -n of the workers */
    struct examined {
        int local_rank;
        struct worker_evidence facts;
    } examined[EXAMINED_MAX];
    size_t n_examined;
    /* `port` is the port that another user has taken, or 0 if no port was taken. `port_rank` is the local rank of the
     * worker for which this port was reserved */
    int port_rank, port;
    unsigned port_uid;
    int timer_rank;                /* local rank of the worker whose timer has expired */
    char timer_scope[TIMER_SHOWN]; /* scope of the expired timer; "" if no timer has expired */
};

/* --- control groups ------------------------------------------------------------------------------------- */

static struct slice read_in(const char *dir, const char *name, char bytes[GROUP_FILE_BYTES])
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return file_head(path, bytes, GROUP_FILE_BYTES);
}

/* Read the counters of a version 2 group. In memory.events, the counter "oom" also rises when an inner group reaches
 * the inner group's limit. So read "oom" from memory.events.local, if the kernel has this file (Linux 5.2). Return
 * false if the group does not exist or has no memory controller. */
static bool count_v2(const char *dir, char bytes[GROUP_FILE_BYTES], struct oom_count *count)
{
    const struct slice text = read_in(dir, "memory.events", bytes);
    if (text.len == 0)
        return false;
    counter_in(text, "oom_kill", &count->kills);
    if (!counter_in(read_in(dir, "memory.events.local", bytes), "oom", &count->hits))
        counter_in(read_in(dir, "memory.events", bytes), "oom", &count->hits);
    return true;
}

/* Read the counters of a version 1 group. Version 1 has no counter for "out of memory", so the counter of refused
 * pages is used instead. */
static bool count_v1(const char *dir, char bytes[GROUP_FILE_BYTES], struct oom_count *count)
{
    const struct slice text = read_in(dir, "memory.oom_control", bytes);
    if (text.len == 0)
        return false;
    counter_in(text, "oom_kill", &count->kills);
    count->hits = limit_in(read_in(dir, "memory.failcnt", bytes));
    return true;
}

static bool read_counts(const char *dir, bool v2, struct oom_count *count)
{
    char bytes[GROUP_FILE_BYTES];
    *count = (struct oom_count){ 0 };
    return v2 ? count_v2(dir, bytes, count) : count_v1(dir, bytes, count);
}

/* Read limit and peak of a group. Call this function after the worker's end, because both values may change while the
 * worker runs. */
static void read_limits(struct watch *w)
{
    char bytes[GROUP_FILE_BYTES];
    bool v2 = w->counts.v2;
    w->counts.limit = limit_in(read_in(w->dir, CGROUP_LIMIT_FILE(v2), bytes));
    w->counts.peak = limit_in(read_in(w->dir, v2 ? "memory.peak" : "memory.max_usage_in_bytes", bytes));
}

/* Record the limit and the use of the watched cgroup that has the least memory left. */
static void find_group_limit(const struct evidence *e, struct worker_evidence *facts)
{
    char bytes[GROUP_FILE_BYTES];
    uint64_t least = UINT64_MAX;
    facts->group_limit = e->n_watches > 0 ? UINT64_MAX : 0;
    for (size_t i = 0; i < e->n_watches; i++) {
        const char *dir = e->watches[i].dir;
        const bool v2 = e->watches[i].counts.v2;
        const uint64_t limit = limit_in(read_in(dir, CGROUP_LIMIT_FILE(v2), bytes));
        const uint64_t used = limit_in(read_in(dir, v2 ? "memory.current" : "memory.usage_in_bytes", bytes));
        const uint64_t left = limit > used ? limit - used : 0;
        if (limit == 0 || left >= least)
            continue;
        least = left;
        facts->group_limit = limit;
        facts->group_used = used;
    }
}

/* Return true if the control group `dir` is already watched. An outer group is found twice, because it contains both
 * the job's group and ddprun's own group. */
static bool is_watched(const struct evidence *e, const char *dir)
{
    for (size_t i = 0; i < e->n_watches; i++)
        if (strcmp(e->watches[i].dir, dir) == 0)
            return true;
    return false;
}

/* Join two parts of a path. Return false if the result is too long. */
static bool join_path(char out[PATH_MAX], const char *a, const char *b)
{
    return (size_t)snprintf(out, PATH_MAX, "%s%s", a, b) < PATH_MAX;
}

/* Watch a control group: read its counters now. After a worker's end, the new counters are compared with these
 * counters. A control group without a memory controller is not watched. If `late` is true, the worker has already
 * ended, so the counters before its end are not known. */
static void watch(struct evidence *e, const char *dir, const char *name, bool v2, bool late)
{
    struct oom_count before;
    if (e->n_watches == WATCHES_MAX || is_watched(e, dir) || !read_counts(dir, v2, &before))
        return;
    struct watch *w = &e->watches[e->n_watches];
    w->dir = strdup(dir);
    if (w->dir == NULL)
        return;
    e->n_watches++;
    snprintf(w->name, sizeof(w->name), "%.*s", CGROUP_SHOWN - 1, *name != '\0' ? name : "/");
    w->counts = (struct oom_watch){ .name = w->name, .v2 = v2, .late = late };
    if (!late)
        w->counts.before = before;
}

static void forget_watches(struct evidence *e)
{
    while (e->n_watches > 0)
        free(e->watches[--e->n_watches].dir);
}

/* Remove the last name of a path below a mount point. Return false if no name is left. */
static bool leave_group(char *name)
{
    char *slash = strrchr(name, '/');
    if (slash != NULL)
        *slash = '\0';
    return slash != NULL;
}

/* Watch a group and all groups that contain it, the innermost first. `below` is the group's path below the mount. In a
 * container, the root of the mount may be a group inside the hierarchy. The path of this root is then a part of each
 * group's name. The hierarchy must be mounted. */
static void watch_upwards(struct evidence *e, const char *below, bool v2, bool late)
{
    char at[PATH_MAX], dir[PATH_MAX], name[PATH_MAX];
    const char *root = e->mounts[v2].root;
    if (!join_path(at, below, ""))
        return;
    do {
        if (join_path(dir, e->mounts[v2].where, at) &&
            join_path(name, strcmp(root, "/") == 0 ? "" : root, at))
            watch(e, dir, name, v2, late);
    } while (leave_group(at));
}

/* Return the lowest pids.max of ddprun's own group and of all groups that contain it. Return UINT64_MAX if no group
 * has a limit, and 0 if the limits are not known. The job's group inside ddprun's own group is not read, because
 * ddprun sets no limit there. */
static uint64_t lowest_pids_max(const struct evidence *e, int hierarchy)
{
    char group[CGROUP_PATH_MAX], name[PATH_MAX];
    if (!e->mounted[hierarchy] || !cgroup_own(e->groups, controllers[hierarchy], group))
        return 0;
    const char *below = cgroup_below(group, e->mounts[hierarchy].root);
    if (!join_path(name, below != NULL ? below : "", ""))
        return 0;
    const uint64_t lowest = lowest_limit_above(e->mounts[hierarchy].where, name, "pids.max", UINT64_MAX);
    /* If a container hides ddprun's own group, the limit is not known, because the hidden group may have a limit. */
    return below == NULL && lowest == UINT64_MAX ? 0 : lowest;
}

/* Watch the control group `group`, a path from /proc/PID/cgroup. If a container hides this group, watch the visible
 * groups above this group, but only in version 2. In version 1, the visible groups do not count a kill in the hidden
 * group. */
static void watch_group(struct evidence *e, const char *group, bool v2, bool late)
{
    const char *below = e->mounted[v2] ? cgroup_below(group, e->mounts[v2].root) : NULL;
    if (e->mounted[v2] && (below != NULL || v2))
        watch_upwards(e, below != NULL ? below : "", v2, late);
}

/* Watch the control groups of ddprun itself, in version 1 and in version 2. */
static void watch_own(struct evidence *e)
{
    char path[CGROUP_PATH_MAX];
    for (int v2 = 0; v2 < 2; v2++)
        if (cgroup_own(e->groups, controllers[v2], path))
            watch_group(e, path, v2, false);
}

static void find_mounts(struct evidence *e, const char *mounts)
{
    for (int i = 0; i < HIERARCHIES; i++) {
        const char *rest = mounts;
        e->mounted[i] = cgroup_next_mount(&rest, controllers[i], &e->mounts[i]);
    }
}

/* Watch the control group of the job. The link of `cgroup_fd` in /proc shows the path of this group. */
static void watch_job(struct evidence *e, int cgroup_fd)
{
    char link[64], dir[PATH_MAX];
    const char *at = e->mounts[1].where;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", cgroup_fd);
    ssize_t n = cgroup_fd >= 0 ? readlink(link, dir, sizeof(dir) - 1) : -1;
    if (n <= 0)
        return;
    dir[n] = '\0';
    const char *below = e->mounted[1] ? cgroup_below(dir, at) : NULL;
    if (below != NULL)
        watch_upwards(e, below, true, false);
}

/* Read the machine's number of OOM kills. Every user may read this number, even without control groups. Return false
 * if the file cannot be read. */
static bool system_kills(unsigned long long *kills)
{
    char bytes[FILE_BYTES];
    *kills = 0;
    return counter_in(file_head("/proc/vmstat", bytes, FILE_BYTES), "oom_kill", kills);
}

/* --- the kernel's log ----------------------------------------------------------------------------------- */

/* Open the kernel's log at its end, if this user may read it. */
static void open_log(struct evidence *e)
{
    e->log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (e->log >= 0)
        lseek(e->log, 0, SEEK_END);
}

/* Drop the older half of a full buffer, because only the newest lines can be about a worker's end. */
static void forget_oldest(struct buf *lines)
{
    const size_t half = lines->len / 2;
    const char *end = lines->len < LOG_BYTES_MAX ? NULL : memchr(lines->data + half, '\n', lines->len - half);
    if (end != NULL)
        buf_consume(lines, (size_t)(end + 1 - (const char *)lines->data));
}

/* Append the new records of the kernel's log to `lines`. Each read returns one record, for example
 * "6,339,5140900,-;text\n". If a read fails with EPIPE, the kernel has overwritten records that were not read yet. The
 * next read then returns the oldest record that still exists. */
static void read_log(struct evidence *e)
{
    char record[8192];
    for (int i = 0; i < LOG_RECORDS_MAX && e->log >= 0; i++) {
        forget_oldest(&e->lines);
        ssize_t n = read(e->log, record, sizeof(record));
        if (n < 0 && (errno == EPIPE || errno == EINTR))
            continue;
        if (n <= 0 || !buf_append(&e->lines, record, (size_t)n))
            return;
    }
}

/* Search the kernel's log for lines about a worker. Also search lines that were read earlier, because the kernel may
 * write a line about a worker before the SIGCHLD of this worker. */
static void ask_log(struct evidence *e, pid_t pid, struct worker_evidence *facts)
{
    /* The kernel's log contains pids of the machine's first PID namespace. If ddprun runs in another PID namespace, do
     * not search the log, because the number `pid` in the log means another process. */
    if (!procfs_in_first_namespace(FIRST_PID))
        return;
    read_log(e);
    const char *p = (const char *)e->lines.data;
    for (size_t left = e->lines.len; left > 0;) {
        const char *end = memchr(p, '\n', left);
        size_t n = end != NULL ? (size_t)(end - p) : left;
        kernel_log_line(slice_of(p, n), pid, facts);
        n += end != NULL;
        p += n;
        left -= n;
    }
}

/* --- other facts ---------------------------------------------------------------------------------------- */

/* Read the free space of /dev/shm now, before other workers end. */
static void check_shm(struct worker_evidence *facts)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0)
        return;
    facts->shm_size = (uint64_t)fs.f_blocks * fs.f_frsize;
    facts->shm_free = (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* Return true if the reader of a pipe is gone. Use poll, because write would send a byte. */
static bool reader_is_gone(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP)) != 0;
}

/* Return a soft limit of this process, which the workers inherit, or UINT64_MAX if there is no limit. */
static uint64_t soft_limit(int resource)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0)
        return 0;
    return limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : UINT64_MAX;
}

static uint64_t limit_or_0(uint64_t limit)
{
    return limit != UINT64_MAX ? limit : 0;
}

/* Return true if RLIMIT_NPROC does not apply to this process. The kernel exempts root and processes with CAP_SYS_ADMIN
 * or CAP_SYS_RESOURCE, but only in the machine's first user namespace. */
static bool has_free_processes(void)
{
    char bytes[FILE_BYTES];
    const uint64_t exempt = UINT64_C(1) << CAP_SYS_ADMIN | UINT64_C(1) << CAP_SYS_RESOURCE;
    const struct slice status = file_head("/proc/self/status", bytes, FILE_BYTES - 1);
    bytes[status.len] = '\0';
    const char *effective = strstr(bytes, "\nCapEff:");
    const uint64_t capabilities = effective != NULL ? strtoull(effective + strlen("\nCapEff:"), NULL, 16) : 0;
    return procfs_in_first_namespace(FIRST_USER) && (getuid() == 0 || (capabilities & exempt) != 0);
}

static void check_cpu(struct worker_evidence *facts)
{
    char bytes[FILE_BYTES];
    struct slice text = file_head("/proc/cpuinfo", bytes, FILE_BYTES);
    const char *p = memmem(text.data, text.len, "model name\t: ", 13);
    if (p != NULL)
        snprintf(facts->cpu, sizeof(facts->cpu), "%.*s", (int)strcspn(p + 13, "\n"), p + 13);
}

/* Read the counters of all watched groups. If the kernel's log names another group of the worker, watch that group
 * too. */
static void check_memory(struct evidence *e, struct worker_evidence *facts)
{
    struct oom_watch counts[WATCHES_MAX];
    for (int v2 = 0; v2 < 2 && facts->cgroup[0] == '/'; v2++)
        watch_group(e, facts->cgroup, v2, true);
    for (size_t i = 0; i < e->n_watches; i++) {
        struct watch *w = &e->watches[i];
        read_counts(w->dir, w->counts.v2, &w->counts.now);
        read_limits(w);
        counts[i] = w->counts;
    }
    unsigned long long now = 0;
    facts->oom_unseen = e->n_watches == 0 && !system_kills(&now);
    oom_find_cause(counts, e->n_watches, now > e->system_kills ? now - e->system_kills : 0, facts);
}

/* Return a row of /proc/meminfo in bytes, or 0 if the row is missing. */
static uint64_t meminfo_row(const char *text, const char *name)
{
    const char *row = strstr(text, name);
    return row != NULL ? strtoull(row + strlen(name), NULL, 10) * 1024 : 0;
}

/* Read the available memory of the machine. Read the limit of reserved memory only with vm.overcommit_memory=2, because
 * the limit applies only in this mode. */
static void check_machine_memory(struct worker_evidence *facts)
{
    char bytes[FILE_BYTES], mode[8];
    const struct slice text = file_head("/proc/meminfo", bytes, FILE_BYTES - 1);
    bytes[text.len] = '\0';
    facts->available = meminfo_row(bytes, "\nMemAvailable:");
    const struct slice overcommit = file_head("/proc/sys/vm/overcommit_memory", mode, sizeof(mode));
    if (overcommit.len == 0 || mode[0] != '2')
        return;
    facts->commit_limit = meminfo_row(bytes, "\nCommitLimit:");
    facts->committed = meminfo_row(bytes, "\nCommitted_AS:");
}

/* Record the limits that may explain an error of a worker. */
static void check_limits(const struct evidence *e, struct worker_evidence *facts)
{
    facts->open_files = e->open_files;
    facts->processes = has_free_processes() ? UINT64_MAX : soft_limit(RLIMIT_NPROC);
    facts->locked = soft_limit(RLIMIT_MEMLOCK);
    facts->stack = soft_limit(RLIMIT_STACK);
    facts->address_space = soft_limit(RLIMIT_AS);
    find_group_limit(e, facts);
    check_machine_memory(facts);
    facts->pids_max = lowest_pids_max(e, e->mounted[PIDS_V1] ? PIDS_V1 : ALL_V2);
}

/* Collect the facts that may explain the signal that ended the worker: closed pipes, limits, the core file. */
static void check_signal(struct evidence *e, pid_t pid, int status, struct worker_evidence *facts)
{
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (sig == SIGPIPE) {
        facts->stdout_gone = reader_is_gone(STDOUT_FILENO);
        facts->stderr_gone = reader_is_gone(STDERR_FILENO);
    }
    if (sig == SIGILL)
        check_cpu(facts);
    facts->cpu_limit_s = limit_or_0(soft_limit(RLIMIT_CPU));
    facts->file_limit = limit_or_0(soft_limit(RLIMIT_FSIZE));
    coredump_find(pid, status, e->began, facts);
}

/* --- interface ------------------------------------------------------------------------------------------ */

/* Create a collector. The mount points of the control groups do not change during a job. The arrays of 70 KiB are not
 * cleared, because clearing takes time in each start, and their valid items are known from `mounted`, `n_watches` and
 * `n_examined`. */
struct evidence *evidence_new(const char *mounts, const char *groups, uint64_t open_files)
{
    struct evidence *e = malloc(sizeof(*e));
    if (e == NULL)
        return NULL;
    e->groups = groups;
    e->open_files = open_files;
    e->lines = (struct buf){ 0 };
    e->system_kills = 0;
    e->began = 0;
    e->n_watches = e->n_examined = 0;
    e->port_rank = e->port = e->timer_rank = 0;
    e->port_uid = 0;
    e->timer_scope[0] = '\0';
    find_mounts(e, mounts);
    open_log(e);
    return e;
}

void evidence_free(struct evidence *e)
{
    if (e == NULL)
        return;
    if (e->log >= 0)
        close(e->log);
    forget_watches(e);
    buf_free(&e->lines);
    free(e);
}

void evidence_attempt(struct evidence *e, int cgroup_fd)
{
    if (e == NULL)
        return;
    e->n_examined = 0;
    e->timer_scope[0] = '\0';
    e->port = 0;
    forget_watches(e);
    watch_job(e, cgroup_fd);
    watch_own(e);
    if (e->n_watches == 0) /* use the machine's number of OOM kills only if no group is watched, because this
                            * number includes the kills of other jobs */
        system_kills(&e->system_kills);
    e->began = time(NULL);
}

/* Examine a worker. Read the log first, because the log may name a control group whose counters must be read. */
void evidence_ended(struct evidence *e, int local_rank, pid_t pid, int status, const struct rusage *usage)
{
    if (e == NULL || e->n_examined == EXAMINED_MAX)
        return;
    struct examined *l = &e->examined[e->n_examined++];
    *l = (struct examined){ .local_rank = local_rank,
                            .facts.peak_rss = (uint64_t)usage->ru_maxrss * 1024 }; /* ru_maxrss is in KiB */
    ask_log(e, pid, &l->facts);
    check_memory(e, &l->facts);
    check_shm(&l->facts);
    check_limits(e, &l->facts);
    check_signal(e, pid, status, &l->facts);
    if (e->timer_scope[0] != '\0' && e->timer_rank == local_rank)
        snprintf(l->facts.timer, sizeof(l->facts.timer), "%s", e->timer_scope);
    if (e->port_rank == local_rank) {
        l->facts.port = e->port;
        l->facts.port_uid = e->port_uid;
    }
}

/* Record ddprun's own limit of open files, not the limit of the workers, because the start failed in ddprun. */
void evidence_not_started(struct evidence *e, int local_rank)
{
    if (e == NULL || e->n_examined == EXAMINED_MAX)
        return;
    struct examined *l = &e->examined[e->n_examined++];
    *l = (struct examined){ .local_rank = local_rank };
    check_limits(e, &l->facts);
    l->facts.open_files = soft_limit(RLIMIT_NOFILE);
}

void evidence_port_taken(struct evidence *e, int local_rank, int port, unsigned uid)
{
    if (e == NULL)
        return;
    e->port_rank = local_rank;
    e->port = port;
    e->port_uid = uid;
}

/* Record a timer that has expired. Keep only the first such timer, because this timer ends the attempt. */
void evidence_timer(struct evidence *e, int local_rank, const char *scope)
{
    if (e == NULL || e->timer_scope[0] != '\0')
        return;
    e->timer_rank = local_rank;
    snprintf(e->timer_scope, sizeof(e->timer_scope), "%s", scope);
}

const struct worker_evidence *evidence_of(const struct evidence *e, int local_rank)
{
    for (size_t i = 0; e != NULL && i < e->n_examined; i++)
        if (e->examined[i].local_rank == local_rank)
            return &e->examined[i].facts;
    return NULL;
}

/* --- the error file of a worker ---------------------------------------------------------------------------- */

/* The error file comes from the worker. So any member may be missing or have any type. cJSON limits how deeply objects
 * may be nested. */

/* Copy the text of a member. Return "" for another type, or NULL if memory is short. Replace invalid UTF-8, because
 * the text is printed. */
static char *copy_text(const cJSON *item)
{
    struct buf out = { 0 };
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    if (utf8_clean(&out, slice_str(text)) && buf_append(&out, "", 1))
        return (char *)out.data;
    buf_free(&out);
    return NULL;
}

/* Convert a time in seconds to ms since 1970. `item` is a JSON number or a text. Return 0 for an implausible time. */
static uint64_t moment(const cJSON *item)
{
    const double latest = 4102444800.0; /* the year 2100; a larger number is wrong, or in milliseconds */
    double seconds = cJSON_IsNumber(item)   ? item->valuedouble
                     : cJSON_IsString(item) ? strtod(item->valuestring, NULL)
                                            : 0;
    return seconds >= 1 && seconds < latest ? (uint64_t)(seconds * 1000) : 0;
}

/* Find the message in an error file of either shape (see evidence.h). Set *callstack and *when to the call stack and
 * the time that belong to the message. */
static const cJSON *find_message(const cJSON *root, const cJSON **callstack, const cJSON **when)
{
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(root, "message");
    const cJSON *extra = cJSON_GetObjectItemCaseSensitive(message, "extraInfo");
    *callstack = cJSON_GetObjectItemCaseSensitive(extra, "py_callstack");
    *when = cJSON_GetObjectItemCaseSensitive(extra, "timestamp");
    if (*when == NULL)
        *when = cJSON_GetObjectItemCaseSensitive(root, "timestamp");
    return cJSON_IsObject(message) ? cJSON_GetObjectItemCaseSensitive(message, "message") : message;
}

/* Copy message, call stack and time from `root`, the JSON object of an error file. Reject a file without a message,
 * because an empty report would hide that the worker wrote a file. */
static ddp_status error_text_copy(const cJSON *root, struct error_text *out, struct ddp_err *err)
{
    const cJSON *callstack, *when;
    const cJSON *message = find_message(root, &callstack, &when);
    if (!cJSON_IsString(message))
        return ddp_fail(err, DDP_ERR_CORRUPT, "the member \"message\" is missing or is not a text");
    *out = (struct error_text){ .message = copy_text(message),
                                .callstack = copy_text(callstack),
                                .unix_ms = moment(when) };
    if (out->message != NULL && out->callstack != NULL)
        return DDP_OK;
    error_text_free(out);
    return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
}

/* Parse an error file. Length and types are checked, because the file comes from the worker. After DDP_OK the caller
 * frees `out` with error_text_free. */
static ddp_status error_text_parse(struct slice bytes, struct error_text *out, struct ddp_err *err)
{
    const char *end = NULL;
    *out = (struct error_text){ 0 };
    if (bytes.len == 0)
        return ddp_fail(err, DDP_ERR_CORRUPT, "the file is empty");
    if (bytes.len > ERROR_FILE_MAX)
        return ddp_fail(err, DDP_ERR_LIMIT, "the file has more than %d KiB", ERROR_FILE_MAX / 1024);
    cJSON *root = cJSON_ParseWithLengthOpts(bytes.data, bytes.len, &end, false);
    if (root == NULL)
        return ddp_fail(err, DDP_ERR_CORRUPT, "the file is not JSON (error at byte %zu of %zu)",
                        end != NULL ? (size_t)(end - (const char *)bytes.data) : 0, bytes.len);
    ddp_status status = error_text_copy(root, out, err);
    cJSON_Delete(root);
    return status;
}

/* Return the parsed object, or NULL if the bytes are not an object or memory is short. */
static cJSON *parse_object(struct slice bytes)
{
    cJSON *root = bytes.len <= ERROR_FILE_MAX ? cJSON_ParseWithLength(bytes.data, bytes.len) : NULL;
    if (cJSON_IsObject(root))
        return root;
    cJSON_Delete(root);
    return NULL;
}

/* Append the JSON object `bytes`, with `code` as the member message.errorCode, as torchrun does. If `message` is only
 * a text, append the object unchanged. Return false if `bytes` are not a JSON object, or memory is short. */
static bool error_text_with_code(struct slice bytes, int code, struct buf *out)
{
    cJSON *root = parse_object(bytes);
    cJSON *message = cJSON_GetObjectItemCaseSensitive(root, "message");
    bool ok = root != NULL;
    if (cJSON_IsObject(message)) {
        cJSON_DeleteItemFromObjectCaseSensitive(message, "errorCode");
        ok = json_add_number(message, "errorCode", code);
    }
    if (ok)
        return json_print(out, root, false);
    cJSON_Delete(root);
    return false;
}

void error_text_free(struct error_text *text)
{
    free(text->message);
    free(text->callstack);
    *text = (struct error_text){ 0 };
}

/* --- reading ----------------------------------------------------------------------------------------------- */

/* Open a regular file without blocking on a FIFO, which the worker may have created. A missing file is the usual
 * case. */
static int open_regular(const char *path, struct ddp_err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (fd < 0) {
        ddp_fail(err, errno == ENOENT ? DDP_ERR_CLOSED : DDP_ERR_IO, "%s",
                 errno == ELOOP ? "the file is a symbolic link" : strerror(errno));
        return -1;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    ddp_fail(err, DDP_ERR_CORRUPT, "the file is not a regular file");
    close(fd);
    return -1;
}

/* Append the file's bytes to `out`. Return false on failure. */
static bool read_bytes(const char *path, struct buf *out)
{
    struct ddp_err err;
    const int fd = open_regular(path, &err);
    const bool ok = fd >= 0 && read_whole_file(fd, ERROR_FILE_MAX + 1, out);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Copy an error file. `to` is opened without checks, because the path comes from the user or from an outer
 * launcher. */
void error_file_hand_on(const char *from, const char *to, int code)
{
    struct buf bytes = { 0 }, out = { 0 };
    int fd = -1;
    if (read_bytes(from, &bytes) && error_text_with_code(buf_slice(&bytes), code, &out) &&
        (fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600)) >= 0 &&
        write(fd, out.data, out.len) != (ssize_t)out.len)
        (void)!ftruncate(fd, 0); /* leave an empty file rather than half of a JSON object */
    if (fd >= 0)
        close(fd);
    buf_free(&bytes);
    buf_free(&out);
}

ddp_status error_file_read(const char *path, struct error_text *out, struct ddp_err *err)
{
    struct buf bytes = { 0 };
    *out = (struct error_text){ 0 };
    int fd = open_regular(path, err);
    if (fd < 0)
        return err->code == DDP_ERR_CLOSED ? err->code : ddp_wrap(err, "%s", path);
    ddp_status status = read_whole_file(fd, ERROR_FILE_MAX + 1, &bytes)
                            ? error_text_parse(buf_slice(&bytes), out, err)
                            : ddp_fail(err, DDP_ERR_IO, "%s", strerror(errno));
    close(fd);
    buf_free(&bytes);
    return status == DDP_OK ? status : ddp_wrap(err, "%s", path);
}

/* --- a program that did not start ------------------------------------------------------------------------ */

/* The program may be any file, such as a FIFO, so only regular files are read. */

/* The first HEAD_BYTES of a program contain the headers and the loader's name. */
enum { HEAD_BYTES = 4096, NEAR_SEEN_MAX = 4096 };

/* Return true if the file system is mounted noexec. The kernel then executes no file of this file system. */
static bool on_noexec(const char *path)
{
    struct statvfs fs;
    return statvfs(path, &fs) == 0 && (fs.f_flag & ST_NOEXEC) != 0;
}

/* Return the kind of a file. On a noexec mount, access(2) always fails for execution, so only the mode bits decide
 * there. */
static enum path_kind kind_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR ? PATH_MISSING : PATH_UNKNOWN;
    if (S_ISDIR(st.st_mode))
        return PATH_DIRECTORY;
    if (!S_ISREG(st.st_mode))
        return PATH_NO_FILE;
    bool may = faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0 || on_noexec(path);
    return (st.st_mode & 0111) != 0 && may ? PATH_EXECUTABLE : PATH_NO_X;
}

/* Read the first bytes of a regular file, and return the number of bytes. If the file cannot be read, return 0 and set
 * *ok to false. */
static size_t read_head(const char *path, uint8_t head[HEAD_BYTES], bool *ok)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        n = read(fd, head, HEAD_BYTES);
    if (fd >= 0)
        close(fd);
    *ok = n >= 0;
    return n > 0 ? (size_t)n : 0;
}

/* Set `out` to the first directory of `path` that this user may not enter: "/data/locked" for "/data/locked/bin/train".
 * Set `out` to "" if there is no such directory. */
static void find_locked(const char *path, char out[PATH_MAX])
{
    size_t len = strlen(path);
    out[0] = '\0';
    for (size_t i = 1; i < len && i < PATH_MAX; i++) {
        if (path[i] != '/')
            continue;
        snprintf(out, PATH_MAX, "%.*s", (int)i, path);
        if (faccessat(AT_FDCWD, out, X_OK, AT_EACCESS) != 0 && errno == EACCES)
            return;
    }
    out[0] = '\0';
}

/* Find the file in the directory of `path` whose name is most similar to the name in `path`. If the name in `path` has
 * N letters, a similar name differs in at most N / 3 + 1 letters. A name that differs in all N letters is not similar.
 * Skip an entry with exactly the name in `path`: `path` does not exist, so this entry is a link to a missing file.
 * Compare only the first few thousand files. */
static void find_near(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const int front = (int)(name - path);
    size_t best = strlen(name) < 3 ? strlen(name) : strlen(name) / 3 + 2;
    char dir[PATH_MAX];
    snprintf(dir, sizeof(dir), "%.*s", front > 0 ? front : 1, front > 0 ? path : ".");
    DIR *d = opendir(dir);
    const struct dirent *e;
    for (int seen = 0; d != NULL && seen < NEAR_SEEN_MAX && (e = readdir(d)) != NULL; seen++) {
        const size_t distance = words_distance(name, e->d_name);
        if (e->d_type == DT_DIR || distance >= best || distance == 0)
            continue;
        if (snprintf(out, PATH_MAX, "%.*s%s", front, path, e->d_name) < PATH_MAX)
            best = distance;
    }
    if (d != NULL)
        closedir(d);
}

/* Examine a program. Compare its header with the header of ddprun's own executable, which runs on this machine. */
static void program_examine(const char *path, struct program_file *file)
{
    uint8_t head[HEAD_BYTES], own[HEAD_BYTES];
    bool ok, self_ok;
    *file = (struct program_file){ .kind = kind_of(path) };
    snprintf(file->path, sizeof(file->path), "%s", path);
    find_locked(path, file->locked);
    if (file->kind == PATH_MISSING)
        find_near(path, file->near);
    if (file->kind != PATH_EXECUTABLE && file->kind != PATH_NO_X)
        return;
    file->noexec = on_noexec(path);
    size_t n = read_head(path, head, &ok), n_own = read_head("/proc/self/exe", own, &self_ok);
    if (!ok)
        return;
    program_check_bytes(file, slice_of(head, n), slice_of(own, n_own));
    if (file->interpreter[0] != '\0')
        file->helper = kind_of(file->interpreter);
    else if (file->elf.interpreter[0] != '\0')
        file->helper = kind_of(file->elf.interpreter);
}

/* Examine the program or script that could not be started. If a program's name has no slash, the search in PATH has
 * found no executable file. In this case return false, because there is no file to examine. */
bool program_examine_failed(const char *failed, const char *script, struct program_file *file)
{
    if (failed == NULL || (failed != script && strchr(failed, '/') == NULL))
        return false;
    program_examine(failed, file);
    file->is_python_file = failed == script;
    return true;
}
