/* error_dir.c -- see error_dir.h. It lies in a directory that others may write to (/tmp), so it must be new
 * and is entered by its owner alone. */
#include "report/error_dir.h"

#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void error_dir_make(struct plan *plan)
{
    if (plan->error_dir == NULL || mkdir(plan->error_dir, 0700) == 0)
        return;
    log_warn("workers cannot leave error files: cannot make %s: %s (TMPDIR, or --log_dir)", plan->error_dir,
             strerror(errno));
    plan_without_error_files(plan);
}

void error_dir_remove(const struct plan *plan)
{
    int fd =
        plan->error_dir != NULL ? open(plan->error_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (list == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *d; (d = readdir(list)) != NULL;)
        unlinkat(fd, d->d_name, 0); /* "." and ".." refuse by themselves */
    closedir(list);
    rmdir(plan->error_dir);
}
