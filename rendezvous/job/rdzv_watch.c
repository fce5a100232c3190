/* rdzv_watch.c -- signs of life.
 *
 * Nodes are in one list, the longest silent first: a sign of life moves its node to the end, so a beat costs
 * the same with ten thousand nodes as with two, and the silent ones are found at the front.
 *
 * A server that was itself stopped (a VM moved, a laptop's lid, SIGSTOP) finds all nodes silent when it goes
 * on, with their beats unread in its sockets. So it looks twice a second, and when a look comes more than
 * half a second late, nobody counts as silent before this moment. A silence is judged when it is too long, not at the
 * next look: with --node_timeout=fast that would be a third more.
 *
 * A server that is always busy is always late. So one silence is pardoned PARDONS times and no more: between two
 * late looks the sockets are read, and whoever lives has been heard by then. A silence is judged at the latest
 * by the third look that is late, or node_timeout_ms behind the second. */
#include "job/rdzv_core.h"

enum { LOOK_MS = 500, LATE_MS = STOOD_STILL_MS, PARDONS = 2 };

void rdzv_touch(struct rdzv *r, struct node *node)
{
    node->heard_ms = node->spared_ms = r->now_ms;
    node->pardons = 0;
    list_remove(&node->watched);
    list_insert(&r->watched, &node->watched);
    if (r->watch_ms == UINT64_MAX)
        r->watch_ms = r->now_ms + LOOK_MS;
}

static bool is_watching(const struct rdzv *r)
{
    return r->rules.node_timeout_ms > 0 && !list_is_empty(&r->watched);
}

uint64_t rdzv_watch_deadline(const struct rdzv *r)
{
    if (!is_watching(r))
        return UINT64_MAX;
    const struct node *first = LIST_ENTRY(r->watched.next, struct node, watched);
    const uint64_t silent_ms = first->spared_ms + r->rules.node_timeout_ms;
    return silent_ms < r->watch_ms ? silent_ms : r->watch_ms;
}

/* Who was silent before another is never spared longer, so the list stays in order. */
void rdzv_pardon(struct rdzv *r, uint64_t now_ms)
{
    r->now_ms = now_ms;
    LIST_EACH(at, &r->watched)
    {
        struct node *node = LIST_ENTRY(at, struct node, watched);
        if (node->pardons < PARDONS) {
            node->pardons++;
            node->spared_ms = now_ms;
        }
    }
    r->watch_ms = is_watching(r) ? now_ms : UINT64_MAX;
}

void rdzv_check_own_pulse(struct rdzv *r)
{
    if (is_watching(r) && r->now_ms < r->watch_ms)
        return;
    if (is_watching(r) && r->now_ms > r->watch_ms + LATE_MS)
        rdzv_pardon(r, r->now_ms);
    r->watch_ms = is_watching(r) ? r->now_ms + LOOK_MS : UINT64_MAX;
}

bool rdzv_is_silent(const struct rdzv *r, const struct node *node)
{
    const uint64_t limit_ms = r->rules.node_timeout_ms;
    return limit_ms > 0 && r->now_ms >= node->spared_ms + limit_ms;
}

struct node *rdzv_silent_node(const struct rdzv *r)
{
    if (!is_watching(r))
        return NULL;
    struct node *node = LIST_ENTRY(r->watched.next, struct node, watched);
    return rdzv_is_silent(r, node) ? node : NULL;
}
