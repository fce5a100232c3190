/* shim.c -- see shim.h.
 *
 * The command is a symbolic link to ddprun, which starts as torchrun because of the link's name. A link whose target
 * is called ddprun is a shim. If DIR is ddprun's own directory, the link is relative, so that the whole directory can
 * be moved. */
#include "node/shim.h"

#include "base/log.h"
#include "plan/plan.h"
#include "tables/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

#define SHIM "torchrun"
enum holder { HOLDS_NOTHING, HOLDS_SHIM, HOLDS_OTHER, HOLDS_UNKNOWN };

static ddp_status fail_io(struct ddp_err *err, const char *what, const char *dir, const char *remedy)
{
    return ddp_fail(err, DDP_ERR_IO, "shim: cannot %s %.300s: %s%s", what, dir, strerror(errno), remedy);
}

/* Return the kind of DIR/torchrun, and the target of a shim in `target`. readlink fails with EINVAL if DIR/torchrun
 * is no link. */
static enum holder find_holder(int dir, char target[PATH_MAX])
{
    const ssize_t n = readlinkat(dir, SHIM, target, PATH_MAX - 1);
    if (n < 0)
        return errno == ENOENT ? HOLDS_NOTHING : errno == EINVAL ? HOLDS_OTHER : HOLDS_UNKNOWN;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    return strcmp(slash != NULL ? slash + 1 : target, "ddprun") == 0 ? HOLDS_SHIM : HOLDS_OTHER;
}

static ddp_status refuse_other(struct ddp_err *err, const char *dir, const char *remedy)
{
    return ddp_fail(err, DDP_ERR_IO, "shim: %.300s/" SHIM " is another program and is not changed%s", dir,
                    remedy);
}

/* Return the target of the link: the name of this program if the program is in DIR, or else its path. */
static const char *target_in(const char *whole_dir, const char *program)
{
    const char *slash = strrchr(program, '/');
    const size_t len = (size_t)(slash - program);
    return strlen(whole_dir) == len && memcmp(whole_dir, program, len) == 0 ? slash + 1 : program;
}

/* Create the link, or replace an older link by a rename. The first link is created without a rename, which could
 * overwrite another torchrun. */
static bool make_link(int dir, const char *target)
{
    char old[PATH_MAX], fresh[64];
    if (find_holder(dir, old) == HOLDS_NOTHING)
        return symlinkat(target, dir, SHIM) == 0;
    if (strcmp(old, target) == 0)
        return true;
    snprintf(fresh, sizeof(fresh), "." SHIM ".%d", (int)getpid());
    if (symlinkat(target, dir, fresh) != 0)
        return false;
    if (renameat(dir, fresh, dir, SHIM) == 0)
        return true;
    const int error = errno;
    unlinkat(dir, fresh, 0);
    errno = error;
    return false;
}

/* Return true if the first torchrun in PATH is the shim in `dir`. */
static bool is_first(int dir)
{
    const struct env_sources env = { .inherited = environ };
    struct stat first, ours;
    char path[PATH_MAX];
    return torch_look_python(SHIM, &env, path) && lstat(path, &first) == 0 &&
           fstatat(dir, SHIM, &ours, AT_SYMLINK_NOFOLLOW) == 0 && first.st_dev == ours.st_dev &&
           first.st_ino == ours.st_ino;
}

static ddp_status write_in(int fd, const char *dir, struct buf *out, struct ddp_err *err)
{
    char program[PATH_MAX], whole_dir[PATH_MAX], old[PATH_MAX];
    if (realpath(dir, whole_dir) == NULL || !own_program(program))
        return fail_io(err, "find the path of", dir, "");
    const enum holder holder = find_holder(fd, old);
    if (holder == HOLDS_OTHER)
        return refuse_other(err, dir, "; choose another directory");
    if (holder == HOLDS_UNKNOWN || !make_link(fd, target_in(whole_dir, program)))
        return fail_io(err, "write " SHIM " in", dir, "; choose a directory that you may write to");
    const bool first = is_first(fd);
    log_info("%s/" SHIM " starts %s%s", whole_dir, program,
             first ? ", and is the first " SHIM " in PATH" : "; this line puts its directory first in PATH:");
    if (first ||
        (buf_printf(out, "export PATH=") && shell_word(out, whole_dir) && buf_printf(out, ":\"$PATH\"\n")))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
}

ddp_status shim_write(const char *dir, struct buf *out, struct ddp_err *err)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return fail_io(err, "create", dir, errno == ENOENT ? "; mkdir -p creates it" : "");
    const int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_io(err, "open", dir, "");
    ddp_status status = write_in(fd, dir, out, err);
    close(fd);
    return status;
}

ddp_status shim_remove(const char *dir, struct ddp_err *err)
{
    char target[PATH_MAX];
    const int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_io(err, "open", dir, "");
    const enum holder holder = find_holder(fd, target);
    ddp_status status = DDP_OK;
    if (holder == HOLDS_OTHER)
        status = refuse_other(err, dir, "");
    else if (holder != HOLDS_SHIM || unlinkat(fd, SHIM, 0) != 0)
        status = fail_io(err, "remove " SHIM " from", dir, "");
    close(fd);
    return status;
}
