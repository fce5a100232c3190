/* node_port.c -- see node_core.h. Watch the port that is held for the store of rank 0.
 *
 * The held socket is bound and does not listen, so the kernel lets any user listen there who names the port, and rank 0 may
 * need seconds to come so far. Ranks that met at a stranger's store would run code from it. So the port is looked at before
 * the workers start, and then until something listens: a listener of this user ends the watch, another one the attempt. */
#include "node/node_core.h"

#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum {
    LOOK_MS = 20,     /* a look costs 20 us */
    QUICK_MS = 60000, /* after that a rank 0 without a store must not cost more */
    LOOK_LATER_MS = 1000
};

/* Root's workers may have become another user. */
static bool is_foreign(struct node *n, const struct socket_owner *owner)
{
    return owner->uid != geteuid() && !(geteuid() == 0 && node_has_socket(n, owner->inode));
}

static void print_taken(const struct node *n, const struct socket_owner *owner, char *words, size_t size)
{
    snprintf(words, size,
             "port %d, held for the store of rank 0, is taken: uid %u listens there; the ranks must not meet "
             "at it "
             "('ss -ltnp sport = :%d' as root names the process)",
             n->plan->offered_port, owner->uid, n->plan->offered_port);
}

/* Its end is reported as the first failure, and takes those of the other ranks with it. */
static void kill_rank0(struct node *n, const struct socket_owner *owner)
{
    char words[NOTE_MAX];
    print_taken(n, owner, words, sizeof(words));
    output_note(n->output, "error: %s", words);
    evidence_port_taken(n->evidence, 0, n->plan->offered_port, owner->uid);
    kill(-n->pids[0], SIGKILL);
}

static void on_look(uv_timer_t *timer)
{
    struct node *n = timer->data;
    struct socket_owner owner;
    const enum socket_state state =
        socket_listener_find(&n->vouch.owners, n->plan->offered_port, geteuid(), &owner);
    if (agent_state(n->agent) != AGENT_RUNNING)
        return;
    const bool taken = state == SOCKET_OPEN && is_foreign(n, &owner);
    if (taken && n->pids[0] != 0) {
        kill_rank0(n, &owner);
        return;
    }
    if (state == SOCKET_OPEN && !taken)
        return;
    const bool is_early = clock_ms() - n->attempt_started_ms < QUICK_MS;
    uv_timer_start(timer, on_look, is_early ? LOOK_MS : LOOK_LATER_MS, 0);
}

ddp_status node_watch_port(struct node *n, struct ddp_err *err)
{
    struct socket_owner owner;
    char words[NOTE_MAX];
    uv_timer_stop(&n->port_timer);
    if (n->held_port < 0 || n->plan->rank0_port != n->plan->offered_port || n->plan->node_rank != 0)
        return DDP_OK;
    const enum socket_state state =
        socket_listener_find(&n->vouch.owners, n->plan->offered_port, geteuid(), &owner);
    if (state == SOCKET_UNKNOWN) {
        output_note(n->output,
                    "warning: port %d, held for the store of rank 0: cannot check which user listens "
                    "there: this kernel has no sock_diag",
                    n->plan->offered_port);
        return DDP_OK;
    }
    if (state == SOCKET_OPEN && is_foreign(n, &owner)) {
        print_taken(n, &owner, words, sizeof(words));
        return ddp_fail(err, DDP_ERR_IO, "%s", words);
    }
    uv_timer_start(&n->port_timer, on_look, LOOK_MS, 0);
    return DDP_OK;
}
