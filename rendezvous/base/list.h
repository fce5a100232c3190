/* list.h -- a ring of nodes that are parts of other objects. The head is also a node, so that the ends of a list are
 * no special case.
 *
 *     struct barrier { struct list open; ... };                 the node is part of the object
 *     LIST_EACH(node, &barriers->open)
 *         use(LIST_ENTRY(node, struct barrier, open));            from the node back to the object
 *
 * So inserting an object needs no memory and cannot fail, removing an object needs no search, and an object may be in
 * several lists at once. LIST_EACH must not remove its current node: fetch `next` first.
 *
 * A node outside all lists points to itself, so removing a node twice is harmless. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

#define LIST_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))
#define LIST_EACH(node, head)          for (struct list *node = (head)->next; node != (head); node = node->next)

static inline void list_init(struct list *node)
{
    node->prev = node->next = node;
}

static inline bool list_is_empty(const struct list *head)
{
    return head->next == head;
}

/* Insert `node`, which is in no list, before `at`. If `at` is the head, `node` becomes the last node. */
static inline void list_insert(struct list *at, struct list *node)
{
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#endif
