/* limits.c -- see limits.h. The values of a full file system are read at the error, because later they may differ. */
#include "base/limits.h"

#include "base/text.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Find the type and the source of the file system of `fd` in /proc/self/mountinfo, whose rows are
 * "ID PARENT MAJOR:MINOR ROOT MOUNT-POINT OPTIONS ... - TYPE SOURCE OPTIONS". */
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

/* Append used and permitted bytes and files of a quota. The limit is the soft limit if it is exceeded, because its grace
 * period may be over. Otherwise it is the hard limit. Append nothing if the quota has no limit. */
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

/* Shorten `path` until it names an existing file or directory. Return false if it is on no disk, as a device or a
 * pipe, or if it cannot be examined. */
static bool find_on_disk(char path[PATH_MAX])
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

const char *write_error_text(int error, const char *path, char out[WRITE_ERROR_MAX])
{
    char at[PATH_MAX], room[QUOTA_SHOWN] = "", size[SIZE_TEXT_MAX], remedy[FILES_REMEDY_MAX];
    struct statvfs fs;
    snprintf(out, WRITE_ERROR_MAX, "%s%s", strerror(error), files_remedy(error, remedy));
    snprintf(at, sizeof(at), "%s", path);
    if ((error != ENOSPC && error != EDQUOT) || path[0] == '\0' || !find_on_disk(at))
        return out;
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
    return out;
}
