/* safe_dir.c -- see safe_dir.h. */
#include "contain/safe_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In a user namespace without root the files of the host's root belong to the overflow uid, and so does "/". */
static bool is_trusted(uid_t owner)
{
    struct stat root;
    return owner == geteuid() || owner == 0 || (stat("/", &root) == 0 && owner == root.st_uid);
}

/* A private group (user "bob", group "bob") is usual, and directories in it are mostly group-writable. */
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

/* From the directory itself up to "/", so that `why` names the nearest one. */
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
