/* replies.h -- small replies of one turn of the loop, in order, until they are written together. Pure.
 *
 * A reply that is written wakes its client, and waking a processor that sleeps costs more than many requests: after the first of
 * several that follow each other the client is awake. So all replies but the first wait here until the server would sleep, or until
 * this is full. */
#ifndef RENDEZVOUS_REPLIES_H
#define RENDEZVOUS_REPLIES_H

#include "base/slice.h"
#include "hub/hub.h"

enum {
    REPLIES_MAX = 64, /* so many requests at most are worked off before one of them is answered */
    REPLIES_BYTES = 4096,
};

struct replies {
    uint32_t n, used;
    struct {
        conn_id to;
        uint32_t len;
    } of[REPLIES_MAX];
    uint8_t bytes[REPLIES_BYTES]; /* of all, one behind the other */
};

/* A copy; false when there is no room for it. */
bool replies_put(struct replies *r, conn_id to, struct slice bytes);

/* Hands out all of them in their order and is empty then. `send` must not put anything here. */
void replies_flush(struct replies *r, void (*send)(void *user, conn_id to, struct slice bytes), void *user);

#endif
