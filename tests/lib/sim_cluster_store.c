/* sim_cluster_store.c -- the store's side of sim_cluster.h: the real rendezvous, what it tells, what it hears. */
#include "sim_cluster_core.h"

#include "agent/failure.h"

#include <criterion/criterion.h>
#include <stdio.h>

static const char *const words[] = { "join", "failed", "cause", "done", "stopped", "leave", "beat" };

/* --- what it tells -------------------------------------------------------------------------- */

static int index_of(const struct cluster *c, uint64_t id)
{
    for (int i = 0; i < c->n; i++)
        if (c->node[i].id == id)
            return i;
    cr_assert_fail("a connection that nobody has");
    return -1;
}

static int code_of(const struct rdzv_cause *cause)
{
    struct failure copy = cause->failure;
    snprintf(copy.why, sizeof(copy.why), "%s", rdzv_why_word(cause->why));
    return failure_code(&copy);
}

/* Its words are read when they arrive; what they point to lives only now. */
static void tell(void *user, uint64_t id, const struct rdzv_tell *t)
{
    struct cluster *c = user;
    const int i = index_of(c, id);
    struct cluster_event e = {
        .kind = FROM_STORE, .at_ms = c->now_ms + DELAY_MS, .node = i, .round = t->round
    };
    switch (t->kind) {
    case RDZV_TELL_ROUND:
        e.round = t->world->round;
        e.event = (struct agent_event){ .type = AGENT_START, .attempt = (int)t->world->attempt };
        e.word = (int)t->node_rank;
        break;
    case RDZV_TELL_STOP:
        e.event = (struct agent_event){ .type = AGENT_TOLD_TO_STOP,
                                        .exit_code = t->cause != NULL ? code_of(t->cause) : 0,
                                        .signal = t->cause != NULL ? t->cause->failure.node_rank : -1 };
        e.word = (int)t->why;
        break;
    case RDZV_TELL_VERDICT:
        e.event = (struct agent_event){ .type = AGENT_VERDICT,
                                        .verdict = { .restart = t->restart,
                                                     .backoff_ms = t->backoff_ms,
                                                     .exit_first = t->exit.first,
                                                     .exit_max = t->exit.max,
                                                     .exit_rank0 = t->exit.rank0 } };
        break;
    case RDZV_TELL_WAITING:
        return;
    }
    cluster_schedule(c, e);
}

/* Nothing of an older round may run on a node that is in the new one. */
static bool begin(void *user, const struct rdzv_round *world)
{
    struct cluster *c = user;
    uint32_t next_rank = 0;
    for (uint32_t i = 0; i < world->nnodes; i++) {
        const struct cluster_node *node = &c->node[index_of(c, world->seats[i].node)];
        cr_assert_eq(world->seats[i].node_rank, i);
        cr_assert_eq(world->seats[i].first_rank, next_rank, "ranks are not dense");
        cr_assert_not(node->running, "a worker of an older round runs on a node of the new one");
        next_rank += world->seats[i].nproc;
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

/* --- what it hears ------------------------------------------------------------------------------------ */

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
        rdzv_settle(c->rdzv, c->now_ms);
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

/* A word arrives. */
void cluster_hear(struct cluster *c, const struct cluster_event *e)
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
        rdzv_leave(c->rdzv, node->id, agent_stop_signal(node->agent), "the user", c->now_ms);
        break;
    case W_BEAT:
        break;
    }
    rdzv_heard(c->rdzv, node->id, c->now_ms);
}

struct rdzv_env cluster_env(struct cluster *c)
{
    return (struct rdzv_env){ .user = c, .tell = tell, .begin = begin, .progress = progress, .drop = drop };
}
