/* directory.c -- see directory.h: names, the way a checkpoint appears, and the way it goes. Reading is in
 * ckpt_read.c.
 *
 *     .tmp-step-00001200/   written and flushed, then renamed to
 *     step-00001200/        a checkpoint; to be removed, it is renamed to
 *     .old-step-00001200/   whose files go then
 *
 * So under a name without a dot there is always a whole one, whenever the process ends. */
#include "checkpoint/directory.h"

#include "core/crc32c.h"
#include "checkpoint/file_bytes.h"
#include "checkpoint/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 48 };

void ckpt_dir_warn(const struct ckpt_dir *dir, const struct ddp_err *err)
{
    if (dir->warn != NULL)
        dir->warn(dir->user, err->msg);
}

static ddp_status failed(const struct ckpt_dir *dir, const char *name, const char *what, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_IO, "%s/%s: %s: %s", dir->path, name, what, strerror(errno));
}

/* --- listing -------------------------------------------------------------------------------------------- */

/* Only names that we would write ourselves, to the letter. */
static bool step_of(const char *name, uint64_t *step)
{
    char ours[NAME];
    if (sscanf(name, "step-%20" SCNu64, step) != 1)
        return false;
    snprintf(ours, sizeof(ours), "step-%08" PRIu64, *step);
    return strcmp(ours, name) == 0;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Room for one more; grows by doubling. */
static bool append(uint64_t **steps, size_t *n, uint64_t step)
{
    if ((*n & (*n - 1)) == 0) {
        uint64_t *more = realloc(*steps, (*n > 0 ? 2 * *n : 1) * sizeof(**steps));
        if (more == NULL)
            return false;
        *steps = more;
    }
    (*steps)[(*n)++] = step;
    return true;
}

/* The next name; NULL and errno 0 at the end. A directory that cannot be read to its end must not look like one without
 * checkpoints: a run would begin anew. */
static const char *next_name(DIR *there)
{
    errno = 0;
    const struct dirent *entry = readdir(there);
    return entry != NULL ? entry->d_name : NULL;
}

/* Sorted, because a directory has no order. */
ddp_status ckpt_dir_list(const struct ckpt_dir *dir, uint64_t **steps, size_t *n, struct ddp_err *err)
{
    uint64_t step;
    const char *name;
    ddp_status status = DDP_OK;
    *steps = NULL;
    *n = 0;
    DIR *there = opendir(dir->path);
    if (there == NULL)
        return errno == ENOENT ? DDP_OK
                               : ddp_fail(err, DDP_ERR_IO, "%s: open: %s", dir->path, strerror(errno));
    while (status == DDP_OK && (name = next_name(there)) != NULL) {
        if (step_of(name, &step) && !append(steps, n, step))
            status =
                ddp_fail(err, DDP_ERR_NOMEM, "%s: no memory for a list of %zu checkpoints", dir->path, *n);
    }
    if (status == DDP_OK && errno != 0)
        status = ddp_fail(err, DDP_ERR_IO, "%s: read: %s", dir->path, strerror(errno));
    closedir(there);
    if (*n > 1)
        qsort(*steps, *n, sizeof(**steps), by_number);
    return status;
}

/* --- removing ------------------------------------------------------------------------------------------- */

/* A directory of files, as we make them. Something else in it is a reason to stop, and for rmdir to say
 * so. */
static int remove_tree(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *there = fd >= 0 ? fdopendir(fd) : NULL;
    if (there == NULL) {
        if (fd >= 0)
            close(fd);
        return errno == ENOENT ? 0 : -1;
    }
    for (const struct dirent *entry; (entry = readdir(there)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(fd, entry->d_name, 0);
    }
    closedir(there);
    return unlinkat(parent, name, AT_REMOVEDIR);
}

/* First out of sight: half a checkpoint must not be seen as a damaged one. */
static void remove_step(const struct ckpt_dir *dir, int fd, uint64_t step)
{
    char name[NAME], old[NAME];
    struct ddp_err err;
    snprintf(name, sizeof(name), "step-%08" PRIu64, step);
    snprintf(old, sizeof(old), ".old-%.40s", name);
    if (remove_tree(fd, old) != 0 || renameat(fd, name, fd, old) != 0 || remove_tree(fd, old) != 0) {
        failed(dir, name, "cannot be removed", &err);
        ckpt_dir_warn(dir, &err);
    }
}

/* Only what we make ourselves; other hidden files are somebody's. */
static bool is_leftover(const char *name)
{
    uint64_t step;
    return (strncmp(name, ".tmp-", 5) == 0 || strncmp(name, ".old-", 5) == 0) && step_of(name + 5, &step);
}

/* There is one writer, so whatever has such a name is nobody's work in progress. */
static void remove_leftovers(const struct ckpt_dir *dir, int fd)
{
    DIR *there = opendir(dir->path);
    if (there == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(there)) != NULL;) {
        struct ddp_err err;
        if (is_leftover(entry->d_name) && remove_tree(fd, entry->d_name) != 0) {
            failed(dir, entry->d_name, "left over, and cannot be removed", &err);
            ckpt_dir_warn(dir, &err);
        }
    }
    closedir(there);
}

/* From the newest down, so that counting tells which are the last few. */
void ckpt_dir_tidy(const struct ckpt_dir *dir, uint64_t step, unsigned last, uint64_t every)
{
    uint64_t *steps;
    size_t n, kept = 0;
    struct ddp_err err;
    int fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    remove_leftovers(dir, fd);
    if (ckpt_dir_list(dir, &steps, &n, &err) != DDP_OK)
        ckpt_dir_warn(dir, &err);
    for (size_t i = n; i-- > 0;) {
        if (steps[i] > step || kept++ < last || (every != 0 && steps[i] % every == 0))
            continue;
        remove_step(dir, fd, steps[i]);
    }
    free(steps);
    close(fd);
}

/* --- writing -------------------------------------------------------------------------------------------- */

/* Flush and close; close is where network file systems report a full disk. */
static int finish(int fd)
{
    int bad = fsync(fd);
    int saved = errno;
    if (close(fd) != 0 && bad == 0)
        return -1;
    errno = saved;
    return bad;
}

/* One file of the checkpoint: pieces one behind the other. */
static ddp_status write_file(const struct ckpt_dir *dir, int at, const char *name,
                             const ddp_ckpt_block *pieces, size_t n, struct ddp_err *err)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return failed(dir, name, "open", err);
    for (size_t i = 0; i < n; i++) {
        if (file_write(fd, pieces[i].data, pieces[i].bytes) != 0) {
            failed(dir, name, "write", err);
            close(fd);
            return DDP_ERR_IO;
        }
    }
    return finish(fd) == 0 ? DDP_OK : failed(dir, name, "flush to the disk", err);
}

/* The manifest of these blocks; yours. */
static char *describe(const ddp_ckpt_point *point, const ddp_ckpt_block *blocks, size_t n)
{
    struct manifest m = { .point = *point, .n = n, .blocks = calloc(n, sizeof(*m.blocks)) };
    if (m.blocks == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        snprintf(m.blocks[i].name, MANIFEST_NAME, "%s", blocks[i].name);
        m.blocks[i].bytes = blocks[i].bytes;
        m.blocks[i].crc = crc32c(0, blocks[i].data, blocks[i].bytes);
        m.bytes += blocks[i].bytes;
    }
    char *text = manifest_write(&m);
    manifest_free(&m);
    return text;
}

/* Both files into the directory open as `at`, and the directory itself to the disk. */
static ddp_status fill(const struct ckpt_dir *dir, int at, const ddp_ckpt_point *point,
                       const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    char *text = describe(point, blocks, n);
    if (text == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: no memory for a manifest of %zu blocks", dir->path, n);
    const ddp_ckpt_block manifest = { "manifest", text, strlen(text) };
    ddp_status status = write_file(dir, at, MANIFEST_FILE, blocks, n, err);
    if (status == DDP_OK)
        status = write_file(dir, at, "manifest.json", &manifest, 1, err);
    if (status == DDP_OK && fsync(at) != 0)
        status = failed(dir, "", "flush to the disk", err);
    free(text);
    return status;
}

/* Where there is a checkpoint of this step already, the two change places, so that there is one at any
 * moment. File systems that cannot do that (NFS) have it moved away first, and back when the new one cannot follow. What
 * cannot be removed afterwards is no failure: the new one is there, and ckpt_dir_tidy warns. */
static int appear(int fd, const char *temporary, const char *name)
{
    char old[NAME];
    if (renameat(fd, temporary, fd, name) == 0)
        return 0;
    if (errno != EEXIST && errno != ENOTEMPTY)
        return -1;
    if (renameat2(fd, temporary, fd, name, RENAME_EXCHANGE) == 0) {
        remove_tree(fd, temporary);
        return 0;
    }
    snprintf(old, sizeof(old), ".old-%.40s", name);
    if (remove_tree(fd, old) != 0 || renameat(fd, name, fd, old) != 0)
        return -1;
    if (renameat(fd, temporary, fd, name) != 0) {
        int why = errno;
        renameat(fd, old, fd, name);
        errno = why;
        return -1;
    }
    remove_tree(fd, old);
    return 0;
}

/* Whatever goes wrong, nothing is left under the temporary name, as far as the disk still lets us. */
static ddp_status write_in(const struct ckpt_dir *dir, int fd, const ddp_ckpt_point *point,
                           const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    char temporary[NAME];
    snprintf(temporary, sizeof(temporary), ".tmp-step-%08" PRIu64, point->step);
    if (remove_tree(fd, temporary) != 0 || mkdirat(fd, temporary, 0777) != 0)
        return failed(dir, temporary, "make the directory", err);
    int at = openat(fd, temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (at < 0)
        return failed(dir, temporary, "open", err);
    ddp_status status = fill(dir, at, point, blocks, n, err);
    close(at);
    if (status == DDP_OK && (appear(fd, temporary, temporary + 5) != 0 || fsync(fd) != 0))
        status = failed(dir, temporary + 5, "rename", err);
    if (status != DDP_OK)
        remove_tree(fd, temporary);
    return status;
}

/* The directory that has just been made in it outlives a power cut only then. */
static int flush_parent(int fd)
{
    int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return parent < 0 ? -1 : finish(parent);
}

/* Everything happens relative to the directory as it was opened: moving it meanwhile does no harm. */
ddp_status ckpt_dir_write(const struct ckpt_dir *dir, const ddp_ckpt_point *point,
                          const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    const bool made = mkdir(dir->path, 0777) == 0;
    if (!made && errno != EEXIST)
        return ddp_fail(err, DDP_ERR_IO, "%s: make the directory: %s", dir->path, strerror(errno));
    int fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: open: %s", dir->path, strerror(errno));
    ddp_status status = made && flush_parent(fd) != 0 ? failed(dir, "..", "flush to the disk", err)
                                                      : write_in(dir, fd, point, blocks, n, err);
    close(fd);
    return status;
}
