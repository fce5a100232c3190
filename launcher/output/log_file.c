/* log_file.c -- see log_file.h.
 *
 * The number grows and names never move, so a part can be copied away at any time, and a rotation costs one rename.
 * A part ends behind a newline when there is one within NEAR_BYTES of the limit, so that no line is cut in two.
 *
 * A rotation that fails must not cost a byte: the file just grows on, and the next chance is a whole limit later. */
#include "output/log_file.h"

#include "output/disk_watch.h"
#include "output/logdir.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NEAR_BYTES = 64 * 1024, /* how far from the limit a newline is looked for */
    LOOK_MS = 1000          /* how often we look whether the file is still there */
};

struct log_file {
    int fd;
    struct log_rotate rotate;
    uint64_t size;   /* of the file as it is now */
    uint64_t full;   /* rotate when it has this size; moves on when a rotation fails */
    int part;        /* number of the latest part, 0 = none yet */
    bool line_ended; /* the last byte written is a newline, or there is none */
    uint64_t look_ms;
    atomic_int news; /* enum log_news that nobody was told of yet */
    char path[];
};

/* A limit of 0 means never: `full` is then out of reach, and writing needs no case of its own. */
struct log_file *log_file_create(const char *path, struct log_rotate rotate, struct ddp_err *err)
{
    const size_t len = strlen(path) + 1;
    struct log_file *f = calloc(1, sizeof(*f) + len);
    if (f == NULL) {
        ddp_fail(err, DDP_ERR_NOMEM, "no memory for the log file %s", path);
        return NULL;
    }
    memcpy(f->path, path, len);
    f->rotate = rotate;
    f->full = rotate.bytes > 0 ? rotate.bytes : UINT64_MAX;
    f->line_ended = true;
    disk_begin(DISK_MAIN, path);
    f->fd = logdir_create(path, LOGDIR_OUTPUT, err);
    disk_end(DISK_MAIN);
    if (f->fd >= 0)
        return f;
    free(f);
    return NULL;
}

/* --- rotation ------------------------------------------------------------------------------------------- */

/* Where a part may end among the next bytes: behind the last newline that fits, else where it is full. */
static size_t room_for(const struct log_file *f, const uint8_t *data, size_t len)
{
    const uint64_t left = f->size < f->full ? f->full - f->size : 0;
    if (len <= left)
        return len;
    const size_t near = left > NEAR_BYTES ? NEAR_BYTES : (size_t)left;
    const uint8_t *from = data + left - near;
    const uint8_t *newline = memrchr(from, '\n', near);
    if (newline != NULL)
        return (size_t)(newline + 1 - data);
    return f->line_ended && f->size > 0 && left < NEAR_BYTES ? 0 : (size_t)left;
}

static bool part_name(char out[PATH_MAX], const struct log_file *f, int part)
{
    return snprintf(out, PATH_MAX, "%s.%d", f->path, part) < PATH_MAX;
}

/* Never over what lies there: the next free number is taken. */
static bool move_away(struct log_file *f)
{
    char name[PATH_MAX];
    for (int tries = 0; tries < 1000; tries++) {
        if (!part_name(name, f, f->part + 1))
            return false;
        int error = renameat2(AT_FDCWD, f->path, AT_FDCWD, name, RENAME_NOREPLACE) == 0 ? 0 : errno;
        if (error == EINVAL || error == ENOSYS) /* a file system without that flag */
            error = link(f->path, name) == 0 && unlink(f->path) == 0 ? 0 : errno;
        if (error == 0 || error == EEXIST)
            f->part++;
        if (error != EEXIST)
            return error == 0;
    }
    return false;
}

/* The new file could not be made: the old one gets its name again, or the user would look for his log in vain. */
static void take_back(const struct log_file *f)
{
    char name[PATH_MAX];
    if (part_name(name, f, f->part))
        renameat2(AT_FDCWD, name, AT_FDCWD, f->path, RENAME_NOREPLACE);
}

/* The name is free: another file takes it. The old one is kept open until the new one is there. */
static bool open_anew(struct log_file *f)
{
    struct ddp_err err;
    int fd = logdir_create(f->path, LOGDIR_OUTPUT, &err);
    if (fd < 0)
        return false;
    close(f->fd);
    f->fd = fd;
    f->size = 0;
    f->line_ended = true;
    return true;
}

/* One for each that is added, so the number stays the same. What somebody else has removed already is no error. */
static void forget_oldest(const struct log_file *f)
{
    char name[PATH_MAX];
    if (f->rotate.keep > 0 && f->part > f->rotate.keep && part_name(name, f, f->part - f->rotate.keep))
        unlink(name);
}

static void rotate(struct log_file *f)
{
    const bool moved = move_away(f);
    if (moved && open_anew(f)) {
        f->full = f->rotate.bytes;
        forget_oldest(f);
        return;
    }
    if (moved)
        take_back(f);
    f->full = f->size + f->rotate.bytes;
    atomic_store(&f->news, LOG_NOT_ROTATED);
}

/* --- writing -------------------------------------------------------------------------------------------- */

/* Deleted, with its directory perhaps: what was in it is gone by the user's will, what comes now is not. */
static void look_if_deleted(struct log_file *f)
{
    struct stat st;
    const uint64_t now = clock_ms();
    if (now < f->look_ms)
        return;
    f->look_ms = now + LOOK_MS;
    if (fstat(f->fd, &st) == 0 && st.st_nlink == 0)
        atomic_store(&f->news, open_anew(f) ? LOG_MADE_AGAIN : LOG_DELETED);
}

/* Written by the writer's thread and asked for by the loop: hence atomic, and taken away by asking. */
enum log_news log_file_news(struct log_file *f)
{
    return atomic_exchange(&f->news, LOG_NO_NEWS);
}

/* Up to `len` bytes into the file as it is now. */
static size_t write_some(struct log_file *f, const uint8_t *data, size_t len, int *error)
{
    size_t done = 0;
    while (done < len && *error == 0) {
        ssize_t n = write(f->fd, data + done, len - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            *error = errno;
    }
    f->size += done;
    if (done > 0)
        f->line_ended = data[done - 1] == '\n';
    return done;
}

/* Part by part: one write may fill several, when a worker prints more at once than the limit. */
static size_t target_write(void *user, const uint8_t *data, size_t len, int *error)
{
    struct log_file *f = user;
    size_t done = 0;
    *error = 0;
    disk_begin(DISK_FILES, f->path);
    look_if_deleted(f);
    while (done < len && *error == 0) {
        size_t part = room_for(f, data + done, len - done);
        done += write_some(f, data + done, part, error);
        if (*error == 0 && done < len)
            rotate(f);
    }
    disk_end(DISK_FILES);
    return done;
}

static void target_close(void *user)
{
    struct log_file *f = user;
    disk_begin(DISK_FILES, f->path);
    close(f->fd);
    disk_end(DISK_FILES);
    free(f);
}

struct writer_target log_file_target(struct log_file *f)
{
    return (struct writer_target){ .write = target_write, .close = target_close, .user = f };
}
