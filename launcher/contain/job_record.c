/* job_record.c -- see job_record.h. From the bottom up: safe directories, the runtime directory, the text of a
 * record, finding processes by their cookie, and cleaning up after dead jobs. */
#include "contain/job_record.h"

#include "base/clock.h"
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

/* In a user namespace without root, the overflow uid owns the files of the host's root, and "/" with them. */
static bool is_trusted(uid_t owner)
{
    struct stat root;
    return owner == geteuid() || owner == 0 || (stat("/", &root) == 0 && owner == root.st_uid);
}

/* A private group (user "bob", group "bob") is usual, and directories in it are usually group-writable. */
static bool is_writable_for_others(const struct stat *st)
{
    const bool own_group = st->st_uid == geteuid() && st->st_gid == getegid();
    return (st->st_mode & S_IWOTH) != 0 || ((st->st_mode & S_IWGRP) != 0 && !own_group);
}

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
        snprintf(why, SAFE_DIR_WHY_MAX, "%.100s is writable for other users and not sticky (mode %03o)", dir,
                 (unsigned)st.st_mode & 0777);
    else
        return true;
    return false;
}

/* Go from the directory up to "/", so that `why` names the nearest one. */
bool safe_dir(const char *path, char out[PATH_MAX], char why[SAFE_DIR_WHY_MAX])
{
    char above[PATH_MAX];
    why[0] = '\0';
    if (realpath(path, out) == NULL) {
        snprintf(why, SAFE_DIR_WHY_MAX, "%.100s: %s", path, strerror(errno));
        return false;
    }
    memcpy(above, out, strlen(out) + 1);
    while (is_safe(above, why)) {
        char *slash = strrchr(above, '/');
        if (slash == above && above[1] == '\0')
            return true;
        slash[slash == above] = '\0';
    }
    return false;
}

/* --- runtime dir ------------------------------------------------------------------------------------------ */

/* /tmp is shared: another user may have created a directory of our name before us, or a link to one of our
 * directories. So open a directory first, without following a link, and check it through its descriptor: then the
 * files are created in the checked directory whatever happens to the name. */

/* Return the n-th candidate; false without one. /run/user/UID is also tried by its usual path, because ssh and sudo
 * often lose the variable. /tmp precedes $TMPDIR, because batch systems give each job a private TMPDIR, where the
 * next start would not find our records. */
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

/* The n-th place without links, when what is above it is safe. */
static bool safe_place(int n, char out[PATH_MAX])
{
    char path[PATH_MAX], parent[PATH_MAX], why[SAFE_DIR_WHY_MAX];
    if (!place(n, path))
        return false;
    snprintf(out, PATH_MAX, "%s", path);
    char *name = strrchr(path, '/');
    *name++ = '\0';
    errno = EACCES;
    return safe_dir(path, parent, why) && snprintf(out, PATH_MAX, "%s/%s", parent, name) < PATH_MAX;
}

/* Open the directory if this user alone owns it; -1 (errno) when it is missing or not safe. */
static int open_ours(const char *path)
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

/* Open the n-th of them if it exists; the caller closes the descriptor. -1: missing or not safe. */
static int runtime_dir_open(int n)
{
    char path[PATH_MAX];
    return place(n, path) ? open_ours(path) : -1;
}

/* Creating it and finding it are both fine, because two starts may race. */
int runtime_dir_make(char path[PATH_MAX])
{
    int fd = -1;
    path[0] = '\0';
    for (int i = 0; fd < 0 && i < RUNTIME_DIRS; i++)
        if (safe_place(i, path) && (mkdir(path, 0700) == 0 || errno == EEXIST))
            fd = open_ours(path);
    return fd;
}

/* True if it exists or could be created. */
static bool is_usable(const char *path)
{
    char parent[PATH_MAX];
    int fd = open_ours(path);
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

/* One line for each field, in this order, and nothing else:
 *
 *     ddprun-record 1
 *     boot 0f1c8a6e-6a51-4c0b-9d53-1f6f4f4f2b55
 *     pid_namespace 4026531836
 *     guardian 812 4711
 *     agent 813 4712
 *     cookie 6ab2745628734b15bf11998535d9b413
 *     cgroup /sys/fs/cgroup/ddprun-j-6ab27456
 *     job j */

static bool one_line(const char *text)
{
    return strchr(text, '\n') == NULL;
}

bool record_print(struct buf *out, const struct record *r)
{
    return one_line(r->boot) && one_line(r->cgroup) && one_line(r->job) &&
           buf_printf(out,
                      "ddprun-record 1\nboot %s\npid_namespace %llu\nguardian %d %llu\nagent %d %llu\n"
                      "cookie %s\ncgroup %s\njob %s\n",
                      r->boot, (unsigned long long)r->pid_namespace, r->guardian.pid,
                      (unsigned long long)r->guardian.start_ticks, r->agent.pid,
                      (unsigned long long)r->agent.start_ticks, r->cookie, r->cgroup, r->job);
}

/* Copy the value after "name " in the line at *at; *at moves to the next line. False when the line is another one, or
 * its value does not fit. */
static bool record_take_field(const char **at, const char *name, char *value, size_t size)
{
    size_t len = strlen(name), n = strcspn(*at, "\n");
    if (n <= len || strncmp(*at, name, len) != 0 || (*at)[len] != ' ' || (*at)[n] != '\n' || n - len > size)
        return false;
    memcpy(value, *at + len + 1, n - len - 1);
    value[n - len - 1] = '\0';
    *at += n + 1;
    return true;
}

/* Parse decimal digits from *at to the next space or the end, which is skipped. No sign, no overflow. */
static bool take_number(const char **at, uint64_t limit, uint64_t *to)
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

static bool take_process(const char **at, const char *name, struct record_process *to)
{
    char value[64];
    const char *p = value;
    uint64_t pid;
    if (!record_take_field(at, name, value, sizeof(value)) || !take_number(&p, INT32_MAX, &pid) ||
        !take_number(&p, UINT64_MAX, &to->start_ticks))
        return false;
    to->pid = (int)pid;
    return pid > 0 && *p == '\0';
}

static bool take_namespace(const char **at, uint64_t *to)
{
    char value[32];
    const char *p = value;
    return record_take_field(at, "pid_namespace", value, sizeof(value)) && take_number(&p, UINT64_MAX, to) &&
           *p == '\0';
}

static bool is_cookie(const char *text)
{
    return strlen(text) == COOKIE_CHARS && strspn(text, "0123456789abcdef") == COOKIE_CHARS;
}

/* All processes in the group will be killed, so its name must be ours, with this cookie. */
static bool is_our_group(const char *path, const char *cookie)
{
    const char *name = strrchr(path, '/');
    size_t len = strlen(path);
    return path[0] == '/' && strstr(path, "/../") == NULL && strncmp(name, "/ddprun-", 8) == 0 && len > 9 &&
           path[len - 9] == '-' && strncmp(path + len - 8, cookie, 8) == 0;
}

bool record_parse(const char *text, struct record *out)
{
    char version[8];
    const char *at = text;
    *out = (struct record){ 0 };
    return record_take_field(&at, "ddprun-record", version, sizeof(version)) && strcmp(version, "1") == 0 &&
           record_take_field(&at, "boot", out->boot, sizeof(out->boot)) &&
           take_namespace(&at, &out->pid_namespace) && take_process(&at, "guardian", &out->guardian) &&
           take_process(&at, "agent", &out->agent) &&
           record_take_field(&at, "cookie", out->cookie, sizeof(out->cookie)) && is_cookie(out->cookie) &&
           record_take_field(&at, "cgroup", out->cgroup, sizeof(out->cgroup)) &&
           (out->cgroup[0] == '\0' || is_our_group(out->cgroup, out->cookie)) &&
           record_take_field(&at, "job", out->job, sizeof(out->job)) && *at == '\0';
}

/* --- leftovers -------------------------------------------------------------------------------------------- */

/* A process is killed when its environment, as the kernel keeps it, has the cookie: 128 random bits that only the
 * workers of one job get. A pid may be reused between check and signal, so a pidfd is opened first, then environment
 * and start time are read, and the signal goes to the pidfd. If the pid was reused in between, the pidfd's process is
 * gone and the signal reaches no process.
 *
 * /proc is read in ascending order, and new pids are higher than their parents', so a chain of processes that fork
 * and exit runs towards us. Once in 4 million forks pids wrap around: hence the second pass. */

enum {
    MARK_MAX = 32 + COOKIE_CHARS,     /* "DDPRUN_COOKIE=<cookie>" and the NUL that ends an entry */
    CHASES = 40,                      /* times */
    LOOKS = 50,                       /* at the next */
    AHEAD = 16,                       /* numbers */
    BLOCK = 64 * 1024,                /* bytes read at a time; */
    ENVIRONMENT_MAX = 8 * 1024 * 1024 /* more than the kernel's limit for anyone */
};

/* True if the entry `mark` (with its NUL) is in this piece of an environment. `first` = the piece begins with an
 * entry. */
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

/* Read in pieces, and keep the end of each in front of the next, so that no entry is cut in two. */
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

/* True if the environment of `pid` (0 = of this process) has the cookie. */
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

/* Kill `pid` if it belongs to the job, and return true. The cheap checks come first, because most processes belong to
 * other users. */
static bool kill_one(const struct leftovers *l, pid_t pid)
{
    struct proc_stat stat;
    if (pid == getpid() || !leftovers_is_marked(pid, l->cookie))
        return false;
    int pidfd = pids_hold(pid);
    bool ours = pidfd >= 0 && procfs_stat(pid, &stat) && stat.start_ticks >= l->start_ticks &&
                leftovers_is_marked(pid, l->cookie) && pids_signal(pidfd, SIGKILL);
    if (pidfd >= 0)
        close(pidfd);
    return ours;
}

/* True if it can belong to the job at all. */
static bool is_of_this_user(DIR *proc, const char *name)
{
    struct stat st;
    return geteuid() == 0 || (fstatat(dirfd(proc), name, &st, 0) == 0 && st.st_uid == geteuid());
}

/* Count the processes that were found. */
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

/* One call for a number that is not in use. */
static bool kill_newborn(const struct leftovers *l, pid_t pid)
{
    struct proc_stat stat;
    int pidfd = pids_hold(pid);
    if (pidfd < 0)
        return false;
    bool ours = leftovers_is_marked(pid, l->cookie) && procfs_stat(pid, &stat) &&
                stat.start_ticks >= l->start_ticks && pids_signal(pidfd, SIGKILL);
    close(pidfd);
    return ours;
}

/* A link of a chain that has the processor for itself lives 0.1 ms, and reading /proc takes many times that. But
 * numbers are assigned in ascending order, so wait for the next links right above the newest one. */
static int chase(const struct leftovers *l)
{
    int found = 0;
    for (int round = 0; round < CHASES; round++) {
        const pid_t newest = pids_newest();
        for (int look = 0; look < LOOKS && newest > 0; look++)
            for (pid_t pid = newest + 1; pid <= newest + AHEAD; pid++)
                found += kill_newborn(l, pid);
    }
    return found;
}

/* SIGKILL to all of them, and to those born meanwhile, until two passes find none. Only processes of this user (root:
 * of all) are checked. False when some are still there after `limit_ms`, or this kernel has no pidfds: without them a
 * signal could hit another process. A killed process keeps its environment until it is gone, but is counted once:
 * while the number falls, no new one is among them. */
static bool leftovers_kill(struct leftovers *l, uint64_t limit_ms)
{
    uint64_t end = clock_ms() + limit_ms;
    int before = 0, clean_looks = 0;
    struct killer_priority priority;
    if (!pids_can_hold())
        return false;
    killer_priority_raise(&priority);
    while (clean_looks < 2 && clock_ms() < end) {
        int found = kill_pass(l);
        l->killed += found > before ? found - before : 0;
        clean_looks = found == 0 ? clean_looks + 1 : 0;
        if (found > 0 && found <= before) { /* dying processes need a moment, or a chain is running */
            poll(NULL, 0, 1);
            l->killed += chase(l);
        }
        before = found;
    }
    killer_priority_restore(&priority);
    return clean_looks == 2;
}

/* --- record ----------------------------------------------------------------------------------------------- */

/* A pid names a process only together with its start time, both only on one boot of one machine and inside one PID
 * namespace: the record has all four, and a record that does not match is kept until its boot or its namespace is
 * over. The cookie and the name of the control group decide which processes are killed, never a pid from the record.
 *
 * At a start without dead jobs all this is four directories that are opened and usually missing. */

enum {
    RECORDS_MAX = 256, /* records that are examined; a user has fewer jobs on one host */
    TURN_MS = 5,       /* between two checks for our turn */
    LITTER_S = 60,     /* a FIFO is opened, and a draft renamed, right after it was created */
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

/* The scope of pids: this boot, this namespace. Both stay the same for the life of this process and of the agent. */
static bool where_are_we(struct record *r)
{
    static struct record here;
    if (here.boot[0] == '\0' && !look_where_we_are(&here))
        return false;
    memcpy(r->boot, here.boot, sizeof(r->boot));
    r->pid_namespace = here.pid_namespace;
    return true;
}

/* Write under a name that no reader accepts as a record, then rename, so that no reader sees half of one. */
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

/* Format the text before creating the directory, so that a failure leaves nothing. */
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
        return ddp_fail(err, DDP_ERR_IO, "cannot read this process's entry in /proc");
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

/* Remove the record or "DIGITS.more", which a worker has left: a file, or whatever it put in place of one. */
static bool is_of(const char *name, const char *cookie)
{
    return strcmp(name, cookie) == 0 ||
           (strncmp(name, cookie, RUNTIME_NAME_DIGITS) == 0 && name[RUNTIME_NAME_DIGITS] == '.');
}

/* Open a separate descriptor, because closedir closes it. NULL: no directory, or no memory. */
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

/* In all candidate directories: the environment chose one then, and may have changed. */
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

/* Read a text file of this user, with a NUL after its end. False: it is missing or empty, or another user owns it. */
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

/* False: not a record of ddprun. */
static bool read_record(int dir, const char *name, struct record *r)
{
    char text[RECORD_MAX];
    return read_own_file(dir, name, text, sizeof(text)) && record_parse(text, r) &&
           strcmp(r->cookie, name) == 0;
}

/* A zombie keeps its pid and start time and starts no more processes, but only after its last thread has ended: while
 * the agent dies thread by thread, a worker that it has just cloned gets a remaining thread as its parent and runs
 * on, without the cookie until its execve. A check at that moment would find no worker and remove the record. */
static bool is_alive(const struct record_process *p)
{
    struct proc_stat stat;
    return procfs_stat(p->pid, &stat) && stat.start_ticks == p->start_ticks && !proc_stat_is_dead(&stat);
}

/* A process of another PID namespace has no number here. But the namespace, and the job in it, ends with its last
 * process. */
static bool is_running(const struct record *r, const struct record *here)
{
    return r->pid_namespace == here->pid_namespace ? is_alive(&r->guardian) || is_alive(&r->agent)
                                                   : procfs_namespace_lives(r->pid_namespace);
}

/* One line for the user, because processes were killed without a request. */
static void record_log_burial(const struct record *r, int killed, bool all)
{
    if (killed > 0)
        log_info("job '%s' was left without ddprun (pids %d and %d were killed); its %d remaining process%s "
                 "been killed now",
                 r->job, r->guardian.pid, r->agent.pid, killed, killed == 1 ? " has" : "es have");
    if (!all)
        log_warn("job '%s' was left without ddprun, and some of its processes cannot be killed", r->job);
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
        record_log_burial(r, in_group > l.killed ? in_group : l.killed, all);
    return all;
}

/* Wait until no other start cleans up, because two of raised priority would leave dying processes no processor; but
 * stop waiting for one that takes too long. */
static void take_turn(int dir)
{
    const uint64_t end = clock_ms() + SWEEP_LIMIT_MS;
    while (flock(dir, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && clock_ms() < end)
        poll(NULL, 0, TURN_MS);
}

/* True when nothing is left of the job and its files, whichever process removed them. */
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

/* True if a record was removed because its job was dead: then a job that it started may be dead, too. */
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

/* Files of a job that was killed before it had a record: a FIFO of workers' timers without a reader, or the draft of
 * a record. */
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

/* Return how many dead jobs were removed. */
static int look_through(int dir, const struct record *here, bool quiet)
{
    int seen = 0, buried = 0;
    DIR *d = entries_of(dir);
    if (d == NULL)
        return 0;
    rewinddir(d);
    for (struct dirent *e; seen < RECORDS_MAX && (e = readdir(d)) != NULL;) {
        if (e->d_type == DT_FIFO || e->d_type == DT_UNKNOWN || e->d_name[0] == '.')
            remove_litter(dir, e->d_name);
        if (e->d_name[0] == '.' || strlen(e->d_name) != COOKIE_CHARS)
            continue;
        seen++;
        buried += look_at(dir, e->d_name, here, quiet);
    }
    closedir(d);
    return buried;
}

/* A job may have started another one through ddprun, whose record becomes dead with the first: so search each
 * directory until nothing more is found. */
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

/* The pids of a job in another PID namespace mean nothing here, and it usually has a separate network. */
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
