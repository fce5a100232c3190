/* A million random steps. Correct agents join, leave, fail, fall silent, are stopped and return, in any order and at
 * any time. After each step, the messages to every agent are compared with these rules:
 *
 *     - a round has MIN to MAX nodes and dense, unique ranks, and is sent to all of its nodes or to none
 *     - a round is sent only after its key space was emptied, and after all nodes have ended the previous round
 *     - a member gets `stop` at most once, and its verdict exactly once; only a node that has joined gets `round`
 *     - the verdict "restart" is sent only when all nodes have stopped; after the verdict "finish" nothing is sent
 *     - a survivor keeps its rank or moves down, and its place is not given to a spare
 *     - the job restarts at most as often as its budget allows
 *     - if all agents behave correctly for a while, the job runs or is over: no node waits forever
 *
 * A failure prints the seed; RDZV_SEED=n repeats that episode alone. */
#include "job/rendezvous.h"
#include "run.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGENTS = 9, LINES = 60 };

enum phase { OUT, WAITING, RUNNING, STOPPING, STOPPED, RESTING, FINISHED };

struct agent {
    enum phase phase;
    uint64_t id; /* number of the agent's connection; each new connection gets a new number */
    uint32_t round, nproc, first_rank;
    int rank, wanted;
    bool done, leaving, judged, mute;
    bool survives; /* was in the round before this one */
};

static struct {
    uint64_t seed, random, now_ms, next_id, verdict_ms;
    uint32_t step;
    struct rdzv *r;
    struct rdzv_join join;
    struct agent agent[AGENTS];
    bool begun;     /* begin() was called in this step */
    bool dead_keys; /* begin() has failed, so the round has no key space */
    uint32_t round, nnodes, told, world_size, waiting_nodes;
    uint64_t ranks; /* set of the ranks that were sent in this round */
    uint64_t last_notice_ms[AGENTS];
    char line[LINES][160]; /* the latest events, as a ring */
    uint32_t n_lines, n_freezes;
} s;

static uint32_t below(uint32_t n)
{
    s.random = s.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s.random >> 33) % n;
}

#define note(...) snprintf(s.line[s.n_lines++ % LINES], sizeof(s.line[0]), __VA_ARGS__)

static void print_story(void)
{
    uint32_t from = s.n_lines > LINES ? s.n_lines - LINES : 0;
    for (uint32_t i = from; i < s.n_lines; i++)
        fprintf(stderr, "    %s\n", s.line[i % LINES]);
    fprintf(stderr, "RDZV_SEED=%" PRIu64 " repeats it; this was step %" PRIu32 "\n", s.seed, s.step);
}

#define must(condition, ...)             \
    do {                                 \
        if (!(condition)) {              \
            print_story();               \
            cr_assert_fail(__VA_ARGS__); \
        }                                \
    } while (0)

static struct agent *by_id(uint64_t id)
{
    for (int i = 0; i < AGENTS; i++)
        if (s.agent[i].phase != OUT && s.agent[i].id == id)
            return &s.agent[i];
    must(false, "a message to a node that has left: %" PRIu64, id);
    return NULL;
}

static bool is_open(const struct agent *a)
{
    return a->phase == RUNNING || a->phase == STOPPING;
}

static bool is_member(const struct agent *a)
{
    return is_open(a) || a->phase == STOPPED;
}

/* --- messages to agents -------------------------------------------------------------------------------- */

static void told_round(struct agent *a, const struct rdzv_notice *t)
{
    must(a->phase == WAITING, "told a round without having joined");
    must(s.begun && !s.dead_keys, "told a round before its key space was emptied");
    must(t->world->round == s.round && t->world->nnodes == s.nnodes, "told another round than began");
    must(t->node_rank < s.nnodes && !(s.ranks >> t->node_rank & 1), "node rank %" PRIu32, t->node_rank);
    must(a->wanted < 0 || (uint32_t)a->wanted == t->node_rank, "not the node rank it was given");
    must(t->world->restarts <= s.join.max_restarts, "more restarts than allowed");
    must(t->world->rows[t->node_rank].node == a->id, "the list has another node in its row");
    must(t->world->rows[t->node_rank].first_rank == t->first_rank, "the list has another first rank");
    a->survives = a->round != 0 && a->round + 1 == s.round;
    if (a->survives && s.join.elastic)
        must((int)t->node_rank <= a->rank, "rank %d moves up to %" PRIu32, a->rank, t->node_rank);
    s.ranks |= 1ull << t->node_rank;
    s.told++;
    a->phase = RUNNING;
    a->round = s.round;
    a->rank = (int)t->node_rank;
    a->first_rank = t->first_rank;
    a->done = a->judged = false;
}

static void told_stop(struct agent *a, const struct rdzv_notice *t)
{
    must(a->phase == RUNNING, "told to stop twice, or without running");
    must(t->round == a->round && t->cause != NULL, "told to stop another round, or without a cause");
    a->phase = STOPPING;
}

static void told_verdict(struct agent *a, const struct rdzv_notice *t)
{
    bool all_done = t->why == RDZV_WHY_DONE;
    must(!is_open(a) || (a->done && (all_done || !t->restart)), "judged while it still runs");
    if (is_member(a)) {
        must(!a->judged && t->round == a->round, "judged twice, or for another round");
        a->judged = true;
    }
    must(!t->restart || (a->phase == STOPPED && !a->leaving), "told to restart without having stopped");
    for (int i = 0; t->restart && i < AGENTS; i++)
        must(!is_open(&s.agent[i]), "told to restart while another one still runs");
    for (int i = 0; all_done && i < AGENTS; i++)
        must(!is_open(&s.agent[i]) || s.agent[i].done, "the job is done, but a node is not");
    a->phase = t->restart ? RESTING : FINISHED;
    if (t->restart)
        s.verdict_ms = s.now_ms;
}

static void tell(void *user, uint64_t id, const struct rdzv_notice *t)
{
    struct agent *a = by_id(id);
    (void)user;
    note("%d < %s %" PRIu32 " %s", (int)(a - s.agent),
         (const char *[]){ "round", "waiting", "stop", "verdict" }[t->kind], t->round,
         t->kind == RDZV_NOTICE_VERDICT ? (t->restart ? "restart" : "finish") : "");
    must(a->phase != FINISHED, "told something after the end");
    if (t->kind == RDZV_NOTICE_ROUND)
        told_round(a, t);
    else if (t->kind == RDZV_NOTICE_STOP)
        told_stop(a, t);
    else if (t->kind == RDZV_NOTICE_VERDICT)
        told_verdict(a, t);
    else
        must(a->phase == WAITING && t->waiting->n_hosts > 0, "told to wait, though it does not");
    if (t->kind == RDZV_NOTICE_WAITING) {
        must(s.last_notice_ms[a - s.agent] == 0 || s.now_ms >= s.last_notice_ms[a - s.agent] + 1000,
             "told too often");
        s.last_notice_ms[a - s.agent] = s.now_ms;
    }
}

static bool begin(void *user, const struct rdzv_round *world)
{
    (void)user;
    note("round %" PRIu32 " of %" PRIu32 " nodes", world->round, world->nnodes);
    must(!s.begun, "two rounds at once");
    must(world->round == s.round + 1 && world->attempt == s.round, "rounds are not counted one by one");
    for (int i = 0; i < AGENTS; i++) {
        must(!is_member(&s.agent[i]), "a round begins while a node is in the last one");
        must(s.agent[i].phase != RESTING || s.agent[i].round != s.round || s.now_ms >= s.verdict_ms + 10000,
             "%d has lost its place before it could come back", i);
    }
    must(world->nnodes >= s.join.nnodes_min && world->nnodes <= s.join.nnodes_max,
         "too few nodes or too many");
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < world->nnodes; i++) {
        must(world->rows[i].node_rank == i && world->rows[i].first_rank == ranks, "ranks are not dense");
        ranks += world->rows[i].nproc;
    }
    must(ranks == world->world_size, "the world has another size");
    s.begun = true;
    s.dead_keys = below(400) == 0; /* no memory */
    s.round = world->round;
    s.nnodes = world->nnodes;
    s.world_size = world->world_size;
    s.ranks = s.told = s.waiting_nodes = 0;
    return !s.dead_keys;
}

static int64_t progress(void *user)
{
    (void)user;
    return below(4) == 0 ? -1 : (int64_t)below(100);
}

static void waiting_nodes(void *user, uint32_t count)
{
    (void)user;
    s.waiting_nodes = count;
}

static void drop(void *user, uint64_t id, const char *why)
{
    struct agent *a = by_id(id);
    (void)user;
    note("%d is dropped: %s", (int)(a - s.agent), why);
    must(a->mute || a->phase == STOPPING, "one that speaks is dropped");
    a->phase = OUT;
}

static void log_line(void *user, const char *text)
{
    (void)user;
    note("%" PRIu64 " %s", s.now_ms, text);
}

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
        must(s.told == s.nnodes, "only %" PRIu32 " of %" PRIu32 " nodes got the round", s.told, s.nnodes);
    s.begun = false;
    must(facts->members == count(RUNNING) + count(STOPPING) + count(STOPPED), "members are miscounted");
    must(facts->waiting == count(WAITING), "waiting nodes are miscounted");
    must(facts->nodes == AGENTS - count(OUT) - count(FINISHED), "nodes are miscounted");
    bool settled = rdzv_deadline(s.r) > s.now_ms;
    if (facts->state != RDZV_RUNNING || s.join.grow == RDZV_GROW_NEVER || !settled)
        return;
    uint32_t places = s.join.nnodes_max - s.nnodes, spares = count(WAITING);
    must(s.waiting_nodes == (spares < places ? spares : places), "workers got %" PRIu32, s.waiting_nodes);
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

/* --- agents ---------------------------------------------------------------------------------------------- */

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
    must(a->phase != RESTING || refused == RDZV_WELCOME, "a node that should come again is refused: %s",
         refusal.sentence);
    a->phase = refused == RDZV_WELCOME ? WAITING : OUT;
    s.last_notice_ms[a - s.agent] = 0;
    note("%d joins: %s", (int)(a - s.agent), rdzv_refused_code(refused));
    if (below(8) != 0)
        rdzv_recheck(s.r, s.now_ms);
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
    rdzv_leave(s.r, a->id, 15, "", "", s.now_ms);
    must(open || a->phase == FINISHED || a->phase == STOPPING, "one that leaves is kept waiting");
}

/* Let an agent vanish. Set its phase first, because a message to this agent is an error from now on. */
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
            rdzv_received(s.r, s.agent[i].id, s.now_ms);
}

/* Let time pass. Heartbeats come before the tick, because the server reads its sockets before it runs its timers. */
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

/* Let the server stand still for up to 21 s. After the standstill, the server checks the nodes before it reads their
 * messages, so all nodes seem to be silent. nodes.c excuses a node only twice before the next message of the node. So
 * before every second standstill, let the server read all messages. */
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
    const struct rdzv_env env = { .notify = tell,
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

/* Let every agent behave correctly for a while: it joins, stops its workers if the store has requested this, or
 * disconnects when it has finished. */
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

/* Run a job, and send it messages for a few steps after its end. Return the number of steps. */
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
