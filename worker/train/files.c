/* files.c -- see files.h. */
#include "train/files.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* snprintf returns what it would have liked to write, so a path that was cut is noticed. */
ddp_status files_join(char *to, const char *dir, const char *name, struct ddp_err *err)
{
    int len = snprintf(to, PATH_MAX, "%s/%s", dir, name);
    if (len < 0 || len >= PATH_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "%.100s...: the path is too long", dir);
    return DDP_OK;
}

/* mkdir -p, and a look whether it can be written to: better now than after the first epoch. */
ddp_status files_make_dir(const char *path, struct ddp_err *err)
{
    char part[PATH_MAX];
    struct stat s;
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof(part))
        return ddp_fail(err, DDP_ERR_ARG, "'%.100s' cannot be the name of a directory", path);
    for (size_t end = 1; end <= len; end++) {
        if (path[end] != '/' && path[end] != '\0')
            continue;
        memcpy(part, path, end);
        part[end] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return ddp_fail(err, DDP_ERR_IO, "%s: mkdir: %s", part, strerror(errno));
    }
    if (stat(path, &s) == 0 && !S_ISDIR(s.st_mode))
        return ddp_fail(err, DDP_ERR_IO, "%s: is not a directory", path);
    if (access(path, W_OK | X_OK) != 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot write there: %s", path, strerror(errno));
    return DDP_OK;
}

/* What is no file is written to where it is; a link is followed, so its own directory does not matter. */
static bool is_replaced(const char *path)
{
    struct stat s;
    return lstat(path, &s) != 0 || S_ISREG(s.st_mode);
}

ddp_status files_may_write(const char *path, struct ddp_err *err)
{
    char dir[PATH_MAX];
    struct stat s;
    const char *slash = strrchr(path, '/');
    size_t len = slash != NULL ? (size_t)(slash - path) : 1;
    if (len >= sizeof(dir))
        return ddp_fail(err, DDP_ERR_ARG, "%.100s...: the path is too long", path);
    memcpy(dir, slash != NULL ? path : ".", len);
    dir[len] = '\0';
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode))
        return ddp_fail(err, DDP_ERR_ARG, "%s: is a directory", path);
    if (is_replaced(path) && access(len > 0 ? dir : "/", W_OK | X_OK) != 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot write there: %s", len > 0 ? dir : "/", strerror(errno));
    return DDP_OK;
}

ddp_status files_size(int fd, uint64_t *bytes, struct ddp_err *err)
{
    struct stat s;
    if (fstat(fd, &s) != 0)
        return ddp_fail(err, DDP_ERR_IO, "stat: %s", strerror(errno));
    if (!S_ISREG(s.st_mode))
        return ddp_fail(err, DDP_ERR_ARG, "not a plain file");
    *bytes = (uint64_t)s.st_size;
    return DDP_OK;
}
