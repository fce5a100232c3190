/* agents_case.h -- agents in any order and at any time, as a rendezvous sees them; what they are told is compared with
 * what they may be told. A violation prints what has happened last, and the seed. */
#ifndef TESTS_LIB_AGENTS_CASE_H
#define TESTS_LIB_AGENTS_CASE_H

#include "job/rendezvous.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { AGENTS = 9, LINES = 60 };

enum phase { OUT, WAITING, RUNNING, STOPPING, STOPPED, RESTING, FINISHED };

struct agent {
    enum phase phase;
    uint64_t id; /* of its connection: a new one each time */
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
    bool begun, dead_keys; /* the key space is empty for the round that is told in this step */
    uint32_t round, nnodes, told, world_size, waiting_nodes;
    uint64_t ranks; /* told in this round, a set */
    uint64_t said_ms[AGENTS];
    char line[LINES][160]; /* ring: what has happened last */
    uint32_t n_lines, n_freezes;
} s;

static inline uint32_t below(uint32_t n)
{
    s.random = s.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s.random >> 33) % n;
}

#define note(...) snprintf(s.line[s.n_lines++ % LINES], sizeof(s.line[0]), __VA_ARGS__)

static inline void print_story(void)
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

static inline struct agent *by_id(uint64_t id)
{
    for (int i = 0; i < AGENTS; i++)
        if (s.agent[i].phase != OUT && s.agent[i].id == id)
            return &s.agent[i];
    must(false, "somebody who is not there is spoken to: %" PRIu64, id);
    return NULL;
}

static inline bool is_open(const struct agent *a)
{
    return a->phase == RUNNING || a->phase == STOPPING;
}

static inline bool is_member(const struct agent *a)
{
    return is_open(a) || a->phase == STOPPED;
}

/* --- what agents are told -------------------------------------------------------------------------------- */

static inline void told_round(struct agent *a, const struct rdzv_tell *t)
{
    must(a->phase == WAITING, "told a round without having joined");
    must(s.begun && !s.dead_keys, "told a round before its key space was emptied");
    must(t->world->round == s.round && t->world->nnodes == s.nnodes, "told another round than began");
    must(t->node_rank < s.nnodes && !(s.ranks >> t->node_rank & 1), "node rank %" PRIu32, t->node_rank);
    must(a->wanted < 0 || (uint32_t)a->wanted == t->node_rank, "not the node rank it was given");
    must(t->world->restarts <= s.join.max_restarts, "more restarts than allowed");
    must(t->world->seats[t->node_rank].node == a->id, "the list has another node in its seat");
    must(t->world->seats[t->node_rank].first_rank == t->first_rank, "the list has another first rank");
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

static inline void told_stop(struct agent *a, const struct rdzv_tell *t)
{
    must(a->phase == RUNNING, "told to stop twice, or without running");
    must(t->round == a->round && t->cause != NULL, "told to stop another round, or without a cause");
    a->phase = STOPPING;
}

static inline void told_verdict(struct agent *a, const struct rdzv_tell *t)
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
        must(!is_open(&s.agent[i]) || s.agent[i].done, "the job is done, but somebody is not");
    a->phase = t->restart ? RESTING : FINISHED;
    if (t->restart)
        s.verdict_ms = s.now_ms;
}

static inline void tell(void *user, uint64_t id, const struct rdzv_tell *t)
{
    struct agent *a = by_id(id);
    (void)user;
    note("%d < %s %" PRIu32 " %s", (int)(a - s.agent),
         (const char *[]){ "round", "waiting", "stop", "verdict" }[t->kind], t->round,
         t->kind == RDZV_TELL_VERDICT ? (t->restart ? "restart" : "finish") : "");
    must(a->phase != FINISHED, "told something after the end");
    if (t->kind == RDZV_TELL_ROUND)
        told_round(a, t);
    else if (t->kind == RDZV_TELL_STOP)
        told_stop(a, t);
    else if (t->kind == RDZV_TELL_VERDICT)
        told_verdict(a, t);
    else
        must(a->phase == WAITING && t->waiting->n_hosts > 0, "told to wait, though it does not");
    if (t->kind == RDZV_TELL_WAITING) {
        must(s.said_ms[a - s.agent] == 0 || s.now_ms >= s.said_ms[a - s.agent] + 1000, "told too often");
        s.said_ms[a - s.agent] = s.now_ms;
    }
}

static inline bool begin(void *user, const struct rdzv_round *world)
{
    (void)user;
    note("round %" PRIu32 " of %" PRIu32 " nodes", world->round, world->nnodes);
    must(!s.begun, "two rounds at once");
    must(world->round == s.round + 1 && world->attempt == s.round, "rounds are not counted one by one");
    for (int i = 0; i < AGENTS; i++) {
        must(!is_member(&s.agent[i]), "a round begins while somebody is in the last one");
        must(s.agent[i].phase != RESTING || s.agent[i].round != s.round || s.now_ms >= s.verdict_ms + 10000,
             "%d has lost its place before it could come back", i);
    }
    must(world->nnodes >= s.join.nnodes_min && world->nnodes <= s.join.nnodes_max,
         "too few nodes or too many");
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < world->nnodes; i++) {
        must(world->seats[i].node_rank == i && world->seats[i].first_rank == ranks, "ranks are not dense");
        ranks += world->seats[i].nproc;
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

static inline int64_t progress(void *user)
{
    (void)user;
    return below(4) == 0 ? -1 : (int64_t)below(100);
}

static inline void waiting_nodes(void *user, uint32_t count)
{
    (void)user;
    s.waiting_nodes = count;
}

static inline void drop(void *user, uint64_t id, const char *why)
{
    struct agent *a = by_id(id);
    (void)user;
    note("%d is dropped: %s", (int)(a - s.agent), why);
    must(a->mute || a->phase == STOPPING, "one that speaks is dropped");
    a->phase = OUT;
}

static inline void log_line(void *user, const char *text)
{
    (void)user;
    note("%" PRIu64 " %s", s.now_ms, text);
}

#endif
