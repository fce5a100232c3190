/* replies.c -- see replies.h. */
#include "server/replies.h"

#include <string.h>

bool replies_put(struct replies *r, conn_id to, struct slice bytes)
{
    if (r->n == REPLIES_MAX || bytes.len > REPLIES_BYTES - r->used)
        return false;
    if (bytes.len > 0)
        memcpy(r->bytes + r->used, bytes.data, bytes.len);
    r->of[r->n].to = to;
    r->of[r->n++].len = (uint32_t)bytes.len;
    r->used += (uint32_t)bytes.len;
    return true;
}

void replies_flush(struct replies *r, void (*send)(void *user, conn_id to, struct slice bytes), void *user)
{
    const uint8_t *at = r->bytes;
    for (uint32_t i = 0; i < r->n; at += r->of[i++].len)
        send(user, r->of[i].to, slice_of(at, r->of[i].len));
    r->n = r->used = 0;
}
