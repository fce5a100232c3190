/* A million random steps. Agents that behave, but in any order and at any time, come, go, fail, fall silent,
 * are stopped and come back; after each step what every agent was told is compared with what it may be told:
 *
 *     - a round is told to all its nodes or to none, with dense and unique ranks, within MIN and MAX
 *     - not before its key space was emptied, and not while a node of the round before is still open
 *     - a member is told `stop` at most once, its verdict exactly once, `round` never without having joined
 *     - a verdict "restart" only when everybody has stopped, "finish" once, and nothing after it
 *     - who survives keeps its rank or moves down, and its place is not given to a spare
 *     - no more restarts than the budget allows
 *     - and when all behave for a while, the job runs or is over: nobody waits for ever
 *
 * A failure prints the seed; RDZV_SEED=n repeats that episode alone. */
#include "agents_case.h"
#include "run.h"

#include <stdlib.h>

enum { EPISODE = 400, STEPS = 1000000, STEPS_SANITIZED = 60000 };

/* --- after each step ------------------------------------------------------------------------------------- */

static uint32_t count(enum phase phase)
{
    uint32_t n = 0;
    for (int i = 0; i < AGENTS; i++)
        n += s.agent[i].phase == phase;
    return n;
}

static void check_round(const struct rdzv_facts *facts)
{
    if (s.begun && !s.dead_keys)
        must(s.told == s.nnodes, "only %" PRIu32 " of %" PRIu32 " nodes were told the round", s.told,
             s.nnodes);
    s.begun = false;
    must(facts->members == count(RUNNING) + count(STOPPING) + count(STOPPED), "members are miscounted");
    must(facts->waiting == count(WAITING), "waiting nodes are miscounted");
    must(facts->nodes == AGENTS - count(OUT) - count(FINISHED), "nodes are miscounted");
    bool settled = rdzv_deadline(s.r) > s.now_ms;
    if (facts->state != RDZV_RUNNING || s.join.grow == RDZV_GROW_NEVER || !settled)
        return;
    uint32_t places = s.join.nnodes_max - s.nnodes, spares = count(WAITING);
    must(s.waiting_nodes == (spares < places ? spares : places), "workers were told of %" PRIu32,
         s.waiting_nodes);
}

static void check_ranks(void)
{
    uint32_t rank = s.world_size > 0 ? below(s.world_size) : 0;
    uint64_t id = rdzv_node_of_rank(s.r, rank);
    if (id == 0)
        return;
    const struct agent *a = by_id(id);
    must(is_member(a) && rank >= a->first_rank && rank < a->first_rank + a->nproc, "rank %" PRIu32, rank);
}

static void check(void)
{
    struct rdzv_facts facts;
    rdzv_facts(s.r, &facts);
    check_round(&facts);
    check_ranks();
    for (int i = 0; i < AGENTS; i++) {
        must(facts.state != RDZV_OVER || s.agent[i].phase == OUT || s.agent[i].phase == FINISHED,
             "over, but %d was not told", i);
        must(facts.state != RDZV_RUNNING || !is_member(&s.agent[i]) || s.agent[i].phase == RUNNING,
             "%d stops, but the round goes on", i);
    }
}

/* --- what agents do -------------------------------------------------------------------------------------- */

static void come(struct agent *a)
{
    char host[16];
    struct rdzv_refusal refusal;
    struct rdzv_join join = s.join;
    if (a->phase != OUT && a->phase != RESTING)
        return;
    snprintf(host, sizeof(host), "n%d", (int)(a - s.agent));
    join.host = host;
    join.instance = a->phase == RESTING ? "life" : "";
    join.node_rank = a->phase == RESTING ? a->wanted
                     : join.elastic      ? -1
                                         : (int)below(join.nnodes_max + 1) - 1;
    join.nproc = a->phase == RESTING ? a->nproc : 1 + below(4);
    if (a->phase == OUT)
        *a = (struct agent){ .id = s.next_id++, .wanted = join.node_rank, .nproc = join.nproc };
    enum rdzv_refused refused = rdzv_join(s.r, a->id, &join, s.now_ms, &refusal);
    must(a->phase != RESTING || refused == RDZV_WELCOME, "one that was told to come again is refused: %s",
         refusal.sentence);
    a->phase = refused == RDZV_WELCOME ? WAITING : OUT;
    s.said_ms[a - s.agent] = 0;
    note("%d joins: %s", (int)(a - s.agent), rdzv_refused_code(refused));
    if (below(8) != 0)
        rdzv_settle(s.r, s.now_ms);
}

static void fail(struct agent *a)
{
    struct failure failure = { .rank = (int)a->first_rank,
                               .exit_code = below(3) == 0 ? 75 : 1,
                               .words = "failed",
                               .lines = { "line" },
                               .n_lines = 1 };
    bool stale = below(10) == 0;
    if (a->phase != RUNNING && a->phase != STOPPING)
        return;
    note("%d fails%s", (int)(a - s.agent), stale ? ", says it of an older round" : "");
    enum rdzv_answer answer = rdzv_failed(s.r, a->id, a->round - stale, &failure, s.now_ms);
    must(answer == (stale ? RDZV_STALE_ROUND : RDZV_OK), "answer %d", (int)answer);
}

static void finish(struct agent *a)
{
    if (a->phase != RUNNING || a->done)
        return;
    note("%d is done", (int)(a - s.agent));
    a->done = true;
    must(rdzv_done(s.r, a->id, a->round, s.now_ms) == RDZV_OK, "done is not heard");
}

static void has_stopped(struct agent *a)
{
    if (a->phase != STOPPING)
        return;
    note("%d has stopped", (int)(a - s.agent));
    a->phase = STOPPED;
    rdzv_stopped(s.r, a->id, a->round, &(struct rdzv_stopped){ .unkillable = below(200) == 0 }, s.now_ms);
    must(!a->leaving || a->phase == FINISHED, "one that leaves is kept waiting");
}

static void leave(struct agent *a)
{
    bool open = is_open(a) && !a->done;
    if (a->phase == OUT || a->phase == FINISHED)
        return;
    note("%d leaves", (int)(a - s.agent));
    a->leaving = true;
    if (a->phase == RUNNING && !a->done)
        a->phase = STOPPING;
    rdzv_leave(s.r, a->id, 15, "", s.now_ms);
    must(open || a->phase == FINISHED || a->phase == STOPPING, "one that leaves is kept waiting");
}

/* From the model before it is said: nobody may speak to it any more. */
static void vanish(struct agent *a)
{
    if (a->phase == OUT)
        return;
    note("%d is gone", (int)(a - s.agent));
    a->phase = OUT;
    rdzv_lost(s.r, a->id, "closed", s.now_ms);
}

static void all_are_heard(void)
{
    for (int i = 0; i < AGENTS; i++)
        if (s.agent[i].phase != OUT && !s.agent[i].mute)
            rdzv_heard(s.r, s.agent[i].id, s.now_ms);
}

/* Beats come before the tick, as the shell reads before it rings. */
static void wait_ms(uint32_t ms)
{
    uint64_t until_ms = s.now_ms + ms;
    while (s.now_ms < until_ms) {
        uint64_t next = rdzv_deadline(s.r), beat_ms = s.now_ms / 500 * 500 + 500;
        next = next < beat_ms ? next : beat_ms;
        s.now_ms = next < until_ms ? (next > s.now_ms ? next : s.now_ms + 1) : until_ms;
        all_are_heard();
        rdzv_tick(s.r, s.now_ms);
        check();
        must(rdzv_deadline(s.r) > s.now_ms, "a deadline that never passes");
    }
}

/* The server sleeps: its first look comes before anybody was heard again. Twice in a row; then it reads what lies in its
 * sockets, since a silence is pardoned only so often (nodes.c). */
static void freeze(void)
{
    if (s.n_freezes++ % 2 == 0)
        all_are_heard();
    note("the server stands still");
    s.now_ms += 1001 + below(20000);
    rdzv_tick(s.r, s.now_ms);
}

static void act(struct agent *a)
{
    switch (below(32)) {
    case 0:
        fail(a);
        break;
    case 1:
        finish(a);
        break;
    case 2:
        below(3) == 0 ? leave(a) : (void)0;
        break;
    case 3:
        below(2) == 0 ? vanish(a) : (void)0;
        break;
    case 4:
        a->mute = below(6) == 0;
        break;
    case 5:
        rdzv_grow_agreed(s.r, s.now_ms);
        break;
    case 6:
        below(8) == 0 ? freeze() : wait_ms(100);
        break;
    case 7:
        wait_ms(below(3000));
        break;
    case 8:
        wait_ms(below(20) == 0 ? 40000 : 10);
        break;
    default:
        a->phase == STOPPING ? has_stopped(a) : come(a);
        break;
    }
}

/* --- episodes -------------------------------------------------------------------------------------------- */

static void set_up(uint64_t seed, struct quota *quota)
{
    const struct rdzv_env env = { .tell = tell,
                                  .begin = begin,
                                  .progress = progress,
                                  .waiting_nodes = waiting_nodes,
                                  .drop = drop,
                                  .log = log_line };
    memset(&s, 0, sizeof(s));
    s.seed = seed;
    s.random = seed * 0x9e3779b97f4a7c15u;
    s.now_ms = s.next_id = 1;
    bool elastic = below(4) != 0;
    uint32_t min = 1 + below(4), max = elastic ? min + below(5) : min;
    s.join = (struct rdzv_join){ .job = "j",
                                 .version = "1",
                                 .boot_id = "",
                                 .addr = "",
                                 .program = "",
                                 .elastic = elastic,
                                 .nnodes_min = min,
                                 .nnodes_max = max,
                                 .max_restarts = below(4) == 0 ? 0 : below(40),
                                 .max_no_progress = below(3) == 0 ? 3 : 0,
                                 .backoff_ms = below(2) * 500,
                                 .backoff_cap_ms = 4000,
                                 .last_call_ms = below(3) * 2000,
                                 .join_timeout_ms = 60000,
                                 .node_timeout_ms = below(3) == 0 ? 0 : 3000,
                                 .grow = (enum rdzv_grow)below(3),
                                 .grace_ms = 2000 };
    s.r = rdzv_new(&env, quota, "j", "life");
}

/* Everybody does what is expected of it, and enough nodes are there. */
static void behave(void)
{
    for (int turn = 0; turn < 12; turn++) {
        for (int i = 0; i < AGENTS; i++) {
            s.agent[i].mute = false;
            if (s.agent[i].phase == FINISHED)
                vanish(&s.agent[i]);
            else if (s.agent[i].phase == STOPPING)
                has_stopped(&s.agent[i]);
            else
                come(&s.agent[i]);
            check();
        }
        wait_ms(8000);
    }
}

static void end_well(void)
{
    struct rdzv_facts facts;
    behave();
    rdzv_facts(s.r, &facts);
    must(facts.state == RDZV_RUNNING || facts.state == RDZV_OVER, "all behave, yet the job is %s",
         rdzv_state_word(facts.state));
    for (int i = 0; i < AGENTS; i++) {
        finish(&s.agent[i]);
        check();
    }
    wait_ms(1000);
    rdzv_facts(s.r, &facts);
    must(facts.state == RDZV_OVER, "all are done, yet the job is %s", rdzv_state_word(facts.state));
}

/* A job that is over goes on being spoken to for a few steps. Says how many steps it took. */
static uint64_t run_episode(uint64_t seed)
{
    struct quota quota = { .max = 1 << 20 };
    struct rdzv_facts facts = { .state = RDZV_GATHERING };
    set_up(seed, &quota);
    for (s.step = 0; s.step < EPISODE && (facts.state != RDZV_OVER || below(8) != 0); s.step++) {
        act(&s.agent[below(AGENTS)]);
        check();
        rdzv_facts(s.r, &facts);
    }
    end_well();
    rdzv_free(s.r);
    must(quota.used == 0, "%" PRIu64 " bytes are not given back", quota.used);
    return s.step;
}

Test(rdzv_random, a_million_steps)
{
    const char *seed = getenv("RDZV_SEED");
    uint64_t steps = bin_is_sanitized() ? STEPS_SANITIZED : STEPS;
    if (seed != NULL)
        run_episode(strtoull(seed, NULL, 10));
    for (uint64_t i = 1, done = 0; seed == NULL && done < steps; i++)
        done += run_episode(i);
}
