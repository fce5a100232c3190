/* tokens.c -- see tokens.h. The tokens stay in the files, because a run may need only a small part. Several
 * threads can read at the same time with pread. */
#include "train/data/tokens.h"

#include "base/buf.h"
#include "train/files.h"

#include <dirent.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AT_MAGIC = 0, AT_VERSION = 4, AT_COUNT = 8, LLAMA_MAGIC = 20240801, READ_AT_ONCE = 2048 };

static int32_t get_i32(const uint8_t *from)
{
    return (int32_t)get_u32(from);
}

void tokens_make_header(uint8_t *head, uint32_t count)
{
    memset(head, 0, TOKENS_HEADER);
    write_le(head + AT_MAGIC, TOKENS_MAGIC, 4);
    write_le(head + AT_VERSION, TOKENS_VERSION, 4);
    write_le(head + AT_COUNT, count, 4);
}

void tokens_init(struct tokens *t, size_t length, size_t vocabulary)
{
    *t = (struct tokens){ .length = length, .vocabulary = vocabulary };
}

/* --- one shard --------------------------------------------------------------------------------------------- */

/* Check a header, of which `got` bytes were read. Check the magic number first, because a file of another format may be
 * shorter than the header. For such a file, an error about the format is clearer than an error about the length. */
static ddp_status check_header(const uint8_t *head, size_t got, struct ddp_err *err)
{
    if (got >= 4 && get_i32(head) == LLAMA_MAGIC)
        return ddp_fail(
            err, DDP_ERR_UNSUPPORTED,
            "offset 0: magic number %d (32-bit tokens of llm.c, Llama 3): expected %d (16-bit tokens)",
            LLAMA_MAGIC, TOKENS_MAGIC);
    if (got >= 4 && get_i32(head) != TOKENS_MAGIC)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "offset 0: magic number 0x%08x: expected 0x%08x (llm.c's tokens)",
                        (uint32_t)get_i32(head), TOKENS_MAGIC);
    if (got < TOKENS_HEADER)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu: the file ends inside the header of %d bytes", got,
                        TOKENS_HEADER);
    if (get_i32(head + AT_VERSION) != TOKENS_VERSION)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset %d: version %d: expected %d", AT_VERSION,
                        get_i32(head + AT_VERSION), TOKENS_VERSION);
    return DDP_OK;
}

/* Compare the number of tokens with the file's size, and with the length of a sample. */
static ddp_status check_count(const struct tokens *t, int32_t count, uint64_t file_bytes, struct ddp_err *err)
{
    const uint64_t total = TOKENS_HEADER + 2 * (uint64_t)(count > 0 ? count : 0);
    if (count < 1)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset %d: %d tokens: expected at least 1", AT_COUNT, count);
    ddp_status status =
        files_check_length(file_bytes, total, "according to the header, the data ends here", err);
    if (status != DDP_OK)
        return status;
    if ((uint64_t)count < t->length + 1)
        return ddp_fail(err, DDP_ERR_ARG,
                        "offset %d: %d tokens are too few for a sample, which needs %zu + 1 tokens; use a "
                        "smaller --length, or a longer file",
                        AT_COUNT, count, t->length);
    return DDP_OK;
}

static ddp_status examine(const struct tokens *t, int fd, uint64_t *count, struct ddp_err *err)
{
    uint8_t head[TOKENS_HEADER];
    uint64_t bytes = 0;
    size_t got = 0;
    ddp_status status = files_size(fd, &bytes, err);
    if (status == DDP_OK)
        status = files_read(fd, head, sizeof(head), 0, &got, err);
    if (status == DDP_OK)
        status = check_header(head, got, err);
    if (status == DDP_OK)
        status = check_count(t, get_i32(head + AT_COUNT), bytes, err);
    if (status == DDP_OK)
        *count = (uint64_t)get_i32(head + AT_COUNT);
    return status;
}

/* Open one more shard. Keep its descriptor open, so that reading a sample takes only one system call. */
static ddp_status tokens_add(struct tokens *t, const char *path, struct ddp_err *err)
{
    uint64_t count = 0;
    if (t->shards == TOKENS_MAX_SHARDS)
        return ddp_fail(err, DDP_ERR_LIMIT, "%s: more than %d files of tokens; pass fewer files with --data",
                        path, TOKENS_MAX_SHARDS);
    const int fd = files_open_input(path, err);
    if (fd < 0)
        return DDP_ERR_IO;
    ddp_status status = examine(t, fd, &count, err);
    char *name = strdup(path);
    struct tokens_shard *grown = realloc(t->shard, (t->shards + 1) * sizeof(*grown));
    t->shard = grown != NULL ? grown : t->shard;
    if (status == DDP_OK && (name == NULL || grown == NULL))
        status = ddp_fail(err, DDP_ERR_NOMEM, "out of memory for file %zu", t->shards + 1);
    if (status != DDP_OK) {
        free(name);
        close(fd);
        return files_wrap(path, err);
    }
    t->shard[t->shards++] = (struct tokens_shard){ name, fd, count, t->n };
    t->n += (count - 1) / t->length;
    return DDP_OK;
}

void tokens_free(struct tokens *t)
{
    for (size_t i = 0; i < t->shards; i++) {
        close(t->shard[i].fd);
        free(t->shard[i].path);
    }
    free(t->shard);
    *t = (struct tokens){ 0 };
}

/* --- all shards -------------------------------------------------------------------------------------------- */

/* Return true if the name, without the directory, is of the requested kind: training or test. */
static bool belongs(const char *path, bool training)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    if (training)
        return strstr(name, "train") != NULL;
    return strstr(name, "train") == NULL && (strstr(name, "val") != NULL || strstr(name, "test") != NULL);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Add all files in the order of their names, as strcmp() compares them. This order does not depend on the locale, so
 * all ranks have the same order. */
static ddp_status add_all(struct tokens *t, glob_t *found, bool training, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    qsort(found->gl_pathv, found->gl_pathc, sizeof(char *), by_name);
    for (size_t i = 0; i < found->gl_pathc && status == DDP_OK; i++) {
        if (belongs(found->gl_pathv[i], training))
            status = tokens_add(t, found->gl_pathv[i], err);
    }
    return status;
}

/* Write to `to` the pattern of all .bin files in the directory `where`. Put a backslash before each character of
 * `where` that has a special meaning for glob. */
static void directory_pattern(char *to, const char *where)
{
    for (; *where != '\0'; *to++ = *where++) {
        if (strchr("*?[\\", *where) != NULL)
            *to++ = '\\';
    }
    strcpy(to, "/*.bin");
}

#define DATA_REMEDY \
    "set a directory or a pattern with --data, or create a set with `make-data --format tokens --out DIR`"

/* Check that the directory in front of the first wildcard can be read. glob reports an unreadable or missing directory
 * like a directory without files. `pattern` is shortened to this directory. */
static ddp_status check_directory(char *pattern, struct ddp_err *err)
{
    char *to = pattern, *slash = NULL;
    for (const char *from = pattern; *from != '\0' && strchr("*?[", *from) == NULL; *to++ = *from++) {
        if (*from == '\\' && from[1] != '\0')
            from++;
        if (*from == '/')
            slash = to;
    }
    if (slash == NULL)
        return DDP_OK;
    slash[slash == pattern] = '\0';
    DIR *dir = opendir(pattern);
    if (dir == NULL)
        return files_not_opened(pattern, DATA_REMEDY, err);
    closedir(dir);
    return DDP_OK;
}

ddp_status tokens_load(struct tokens *t, const char *where, bool training, struct ddp_err *err)
{
    char pattern[2 * PATH_MAX + sizeof("/*.bin")];
    struct stat s;
    glob_t found = { 0 };
    if (strlen(where) >= PATH_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "%.100s...: the path is too long; use a shorter path", where);
    const bool exists = stat(where, &s) == 0;
    if (!exists && strpbrk(where, "*?[\\") == NULL)
        return files_not_opened(where, DATA_REMEDY, err);
    if (exists && S_ISDIR(s.st_mode))
        directory_pattern(pattern, where);
    else
        strcpy(pattern, where);
    int code = glob(pattern, 0, NULL, &found);
    ddp_status status = code == 0 ? add_all(t, &found, training, err) : DDP_OK;
    if (code == GLOB_NOSPACE)
        status = ddp_fail(err, DDP_ERR_NOMEM, "%s: out of memory for the names", where);
    else if (status == DDP_OK && t->shards == 0 && (!exists || S_ISDIR(s.st_mode)))
        status = check_directory(pattern, err);
    if (status == DDP_OK && t->shards == 0)
        status = ddp_fail(err, DDP_ERR_IO, "%s: no file of tokens has \"%s\" in its name; " DATA_REMEDY,
                          where, training ? "train" : "val\" or \"test");
    globfree(&found);
    if (status != DDP_OK)
        tokens_free(t);
    return status;
}

/* --- samples ----------------------------------------------------------------------------------------------- */

static const struct tokens_shard *shard_of(const struct tokens *t, uint64_t index)
{
    size_t low = 0, high = t->shards;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (t->shard[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    return &t->shard[low];
}

/* Store n tokens, beginning with token i of a sample. Token i is input i, and the target of input i - 1. */
static ddp_status copy_tokens(const struct tokens *t, const uint8_t *bytes, size_t n, size_t i,
                              uint64_t offset, int32_t *token, int32_t *target, struct ddp_err *err)
{
    for (size_t k = 0; k < n; k++, i++) {
        const unsigned value = bytes[2 * k] | (unsigned)bytes[2 * k + 1] << 8;
        if (value >= t->vocabulary)
            return ddp_fail(err, DDP_ERR_CORRUPT,
                            "offset %" PRIu64 ": token %u: expected a number from 0 to %zu", offset + 2 * k,
                            value, t->vocabulary - 1);
        if (i < t->length)
            token[i] = (int32_t)value;
        if (i > 0)
            target[i - 1] = (int32_t)value;
    }
    return DDP_OK;
}

/* Read a sample in pieces, because a thread may have a small stack. */
static ddp_status read_sample(const struct tokens *t, const struct tokens_shard *s, uint64_t sample,
                              int32_t *token, int32_t *target, struct ddp_err *err)
{
    uint8_t bytes[2 * READ_AT_ONCE];
    ddp_status status = DDP_OK;
    for (size_t i = 0; i <= t->length && status == DDP_OK; i += READ_AT_ONCE) {
        const uint64_t offset = TOKENS_HEADER + 2 * (sample * t->length + i);
        const size_t n = t->length + 1 - i < READ_AT_ONCE ? t->length + 1 - i : READ_AT_ONCE;
        size_t got;
        status = files_read(s->fd, bytes, 2 * n, offset, &got, err);
        if (status == DDP_OK && got < 2 * n)
            status =
                ddp_fail(err, DDP_ERR_CORRUPT,
                         "offset %" PRIu64 ": the file ends here, because another process has shortened it",
                         offset + got);
        if (status == DDP_OK)
            status = copy_tokens(t, bytes, n, i, offset, token, target, err);
    }
    return status;
}

ddp_status tokens_read(const struct tokens *t, uint64_t index, int32_t *token, int32_t *target,
                       struct ddp_err *err)
{
    const struct tokens_shard *s = shard_of(t, index);
    ddp_status status = read_sample(t, s, index - s->first, token, target, err);
    if (status != DDP_OK)
        files_wrap(s->path, err);
    return status;
}
