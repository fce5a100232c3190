/* node_wishes.c -- see node.h. What the core wishes is carried out: processes, signals, the store, the end.
 *
 * Some wishes at a time, so that a start of many workers does not keep the loop from its other duties. A worker
 * that cannot be started is an event for the core like others. */
#include "node.h"

#include "descendants.h"

#include "base/clock.h"

#include <signal.h>

enum {
    WISHES_PER_TURN = 32,
    DRAIN_MS = 1000, /* for output that somebody outside the job may still hold */
    UNREAD_MS = 2000 /* after the user's stop: for output that the reader of ours leaves unread */
};

/* The answer to WISH_SPAWN, which makes the core wish for the next one. A failure is told like any
 * other end. */
static void spawn(struct node *n, int local_rank)
{
    pid_t pid = 0;
    int error = spawner_start(&n->spawner, local_rank, &pid);
    if (error != 0) {
        node_feed(
            n, (struct agent_event){ .type = AGENT_SPAWN_FAILED, .local_rank = local_rank, .error = error });
        announce_worker_ended(&n->announce, local_rank, agent_worker(n->agent, local_rank));
        return;
    }
    exits_watch(&n->exits, pid);
    n->pids[local_rank] = pid;
    n->alone = false;
    if (n->resting) /* the others have been stopped already */
        kill(pid, SIGSTOP);
    pid = contain_shown_pid(n->contain, pid); /* from here on it is for people */
    store_link_started(n->link, node_rank(n, local_rank), local_rank, pid);
    announce_worker_started(&n->announce, local_rank, pid);
    node_feed(n, (struct agent_event){ .type = AGENT_SPAWNED, .local_rank = local_rank, .pid = pid });
}

/* Processes that the workers left behind. SIGKILL goes on until nobody is left, whoever is born
 * meanwhile. */
static void signal_rest(struct node *n, int sig)
{
    if (!n->alone && sig == SIGKILL) {
        contain_kill(n->contain);
        n->alone = descendants_kill_all(AGENT_UNKILLABLE_MS);
    } else if (!n->alone) {
        descendants_signal(sig);
    }
    if (n->alone)
        node_feed(n, (struct agent_event){ .type = AGENT_ALONE });
}

/* Before any signal goes out to the others: whoever waits in a barrier for this rank hears the
 * reason first. */
static void tell_store(struct node *n, int local_rank)
{
    const struct agent_worker *w = agent_worker(n->agent, local_rank);
    store_link_exited(n->link, node_rank(n, local_rank), w->pid, w->exit_code, w->signal);
}

static void carry_out(struct node *n, struct agent_wish wish)
{
    switch (wish.type) {
    case WISH_SPAWN:
        spawn(n, wish.local_rank);
        break;
    case WISH_SIGNAL:
        if (n->pids[wish.local_rank] != 0)
            kill(-n->pids[wish.local_rank], wish.signal);
        break;
    case WISH_SIGNAL_REST:
        signal_rest(n, wish.signal);
        break;
    case WISH_TELL_STORE:
        tell_store(n, wish.local_rank);
        break;
    case WISH_FINISH:
        n->exit_code = wish.exit_code;
        if (agent_stop_signal(n->agent) != 0)
            n->unread_deadline_ms = clock_ms() + UNREAD_MS;
        output_finish(n->output, n->exit_code == 0);
        output_drain(n->output, DRAIN_MS);
        break;
    }
}

static bool next_wish(struct node *n, struct agent_wish *wish)
{
    if (n->done * sizeof(*wish) == n->wishes.len) {
        n->done = n->wishes.len = 0;
        return false;
    }
    memcpy(wish, n->wishes.data + n->done++ * sizeof(*wish), sizeof(*wish));
    return true;
}

static void on_more(uv_idle_t *idle)
{
    node_pump(idle->data);
}

/* Between two turns the loop reads pipes, sees ends and signals. Without that, a start of 256
 * workers would be deaf for a tenth of a second, also for a worker that fails at once. */
void node_pump(struct node *n)
{
    struct agent_wish wish;
    for (int i = 0; i < WISHES_PER_TURN && !n->ended && next_wish(n, &wish); i++)
        carry_out(n, wish);
    if (n->ended)
        return;
    node_set_timer(n);
    if (n->wishes.len > 0)
        uv_idle_start(&n->more, on_more);
    else
        uv_idle_stop(&n->more);
}
