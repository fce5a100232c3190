/* ckpt_read.c -- the reading half of directory.h.
 *
 * Nothing is believed: the manifest has a limit and a checksum, its sizes are compared with the caller's
 * before they are used, the file's size with their sum. Then the file is read twice: once through a small
 * window, to check every block, and once into the blocks. So damage near the end is found while the
 * caller's model is still what it was, without a second model in memory; the second pass mostly comes from
 * the page cache. */
#include "checkpoint/directory.h"

#include "core/crc32c.h"
#include "checkpoint/file_bytes.h"
#include "checkpoint/manifest.h"

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

enum { WINDOW = 1 << 20 };

/* One file being read. */
struct reader {
    char name[PATH_MAX];
    int fd;
    uint64_t size;
    struct ddp_err *err;
};

/* A file that is not there is damage, too: every checkpoint has both. So is something else in its place. What cannot be
 * opened for another reason may be whole. */
static ddp_status not_opened(const struct reader *r)
{
    const bool damage = errno == ENOENT || errno == ENOTDIR || errno == ENXIO;
    return ddp_fail(r->err, damage ? DDP_ERR_CORRUPT : DDP_ERR_IO, "%s: open: %s", r->name, strerror(errno));
}

static ddp_status open_file(struct reader *r, const struct ckpt_dir *dir, uint64_t step, const char *name,
                            struct ddp_err *err)
{
    struct stat st;
    r->err = err;
    int len = snprintf(r->name, sizeof(r->name), "%s/step-%08" PRIu64 "/%s", dir->path, step, name);
    if (len < 0 || len >= (int)sizeof(r->name))
        return ddp_fail(err, DDP_ERR_ARG, "%.200s...: the path is too long", dir->path);
    r->fd = open(r->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would be waited for */
    if (r->fd < 0)
        return not_opened(r);
    if (fstat(r->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(r->fd);
        return ddp_fail(err, DDP_ERR_CORRUPT, "%s: not a plain file", r->name);
    }
    r->size = (uint64_t)st.st_size;
    return DDP_OK;
}

/* An end of the file in here is damage: nobody asks for more than the size has promised. */
static ddp_status read_at(struct reader *r, uint64_t at, void *to, size_t len)
{
    const ssize_t n = file_read(r->fd, at, to, len);
    if (n < 0)
        return ddp_fail(r->err, DDP_ERR_IO, "%s: read from offset %" PRIu64 ": %s", r->name, at,
                        strerror(errno));
    if ((size_t)n < len)
        return ddp_fail(r->err, DDP_ERR_CORRUPT,
                        "%s: offset %" PRIu64 ": the file ends here, %zu bytes too early", r->name,
                        at + (uint64_t)n, len - (size_t)n);
    return DDP_OK;
}

/* Its size has a limit before it is memory, and it must be of the step it is found under. */
static ddp_status read_manifest(const struct ckpt_dir *dir, uint64_t step, struct manifest *m,
                                struct ddp_err *err)
{
    struct reader r;
    ddp_status status = open_file(&r, dir, step, "manifest.json", err);
    if (status != DDP_OK)
        return status;
    char *text = r.size <= MANIFEST_BYTES ? malloc((size_t)r.size + 1) : NULL;
    if (r.size > MANIFEST_BYTES)
        status = ddp_fail(err, DDP_ERR_CORRUPT, "%s: %" PRIu64 " bytes, expected %d at most", r.name, r.size,
                          MANIFEST_BYTES);
    else if (text == NULL)
        status = ddp_fail(err, DDP_ERR_NOMEM, "%s: no memory for %" PRIu64 " bytes", r.name, r.size);
    else
        status = read_at(&r, 0, text, (size_t)r.size);
    if (status == DDP_OK)
        status = manifest_read(m, r.name, text, (size_t)r.size, err);
    if (status == DDP_OK && m->point.step != step) {
        status = ddp_fail(err, DDP_ERR_CORRUPT, "%s: is of step %" PRIu64 ", not of the directory's", r.name,
                          m->point.step);
        manifest_free(m);
    }
    free(text);
    close(r.fd);
    return status;
}

static ddp_status wrong_sum(struct reader *r, const struct manifest_block *block)
{
    return ddp_fail(r->err, DDP_ERR_CORRUPT,
                    "%s: offset %" PRIu64 ": the %" PRIu64
                    " bytes of block '%s' from here do not match their CRC-32C",
                    r->name, block->at, block->bytes, block->name);
}

/* The first pass. */
static ddp_status verify_block(struct reader *r, const struct manifest_block *block, char *window)
{
    uint32_t crc = 0;
    for (uint64_t done = 0; done < block->bytes;) {
        const uint64_t left = block->bytes - done;
        const size_t len = left < WINDOW ? (size_t)left : WINDOW;
        ddp_status status = read_at(r, block->at + done, window, len);
        if (status != DDP_OK)
            return status;
        crc = crc32c(crc, window, len);
        done += len;
    }
    return crc == block->crc ? DDP_OK : wrong_sum(r, block);
}

/* The size first: it is the cheapest to look at, and says most clearly what has happened. */
static ddp_status verify(struct reader *r, const struct manifest *m)
{
    ddp_status status = DDP_OK;
    if (r->size > m->bytes)
        return ddp_fail(r->err, DDP_ERR_CORRUPT,
                        "%s: offset %" PRIu64 ": the checkpoint ends here, but the file goes on", r->name,
                        m->bytes);
    if (r->size < m->bytes)
        return ddp_fail(r->err, DDP_ERR_CORRUPT,
                        "%s: offset %" PRIu64 ": the file ends here, %" PRIu64 " bytes too early", r->name,
                        r->size, m->bytes - r->size);
    char *window = malloc(WINDOW);
    if (window == NULL)
        return ddp_fail(r->err, DDP_ERR_NOMEM, "%s: no memory to read it", r->name);
    for (size_t i = 0; i < m->n && status == DDP_OK; i++)
        status = verify_block(r, &m->blocks[i], window);
    free(window);
    return status;
}

/* The second pass. A sum that is wrong only now: somebody writes to the file. */
static ddp_status read_blocks(struct reader *r, const struct manifest *m, const ddp_ckpt_block *blocks,
                              const size_t *number, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct manifest_block *block = &m->blocks[number[i]];
        ddp_status status = read_at(r, block->at, blocks[i].data, blocks[i].bytes);
        if (status != DDP_OK)
            return status;
        if (crc32c(0, blocks[i].data, blocks[i].bytes) != block->crc)
            return wrong_sum(r, block);
    }
    return DDP_OK;
}

/* What does not fit the request is told as such, even if the file is damaged, too: it will never fit. */
static ddp_status read_tensors(const struct ckpt_dir *dir, const struct manifest *m,
                               const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    struct reader r;
    ddp_status status = open_file(&r, dir, m->point.step, MANIFEST_FILE, err);
    if (status != DDP_OK)
        return status;
    size_t *number = malloc(n * sizeof(*number));
    status = number != NULL ? manifest_match(m, r.name, blocks, n, number, err)
                            : ddp_fail(err, DDP_ERR_NOMEM, "%s: no memory for %zu blocks", r.name, n);
    if (status == DDP_OK)
        status = verify(&r, m);
    if (status == DDP_OK)
        status = read_blocks(&r, m, blocks, number, n);
    free(number);
    close(r.fd);
    return status;
}

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
