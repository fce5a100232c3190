/* kernel_evidence.c -- see kernel_evidence.h.
 *
 * The kernel tells a parent that a core was dumped, and not where. The name follows from the pattern in
 * /proc/sys/kernel/core_pattern, of which only some parts are known here; so the rest becomes a wildcard, and of
 * the files that fit the newest one that is not older than the attempt is taken. */
#include "report/kernel_evidence.h"

#include "contain/cgroup.h"
#include "report/exit_text.h"
#include "report/program_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CORE_FILE_BYTES = 64 * 1024, /* of a core file: its notes come first */
    PATTERN_MAX = 256,           /* the kernel keeps 127 characters */
    FLAG_MAX = 16
};

/* The kernel's log may have told the address before, with the library; the file knows it also where the log may
 * not be read. */
static void read_fault(const char *path, struct worker_evidence *facts)
{
    char bytes[CORE_FILE_BYTES];
    uint64_t address;
    if (!facts->fault_known && core_fault(file_head(path, bytes, CORE_FILE_BYTES), &address)) {
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

/* `status` as from waitpid; `began` is the wall clock before the worker started: older files are not its.
 * Sets the core members of `facts`, and from the core file the address of the fault when it is not known
 * yet.
 * Silent about a signal that never leaves a core: to explain why SIGKILL left none would only distract. */
static void core_look(pid_t pid, int status, time_t began, struct worker_evidence *facts)
{
    if (!WIFSIGNALED(status))
        return;
    if (WCOREDUMP(status))
        find_core(pid, WTERMSIG(status), began, facts);
    else if (writes_core(WTERMSIG(status)))
        excuse_core(facts);
}

/* --- evidence --------------------------------------------------------------------------------------------- */

/* What the files mean is decided in exit_text.c.
 *
 * Everything is read in the moment in which the worker is reaped, before others are stopped: a minute later
 * its control group is gone, /dev/shm has room again, and the log has moved on. That costs the stop of the
 * others about a tenth of a millisecond, so it is done for the first few failures only. */

enum {
    WATCHES_MAX = 24,        /* control groups: ours, the job's, those around them, in two hierarchies */
    LOOKED_AT_MAX = 8,       /* failures of one attempt that are looked at */
    GROUP_FILE_BYTES = 4096, /* of a control group's: the longest, memory.events, has ten numbers */
    FILE_BYTES = 64 * 1024,  /* of others */
    LOG_RECORDS_MAX = 65536, /* of the kernel's log at one time, more than it keeps; a microsecond each */
    LOG_BYTES_MAX = 256 * 1024,
};

struct watch {
    char *dir;               /* owned */
    char name[CGROUP_SHOWN]; /* as in /proc/PID/cgroup */
    struct oom_watch counts;
};

struct evidence {
    struct cgroup_mount mounts[2]; /* of version 1 and 2 */
    bool mounted[2];
    const char *groups; /* our own, as in /proc/self/cgroup; borrowed */
    struct watch watches[WATCHES_MAX];
    size_t n_watches;
    unsigned long long system_kills;
    int log; /* /dev/kmsg, -1 = not to be read */
    struct buf lines;
    time_t began; /* wall clock, for the age of core files */
    struct looked_at {
        int local_rank;
        struct worker_evidence facts;
    } looked_at[LOOKED_AT_MAX];
    size_t n_looked_at;
    int port_rank, port; /* whose port has been taken, and which; 0 = none */
    unsigned port_uid;
    int timer_rank;                /* whose timer has run out, */
    char timer_scope[TIMER_SHOWN]; /* ... and which; "" = none */
};

/* --- control groups ------------------------------------------------------------------------------------- */

/* One read is the whole: the kernel makes the text of such a file in one piece. */
static struct slice read_in(const char *dir, const char *name, char bytes[GROUP_FILE_BYTES])
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, bytes, GROUP_FILE_BYTES) : 0;
    if (fd >= 0)
        close(fd);
    return slice_of(bytes, n > 0 ? (size_t)n : 0);
}

/* "oom" counts in the group whose limit it was, so the file that does not count the groups inside is asked first. False: no
 * such group, or one without the memory controller. */
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

/* Version 1 has no count of its own for "the limit was reached and nothing could be freed"; refused pages come
 * nearest. */
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

/* Read after the end and not before: a limit may be changed while the worker runs, and the peak is complete only
 * now. */
static void read_limits(struct watch *w)
{
    char bytes[GROUP_FILE_BYTES];
    bool v2 = w->counts.v2;
    w->counts.limit = limit_in(read_in(w->dir, CGROUP_LIMIT_FILE(v2), bytes));
    w->counts.peak = limit_in(read_in(w->dir, v2 ? "memory.peak" : "memory.max_usage_in_bytes", bytes));
}

/* The job's group lies below our own, so on the way up both meet the same groups. */
static bool is_watched(const struct evidence *e, const char *dir)
{
    for (size_t i = 0; i < e->n_watches; i++)
        if (strcmp(e->watches[i].dir, dir) == 0)
            return true;
    return false;
}

/* False when it does not fit: then there is nothing at that path to be read either. */
static bool join(char out[PATH_MAX], const char *a, const char *b)
{
    return (size_t)snprintf(out, PATH_MAX, "%s%s", a, b) < PATH_MAX;
}

/* A group without the memory controller has no counters, and is not watched. Where it is met late, what its counters showed
 * before is not known. */
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

/* What lies at `below` the mount and the groups around it, from the inside outwards. */
static void watch_upwards(struct evidence *e, const char *below, bool v2, bool late)
{
    char name[PATH_MAX], dir[PATH_MAX];
    if (!e->mounted[v2] || !join(name, below, ""))
        return;
    for (;;) {
        if (join(dir, e->mounts[v2].where, name))
            watch(e, dir, name, v2, late);
        char *slash = strrchr(name, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

/* A group as /proc/PID/cgroup names it. Of one that cannot be seen from here at least those around it may be; but version 1
 * counts a kill where the victim was and nowhere else. */
static void watch_group(struct evidence *e, const char *group, bool v2, bool late)
{
    const char *below = cgroup_below(group, e->mounts[v2].root);
    if (below != NULL || v2)
        watch_upwards(e, below != NULL ? below : "", v2, late);
}

/* Our own groups, in both hierarchies. */
static void watch_own(struct evidence *e)
{
    char path[CGROUP_PATH_MAX];
    for (int v2 = 0; v2 < 2; v2++)
        if (cgroup_own(e->groups, v2, path))
            watch_group(e, path, v2, false);
}

static void find_mounts(struct evidence *e, const char *mounts)
{
    for (int v2 = 0; v2 < 2; v2++) {
        const char *rest = mounts;
        e->mounted[v2] = cgroup_next_mount(&rest, v2, &e->mounts[v2]);
    }
}

/* The job's own group lies at a path that only its descriptor tells. */
static void watch_job(struct evidence *e, int cgroup_fd)
{
    char link[64], dir[PATH_MAX];
    const char *at = e->mounts[1].where;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", cgroup_fd);
    ssize_t n = cgroup_fd >= 0 ? readlink(link, dir, sizeof(dir) - 1) : -1;
    if (n <= 0)
        return;
    dir[n] = '\0';
    bool below = e->mounted[1] && strncmp(dir, at, strlen(at)) == 0;
    if (below)
        watch_upwards(e, dir + strlen(at), true, false);
}

/* Counted for the whole machine, and to be read by everybody, also where no control group can be. False: not even that. */
static bool system_kills(unsigned long long *kills)
{
    char bytes[FILE_BYTES];
    *kills = 0;
    return counter_in(file_head("/proc/vmstat", bytes, FILE_BYTES), "oom_kill", kills);
}

/* --- the kernel's log ----------------------------------------------------------------------------------- */

/* The number that the first PID namespace of every machine has: there the log's process ids are ours. */
static bool in_first_pid_namespace(void)
{
    char text[64];
    ssize_t n = readlink("/proc/self/ns/pid", text, sizeof(text) - 1);
    return n > 0 && strncmp(text, "pid:[4026531836]", (size_t)n) == 0;
}

/* From here on only what is new is read; other users may not read it at all. */
static void open_log(struct evidence *e)
{
    e->log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (e->log >= 0)
        lseek(e->log, 0, SEEK_END);
}

/* In the weeks of a job other things may fill the log; a worker's end is told in its newest lines. */
static void forget_oldest(struct buf *lines)
{
    const size_t half = lines->len / 2;
    const char *end = lines->len < LOG_BYTES_MAX ? NULL : memchr(lines->data + half, '\n', lines->len - half);
    if (end != NULL)
        buf_consume(lines, (size_t)(end + 1 - (const char *)lines->data));
}

/* Each read is one record, "6,339,5140900,-;text\n". EPIPE: the kernel was faster, and goes on with the oldest it has. */
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

/* All that has come since the start is gone through again for each worker: its line may have come before we heard
 * of its end. The pids there are the host's, so inside a container they would name strangers. */
static void ask_log(struct evidence *e, pid_t pid, struct worker_evidence *facts)
{
    if (!in_first_pid_namespace())
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

/* --- the rest ------------------------------------------------------------------------------------------- */

/* Read at once, since the next worker's end gives memory back; what is free now was too little a moment ago. */
static void look_at_shm(struct worker_evidence *facts)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0)
        return;
    facts->shm_size = (uint64_t)fs.f_blocks * fs.f_frsize;
    facts->shm_free = (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* A pipe whose reader has gone is in error; nothing is written for that. */
static bool reader_is_gone(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP)) != 0;
}

/* Workers inherit our limits, so ours are asked, which needs no permission. */
static uint64_t soft_limit(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : 0;
}

static void look_at_cpu(struct worker_evidence *facts)
{
    char bytes[FILE_BYTES];
    struct slice text = file_head("/proc/cpuinfo", bytes, FILE_BYTES);
    const char *p = memmem(text.data, text.len, "model name\t: ", 13);
    if (p != NULL)
        snprintf(facts->cpu, sizeof(facts->cpu), "%.*s", (int)strcspn(p + 13, "\n"), p + 13);
}

/* A tool in front of the program may have moved the worker to a group of its own. Where the log names that,
 * its counters are read, too. */
static void look_at_memory(struct evidence *e, struct worker_evidence *facts)
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
    oom_judge(counts, e->n_watches, now > e->system_kills ? now - e->system_kills : 0, facts);
}

/* Each of these looks costs a few system calls, so only those are made that a sentence about this signal could
 * use. */
static void look_at_signal(struct evidence *e, pid_t pid, int status, struct worker_evidence *facts)
{
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (sig == SIGPIPE) {
        facts->stdout_gone = reader_is_gone(STDOUT_FILENO);
        facts->stderr_gone = reader_is_gone(STDERR_FILENO);
    }
    if (sig == SIGILL)
        look_at_cpu(facts);
    facts->cpu_limit_s = soft_limit(RLIMIT_CPU);
    facts->file_limit = soft_limit(RLIMIT_FSIZE);
    core_look(pid, status, e->began, facts);
}

/* --- interface ------------------------------------------------------------------------------------------ */

/* The mounts are found once: where the hierarchies lie does not change while a job runs. */
struct evidence *evidence_new(const char *mounts, const char *groups)
{
    struct evidence *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return NULL;
    e->groups = groups;
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
    e->n_looked_at = 0;
    e->timer_scope[0] = '\0';
    e->port = 0;
    forget_watches(e);
    watch_job(e, cgroup_fd);
    watch_own(e);
    if (e->n_watches == 0) /* oom_judge looks at it then only */
        system_kills(&e->system_kills);
    e->began = time(NULL);
}

/* The log first: it may name a control group, whose counters are then read, too. */
void evidence_ended(struct evidence *e, int local_rank, pid_t pid, int status, const struct rusage *usage)
{
    if (e == NULL || e->n_looked_at == LOOKED_AT_MAX)
        return;
    struct looked_at *l = &e->looked_at[e->n_looked_at++];
    *l = (struct looked_at){ .local_rank = local_rank,
                             .facts.peak_rss = (uint64_t)usage->ru_maxrss * 1024 }; /* it is in KiB */
    ask_log(e, pid, &l->facts);
    look_at_memory(e, &l->facts);
    look_at_shm(&l->facts);
    look_at_signal(e, pid, status, &l->facts);
    if (e->timer_scope[0] != '\0' && e->timer_rank == local_rank)
        snprintf(l->facts.timer, sizeof(l->facts.timer), "%s", e->timer_scope);
    if (e->port_rank == local_rank) {
        l->facts.port = e->port;
        l->facts.port_uid = e->port_uid;
    }
}

void evidence_port_taken(struct evidence *e, int local_rank, int port, unsigned uid)
{
    if (e == NULL)
        return;
    e->port_rank = local_rank;
    e->port = port;
    e->port_uid = uid;
}

/* The first one counts: it is the one that ends the attempt. */
void evidence_timer(struct evidence *e, int local_rank, const char *scope)
{
    if (e == NULL || e->timer_scope[0] != '\0')
        return;
    e->timer_rank = local_rank;
    snprintf(e->timer_scope, sizeof(e->timer_scope), "%s", scope);
}

const struct worker_evidence *evidence_of(const struct evidence *e, int local_rank)
{
    for (size_t i = 0; e != NULL && i < e->n_looked_at; i++)
        if (e->looked_at[i].local_rank == local_rank)
            return &e->looked_at[i].facts;
    return NULL;
}
