/* idmap.h -- from a number to a pointer in constant time, where an old number never finds a new pointer.
 *
 * A number is a serial (which never repeats) in front of the slot's index. So the shell can give out
 * connection numbers that stay unique although slots are used again, and a lookup is one array access and one
 * comparison. */
#ifndef RENDEZVOUS_IDMAP_H
#define RENDEZVOUS_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct id_slot;

/* A zeroed struct is empty. */
struct idmap {
    struct id_slot *at;
    size_t cap;
    size_t count;      /* slots in use */
    uint32_t free_top; /* head of the list of free slots, as index + 1; 0 = none */
    uint64_t serial;   /* of the latest number */
};

/* Keep `pointer` (not NULL, stays the caller's); returns its number, 0 when memory is short or 2^20 are in
 * use. */
uint64_t idmap_put(struct idmap *map, void *pointer);

/* The pointer of a number that is in use, else NULL. */
void *idmap_get(const struct idmap *map, uint64_t number);

/* Give a number back; one that is not in use is ignored. */
void idmap_remove(struct idmap *map, uint64_t number);

/* Go through all pointers: start with *index = 0, ends with NULL. The current one may be removed on the way.
 */
void *idmap_next(const struct idmap *map, size_t *index);

void idmap_free(struct idmap *map);

#endif
