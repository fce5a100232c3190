/* list.h -- a doubly linked list whose nodes are members of other objects. So inserting an object needs no memory and
 * cannot fail, and removing an object needs no search. The list is a ring, and its head is a node, too, so that
 * inserting and removing need no special case for the ends. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* A node, or the head of a list. An object may be in several lists at once. A node outside all lists points to itself,
 * so removing a node twice does no harm. A list owns no object: code that frees an object first removes its nodes. */
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

/* Insert `node`, which is in no list, before `at`. If `at` is the head, `node` becomes the last node. */
static inline void list_insert(struct list *at, struct list *node)
{
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

/* Remove `node` from its list. Do nothing if it is in no list. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#endif
