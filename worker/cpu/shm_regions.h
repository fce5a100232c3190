/* shm_regions.h -- the blocks of ddp_shared_alloc: memory that every rank has at the same place of the
 * same file.
 *
 * A region is one segment of world equal blocks; block r is rank r's. Regions have the same number on all
 * ranks, because making one is a collective call, so "region 3, offset 512" means something to a peer. */
#ifndef WORKER_SHM_REGIONS_H
#define WORKER_SHM_REGIONS_H

#include "cpu/shm_control.h"

struct region {
    struct segment segment; /* base NULL: a free place in the table */
    size_t stride;          /* from one rank's block to the next one's */
    size_t bytes;           /* of a block, as asked for */
};

struct regions {
    struct region *list;
    size_t count;
    int rank, world;
};

/* Room for one more region, whose number is *number. DDP_ERR_NOMEM. */
ddp_status regions_reserve(struct regions *regions, int32_t *number, struct ddp_err *err);

/* Bytes of the segment behind blocks of `bytes` for `world` ranks, with what lies between the blocks. 0 =
 * too large. */
size_t region_segment_bytes(size_t bytes, int world, size_t *stride);

/* Which region and offset `block` of `bytes` bytes is, in our own block. {-1, 0} for private memory. */
struct shm_place regions_find(const struct regions *regions, const void *block, size_t bytes);

/* `rank`'s memory at `place`, or NULL when it is private or not wholly inside a block (a peer's word is
 * not believed). */
void *regions_at(const struct regions *regions, int rank, struct shm_place place, size_t bytes);

void region_close(struct region *region);
void regions_close(struct regions *regions);

#endif
