/* idmap.c -- see idmap.h.
 *
 *     number  =  serial (44 bits)  |  index (20 bits)
 *
 * A million at once is as many descriptors as the kernel allows a process (fs.nr_open); 2^44 serials last
 * for five hundred years at a thousand connections a second. A free slot has the number 0, which no lookup
 * can match. */
#include "server/idmap.h"

#include <stdlib.h>

enum { INDEX_BITS = 20, INDEX_MASK = (1 << INDEX_BITS) - 1, FIRST_CAP = 64 };

struct id_slot {
    uint64_t number; /* 0 = free */
    union {
        void *pointer;
        uint32_t next_free; /* index + 1; 0 = end of the list */
    };
};

/* Twice as many slots, and the new ones onto the free list. */
static bool grow(struct idmap *map)
{
    size_t cap = map->cap > 0 ? map->cap * 2 : FIRST_CAP;
    struct id_slot *at = cap > INDEX_MASK + 1u ? NULL : realloc(map->at, cap * sizeof(*at));
    if (at == NULL)
        return false;
    for (size_t i = cap; i-- > map->cap;) { /* backwards, so that low indices are used first */
        at[i] = (struct id_slot){ .next_free = map->free_top };
        map->free_top = (uint32_t)i + 1;
    }
    map->at = at;
    map->cap = cap;
    return true;
}

uint64_t idmap_put(struct idmap *map, void *pointer)
{
    if (map->free_top == 0 && !grow(map))
        return 0;
    uint32_t index = map->free_top - 1;
    struct id_slot *slot = &map->at[index];
    map->free_top = slot->next_free;
    map->count++;
    slot->number = ++map->serial << INDEX_BITS | index;
    slot->pointer = pointer;
    return slot->number;
}

static struct id_slot *find(const struct idmap *map, uint64_t number)
{
    size_t index = number & INDEX_MASK;
    return number != 0 && index < map->cap && map->at[index].number == number ? &map->at[index] : NULL;
}

void *idmap_get(const struct idmap *map, uint64_t number)
{
    const struct id_slot *slot = find(map, number);
    return slot != NULL ? slot->pointer : NULL;
}

void idmap_remove(struct idmap *map, uint64_t number)
{
    struct id_slot *slot = find(map, number);
    if (slot == NULL)
        return;
    *slot = (struct id_slot){ .next_free = map->free_top };
    map->free_top = (uint32_t)(slot - map->at) + 1;
    map->count--;
}

void *idmap_next(const struct idmap *map, size_t *index)
{
    while (*index < map->cap) {
        const struct id_slot *slot = &map->at[(*index)++];
        if (slot->number != 0)
            return slot->pointer;
    }
    return NULL;
}

void idmap_free(struct idmap *map)
{
    free(map->at);
    *map = (struct idmap){ 0 };
}
