/* logdir.c -- see logdir.h.
 *
 * Other users may write to the directory above ours (/tmp). Nothing that lies there already is
 * trusted: the job's own directory must be new, is entered by its owner alone, and files are
 * created exclusively and never through a link. */
#include "output/logdir.h"

#include "output/disk_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHARED_DIR = 0777, PRIVATE_DIR = 0700 };

int logdir_parents(const char *path)
{
    char part[PATH_MAX];
    size_t len = strlen(path);
    if (len >= sizeof(part))
        return ENAMETOOLONG;
    memcpy(part, path, len + 1);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, SHARED_DIR) != 0 && errno != EEXIST)
            return errno;
        *slash = '/';
    }
    return 0;
}

/* A rank's directory may exist: it lies below a root that is ours. */
static ddp_status make_dir(const char *path, mode_t mode, bool must_be_new, struct ddp_err *err)
{
    int error = logdir_parents(path);
    if (error == 0 && mkdir(path, mode) != 0 && (must_be_new || errno != EEXIST))
        error = errno;
    if (error != 0)
        return ddp_fail(err, DDP_ERR_IO, "cannot make the log directory %s: %s", path, strerror(error));
    return DDP_OK;
}

/* The link is made under another name and renamed, so that it is never missing. A directory or file of that name is the
 * user's and stays; without a link nothing is lost. */
static void link_latest(const char *root)
{
    char link[PATH_MAX], temporary[PATH_MAX];
    struct stat st;
    const char *name = strrchr(root, '/') + 1;
    const int dir_len = (int)(name - root);
    int a = snprintf(link, sizeof(link), "%.*slatest", dir_len, root);
    int b = snprintf(temporary, sizeof(temporary), "%.*s.latest.%s", dir_len, root, name);
    if (a >= PATH_MAX || b >= PATH_MAX || (lstat(link, &st) == 0 && !S_ISLNK(st.st_mode)))
        return;
    if (symlink(name, temporary) == 0 && rename(temporary, link) != 0)
        unlink(temporary);
}

ddp_status logdir_make(const char *root, bool latest, struct ddp_err *err)
{
    disk_begin(DISK_MAIN, root);
    ddp_status status = make_dir(root, PRIVATE_DIR, true, err);
    if (status == DDP_OK && latest)
        link_latest(root);
    disk_end(DISK_MAIN);
    return status;
}

ddp_status logdir_attempt(const struct plan *plan, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (int i = 0; i < plan->nproc && status == DDP_OK; i++)
        if (plan->workers[i].log_dir != NULL) {
            disk_begin(DISK_MAIN, plan->workers[i].log_dir);
            status = make_dir(plan->workers[i].log_dir, SHARED_DIR, false, err);
            disk_end(DISK_MAIN);
        }
    return status;
}

int logdir_create(const char *path, int mode, struct ddp_err *err)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags, (mode_t)mode);
    if (fd < 0 && errno == ENOENT && (errno = logdir_parents(path)) == 0)
        fd = open(path, flags, (mode_t)mode);
    if (fd < 0 && errno == EEXIST)
        ddp_fail(err, DDP_ERR_IO,
                 "the log file %s is there already, and no run writes over another's; move it away, or put "
                 "%%j (job id) or %%t (time) into --log_file",
                 path);
    else if (fd < 0)
        ddp_fail(err, DDP_ERR_IO, "cannot create the log file %s: %s%s", path, strerror(errno),
                 errno == EMFILE ? "; raise the limit with 'ulimit -n'" : "");
    return fd;
}
