/* logdir.c -- see logdir.h.
 *
 * Other users may write to the directory above ours (/tmp). Nothing that lies there already is
 * trusted: the job's own directory must be new, is entered by its owner alone, and files are
 * created exclusively and never through a link. */
#include "logdir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum { SHARED_DIR = 0777, PRIVATE_DIR = 0700, LOG_FILE = 0666 };

/* mkdir for every '/' in `path` but the last part; what exists is fine. */
static int make_parents(const char *path)
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
    int error = make_parents(path);
    if (error == 0 && mkdir(path, mode) != 0 && (must_be_new || errno != EEXIST))
        error = errno;
    if (error != 0)
        return ddp_fail(err, DDP_ERR_IO, "cannot make the log directory %s: %s", path, strerror(error));
    return DDP_OK;
}

ddp_status logdir_make(const struct plan *plan, struct ddp_err *err)
{
    return plan->log_root != NULL ? make_dir(plan->log_root, PRIVATE_DIR, true, err) : DDP_OK;
}

ddp_status logdir_attempt(const struct plan *plan, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (int i = 0; i < plan->nproc && status == DDP_OK; i++)
        if (plan->workers[i].log_dir != NULL)
            status = make_dir(plan->workers[i].log_dir, SHARED_DIR, false, err);
    return status;
}

int logdir_create(const char *path, struct ddp_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, LOG_FILE);
    if (fd < 0)
        ddp_fail(err, DDP_ERR_IO, "cannot create the log file %s: %s", path, strerror(errno));
    return fd;
}
