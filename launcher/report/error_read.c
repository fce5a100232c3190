/* error_read.c -- see error_read.h.
 *
 * The path was told to a worker, and the worker may be anything: what lies there is opened as if a stranger had
 * put it there. A missing file is the usual case, and no trouble. */
#include "report/error_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* O_NONBLOCK, or a FIFO would hold up the report until somebody writes to it. */
static int open_regular(const char *path, struct ddp_err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (fd < 0) {
        ddp_fail(err, errno == ENOENT ? DDP_ERR_CLOSED : DDP_ERR_IO, "%s",
                 errno == ELOOP ? "it is a symbolic link" : strerror(errno));
        return -1;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    ddp_fail(err, DDP_ERR_CORRUPT, "it is not a regular file");
    close(fd);
    return -1;
}

/* One byte more than allowed, so that the parser sees that there was more. */
static bool read_all(int fd, struct buf *out)
{
    ssize_t n = 1;
    while (n > 0 && out->len <= ERROR_FILE_MAX) {
        size_t room = ERROR_FILE_MAX + 1 - out->len;
        void *to = buf_reserve(out, room < 4096 ? room : 4096);
        n = to != NULL ? read(fd, to, room < 4096 ? room : 4096) : -1;
        out->len += n > 0 ? (size_t)n : 0;
    }
    return n >= 0;
}

/* Whole, or false. */
static bool read_bytes(const char *path, struct buf *out)
{
    struct ddp_err err;
    const int fd = open_regular(path, &err);
    const bool ok = fd >= 0 && read_all(fd, out);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* The name is the user's own, or that of the launcher which has started us. */
void error_file_hand_on(const char *from, const char *to, int code)
{
    struct buf bytes = { 0 }, out = { 0 };
    int fd = -1;
    if (read_bytes(from, &bytes) && error_text_with_code(buf_slice(&bytes), code, &out) &&
        (fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600)) >= 0 &&
        write(fd, out.data, out.len) != (ssize_t)out.len)
        (void)!ftruncate(fd, 0); /* no JSON is better than a part of it */
    if (fd >= 0)
        close(fd);
    buf_free(&bytes);
    buf_free(&out);
}

ddp_status error_file_read(const char *path, struct error_text *out, struct ddp_err *err)
{
    struct buf bytes = { 0 };
    *out = (struct error_text){ 0 };
    int fd = open_regular(path, err);
    if (fd < 0)
        return err->code == DDP_ERR_CLOSED ? err->code : ddp_wrap(err, "%s", path);
    ddp_status status = read_all(fd, &bytes) ? error_text_parse(buf_slice(&bytes), out, err)
                                             : ddp_fail(err, DDP_ERR_IO, "%s", strerror(errno));
    close(fd);
    buf_free(&bytes);
    return status == DDP_OK ? status : ddp_wrap(err, "%s", path);
}

bool error_file_whole(const char *path, struct buf *out)
{
    struct buf bytes = { 0 };
    const bool ok = read_bytes(path, &bytes) && error_text_whole(buf_slice(&bytes), out);
    buf_free(&bytes);
    return ok;
}
