/* node_vouch.c -- see node_core.h. The store asks whose a connection is that cannot introduce itself; who of us has it
 * answers, everybody else is silent. */
#include "node/node_core.h"

#include "base/clock.h"
#include "contain/contain.h"
#include "server/port_holder.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

/* Looking for a process may take a tenth of a second, in which the node gives no sign of life; it may take a tenth of our time,
 * and half a second at once. */
enum { WHOSE_SHARE = 10, WHOSE_AT_ONCE_MS = 500 };

static bool find_holder(struct node *n, uint64_t inode, struct port_holder *holder)
{
    const uint64_t now_ms = clock_ms();
    if (n->whose_ms < now_ms)
        n->whose_ms = now_ms;
    if (n->whose_ms - now_ms > WHOSE_SHARE * WHOSE_AT_ONCE_MS)
        return false;
    const bool found = port_holder_of_socket(inode, holder);
    n->whose_ms += WHOSE_SHARE * (clock_ms() - now_ms);
    return found;
}

/* All of this machine is looked at: the store asks so only when more take part in a group than belong there. Whom we may not
 * see we say nothing of, nor of those that too many are asked with. The pid is as below; the age would be told long after. */
static void say_whose(struct node *n, int64_t conn, uint64_t inode)
{
    char words[256];
    struct port_holder holder;
    if (!find_holder(n, inode, &holder))
        return;
    holder.pid = contain_shown_pid(n->contain, holder.pid);
    holder.age_s = 0;
    store_link_tell(n->link, say_owner(conn, holder.pid, port_holder_words(&holder, words, sizeof(words))));
}

/* The pid is the one that users see, since the agent may run in a pid namespace of its own. */
static void say_worker(struct node *n, int64_t conn, const struct vouch_process *found)
{
    store_link_tell(n->link, say_vouch(conn, found->rank, contain_shown_pid(n->contain, found->pid)));
}

static void walk(struct node *n)
{
    size_t count = 0;
    struct vouch_process *workers = calloc((size_t)n->plan->nproc, sizeof(*workers));
    for (int i = 0; workers != NULL && i < n->plan->nproc; i++)
        if (n->pids[i] != 0)
            workers[count++] = (struct vouch_process){ .pid = n->pids[i], .rank = node_rank(n, i) };
    vouch_walk(&n->vouch, workers, count, clock_ms());
    free(workers);
}

bool node_has_socket(struct node *n, uint64_t inode)
{
    walk(n);
    return vouch_knows(&n->vouch, inode);
}

static void answer_all(struct node *n)
{
    struct vouch_question question;
    struct vouch_process found;
    bool is_found;
    walk(n);
    while (vouch_next(&n->vouch, &question, &is_found, &found)) {
        if (is_found)
            say_worker(n, question.conn, &found);
        else if (question.any)
            say_whose(n, question.conn, question.inode);
    }
}

static void on_walk(uv_timer_t *timer)
{
    answer_all(timer->data);
}

static void put_off(struct node *n, const struct vouch_question *question)
{
    const uint64_t now_ms = clock_ms(), walk_ms = vouch_put_off(&n->vouch, question, now_ms);
    if (walk_ms == now_ms)
        answer_all(n);
    else if (walk_ms != UINT64_MAX && !uv_is_active((uv_handle_t *)&n->vouch_timer))
        uv_timer_start(&n->vouch_timer, on_walk, walk_ms - now_ms, 0);
}

/* The client's "peer" at the store is our side of its socket, hence the order. */
void node_on_who(void *user, int64_t conn, const char *peer, const char *store, bool any)
{
    struct node *n = user;
    struct vouch_process found;
    struct socket_owner owner;
    const enum vouch_answer answer = vouch_find(&n->vouch, peer, store, &found, &owner);
    if (answer == VOUCH_FOUND)
        say_worker(n, conn, &found);
    else if (answer == VOUCH_UNKNOWN)
        put_off(n, &(struct vouch_question){ .conn = conn, .inode = owner.inode, .any = any });
    else if (answer == VOUCH_FOREIGN && any)
        say_whose(n, conn, owner.inode);
}
