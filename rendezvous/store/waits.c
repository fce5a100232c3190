/* waits.c -- see waits.h.
 *
 * A link has three lives: in line (slot set), satisfied (slot NULL, its wait still misses others), and
 * gone with its wait. `missing` counts the first kind, and a wait is freed by whoever takes it to zero or
 * by its owner's leaving. */
#include "store/waits.h"

#include <stdlib.h>

static uint64_t cost(uint32_t links)
{
    return sizeof(struct wait) + links * sizeof(struct wait_link);
}

/* Room for all links at once: a connection that waits for 100,000 keys costs one block, and frees it in
 * one go. */
struct wait *wait_new(struct slots *slots, struct store_waiter *owner, uint32_t links)
{
    if (!quota_take(slots->quota, cost(links)))
        return NULL;
    struct wait *wait = malloc(cost(links));
    if (wait == NULL) {
        quota_give(slots->quota, cost(links));
        return NULL;
    }
    *wait = (struct wait){ .owner = owner, .room = links };
    return wait;
}

/* All links of one wait are added in one go, so a key named twice finds its own wait at the end of the
 * line. */
void wait_add(struct wait *wait, struct slot *slot)
{
    struct wait_link *last = slot->first != NULL ? slot->first->prev : NULL;
    if (last != NULL && last->wait == wait)
        return;
    struct wait_link *link = &wait->link[wait->links++];
    *link = (struct wait_link){ .slot = slot, .wait = wait, .prev = last != NULL ? last : link };
    if (last != NULL)
        last->next = link;
    else
        slot->first = link;
    slot->first->prev = link;
    wait->missing++;
}

/* From anywhere in the line, without a walk: that is what the links' two pointers are for. */
static void unlink_from_line(struct wait_link *link)
{
    struct slot *slot = link->slot;
    if (slot->first == link)
        slot->first = link->next;
    else
        link->prev->next = link->next;
    if (link->next != NULL)
        link->next->prev = link->prev;
    else if (slot->first != NULL)
        slot->first->prev = link->prev;
    link->slot = NULL;
    link->wait->missing--;
}

/* The slot of a key that does not exist lives only as long as somebody waits there, hence the settling. */
void wait_free(struct slots *slots, struct wait *wait)
{
    for (uint32_t i = 0; i < wait->links; i++) {
        struct slot *slot = wait->link[i].slot;
        if (slot == NULL)
            continue;
        unlink_from_line(&wait->link[i]);
        slot_settle(slots, slot);
    }
    quota_give(slots->quota, cost(wait->room));
    free(wait);
}

/* The owner hears of it only after the wait is gone, so whatever it does next finds no wait half taken
 * apart. */
struct store_waiter *wait_satisfy(struct slots *slots, struct wait_link *link)
{
    struct wait *wait = link->wait;
    unlink_from_line(link);
    if (wait->missing > 0)
        return NULL;
    struct store_waiter *owner = wait->owner;
    owner->wait = NULL;
    wait_free(slots, wait);
    return owner;
}
