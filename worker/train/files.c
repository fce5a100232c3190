/* files.c -- see files.h. files_may_write neither creates nor opens the file. So if the run fails later, an old file at
 * this path is unchanged. Readers check type and size on the open descriptor, so a later change of the path has no
 * effect. */
#include "train/files.h"

#include "base/limits.h"

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

ddp_status files_join(char *to, const char *dir, const char *name, const char *ending, struct ddp_err *err)
{
    const int len = snprintf(to, PATH_MAX, "%s/%s%s", dir, name, ending);
    if (len < 0 || len >= PATH_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "%.100s...: the path is too long; use a shorter path", dir);
    return DDP_OK;
}

/* Report a file that cannot be opened. `status` is DDP_ERR_ARG if the value of the option itself is wrong. */
static ddp_status not_opened(ddp_status status, const char *option, const char *path, int error,
                             struct ddp_err *err)
{
    char why[WRITE_ERROR_MAX];
    return ddp_fail(err, status, "%s %s: cannot open: %s", option, path, write_error_text(error, path, why));
}

ddp_status files_not_opened(const char *path, const char *remedy, struct ddp_err *err)
{
    char why[WRITE_ERROR_MAX];
    return ddp_fail(err, DDP_ERR_IO, "%s: cannot open: %s", path, path_error_text(errno, path, remedy, why));
}

ddp_status files_not_written(const char *option, const char *path, struct ddp_err *err)
{
    char why[WRITE_ERROR_MAX];
    return ddp_fail(err, DDP_ERR_IO, "%s %s: cannot write: %s", option, path,
                    write_error_text(errno, path, why));
}

ddp_status files_wrap_option(const char *option, struct ddp_err *err)
{
    return ddp_fail(err, err->code, "%s %s", option, err->msg);
}

FILE *files_open(const char *option, const char *path, const char *mode, struct ddp_err *err)
{
    FILE *file = fopen(path, mode);
    if (file == NULL)
        not_opened(DDP_ERR_IO, option, path, errno, err);
    return file;
}

/* Create a directory and its parents. Check that the directory is writable, because otherwise the run would fail only
 * after the first epoch. */
ddp_status files_make_dir(const char *option, const char *path, struct ddp_err *err)
{
    char part[PATH_MAX], why[WRITE_ERROR_MAX];
    struct stat s;
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof(part))
        return not_opened(DDP_ERR_ARG, option, path, len == 0 ? ENOENT : ENAMETOOLONG, err);
    for (size_t end = 1; end <= len; end++) {
        if (path[end] != '/' && path[end] != '\0')
            continue;
        memcpy(part, path, end);
        part[end] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return ddp_fail(
                err, DDP_ERR_IO, "%s %s: cannot create the directory: %s", option, part,
                path_error_text(errno, part,
                                errno == ENOENT ? "use another parent directory" : "use another path", why));
    }
    if (stat(path, &s) == 0 && !S_ISDIR(s.st_mode))
        return not_opened(DDP_ERR_IO, option, path, ENOTDIR, err);
    if (access(path, W_OK | X_OK) != 0)
        return not_opened(DDP_ERR_IO, option, path, errno, err);
    return DDP_OK;
}

/* Return true if `path` is a regular or missing file. ddp_file_replace then renames a new file to `path`, so the
 * directory must be writable. Return false for a symbolic link: ddp_file_replace changes only the target of the
 * link, so the directory of the link need not be writable. Other files, such as pipes, are written in place. */
static bool is_replaced(const char *path)
{
    struct stat s;
    return lstat(path, &s) != 0 || S_ISREG(s.st_mode);
}

ddp_status files_may_write(const char *option, const char *path, struct ddp_err *err)
{
    char dir[PATH_MAX];
    struct stat s;
    const char *slash = strrchr(path, '/');
    size_t len = slash != NULL ? (size_t)(slash - path) : 1;
    if (path[0] == '\0' || len >= sizeof(dir))
        return not_opened(DDP_ERR_ARG, option, path, path[0] == '\0' ? ENOENT : ENAMETOOLONG, err);
    memcpy(dir, slash != NULL ? path : ".", len);
    dir[len] = '\0';
    const bool exists = stat(path, &s) == 0;
    if (!exists && errno != ENOENT)
        return not_opened(DDP_ERR_IO, option, path, errno, err);
    if (exists && S_ISDIR(s.st_mode))
        return not_opened(DDP_ERR_ARG, option, path, EISDIR, err);
    if (is_replaced(path) && access(len > 0 ? dir : "/", W_OK | X_OK) != 0)
        return not_opened(DDP_ERR_IO, option, path, errno, err);
    return DDP_OK;
}

ddp_status files_flush_stdout(struct ddp_err *err)
{
    char why[WRITE_ERROR_MAX];
    if (fflush(stdout) == 0 && !ferror(stdout))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_IO, "standard output: write: %s",
                    write_error_text(errno, "/proc/self/fd/1", why));
}

int files_open_input(const char *path, struct ddp_err *err)
{
    /* Without O_NONBLOCK, opening a pipe would wait for a writer. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        files_not_opened(path, "check the path", err);
    return fd;
}

ddp_status files_size(int fd, uint64_t *bytes, struct ddp_err *err)
{
    struct stat s;
    if (fstat(fd, &s) != 0)
        return ddp_fail(err, DDP_ERR_IO, "cannot examine the file: %s; check the file system",
                        strerror(errno));
    if (!S_ISREG(s.st_mode))
        return ddp_fail(err, DDP_ERR_ARG, "not a plain file; choose a file");
    *bytes = (uint64_t)s.st_size;
    return DDP_OK;
}

ddp_status files_read(int fd, uint8_t *to, size_t len, uint64_t offset, size_t *got, struct ddp_err *err)
{
    for (*got = 0; *got < len;) {
        ssize_t n = pread(fd, to + *got, len - *got, (off_t)(offset + *got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ddp_fail(err, DDP_ERR_IO, "offset %" PRIu64 ": cannot read: %s; check the file system",
                            offset + *got, strerror(errno));
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    return DDP_OK;
}

/* Compare the length of a file with the length in its header. A longer file is an error too. */
ddp_status files_check_length(uint64_t bytes, uint64_t asked, const char *end, struct ddp_err *err)
{
    if (bytes < asked)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "offset %" PRIu64 ": the file ends here, but its header requires %" PRIu64 " bytes",
                        bytes, asked);
    if (bytes > asked)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset %" PRIu64 ": %s, but the file is longer", asked, end);
    return DDP_OK;
}

/* --- whole file ------------------------------------------------------------------------------------------- */

/* Maximum number of bytes that one call of gzread() reads. gzread() also reads files that are not compressed. */
enum { CHUNK = 1 << 20 };

ddp_status whole_file_open(struct whole_file *f, const char *path, struct ddp_err *err)
{
    struct stat st;
    const int fd = files_open_input(path, err);
    *f = (struct whole_file){ 0 };
    if (fd < 0)
        return DDP_ERR_IO;
    if (fstat(fd, &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
        close(fd);
        return ddp_fail(err, DDP_ERR_IO, "%s: not a regular file; choose another path", path);
    }
    f->file = gzdopen(fd, "rb");
    if (f->file != NULL)
        return DDP_OK;
    close(fd);
    return ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for reading", path);
}

/* Make room for one more chunk. Double the memory, so that there are few reallocations. */
static uint8_t *reserve(struct whole_file *f, size_t chunk)
{
    if (f->capacity - f->len < chunk) {
        size_t grown = f->capacity + (f->capacity > chunk ? f->capacity : chunk);
        uint8_t *bytes = realloc(f->bytes, grown);
        if (bytes == NULL)
            return NULL;
        f->bytes = bytes;
        f->capacity = grown;
    }
    return f->bytes + f->len;
}

/* Return zlib's error text without the file's name at its beginning, because the callers add the name. */
static const char *without_name(const char *why)
{
    const char *colon = strrchr(why, ':');
    return colon != NULL && colon[1] == ' ' ? colon + 2 : why;
}

ddp_status whole_file_fill(struct whole_file *f, size_t want, struct ddp_err *err)
{
    while (f->len < want) {
        int code;
        size_t chunk = want - f->len < CHUNK ? want - f->len : CHUNK;
        uint8_t *to = reserve(f, chunk);
        if (to == NULL)
            return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for more than %zu bytes", f->len);
        int n = gzread(f->file, to, (unsigned)chunk);
        const char *why = gzerror(f->file, &code);
        if (code == Z_ERRNO)
            return ddp_fail(err, DDP_ERR_IO, "offset %zu: cannot read: %s; %s", f->len, strerror(errno),
                            errno == EISDIR ? "choose a file" : "check the file system");
        if (n < 0 || code != Z_OK) /* Z_BUF_ERROR: the gzip stream is incomplete */
            return ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu: the gzip stream is damaged or incomplete: %s",
                            f->len, without_name(why));
        if (n == 0)
            break;
        f->len += (size_t)n;
    }
    return DDP_OK;
}

ddp_status files_wrap(const char *path, struct ddp_err *err)
{
    const size_t n = strlen(err->msg);
    if (err->code == DDP_ERR_CORRUPT)
        snprintf(err->msg + n, sizeof(err->msg) - n, "; copy this file again, or choose another file");
    return ddp_wrap(err, "%s", path);
}

void whole_file_close(struct whole_file *f)
{
    gzclose_r(f->file);
    f->file = NULL;
}

/* Find a file. If both a plain file and a compressed file exist, choose the plain file. The user has probably unpacked
 * the plain file from the compressed file. */
ddp_status whole_file_find(char *path, const char *dir, const char *name, struct ddp_err *err)
{
    static const char *const ending[] = { "", ".gz" };
    struct stat s;
    for (int i = 0; i < 2; i++) {
        if (files_join(path, dir, name, ending[i], err) != DDP_OK)
            return DDP_ERR_ARG;
        if (stat(path, &s) == 0)
            return DDP_OK;
        if (errno != ENOENT) {
            const int error = errno;
            files_not_opened(path, "check the path", err);
            errno = error;
            return DDP_ERR_IO;
        }
    }
    ddp_fail(err, DDP_ERR_IO, "%s/%s: neither this file nor %s.gz exists; check the path", dir, name, name);
    errno = ENOENT;
    return DDP_ERR_IO;
}
