/* runtime_dir.c -- see runtime_dir.h.
 *
 * /tmp belongs to everybody: somebody else may have made a directory of our name before us, or a link to one of
 * ours. So a directory is opened first, without following a link, and then looked at through its descriptor;
 * whatever happens to the name afterwards, the files go where we have looked. */
#include "contain/runtime_dir.h"

#include "contain/safe_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The n-th place; false when there is none. /run/user/UID is tried also by its usual path, because ssh and sudo often lose
 * the variable; /tmp comes before $TMPDIR, because batch systems give each job a TMPDIR of its own, where the next start
 * would not find our records. */
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

/* The directory, when it is nobody else's; -1 (errno) when it is not there or not to be trusted. */
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

int runtime_dir_open(int n)
{
    char path[PATH_MAX];
    return place(n, path) ? open_ours(path) : -1;
}

/* To make it and to find it there are one: two starts at once may both be first. */
int runtime_dir_make(char path[PATH_MAX])
{
    int fd = -1;
    path[0] = '\0';
    for (int i = 0; fd < 0 && i < RUNTIME_DIRS; i++)
        if (safe_place(i, path) && (mkdir(path, 0700) == 0 || errno == EEXIST))
            fd = open_ours(path);
    return fd;
}

/* Is it there, or could it be made? */
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
