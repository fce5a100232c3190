/* limits.c -- see limits.h. Free space and quotas are read when the error occurs, because the values may differ
 * later. */
#include "base/limits.h"

#include "base/syscalls.h"
#include "base/text.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* --- open files --------------------------------------------------------------------------------------------- */

const char *files_remedy(int error, char out[FILES_REMEDY_MAX])
{
    char limit[RLIMIT_TEXT_MAX];
    struct rlimit size;
    out[0] = '\0';
    if (error == EMFILE)
        snprintf(out, FILES_REMEDY_MAX, "; raise the limit of %s open files with 'ulimit -n'",
                 rlimit_text(RLIMIT_NOFILE, limit));
    else if (error == ENFILE)
        snprintf(out, FILES_REMEDY_MAX, "; raise the limit of this host: sysctl fs.file-max");
    else if (error == ENOMEM)
        snprintf(out, FILES_REMEDY_MAX, MEMORY_REMEDY);
    else if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur != RLIM_INFINITY)
        snprintf(out, FILES_REMEDY_MAX, "; raise the limit of %s bytes per file with 'ulimit -f'",
                 rlimit_text(RLIMIT_FSIZE, limit));
    return out;
}

/* --- control groups and memory -------------------------------------------------------------------------- */

/* Read a number from a file. Return UINT64_MAX for "max", and 0 after a failure. */
static uint64_t read_number(const char *path)
{
    char text[32];
    unsigned long long value = UINT64_MAX;
    if (read_small_file(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return 0;
    sscanf(text, "%llu", &value);
    return value;
}

uint64_t lowest_limit_above(const char *root, char *group, const char *name, uint64_t lowest)
{
    char path[PATH_MAX], *slash = group;
    while (slash != NULL) {
        snprintf(path, sizeof(path), "%s%s/%s", root, group, name);
        const uint64_t value = read_number(path);
        if (value > 0 && (lowest == 0 || value < lowest))
            lowest = value;
        slash = strrchr(group, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    return lowest;
}

/* Return the lowest limit of the cgroups that contain this process, or 0 if no limit can be read. Search at the usual
 * mount points. `v2` and `v1` are the names of the limit's file in the two versions of cgroups. */
static uint64_t lowest_of_groups(const char *controller, const char *v2, const char *v1)
{
    char root[64], *line = NULL;
    size_t size = 0;
    uint64_t lowest = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && getline(&line, &size, file) > 0) {
        char *of = strchr(line, ':'), *group = of != NULL ? strchr(of + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        snprintf(root, sizeof(root), "/sys/fs/cgroup/%s", of[1] == '\0' ? "." : controller);
        if (of[1] == '\0')
            lowest = lowest_limit_above(root, group, v2, lowest);
        else if (strstr(of + 1, controller) != NULL)
            lowest = lowest_limit_above(root, group, v1, lowest);
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return lowest;
}

/* Format a limit of the cgroups as "; pids.max 512", or "" if `limit` is 0 (not read). A limit of 2^62 or more is
 * printed as "unlimited", because version 1 of cgroups reports "no limit" as a number near 2^63. */
enum { GROUP_LIMIT_SHOWN = 64 };
static void group_limit_text(char out[GROUP_LIMIT_SHOWN], const char *name, uint64_t limit, bool is_bytes)
{
    char size[SIZE_TEXT_MAX];
    if (limit == 0)
        out[0] = '\0';
    else if (limit >= UINT64_C(1) << 62)
        snprintf(out, GROUP_LIMIT_SHOWN, "; %s unlimited", name);
    else if (is_bytes)
        snprintf(out, GROUP_LIMIT_SHOWN, "; %s %s", name, words_size(size, limit));
    else
        snprintf(out, GROUP_LIMIT_SHOWN, "; %s %llu", name, (unsigned long long)limit);
}

const char *fork_error_text(int error, char out[FORK_ERROR_MAX])
{
    struct sysinfo host;
    char processes[RLIMIT_TEXT_MAX], pids[GROUP_LIMIT_SHOWN];
    snprintf(out, FORK_ERROR_MAX, "%s", strerror(error));
    if ((error != EAGAIN && error != ENOMEM) || sysinfo(&host) != 0)
        return out;
    group_limit_text(pids, "pids.max", lowest_of_groups("pids", "pids.max", "pids.max"), false);
    snprintf(
        out, FORK_ERROR_MAX,
        "%s (ulimit -u %s%s; %u threads and load %.1f on this host); end other processes or raise the limit",
        strerror(error), rlimit_text(RLIMIT_NPROC, processes), pids, host.procs,
        (double)host.loads[0] / (1 << SI_LOAD_SHIFT));
    return out;
}

/* Return a value of /proc/meminfo in bytes, or 0 if the file does not have it. */
static uint64_t memory_value(const char *name)
{
    char line[128];
    unsigned long long value = 0;
    const size_t len = strlen(name);
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && value == 0 && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, len) == 0 && line[len] == ':')
            value = strtoull(line + len + 1, NULL, 10);
    if (file != NULL)
        fclose(file);
    return value * 1024;
}

const char *memory_error_text(int error, char out[MEMORY_ERROR_MAX])
{
    char max[GROUP_LIMIT_SHOWN], size[SIZE_TEXT_MAX], limit[RLIMIT_TEXT_MAX];
    char remedy[FILES_REMEDY_MAX];
    snprintf(out, MEMORY_ERROR_MAX, "%s%s", strerror(error), files_remedy(error, remedy));
    if (error != ENOMEM && error != ENOSPC)
        return out;
    group_limit_text(max, "memory.max", lowest_of_groups("memory", "memory.max", "memory.limit_in_bytes"),
                     true);
    const int n =
        snprintf(out, MEMORY_ERROR_MAX, "%s (ulimit -v %s%s; %s available on this host", strerror(error),
                 rlimit_text(RLIMIT_AS, limit), max, words_size(size, memory_value("MemAvailable")));
    if (read_number("/proc/sys/vm/overcommit_memory") == 2)
        snprintf(out + n, MEMORY_ERROR_MAX - (size_t)n, "; vm.overcommit_memory=2 permits %s)" MEMORY_REMEDY,
                 words_size(size, memory_value("CommitLimit")));
    else
        snprintf(out + n, MEMORY_ERROR_MAX - (size_t)n, ")" MEMORY_REMEDY);
    return out;
}

/* --- disks ---------------------------------------------------------------------------------------------- */

/* Find the type and source of the file system of `fd` in /proc/self/mountinfo. A row is "ID PARENT MAJOR:MINOR ROOT
 * MOUNT-POINT OPTIONS ... - TYPE SOURCE OPTIONS". */
static void find_file_system(int fd, char out[QUOTA_SHOWN / 2])
{
    char device[48], type[64], source[128], *row = NULL;
    size_t size = 0;
    struct stat st;
    out[0] = '\0';
    FILE *file = fstat(fd, &st) == 0 ? fopen("/proc/self/mountinfo", "re") : NULL;
    if (file == NULL)
        return;
    snprintf(device, sizeof(device), " %u:%u ", major(st.st_dev), minor(st.st_dev));
    while (out[0] == '\0' && getline(&row, &size, file) > 0) {
        const char *dash = strstr(row, device) != NULL ? strstr(row, " - ") : NULL;
        if (dash != NULL && sscanf(dash, " - %63s %127s", type, source) == 2)
            snprintf(out, QUOTA_SHOWN / 2, "%s of %s", type, source);
    }
    free(row);
    fclose(file);
}

/* Append how many bytes and files are used, and how many the quota permits. Show the hard limit. If there is no hard
 * limit, show the soft limit. Show an exceeded soft limit, too, because its grace period may be over. Append
 * nothing if the quota has no limit. */
static void append_quota(char out[QUOTA_SHOWN], const char *whose, unsigned id, const struct dqblk *quota)
{
    enum { BLOCK = 1024 };
    char used[SIZE_TEXT_MAX], limit[SIZE_TEXT_MAX], bytes[80] = "", files[80] = "";
    const size_t n = strlen(out);
    const uint64_t soft = quota->dqb_bsoftlimit, inode_soft = quota->dqb_isoftlimit;
    const bool above_soft = soft > 0 && quota->dqb_curspace > soft * BLOCK;
    const bool above_inode_soft = inode_soft > 0 && quota->dqb_curinodes > inode_soft;
    const uint64_t blocks = above_soft || quota->dqb_bhardlimit == 0 ? soft : quota->dqb_bhardlimit;
    const uint64_t inodes =
        above_inode_soft || quota->dqb_ihardlimit == 0 ? inode_soft : quota->dqb_ihardlimit;
    if (blocks > 0)
        snprintf(bytes, sizeof(bytes), " %s of %s", words_size(used, quota->dqb_curspace),
                 words_size(limit, blocks * BLOCK));
    if (inodes > 0)
        snprintf(files, sizeof(files), "%s %llu of %llu files", bytes[0] != '\0' ? " and" : "",
                 (unsigned long long)quota->dqb_curinodes, (unsigned long long)inodes);
    if (bytes[0] == '\0' && files[0] == '\0')
        return;
    snprintf(out + n, QUOTA_SHOWN - n, ", where %s %u has%s%s", whose, id, bytes, files);
}

void quota_text(int fd, char out[QUOTA_SHOWN])
{
    char where[QUOTA_SHOWN / 2];
    find_file_system(fd, where);
    out[0] = '\0';
    if (where[0] == '\0')
        return;
    snprintf(out, QUOTA_SHOWN, " is on %s", where);
#ifdef SYS_quotactl_fd
    /* QCMD is not used, because it shifts a negative number */
    const unsigned get = (unsigned)Q_GETQUOTA << SUBCMDSHIFT;
    struct dqblk quota = { 0 };
    if (syscall(SYS_quotactl_fd, fd, get | USRQUOTA, getuid(), &quota) == 0)
        append_quota(out, "user", getuid(), &quota);
    if (syscall(SYS_quotactl_fd, fd, get | GRPQUOTA, getgid(), &quota) == 0)
        append_quota(out, "group", getgid(), &quota);
#endif
}

bool find_on_disk(char path[PATH_MAX])
{
    struct stat st;
    while (stat(path, &st) != 0) {
        char *slash = strrchr(path, '/');
        if ((errno != ENOENT && errno != ENOTDIR) || strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
            return false;
        if (slash == NULL)
            snprintf(path, PATH_MAX, ".");
        else
            slash[slash == path] = '\0';
    }
    return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
}

/* Append the free space of the file system of `path`. After EDQUOT, append the quota instead. Return false for a device
 * or a pipe, and for a path that cannot be examined. */
static bool append_room(int error, const char *path, char out[WRITE_ERROR_MAX])
{
    char at[PATH_MAX], room[QUOTA_SHOWN] = "", size[SIZE_TEXT_MAX];
    struct statvfs fs;
    snprintf(at, sizeof(at), "%s", path);
    if (path[0] == '\0' || !find_on_disk(at))
        return false;
    if (error == EDQUOT) {
        const int fd = open(at, O_PATH | O_CLOEXEC);
        quota_text(fd, room);
        if (fd >= 0)
            close(fd);
        if (room[0] != '\0')
            snprintf(out, WRITE_ERROR_MAX, "%s (the path%s)", strerror(error), room);
    } else if (statvfs(at, &fs) == 0) {
        if (fs.f_files > 0)
            snprintf(room, sizeof(room), " and %llu inodes", (unsigned long long)fs.f_favail);
        snprintf(out, WRITE_ERROR_MAX, "%s (%s%s free)", strerror(error),
                 words_size(size, (uint64_t)fs.f_bavail * fs.f_frsize), room);
    }
    return true;
}

/* Format the remedy that depends on the path. If the error has no such remedy, the text is "". Root gets no remedy for
 * EACCES, because root already has every permission. */
static const char *path_remedy(int error, char out[FILES_REMEDY_MAX])
{
    out[0] = '\0';
    if (error == ENOSPC || error == EDQUOT)
        snprintf(out, FILES_REMEDY_MAX, "delete files there");
    else if (error == EROFS)
        snprintf(out, FILES_REMEDY_MAX, "mount the file system writable");
    else if (error == EACCES && geteuid() != 0)
        snprintf(out, FILES_REMEDY_MAX, "give user %u permission", (unsigned)geteuid());
    return out;
}

const char *path_error_text(int error, const char *path, const char *other, char out[WRITE_ERROR_MAX])
{
    char general[FILES_REMEDY_MAX], own[FILES_REMEDY_MAX];
    const bool is_full = error == ENOSPC || error == EDQUOT;
    snprintf(out, WRITE_ERROR_MAX, "%s", strerror(error));
    const bool is_on_disk = !is_full || append_room(error, path, out);
    if (other == NULL)
        return out;
    const size_t n = strlen(out);
    files_remedy(error, general);
    own[0] = '\0';
    if (is_on_disk)
        path_remedy(error, own);
    if (general[0] != '\0')
        snprintf(out + n, WRITE_ERROR_MAX - n, "%s", general);
    else if (own[0] != '\0' || other[0] != '\0')
        snprintf(out + n, WRITE_ERROR_MAX - n, "; %s%s%s", own,
                 own[0] != '\0' && other[0] != '\0' ? ", or " : "", other);
    return out;
}

const char *write_error_text(int error, const char *path, char out[WRITE_ERROR_MAX])
{
    const bool is_stream = strncmp(path, "/proc/self/fd/", strlen("/proc/self/fd/")) == 0;
    return path_error_text(error, path,
                           is_stream         ? ""
                           : error == ENOENT ? "create the directory of the file"
                                             : "use another path",
                           out);
}
