/* file.c -- see ddp/ckpt.h.
 *
 * Layout, little-endian:
 *
 *     offset 0    "DDPCKPT1"
 *            8    u32 number of blocks, u32 CRC-32 of the table
 *            16   u32 CRC-32 of the 16 bytes before, u32 zero
 *            24   table: per block 64 bytes name (NUL padded), u64 length, u32 CRC-32 of the data, u32 zero
 *                 the data of the blocks, one after the other, nothing behind
 *
 * Every byte is under exactly one check (zeros are compared), so no flipped bit goes unseen. On load nothing
 * that the file says is believed first: the number of blocks is compared with the caller's before the table
 * is read, the lengths with the caller's before data is, and the data goes through memory of our own, so that
 * a file that is damaged near its end cannot leave half a model behind. */
#include "ddp/ckpt.h"

#include "checkpoint/atomic_file.h"
#include "base/not_null.h"
#include "checkpoint/directory.h"
#include "checkpoint/file_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { MAX_NAME = 64, HEAD = 24, ENTRY = MAX_NAME + 16, MAX_BLOCKS = 4096 };

static const char magic[8] = { 'D', 'D', 'P', 'C', 'K', 'P', 'T', '1' };

/* zlib's crc32_z takes a size_t; its crc32 would cut a length at 4 GiB. */
static uint32_t crc_of(const void *data, size_t len)
{
    return (uint32_t)crc32_z(0, data, len);
}

static void put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static void put_u64(uint8_t *to, uint64_t value)
{
    put_u32(to, (uint32_t)value);
    put_u32(to + 4, (uint32_t)(value >> 32));
}

static uint32_t get_u32(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static uint64_t get_u64(const uint8_t *from)
{
    return get_u32(from) | (uint64_t)get_u32(from + 4) << 32;
}

/* --- saving ------------------------------------------------------------------------------------------ */

/* The same rules for saving and loading: a name that cannot be saved cannot be asked for either. */
ddp_status ckpt_check_blocks(const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    if (n < 1 || n > MAX_BLOCKS)
        return ddp_fail(err, DDP_ERR_ARG, "checkpoint: %zu blocks, expected 1 to %d", n, MAX_BLOCKS);
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

/* Header and table in one piece of memory, yours; NULL when memory is short. */
static uint8_t *make_header(const ddp_ckpt_block *blocks, size_t n)
{
    uint8_t *head = calloc(1, HEAD + n * ENTRY);
    if (head == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        uint8_t *entry = head + HEAD + i * ENTRY;
        memcpy(entry, blocks[i].name, strlen(blocks[i].name));
        put_u64(entry + MAX_NAME, blocks[i].bytes);
        put_u32(entry + MAX_NAME + 8, crc_of(blocks[i].data, blocks[i].bytes));
    }
    memcpy(head, magic, sizeof(magic));
    put_u32(head + 8, (uint32_t)n);
    put_u32(head + 12, crc_of(head + HEAD, n * ENTRY));
    put_u32(head + 16, crc_of(head, 16));
    return head;
}

/* Header and table go first although they need every block's sum: the blocks are all in memory anyway. */
ddp_status ddp_ckpt_save(const char *path, const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    NOT_NULL(path, err);
    struct atomic_file file;
    ddp_status status = ckpt_check_blocks(blocks, n, err);
    if (status != DDP_OK)
        return status;
    uint8_t *head = make_header(blocks, n);
    if (head == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: no memory for a header of %zu blocks", path, n);
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

/* --- loading ----------------------------------------------------------------------------------------- */

struct reader {
    const char *path;
    int fd;
    uint64_t at;   /* bytes read so far */
    uint64_t size; /* of the file */
    struct ddp_err *err;
};

/* All refusals of a damaged file look the same: path, offset, what is wrong there. */
static ddp_status damaged(struct reader *r, uint64_t offset, const char *what)
{
    return ddp_fail(r->err, DDP_ERR_CORRUPT, "%s: offset %" PRIu64 ": %s", r->path, offset, what);
}

/* An end of the file in here is damage: nobody asks for more than the header has promised. */
static ddp_status read_exactly(struct reader *r, void *to, size_t len)
{
    const ssize_t n = file_read(r->fd, r->at, to, len);
    if (n < 0)
        return ddp_fail(r->err, DDP_ERR_IO, "%s: read from offset %" PRIu64 ": %s", r->path, r->at,
                        strerror(errno));
    r->at += (uint64_t)n;
    if ((size_t)n < len)
        return ddp_fail(r->err, DDP_ERR_CORRUPT,
                        "%s: offset %" PRIu64 ": the file ends here, %zu bytes too early", r->path, r->at,
                        len - (size_t)n);
    return DDP_OK;
}

/* The sum is checked before the count is looked at, so a count that differs is a difference and not
 * damage. */
static ddp_status read_head(struct reader *r, uint8_t head[HEAD], size_t n)
{
    ddp_status status = read_exactly(r, head, HEAD);
    if (status != DDP_OK)
        return status;
    if (memcmp(head, magic, sizeof(magic)) != 0)
        return damaged(r, 0, "not a checkpoint (it does not begin with DDPCKPT1)");
    if (get_u32(head + 16) != crc_of(head, 16) || get_u32(head + 20) != 0)
        return damaged(r, 8, "the header does not match its CRC-32");
    if (get_u32(head + 8) != n)
        return ddp_fail(r->err, DDP_ERR_MISMATCH, "%s: holds %u blocks, %zu are expected", r->path,
                        get_u32(head + 8), n);
    return DDP_OK;
}

/* Names are compared in order: a program that saves and loads has one list of blocks. */
static ddp_status check_entry(struct reader *r, const uint8_t *entry, const ddp_ckpt_block *block)
{
    char name[MAX_NAME];
    memcpy(name, entry, MAX_NAME);
    name[MAX_NAME - 1] = '\0';
    uint64_t bytes = get_u64(entry + MAX_NAME);
    if (strcmp(name, block->name) != 0 || bytes != block->bytes)
        return ddp_fail(r->err, DDP_ERR_MISMATCH,
                        "%s: holds block '%s' of %" PRIu64 " bytes, '%s' of %zu is expected", r->path, name,
                        bytes, block->name, block->bytes);
    return DDP_OK;
}

/* The table agrees with its sum, then with the caller, then with the size of the file. */
static ddp_status read_table(struct reader *r, uint32_t crc, uint8_t *table, const ddp_ckpt_block *blocks,
                             size_t n)
{
    uint64_t end = HEAD + n * ENTRY;
    ddp_status status = read_exactly(r, table, n * ENTRY);
    if (status == DDP_OK && crc_of(table, n * ENTRY) != crc)
        status = damaged(r, HEAD, "the table of blocks does not match its CRC-32");
    for (size_t i = 0; i < n && status == DDP_OK; i++) {
        status = check_entry(r, table + i * ENTRY, &blocks[i]);
        end += blocks[i].bytes;
    }
    if (status == DDP_OK && r->size > end)
        status = damaged(r, end, "the checkpoint ends here, but the file goes on");
    return status;
}

/* Into `to`, block after block, each checked as it arrives. */
static ddp_status read_data(struct reader *r, const uint8_t *table, uint8_t *to, const ddp_ckpt_block *blocks,
                            size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t start = r->at;
        ddp_status status = read_exactly(r, to, blocks[i].bytes);
        if (status != DDP_OK)
            return status;
        if (crc_of(to, blocks[i].bytes) != get_u32(table + i * ENTRY + MAX_NAME + 8))
            return ddp_fail(r->err, DDP_ERR_CORRUPT,
                            "%s: offset %" PRIu64
                            ": the %zu bytes of block '%s' from here do not match their CRC-32",
                            r->path, start, blocks[i].bytes, blocks[i].name);
        to += blocks[i].bytes;
    }
    return DDP_OK;
}

/* Nothing can fail any more: the caller's blocks are written now, all of them. A block of nothing may be nowhere. */
static void hand_over(const uint8_t *from, const ddp_ckpt_block *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (blocks[i].bytes > 0)
            memcpy(blocks[i].data, from, blocks[i].bytes);
        from += blocks[i].bytes;
    }
}

static size_t total_bytes(const ddp_ckpt_block *blocks, size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += blocks[i].bytes;
    return total;
}

/* All sizes allocated here are the caller's own. */
static ddp_status load(struct reader *r, const ddp_ckpt_block *blocks, size_t n)
{
    uint8_t head[HEAD];
    uint8_t *table = malloc(n * ENTRY);
    uint8_t *data = malloc(total_bytes(blocks, n) + 1); /* never malloc(0) */
    ddp_status status = DDP_OK;
    if (table == NULL || data == NULL)
        status =
            ddp_fail(r->err, DDP_ERR_NOMEM, "%s: no memory for %zu bytes", r->path, total_bytes(blocks, n));
    if (status == DDP_OK)
        status = read_head(r, head, n);
    if (status == DDP_OK)
        status = read_table(r, get_u32(head + 12), table, blocks, n);
    if (status == DDP_OK)
        status = read_data(r, table, data, blocks, n);
    if (status == DDP_OK)
        hand_over(data, blocks, n);
    free(table);
    free(data);
    return status;
}

/* The size is that of the file as it was opened: renaming another over its name does not disturb us. */
ddp_status ddp_ckpt_load(const char *path, const ddp_ckpt_block *blocks, size_t n, struct ddp_err *err)
{
    NOT_NULL(path, err);
    struct stat st;
    ddp_status status = ckpt_check_blocks(blocks, n, err);
    if (status != DDP_OK)
        return status;
    struct reader r = { .path = path, .err = err };
    r.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not hold us up */
    if (r.fd < 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: open: %s", path, strerror(errno));
    if (fstat(r.fd, &st) != 0) {
        status = ddp_fail(err, DDP_ERR_IO, "%s: stat: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = ddp_fail(err, DDP_ERR_CORRUPT, "%s: not a plain file", path);
    } else {
        r.size = (uint64_t)st.st_size;
        status = load(&r, blocks, n);
    }
    close(r.fd);
    return status;
}
