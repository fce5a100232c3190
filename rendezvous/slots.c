/* slots.c -- see slots.h. */
#include "slots.h"

#include <stdlib.h>

enum { INDEX_BITS = 20, INDEX_MASK = (1 << INDEX_BITS) - 1, FIRST_CAP = 64 };

struct slot {
    uint64_t number; /* 0 = free */
    union {
        void *pointer;
        uint32_t next_free; /* index + 1; 0 = end of the list */
    };
};

static bool grow(struct slots *s)
{
    size_t cap = s->cap > 0 ? s->cap * 2 : FIRST_CAP;
    struct slot *at = cap > INDEX_MASK + 1u ? NULL : realloc(s->at, cap * sizeof(*at));
    if (at == NULL)
        return false;
    for (size_t i = cap; i-- > s->cap;) { /* backwards, so that low indices are used first */
        at[i] = (struct slot){ .next_free = s->free_top };
        s->free_top = (uint32_t)i + 1;
    }
    s->at = at;
    s->cap = cap;
    return true;
}

uint64_t slots_put(struct slots *s, void *pointer)
{
    if (s->free_top == 0 && !grow(s))
        return 0;
    uint32_t index = s->free_top - 1;
    struct slot *slot = &s->at[index];
    s->free_top = slot->next_free;
    s->count++;
    slot->number = ++s->serial << INDEX_BITS | index;
    slot->pointer = pointer;
    return slot->number;
}

static struct slot *find(const struct slots *s, uint64_t number)
{
    size_t index = number & INDEX_MASK;
    return number != 0 && index < s->cap && s->at[index].number == number ? &s->at[index] : NULL;
}

void *slots_get(const struct slots *s, uint64_t number)
{
    const struct slot *slot = find(s, number);
    return slot != NULL ? slot->pointer : NULL;
}

void slots_remove(struct slots *s, uint64_t number)
{
    struct slot *slot = find(s, number);
    if (slot == NULL)
        return;
    *slot = (struct slot){ .next_free = s->free_top };
    s->free_top = (uint32_t)(slot - s->at) + 1;
    s->count--;
}

void *slots_next(const struct slots *s, size_t *index)
{
    while (*index < s->cap) {
        const struct slot *slot = &s->at[(*index)++];
        if (slot->number != 0)
            return slot->pointer;
    }
    return NULL;
}

void slots_free(struct slots *s)
{
    free(s->at);
    *s = (struct slots){ 0 };
}
