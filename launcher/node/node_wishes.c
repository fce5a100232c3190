/* node_wishes.c -- see node_core.h. What the core wishes is carried out: processes, signals, the store, the end.
 *
 * Some wishes at a time, so that a start of many workers does not keep the loop from its other duties. A worker
 * that cannot be started is an event for the core like others. */
#include "node/node_core.h"

#include "contain/descendants.h"
#include "output/disk_watch.h"

#include "base/clock.h"

#include <signal.h>
#include <sys/wait.h>

enum {
    WISHES_PER_TURN = 32,
    DRAIN_MS = 1000,      /* for output that somebody outside the job may still hold */
    STUCK_DRAIN_MS = 200, /* ... or somebody who cannot be killed: to wait for that one is useless */
    KILL_SLICE_MS = 50,   /* for leftovers, between two turns of the loop */
    UNREAD_MS = 2000      /* after the user's stop: for output that the reader of ours leaves unread */
};

/* The answer to WISH_SPAWN, which makes the core wish for the next one. A failure is told like any
 * other end. */
static void spawn(struct node *n, int local_rank)
{
    pid_t pid = 0;
    hurry_begin(&n->hurry);
    int error = spawner_start(&n->spawner, local_rank, &pid);
    if (error != 0) {
        node_feed(
            n, (struct agent_event){ .type = AGENT_SPAWN_FAILED, .local_rank = local_rank, .error = error });
        announce_worker_ended(&n->announce, local_rank, agent_worker(n->agent, local_rank));
        return;
    }
    exits_watch(&n->exits, pid);
    n->pids[local_rank] = pid;
    n->asked[local_rank] = false;
    n->alone = false;
    if (n->resting) /* the others have been stopped already */
        kill(pid, SIGSTOP);
    pid = contain_shown_pid(n->contain, pid); /* from here on it is for people */
    store_link_mention(n->link, say_started(node_rank(n, local_rank), local_rank, pid, n->plan->facts->host));
    announce_worker_started(&n->announce, local_rank, pid);
    node_feed(n, (struct agent_event){ .type = AGENT_SPAWNED, .local_rank = local_rank, .pid = pid });
}

/* Processes that the workers left behind. Killing them takes their ends, too, so it must not happen while a
 * worker's own end is still to be learnt. The core repeats a SIGKILL that did not reach all. */
static void signal_rest(struct node *n, int sig)
{
    if (!n->alone && sig == SIGKILL)
        contain_kill(n->contain);
    if (!n->alone && sig == SIGKILL && !node_has_workers(n))
        n->alone = descendants_kill_all(KILL_SLICE_MS);
    else if (!n->alone)
        descendants_signal(sig);
    if (n->alone)
        node_feed(n, (struct agent_event){ .type = AGENT_ALONE });
}

/* Everything is gone, or cannot be killed. The report waits for the last words of the workers
 * (on_output_idle); those of somebody who hangs in the kernel will not come. */
static void begin_to_finish(struct node *n, int exit_code)
{
    n->finishing = true;
    n->exit_code = exit_code;
    node_note_failed(n);
    if (exit_code != 0)
        node_keep_flights(n);
    if (agent_stop_signal(n->agent) != 0)
        n->unread_deadline_ms = clock_ms() + UNREAD_MS;
    if (agent_is_stuck(n->agent))
        n->n_stuck = stuck_find(n->stuck, n->pids, n->plan);
    for (size_t i = 0; i < n->n_stuck; i++)
        n->stuck[i].pid = contain_shown_pid(n->contain, n->stuck[i].pid);
    output_finish(n->output, n->exit_code == 0);
    const bool stuck = agent_is_stuck(n->agent) || disk_hangs(DISK_HUNG_MS, NULL);
    output_drain(n->output, stuck ? STUCK_DRAIN_MS : DRAIN_MS);
}

/* Who has ended already has not ended because of this signal; then `asked` stays false, and the agent hears
 * that. */
static void signal_worker(struct node *n, int local_rank, int sig)
{
    const pid_t pid = n->pids[local_rank];
    siginfo_t end = { 0 };
    if (pid == 0)
        return;
    if (waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0)
        n->asked[local_rank] = true;
    kill(-pid, sig);
}

/* One case for each wish of agent.h. Answers go back to the core as events, at once or from a callback later. */
static void carry_out(struct node *n, struct agent_wish wish)
{
    switch (wish.type) {
    case WISH_SPAWN:
        spawn(n, wish.local_rank);
        break;
    case WISH_SIGNAL:
        hurry_begin(&n->hurry);
        signal_worker(n, wish.local_rank, wish.signal);
        break;
    case WISH_SIGNAL_REST:
        signal_rest(n, wish.signal);
        break;
    case WISH_DRAIN:
        output_drain(n->output, DRAIN_MS); /* on_output_idle answers */
        break;
    case WISH_FINISH:
        hurry_end(&n->hurry);
        begin_to_finish(n, wish.exit_code);
        break;
    default:
        node_tell(n, wish);
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
    struct node *n = idle->data;
    if (n->reap)
        node_reap(n);
    node_pump(n);
}

static bool is_stopping(enum agent_state state)
{
    return state == AGENT_STOPPING || state == AGENT_KILLING || state == AGENT_SWEEPING;
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
    if (n->wishes.len == 0 && !is_stopping(agent_state(n->agent)))
        hurry_end(&n->hurry);
    if (n->wishes.len > 0 || n->reap)
        uv_idle_start(&n->more, on_more);
    else
        uv_idle_stop(&n->more);
}
