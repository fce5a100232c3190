/* shm_regions.c -- see shm_regions.h. */
#include "cpu/shm_regions.h"

#include <stdlib.h>

/* Blocks begin on pages of their own, and one more lies between them: blocks that are exactly a power of
 * two apart would fight for the same places in the caches. */
enum { BETWEEN = SEGMENT_PAGE };

/* The lowest free number, found in the same way on every rank: all make and free regions in the same
 * order. */
ddp_status regions_reserve(struct regions *regions, int32_t *number, struct ddp_err *err)
{
    for (size_t i = 0; i < regions->count; i++) {
        if (regions->list[i].segment.base == NULL) {
            *number = (int32_t)i;
            return DDP_OK;
        }
    }
    struct region *list = realloc(regions->list, (regions->count + 1) * sizeof(*list));
    if (list == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for a table of %zu shared blocks", regions->count + 1);
    regions->list = list;
    *number = (int32_t)regions->count++;
    list[*number] = (struct region){ .segment = { .fd = -1 } };
    return DDP_OK;
}

size_t region_segment_bytes(size_t bytes, int world, size_t *stride)
{
    if (bytes > SIZE_MAX / 2 / (size_t)world - 2 * SEGMENT_PAGE - BETWEEN)
        return 0;
    *stride = (bytes + SEGMENT_PAGE - 1) / SEGMENT_PAGE * SEGMENT_PAGE + BETWEEN;
    return *stride * (size_t)world;
}

/* A handful of regions at most (one for each reducer, some of the user's own), so they are just gone
 * through. Written without sums of addresses that could overflow. */
struct shm_place regions_find(const struct regions *regions, const void *block, size_t bytes)
{
    for (size_t i = 0; i < regions->count; i++) {
        const struct region *r = &regions->list[i];
        uintptr_t mine = (uintptr_t)r->segment.base + (size_t)regions->rank * r->stride,
                  at = (uintptr_t)block;
        if (r->segment.base != NULL && at >= mine && at - mine <= r->bytes && bytes <= r->bytes - (at - mine))
            return (struct shm_place){ (int32_t)i, at - mine };
    }
    return (struct shm_place){ -1, 0 };
}

void *regions_at(const struct regions *regions, int rank, struct shm_place place, size_t bytes)
{
    if (place.region < 0 || (size_t)place.region >= regions->count)
        return NULL;
    const struct region *r = &regions->list[place.region];
    if (r->segment.base == NULL || place.offset > r->bytes || bytes > r->bytes - place.offset)
        return NULL;
    return (char *)r->segment.base + (size_t)rank * r->stride + place.offset;
}

void region_close(struct region *region)
{
    segment_close(&region->segment);
}

void regions_close(struct regions *regions)
{
    for (size_t i = 0; i < regions->count; i++)
        region_close(&regions->list[i]);
    free(regions->list);
    *regions = (struct regions){ 0 };
}
