/* Tests of when a job is checked: the table SCHEDULE of schedule.h, row by row. A simulated clock shows the exact
 * time of each check, because a late check delays a report. */
#include "hub/monitor.h"

#include "hub/session.h"
#include "job/rendezvous.h"
#include "sim_hub.h"
#include "ddp/context.h"
#include "hub/schedule.h"

#include <criterion/criterion.h>

enum { T = 18000, NODE = SIM_AGENT };

static struct sim sim;
static struct job *job;

/* Let one node join a job of `nnodes` nodes. A job of one node then runs, and a larger job waits. */
static void set_up(int nnodes)
{
    sim_init(&sim, NULL);
    if (nnodes == 1) {
        sim_node(&sim, 2);
    } else {
        sim_client(&sim, NODE);
        sim_identify(&sim, NODE, "{\"role\":\"agent\"}", NULL);
        sim_say(
            &sim, NODE,
            "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
            "\",\"host\":\"n0\",\"boot_id\":\"b\",\"pid\":7,"
            "\"mode\":\"static\",\"nnodes_min\":2,\"nnodes_max\":2,\"node_rank\":0,\"nproc\":1,"
            "\"addr\":\"10.0.0.1\",\"join_timeout_ms\":60000,\"node_timeout_ms\":3000,\"grace_ms\":1000}");
    }
    job = job_only(sim.hub, &(struct session){ .id = 0 });
    cr_assert_not_null(job->rdzv);
}

static void tear_down(void)
{
    sim_free(&sim);
}

static void at(uint64_t now_ms)
{
    sim.hub->now_ms = now_ms;
}

/* --- a row of SCHEDULE: its situation begins, its check is due, and the check makes a report ---------------- */

static void miss_nodes(void)
{
    at(0);
    (void)schedule_due(job); /* starts the wait for the missing nodes; the times of this wait count from the
                              * join of the node at 0 ms */
}

static void lose_node(void)
{
    at(T - 2000);
    (void)schedule_due(job); /* clears the check for missing nodes, which is due now */
    at(T);
    schedule_hurry(job);
}

static void wait_for_torch(void)
{
    schedule_torch(job, false);
}

static void surplus_torch(void)
{
    schedule_torch(job, true);
}

static void end_process(void)
{
    schedule_torch(job, false);
    schedule_torch_exit(job);
}

static void begin_round(void)
{
    schedule_round(job);
}

static void come_late(void)
{
    schedule_spare(job);
}

static void meet_trouble(void)
{
    schedule_trouble(job);
}

static void stand_still(void)
{
    schedule_call(job);
}

static void stop_rank(void)
{
    schedule_stopped(job);
}

static void torch_reported(void)
{
    schedule_torch_seen(job, 12000, true);
}

static void still_reported(void)
{
    schedule_still_seen(job, 12000, true);
}

static void nothing_to_say(void)
{
}

#define FLAG(field) offsetof(struct schedule_due, field)
static const struct {
    int nnodes;
    void (*begins)(void);
    size_t flag;
    void (*told)(void);
} rows[SITUATIONS] = {
    [SITUATION_NODES_MISSING] = { 2, miss_nodes, FLAG(nodes), nothing_to_say },
    [SITUATION_NODES_LEFT] = { 2, lose_node, FLAG(nodes), nothing_to_say },
    [SITUATION_TIME_UP] = { 2, NULL, FLAG(is_final), nothing_to_say },
    [SITUATION_ROUND_BEGINS] = { 1, begin_round, FLAG(compares), nothing_to_say },
    [SITUATION_NODE_LATE] = { 1, come_late, FLAG(spares), nothing_to_say },
    [SITUATION_RANK_TROUBLE] = { 1, meet_trouble, FLAG(trouble), nothing_to_say },
    [SITUATION_PEER_LOST] = { 1, NULL, 0, NULL },
    [SITUATION_TORCH_SURPLUS] = { 1, surplus_torch, FLAG(torch), torch_reported },
    [SITUATION_TORCH_WAITS] = { 1, wait_for_torch, FLAG(torch), torch_reported },
    [SITUATION_TORCH_ENDED] = { 1, end_process, FLAG(torch), torch_reported },
    [SITUATION_RANK_STOPPED] = { 1, stop_rank, FLAG(stopped), nothing_to_say },
    [SITUATION_HANGS] = { 1, NULL, 0, NULL },
    [SITUATION_STANDS_STILL] = { 1, stand_still, FLAG(still), still_reported },
};

static bool is_due(enum situation row)
{
    const struct schedule_due due = schedule_due(job);
    const bool is_set = *((const bool *)&due + rows[row].flag);
    cr_assert_eq(due.any, due.nodes || due.compares || due.trouble || due.spares || due.torch || due.still ||
                              due.stopped);
    return is_set;
}

static void walk_row(enum situation row)
{
    const uint64_t began_ms = row == SITUATION_NODES_MISSING ? 0 : T;
    const uint64_t first_ms = began_ms + schedule[row].first_ms;
    at(began_ms);
    rows[row].begins();
    /* a time in the past means "now", because job_touch() raises such a time to the present time */
    const uint64_t due_ms = schedule_deadline(job);
    cr_expect_eq(due_ms > began_ms ? due_ms : began_ms, first_ms, "row %d: at %llu", row,
                 (unsigned long long)due_ms);
    if (schedule[row].first_ms > 0) {
        at(first_ms - 1);
        cr_expect_not(is_due(row), "row %d is due too early", row);
    }
    at(first_ms);
    cr_expect(is_due(row), "row %d is not due in time", row);
    rows[row].told();
    if (schedule[row].again_ms == 0) {
        at(first_ms + 5000);
        cr_expect_not(is_due(row), "row %d is reported again", row);
        return;
    }
    cr_expect_eq(schedule_deadline(job), first_ms + schedule[row].again_ms, "row %d, again: at %llu", row,
                 (unsigned long long)schedule_deadline(job));
    at(first_ms + schedule[row].again_ms - 1);
    cr_expect_not(is_due(row), "row %d is due again too early", row);
    at(first_ms + schedule[row].again_ms);
    cr_expect(is_due(row), "row %d is not due again", row);
}

Test(schedule, each_row_is_due_when_it_says)
{
    for (int row = 0; row < SITUATIONS; row++) {
        cr_assert(rows[row].nnodes > 0, "row %d has no test", row);
        if (rows[row].begins == NULL)
            continue; /* tested in test_torch_observer.c, test_barrier_sim.c or test_hang_watch.c */
        set_up(rows[row].nnodes);
        walk_row((enum situation)row);
        tear_down();
    }
}

/* Report TIME_UP at once, even if the previous check was only a moment ago. */
Test(schedule, time_that_is_up_is_told_at_once)
{
    set_up(2);
    at(59900);
    cr_expect(is_due(SITUATION_NODES_MISSING));
    at(60000);
    cr_expect(is_due(SITUATION_TIME_UP));
    tear_down();
}

Test(schedule, a_job_is_looked_at_once_a_second_at_most)
{
    set_up(2);
    at(20000);
    cr_expect(is_due(SITUATION_NODES_MISSING));
    for (int i = 1; i < 10; i++) {
        at(20000 + (uint64_t)i * 100);
        schedule_hurry(job);
        cr_expect_eq(schedule_deadline(job), 21000);
        cr_expect_not(is_due(SITUATION_NODES_LEFT));
    }
    at(21000);
    cr_expect(is_due(SITUATION_NODES_LEFT));
    tear_down();
}

/* A wait that was reported in this round and then ended by itself sets the usual duration of a wait. A later wait
 * counts as unusual only if it is at least twice as long as the usual duration. */
Test(schedule, a_wait_is_unusual_when_it_is_longer_than_the_factor_says)
{
    const uint64_t usual_ms = 15000;
    set_up(1);
    at(T);
    schedule_still_seen(job, usual_ms, true);
    at(T + 1000);
    schedule_still_seen(job, 0, false);
    const uint64_t limit_ms = schedule[SITUATION_STANDS_STILL].usual_factor * (usual_ms + 1000);
    cr_expect(schedule_is_usual(&job->watch, limit_ms - 1));
    cr_expect_not(schedule_is_usual(&job->watch, limit_ms));
    cr_expect_not(schedule_knows(&job->watch, 5));
    schedule_learn(&job->watch, 5);
    cr_expect(schedule_knows(&job->watch, 5));
    tear_down();
}

/* A restart may be over before the next tick, so no tick finds the job waiting for nodes. */
Test(schedule, an_attempt_begins_without_the_waits_of_the_last_one)
{
    set_up(1);
    at(T);
    schedule_torch_exit(job);
    schedule_torch_seen(job, 12000, true);
    schedule_still_seen(job, 15000, true);
    at(T + 1000);
    schedule_still_seen(job, 0, false);
    schedule_still_seen(job, 15000, true);
    schedule_learn(&job->watch, 5);
    schedule_attempt(job, true);
    cr_expect_not(job->watch.torch_ended);
    cr_expect_not(job->watch.torch_reported);
    cr_expect_not(job->watch.still_reported);
    cr_expect_eq(job->watch.usual.longest_ms, 0);
    cr_expect_not(schedule_knows(&job->watch, 5));
    tear_down();
}

Test(schedule, a_job_without_a_rendezvous_has_nobody_to_tell)
{
    sim_init(&sim, NULL);
    job = job_only(sim.hub, &(struct session){ .id = 0 });
    schedule_hurry(job);
    cr_expect_eq(schedule_deadline(job), UINT64_MAX);
    cr_expect_not(is_due(SITUATION_NODES_LEFT));
    tear_down();
}
