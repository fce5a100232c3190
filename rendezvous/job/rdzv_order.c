/* rdzv_order.c -- which node gets which rank.
 *
 * Static: what the user said, and what is free for those who said nothing. Elastic, the first time: the
 * natural order of host names, so that neighbours in a rack, which are named alike, are neighbours in rings
 * of ranks; then the pid. Later: who was in the last round keeps its node rank; a gap is closed by moving
 * the highest down; newcomers go to the end. So rank 0 is never a newcomer while anybody is left who knows
 * how far the job has come.
 *
 * Everything here is n log n of the nodes in the round, and needs no memory that is not there already. */
#include "job/rdzv_core.h"

#include <stdlib.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Runs of digits by their value: without leading zeros the longer one is the bigger one. */
static int compare_numbers(const char **a, const char **b)
{
    size_t len_a = 0, len_b = 0;
    while (**a == '0')
        ++*a;
    while (**b == '0')
        ++*b;
    while (is_digit((*a)[len_a]))
        len_a++;
    while (is_digit((*b)[len_b]))
        len_b++;
    int order = len_a != len_b ? (len_a < len_b ? -1 : 1) : memcmp(*a, *b, len_a);
    *a += len_a;
    *b += len_b;
    return order;
}

int rdzv_compare_names(const char *a, const char *b)
{
    const char *from_a = a, *from_b = b;
    int order = 0;
    while (order == 0 && *a != '\0' && *b != '\0') {
        if (is_digit(*a) && is_digit(*b))
            order = compare_numbers(&a, &b);
        else if (*a != *b)
            order = (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        else
            a++, b++;
    }
    if (order == 0 && (*a != '\0' || *b != '\0'))
        order = *a != '\0' ? 1 : -1;
    return order != 0 ? order : strcmp(from_a, from_b); /* "n01" and "n1" are not the same host */
}

/* For qsort; the id makes the order total, so that it is the same every time. */
static int by_name(const void *left, const void *right)
{
    const struct node *a = *(struct node *const *)left, *b = *(struct node *const *)right;
    int order = rdzv_compare_names(a->host, b->host);
    if (order == 0 && a->pid != b->pid)
        order = a->pid < b->pid ? -1 : 1;
    return order != 0 ? order : a->id < b->id ? -1 : 1;
}

/* Comparing and not subtracting; -1, "no rank", is not among survivors. */
static int by_rank(const void *left, const void *right)
{
    const struct node *a = *(struct node *const *)left, *b = *(struct node *const *)right;
    return a->node_rank < b->node_rank ? -1 : a->node_rank > b->node_rank;
}

static void sort(struct node **nodes, uint32_t n, int (*compare)(const void *, const void *))
{
    qsort(nodes, n, sizeof(*nodes), compare);
}

/* Who asked for no rank has none until now, and keeps it from now on. */
void rdzv_order_static(struct rdzv *r)
{
    uint32_t n = 0, at = 0;
    LIST_EACH(i, &r->waiting)
    {
        struct node *node = LIST_ENTRY(i, struct node, waiting);
        if (node->wanted < 0 && (node->node_rank < 0 || r->place[node->node_rank] != node))
            r->order[n++] = node;
    }
    sort(r->order, n, by_name);
    for (uint32_t rank = 0; rank < r->rules.max; rank++) {
        if (r->place[rank] == NULL)
            r->place[rank] = r->order[at++];
        r->member[rank] = r->place[rank];
    }
}

/* The first `n` of r->order are survivors, sorted by rank: they will have the ranks 0 to n - 1. Those whose
 * rank is among these keep it, the others fill the gaps, the highest first. */
static void close_gaps(struct rdzv *r, uint32_t n)
{
    uint32_t last = n;
    for (uint32_t rank = 0; rank < n; rank++)
        r->member[rank] = NULL;
    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)r->order[i]->node_rank < n)
            r->member[r->order[i]->node_rank] = r->order[i];
    for (uint32_t rank = 0; rank < n; rank++)
        if (r->member[rank] == NULL)
            r->member[rank] = r->order[--last];
}

/* Among newcomers who came first is taken first; how they are numbered is another matter. */
void rdzv_order_elastic(struct rdzv *r, uint32_t n)
{
    uint32_t old = 0, taken = r->n_back;
    LIST_EACH(i, &r->waiting)
    {
        struct node *node = LIST_ENTRY(i, struct node, waiting);
        bool survivor = node->round != 0 && node->round == r->round;
        if (survivor)
            r->order[old++] = node;
        else if (taken < n)
            r->order[taken++] = node;
    }
    sort(r->order, old, by_rank);
    sort(r->order + old, n - old, by_name);
    close_gaps(r, old);
    memcpy(r->member + old, r->order + old, (n - old) * sizeof(*r->member));
}
