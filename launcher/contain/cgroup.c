/* cgroup.c -- see cgroup.h.
 *
 * The owner of a group holds a shared lock (flock) on the group's directory until the owner ends. A later start of
 * ddprun uses this lock to detect whether the owner still lives.
 *
 * ddprun enables no controllers in its groups, so the user's limits are unchanged. */
#include "contain/cgroup.h"

#include "base/clock.h"
#include "contain/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The kernel's files that this file parses (cgroups(7), proc(5)):
 *
 *     /proc/self/cgroup      0::/user.slice/session-3.scope          version 2: path of this process's own group
 *                            4:cpu,memory:/jobs/7                    a hierarchy of version 1 and its controllers
 *     /proc/self/mountinfo   35 24 0:30 /user.slice /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw
 *                                       root        where          options     type   source  options
 *
 * A mount shows the part of the hierarchy below its root. In a container, this part may be only the process's own
 * group. A group whose path begins with /.. is outside the mount. mountinfo writes a space as \040. */

/* Return the end of the word at `at`. One space separates words, a newline separates lines. */
static const char *word_end(const char *at)
{
    return at + strcspn(at, " \n");
}

/* Skip `n` words. Return NULL if the line has fewer words. */
static const char *skip_words(const char *at, int n)
{
    for (; n > 0; n--) {
        at = word_end(at);
        if (*at != ' ')
            return NULL;
        at++;
    }
    return at;
}

static bool is_octal(const char *p)
{
    return p[0] >= '0' && p[0] <= '3' && p[1] >= '0' && p[1] <= '7' && p[2] >= '0' && p[2] <= '7';
}

/* Copy the bytes up to `end`, and decode octal escapes, such as \040 for a space. Return false if the result does not
 * fit. */
static bool unescape(const char *from, const char *end, char out[CGROUP_PATH_MAX])
{
    size_t n = 0;
    while (from < end) {
        if (n + 1 >= CGROUP_PATH_MAX)
            return false;
        if (*from == '\\' && end - from >= 4 && is_octal(from + 1)) {
            out[n++] = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            out[n++] = *from++;
        }
    }
    out[n] = '\0';
    return true;
}

/* Return true if the first mount option is "rw", as in "rw,relatime". */
static bool begins_rw(const char *options)
{
    return strncmp(options, "rw", 2) == 0 && strchr(", \n", options[2]) != NULL;
}

/* Return true if `word` is in `names`, a list of `len` characters such as "cpu,memory". */
static bool lists(const char *names, size_t len, const char *word)
{
    const size_t n = strlen(word);
    for (const char *end = names + len; names < end; names++) {
        size_t part = strcspn(names, ", :\n");
        if (part == n && memcmp(names, word, n) == 0)
            return true;
        names += part;
    }
    return false;
}

/* Return true if a mount shows the hierarchy that the caller wants. If `v1` is NULL, the caller wants version 2.
 * Otherwise the caller wants the hierarchy of version 1 that has the controller `v1`. `super` is the list of options of
 * the mounted file system. */
static bool is_cgroup_mount(const char *fs, const char *super, const char *v1)
{
    if (v1 == NULL)
        return strncmp(fs, "- cgroup2 ", 10) == 0;
    return strncmp(fs, "- cgroup ", 9) == 0 && super != NULL &&
           lists(super, (size_t)(word_end(super) - super), v1);
}

/* Parse one line of mountinfo. Return false if the line is about another hierarchy or file system. */
static bool parse_mount(const char *line, const char *v1, struct cgroup_mount *m)
{
    const char *root = skip_words(line, 3);
    const char *where = root != NULL ? skip_words(root, 1) : NULL;
    const char *options = where != NULL ? skip_words(where, 1) : NULL;
    const char *fs = options;
    /* Skip the optional fields, which end with a lone dash. */
    while (fs != NULL && strncmp(fs, "- ", 2) != 0)
        fs = skip_words(fs, 1);
    const char *super = fs != NULL ? skip_words(fs, 3) : NULL;
    if (fs == NULL || !is_cgroup_mount(fs, super, v1))
        return false;
    m->writable = begins_rw(options) && (super == NULL || begins_rw(super));
    return unescape(root, word_end(root), m->root) && unescape(where, word_end(where), m->where);
}

/* Return the line at *text and move *text to the next line. Return NULL at the end of the text. */
static const char *next_line(const char **text)
{
    const char *line = *text;
    if (*line == '\0')
        return NULL;
    *text += strcspn(line, "\n");
    *text += **text == '\n';
    return line;
}

bool cgroup_next_mount(const char **mounts, const char *v1, struct cgroup_mount *m)
{
    const char *line;
    while ((line = next_line(mounts)) != NULL)
        if (parse_mount(line, v1, m))
            return true;
    return false;
}

bool cgroup_own(const char *groups, const char *v1, char group[CGROUP_PATH_MAX])
{
    const char *line;
    while ((line = next_line(&groups)) != NULL) {
        const char *end = line + strcspn(line, "\n");
        const char *names = memchr(line, ':', (size_t)(end - line));
        const char *path = names != NULL ? memchr(names + 1, ':', (size_t)(end - names - 1)) : NULL;
        if (path == NULL || path[1] != '/')
            continue;
        const size_t len = (size_t)(path - names - 1);
        if (v1 == NULL ? len == 0 && line[0] == '0' : lists(names + 1, len, v1))
            return unescape(path + 1, end, group);
    }
    return false;
}

const char *cgroup_below(const char *group, const char *root)
{
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(group, "/..", 3) == 0 || strncmp(group, root, len) != 0 ||
        (group[len] != '/' && group[len] != '\0'))
        return NULL;
    return strcmp(group + len, "/") == 0 ? "" : group + len;
}

/* Find the directory of this process's control group in the hierarchy of cgroup v2. `groups` is the text of
 * /proc/self/cgroup, and `mounts` is the text of /proc/self/mountinfo. A text is "" if its file cannot be read. If no
 * directory is found, return false and write the reason to `why`. */
static bool cgroup_locate(const char *groups, const char *mounts, char dir[CGROUP_PATH_MAX],
                          char why[CGROUP_WHY_MAX])
{
    char group[CGROUP_PATH_MAX];
    struct cgroup_mount m;
    const char *reason = "no cgroup v2 is mounted";
    const bool is_readable = groups[0] != '\0' && mounts[0] != '\0';
    const bool has_group = is_readable && cgroup_own(groups, NULL, group);
    if (!is_readable)
        reason = "cannot read /proc/self/cgroup or /proc/self/mountinfo";
    else if (!has_group)
        reason = "the kernel has no cgroup v2";
    while (has_group && cgroup_next_mount(&mounts, NULL, &m)) {
        const char *rest = cgroup_below(group, m.root);
        if (rest == NULL)
            reason = "the control group of ddprun is outside the mounted cgroup v2";
        else if (!m.writable)
            reason = "cgroup v2 is mounted read-only";
        else if ((size_t)snprintf(dir, CGROUP_PATH_MAX, "%s%s", m.where, rest) < CGROUP_PATH_MAX)
            return true;
    }
    snprintf(why, CGROUP_WHY_MAX, "%s", reason);
    return false;
}

/* Format the group's name. Replace each character that is unsuitable for a file name by '_'. The digits of the cookie
 * make the name unique. */
void cgroup_name(char out[CGROUP_NAME_MAX], const char *job, const char *cookie)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    int n = snprintf(out, CGROUP_NAME_MAX, "ddprun-%.64s-%.8s", job, cookie);
    for (int i = 0; i < n; i++)
        if (strchr(plain, out[i]) == NULL)
            out[i] = '_';
}

/* Return true if `name` has the form that cgroup_name() writes. */
static bool cgroup_is_name(const char *name)
{
    const size_t len = strlen(name), digits = 8, front = strlen("ddprun-");
    return len > front + digits && strncmp(name, "ddprun-", front) == 0 && name[len - digits - 1] == '-' &&
           strspn(name + len - digits, "0123456789abcdef") == digits;
}

/* Return true if the text of a cgroup.events file reports a process in the group or in a group below it. */
static bool cgroup_is_populated(const char *events)
{
    const char *line;
    while ((line = next_line(&events)) != NULL)
        if (strncmp(line, "populated ", 10) == 0)
            return line[10] != '0';
    return false;
}

/* DEPTH_MAX limits the recursion into nested groups, because a worker could nest groups without end. If another ddprun
 * is removing the group, make_owned() waits at most MAKE_TRIES * MAKE_AGAIN_MS = 100 ms. The magic numbers are
 * CGROUP_SUPER_MAGIC and CGROUP2_SUPER_MAGIC of linux/magic.h. */
enum {
    DEPTH_MAX = 16,
    MAKE_TRIES = 100,
    MAKE_AGAIN_MS = 1,
    CGROUP1_MAGIC = 0x27e0eb,
    CGROUP2_MAGIC = 0x63677270
};

/* --- one file of a group ---------------------------------------------------------------------------------- */

static bool make_path(char out[CGROUP_PATH_MAX], const char *dir, const char *name)
{
    return (size_t)snprintf(out, CGROUP_PATH_MAX, "%s/%s", dir, name) < CGROUP_PATH_MAX;
}

static bool may_write(const char *dir, const char *name)
{
    char path[CGROUP_PATH_MAX];
    return make_path(path, dir, name) && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
}

/* Return the text of a file, or "" if the file does not exist (the root group lacks some files). The caller frees
 * `text`. */
static const char *cgroup_read(const char *dir, const char *name, struct buf *text)
{
    char path[CGROUP_PATH_MAX];
    return make_path(path, dir, name) && procfs_read(path, text) ? (const char *)text->data : "";
}

/* --- the mounts ------------------------------------------------------------------------------------------- */

static bool is_of_kind(const char *dir, long magic)
{
    struct statfs fs;
    return statfs(dir, &fs) == 0 && (long)fs.f_type == magic;
}

static bool has_file(const char *dir, const char *name)
{
    char path[CGROUP_PATH_MAX];
    return make_path(path, dir, name) && access(path, F_OK) == 0;
}

/* Return true if the mount at `where` also shows groups above the cgroup namespace of this process, because the mount
 * is older than the namespace. Such a mount cannot be used: the path of this process's group is relative to its
 * namespace, usually "/", and names a different group in this mount. */
static bool shows_above_us(const char *where, long magic)
{
    const bool top =
        magic == CGROUP2_MAGIC ? !has_file(where, "cgroup.type") : has_file(where, "release_agent");
    return top && !procfs_in_first_namespace(FIRST_CGROUP);
}

/* Append the mounts at the usual places. The rows of the table are: cgroup version 2, version 2 beside version 1,
 * and the controllers `memory` and `pids` of version 1. */
bool cgroup_usual_mounts(struct buf *mounts)
{
    static const struct {
        const char *where, *type, *options;
        long magic;
    } usual[] = { { "/sys/fs/cgroup", "cgroup2", "rw", CGROUP2_MAGIC },
                  { "/sys/fs/cgroup/unified", "cgroup2", "rw", CGROUP2_MAGIC },
                  { "/sys/fs/cgroup/memory", "cgroup", "rw,memory", CGROUP1_MAGIC },
                  { "/sys/fs/cgroup/pids", "cgroup", "rw,pids", CGROUP1_MAGIC } };
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        if (is_of_kind(usual[i].where, usual[i].magic) && !shows_above_us(usual[i].where, usual[i].magic))
            buf_printf(mounts, "0 0 0:0 / %s rw - %s none %s\n", usual[i].where, usual[i].type,
                       usual[i].options);
    return mounts->len > 0 && buf_append(mounts, "", 1);
}

/* --- find ------------------------------------------------------------------------------------------------ */

/* Return true if a group is threaded, so it cannot contain the group of a job. */
static bool is_threaded(const char *dir)
{
    struct buf text = { 0 };
    const char *type = cgroup_read(dir, "cgroup.type", &text);
    bool threaded = type[0] != '\0' && strcmp(type, "domain\n") != 0;
    buf_free(&text);
    return threaded;
}

/* Find ddprun's own group, which becomes the parent of the job's group, and check its permissions. To move a worker
 * into the job's group, ddprun must have write permission for cgroup.procs of both groups. */
bool cgroup_find(const char *groups, const char *mounts, char dir[CGROUP_PATH_MAX], char why[CGROUP_WHY_MAX])
{
    if (!cgroup_locate(groups, mounts, dir, why))
        return false;
    const char *problem = NULL;
    if (faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) != 0 || !may_write(dir, "cgroup.procs"))
        problem = "is not writable for this user";
    else if (is_threaded(dir))
        problem = "is threaded";
    if (problem != NULL)
        snprintf(why, CGROUP_WHY_MAX, "%.100s %s", dir, problem);
    return problem == NULL;
}

/* --- make and kill --------------------------------------------------------------------------------------- */

/* Return true if `dir` is still the directory of `fd`. Before this process got the lock, another ddprun may have
 * removed the directory. */
static bool is_still_there(int fd, const char *dir)
{
    struct stat mine, now;
    return fstat(fd, &mine) == 0 && stat(dir, &now) == 0 && mine.st_ino == now.st_ino;
}

/* Open and lock the new group. Return -1 with EAGAIN after any failure. The usual reason is that another start of
 * ddprun is removing the group. If the file system has no locks, continue without a lock. */
static int open_owned(const char *dir)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && (flock(fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) && is_still_there(fd, dir))
        return fd;
    if (fd >= 0)
        close(fd);
    errno = EAGAIN;
    return -1;
}

bool cgroup_create(const char *dir)
{
    return mkdir(dir, 0755) == 0;
}

/* Create and lock a group. If the group exists at the first try, fail at once, unless cgroup_create() has created it.
 * If the group exists at a later try, open the group, because the first try may have created it. */
static int make_owned(const char *dir, bool is_created)
{
    for (int i = 0; i < MAKE_TRIES; i++) {
        if (i > 0)
            poll(NULL, 0, MAKE_AGAIN_MS);
        if (!(i == 0 && is_created) && !cgroup_create(dir) && (i == 0 || errno != EEXIST))
            return -1;
        const int fd = open_owned(dir);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

/* Create the group and return a descriptor of its directory. The caller keeps the descriptor open, because spawn.c
 * needs it to create workers in the group. Fail with ENOSYS on Linux before 5.14, which has no cgroup.kill. */
int cgroup_make(const char *dir, bool is_created)
{
    const int fd = make_owned(dir, is_created);
    if (fd >= 0 && !may_write(dir, "cgroup.kill")) {
        const int error = errno == ENOENT ? ENOSYS : errno;
        close(fd);
        rmdir(dir);
        errno = error;
        return -1;
    }
    return fd;
}

/* Return true if `dir` is a control group. The path may come from the record of a dead job, whose group no longer
 * exists. */
static bool is_group(const char *dir)
{
    return is_of_kind(dir, CGROUP2_MAGIC);
}

/* Kill all processes of the group with one write to cgroup.kill, which also kills processes that are being created. */
bool cgroup_kill(const char *dir)
{
    char path[CGROUP_PATH_MAX];
    int fd = is_group(dir) && make_path(path, dir, "cgroup.kill") ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    bool ok = fd >= 0 && write(fd, "1", 1) == 1;
    if (fd >= 0)
        close(fd);
    return ok;
}

/* --- a group and all below ------------------------------------------------------------------------------- */

static bool is_child(const struct dirent *e)
{
    return e->d_type == DT_DIR && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static int lines_in(const char *text)
{
    int n = 0;
    while ((text = strchr(text, '\n')) != NULL) {
        text++;
        n++;
    }
    return n;
}

/* Count the processes in the group and in all groups below it, for a message. A process that moves to another group
 * at the same time may be counted twice, or not at all. */
static int count_below(const char *dir, int depth)
{
    struct buf text = { 0 };
    int n = lines_in(cgroup_read(dir, "cgroup.procs", &text));
    char path[CGROUP_PATH_MAX];
    DIR *d = depth < DEPTH_MAX ? opendir(dir) : NULL;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (is_child(e) && make_path(path, dir, e->d_name))
            n += count_below(path, depth + 1);
    if (d != NULL)
        closedir(d);
    buf_free(&text);
    return n;
}

int cgroup_count(const char *dir)
{
    return is_group(dir) ? count_below(dir, 0) : 0;
}

/* Remove the group after its child groups, which workers may have created. */
static bool remove_tree(const char *dir, int depth)
{
    char path[CGROUP_PATH_MAX];
    DIR *d = depth < DEPTH_MAX ? opendir(dir) : NULL;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (is_child(e) && make_path(path, dir, e->d_name))
            remove_tree(path, depth + 1);
    if (d != NULL)
        closedir(d);
    return rmdir(dir) == 0 || errno == ENOENT;
}

/* Wait at most `limit_ms` until the group is empty. Return false if the group still has processes. poll(2) on
 * cgroup.events returns when the kernel changes `populated` in this file. */
static bool wait_until_empty(const char *dir, uint64_t limit_ms)
{
    char path[CGROUP_PATH_MAX], text[256];
    uint64_t now = clock_ms(), end = now + limit_ms;
    int fd = make_path(path, dir, "cgroup.events") ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return true; /* the group is gone */
    for (bool populated = true;; now = clock_ms()) {
        ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        populated = cgroup_is_populated(text);
        if (!populated || now >= end) {
            close(fd);
            return !populated;
        }
        poll(&(struct pollfd){ .fd = fd, .events = POLLPRI }, 1, (int)(end - now));
    }
}

/* Remove the group and its child groups. If rmdir fails, wait first until the group is empty, because the kernel needs
 * a moment to release killed processes. */
bool cgroup_remove(const char *dir, uint64_t limit_ms)
{
    if (rmdir(dir) == 0 || errno == ENOENT) /* usually the group has no child groups */
        return true;
    return is_group(dir) && wait_until_empty(dir, limit_ms) && remove_tree(dir, 0);
}

/* --- groups without owner ------------------------------------------------------------------------------- */

/* Remove a group that no process has locked. If another ddprun has created the group, but has not locked it yet, that
 * ddprun creates the group again (make_owned). A group with live processes cannot be removed. */
static void remove_ownerless(const char *dir)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        cgroup_remove(dir, 0);
    if (fd >= 0)
        close(fd);
}

void cgroup_sweep(const char *parent)
{
    char path[CGROUP_PATH_MAX];
    DIR *d = is_group(parent) ? opendir(parent) : NULL;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (is_child(e) && cgroup_is_name(e->d_name) && make_path(path, parent, e->d_name))
            remove_ownerless(path);
    if (d != NULL)
        closedir(d);
}
