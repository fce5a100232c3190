/* file.c -- writes files whole or not at all, and saves and loads checkpoints of one file; see ddp/ckpt.h. A new
 * file replaces the old one by a rename, because a crash must not leave half a file. */
#include "checkpoint/file.h"

#include "base/buf.h"
#include "base/limits.h"
#include "base/not_null.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

int file_write(int fd, const void *data, size_t len)
{
    const char *from = data;
    while (len > 0) {
        ssize_t n = write(fd, from, len);
        if (n < 0 && errno != EINTR)
            return -1;
        from += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Read up to `len` bytes at offset `at`. Return the number of bytes, which is less than `len` only at the end of the
 * file. Return -1 with errno if the read fails. */
static ssize_t pread_all(int fd, uint64_t at, void *to, size_t len)
{
    char *into = to;
    size_t done = 0;
    while (done < len) {
        ssize_t n = pread(fd, into + done, len - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            return -1;
        if (n == 0)
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)done;
}

ddp_status file_read(const char *path, int fd, uint64_t at, void *to, size_t len, struct ddp_err *err)
{
    const ssize_t n = pread_all(fd, at, to, len);
    if (n < 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot read from offset %" PRIu64 ": %s", path, at,
                        strerror(errno));
    if ((size_t)n < len)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "%s: offset %" PRIu64 ": the file ends here, %zu bytes too early", path,
                        at + (uint64_t)n, len - (size_t)n);
    return DDP_OK;
}

/* --- a file that appears whole ------------------------------------------------------------------------------ */

/* A file that is being replaced. The bytes are written to PATH.tmp in the same directory and flushed to the disk
 * (fsync). Then the file is renamed and its directory is flushed. A crash between any two steps leaves the old file or
 * the whole new file.
 *
 * The order of calls is atomic_open, atomic_write ..., atomic_commit. A call that fails removes the temporary file and
 * frees everything. */
struct atomic_file {
    int fd;
    char *path;      /* owned until the commit or a failure, like `temporary` */
    char *temporary; /* the temporary file; NULL if `path` is written directly (is_special) */
};

/* Return the name of the open file, for errors. The result belongs to `file`. */
static const char *written_name(const struct atomic_file *file)
{
    return file->temporary != NULL ? file->temporary : file->path;
}

/* Free the names. Every use of a struct atomic_file ends with this function. */
static void atomic_forget(struct atomic_file *file)
{
    free(file->path);
    free(file->temporary);
    *file = (struct atomic_file){ .fd = -1 };
}

/* Close and remove the temporary file, then free the names. */
static void atomic_discard(struct atomic_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->temporary != NULL)
        unlink(file->temporary);
    atomic_forget(file);
}

/* Report that `what` failed with errno, then clean up. Report first, because the clean-up changes errno. */
static ddp_status atomic_fail(struct atomic_file *file, const char *what, struct ddp_err *err)
{
    char why[WRITE_ERROR_MAX];
    ddp_fail(err, DDP_ERR_IO, "%s: %s: %s", written_name(file), what,
             write_error_text(errno, written_name(file), why));
    atomic_discard(file);
    return DDP_ERR_IO;
}

/* Return the text `a` followed by the text `b`, or NULL if memory is short. The caller frees the result. */
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

/* Return the descriptor of the standard stream (stdout or stderr) that writes to the regular file `path`. Return -1 if
 * there is no such stream. */
static int standard_fd(const char *path)
{
    struct stat there, own;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO && stat(path, &there) == 0; fd++)
        if (fstat(fd, &own) == 0 && S_ISREG(own.st_mode) && own.st_dev == there.st_dev &&
            own.st_ino == there.st_ino)
            return fd;
    return -1;
}

/* Return true if a rename must not replace `path`. This is so for a device, a pipe, a link whose target is missing, and
 * the file to which stdout or stderr writes (/dev/stdout). Such files are written directly. */
static bool is_special(const char *path)
{
    struct stat there;
    /* A rename onto /dev/null would replace the device for all users. */
    return lstat(path, &there) == 0 &&
           (stat(path, &there) != 0 || !S_ISREG(there.st_mode) || standard_fd(path) >= 0);
}

/* Return the path of the file to replace. For a link, return the path of the link's target, because a rename onto the
 * link would leave the target unchanged. The caller frees the result. */
static char *target_of(const char *path)
{
    struct stat there;
    bool is_link = lstat(path, &there) == 0 && S_ISLNK(there.st_mode);
    return is_link && !is_special(path) ? realpath(path, NULL) : joined(path, "");
}

/* Open the file to write. The mode is 0666 without the bits of the umask, as for any new file. A file that is open as
 * stdout or stderr is not truncated. */
static int open_for_writing(struct atomic_file *file)
{
    const int standard = file->temporary == NULL ? standard_fd(file->path) : -1;
    if (standard >= 0)
        return fcntl(standard, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (file->temporary == NULL)
        return open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY | O_CLOEXEC, 0666);
    /* Remove an old file first, because O_EXCL rejects any existing file. Each path has only one writer, so the old
     * file is from a killed run. Without O_EXCL, open could follow a link of another user. */
    unlink(file->temporary);
    return open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

/* Open a temporary file, which later replaces `path` or, if `path` is a link, the link's target. If is_special(path),
 * open `path` itself. After an error, the caller has nothing to clean up. */
static ddp_status atomic_open(struct atomic_file *file, const char *path, struct ddp_err *err)
{
    const bool special = is_special(path);
    *file = (struct atomic_file){ .fd = -1, .path = target_of(path) };
    if (file->path != NULL && !special)
        file->temporary = joined(file->path, ".tmp");
    if (file->path == NULL || (file->temporary == NULL && !special)) {
        atomic_forget(file);
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory", path);
    }
    file->fd = open_for_writing(file);
    if (file->fd < 0) {
        char why[WRITE_ERROR_MAX];
        ddp_fail(err, DDP_ERR_IO, "%s: cannot open%s%s: %s", path, special ? "" : " ",
                 special ? "" : file->temporary, write_error_text(errno, written_name(file), why));
        atomic_forget(file);
        return DDP_ERR_IO;
    }
    return DDP_OK;
}

static ddp_status atomic_write(struct atomic_file *file, const void *data, size_t len, struct ddp_err *err)
{
    return file_write(file->fd, data, len) == 0 ? DDP_OK : atomic_fail(file, "cannot write", err);
}

/* Flush the directory of `path`, because the rename reaches the disk only with this flush. */
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

/* Flush the bytes to the disk. For a terminal or a pipe, fsync fails with EINVAL, which is not an error here. */
static int sync_data(const struct atomic_file *file)
{
    int failed = fsync(file->fd);
    return failed != 0 && file->temporary == NULL && errno == EINVAL ? 0 : failed;
}

/* Flush and rename the file. An error after the rename means that the file was replaced, but a power cut may still
 * restore the old file. */
static ddp_status atomic_commit(struct atomic_file *file, struct ddp_err *err)
{
    if (sync_data(file) != 0)
        return atomic_fail(file, "cannot flush to the disk", err);
    int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0) /* network file systems report a full disk only here */
        return atomic_fail(file, "cannot close", err);
    if (file->temporary != NULL && rename(file->temporary, file->path) != 0)
        return atomic_fail(file, "cannot rename", err);
    if (file->temporary != NULL && sync_directory_of(file->path) != 0)
        return atomic_fail(file, "cannot flush the directory to the disk", err);
    atomic_forget(file);
    return DDP_OK;
}

/* --- saving a checkpoint ------------------------------------------------------------------------------------- */

/* Layout of a checkpoint, little-endian. A checksum or a comparison covers each byte:
 *
 *     offset 0    "DDPCKPT1"
 *            8    u32 number of blocks, u32 CRC-32 of the table
 *            16   u32 CRC-32 of the 16 bytes before, u32 zero
 *            24   table: per block 64 bytes name (NUL padded), u64 length, u32 CRC-32 of the data, u32 zero
 *                 data of the blocks, one after the other, up to the end of the file */

/* Sizes in bytes of a name, the header and a row of the table. MAX_BLOCKS limits the memory for the table. */
enum { MAX_NAME = 64, HEAD = 24, ENTRY = MAX_NAME + 16, MAX_BLOCKS = 4096 };

static const char magic[8] = { 'D', 'D', 'P', 'C', 'K', 'P', 'T', '1' };

/* Return the checksum. Use crc32_z, whose length is a size_t, because zlib's crc32 accepts only lengths below 4
 * GiB. */
static uint32_t crc_of(const void *data, size_t len)
{
    return (uint32_t)crc32_z(0, data, len);
}

ddp_status ckpt_check_blocks(const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    if (n < 1 || n > MAX_BLOCKS)
        return ddp_fail(err, DDP_ERR_ARG, "checkpoint: %zu blocks: expected a number from 1 to %d", n,
                        MAX_BLOCKS);
    if (blocks == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "checkpoint: `blocks` is NULL");
    for (size_t i = 0; i < n; i++) {
        if (blocks[i].name == NULL || (blocks[i].data == NULL && blocks[i].bytes > 0))
            return ddp_fail(err, DDP_ERR_ARG, "checkpoint: block %zu has no %s", i,
                            blocks[i].name == NULL ? "name" : "data");
        if (blocks[i].name[0] == '\0' || strlen(blocks[i].name) >= MAX_NAME)
            return ddp_fail(err, DDP_ERR_ARG, "checkpoint: block name '%s' must have 1 to %d bytes",
                            blocks[i].name, MAX_NAME - 1);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(blocks[i].name, blocks[k].name) == 0)
                return ddp_fail(err, DDP_ERR_ARG, "checkpoint: two blocks have the name '%s'",
                                blocks[i].name);
        }
    }
    return DDP_OK;
}

/* Return the header and the table in one array, or NULL if memory is short. The caller frees the array. */
static uint8_t *make_header(const ddp_ckpt_block *blocks, size_t n)
{
    uint8_t *head = calloc(1, HEAD + n * ENTRY);
    if (head == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        uint8_t *entry = head + HEAD + i * ENTRY;
        memcpy(entry, blocks[i].name, strlen(blocks[i].name));
        write_le(entry + MAX_NAME, blocks[i].bytes, 8);
        write_le(entry + MAX_NAME + 8, crc_of(blocks[i].data, blocks[i].bytes), 4);
    }
    memcpy(head, magic, sizeof(magic));
    write_le(head + 8, n, 4);
    write_le(head + 12, crc_of(head + HEAD, n * ENTRY), 4);
    write_le(head + 16, crc_of(head, 16), 4);
    return head;
}

/* Write a checkpoint: the header, the table with the checksums, then the blocks. */
ddp_status ddp_ckpt_save(const char *path, const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    NOT_NULL(path, err);
    struct atomic_file file;
    ddp_status status = ckpt_check_blocks(blocks, n, err);
    if (status != DDP_OK)
        return status;
    uint8_t *head = make_header(blocks, n);
    if (head == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for a header of %zu blocks", path, n);
    status = atomic_open(&file, path, err);
    if (status == DDP_OK)
        status = atomic_write(&file, head, HEAD + n * ENTRY, err);
    for (size_t i = 0; i < n && status == DDP_OK; i++)
        status = atomic_write(&file, blocks[i].data, blocks[i].bytes, err);
    if (status == DDP_OK)
        status = atomic_commit(&file, err);
    free(head);
    return status;
}

ddp_status ddp_file_replace(const char *path, const void *data, size_t len, struct ddp_err *err)
{
    NOT_NULL(path, err);
    struct atomic_file file;
    ddp_status status = atomic_open(&file, path, err);
    if (status == DDP_OK)
        status = atomic_write(&file, data, len, err);
    return status == DDP_OK ? atomic_commit(&file, err) : status;
}

/* --- loading a checkpoint ------------------------------------------------------------------------------------ */

/* A checkpoint that is being loaded. */
struct reader {
    const char *path;
    int fd;
    uint64_t at;   /* bytes read so far */
    uint64_t size; /* size of the whole file in bytes */
    struct ddp_err *err;
};

static ddp_status damaged_at(struct reader *r, uint64_t offset, const char *what)
{
    return ddp_fail(r->err, DDP_ERR_CORRUPT, "%s: offset %" PRIu64 ": %s", r->path, offset, what);
}

/* Read the next `len` bytes, and advance r->at. */
static ddp_status read_next(struct reader *r, void *to, size_t len)
{
    ddp_status status = file_read(r->path, r->fd, r->at, to, len, r->err);
    r->at += len;
    return status;
}

/* Read the header. The checksum is verified before the number of blocks. So a wrong number of blocks in a valid
 * header means another model (DDP_ERR_MISMATCH) and not damage. */
static ddp_status read_head(struct reader *r, uint8_t head[HEAD], size_t n)
{
    ddp_status status = read_next(r, head, HEAD);
    if (status != DDP_OK)
        return status;
    if (memcmp(head, magic, sizeof(magic)) != 0)
        return damaged_at(r, 0, "not a checkpoint (a checkpoint begins with DDPCKPT1)");
    if (get_u32(head + 16) != crc_of(head, 16) || get_u32(head + 20) != 0)
        return damaged_at(r, 8, "the header does not match its CRC-32; use an earlier checkpoint");
    if (get_u32(head + 8) != n)
        return ddp_fail(r->err, DDP_ERR_MISMATCH,
                        "%s: the checkpoint has %u blocks, but the program expects %zu; pass the same "
                        "blocks as to ddp_ckpt_save",
                        r->path, get_u32(head + 8), n);
    return DDP_OK;
}

/* Compare a row of the table with the caller's block at the same position. A program passes the same list of blocks to
 * save and to load, so the order must be the same. */
static ddp_status check_entry(struct reader *r, const uint8_t *entry, const ddp_ckpt_block *block)
{
    char name[MAX_NAME];
    memcpy(name, entry, MAX_NAME);
    name[MAX_NAME - 1] = '\0';
    uint64_t bytes = get_u64(entry + MAX_NAME);
    if (strcmp(name, block->name) != 0 || bytes != block->bytes)
        return ddp_fail(r->err, DDP_ERR_MISMATCH,
                        "%s: the checkpoint has block '%s' (%" PRIu64
                        " bytes) where the program expects block '%s' (%zu bytes); pass the same blocks in "
                        "the same order as to ddp_ckpt_save",
                        r->path, name, bytes, block->name, block->bytes);
    return DDP_OK;
}

/* Read the table. Compare the table with its checksum, then with the caller's blocks, then with the size of the
 * file. */
static ddp_status read_table(struct reader *r, uint32_t crc, uint8_t *table, const ddp_ckpt_block *blocks,
                             size_t n)
{
    uint64_t end = HEAD + n * ENTRY;
    ddp_status status = read_next(r, table, n * ENTRY);
    if (status == DDP_OK && crc_of(table, n * ENTRY) != crc)
        status =
            damaged_at(r, HEAD, "the table of blocks does not match its CRC-32; use an earlier checkpoint");
    for (size_t i = 0; i < n && status == DDP_OK; i++) {
        status = check_entry(r, table + i * ENTRY, &blocks[i]);
        end += blocks[i].bytes;
    }
    if (status == DDP_OK && r->size > end)
        status = damaged_at(r, end, "the checkpoint should end here, but the file is longer");
    return status;
}

/* Read all blocks into `to`, and check each block after reading it. */
static ddp_status read_data(struct reader *r, const uint8_t *table, uint8_t *to, const ddp_ckpt_block *blocks,
                            size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t start = r->at;
        ddp_status status = read_next(r, to, blocks[i].bytes);
        if (status != DDP_OK)
            return status;
        if (crc_of(to, blocks[i].bytes) != get_u32(table + i * ENTRY + MAX_NAME + 8))
            return ddp_fail(r->err, DDP_ERR_CORRUPT,
                            "%s: offset %" PRIu64 ": the %zu bytes of block '%s' do not match their CRC-32; "
                            "use an earlier checkpoint",
                            r->path, start, blocks[i].bytes, blocks[i].name);
        to += blocks[i].bytes;
    }
    return DDP_OK;
}

/* Copy the data into the caller's blocks, after all checks, so that a failed load changes no block. The pointer of an
 * empty block may be NULL. */
static void copy_blocks(const uint8_t *from, const ddp_ckpt_block *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (blocks[i].bytes > 0)
            memcpy(blocks[i].data, from, blocks[i].bytes);
        from += blocks[i].bytes;
    }
}

size_t ckpt_total_bytes(const ddp_ckpt_block *blocks, size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += blocks[i].bytes;
    return total;
}

/* Read the whole file. First compare the number of blocks and their lengths with the caller's blocks. Then read the
 * data into separate memory. The caller determines the sizes of all allocations; the file does not. */
static ddp_status load_file(struct reader *r, const ddp_ckpt_block *blocks, size_t n)
{
    uint8_t head[HEAD];
    uint8_t *table = malloc(n * ENTRY);
    uint8_t *data = malloc(ckpt_total_bytes(blocks, n) + 1); /* + 1, because malloc(0) may return NULL */
    ddp_status status = DDP_OK;
    if (table == NULL || data == NULL)
        status = ddp_fail(r->err, DDP_ERR_NOMEM, "%s: out of memory for %zu bytes", r->path,
                          ckpt_total_bytes(blocks, n));
    if (status == DDP_OK)
        status = read_head(r, head, n);
    if (status == DDP_OK)
        status = read_table(r, get_u32(head + 12), table, blocks, n);
    if (status == DDP_OK)
        status = read_data(r, table, data, blocks, n);
    if (status == DDP_OK)
        copy_blocks(data, blocks, n);
    free(table);
    free(data);
    return status;
}

/* Load a checkpoint. Get the size from the open file (fstat), because another program may replace the file at
 * `path`. */
ddp_status ddp_ckpt_load(const char *path, const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    NOT_NULL(path, err);
    struct stat st;
    char why[WRITE_ERROR_MAX];
    ddp_status status = ckpt_check_blocks(blocks, n, err);
    if (status != DDP_OK)
        return status;
    struct reader r = { .path = path, .err = err };
    /* O_NONBLOCK is set, because opening a pipe would wait for a writer. */
    r.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r.fd < 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot open: %s", path,
                        path_error_text(errno, path, "check the path", why));
    if (fstat(r.fd, &st) != 0) {
        status = ddp_fail(err, DDP_ERR_IO, "%s: cannot examine: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = ddp_fail(err, DDP_ERR_CORRUPT, "%s: not a plain file", path);
    } else {
        r.size = (uint64_t)st.st_size;
        status = load_file(&r, blocks, n);
    }
    close(r.fd);
    return status;
}
