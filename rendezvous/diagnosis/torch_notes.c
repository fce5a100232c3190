/* torch_notes.c -- see torch_notes.h. A barrier's place is its id modulo their number, so finding the one of a client and
 * letting the oldest go are the same step. */
#include "diagnosis/torch_notes.h"

#include <stdlib.h>
#include <string.h>

struct torch_client *torch_client_at(struct torch_client **at)
{
    if (*at == NULL)
        *at = calloc(1, sizeof(**at));
    return *at;
}

void torch_client_free(struct torch_client **at)
{
    if (*at != NULL)
        free((*at)->owner);
    free(*at);
    *at = NULL;
}

const struct torch_meet *torch_meets_of_id(const struct torch_meets *meets, uint32_t id)
{
    const struct torch_meet *meet = &meets->meet[id % TORCH_MEETS_MAX];
    return id != 0 && meet->id == id ? meet : NULL;
}

/* The latest first, as it is nearly always meant. */
struct torch_meet *torch_meets_find(struct torch_meets *meets, struct slice key)
{
    for (uint32_t i = 0; i < TORCH_MEETS_MAX && i < meets->last_id; i++) {
        struct torch_meet *meet = &meets->meet[(meets->last_id - i) % TORCH_MEETS_MAX];
        if (slice_equal(torch_meet_key(meet), key))
            return meet;
    }
    return NULL;
}

struct torch_meet *torch_meets_make(struct torch_meets *meets, struct slice key)
{
    const uint32_t id = ++meets->last_id;
    struct torch_meet *meet = &meets->meet[id % TORCH_MEETS_MAX];
    *meet = (struct torch_meet){ .id = id, .len = (uint32_t)key.len };
    memcpy(meet->key, key.data, key.len);
    return meet;
}
