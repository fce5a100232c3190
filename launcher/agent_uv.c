/* agent_uv.c -- see agent_uv.h.
 *
 * Happy path: store and link -> on_ready -> AGENT_START -> WISH_SPAWN ... -> SIGCHLD ->
 * AGENT_EXITED ... -> AGENT_ALONE -> WISH_FINISH -> the output is drained -> report -> exit code.
 *
 * A callback turns what happened into an event and calls feed(); feed() asks the core and queues
 * its wishes; pump() carries them out, some at a time, so that a start of many workers does not
 * keep the loop from its other duties.
 *
 * It can go wrong when: the store cannot listen or does not answer in time (125, nothing was
 * started); a worker cannot be started (an event for the core like others); the guardian is killed
 * (every descendant is killed, at once). */
#include "agent_uv.h"

#include "agent.h"
#include "announce.h"
#include "descendants.h"
#include "exit_codes.h"
#include "exits.h"
#include "final_report.h"
#include "guardian.h"
#include "logdir.h"
#include "output.h"
#include "spawner.h"
#include "store_host.h"
#include "store_link.h"

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

enum {
    WISHES_PER_TURN = 32,
    DRAIN_MS = 1000,         /* for output that somebody outside the job may still hold */
    STORE_ANSWER_MS = 60000, /* without --timeout */
    UNREAD_MS = 2000,        /* after the user's stop: for output that the reader of ours leaves unread */
    SIGNALS = 7
};

/* One node's life. The handles are members and closed together by finish(); there is no other owner
 * of any of them. */
struct node {
    struct plan *plan;
    uint64_t started_ms;
    struct agent *agent;
    struct output *output;
    struct announce announce;
    struct spawner spawner;
    struct store_server *store;
    struct store_link *link;
    char port_note[NOTE_MAX];

    uv_loop_t loop;
    uv_timer_t timer; /* the core's deadline, or the store's */
    uv_idle_t more;   /* runs while wishes are left */
    uv_poll_t lifeline;
    uv_signal_t signals[SIGNALS];
    bool ended; /* handles are closing */

    struct buf wishes; /* array of struct agent_wish, carried out up to `done` */
    size_t done;
    bool pumping;

    struct exits exits;
    pid_t *pids; /* by local rank; 0 = not running. Ours to signal until we have waited for it. */
    bool alone;  /* no child is left */
    uint64_t store_deadline_ms;
    uint64_t unread_deadline_ms; /* the user wants the end, whoever does not read our output */
    int exit_code;
};

static void pump(struct node *n);
static void finish(struct node *n, int exit_code);

/* --- events --------------------------------------------------------------------------------------------- */

/* Ask the core. Its wishes are copied behind those that are still waiting, because they are valid
 * until the next step only, and carrying one out may cause the next event. */
static void feed(struct node *n, struct agent_event event)
{
    size_t count;
    event.now_ms = clock_ms();
    const struct agent_wish *wishes = agent_step(n->agent, &event, &count);
    if (!buf_append(&n->wishes, wishes, count * sizeof(*wishes)))
        abort(); /* a launcher that cannot remember what to do: the guardian cleans up */
}

/* Only output is left, somebody does not read it, and the user has told us to stop. */
static void leave_output(struct node *n)
{
    log_warn("stopped before all output was written");
    finish(n, n->exit_code);
}

static void on_timer(uv_timer_t *timer);

/* Wake up at the core's deadline, or when the store has been silent for too long. */
static void set_timer(struct node *n)
{
    uint64_t at = agent_deadline(n->agent), now = clock_ms();
    if (n->store_deadline_ms < at)
        at = n->store_deadline_ms;
    if (n->unread_deadline_ms < at)
        at = n->unread_deadline_ms;
    if (at == UINT64_MAX || n->ended)
        uv_timer_stop(&n->timer);
    else
        uv_timer_start(&n->timer, on_timer, at > now ? at - now : 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    if (clock_ms() >= n->store_deadline_ms) {
        log_error("the store on port %d did not answer in time (--timeout)", n->plan->master_port);
        finish(n, EXIT_CODE_DDPRUN);
        return;
    }
    if (clock_ms() >= n->unread_deadline_ms) {
        leave_output(n);
        return;
    }
    feed(n, (struct agent_event){ .type = AGENT_TICK });
    pump(n);
}

static int rank_of(const struct node *n, int local_rank)
{
    return n->plan->workers[local_rank].rank;
}

static int local_rank_of(const struct node *n, pid_t pid)
{
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->pids[i] == pid)
            return i;
    return -1;
}

/* A child was waited for: a worker, or an orphan that was adopted. */
static void child_ended(struct node *n, pid_t pid, int status)
{
    int local_rank = local_rank_of(n, pid);
    if (local_rank < 0)
        return;
    n->pids[local_rank] = 0;
    feed(n, (struct agent_event){ .type = AGENT_EXITED,
                                  .local_rank = local_rank,
                                  .pid = pid,
                                  .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                  .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0 });
    announce_worker_ended(&n->announce, local_rank, agent_worker(n->agent, local_rank));
}

/* Take every child that has ended. SIGCHLD says only that there is at least one. Orphans that we
 * have adopted are taken like workers, else they would stay as zombies; libuv's own process handles
 * would leave them. */
static void reap(struct node *n)
{
    int status;
    pid_t pid;
    while ((pid = exits_next(&n->exits)) > 0)
        if (waitpid(pid, &status, WNOHANG) == pid)
            child_ended(n, pid, status);
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) /* adopted orphans, and whom nobody watched */
        child_ended(n, pid, status);
    n->alone = pid < 0 && errno == ECHILD;
    if (n->alone)
        feed(n, (struct agent_event){ .type = AGENT_ALONE });
}

/* The first request is graceful, the second means now: the core counts them. */
static void stop_asked(struct node *n, int sig)
{
    if (agent_state(n->agent) == AGENT_DONE) {
        leave_output(n);
        return;
    }
    announce_stop(&n->announce, sig, agent_stop_signal(n->agent) == 0);
    feed(n, (struct agent_event){ .type = AGENT_STOP, .signal = sig });
}

/* Ctrl-Z reaches the guardian, which stops itself after telling us. We go on: the store and the
 * output live here. */
static void on_signal(uv_signal_t *handle, int sig)
{
    struct node *n = handle->data;
    if (sig == SIGCHLD)
        reap(n);
    else if (sig == SIGTSTP) /* not SIGTSTP itself: a worker may ignore that, and would go on alone */
        descendants_signal(SIGSTOP);
    else if (sig == SIGCONT)
        descendants_signal(SIGCONT);
    else
        stop_asked(n, sig);
    pump(n);
}

/* The guardian is dead, killed most likely. There is nobody to report to; what matters is that
 * nothing stays behind. */
static void on_lifeline(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct node *n = poll->data;
    finish(n, guardian_is_gone());
}

/* The store knows the job: its keys are those of this attempt. Now, and not earlier, workers may
 * come. */
static void on_ready(void *user)
{
    struct node *n = user;
    n->store_deadline_ms = UINT64_MAX;
    announce_job(&n->announce, n->port_note);
    feed(n, (struct agent_event){ .type = AGENT_START });
    pump(n);
}

static void on_lost(void *user, const char *why)
{
    struct node *n = user;
    if (n->store_deadline_ms ==
        UINT64_MAX) { /* the workers run; they will see for themselves what they need */
        output_note(n->output, "warning: lost the connection to the store: %s", why);
        return;
    }
    log_error("cannot use the store on port %d: %s", n->plan->master_port, why);
    finish(n, EXIT_CODE_DDPRUN);
}

/* --- wishes --------------------------------------------------------------------------------------------- */

/* The answer to WISH_SPAWN, which makes the core wish for the next one. A failure is told like any
 * other end. */
static void spawn(struct node *n, int local_rank)
{
    pid_t pid = 0;
    int error = spawner_start(&n->spawner, local_rank, &pid);
    if (error != 0) {
        feed(n, (struct agent_event){ .type = AGENT_SPAWN_FAILED, .local_rank = local_rank, .error = error });
        announce_worker_ended(&n->announce, local_rank, agent_worker(n->agent, local_rank));
        return;
    }
    exits_watch(&n->exits, pid);
    n->pids[local_rank] = pid;
    n->alone = false;
    store_link_started(n->link, rank_of(n, local_rank), local_rank, pid);
    announce_worker_started(&n->announce, local_rank, pid);
    feed(n, (struct agent_event){ .type = AGENT_SPAWNED, .local_rank = local_rank, .pid = pid });
}

/* Processes that the workers left behind. SIGKILL goes on until nobody is left, whoever is born
 * meanwhile. */
static void signal_rest(struct node *n, int sig)
{
    if (!n->alone && sig == SIGKILL)
        n->alone = descendants_kill_all(AGENT_UNKILLABLE_MS);
    else if (!n->alone)
        descendants_signal(sig);
    if (n->alone)
        feed(n, (struct agent_event){ .type = AGENT_ALONE });
}

/* Before any signal goes out to the others: whoever waits in a barrier for this rank hears the
 * reason first. */
static void tell_store(struct node *n, int local_rank)
{
    const struct agent_worker *w = agent_worker(n->agent, local_rank);
    store_link_exited(n->link, rank_of(n, local_rank), w->pid, w->exit_code, w->signal);
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
    pump(idle->data);
}

/* Between two turns the loop reads pipes, sees ends and signals. Without that, a start of 256
 * workers would be deaf for a tenth of a second, also for a worker that fails at once. */
static void pump(struct node *n)
{
    struct agent_wish wish;
    for (int i = 0; i < WISHES_PER_TURN && !n->ended && next_wish(n, &wish); i++)
        carry_out(n, wish);
    if (n->ended)
        return;
    set_timer(n);
    if (n->wishes.len > 0)
        uv_idle_start(&n->more, on_more);
    else
        uv_idle_stop(&n->more);
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Only a life that has come to its end is reported; what failed before the first worker has said so
 * already. */
static void report(struct node *n)
{
    const char *path = env_find(n->plan->facts->environ_block, "PATH");
    final_report(&(struct final_facts){ .plan = n->plan,
                                        .agent = n->agent,
                                        .output = n->output,
                                        .started_ms = n->started_ms,
                                        .program = n->spawner.failed,
                                        .path = path });
}

/* A closed handle gives its signal the default action back, and one more Ctrl-C would cut the report in two. */
static void block_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
}

/* Close every handle; the loop then ends by itself. */
static void finish(struct node *n, int exit_code)
{
    if (n->ended)
        return;
    n->ended = true;
    n->exit_code = exit_code;
    block_signals();
    uv_close((uv_handle_t *)&n->timer, NULL);
    uv_close((uv_handle_t *)&n->more, NULL);
    uv_close((uv_handle_t *)&n->lifeline, NULL);
    for (int i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&n->signals[i], NULL);
    store_link_close(n->link);
    if (n->agent != NULL && agent_state(n->agent) == AGENT_DONE)
        report(n);
    output_close(n->output);
}

static void on_output_idle(void *user)
{
    struct node *n = user;
    finish(n, n->exit_code);
}

/* --- the beginning -------------------------------------------------------------------------------------- */

/* Signals that the guardian forwards, and our children's. What the user wants ignored stays so. */
static void watch_signals(struct node *n)
{
    static const int watched[SIGNALS] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT };
    sigset_t none;
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction now;
        uv_signal_init(&n->loop, &n->signals[i]);
        n->signals[i].data = n;
        if (sigaction(watched[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            uv_signal_start(&n->signals[i], on_signal, watched[i]);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void init_handles(struct node *n, int lifeline)
{
    uv_timer_init(&n->loop, &n->timer);
    uv_idle_init(&n->loop, &n->more);
    uv_poll_init(&n->loop, &n->lifeline, lifeline);
    n->timer.data = n->more.data = n->lifeline.data = n;
    uv_poll_start(&n->lifeline, UV_READABLE | UV_DISCONNECT, on_lifeline);
    watch_signals(n);
}

/* The agent is a client of its own store, over TCP like everybody: with the store on another host
 * nothing changes here. */
static ddp_status connect_store(struct node *n, struct ddp_err *err)
{
    struct endpoint store;
    ddp_status status = endpoint_parse(store_server_address(n->store), 0, &store, err);
    if (status != DDP_OK)
        return status;
    const struct store_link_options options = { .loop = &n->loop,
                                                .address = store.host,
                                                .port = store.port,
                                                .job = n->plan->job,
                                                .host = n->plan->facts->host,
                                                .world_size = n->plan->world_size,
                                                .ready = on_ready,
                                                .lost = on_lost,
                                                .user = n };
    const uint64_t limit_ms = n->plan->cli->timeout_ms;
    n->store_deadline_ms = clock_ms() + (limit_ms > 0 ? limit_ms : STORE_ANSWER_MS);
    return store_link_open(&options, &n->link, err);
}

/* In an order in which nothing has to be taken back: directories and files first, then the port,
 * then the connection. What was opened is closed by finish(), also when a later step fails. */
static ddp_status open_node(struct node *n, struct ddp_err *err)
{
    const struct agent_options options = { .nproc = n->plan->nproc, .grace_ms = n->plan->cli->grace_ms };
    const struct output_options output = {
        .loop = &n->loop, .plan = n->plan, .started_ms = n->started_ms, .idle = on_output_idle, .user = n
    };
    n->pids = calloc((size_t)n->plan->nproc, sizeof(*n->pids));
    n->agent = agent_new(&options);
    if (n->pids == NULL || n->agent == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d workers", n->plan->nproc);
    ddp_status status = spawner_init(&n->spawner, n->plan, err);
    if (status == DDP_OK)
        status = logdir_make(n->plan, err);
    if (status == DDP_OK)
        status = output_new(&output, &n->output, err);
    n->announce = (struct announce){ .plan = n->plan, .output = n->output, .started_ms = n->started_ms };
    n->spawner.output = n->output;
    exits_open(&n->exits);
    if (status == DDP_OK)
        status = store_host_start(n->plan, &n->store, n->port_note, err);
    return status == DDP_OK ? connect_store(n, err) : status;
}

static void close_node(struct node *n)
{
    uv_loop_close(&n->loop);
    store_server_stop(n->store);
    agent_free(n->agent);
    buf_free(&n->wishes);
    free(n->pids);
    spawner_close(&n->spawner);
    exits_close(&n->exits);
}

int agent_run(void *plan, int lifeline)
{
    struct ddp_err err;
    struct node n = { .plan = plan,
                      .started_ms = clock_ms(),
                      .exits.epoll = -1,
                      .alone = true,
                      .store_deadline_ms = UINT64_MAX,
                      .unread_deadline_ms = UINT64_MAX };
    if (uv_loop_init(&n.loop) != 0) {
        log_error("cannot make an event loop: out of descriptors or memory");
        return EXIT_CODE_DDPRUN;
    }
    init_handles(&n, lifeline);
    if (open_node(&n, &err) != DDP_OK) {
        log_error("%s", err.msg);
        finish(&n, EXIT_CODE_DDPRUN);
    }
    uv_run(&n.loop, UV_RUN_DEFAULT);
    close_node(&n);
    return n.exit_code;
}
