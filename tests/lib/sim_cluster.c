/* sim_cluster.c -- see sim_cluster.h. Every message takes a millisecond. The next step is the earliest event or
 * deadline. */
#include "sim_cluster.h"

#include "agent/agent.h"
#include "report/exit_text.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { DELAY_MS = 1, BEAT_MS = 1000 };

enum kind { TO_AGENT, TO_STORE, FROM_STORE, BEAT, USER_STOPS, KILLED, CUT, STORE_GONE };

enum word { W_JOIN, W_FAILED, W_CAUSE, W_DONE, W_STOPPED, W_LEAVE, W_BEAT };

static void cluster_schedule(struct cluster *c, struct cluster_event e)
{
    cr_assert_lt(c->n_queue, CLUSTER_EVENTS);
    e.order = c->order++;
    c->queue[c->n_queue++] = e;
}

/* Schedule an event inside a node, such as the end of a process. */
static void cluster_soon(struct cluster *c, int node, uint64_t after_ms, struct agent_event event)
{
    cluster_schedule(c, (struct cluster_event){ .kind = TO_AGENT,
                                                .at_ms = c->now_ms + after_ms,
                                                .node = node,
                                                .life = c->node[node].life,
                                                .event = event });
}

/* Add a line to the trace. */
__attribute__((format(printf, 2, 3))) static void cluster_say(struct cluster *c, const char *fmt, ...)
{
    char text[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    buf_printf(&c->trace, "[%6llu] %s\n", (unsigned long long)c->now_ms, text);
}

/* --- the store's side: the real rendezvous, its messages in both directions --- */

static const char *const words[] = { "join", "failed", "cause", "done", "stopped", "leave", "beat" };

/* --- reports -------------------------------------------------------------------------------- */

static int index_of(const struct cluster *c, uint64_t id)
{
    for (int i = 0; i < c->n; i++)
        if (c->node[i].id == id)
            return i;
    cr_assert_fail("a connection without a node");
    return -1;
}

static int code_of(const struct rdzv_cause *cause)
{
    struct failure copy = cause->failure;
    snprintf(copy.why, sizeof(copy.why), "%s", rdzv_why_word(cause->why));
    return failure_code(&copy);
}

/* Schedule a message of the store for a node. Copy the message now, because its pointers are only valid during this
 * call. */
static void tell(void *user, uint64_t id, const struct rdzv_notice *t)
{
    struct cluster *c = user;
    const int i = index_of(c, id);
    struct cluster_event e = {
        .kind = FROM_STORE, .at_ms = c->now_ms + DELAY_MS, .node = i, .round = t->round
    };
    switch (t->kind) {
    case RDZV_NOTICE_ROUND:
        e.round = t->world->round;
        e.event = (struct agent_event){ .type = AGENT_START, .attempt = (int)t->world->attempt };
        e.word = (int)t->node_rank;
        break;
    case RDZV_NOTICE_STOP:
        e.event = (struct agent_event){ .type = AGENT_NOTIFIED,
                                        .exit_code = t->cause != NULL ? code_of(t->cause) : 0,
                                        .local_rank = t->cause != NULL ? t->cause->failure.node_rank : -1 };
        e.word = (int)t->why;
        break;
    case RDZV_NOTICE_VERDICT:
        e.event = (struct agent_event){ .type = AGENT_VERDICT,
                                        .verdict = { .restart = t->restart,
                                                     .backoff_ms = t->backoff_ms,
                                                     .exit_first = t->exit.first,
                                                     .exit_max = t->exit.max,
                                                     .exit_rank0 = t->exit.rank0 } };
        break;
    case RDZV_NOTICE_WAITING:
        return;
    }
    cluster_schedule(c, e);
}

/* Begin a round. No process of an older round may run on a node of the new round. */
static bool begin(void *user, const struct rdzv_round *world)
{
    struct cluster *c = user;
    uint32_t next_rank = 0;
    for (uint32_t i = 0; i < world->nnodes; i++) {
        const struct cluster_node *node = &c->node[index_of(c, world->rows[i].node)];
        cr_assert_eq(world->rows[i].node_rank, i);
        cr_assert_eq(world->rows[i].first_rank, next_rank, "ranks are not dense");
        cr_assert_not(node->running, "a worker of an older round runs on a node of the new one");
        next_rank += world->rows[i].nproc;
    }
    cr_assert_eq(next_rank, world->world_size);
    c->rounds = world->round;
    cluster_say(c, "-- round %u of %u nodes", world->round, world->nnodes);
    return true;
}

static int64_t progress(void *user)
{
    (void)user;
    return -1;
}

static void drop(void *user, uint64_t id, const char *why)
{
    struct cluster *c = user;
    (void)why;
    cluster_say(c, "-- n%d is dropped", index_of(c, id));
    cluster_schedule(c, (struct cluster_event){ .kind = FROM_STORE,
                                                .at_ms = c->now_ms + DELAY_MS,
                                                .node = index_of(c, id),
                                                .event = { .type = AGENT_STORE_LOST } });
}

/* --- messages to the store ---------------------------------------------------------------------------------- */

static void join(struct cluster *c, int i)
{
    char host[8], instance[64];
    struct rdzv_refusal refusal;
    struct rdzv_join j = c->join;
    snprintf(host, sizeof(host), "n%d", i);
    snprintf(instance, sizeof(instance), "%s", c->node[i].joined ? rdzv_instance(c->rdzv) : "");
    j.host = host;
    j.node_rank = j.elastic ? -1 : i;
    j.instance = instance;
    j.pid = 100 + i;
    if (rdzv_join(c->rdzv, c->node[i].id, &j, c->now_ms, &refusal) == RDZV_WELCOME) {
        c->node[i].joined = true;
        rdzv_recheck(c->rdzv, c->now_ms);
    } else {
        cluster_say(c, "n%d is refused: %s", i, rdzv_refused_code(refusal.code));
        cluster_soon(c, i, DELAY_MS, (struct agent_event){ .type = AGENT_NOT_READY });
    }
}

static struct failure failure_of(const struct cluster_node *node)
{
    const struct agent_worker *w = agent_worker(node->agent, 0);
    return (struct failure){ .rank = node->node_rank,
                             .pid = w->pid,
                             .exit_code = w->exit_code,
                             .signal = w->signal,
                             .words = "it failed" };
}

static void cluster_hear(struct cluster *c, const struct cluster_event *e)
{
    struct cluster_node *node = &c->node[e->node];
    const struct failure failure = failure_of(node);
    const struct rdzv_stopped how = { .max_code = agent_max_code(node->agent),
                                      .has_rank0 = node->node_rank == 0 && agent_rank0_code(node->agent) >= 0,
                                      .rank0_code = agent_rank0_code(node->agent) };
    if (node->cut || node->dead || c->store_lost)
        return;
    if (e->word != W_BEAT)
        cluster_say(c, "n%d > %s", e->node, words[e->word]);
    switch ((enum word)e->word) {
    case W_JOIN:
        join(c, e->node);
        break;
    case W_FAILED:
        rdzv_failed(c->rdzv, node->id, e->round, &failure, c->now_ms);
        break;
    case W_CAUSE:
        rdzv_explain(c->rdzv, node->id, e->round, &failure, c->now_ms);
        break;
    case W_DONE:
        rdzv_done(c->rdzv, node->id, e->round, c->now_ms);
        break;
    case W_STOPPED:
        rdzv_stopped(c->rdzv, node->id, e->round, &how, c->now_ms);
        break;
    case W_LEAVE:
        rdzv_leave(c->rdzv, node->id, agent_stop_signal(node->agent), "the user", "", c->now_ms);
        break;
    case W_BEAT:
        break;
    }
    rdzv_received(c->rdzv, node->id, c->now_ms);
}

static struct rdzv_env cluster_env(struct cluster *c)
{
    return (struct rdzv_env){ .user = c, .notify = tell, .begin = begin, .progress = progress, .drop = drop };
}

/* --- the clock, the nodes, and their faults --- */

static void befall(struct cluster *c, enum kind kind, int node, uint64_t at_ms)
{
    cluster_schedule(c, (struct cluster_event){ .kind = kind, .at_ms = at_ms, .node = node });
}

void cluster_user_stops(struct cluster *c, int node, uint64_t at_ms)
{
    befall(c, USER_STOPS, node, at_ms);
}

void cluster_kill(struct cluster *c, int node, uint64_t at_ms)
{
    befall(c, KILLED, node, at_ms);
}

void cluster_cut(struct cluster *c, int node, uint64_t at_ms)
{
    befall(c, CUT, node, at_ms);
}

void cluster_lose_store(struct cluster *c, uint64_t at_ms)
{
    befall(c, STORE_GONE, 0, at_ms);
}

static void to_store(struct cluster *c, int i, enum word word)
{
    cluster_schedule(c, (struct cluster_event){ .kind = TO_STORE,
                                                .at_ms = c->now_ms + DELAY_MS,
                                                .node = i,
                                                .round = c->node[i].round,
                                                .word = word });
}

static void spawn(struct cluster *c, int i)
{
    struct cluster_node *node = &c->node[i];
    const int attempt = agent_attempt(node->agent);
    const struct cluster_worker *w =
        &node->worker[attempt < CLUSTER_ATTEMPTS ? attempt : CLUSTER_ATTEMPTS - 1];
    cr_assert_gt(node->round, 0, "a worker is started before any round");
    node->running = true;
    node->worker_round = node->round;
    node->life++;
    cluster_soon(c, i, 0, (struct agent_event){ .type = AGENT_SPAWNED, .pid = 1000 + i });
    if (w->lives_ms != UINT64_MAX)
        cluster_soon(
            c, i, w->lives_ms > 0 ? w->lives_ms : 1000,
            (struct agent_event){ .type = AGENT_EXITED, .exit_code = w->exit_code, .unasked = true });
}

static void signal_worker(struct cluster *c, int i, int sig)
{
    const struct cluster_node *node = &c->node[i];
    const int attempt = agent_attempt(node->agent);
    const struct cluster_worker *w =
        &node->worker[attempt < CLUSTER_ATTEMPTS ? attempt : CLUSTER_ATTEMPTS - 1];
    if (sig != SIGCONT)
        cluster_soon(c, i, sig == SIGKILL ? 0 : w->slow_ms,
                     (struct agent_event){ .type = AGENT_EXITED, .signal = sig });
}

static void finish(struct cluster *c, int i, int exit_code)
{
    struct cluster_node *node = &c->node[i];
    cr_assert_not(node->running, "n%d ends with a worker alive", i);
    node->done = true;
    node->exit_code = exit_code;
    node->ended_ms = c->now_ms;
    cluster_say(c, "n%d exits with %d", i, exit_code);
    if (!node->cut && !c->store_lost) /* when the agent ends, its connection closes */
        rdzv_lost(c->rdzv, node->id, "has ended", c->now_ms);
}

static void carry_out(struct cluster *c, int i, const struct agent_effect *effect)
{
    switch (effect->type) {
    case EFFECT_SPAWN:
        spawn(c, i);
        break;
    case EFFECT_SIGNAL:
        signal_worker(c, i, effect->signal);
        break;
    case EFFECT_SIGNAL_REST:
        if (!c->node[i].running)
            cluster_soon(c, i, 0, (struct agent_event){ .type = AGENT_ALONE });
        break;
    case EFFECT_DRAIN:
        cluster_soon(c, i, 0, (struct agent_event){ .type = AGENT_DRAINED });
        break;
    case EFFECT_REPORT_FAILED:
        to_store(c, i, W_FAILED);
        break;
    case EFFECT_REPORT_CAUSE:
        to_store(c, i, W_CAUSE);
        break;
    case EFFECT_REPORT_DONE:
        to_store(c, i, W_DONE);
        break;
    case EFFECT_REPORT_STOPPED:
        to_store(c, i, W_STOPPED);
        break;
    case EFFECT_LEAVE:
        to_store(c, i, W_LEAVE);
        break;
    case EFFECT_JOIN:
        to_store(c, i, W_JOIN);
        break;
    case EFFECT_FINISH:
        finish(c, i, effect->exit_code);
        break;
    case EFFECT_SAMPLE:
    case EFFECT_REPORT_EXITED:
    case EFFECT_PRINT_DYING:
    case EFFECT_PRINT_WAITING:
    case EFFECT_PRINT_RESTART:
        break;
    }
}

static void feed(struct cluster *c, int i, struct agent_event event)
{
    size_t n;
    struct cluster_node *node = &c->node[i];
    if (node->dead || node->done)
        return;
    event.now_ms = c->now_ms;
    const struct agent_effect *effects = agent_step(node->agent, &event, &n);
    for (size_t k = 0; k < n; k++)
        carry_out(c, i, &effects[k]);
}

/* --- the clock ------------------------------------------------------------------------------------------ */

/* Deliver a message of the store, as store_events.c does. */
static void arrive(struct cluster *c, const struct cluster_event *e)
{
    struct cluster_node *node = &c->node[e->node];
    if (node->cut || node->dead || node->done || (c->store_lost && e->event.type != AGENT_STORE_LOST))
        return;
    if (e->event.type == AGENT_START) {
        node->round = e->round;
        node->node_rank = e->word;
        cluster_say(c, "n%d < round %u, node rank %d", e->node, e->round, e->word);
    } else if (e->event.type == AGENT_NOTIFIED) {
        cluster_say(c, "n%d < stop: %s", e->node, rdzv_why_word((enum rdzv_why)e->word));
        if (e->event.local_rank == node->node_rank) { /* the store answers this node's report of a failure */
            feed(c, e->node, (struct agent_event){ .type = AGENT_ACKNOWLEDGED });
            return;
        }
    } else if (e->event.type == AGENT_VERDICT) {
        node->judged = !e->event.verdict.restart;
        cluster_say(c, "n%d < %s", e->node, node->judged ? "finish" : "restart");
    }
    feed(c, e->node, e->event);
}

/* Kill a launcher. The kernel or the guardian kills the launcher's workers. */
static void die(struct cluster *c, int i)
{
    struct cluster_node *node = &c->node[i];
    if (node->done || node->dead)
        return;
    node->dead = true;
    node->running = false;
    cluster_say(c, "n%d is killed", i);
    if (!node->cut && !c->store_lost)
        rdzv_lost(c->rdzv, node->id, "its connection is gone", c->now_ms);
}

/* Cut a host off the network. The host itself detects nothing, but its agent gets no answer to its heartbeats. */
static void cut(struct cluster *c, int i)
{
    struct cluster_node *node = &c->node[i];
    if (node->done || node->dead || node->cut)
        return;
    node->cut = true;
    cluster_say(c, "n%d is cut off", i);
    cluster_soon(c, i, 3 * BEAT_MS, (struct agent_event){ .type = AGENT_STORE_LOST });
}

static void lose_store(struct cluster *c)
{
    c->store_lost = true;
    cluster_say(c, "store gone");
    for (int i = 0; i < c->n; i++)
        cluster_soon(c, i, DELAY_MS, (struct agent_event){ .type = AGENT_STORE_LOST });
}

static void own_event(struct cluster *c, const struct cluster_event *e)
{
    struct cluster_node *node = &c->node[e->node];
    if (e->event.type == AGENT_EXITED) {
        if (!node->running || e->life != node->life)
            return;
        node->running = false;
    }
    feed(c, e->node, e->event);
}

static void beat(struct cluster *c, int i)
{
    if (c->node[i].done || c->node[i].dead || c->store_lost)
        return;
    to_store(c, i, W_BEAT);
    cluster_schedule(c, (struct cluster_event){ .kind = BEAT, .at_ms = c->now_ms + BEAT_MS, .node = i });
}

static void happen(struct cluster *c, const struct cluster_event *e)
{
    switch ((enum kind)e->kind) {
    case TO_AGENT:
        own_event(c, e);
        break;
    case TO_STORE:
        cluster_hear(c, e);
        break;
    case FROM_STORE:
        arrive(c, e);
        break;
    case BEAT:
        beat(c, e->node);
        break;
    case USER_STOPS:
        if (!c->node[e->node].done && !c->node[e->node].dead)
            cluster_say(c, "the user stops n%d", e->node);
        feed(c, e->node, (struct agent_event){ .type = AGENT_STOP, .signal = SIGINT });
        break;
    case KILLED:
        die(c, e->node);
        break;
    case CUT:
        cut(c, e->node);
        break;
    case STORE_GONE:
        lose_store(c);
        break;
    }
}

/* Return the earliest scheduled event, or NULL. */
static struct cluster_event *earliest(struct cluster *c)
{
    struct cluster_event *best = NULL;
    for (size_t i = 0; i < c->n_queue; i++) {
        struct cluster_event *e = &c->queue[i];
        if (best == NULL || e->at_ms < best->at_ms || (e->at_ms == best->at_ms && e->order < best->order))
            best = e;
    }
    return best;
}

/* Process the earliest deadline of the agents and the store, if it is before `at_ms`. Otherwise return false. */
static bool meet_deadline(struct cluster *c, uint64_t at_ms)
{
    int who = -1;
    uint64_t due = c->store_lost ? UINT64_MAX : rdzv_deadline(c->rdzv);
    for (int i = 0; i < c->n; i++) {
        const struct cluster_node *node = &c->node[i];
        if (!node->dead && !node->done && agent_deadline(node->agent) < due) {
            due = agent_deadline(node->agent);
            who = i;
        }
    }
    if (due >= at_ms)
        return false;
    c->now_ms = due > c->now_ms ? due : c->now_ms;
    if (who >= 0)
        feed(c, who, (struct agent_event){ .type = AGENT_TICK });
    else
        rdzv_tick(c->rdzv, c->now_ms);
    return true;
}

static bool all_over(const struct cluster *c)
{
    for (int i = 0; i < c->n; i++)
        if (!c->node[i].done && !c->node[i].dead)
            return false;
    return true;
}

void cluster_run(struct cluster *c)
{
    while (!all_over(c)) {
        struct cluster_event *next = earliest(c);
        cr_assert_lt(++c->steps, 20000, "it never ends:\n%.*s", (int)c->trace.len,
                     (const char *)c->trace.data);
        if (meet_deadline(c, next != NULL ? next->at_ms : UINT64_MAX))
            continue;
        cr_assert_not_null(next, "nothing will ever happen again");
        const struct cluster_event e = *next;
        *next = c->queue[--c->n_queue];
        c->now_ms = e.at_ms;
        happen(c, &e);
    }
}

void cluster_init(struct cluster *c, int n, uint32_t max_restarts)
{
    const struct agent_options options = { .nproc = 1,
                                           .grace_ms = 5000,
                                           .settle_ms = 4000,
                                           .wait_peers_ms = 300000,
                                           .max_restarts = (int)max_restarts };
    const struct rdzv_env env = cluster_env(c);
    memset(c, 0, sizeof(*c));
    c->n = n;
    c->quota = (struct quota){ .max = 1 << 24 };
    c->rdzv = rdzv_new(&env, &c->quota, "demo", "life1");
    cr_assert_not_null(c->rdzv);
    c->join = (struct rdzv_join){ .job = "demo",
                                  .version = "1",
                                  .boot_id = "",
                                  .addr = "",
                                  .program = "",
                                  .nnodes_min = (uint32_t)n,
                                  .nnodes_max = (uint32_t)n,
                                  .nproc = 1,
                                  .max_restarts = max_restarts,
                                  .backoff_ms = 1000,
                                  .backoff_cap_ms = 4000,
                                  .last_call_ms = 2000,
                                  .join_timeout_ms = 60000,
                                  .node_timeout_ms = 3 * BEAT_MS,
                                  .grace_ms = 5000 };
    for (int i = 0; i < n; i++) {
        c->node[i].id = (uint64_t)i + 1;
        c->node[i].agent = agent_new(&options);
        cr_assert_not_null(c->node[i].agent);
        cluster_schedule(
            c, (struct cluster_event){ .kind = TO_STORE, .at_ms = (uint64_t)i, .node = i, .word = W_JOIN });
        cluster_schedule(c,
                         (struct cluster_event){ .kind = BEAT, .at_ms = BEAT_MS + (uint64_t)i, .node = i });
    }
}

void cluster_free(struct cluster *c)
{
    rdzv_free(c->rdzv);
    for (int i = 0; i < c->n; i++)
        agent_free(c->node[i].agent);
    buf_free(&c->trace);
}

void cluster_expect(struct cluster *c, const char *trace)
{
    cr_assert(buf_append(&c->trace, "", 1));
    c->trace.len--;
    cr_assert_str_eq((const char *)c->trace.data, trace, "the trace is:\n%s", (const char *)c->trace.data);
}
