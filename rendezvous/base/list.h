/* list.h -- a doubly linked list whose nodes are members of other objects. So inserting needs no memory, and removing
 * needs no search. The list is a ring that contains its head, so the ends are no special case. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* A node, or the head of a list. A node outside all lists points to itself, so it may be removed twice. */
struct list {
    struct list *prev, *next;
};

/* LIST_ENTRY returns the object that contains the node. The body of LIST_EACH must not remove its current node.
 *
 *     struct barrier { struct list open; ... };             the node is a member of the object
 *     LIST_EACH(node, &barriers->open)
 *         use(LIST_ENTRY(node, struct barrier, open)); */
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

/* Insert `node`, which must be in no list, before `at`. If `at` is the head, `node` becomes the last node. */
static inline void list_insert(struct list *at, struct list *node)
{
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

/* Remove `node` from its list, if any. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#endif
