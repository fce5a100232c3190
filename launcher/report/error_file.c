/* error_file.c -- see error_file.h.
 *
 * cJSON reads the file: it has a limit for nesting and stops at the given
 * length. What is left to do here is to expect each member to be of any type, or missing. */
#include "report/error_file.h"

#include "tables/text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A copy of a member's text, "" when it is none; not UTF-8 is made harmless, for it goes to a terminal and into JSON. NULL
 * when memory is short. */
static char *copy_text(const cJSON *item)
{
    struct buf out = { 0 };
    const char *text = cJSON_IsString(item) ? item->valuestring : "";
    if (utf8_clean(&out, slice_str(text)) && buf_append(&out, "", 1))
        return (char *)out.data;
    buf_free(&out);
    return NULL;
}

/* Seconds since 1970 as a number or as its digits; 0 for anything that is no moment of our age. */
static uint64_t moment(const cJSON *item)
{
    const double latest = 4102444800.0; /* the year 2100: above it are milliseconds, or nonsense */
    double seconds = cJSON_IsNumber(item)   ? item->valuedouble
                     : cJSON_IsString(item) ? strtod(item->valuestring, NULL)
                                            : 0;
    return seconds >= 1 && seconds < latest ? (uint64_t)(seconds * 1000) : 0;
}

/* The shape with an object inside, or the flat one. Anything else has no message. */
static const cJSON *find(const cJSON *root, const cJSON **callstack, const cJSON **when)
{
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(root, "message");
    const cJSON *extra = cJSON_GetObjectItemCaseSensitive(message, "extraInfo");
    *callstack = cJSON_GetObjectItemCaseSensitive(extra, "py_callstack");
    *when = cJSON_GetObjectItemCaseSensitive(extra, "timestamp");
    if (*when == NULL)
        *when = cJSON_GetObjectItemCaseSensitive(root, "timestamp");
    return cJSON_IsObject(message) ? cJSON_GetObjectItemCaseSensitive(message, "message") : message;
}

/* A file without a message is told as broken rather than shown empty: its worker meant to say something. */
static ddp_status take(const cJSON *root, struct error_text *out, struct ddp_err *err)
{
    const cJSON *callstack, *when;
    const cJSON *message = find(root, &callstack, &when);
    if (!cJSON_IsString(message))
        return ddp_fail(err, DDP_ERR_CORRUPT, "it has no \"message\" that is a text");
    *out = (struct error_text){ .message = copy_text(message),
                                .callstack = copy_text(callstack),
                                .unix_ms = moment(when) };
    if (out->message != NULL && out->callstack != NULL)
        return DDP_OK;
    error_text_free(out);
    return ddp_fail(err, DDP_ERR_NOMEM, "no memory for it");
}

/* A limit, then a parser, then a look at types: each step may trust the one before, and none trusts the worker. */
ddp_status error_text_parse(struct slice bytes, struct error_text *out, struct ddp_err *err)
{
    const char *end = NULL;
    *out = (struct error_text){ 0 };
    if (bytes.len == 0)
        return ddp_fail(err, DDP_ERR_CORRUPT, "it is empty");
    if (bytes.len > ERROR_FILE_MAX)
        return ddp_fail(err, DDP_ERR_LIMIT, "it has more than %d KiB", ERROR_FILE_MAX / 1024);
    cJSON *root = cJSON_ParseWithLengthOpts(bytes.data, bytes.len, &end, false);
    if (root == NULL)
        return ddp_fail(err, DDP_ERR_CORRUPT, "it is no JSON (byte %zu of %zu)",
                        end != NULL ? (size_t)(end - (const char *)bytes.data) : 0, bytes.len);
    ddp_status status = take(root, out, err);
    cJSON_Delete(root);
    return status;
}

/* NULL: it is none, or memory is short. */
static cJSON *parse_object(struct slice bytes)
{
    cJSON *root = bytes.len <= ERROR_FILE_MAX ? cJSON_ParseWithLength(bytes.data, bytes.len) : NULL;
    if (cJSON_IsObject(root))
        return root;
    cJSON_Delete(root);
    return NULL;
}

/* Append the same object with `code` as message.errorCode, as torchrun hands it on; a message that is a text has no
 * place for it. False: it is no object, or memory is short. */
static bool error_text_with_code(struct slice bytes, int code, struct buf *out)
{
    cJSON *root = parse_object(bytes);
    cJSON *message = cJSON_GetObjectItemCaseSensitive(root, "message");
    bool ok = root != NULL;
    if (cJSON_IsObject(message)) {
        cJSON_DeleteItemFromObjectCaseSensitive(message, "errorCode");
        ok = json_add_number(message, "errorCode", code);
    }
    if (ok)
        return json_print(out, root, false);
    cJSON_Delete(root);
    return false;
}

void error_text_free(struct error_text *text)
{
    free(text->message);
    free(text->callstack);
    *text = (struct error_text){ 0 };
}

/* --- error read ------------------------------------------------------------------------------------------- */

/* The path was told to a worker, and the worker may be anything: what lies there is opened as if a stranger had
 * put it there. A missing file is the usual case, and no trouble. */

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
