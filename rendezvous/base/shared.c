/* shared.c -- see shared.h. */
#include "base/shared.h"

#include <stdlib.h>
#include <string.h>

struct shared *shared_resize(struct shared *old, size_t size, size_t keep)
{
    const bool alone = !shared_is_held_twice(old);
    struct shared *s = alone ? realloc(old, sizeof(*s) + size) : malloc(sizeof(*s) + size);
    if (s == NULL)
        return NULL;
    if (!alone) {
        memcpy(s->bytes, old->bytes, keep < size ? keep : size);
        old->holders--;
    }
    s->holders = 1;
    s->size = size;
    return s;
}

struct shared *shared_hold(struct shared *s)
{
    s->holders++;
    return s;
}

void shared_release(struct shared *s)
{
    if (s != NULL && --s->holders == 0)
        free(s);
}
