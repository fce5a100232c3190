/* directory.c -- see directory.h. The process may end at any moment, so a checkpoint is written and removed under a
 * name that begins with a dot. Every other name belongs to a whole checkpoint. A load reads the blocks twice, so that
 * damage near the end is detected before the caller's model changes. */
#include "checkpoint/directory.h"

#include "base/limits.h"
#include "base/syscalls.h"
#include "checkpoint/file.h"
#include "checkpoint/manifest.h"
#include "core/crc32c.h"

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

/* Size of a buffer for a name, in bytes. The longest name, ".old-step-" with 20 digits and the NUL, needs 31 bytes. */
enum { NAME = 48 };

void ckpt_dir_warn(const struct ckpt_dir *dir, const struct ddp_err *err)
{
    if (dir->warn != NULL)
        dir->warn(dir->user, err->msg);
}

/* Report a failed operation on the file `name` of the directory. `what` names the operation, and errno has the reason.
 * If `is_removal` is true, do not propose another path, because the files to remove are on this path. */
static ddp_status fail_errno(const struct ckpt_dir *dir, const char *name, const char *what, bool is_removal,
                             struct ddp_err *err)
{
    char why[WRITE_ERROR_MAX];
    if (is_removal)
        path_error_text(errno, dir->path, errno == ENOTEMPTY ? "remove it by hand" : "", why);
    else
        write_error_text(errno, dir->path, why);
    return ddp_fail(err, DDP_ERR_IO, "%s/%s: %s: %s", dir->path, name, what, why);
}

/* --- listing -------------------------------------------------------------------------------------------- */

/* The names in a directory of checkpoints:
 *
 *     .tmp-step-00001200/   being written
 *     step-00001200/        whole
 *     .old-step-00001200/   being removed */

/* Parse the step in a checkpoint's name. Accept only names that this module writes. */
static bool step_of(const char *name, uint64_t *step)
{
    char expected[NAME];
    if (sscanf(name, "step-%20" SCNu64, step) != 1)
        return false;
    snprintf(expected, sizeof(expected), "step-%08" PRIu64, *step);
    return strcmp(expected, name) == 0;
}

/* Compare two steps for qsort. Do not subtract the steps, because the difference could overflow. */
static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Append a step. When *n is 0 or a power of two, the array is full, so double its size. */
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

/* Return the next name in the directory, or NULL at the end or after a failure. errno is 0 at the end, and nonzero
 * after a failure. If the caller treated a failure as the end, it would miss checkpoints, and the run could start from
 * the beginning. */
static const char *next_name(DIR *there)
{
    errno = 0;
    const struct dirent *entry = readdir(there);
    return entry != NULL ? entry->d_name : NULL;
}

/* List the steps. Sort them, because readdir returns names in any order. */
ddp_status ckpt_dir_list(const struct ckpt_dir *dir, uint64_t **steps, size_t *n, struct ddp_err *err)
{
    uint64_t step;
    const char *name;
    char why[WRITE_ERROR_MAX];
    ddp_status status = DDP_OK;
    *steps = NULL;
    *n = 0;
    DIR *there = opendir(dir->path);
    if (there == NULL)
        return errno == ENOENT ? DDP_OK
                               : ddp_fail(err, DDP_ERR_IO, "%s: cannot open: %s", dir->path,
                                          path_error_text(errno, dir->path, "check the path", why));
    while (status == DDP_OK && (name = next_name(there)) != NULL) {
        if (step_of(name, &step) && !append(steps, n, step))
            status = ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for a list of %zu checkpoints",
                              dir->path, *n);
    }
    if (status == DDP_OK && errno != 0)
        status = ddp_fail(err, DDP_ERR_IO, "%s: cannot read: %s", dir->path,
                          path_error_text(errno, dir->path, "", why));
    closedir(there);
    if (*n > 1)
        qsort(*steps, *n, sizeof(**steps), by_number);
    return status;
}

/* --- removing ------------------------------------------------------------------------------------------- */

/* Remove the directory `name` and its files. Return 0 if `name` is missing, and fail if it contains a directory. */
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

/* Remove a checkpoint. Rename the checkpoint first, because a half-removed checkpoint would look damaged. */
static void remove_step(const struct ckpt_dir *dir, int fd, uint64_t step)
{
    char name[NAME], old[NAME];
    struct ddp_err err;
    snprintf(name, sizeof(name), "step-%08" PRIu64, step);
    snprintf(old, sizeof(old), ".old-%.40s", name);
    if (remove_tree(fd, old) != 0 || renameat(fd, name, fd, old) != 0 || remove_tree(fd, old) != 0) {
        fail_errno(dir, name, "cannot remove this old checkpoint", true, &err);
        ckpt_dir_warn(dir, &err);
    }
}

/* Return true if `name` is a hidden name that this module creates. Other hidden files belong to the user. */
static bool is_leftover(const char *name)
{
    uint64_t step;
    return (strncmp(name, ".tmp-", 5) == 0 || strncmp(name, ".old-", 5) == 0) && step_of(name + 5, &step);
}

/* Remove the hidden directories that an interrupted process did not remove. There is only one writer, so no running
 * process uses these directories. */
static void remove_leftovers(const struct ckpt_dir *dir, int fd)
{
    DIR *there = opendir(dir->path);
    if (there == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(there)) != NULL;) {
        struct ddp_err err;
        if (is_leftover(entry->d_name) && remove_tree(fd, entry->d_name) != 0) {
            fail_errno(dir, entry->d_name, "cannot remove this directory of an interrupted run", true, &err);
            ckpt_dir_warn(dir, &err);
        }
    }
    closedir(there);
}

/* Remove old checkpoints up to `step`. Keep the newest checkpoints; `last` is their number. If `every` is not 0, also
 * keep each checkpoint whose step is a multiple of `every`. */
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

/* Flush and close the file. Network file systems report a full disk only at close. */
static int flush_and_close(int fd)
{
    int bad = fsync(fd);
    int saved = errno;
    if (close(fd) != 0 && bad == 0)
        return -1;
    errno = saved;
    return bad;
}

/* Write one file of the checkpoint: the data of all `pieces`, one after the other. The open with O_EXCL succeeds,
 * because remove_tree has removed any file of that name. */
static ddp_status write_pieces(const struct ckpt_dir *dir, int at, const char *name,
                               const ddp_ckpt_block *pieces, size_t n, struct ddp_err *err)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_errno(dir, name, "cannot open", false, err);
    for (size_t i = 0; i < n; i++) {
        if (file_write(fd, pieces[i].data, pieces[i].bytes) != 0) {
            fail_errno(dir, name, "cannot write", false, err);
            close(fd);
            return DDP_ERR_IO;
        }
    }
    return flush_and_close(fd) == 0 ? DDP_OK : fail_errno(dir, name, "cannot flush to the disk", false, err);
}

/* Return the manifest of these blocks as text, or NULL if memory is short. The caller frees the text. */
static char *make_manifest(const ddp_ckpt_point *point, const ddp_ckpt_block *blocks, size_t n)
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

/* Write the file of the blocks, then the manifest, into the open directory `at`. Finally flush the directory, because
 * otherwise a power cut could remove the names of the two files. */
static ddp_status write_files(const struct ckpt_dir *dir, int at, const ddp_ckpt_point *point,
                              const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    char *text = make_manifest(point, blocks, n);
    if (text == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for a manifest of %zu blocks", dir->path, n);
    const ddp_ckpt_block manifest = { "manifest", text, strlen(text) };
    ddp_status status = write_pieces(dir, at, MANIFEST_FILE, blocks, n, err);
    if (status == DDP_OK)
        status = write_pieces(dir, at, "manifest.json", &manifest, 1, err);
    if (status == DDP_OK && fsync(at) != 0)
        status = fail_errno(dir, "", "cannot flush to the disk", false, err);
    free(text);
    return status;
}

/* Rename the finished directory `temporary` to `name`. If `name` exists, exchange the two directories, so that a
 * checkpoint of this step exists at any moment. If the exchange is impossible and a later rename fails, move the old
 * directory back. If the old directory cannot be removed at the end, ckpt_dir_tidy removes it later or warns. */
static int rename_finished(int fd, const char *temporary, const char *name)
{
    char old[NAME];
    if (renameat(fd, temporary, fd, name) == 0)
        return 0;
    if (errno != EEXIST && errno != ENOTEMPTY)
        return -1;
    if (sys_renameat2(fd, temporary, fd, name, RENAME_EXCHANGE) == 0) {
        remove_tree(fd, temporary);
        return 0;
    }
    /* NFS cannot exchange directories, so move the old one away. */
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

/* Write the checkpoint into a temporary directory inside the directory `fd`, then rename the temporary directory. After
 * any failure, remove the temporary directory, if the disk allows the removal. */
static ddp_status write_in(const struct ckpt_dir *dir, int fd, const ddp_ckpt_point *point,
                           const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    char temporary[NAME];
    snprintf(temporary, sizeof(temporary), ".tmp-step-%08" PRIu64, point->step);
    if (remove_tree(fd, temporary) != 0 || mkdirat(fd, temporary, 0777) != 0)
        return fail_errno(dir, temporary, "cannot create the directory", false, err);
    int at = openat(fd, temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ddp_status status = at >= 0 ? write_files(dir, at, point, blocks, n, err)
                                : fail_errno(dir, temporary, "cannot open", false, err);
    if (at >= 0)
        close(at);
    if (status == DDP_OK && rename_finished(fd, temporary, temporary + 5) != 0)
        status = fail_errno(dir, temporary + 5, "cannot rename", false, err);
    else if (status == DDP_OK && fsync(fd) != 0)
        status = fail_errno(dir, temporary + 5, "cannot flush the directory after the rename", false, err);
    if (status != DDP_OK && remove_tree(fd, temporary) != 0)
        unlinkat(fd, temporary, AT_REMOVEDIR); /* an empty directory can be removed without opening it */
    return status;
}

/* Flush the directory above `fd`. Before this flush, a power cut may remove the directory that was just created. */
static int flush_parent(int fd)
{
    int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return parent < 0 ? -1 : flush_and_close(parent);
}

/* Write a checkpoint. Create the directory if needed. All operations are relative to the open directory, so the user
 * may move the directory meanwhile. */
ddp_status ckpt_dir_write(const struct ckpt_dir *dir, const ddp_ckpt_point *point,
                          const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    char why[WRITE_ERROR_MAX];
    const bool made = mkdir(dir->path, 0777) == 0;
    if (!made && errno != EEXIST)
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot create the directory: %s", dir->path,
                        path_error_text(errno, dir->path,
                                        errno == ENOENT ? "create the parent directory" : "use another path",
                                        why));
    int fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot open: %s", dir->path,
                        write_error_text(errno, dir->path, why));
    ddp_status status = made && flush_parent(fd) != 0
                            ? fail_errno(dir, "..", "cannot flush to the disk", false, err)
                            : write_in(dir, fd, point, blocks, n, err);
    close(fd);
    return status;
}

/* --- reading -------------------------------------------------------------------------------------------- */

/* A load reads the blocks twice, first to check them, then into the caller's blocks. So it needs no memory for a
 * second model. */

/* WINDOW: size in bytes of the buffer for the first pass. */
enum { WINDOW = 1 << 20 };

/* One open file of a checkpoint. */
struct reader {
    char name[PATH_MAX];
    int fd;
    uint64_t size; /* in bytes, measured when the file was opened */
    struct ddp_err *err;
};

/* Report that a file could not be opened. A missing file is damage, because every checkpoint has both files. A file of
 * the wrong kind is damage, too: open fails with ENOTDIR if a part of the path is not a directory, and with ENXIO if
 * the file is a socket. Other errors, such as no permission, do not prove damage. */
static ddp_status not_opened(const struct reader *r)
{
    char why[WRITE_ERROR_MAX];
    const bool damage = errno == ENOENT || errno == ENOTDIR || errno == ENXIO;
    return ddp_fail(r->err, damage ? DDP_ERR_CORRUPT : DDP_ERR_IO, "%s: cannot open: %s", r->name,
                    path_error_text(errno, r->name, "", why));
}

/* Open one file of the checkpoint of step `step`. On DDP_OK the caller closes r->fd. */
static ddp_status open_step_file(struct reader *r, const struct ckpt_dir *dir, uint64_t step,
                                 const char *name, struct ddp_err *err)
{
    struct stat st;
    r->err = err;
    int len = snprintf(r->name, sizeof(r->name), "%s/step-%08" PRIu64 "/%s", dir->path, step, name);
    if (len < 0 || len >= (int)sizeof(r->name))
        return ddp_fail(err, DDP_ERR_ARG, "%.200s...: the path is too long", dir->path);
    /* O_NONBLOCK is set, because opening a pipe would wait for a writer */
    r->fd = open(r->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->fd < 0)
        return not_opened(r);
    if (fstat(r->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(r->fd);
        return ddp_fail(err, DDP_ERR_CORRUPT, "%s: not a plain file", r->name);
    }
    r->size = (uint64_t)st.st_size;
    return DDP_OK;
}

/* Read and check the manifest. The size is limited before memory is allocated. The step in the manifest must equal
 * the step in the directory's name, because a user may have renamed the directory. On DDP_OK the caller calls
 * manifest_free. */
static ddp_status read_manifest(const struct ckpt_dir *dir, uint64_t step, struct manifest *m,
                                struct ddp_err *err)
{
    struct reader r;
    ddp_status status = open_step_file(&r, dir, step, "manifest.json", err);
    if (status != DDP_OK)
        return status;
    char *text = r.size <= MANIFEST_BYTES ? malloc((size_t)r.size + 1) : NULL;
    if (r.size > MANIFEST_BYTES)
        status = ddp_fail(err, DDP_ERR_CORRUPT, "%s: %" PRIu64 " bytes: expected at most %d", r.name, r.size,
                          MANIFEST_BYTES);
    else if (text == NULL)
        status = ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for %" PRIu64 " bytes", r.name, r.size);
    else
        status = file_read(r.name, r.fd, 0, text, (size_t)r.size, r.err);
    if (status == DDP_OK)
        status = manifest_read(m, r.name, text, (size_t)r.size, err);
    if (status == DDP_OK && m->point.step != step) {
        status = ddp_fail(err, DDP_ERR_CORRUPT,
                          "%s: contains step %" PRIu64 ", but is in the directory of step %" PRIu64, r.name,
                          m->point.step, step);
        manifest_free(m);
    }
    free(text);
    close(r.fd);
    return status;
}

static ddp_status wrong_sum(struct reader *r, const struct manifest_block *block)
{
    return ddp_fail(r->err, DDP_ERR_CORRUPT,
                    "%s: offset %" PRIu64 ": the %" PRIu64 " bytes of block '%s' do not match their CRC-32C",
                    r->name, block->at, block->bytes, block->name);
}

/* Read one block through the buffer `window`, and verify its checksum. This is the first pass of a load. */
static ddp_status verify_block(struct reader *r, const struct manifest_block *block, char *window)
{
    uint32_t crc = 0;
    for (uint64_t done = 0; done < block->bytes;) {
        const uint64_t left = block->bytes - done;
        const size_t len = left < WINDOW ? (size_t)left : WINDOW;
        ddp_status status = file_read(r->name, r->fd, block->at + done, window, len, r->err);
        if (status != DDP_OK)
            return status;
        crc = crc32c(crc, window, len);
        done += len;
    }
    return crc == block->crc ? DDP_OK : wrong_sum(r, block);
}

/* Check the file's size, then all blocks. Check the size first, because this check is fast and gives the clearest
 * error. */
static ddp_status verify(struct reader *r, const struct manifest *m)
{
    ddp_status status = DDP_OK;
    if (r->size > m->bytes)
        return ddp_fail(r->err, DDP_ERR_CORRUPT,
                        "%s: offset %" PRIu64 ": the checkpoint should end here, but the file is longer",
                        r->name, m->bytes);
    if (r->size < m->bytes)
        return ddp_fail(r->err, DDP_ERR_CORRUPT,
                        "%s: offset %" PRIu64 ": the file ends here, %" PRIu64 " bytes too early", r->name,
                        r->size, m->bytes - r->size);
    char *window = malloc(WINDOW);
    if (window == NULL)
        return ddp_fail(r->err, DDP_ERR_NOMEM, "%s: out of memory", r->name);
    for (size_t i = 0; i < m->n && status == DDP_OK; i++)
        status = verify_block(r, &m->blocks[i], window);
    free(window);
    return status;
}

/* Read the blocks into the caller's memory. This is the second pass of a load. The checksums are verified again,
 * because another process may have written to the file since the first pass. */
static ddp_status read_blocks(struct reader *r, const struct manifest *m, const ddp_ckpt_block *blocks,
                              const size_t *number, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct manifest_block *block = &m->blocks[number[i]];
        ddp_status status = file_read(r->name, r->fd, block->at, blocks[i].data, blocks[i].bytes, r->err);
        if (status != DDP_OK)
            return status;
        if (crc32c(0, blocks[i].data, blocks[i].bytes) != block->crc)
            return wrong_sum(r, block);
    }
    return DDP_OK;
}

/* Read the data of a checkpoint into the caller's `blocks`. First compare the names and sizes of `blocks` with the
 * manifest, because a checkpoint with other blocks is useless even without damage. */
static ddp_status read_tensors(const struct ckpt_dir *dir, const struct manifest *m,
                               const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    struct reader r;
    ddp_status status = open_step_file(&r, dir, m->point.step, MANIFEST_FILE, err);
    if (status != DDP_OK)
        return status;
    size_t *number = malloc(n * sizeof(*number));
    status = number != NULL ? manifest_match(m, r.name, blocks, n, number, err)
                            : ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for %zu blocks", r.name, n);
    if (status == DDP_OK)
        status = verify(&r, m);
    if (status == DDP_OK)
        status = read_blocks(&r, m, blocks, number, n);
    free(number);
    close(r.fd);
    return status;
}

/* Read a checkpoint. *point changes only if all blocks have been read. */
ddp_status ckpt_dir_read(const struct ckpt_dir *dir, uint64_t step, const ddp_ckpt_block *blocks, size_t n,
                         ddp_ckpt_point *point, struct ddp_err *err)
{
    struct manifest m;
    ddp_status status = read_manifest(dir, step, &m, err);
    if (status != DDP_OK)
        return status;
    status = read_tensors(dir, &m, blocks, n, err);
    if (status == DDP_OK)
        *point = m.point;
    manifest_free(&m);
    return status;
}
