/* program_file.c -- see program_file.h. */
#include "report/program_file.h"

#include "tables/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* O_NONBLOCK: a FIFO by that name has no writer, and would hold us for ever. */
struct slice file_head(const char *path, char *bytes, size_t size)
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

/* --- program see ------------------------------------------------------------------------------------------ */

/* The file may be anything that somebody named on a command line: it is opened
 * without waiting (a FIFO has no writer), and read only when it is a regular file. */

/* Headers, table of segments and the loader's name lie in the first page of what linkers write. */
enum { HEAD_BYTES = 4096, NEAR_SEEN_MAX = 4096 };

/* Where a file system is mounted noexec the kernel refuses whatever the file's own bits allow. */
static bool on_noexec(const char *path)
{
    struct statvfs fs;
    return statvfs(path, &fs) == 0 && (fs.f_flag & ST_NOEXEC) != 0;
}

/* On a noexec mount access(2) says no whatever the file's bits are. There the bits alone are looked at, so that
 * the two reasons can be told apart: chmod helps against one of them only. */
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

/* Returns how many bytes; 0 also for what cannot be read, *ok says which. */
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

/* "/data/locked" of "/data/locked/bin/train" when that is the first that may not be entered. */
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

/* Of a few thousand files beside `path` the one whose name is nearest, when at most a third of its letters differ. */
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
        if (e->d_type == DT_DIR || distance >= best)
            continue;
        if (snprintf(out, PATH_MAX, "%.*s%s", front, path, e->d_name) < PATH_MAX)
            best = distance;
    }
    if (d != NULL)
        closedir(d);
}

/* What our own executable says of its machine is what this kernel runs for sure: compared with it, nothing need be
 * known about processors. */
void program_see(const char *path, struct program_look *look)
{
    uint8_t head[HEAD_BYTES], ours[HEAD_BYTES];
    struct rlimit processes;
    bool ok, self_ok;
    *look = (struct program_look){ .kind = kind_of(path) };
    snprintf(look->path, sizeof(look->path), "%s", path);
    find_locked(path, look->locked);
    if (look->kind == PATH_MISSING)
        find_near(path, look->near);
    if (getrlimit(RLIMIT_NPROC, &processes) == 0 && processes.rlim_cur != RLIM_INFINITY)
        look->processes_max = processes.rlim_cur;
    if (look->kind != PATH_EXECUTABLE && look->kind != PATH_NO_X)
        return;
    look->noexec = on_noexec(path);
    size_t n = read_head(path, head, &ok), n_ours = read_head("/proc/self/exe", ours, &self_ok);
    if (!ok)
        return;
    program_look_at_bytes(look, slice_of(head, n), slice_of(ours, n_ours));
    if (look->interpreter[0] != '\0')
        look->helper = kind_of(look->interpreter);
    else if (look->elf.interpreter[0] != '\0')
        look->helper = kind_of(look->elf.interpreter);
}

/* A name that was searched along PATH is no path: what lies here by that name was not executed. */
bool program_see_failed(const char *failed, const char *script, struct program_look *look)
{
    if (failed == NULL || (failed != script && strchr(failed, '/') == NULL))
        return false;
    program_see(failed, look);
    look->is_python_file = failed == script;
    return true;
}
