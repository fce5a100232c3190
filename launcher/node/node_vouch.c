/* node_vouch.c -- see node_core.h. The store asks whose a connection is that cannot introduce itself; who of us has it
 * answers, everybody else is silent. */
#include "node/node_core.h"

#include "contain/contain.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

/* The client's "peer" at the store is our side of its socket, hence the order. The pid is the one that
 * users see, since the agent may run in a pid namespace of its own. */
void node_on_who(void *user, int64_t conn, const char *peer, const char *store)
{
    struct node *n = user;
    struct vouch_process found, *workers = calloc((size_t)n->plan->nproc, sizeof(*workers));
    size_t count = 0;
    for (int i = 0; workers != NULL && i < n->plan->nproc; i++)
        if (n->pids[i] != 0)
            workers[count++] = (struct vouch_process){ .pid = n->pids[i], .rank = node_rank(n, i) };
    if (vouch_find(&n->vouch, workers, count, peer, store, &found))
        store_link_tell(n->link, say_vouch(conn, found.rank, contain_shown_pid(n->contain, found.pid)));
    free(workers);
}
