/* record.c -- see record.h.
 *
 * A pid names a process only together with its start time, both only on one boot of one machine and inside one PID
 * namespace: the record has all four, and what does not fit is left alone until its boot or its namespace is over. Who is
 * killed is decided by the cookie (leftovers.c) and by the name of the control group, never by a pid from the record.
 *
 * At a start without dead jobs all this is four directories that are opened and mostly not there. */
#include "contain/record.h"

#include "contain/cgroup.h"
#include "contain/leftovers.h"
#include "contain/procfs.h"
#include "contain/record_text.h"
#include "contain/runtime_dir.h"

#include "base/clock.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    RECORDS_MAX = 256, /* looked at; a user has fewer jobs on one host */
    TURN_MS = 5,       /* between two looks whether it is our turn */
    DEAF_S = 60,       /* a FIFO is opened right after it was made */
    STORE_NAME_MAX = RUNTIME_NAME_DIGITS + sizeof(".store")
};

/* --- write and remove ------------------------------------------------------------------------------------ */

static bool who_is(pid_t pid, struct record_process *to)
{
    struct proc_stat stat = { 0 };
    if (pid == getpid())
        stat.start_ticks = procfs_own_start();
    else if (!procfs_stat(pid, &stat))
        return false;
    *to = (struct record_process){ .pid = (int)pid, .start_ticks = stat.start_ticks };
    return stat.start_ticks != 0;
}

static bool look_where_we_are(struct record *r)
{
    struct stat st;
    const char *boot = procfs_boot_id();
    if (boot[0] == '\0' || stat("/proc/self/ns/pid", &st) != 0)
        return false;
    snprintf(r->boot, sizeof(r->boot), "%s", boot);
    r->pid_namespace = st.st_ino;
    return true;
}

/* What pids are worth: this boot, this namespace. Both are the same for our whole life, and the agent's. */
static bool where_are_we(struct record *r)
{
    static struct record here;
    if (here.boot[0] == '\0' && !look_where_we_are(&here))
        return false;
    memcpy(r->boot, here.boot, sizeof(r->boot));
    r->pid_namespace = here.pid_namespace;
    return true;
}

/* Under a name that no reader takes for a record, then renamed: nobody ever sees half of one. */
static bool put_file(int dir, const char *name, const struct buf *text)
{
    char draft[COOKIE_CHARS + 16];
    snprintf(draft, sizeof(draft), ".%s", name);
    int fd = openat(dir, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    ssize_t n = write(fd, text->data, text->len);
    int error = n < 0 ? errno : n < (ssize_t)text->len ? ENOSPC : 0;
    close(fd);
    if (error == 0 && renameat(dir, draft, dir, name) == 0)
        return true;
    error = error != 0 ? error : errno;
    unlinkat(dir, draft, 0);
    errno = error;
    return false;
}

/* The text is made before the directory, so that a failure leaves nothing. */
ddp_status record_write(const char *job, const char *cookie, const char *cgroup, pid_t guardian, pid_t agent,
                        struct ddp_err *err)
{
    char path[PATH_MAX] = "";
    struct buf text = { 0 };
    struct record r = { 0 };
    snprintf(r.job, sizeof(r.job), "%s", job);
    snprintf(r.cookie, sizeof(r.cookie), "%s", cookie);
    snprintf(r.cgroup, sizeof(r.cgroup), "%s", cgroup);
    if (!where_are_we(&r) || !who_is(guardian, &r.guardian) || !who_is(agent, &r.agent) ||
        !record_print(&text, &r)) {
        buf_free(&text);
        return ddp_fail(err, DDP_ERR_IO, "/proc does not tell who we are");
    }
    int dir = runtime_dir_make(path);
    bool ok = dir >= 0 && put_file(dir, cookie, &text);
    int error = errno;
    if (dir >= 0)
        close(dir);
    buf_free(&text);
    return ok ? DDP_OK : ddp_fail(err, DDP_ERR_IO, "cannot write to %s: %s", path, strerror(error));
}

static void store_file_name(char name[STORE_NAME_MAX], const char *cookie)
{
    snprintf(name, STORE_NAME_MAX, "%.*s.store", RUNTIME_NAME_DIGITS, cookie);
}

void record_write_store(const char *cookie, const char *address)
{
    char path[PATH_MAX], name[STORE_NAME_MAX];
    const struct buf text = { .data = (uint8_t *)address, .len = strlen(address) };
    const int dir = runtime_dir_make(path);
    store_file_name(name, cookie);
    if (dir >= 0) {
        put_file(dir, name, &text);
        close(dir);
    }
}

/* The record, or "DIGITS.more", what a worker has left: a file, or whatever it has put in place of one. */
static bool is_of(const char *name, const char *cookie)
{
    return strcmp(name, cookie) == 0 ||
           (strncmp(name, cookie, RUNTIME_NAME_DIGITS) == 0 && name[RUNTIME_NAME_DIGITS] == '.');
}

/* By a descriptor of its own, since closedir takes it along. NULL: there is none, or no memory. */
static DIR *entries_of(int dir)
{
    int copy = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (d == NULL && copy >= 0)
        close(copy);
    return d;
}

static void remove_files(int dir, const char *cookie)
{
    DIR *d = entries_of(dir);
    if (d == NULL)
        return;
    rewinddir(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (is_of(e->d_name, cookie) && unlinkat(dir, e->d_name, 0) != 0)
            unlinkat(dir, e->d_name, AT_REMOVEDIR);
    closedir(d);
}

/* Wherever they were put: the environment decided that then, and may be another now. */
void record_remove(const char *cookie)
{
    for (int i = 0; i < RUNTIME_DIRS; i++) {
        int dir = runtime_dir_open(i);
        if (dir >= 0) {
            remove_files(dir, cookie);
            close(dir);
        }
    }
}

/* --- look ------------------------------------------------------------------------------------------------ */

/* A text file of this user's, with a NUL behind its end. False: there is none, it is empty, or another user owns it. */
static bool read_own_file(int dir, const char *name, char *text, size_t size)
{
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
        n = read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 && (size_t)n == strlen(text);
}

/* False: no record of ours. */
static bool read_record(int dir, const char *name, struct record *r)
{
    char text[RECORD_MAX];
    return read_own_file(dir, name, text, sizeof(text)) && record_parse(text, r) &&
           strcmp(r->cookie, name) == 0;
}

/* A zombie holds its pid and start time, and starts nobody any more. That holds when its last thread has ended, not before:
 * while the agent is dying thread by thread, a worker that it has just cloned takes a thread that is left for its parent,
 * and runs on, with the agent's environment and without the cookie until its execve. Whoever looked then would find
 * nobody, and take the record away. */
static bool is_alive(const struct record_process *p)
{
    struct proc_stat stat;
    return procfs_stat(p->pid, &stat) && stat.start_ticks == p->start_ticks && !proc_stat_is_dead(&stat);
}

/* Of another PID namespace nobody has a number here. But with its last process it is gone, and with it all that the job was. */
static bool is_running(const struct record *r, const struct record *here)
{
    return r->pid_namespace == here->pid_namespace ? is_alive(&r->guardian) || is_alive(&r->agent)
                                                   : procfs_namespace_lives(r->pid_namespace);
}

/* One line for the user, whose processes have just been killed without his asking. */
static void say(const struct record *r, int killed, bool all)
{
    if (killed > 0)
        log_info("job '%s' was left without ddprun (pids %d and %d were killed); its %d remaining process%s "
                 "been killed now",
                 r->job, r->guardian.pid, r->agent.pid, killed, killed == 1 ? " has" : "es have");
    if (!all)
        log_warn("job '%s' was left without ddprun, and not all of its processes can be killed", r->job);
}

/* True when nothing is left of the job. */
static bool bury(const struct record *r, bool quiet)
{
    struct leftovers l = { .cookie = r->cookie, .start_ticks = r->agent.start_ticks };
    int in_group = r->cgroup[0] != '\0' ? cgroup_count(r->cgroup) : 0;
    if (in_group > 0)
        cgroup_kill(r->cgroup);
    bool all = leftovers_kill(&l, SWEEP_LIMIT_MS);
    if (r->cgroup[0] != '\0')
        all = cgroup_remove(r->cgroup, SWEEP_LIMIT_MS) && all;
    if (!quiet)
        say(r, in_group > l.killed ? in_group : l.killed, all);
    return all;
}

/* Only one start buries at a time: it takes a processor for itself (hurry.h), and with a second one of its kind nothing would be
 * left for the dying to die on. Behind one that takes too long we go on all the same. */
static void take_turn(int dir)
{
    const uint64_t end = clock_ms() + SWEEP_LIMIT_MS;
    while (flock(dir, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && clock_ms() < end)
        poll(NULL, 0, TURN_MS);
}

/* True when nothing is left of the job and its files, whoever was the first to see to that. */
static bool bury_in_turn(int dir, struct record *r, bool quiet)
{
    char cookie[sizeof(r->cookie)];
    memcpy(cookie, r->cookie, sizeof(cookie));
    take_turn(dir);
    const bool still_there = read_record(dir, cookie, r), buried = !still_there || bury(r, quiet);
    if (still_there && buried)
        remove_files(dir, cookie);
    flock(dir, LOCK_UN);
    return buried;
}

/* True when a record was taken away because its job was dead: then one of those it had started may be dead, too. */
static bool look_at(int dir, const char *name, const struct record *here, bool quiet)
{
    struct record r;
    if (!read_record(dir, name, &r))
        return false;
    if (strcmp(r.boot, here->boot) != 0) {
        remove_files(dir, r.cookie);
        return false;
    }
    if (is_running(&r, here) || leftovers_is_marked(0, r.cookie))
        return false;
    return bury_in_turn(dir, &r, quiet);
}

/* A FIFO of workers' timers that nobody reads any more: its job was killed before it had a
 * record. */
static void remove_deaf(int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISFIFO(st.st_mode) ||
        time(NULL) - st.st_mtime < DEAF_S)
        return;
    const int fd = openat(dir, name, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    else if (errno == ENXIO)
        unlinkat(dir, name, 0);
}

/* How many jobs were buried? */
static int look_through(int dir, const struct record *here, bool quiet)
{
    int seen = 0, buried = 0;
    DIR *d = entries_of(dir);
    if (d == NULL)
        return 0;
    rewinddir(d);
    for (struct dirent *e; seen < RECORDS_MAX && (e = readdir(d)) != NULL;) {
        if (e->d_type == DT_FIFO || e->d_type == DT_UNKNOWN)
            remove_deaf(dir, e->d_name);
        if (e->d_name[0] == '.' || strlen(e->d_name) != COOKIE_CHARS)
            continue;
        seen++;
        buried += look_at(dir, e->d_name, here, quiet);
    }
    closedir(d);
    return buried;
}

/* A job may have started another one by ddprun, whose record becomes one of the dead by the death of the first: so
 * each directory is looked through until nothing more is found. */
void record_sweep(bool quiet)
{
    struct record here = { 0 };
    bool known = false;
    for (int i = 0; i < RUNTIME_DIRS; i++) {
        int dir = runtime_dir_open(i);
        if (dir < 0)
            continue;
        known = known || where_are_we(&here);
        while (known && look_through(dir, &here, quiet) > 0)
            continue;
        close(dir);
    }
}

/* --- running jobs ---------------------------------------------------------------------------------------- */

/* The kernel counts the start of a process from boot, with the time of sleep. */
static uint64_t age_ms(const struct record_process *p)
{
    struct timespec now;
    const uint64_t start_ms = p->start_ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
    if (clock_gettime(CLOCK_BOOTTIME, &now) != 0)
        return 0;
    const uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    return now_ms > start_ms ? now_ms - start_ms : 0;
}

/* A job of another PID namespace has pids that mean nothing here, and mostly a network of its own. */
static bool find_job(int dir, const char *cookie, const struct record *here, struct record_job *job)
{
    struct record r;
    char name[STORE_NAME_MAX];
    if (strlen(cookie) != COOKIE_CHARS || !read_record(dir, cookie, &r) || strcmp(r.boot, here->boot) != 0 ||
        r.pid_namespace != here->pid_namespace || !is_running(&r, here))
        return false;
    store_file_name(name, r.cookie);
    if (!read_own_file(dir, name, job->store, sizeof(job->store)))
        return false;
    memcpy(job->job, r.job, sizeof(job->job));
    job->pid = r.guardian.pid;
    job->age_ms = age_ms(&r.guardian);
    return true;
}

void record_each(void (*visit)(void *user, const struct record_job *job), void *user)
{
    struct record here = { 0 };
    struct record_job job;
    for (int i = 0; i < RUNTIME_DIRS && where_are_we(&here); i++) {
        const int dir = runtime_dir_open(i);
        DIR *d = dir >= 0 ? entries_of(dir) : NULL;
        for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
            if (find_job(dir, e->d_name, &here, &job))
                visit(user, &job);
        if (d != NULL)
            closedir(d);
        if (dir >= 0)
            close(dir);
    }
}
