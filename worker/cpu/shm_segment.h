/* shm_segment.h -- memory of several processes that has no name.
 *
 * One rank makes a memory file (memfd) and tells the others "pid, descriptor"; they open
 * /proc/<pid>/fd/<descriptor> and map the same pages. There is no name to clean up: when the last process
 * is gone, by whatever end, the memory is gone. The maker reserves all pages at once, so a machine that is
 * short of memory says so here and not by SIGBUS in the middle of a step, and seals the size, so nobody
 * can cut the file under the others' feet. */
#ifndef WORKER_SHM_SEGMENT_H
#define WORKER_SHM_SEGMENT_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

/* What segments are divided into: a page of most machines. Where pages are larger parts of two ranks may share one, which
 * costs nothing but the wish to have them apart. */
enum { SEGMENT_PAGE = 4096 };

struct segment {
    void *base;
    size_t bytes;
    int fd; /* -1 once nobody needs to find it any more */
};

/* Where another process finds a segment, and how it recognises it (a pid could be another's by now). */
struct segment_offer {
    int32_t pid, fd;
    uint64_t device, inode;
};

/* `bytes` zeroed bytes that others may attach. DDP_ERR_NOMEM or DDP_ERR_IO. Close with segment_close. */
ddp_status segment_create(struct segment *out, size_t bytes, struct ddp_err *err);

/* The same for a world of one: memory that is nobody else's. */
ddp_status segment_create_private(struct segment *out, size_t bytes, struct ddp_err *err);

/* Fill `offer` for a segment of ours that is not hidden. */
ddp_status segment_describe(const struct segment *segment, struct segment_offer *offer, struct ddp_err *err);

/* Map what `offer` describes; it must be a sealed memory file of exactly `bytes` bytes, else
 * DDP_ERR_CORRUPT. */
ddp_status segment_attach(struct segment *out, const struct segment_offer *offer, size_t bytes,
                          struct ddp_err *err);

/* Everybody has attached: give the descriptor back, the mapping stays. */
void segment_hide(struct segment *segment);

/* Unmap and give back. A zeroed or closed segment is left alone. */
void segment_close(struct segment *segment);

#endif
