/* atomic_file.c -- see atomic_file.h.
 *
 * The order is what makes it safe: data reaches the disk before the name does (fsync before rename), and the
 * name before we say that it is done (fsync of the directory). A crash between any two steps leaves the old
 * file.
 *
 * A rename onto /dev/null would put a plain file in its place, for everybody on the machine, and one onto a link
 * would leave the link's target old. So a link is followed first, and what is there but is no plain file is
 * written to as it is. */
#include "checkpoint/atomic_file.h"

#include "checkpoint/file_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *name_of(const struct atomic_file *file)
{
    return file->temporary != NULL ? file->temporary : file->path;
}

/* The end of a struct atomic_file, on all ways. */
static void forget(struct atomic_file *file)
{
    free(file->path);
    free(file->temporary);
    *file = (struct atomic_file){ .fd = -1 };
}

/* Nothing of it stays, whatever has been written. */
static void discard(struct atomic_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->temporary != NULL)
        unlink(file->temporary);
    forget(file);
}

/* Blame the system call `what`, then clean up: errno must be read before anything else touches it. */
static ddp_status fail(struct atomic_file *file, const char *what, struct ddp_err *err)
{
    ddp_fail(err, DDP_ERR_IO, "%s: %s: %s", name_of(file), what, strerror(errno));
    discard(file);
    return DDP_ERR_IO;
}

/* a and b in memory of their own; NULL when there is none. */
static char *joined(const char *a, const char *b)
{
    size_t len_a = strlen(a), len_b = strlen(b);
    char *text = malloc(len_a + len_b + 1);
    if (text != NULL) {
        memcpy(text, a, len_a);
        memcpy(text + len_a, b, len_b + 1);
    }
    return text;
}

/* Is there something that a rename must not replace: a device, a pipe, a link into nowhere? */
static bool is_special(const char *path)
{
    struct stat there;
    return lstat(path, &there) == 0 && (stat(path, &there) != 0 || !S_ISREG(there.st_mode));
}

/* Where the bytes are to appear, in new memory: behind a link its target. */
static char *target_of(const char *path)
{
    struct stat there;
    bool is_link = lstat(path, &there) == 0 && S_ISLNK(there.st_mode);
    return is_link && !is_special(path) ? realpath(path, NULL) : joined(path, "");
}

/* Mode 0666 less the umask, as for any file that a program writes. */
static int open_for_writing(struct atomic_file *file)
{
    if (file->temporary == NULL)
        return open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY | O_CLOEXEC, 0666);
    /* O_EXCL after unlink: never write through a link that somebody else has put there. */
    unlink(file->temporary);
    return open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

ddp_status atomic_open(struct atomic_file *file, const char *path, struct ddp_err *err)
{
    const bool special = is_special(path);
    *file = (struct atomic_file){ .fd = -1, .path = target_of(path) };
    if (file->path != NULL && !special)
        file->temporary = joined(file->path, ".tmp");
    if (file->path == NULL || (file->temporary == NULL && !special)) {
        forget(file);
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: no memory to write it", path);
    }
    file->fd = open_for_writing(file);
    if (file->fd < 0) {
        ddp_fail(err, DDP_ERR_IO, "%s: open: %s", name_of(file), strerror(errno));
        forget(file);
        return DDP_ERR_IO;
    }
    return DDP_OK;
}

ddp_status atomic_write(struct atomic_file *file, const void *data, size_t len, struct ddp_err *err)
{
    return file_write(file->fd, data, len) == 0 ? DDP_OK : fail(file, "write", err);
}

/* A rename is on the disk only when its directory is. */
static int sync_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash == NULL ? joined(".", "") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    int fd = dir == NULL ? -1 : open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    if (fd < 0)
        return -1;
    int failed = fsync(fd);
    close(fd);
    return failed;
}

/* Bytes to the disk. A terminal, a pipe or a device that has no disk behind it says EINVAL; that is no failure. */
static int sync_data(const struct atomic_file *file)
{
    int failed = fsync(file->fd);
    return failed != 0 && file->temporary == NULL && errno == EINVAL ? 0 : failed;
}

/* After the rename nothing can be taken back; an error then means: there, but perhaps not after a power
 * cut. */
ddp_status atomic_commit(struct atomic_file *file, struct ddp_err *err)
{
    if (sync_data(file) != 0)
        return fail(file, "fsync", err);
    int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0) /* where network file systems report a full disk */
        return fail(file, "close", err);
    if (file->temporary != NULL && rename(file->temporary, file->path) != 0)
        return fail(file, "rename", err);
    if (file->temporary != NULL && sync_directory_of(file->path) != 0)
        return fail(file, "fsync of its directory", err);
    forget(file);
    return DDP_OK;
}
