/* The rules of a round's life, one by one. Whole stories are in tests/sim/test_rdzv_sim.c. */
#include "sim_rdzv.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct sim_rdzv sim;

static void two_static(void)
{
    rsim_init(&sim);
    rsim_join_all(&sim, 0, 1);
    rsim_forget(&sim);
}

/* Three of 2:4. */
static void three_elastic(void)
{
    rsim_init_elastic(&sim, 2, 4);
    rsim_join_all(&sim, 0, 2);
    rsim_at(&sim, 30000);
    rsim_forget(&sim);
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
}

static void end(void)
{
    rsim_free(&sim);
}

TestSuite(rdzv, .init = two_static, .fini = end);

static struct rdzv_facts facts(void)
{
    struct rdzv_facts f;
    rdzv_facts(sim.r, &f);
    return f;
}

static void stop_all(uint32_t round, int first, int last)
{
    for (int i = first; i <= last; i++)
        rsim_stopped(&sim, i, round);
}

/* --- causes and codes ------------------------------------------------------------------------------------ */

Test(rdzv, the_first_failure_to_arrive_is_the_cause)
{
    rsim_at(&sim, 100);
    rsim_fail(&sim, 1, 1, 2, 11);
    rsim_at(&sim, 150);
    rsim_fail(&sim, 0, 1, 0, 6);
    cr_assert_eq(facts().cause->rank, 2);
    cr_assert_eq(facts().cause->after_ms, 100);
    cr_assert_str_eq(facts().cause->host, "n1");
    cr_assert_eq(facts().cause->node_rank, 1);
    stop_all(1, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: failed, exit 139/139/139\n");
}

Test(rdzv, a_worker_that_gave_up_gives_way_to_one_that_failed)
{
    rsim_fail(&sim, 0, 1, 0, -75);
    cr_assert(facts().cause->is_victim);
    rsim_fail(&sim, 1, 1, 3, -75);
    cr_assert_eq(facts().cause->rank, 0, "the first of those who gave up stands for the cause");
    rsim_fail(&sim, 1, 1, 2, 9);
    cr_assert_eq(facts().cause->rank, 2);
    cr_assert_not(facts().cause->is_victim);
}

/* PyTorch's workers have no exit code for it; their node has read it. */
Test(rdzv, one_that_says_so_in_words_gives_way_too)
{
    const struct rdzv_failure says = { .rank = 0, .exit_code = 1, .victim = true, .words = "", .log = "" };
    rdzv_failed(sim.r, 1, 1, &says, sim.now_ms); /* the id of the simulation's node 0 */
    cr_assert(facts().cause->is_victim);
    rsim_fail(&sim, 1, 1, 2, -1);
    cr_assert_eq(facts().cause->rank, 2);
    cr_assert_not(facts().cause->is_victim);
}

Test(rdzv, the_words_come_later_and_change_neither_order_nor_time)
{
    const char *lines[20];
    for (int i = 0; i < 20; i++)
        lines[i] = i == 19 ? "the last" : "another";
    struct rdzv_failure more = { .rank = 2,
                                 .pid = 77,
                                 .signal = 11,
                                 .words = "was killed by signal 11 (SIGSEGV)",
                                 .log = "/tmp/log",
                                 .stderr_lines = lines,
                                 .n_stderr_lines = 20 };
    rsim_at(&sim, 100);
    rsim_fail(&sim, 1, 1, 2, 11);
    rsim_at(&sim, 900);
    cr_assert_eq(rdzv_explain(sim.r, 2, 1, &more, sim.now_ms), RDZV_OK);
    const struct rdzv_cause *cause = facts().cause;
    cr_assert_str_eq(cause->words, "was killed by signal 11 (SIGSEGV)");
    cr_assert_eq(cause->n_stderr_lines, RDZV_STDERR_MAX);
    cr_assert_str_eq(cause->stderr_lines[RDZV_STDERR_MAX - 1], "the last");
    cr_assert_eq(cause->after_ms, 100);
    more.words = "another node's words";
    rdzv_explain(sim.r, 1, 1, &more, sim.now_ms);
    cr_assert_str_eq(cause->words, "was killed by signal 11 (SIGSEGV)");
}

static void fail_to_start(int error)
{
    struct rdzv_failure failure = {
        .rank = 0, .error = error, .no_retry = RDZV_NO_RESTART_CANNOT_START, .words = "", .log = ""
    };
    rdzv_failed(sim.r, 1, 1, &failure, sim.now_ms);
    stop_all(1, 0, 1);
}

Test(rdzv, a_program_that_is_not_there_ends_with_127)
{
    fail_to_start(ENOENT);
    rsim_expect_part(&sim, "n1 < finish: failed, exit 127/127/127\n");
}

Test(rdzv, a_program_that_cannot_run_ends_with_126)
{
    fail_to_start(EACCES);
    rsim_expect_part(&sim, "n1 < finish: failed, exit 126/126/126\n");
}

/* Each policy has its number: the first cause, the highest of all, and that of rank 0. */
Test(rdzv, the_codes_of_all_policies_come_with_the_verdict)
{
    rsim_fail(&sim, 1, 1, 2, -3);
    rdzv_stopped(sim.r, 1, 1, &(struct rdzv_stopped){ .max_code = 1, .has_rank0 = true, .rank0_code = 1 },
                 sim.now_ms);
    rdzv_stopped(sim.r, 2, 1, &(struct rdzv_stopped){ .max_code = 9, .has_rank0 = true, .rank0_code = 8 },
                 sim.now_ms); /* it does not run rank 0 */
    rsim_expect_part(&sim, "n0 < finish: failed, exit 3/9/1\n");
}

Test(rdzv, a_node_that_stops_without_a_word_is_a_failure)
{
    rdzv_stopped(sim.r, 2, 1, &(struct rdzv_stopped){ .max_code = 4 }, sim.now_ms);
    cr_assert_eq(rsim_state(&sim), RDZV_STOPPING);
    cr_assert_str_eq(facts().cause->words, "node 1 (n1) stopped without saying why");
    rsim_stopped(&sim, 0, 1);
    rsim_expect_part(&sim, "n1 < finish: failed, exit 4/4/4\n");
}

/* --- who is done ----------------------------------------------------------------------------------------- */

Test(rdzv, a_node_that_is_done_may_go_before_the_others)
{
    rsim_done(&sim, 1, 1);
    rsim_lost(&sim, 1);
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    rsim_done(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: done, exit 0/0/0\n");
    cr_assert_eq(rsim_state(&sim), RDZV_OVER);
}

Test(rdzv, done_is_counted_once)
{
    rsim_done(&sim, 1, 1);
    rsim_done(&sim, 1, 1);
    cr_assert_eq(rsim_stopped(&sim, 1, 1), RDZV_OK); /* it has nothing left to stop */
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    cr_assert_eq(facts().done, 1);
}

Test(rdzv, a_node_that_is_done_is_stopped_with_the_others)
{
    rsim_done(&sim, 1, 1);
    rsim_fail(&sim, 0, 1, 0, 9);
    rsim_done(&sim, 1, 1); /* crossed the stop on its way */
    cr_assert_eq(rsim_state(&sim), RDZV_STOPPING);
    stop_all(1, 0, 1);
    rsim_expect_part(&sim, "n1 < stop round 1: failed\n");
}

Test(rdzv, a_done_node_that_leaves_is_done_all_the_same)
{
    rsim_done(&sim, 1, 1);
    rsim_leave(&sim, 1, 0);
    rsim_expect_part(&sim, "n1 < finish: node_left, exit 0/0/0, stopped\n");
    rsim_done(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: done, exit 0/0/0\n");
}

/* --- stale ----------------------------------------------------------------------------------------------- */

Test(rdzv, what_is_said_of_another_round_changes_nothing)
{
    cr_assert_eq(rsim_fail(&sim, 0, 0, 0, 9), RDZV_STALE_ROUND);
    cr_assert_eq(rsim_done(&sim, 0, 2), RDZV_STALE_ROUND);
    cr_assert_eq(rsim_stopped(&sim, 0, 7), RDZV_STALE_ROUND);
    cr_assert_eq(rsim_stopped(&sim, 5, 1), RDZV_NO_MEMBER);
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
}

Test(rdzv, a_node_between_two_rounds_is_in_none, .init = three_elastic)
{
    rsim_fail(&sim, 0, 1, 0, 9);
    cr_assert_eq(rsim_stopped(&sim, 0, 1), RDZV_OK);
    cr_assert_eq(rsim_stopped(&sim, 0, 1), RDZV_OK); /* said twice */
    stop_all(1, 1, 2);
    cr_assert_eq(rsim_state(&sim), RDZV_OVER); /* nobody asked for a restart */
    cr_assert_eq(rsim_stopped(&sim, 0, 1), RDZV_NO_MEMBER);
}

/* --- leaving --------------------------------------------------------------------------------------------- */

Test(rdzv, a_static_job_that_waits_for_its_next_attempt_is_stopped_as_a_whole)
{
    rsim_init(&sim);
    sim.join.max_restarts = 5;
    rsim_join_all(&sim, 0, 1);
    rsim_fail(&sim, 0, 1, 0, -7);
    stop_all(1, 0, 1);
    rsim_rejoin(&sim, 1);
    rsim_forget(&sim);
    rsim_leave(&sim, 0, 2);
    rsim_expect(&sim, "[     0] node 0 (n0) leaves: SIGINT from pid 77 (bash) of bob\n"
                      "[     0]   n0 < finish: node_left, exit 7/7/7, stopped\n"
                      "[     0] the job is over: node_left, no restart: stopped\n"
                      "[     0]   n1 < finish: node_left, exit 7/7/7, stopped\n");
}

Test(rdzv, all_nodes_of_an_elastic_job_leave, .init = three_elastic)
{
    for (int i = 0; i < 3; i++)
        rsim_leave(&sim, i, 15);
    rsim_forget(&sim);
    stop_all(1, 0, 2);
    rsim_expect(&sim, "[ 30000] node 0 (n0) has stopped\n"
                      "[ 30000]   n0 < finish: node_left, exit 143/143/143, stopped\n"
                      "[ 30000] node 1 (n1) has stopped\n"
                      "[ 30000]   n1 < finish: node_left, exit 143/143/143, stopped\n"
                      "[ 30000] node 2 (n2) has stopped\n"
                      "[ 30000]   n2 < finish: node_left, exit 143/143/143, stopped\n"
                      "[ 30000] the job is over: nobody is left\n");
}

/* No user has stopped it: it has no memory, say, for its log files. */
Test(rdzv, an_agent_that_gives_up_is_not_a_success)
{
    rdzv_leave(sim.r, 2, 0, "no log directory", sim.now_ms);
    cr_assert_str_eq(facts().cause->words, "node 1 (n1) gave up: no log directory");
    rsim_stopped(&sim, 1, 1);
    rsim_expect_part(&sim, "n1 < finish: node_left, exit 125/125/125, stopped\n");
    rsim_stopped(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: node_left, exit 125/125/125, stopped\n");
}

Test(rdzv, a_failure_without_a_code_is_a_failure)
{
    rsim_fail(&sim, 0, 1, 0, 0);
    stop_all(1, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: failed, exit 1/1/1\n");
}

Test(rdzv, too_few_are_left_and_new_ones_come_with_a_last_call, .init = three_elastic)
{
    rsim_lost(&sim, 0);
    rsim_lost(&sim, 2);
    rsim_stopped(&sim, 1, 1);
    rsim_rejoin(&sim, 1);
    cr_assert_eq(rsim_state(&sim), RDZV_GATHERING);
    rsim_at(&sim, 100000);
    rsim_join(&sim, 7);
    cr_assert_eq(rsim_state(&sim), RDZV_LAST_CALL);
    rsim_at(&sim, 130000);
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    cr_assert_eq(rsim_rank(&sim, 1), 0);
    cr_assert_eq(rsim_rank(&sim, 7), 1);
}

Test(rdzv, too_few_are_left_and_nobody_comes, .init = three_elastic)
{
    rsim_lost(&sim, 0);
    rsim_lost(&sim, 2);
    rsim_stopped(&sim, 1, 1);
    rsim_rejoin(&sim, 1);
    rsim_at(&sim, 630000);
    rsim_expect_part(&sim, "[630000]   n1 < finish: timeout, exit 125/125/125, too_few_nodes\n");
}

/* It has been told to join again and does not: its place is kept for a last call, then the others go on. */
Test(rdzv, a_survivor_that_does_not_come_back_is_not_waited_for_long, .init = three_elastic)
{
    rsim_leave(&sim, 0, 15);
    stop_all(1, 0, 2);
    rsim_rejoin(&sim, 1);
    rsim_join(&sim, 5);
    cr_assert_eq(rsim_state(&sim), RDZV_LAST_CALL);
    rsim_at(&sim, sim.now_ms + 30000);
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    cr_assert_eq(rsim_rejoin(&sim, 2), RDZV_WELCOME);
    cr_assert(rdzv_is_spare(sim.r, 3));
}

/* --- growing --------------------------------------------------------------------------------------------- */

Test(rdzv, workers_are_asked_before_the_job_grows, .init = three_elastic)
{
    rsim_join(&sim, 3);
    rsim_join(&sim, 4);
    rsim_expect_part(&sim, "key waiting_nodes = 1\n"); /* of two that wait: there is one place */
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    rsim_lost(&sim, 3);
    rsim_lost(&sim, 4);
    rsim_expect_part(&sim, "key waiting_nodes = 0\n");
    rdzv_grow_agreed(sim.r, sim.now_ms); /* to nobody: the one they agreed to has gone */
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    rsim_join(&sim, 5);
    cr_assert_eq(rsim_state(&sim), RDZV_STOPPING);
}

Test(rdzv, growth_is_not_charged_and_not_waited_for, .init = three_elastic)
{
    rsim_join(&sim, 3);
    rdzv_grow_agreed(sim.r, sim.now_ms);
    stop_all(1, 0, 2);
    rsim_expect_part(&sim, "n2 < restart after grow, in 0 ms\n");
    for (int i = 0; i < 3; i++)
        rsim_rejoin(&sim, i);
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    cr_assert_eq(facts().restarts, 0);
    cr_assert_eq(rsim_rank(&sim, 3), 3);
}

Test(rdzv, a_job_that_never_grows_does_not_ask)
{
    rsim_init_elastic(&sim, 1, 4);
    sim.join.grow = RDZV_GROW_NEVER;
    sim.join.last_call_ms = 0;
    rsim_join(&sim, 0);
    rsim_forget(&sim);
    rsim_join(&sim, 1);
    rdzv_grow_agreed(sim.r, sim.now_ms);
    rsim_expect(&sim, "[     0] node n1 joined as a spare: a round is running\n");
    rsim_done(&sim, 0, 1);
    rsim_expect_part(&sim, "n1 < finish: done, exit 0/0/0\n"); /* the spare learns it, too */
}

Test(rdzv, growth_may_need_no_agreement)
{
    rsim_init_elastic(&sim, 1, 4);
    sim.join.grow = RDZV_GROW_NOW;
    sim.join.last_call_ms = 0;
    rsim_join(&sim, 0);
    rsim_join(&sim, 1);
    rsim_expect_part(&sim, "attempt 0 stops: 1 more node can be taken in\n");
}

/* --- restarts -------------------------------------------------------------------------------------------- */

Test(rdzv, what_cannot_be_killed_ends_the_job)
{
    rsim_init(&sim);
    sim.join.max_restarts = 5;
    rsim_join_all(&sim, 0, 1);
    rsim_fail(&sim, 0, 1, 0, 9);
    rdzv_stopped(sim.r, 2, 1, &(struct rdzv_stopped){ .unkillable = true }, sim.now_ms);
    rsim_stopped(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: failed, exit 137/137/137, unkillable\n");
}

Test(rdzv, the_progress_of_the_workers_is_asked_before_the_keys_go)
{
    rsim_init(&sim);
    sim.join.max_restarts = 9;
    sim.join.max_no_progress = 1;
    sim.progress = 42;
    rsim_join_all(&sim, 0, 1);
    rsim_fail(&sim, 0, 1, 0, 9);
    stop_all(1, 0, 1);
    rsim_rejoin(&sim, 0);
    rsim_rejoin(&sim, 1);
    rsim_at(&sim, 1000);
    rsim_fail(&sim, 0, 2, 0, 9);
    stop_all(2, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: failed, exit 137/137/137, no_progress\n");
}

Test(rdzv, a_lost_static_node_without_restarts_ends_the_job)
{
    rsim_lost(&sim, 1);
    rsim_stopped(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: node_lost, exit 125/125/125\n");
    cr_assert_str_eq(facts().cause->words, "node 1 (n1) is lost: its connection was closed");
}

Test(rdzv, a_store_without_memory_for_the_keys_ends_the_job)
{
    rsim_init(&sim);
    sim.no_memory = true;
    rsim_join_all(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: refused, exit 125/125/125, not_ready\n");
    cr_assert_eq(sim.told[RDZV_TELL_ROUND], 0);
}

/* --- those who look -------------------------------------------------------------------------------------- */

Test(rdzv, a_rank_finds_its_node)
{
    const uint64_t nodes[] = { 1, 1, 2, 2, 0 };
    for (uint32_t rank = 0; rank < 5; rank++)
        cr_assert_eq(rdzv_node_of_rank(sim.r, rank), nodes[rank], "rank %u", rank);
    rsim_done(&sim, 0, 1);
    rsim_lost(&sim, 0);
    cr_assert_eq(rdzv_node_of_rank(sim.r, 1), 0);
    cr_assert_eq(rdzv_node_of_rank(sim.r, 2), 2);
}

Test(rdzv, who_has_gone_is_remembered)
{
    rsim_at(&sim, 5000);
    rsim_lost(&sim, 1);
    struct rdzv_facts f = facts();
    cr_assert_eq(f.n_gone, 1);
    cr_assert_str_eq(f.gone[0].host, "n1");
    cr_assert_str_eq(f.gone[0].how, "its connection was closed");
    cr_assert(f.gone[0].lost && f.gone[0].node_rank == 1 && f.gone[0].gone_ms == 5000);
    cr_assert_not(rdzv_has_node_rank(sim.r, 1));
    cr_assert(rdzv_has_node_rank(sim.r, 0));
    cr_assert_eq(rdzv_next_node(sim.r, 0), 1);
    cr_assert_eq(rdzv_next_node(sim.r, 1), 0);
}

Test(rdzv, every_word_of_the_protocol_is_there)
{
    cr_assert_str_eq(rdzv_state_word(RDZV_OVER), "over");
    cr_assert_str_eq(rdzv_why_word(RDZV_WHY_REFUSED), "refused");
    cr_assert_str_eq(rdzv_no_restart_word(RDZV_NO_RESTART_NOT_READY), "not_ready");
    cr_assert_str_eq(rdzv_refused_code(RDZV_REFUSED_STORE_FULL), "STORE_FULL");
    cr_assert_str_eq(rdzv_node_state_word(RDZV_NODE_FINISHED), "finished");
    cr_assert_str_eq(rdzv_state_word(RDZV_N_STATES), "?");
}
