/* ckpt.h -- a checkpoint is written whole or not at all.
 *
 * One file holds named blocks of bytes, each with its length and CRC-32, and a CRC-32 of the header. It is
 * written under a temporary name, flushed to the disk (fsync of file and directory) and renamed, so a crash
 * or a full disk leaves the previous one untouched. Only one rank writes; the caller decides which. */
#ifndef DDP_CKPT_H
#define DDP_CKPT_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_ckpt_block {
    const char *name; /* at most 63 bytes, unique in the file */
    void *data;       /* read on save, overwritten on load; yours */
    size_t bytes;
} ddp_ckpt_block;

/* Write `blocks` to `path`. DDP_ERR_IO names path, operation and errno; nothing is left of it then. */
DDP_API ddp_status ddp_ckpt_save(const char *path, const ddp_ckpt_block *blocks, size_t n,
                                 struct ddp_err *err);

/* Fill `blocks` from `path`: same names and sizes, else DDP_ERR_MISMATCH naming both; DDP_ERR_CORRUPT names
 * path and offset of what is damaged. On an error the blocks are unchanged. */
DDP_API ddp_status ddp_ckpt_load(const char *path, const ddp_ckpt_block *blocks, size_t n,
                                 struct ddp_err *err);

/* Write any other file the same way: under its name it is whole, or what it was before. */
DDP_API ddp_status ddp_file_replace(const char *path, const void *data, size_t len, struct ddp_err *err);

#ifdef __cplusplus
}
#endif
#endif
