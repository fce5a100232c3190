/* job_record.c -- see job_record.h. A record only shows whether its job still runs; the job's cookie and control group
 * select the processes to kill, because a pid may be reused. The parts of this file are, in this order: safe
 * directories, the runtime directory, the text of a record, finding processes by their cookie, cleaning up after dead
 * jobs. */
#include "contain/job_record.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "contain/cgroup.h"
#include "contain/descendants.h"
#include "contain/procfs.h"
#include "tables/worker_env.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Return true if `owner` may own a directory or a program that ddprun uses. In a user namespace, files of the host's
 * root user may have the overflow uid as their owner. "/" then has the same owner, so the owner of "/" is trusted. */
static bool is_trusted(uid_t owner)
{
    struct stat root;
    return owner == geteuid() || owner == 0 || (stat("/", &root) == 0 && owner == root.st_uid);
}

/* Return true if other users may write to a file or directory. If this user owns the file, write permission for the
 * user's own group does not count, because on many systems each user has a private group, for example group "bob" of
 * user "bob". */
static bool is_writable_for_others(const struct stat *st)
{
    const bool own_group = st->st_uid == geteuid() && st->st_gid == getegid();
    return (st->st_mode & S_IWOTH) != 0 || ((st->st_mode & S_IWGRP) != 0 && !own_group);
}

/* Check one directory, without the directories above. If it is unsafe, return false and write the reason to `why`. */
static bool is_safe(const char *dir, char why[SAFE_DIR_WHY_MAX])
{
    struct stat st;
    if (stat(dir, &st) != 0)
        snprintf(why, SAFE_DIR_WHY_MAX, "%.100s: %s", dir, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        snprintf(why, SAFE_DIR_WHY_MAX, "%.100s is not a directory", dir);
    else if (!is_trusted(st.st_uid))
        snprintf(why, SAFE_DIR_WHY_MAX, "%.100s belongs to uid %u", dir, (unsigned)st.st_uid);
    else if (is_writable_for_others(&st) && (st.st_mode & S_ISVTX) == 0)
        snprintf(why, SAFE_DIR_WHY_MAX,
                 "other users can replace files in %.100s (mode %03o, no sticky "
                 "bit)",
                 dir, (unsigned)st.st_mode & 0777);
    else
        return true;
    return false;
}

/* Check the directory, then each one above, so that `why` names the nearest unsafe directory. */
bool safe_dir(const char *path, char out[PATH_MAX], char why[SAFE_DIR_WHY_MAX])
{
    char above[PATH_MAX];
    why[0] = '\0';
    if (realpath(path, out) == NULL) {
        snprintf(why, SAFE_DIR_WHY_MAX, "%.100s: %s", path, strerror(errno));
        return false;
    }
    /* If a directory is unsafe, errno stays EACCES. If stat() fails in is_safe(), stat() sets another errno. */
    errno = EACCES;
    memcpy(above, out, strlen(out) + 1);
    while (is_safe(above, why)) {
        char *slash = strrchr(above, '/');
        if (slash == above && above[1] == '\0')
            return true;
        slash[slash == above] = '\0';
    }
    return false;
}

bool safe_program(const char *path, char out[PATH_MAX], char why[SAFE_DIR_WHY_MAX])
{
    char dir[PATH_MAX], real[PATH_MAX];
    struct stat st;
    if (realpath(path, out) == NULL || stat(out, &st) != 0) {
        snprintf(why, SAFE_DIR_WHY_MAX, "%.100s: %s", path, strerror(errno));
        return false;
    }
    if (!is_trusted(st.st_uid) || is_writable_for_others(&st)) {
        snprintf(why, SAFE_DIR_WHY_MAX, "%.100s belongs to uid %u, mode %03o", out, (unsigned)st.st_uid,
                 (unsigned)st.st_mode & 0777);
        return false;
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(out, '/') - out) + (strrchr(out, '/') == out), out);
    return safe_dir(dir, real, why);
}

/* --- runtime dir ------------------------------------------------------------------------------------------ */

/* Another user may have created a directory or a link with ddprun's name in /tmp. So follow no links, check the opened
 * directory, and create files relative to its descriptor. */

/* Format the n-th candidate directory. Return false if no such candidate exists. ssh and sudo often remove
 * XDG_RUNTIME_DIR, so /run/user/UID is a candidate even if this variable is not set. /tmp precedes $TMPDIR, because a
 * batch system gives each job its own TMPDIR, where the next start would not find a record. */
static bool place(int n, char out[PATH_MAX])
{
    static const char *const variables[RUNTIME_DIRS] = { [0] = "XDG_RUNTIME_DIR", [3] = "TMPDIR" };
    const char *below = variables[n] != NULL ? getenv(variables[n]) : "/";
    const unsigned uid = geteuid();
    int len;
    if (below == NULL || below[0] != '/')
        return false;
    if (n == 0)
        len = snprintf(out, PATH_MAX, "%s/ddprun", below);
    else if (n == 1)
        len = snprintf(out, PATH_MAX, "/run/user/%u/ddprun", uid);
    else
        len = snprintf(out, PATH_MAX, "%s/ddprun-%u", n == 2 ? "/tmp" : n == 3 ? below : "/var/tmp", uid);
    return len < PATH_MAX;
}

/* Format the path of the n-th candidate, after resolving all links in the directories above the candidate. If a
 * directory above the candidate is not safe, do not resolve links, and return false. */
static bool safe_place(int n, char out[PATH_MAX])
{
    char path[PATH_MAX], why[SAFE_DIR_WHY_MAX];
    if (!place(n, path))
        return false;
    char *name = strrchr(path, '/');
    *name++ = '\0';
    if (!safe_dir(path, out, why)) {
        place(n, out);
        return false;
    }
    const size_t len = strlen(out);
    return (size_t)snprintf(out + len, PATH_MAX - len, "/%s", name) < PATH_MAX - len;
}

/* Open the directory if only this user can use it. Return -1 and set errno if the directory is missing or not
 * safe. */
static int open_own(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 077) == 0)
        return fd;
    if (fd >= 0) {
        close(fd);
        errno = EACCES;
    }
    return -1;
}

int runtime_dir_open(int n)
{
    char path[PATH_MAX];
    struct stat st, earlier;
    int fd = place(n, path) ? open_own(path) : -1;
    for (int i = 0; i < n && fd >= 0; i++)
        if (place(i, path) && lstat(path, &earlier) == 0 && fstat(fd, &st) == 0 &&
            earlier.st_dev == st.st_dev && earlier.st_ino == st.st_ino) {
            close(fd);
            fd = -1;
        }
    return fd;
}

/* Create the runtime directory, or use the directory if it exists: another start may create it at the same time. Try
 * the directory of the previous call first, because checking the directories above takes time in each start. */
int runtime_dir_make(char path[PATH_MAX])
{
    static char made[PATH_MAX];
    int fd = made[0] != '\0' ? open_own(made) : -1;
    snprintf(path, PATH_MAX, "%s", fd >= 0 ? made : "");
    for (int i = 0; fd < 0 && i < RUNTIME_DIRS; i++)
        if (safe_place(i, path) && (mkdir(path, 0700) == 0 || errno == EEXIST))
            fd = open_own(path);
    if (fd >= 0)
        memcpy(made, path, strlen(path) + 1);
    return fd;
}

/* Return true if the directory exists, or if this process may create it. Create nothing. */
static bool is_usable(const char *path)
{
    char parent[PATH_MAX];
    int fd = open_own(path);
    if (fd >= 0) {
        close(fd);
        return true;
    }
    snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(path, '/') - path), path);
    return errno == ENOENT && faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) == 0;
}

bool runtime_dir_find(char path[PATH_MAX])
{
    for (int i = 0; i < RUNTIME_DIRS; i++)
        if (safe_place(i, path) && is_usable(path))
            return true;
    return false;
}

/* --- record text ------------------------------------------------------------------------------------------ */

/* A record has exactly these lines in this order. The last line is missing as long as the address of the store is
 * unknown:
 *
 *     ddprun-record 1
 *     boot 0f1c8a6e-6a51-4c0b-9d53-1f6f4f4f2b55
 *     pid_namespace 4026531836
 *     guardian 812 4711
 *     agent 813 4712
 *     cookie 6ab2745628734b15bf11998535d9b413
 *     cgroup /sys/fs/cgroup/ddprun-j-6ab27456
 *     job j
 *     store 127.0.0.1:29500 */

static bool one_line(const char *text)
{
    return strchr(text, '\n') == NULL;
}

/* The pid and the start time of a process. */
struct record_process {
    int pid;
    uint64_t start_ticks;
};

struct record {
    /* id of the boot; pids and start times are valid only until the next boot */
    char boot[RECORD_BOOT_CHARS + 1];
    uint64_t pid_namespace; /* PID namespace in which the pids are valid */
    struct record_process guardian, agent;
    char cookie[COOKIE_CHARS + 1];
    char job[RECORD_JOB_MAX];
    char cgroup[CGROUP_PATH_MAX];  /* directory of the job's control group; "" without a control group */
    char store[ENDPOINT_TEXT_MAX]; /* address of the job's store; "" until it is known */
};

/* Append the text of a record. Return false if memory is short, or if a field of the record contains a newline. */
static bool record_print(struct buf *out, const struct record *r)
{
    return one_line(r->boot) && one_line(r->cgroup) && one_line(r->job) &&
           buf_printf(out,
                      "ddprun-record 1\nboot %s\npid_namespace %llu\nguardian %d %llu\nagent %d %llu\n"
                      "cookie %s\ncgroup %s\njob %s\n",
                      r->boot, (unsigned long long)r->pid_namespace, r->guardian.pid,
                      (unsigned long long)r->guardian.start_ticks, r->agent.pid,
                      (unsigned long long)r->agent.start_ticks, r->cookie, r->cgroup, r->job);
}

/* Copy the value after "name " in the line at *at, and move *at to the next line. Return false if the line has
 * another name, or if the value does not fit. */
static bool record_copy_field(const char **at, const char *name, char *value, size_t size)
{
    size_t len = strlen(name), n = strcspn(*at, "\n");
    if (n <= len || strncmp(*at, name, len) != 0 || (*at)[len] != ' ' || (*at)[n] != '\n' || n - len > size)
        return false;
    memcpy(value, *at + len + 1, n - len - 1);
    value[n - len - 1] = '\0';
    *at += n + 1;
    return true;
}

/* Parse decimal digits at *at and skip the space after the digits. Return false if *at is no digit, or if the number is
 * above `limit`. */
static bool parse_number(const char **at, uint64_t limit, uint64_t *to)
{
    size_t n = strspn(*at, "0123456789");
    *to = 0;
    if (n == 0 || n > 19 || ((*at)[n] != '\0' && (*at)[n] != ' '))
        return false;
    for (size_t i = 0; i < n; i++)
        *to = *to * 10 + (uint64_t)((*at)[i] - '0');
    *at += n + ((*at)[n] == ' ');
    return *to <= limit;
}

static bool read_process(const char **at, const char *name, struct record_process *to)
{
    char value[64];
    const char *p = value;
    uint64_t pid;
    if (!record_copy_field(at, name, value, sizeof(value)) || !parse_number(&p, INT32_MAX, &pid) ||
        !parse_number(&p, UINT64_MAX, &to->start_ticks))
        return false;
    to->pid = (int)pid;
    return pid > 0 && *p == '\0';
}

static bool read_namespace(const char **at, uint64_t *to)
{
    char value[32];
    const char *p = value;
    return record_copy_field(at, "pid_namespace", value, sizeof(value)) && parse_number(&p, UINT64_MAX, to) &&
           *p == '\0';
}

static bool is_cookie(const char *text)
{
    return strlen(text) == COOKIE_CHARS && strspn(text, "0123456789abcdef") == COOKIE_CHARS;
}

/* Return true if a control group may be killed: the last part of the path must be the name of a ddprun group with this
 * job's cookie. Otherwise a damaged record could make ddprun kill other processes. */
static bool is_our_group(const char *path, const char *cookie)
{
    const char *name = strrchr(path, '/');
    size_t len = strlen(path);
    return path[0] == '/' && strstr(path, "/../") == NULL && strncmp(name, "/ddprun-", 8) == 0 && len > 9 &&
           path[len - 9] == '-' && strncmp(path + len - 8, cookie, 8) == 0;
}

/* Parse the line of the store, which may be missing or incomplete, because the agent appends the line later. If there
 * are several lines, use the last one. Return false if another text follows. */
static bool read_store(const char *at, char store[ENDPOINT_TEXT_MAX])
{
    static const char name[] = "store ";
    while (record_copy_field(&at, "store", store, ENDPOINT_TEXT_MAX))
        continue;
    const size_t len = strlen(at);
    return one_line(at) && strncmp(at, name, len < sizeof(name) - 1 ? len : sizeof(name) - 1) == 0;
}

/* Parse the whole text of a record. Return false if the text is not a record. */
static bool record_parse(const char *text, struct record *out)
{
    char version[8];
    const char *at = text;
    *out = (struct record){ 0 };
    return record_copy_field(&at, "ddprun-record", version, sizeof(version)) && strcmp(version, "1") == 0 &&
           record_copy_field(&at, "boot", out->boot, sizeof(out->boot)) &&
           read_namespace(&at, &out->pid_namespace) && read_process(&at, "guardian", &out->guardian) &&
           read_process(&at, "agent", &out->agent) &&
           record_copy_field(&at, "cookie", out->cookie, sizeof(out->cookie)) && is_cookie(out->cookie) &&
           record_copy_field(&at, "cgroup", out->cgroup, sizeof(out->cgroup)) &&
           (out->cgroup[0] == '\0' || is_our_group(out->cgroup, out->cookie)) &&
           record_copy_field(&at, "job", out->job, sizeof(out->job)) && read_store(at, out->store);
}

/* --- leftovers -------------------------------------------------------------------------------------------- */

/* A process is killed if its environment contains the mark, which is DDPRUN_COOKIE with the cookie of the dead job. A
 * pid may be reused between check and signal. So ddprun opens a pidfd, reads environment and start time, and signals
 * the pidfd. A signal to a pidfd whose process is gone has no effect.
 *
 * /proc is read in ascending order. A new process usually has a higher pid than its parent, so one pass also finds
 * processes that are created meanwhile. A second pass is needed because pids wrap around. */

enum {
    MARK_MAX = 32 + COOKIE_CHARS, /* characters of "DDPRUN_COOKIE=<cookie>" and the NUL that ends an entry */
    CHASES = 40,                  /* number of times that one call of chase() reads the newest pid */
    SCANS = 50,        /* after each read of the newest pid, all AHEAD pids are checked this many times */
    AHEAD = 16,        /* chase() checks this number of pids, right above the newest pid */
    BLOCK = 64 * 1024, /* bytes read at a time */
    ENVIRONMENT_MAX = 8 * 1024 * 1024 /* bytes; the kernel allows no larger environment */
};

/* Return true if this piece of an environment contains the entry `mark` (with its NUL). If `first` is true, an entry
 * begins at the piece's first byte. */
static bool has_mark(const char *piece, size_t len, const char *mark, size_t mark_len, bool first)
{
    const char *at = piece, *found;
    while ((found = memmem(at, len - (size_t)(at - piece), mark, mark_len)) != NULL) {
        if ((found == piece && first) || (found > piece && found[-1] == '\0'))
            return true;
        at = found + 1;
    }
    return false;
}

/* Return true if the environment that is read from `fd` contains the cookie. Search the environment in blocks. Keep
 * the end of each block for the next search, because an entry may cross the border of two blocks. */
static bool environment_has(int fd, const char *cookie)
{
    char piece[BLOCK], mark[MARK_MAX];
    const char *name = worker_env_name(ENV_DDPRUN_COOKIE);
    size_t mark_len = (size_t)snprintf(mark, sizeof(mark), "%s=%.*s", name, COOKIE_CHARS, cookie) + 1;
    size_t kept = 0, total = 0;
    ssize_t n;
    bool found = false, first = true;
    while (!found && total < ENVIRONMENT_MAX && (n = read(fd, piece + kept, sizeof(piece) - kept)) > 0) {
        size_t len = kept + (size_t)n;
        found = has_mark(piece, len, mark, mark_len, first);
        kept = len < mark_len ? len : mark_len;
        first = first && kept == len;
        memmove(piece, piece + len - kept, kept);
        total += (size_t)n;
    }
    return found;
}

/* Return true if the environment of `pid` (0 for this process) contains the cookie. */
static bool leftovers_is_marked(int pid, const char *cookie)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/environ", pid != 0 ? pid : (int)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool found = fd >= 0 && environment_has(fd, cookie);
    if (fd >= 0)
        close(fd);
    return found;
}

struct leftovers {
    const char *cookie;   /* value of DDPRUN_COOKIE */
    uint64_t start_ticks; /* earliest start time that a process of the job can have */
    int killed;           /* result: number of killed processes */
};

/* Kill process `pid` if this process belongs to the job. Return true if the process was killed. */
static bool kill_one(const struct leftovers *l, pid_t pid)
{
    struct proc_stat stat;
    if (pid == getpid() || !leftovers_is_marked(pid, l->cookie))
        return false;
    int pidfd = pids_hold(pid);
    bool of_job = pidfd >= 0 && procfs_stat(pid, &stat) && stat.start_ticks >= l->start_ticks &&
                  leftovers_is_marked(pid, l->cookie) && pids_signal(pidfd, SIGKILL);
    if (pidfd >= 0)
        close(pidfd);
    return of_job;
}

/* Return true if the process belongs to this user. For root, return true for any process. */
static bool is_of_this_user(DIR *proc, const char *name)
{
    struct stat st;
    return geteuid() == 0 || (fstatat(dirfd(proc), name, &st, 0) == 0 && st.st_uid == geteuid());
}

/* Kill the job's processes in one pass over /proc, and return their number. */
static int kill_pass(const struct leftovers *l)
{
    int found = 0;
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return 0;
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && is_of_this_user(proc, e->d_name) && kill_one(l, pid))
            found++;
    }
    closedir(proc);
    return found;
}

/* --- chains of processes ------------------------------------------------------------------------------------- */

/* Kill `pid` if it belongs to the job. An unused pid costs only one system call. */
static bool kill_newborn(const struct leftovers *l, pid_t pid)
{
    struct proc_stat stat;
    int pidfd = pids_hold(pid);
    if (pidfd < 0)
        return false;
    bool of_job = leftovers_is_marked(pid, l->cookie) && procfs_stat(pid, &stat) &&
                  stat.start_ticks >= l->start_ticks && pids_signal(pidfd, SIGKILL);
    close(pidfd);
    return of_job;
}

/* Kill a chain of processes in which each process forks and exits at once. Return the number of killed processes. A
 * process may live for only 0.1 ms, which is too short for a pass over /proc. So check only the AHEAD pids right above
 * the newest pid, because the next process of the chain gets one of these pids. */
static int chase(const struct leftovers *l)
{
    int found = 0;
    for (int round = 0; round < CHASES; round++) {
        const pid_t newest = pids_newest();
        for (int scan = 0; scan < SCANS && newest > 0; scan++)
            for (pid_t pid = newest + 1; pid <= newest + AHEAD; pid++)
                found += kill_newborn(l, pid);
    }
    return found;
}

/* Send SIGKILL to the job's processes until two passes find no process. Return false if a process remains after
 * `limit_ms`. Also return false on a kernel without pidfds, where a signal to a reused pid could hit another
 * process. */
static bool leftovers_kill(struct leftovers *l, uint64_t limit_ms)
{
    uint64_t end = clock_ms() + limit_ms;
    int before = 0, clean_scans = 0;
    struct killer_priority priority;
    if (!pids_can_hold())
        return false;
    killer_priority_raise(&priority);
    while (clean_scans < 2 && clock_ms() < end) {
        int found = kill_pass(l);
        /* a pass finds killed processes again until they end, so count only the increase */
        l->killed += found > before ? found - before : 0;
        clean_scans = found == 0 ? clean_scans + 1 : 0;
        /* If this pass has found no more processes than the previous pass, the killed processes have not ended yet, or
         * each killed process has forked a new process. */
        if (found > 0 && found <= before) {
            poll(NULL, 0, 1);
            l->killed += chase(l);
        }
        before = found;
    }
    killer_priority_restore(&priority);
    return clean_scans == 2;
}

/* --- record ----------------------------------------------------------------------------------------------- */

/* A record identifies a process by pid, start time, boot id, and PID namespace, but only to show whether the job still
 * runs. The job's cookie and control group select the processes to kill. */

enum {
    RECORDS_MAX = 256, /* largest number of records that one pass examines */
    TURN_MS = 5,       /* milliseconds between two attempts to get the lock */
    LITTER_S = 60      /* seconds after which an unused FIFO or a draft of a record is removed */
};

/* --- write and remove ------------------------------------------------------------------------------------ */

/* Fill in the pid and the start time of a process. Return false if the time cannot be read. */
static bool identify_process(pid_t pid, struct record_process *to)
{
    struct proc_stat stat = { 0 };
    if (pid == getpid())
        stat.start_ticks = procfs_own_start();
    else if (!procfs_stat(pid, &stat))
        return false;
    *to = (struct record_process){ .pid = (int)pid, .start_ticks = stat.start_ticks };
    return stat.start_ticks != 0;
}

/* Read this process's boot id and PID namespace. Return false if /proc does not show both. */
static bool read_own_record(struct record *r)
{
    struct stat st;
    const char *boot = procfs_boot_id();
    if (boot[0] == '\0' || stat("/proc/self/ns/pid", &st) != 0)
        return false;
    snprintf(r->boot, sizeof(r->boot), "%s", boot);
    r->pid_namespace = st.st_ino;
    return true;
}

/* Fill in the boot id and the PID namespace of this process. Keep both values for later calls. */
static bool where_are_we(struct record *r)
{
    static struct record here;
    if (here.boot[0] == '\0' && !read_own_record(&here))
        return false;
    memcpy(r->boot, here.boot, sizeof(r->boot));
    r->pid_namespace = here.pid_namespace;
    return true;
}

/* Write the text to a temporary file (a draft) and rename the draft, so that no reader finds half a file. The name of a
 * draft begins with a dot, and readers ignore such names. */
static bool record_write_file(int dir, const char *name, const struct buf *text)
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

/* Write to `err` that one of the files `first` and `second` of /proc could not be read, for the reason in errno. If
 * errno is 0, a file has other contents than expected. */
static ddp_status record_unreadable(const char *first, const char *second, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_IO, "/proc/%s or /proc/%s: cannot read: %s; run 'mount -t proc proc /proc'",
                    first, second, errno != 0 ? strerror(errno) : "unknown format");
}

/* Write the record. Format its text first, so that no directory is created if formatting fails. */
ddp_status record_write(const char *job, const char *cookie, const char *cgroup, pid_t guardian, pid_t agent,
                        struct ddp_err *err)
{
    char path[PATH_MAX] = "", why[WRITE_ERROR_MAX], files[2][32];
    struct buf text = { 0 };
    struct record r = { 0 };
    snprintf(r.job, sizeof(r.job), "%s", job);
    snprintf(r.cookie, sizeof(r.cookie), "%s", cookie);
    snprintf(r.cgroup, sizeof(r.cgroup), "%s", cgroup);
    snprintf(files[0], sizeof(files[0]), "%d/stat", (int)guardian);
    snprintf(files[1], sizeof(files[1]), "%d/stat", (int)agent);
    errno = 0;
    if (!where_are_we(&r))
        return record_unreadable("sys/kernel/random/boot_id", "self/ns/pid", err);
    errno = 0;
    if (!identify_process(guardian, &r.guardian) || !identify_process(agent, &r.agent))
        return record_unreadable(files[0], files[1], err);
    if (!record_print(&text, &r)) {
        buf_free(&text);
        return ddp_fail(err, DDP_ERR_IO, "record of the job: cannot write: %s",
                        one_line(r.job) && one_line(r.cgroup)
                            ? "out of memory" MEMORY_REMEDY
                            : "the job id or the path of its cgroup has a newline; choose another --rdzv_id");
    }
    int dir = runtime_dir_make(path);
    bool ok = dir >= 0 && record_write_file(dir, cookie, &text);
    int error = errno;
    if (dir >= 0)
        close(dir);
    buf_free(&text);
    return ok ? DDP_OK
              : ddp_fail(
                    err, DDP_ERR_IO,
                    "%s: cannot write: %s; set XDG_RUNTIME_DIR to a directory that only this user can use",
                    path, path_error_text(error, path, NULL, why));
}

/* Return true if `name` is a file of the job: its record, a draft of the record, or a file whose name is the first
 * digits of the cookie, a dot and a word. */
static bool is_of(const char *name, const char *cookie)
{
    return strcmp(name + (name[0] == '.'), cookie) == 0 ||
           (strncmp(name, cookie, RUNTIME_NAME_DIGITS) == 0 && name[RUNTIME_NAME_DIGITS] == '.');
}

/* Open the entries of a directory with another descriptor, because closedir closes the descriptor that it uses. Return
 * NULL on failure. */
static DIR *entries_of(int dir)
{
    int other = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = other >= 0 ? fdopendir(other) : NULL;
    if (d == NULL && other >= 0)
        close(other);
    return d;
}

static void remove_files(int dir, const char *cookie)
{
    DIR *d = entries_of(dir);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (is_of(e->d_name, cookie) && unlinkat(dir, e->d_name, 0) != 0)
            unlinkat(dir, e->d_name, AT_REMOVEDIR);
    closedir(d);
}

void record_remove(const char *cookie)
{
    char path[PATH_MAX];
    const int dir = runtime_dir_make(path);
    if (dir < 0)
        return;
    remove_files(dir, cookie);
    close(dir);
}

/* --- read records, and clean up after dead jobs ------------------------------------------------------------ */

/* Read a text file of this user and append a NUL. Return false if it is missing, empty, or of another user. */
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

/* Read and parse a record. Return false if the file is not a record of ddprun. */
static bool read_record(int dir, const char *name, struct record *r)
{
    char text[RECORD_MAX];
    return read_own_file(dir, name, text, sizeof(text)) && record_parse(text, r) &&
           strcmp(r->cookie, name) == 0;
}

/* Append the line instead of replacing the file, because an append takes less time in each start. */
bool record_name_store(const char *cookie, const char *store)
{
    char path[PATH_MAX];
    struct buf line = { 0 };
    const int dir = runtime_dir_make(path);
    const int fd = dir >= 0 ? openat(dir, cookie, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC) : -1;
    const bool ok = fd >= 0 && one_line(store) && buf_printf(&line, "store %s\n", store) &&
                    write(fd, line.data, line.len) == (ssize_t)line.len;
    if (fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    buf_free(&line);
    return ok;
}

/* Return true if a process of a record still lives. A process counts as alive until all its threads have ended. For
 * example, the agent may be dying while one of its threads still creates a worker. Such a worker has no cookie before
 * its execve, and would not be found. */
static bool is_alive(const struct record_process *p)
{
    struct proc_stat stat;
    return procfs_stat(p->pid, &stat) && stat.start_ticks == p->start_ticks && !proc_stat_is_dead(&stat);
}

/* Return true if the job of a record runs. If the job is in another PID namespace, its pids cannot be checked here.
 * Check instead whether the namespace exists, because a namespace ends with its last process. */
static bool is_running(const struct record *r, const struct record *here)
{
    return r->pid_namespace == here->pid_namespace ? is_alive(&r->guardian) || is_alive(&r->agent)
                                                   : procfs_namespace_lives(r->pid_namespace);
}

/* Report that `killed` processes of a dead job were killed. If `all` is false, also warn that some processes cannot
 * be killed. */
static void record_log_burial(const struct record *r, int killed, bool all)
{
    if (killed > 0)
        log_info("job '%s': both processes of its ddprun (pids %d and %d) ended before the job; "
                 "%d remaining process%s now been killed",
                 r->job, r->guardian.pid, r->agent.pid, killed, killed == 1 ? " has" : "es have");
    if (!all)
        log_warn("job '%s': its ddprun ended before the job; some processes of the job cannot be killed and "
                 "may hold memory or GPUs; restart this host if these processes do not end",
                 r->job);
}

/* Kill the remaining processes of a dead job. Return true if no process of the job is left. */
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
        record_log_burial(r, in_group > l.killed ? in_group : l.killed, all);
    return all;
}

/* Lock the directory, so that only one start of ddprun cleans up at a time. Two processes that kill with raised
 * priority would leave no processor time to the dying processes. Continue without the lock after SWEEP_LIMIT_MS. */
static void wait_for_turn(int dir)
{
    const uint64_t end = clock_ms() + SWEEP_LIMIT_MS;
    while (flock(dir, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && clock_ms() < end)
        poll(NULL, 0, TURN_MS);
}

/* Lock the directory and clean up after a dead job. Return true if no process of the job is left and its record is
 * removed. Return false if the record cannot be removed, for example on a read-only file system. If this function
 * returned true in this case, record_sweep would examine the record again and again. */
static bool bury_in_turn(int dir, struct record *r, bool quiet)
{
    char cookie[sizeof(r->cookie)];
    struct stat st;
    memcpy(cookie, r->cookie, sizeof(cookie));
    wait_for_turn(dir);
    const bool still_there = read_record(dir, cookie, r), buried = !still_there || bury(r, quiet);
    if (still_there && buried)
        remove_files(dir, cookie);
    flock(dir, LOCK_UN);
    return buried && fstatat(dir, cookie, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

/* Examine a record and clean up after a dead job. Return true if no process of the dead job is left and its record is
 * removed. The caller then examines all records again, because the dead job may have started other jobs. For a record
 * of an earlier boot, only remove the files. */
static bool check_record(int dir, const char *name, bool quiet)
{
    struct record r, here;
    if (!read_record(dir, name, &r) || !where_are_we(&here))
        return false;
    if (strcmp(r.boot, here.boot) != 0) {
        remove_files(dir, r.cookie);
        return false;
    }
    if (is_running(&r, &here) || leftovers_is_marked(0, r.cookie))
        return false;
    return bury_in_turn(dir, &r, quiet);
}

/* Remove an abandoned file: a timer FIFO that no process reads, or a draft of a record. Keep a file that was changed in
 * the last LITTER_S seconds. */
static void remove_litter(int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || time(NULL) - st.st_mtime < LITTER_S)
        return;
    if (S_ISREG(st.st_mode) && name[0] == '.')
        unlinkat(dir, name, 0);
    if (!S_ISFIFO(st.st_mode))
        return;
    const int fd = openat(dir, name, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    else if (errno == ENXIO)
        unlinkat(dir, name, 0);
}

/* Check the records in `dir`, and clean up after each dead job. Return how many jobs were cleaned up. */
static int check_directory(int dir, bool quiet)
{
    int seen = 0, buried = 0;
    DIR *d = entries_of(dir);
    if (d == NULL)
        return 0;
    for (struct dirent *e; seen < RECORDS_MAX && (e = readdir(d)) != NULL;) {
        if (e->d_type == DT_FIFO || e->d_type == DT_UNKNOWN || (e->d_type == DT_REG && e->d_name[0] == '.'))
            remove_litter(dir, e->d_name);
        if (e->d_name[0] == '.' || strlen(e->d_name) != COOKIE_CHARS)
            continue;
        seen++;
        buried += check_record(dir, e->d_name, quiet);
    }
    closedir(d);
    return buried;
}

/* Clean up each directory until it has no dead job. One pass is not enough, because a worker of a dead job may be a
 * ddprun with a second job. The second job becomes a dead job when the processes of the first job are killed. */
void record_sweep(bool quiet)
{
    for (int i = 0; i < RUNTIME_DIRS; i++) {
        int dir = runtime_dir_open(i);
        if (dir < 0)
            continue;
        while (check_directory(dir, quiet) > 0)
            continue;
        close(dir);
    }
}

/* --- running jobs ---------------------------------------------------------------------------------------- */

/* Return the age of a process in ms. Compare its start time with CLOCK_BOOTTIME, because both also count the time
 * during which the machine was suspended. */
static uint64_t age_ms(const struct record_process *p)
{
    struct timespec now;
    const uint64_t start_ms = p->start_ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
    if (clock_gettime(CLOCK_BOOTTIME, &now) != 0)
        return 0;
    const uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    return now_ms > start_ms ? now_ms - start_ms : 0;
}

/* Read the job of a record. Return false if the job does not run, or if the address of its store is not known. Also
 * return false for a job of another PID namespace, because the pids and addresses of such a job may not be valid
 * here. */
static bool find_job(int dir, const char *cookie, const struct record *here, struct record_job *job)
{
    struct record r;
    if (strlen(cookie) != COOKIE_CHARS || !read_record(dir, cookie, &r) || strcmp(r.boot, here->boot) != 0 ||
        r.pid_namespace != here->pid_namespace || !is_running(&r, here) || r.store[0] == '\0')
        return false;
    memcpy(job->store, r.store, sizeof(job->store));
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
