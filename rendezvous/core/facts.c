/* facts.c -- what is known of a rank now: what the members' table holds, and what its open connections show.
 *
 * Nothing is written down when a wait begins or a byte comes; the connections are asked when somebody wants
 * to know. That is rare (a time-out, an operator), and requests are not. */
#include "core/session.h"
#include "base/text.h"

#include <inttypes.h>

enum { NAME_SHOWN = 120 }; /* bytes of a key or barrier name in a sentence */

/* A barrier counts as the one thing that is awaited. */
bool facts_awaited(const struct session *s, uint32_t n, struct slice *name)
{
    uint32_t keys = store_awaited_count(&s->waiter);
    bool in_barrier = s->seat.barrier != NULL && n == 0;
    if (in_barrier)
        *name = barrier_name(s->seat.barrier);
    else if (n < keys)
        *name = store_awaited(&s->waiter, n);
    return in_barrier || n < keys;
}

/* "key '/x' and 2 more", "barrier 'y'" */
static bool put_wait(const struct session *s, struct buf *out)
{
    struct slice name;
    uint32_t keys = store_awaited_count(&s->waiter);
    if (!facts_awaited(s, 0, &name))
        return false;
    bool ok = buf_printf(out, s->seat.barrier ? "barrier '" : "key '") && text_put(out, name, NAME_SHOWN) &&
              buf_printf(out, "'");
    if (keys > 1)
        ok = ok && buf_printf(out, " and %" PRIu32 " more", keys - 1);
    return ok && buf_append(out, "", 1);
}

/* A rank may have several connections: the youngest byte of any counts, and the first wait that is found. */
void facts_of_rank(struct job *job, uint32_t rank, struct rank_facts *facts)
{
    struct hub *hub = job->hub;
    struct member *member = members_at(&job->members, rank);
    uint64_t heard_ms = member->heard_ms;
    *facts = member_facts(&job->members, rank);
    facts->connected = !list_is_empty(&member->sessions);
    hub->words.len = 0;
    LIST_EACH(node, &member->sessions)
    {
        const struct session *s = LIST_ENTRY(node, struct session, by_rank);
        heard_ms = s->heard_ms > heard_ms ? s->heard_ms : heard_ms;
        if (s->waits_in != NULL && facts->waits_for == NULL && put_wait(s, &hub->words))
            facts->waits_for = (const char *)hub->words.data;
    }
    facts->silent_ms = hub->now_ms - heard_ms;
}
