/* Tests of the rules of a round's life, one by one. tests/sim/test_rdzv_sim.c tests whole jobs. */
#include "job/round.c"
#include "job/rendezvous.c"
#include "job/nodes.c"
#include "job/nodes.h"
#include "sim_rdzv.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct sim_rdzv sim;

static void two_static(void)
{
    rsim_init(&sim);
    rsim_join_all(&sim, 0, 1);
    rsim_forget(&sim);
}

/* Start three nodes of an elastic job with --nnodes=2:4. */
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

TestSuite(rendezvous, .init = two_static, .fini = end);

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

Test(rendezvous, the_first_failure_to_arrive_is_the_cause)
{
    rsim_at(&sim, 100);
    rsim_fail(&sim, 1, 1, 2, 11);
    rsim_at(&sim, 150);
    rsim_fail(&sim, 0, 1, 0, 6);
    cr_assert_eq(facts().cause->failure.rank, 2);
    cr_assert_eq(facts().cause->failure.after_ms, 100);
    cr_assert_str_eq(facts().cause->failure.host, "n1");
    cr_assert_eq(facts().cause->failure.node_rank, 1);
    stop_all(1, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: failed, exit 139/139/139\n");
}

Test(rendezvous, a_worker_that_gave_up_gives_way_to_one_that_failed)
{
    rsim_fail(&sim, 0, 1, 0, -75);
    cr_assert(facts().cause->failure.victim);
    rsim_fail(&sim, 1, 1, 3, -75);
    cr_assert_eq(facts().cause->failure.rank, 0, "the first of those who gave up stands for the cause");
    rsim_fail(&sim, 1, 1, 2, 9);
    cr_assert_eq(facts().cause->failure.rank, 2);
    cr_assert_not(facts().cause->failure.victim);
}

/* PyTorch's workers have no exit code for a lost peer. Their node detects the lost peer in their output, and sets
 * `victim`. */
Test(rendezvous, one_that_says_so_in_words_gives_way_too)
{
    const struct failure says = { .rank = 0, .exit_code = 1, .victim = true };
    rdzv_failed(sim.r, 1, 1, &says, sim.now_ms); /* the first 1 is the id of node 0 in the simulation */
    cr_assert(facts().cause->failure.victim);
    rsim_fail(&sim, 1, 1, 2, -1);
    cr_assert_eq(facts().cause->failure.rank, 2);
    cr_assert_not(facts().cause->failure.victim);
}

Test(rendezvous, the_words_come_later_and_change_neither_order_nor_time)
{
    struct failure more = { .rank = 2,
                            .pid = 77,
                            .signal = 11,
                            .words = "was killed by signal 11 (SIGSEGV)",
                            .log = "/tmp/log",
                            .lines = { "another", "the last" },
                            .n_lines = 2 };
    rsim_at(&sim, 100);
    rsim_fail(&sim, 1, 1, 2, 11);
    rsim_at(&sim, 900);
    cr_assert_eq(rdzv_explain(sim.r, 2, 1, &more, sim.now_ms), RDZV_OK);
    const struct failure *cause = &facts().cause->failure;
    cr_assert_str_eq(cause->words, "was killed by signal 11 (SIGSEGV)");
    cr_assert_eq(cause->n_lines, 2);
    cr_assert_str_eq(cause->lines[1], "the last");
    cr_assert_eq(cause->after_ms, 100);
    snprintf(more.words, sizeof(more.words), "another node's words");
    rdzv_explain(sim.r, 1, 1, &more, sim.now_ms);
    cr_assert_str_eq(cause->words, "was killed by signal 11 (SIGSEGV)");
}

static void fail_to_start(int error)
{
    struct failure failure = {
        .rank = 0,
        .error = error,
        .no_retry = "cannot_start",
    };
    rdzv_failed(sim.r, 1, 1, &failure, sim.now_ms);
    stop_all(1, 0, 1);
}

Test(rendezvous, a_program_that_is_not_there_ends_with_127)
{
    fail_to_start(ENOENT);
    rsim_expect_part(&sim, "n1 < finish: failed, exit 127/127/127\n");
}

Test(rendezvous, a_program_that_cannot_run_ends_with_126)
{
    fail_to_start(EACCES);
    rsim_expect_part(&sim, "n1 < finish: failed, exit 126/126/126\n");
}

/* The verdict has an exit code for each policy: the code of the first cause, the highest code, and the code of rank
 * 0. */
Test(rendezvous, the_codes_of_all_policies_come_with_the_verdict)
{
    rsim_fail(&sim, 1, 1, 2, -3);
    rdzv_stopped(sim.r, 1, 1, &(struct rdzv_stopped){ .max_code = 1, .has_rank0 = true, .rank0_code = 1 },
                 sim.now_ms);
    rdzv_stopped(sim.r, 2, 1, &(struct rdzv_stopped){ .max_code = 9, .has_rank0 = true, .rank0_code = 8 },
                 sim.now_ms); /* this node does not run rank 0 */
    rsim_expect_part(&sim, "n0 < finish: failed, exit 3/9/1\n");
}

Test(rendezvous, a_node_that_stops_without_a_word_is_a_failure)
{
    rdzv_stopped(sim.r, 2, 1, &(struct rdzv_stopped){ .max_code = 4 }, sim.now_ms);
    cr_assert_eq(rsim_state(&sim), RDZV_STOPPING);
    cr_assert_str_eq(facts().cause->failure.words, "node 1 (n1) stopped without giving a reason");
    rsim_stopped(&sim, 0, 1);
    rsim_expect_part(&sim, "n1 < finish: failed, exit 4/4/4\n");
}

/* --- finished nodes -------------------------------------------------------------------------------------- */

Test(rendezvous, a_node_that_is_done_may_go_before_the_others)
{
    rsim_done(&sim, 1, 1);
    rsim_lost(&sim, 1);
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    rsim_done(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: done, exit 0/0/0\n");
    cr_assert_eq(rsim_state(&sim), RDZV_OVER);
}

Test(rendezvous, done_is_counted_once)
{
    rsim_done(&sim, 1, 1);
    rsim_done(&sim, 1, 1);
    cr_assert_eq(rsim_stopped(&sim, 1, 1), RDZV_OK); /* this node has nothing left to stop */
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    cr_assert_eq(facts().done, 1);
}

Test(rendezvous, a_node_that_is_done_is_stopped_with_the_others)
{
    rsim_done(&sim, 1, 1);
    rsim_fail(&sim, 0, 1, 0, 9);
    rsim_done(&sim, 1, 1); /* sent before the stop arrived */
    cr_assert_eq(rsim_state(&sim), RDZV_STOPPING);
    stop_all(1, 0, 1);
    rsim_expect_part(&sim, "n1 < stop round 1: failed\n");
}

Test(rendezvous, a_done_node_that_leaves_is_done_all_the_same)
{
    rsim_done(&sim, 1, 1);
    rsim_leave(&sim, 1, 0);
    rsim_expect_part(&sim, "n1 < finish: node_left, exit 0/0/0, stopped\n");
    rsim_done(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: done, exit 0/0/0\n");
}

/* --- messages about another round ------------------------------------------------------------------------ */

Test(rendezvous, what_is_said_of_another_round_changes_nothing)
{
    cr_assert_eq(rsim_fail(&sim, 0, 0, 0, 9), RDZV_STALE_ROUND);
    cr_assert_eq(rsim_done(&sim, 0, 2), RDZV_STALE_ROUND);
    cr_assert_eq(rsim_stopped(&sim, 0, 7), RDZV_STALE_ROUND);
    cr_assert_eq(rsim_stopped(&sim, 5, 1), RDZV_NO_MEMBER);
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
}

Test(rendezvous, a_node_between_two_rounds_is_in_none, .init = three_elastic)
{
    rsim_fail(&sim, 0, 1, 0, 9);
    cr_assert_eq(rsim_stopped(&sim, 0, 1), RDZV_OK);
    cr_assert_eq(rsim_stopped(&sim, 0, 1), RDZV_OK); /* sent twice */
    stop_all(1, 1, 2);
    cr_assert_eq(rsim_state(&sim), RDZV_OVER); /* no restart was requested */
    cr_assert_eq(rsim_stopped(&sim, 0, 1), RDZV_NO_MEMBER);
}

/* --- leaving --------------------------------------------------------------------------------------------- */

Test(rendezvous, a_static_job_that_waits_for_its_next_attempt_is_stopped_as_a_whole)
{
    rsim_init(&sim);
    sim.join.max_restarts = 5;
    rsim_join_all(&sim, 0, 1);
    rsim_fail(&sim, 0, 1, 0, -7);
    stop_all(1, 0, 1);
    rsim_rejoin(&sim, 1);
    rsim_forget(&sim);
    rsim_leave(&sim, 0, 2);
    rsim_expect(&sim, "[     0] node 0 (n0) leaves: SIGINT from bash (pid 77, uid 1000)\n"
                      "[     0]   n0 < finish: node_left, exit 7/7/7, stopped\n"
                      "[     0] the job is over: node_left, no restart: stopped\n"
                      "[     0]   n1 < finish: node_left, exit 7/7/7, stopped\n");
}

Test(rendezvous, all_nodes_of_an_elastic_job_leave, .init = three_elastic)
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
                      "[ 30000] the job is over: no node is left\n");
}

/* The agent stops without a request of a user, for example because it has no space for its log files. */
Test(rendezvous, an_agent_that_gives_up_is_not_a_success)
{
    rdzv_leave(sim.r, 2, 0, "no log directory", "", sim.now_ms);
    cr_assert_str_eq(facts().cause->failure.words, "node 1 (n1) gave up: no log directory");
    rsim_stopped(&sim, 1, 1);
    rsim_expect_part(&sim, "n1 < finish: node_left, exit 125/125/125, stopped\n");
    rsim_stopped(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: node_left, exit 125/125/125, stopped\n");
}

/* The relay of --hosts has sent a node the finding that ends the job. */
Test(rendezvous, a_node_that_leaves_because_of_a_finding_gives_its_code)
{
    rdzv_leave(sim.r, 2, 0, "host b is lost", "HOST_LOST", sim.now_ms);
    cr_assert_str_eq(facts().cause->failure.code, "HOST_LOST");
    cr_assert_str_eq(facts().cause->failure.words, "node 1 (n1) gave up: host b is lost");
}

Test(rendezvous, a_failure_without_a_code_is_a_failure)
{
    rsim_fail(&sim, 0, 1, 0, 0);
    stop_all(1, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: failed, exit 1/1/1\n");
}

Test(rendezvous, too_few_are_left_and_new_ones_come_with_a_last_call, .init = three_elastic)
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

Test(rendezvous, too_few_are_left_and_nobody_comes, .init = three_elastic)
{
    rsim_lost(&sim, 0);
    rsim_lost(&sim, 2);
    rsim_stopped(&sim, 1, 1);
    rsim_rejoin(&sim, 1);
    rsim_at(&sim, 630000);
    rsim_expect_part(&sim, "[630000]   n1 < finish: timeout, exit 125/125/125, too_few_nodes\n");
}

/* The node should join again, but does not. Its place is kept only until the last call (RDZV_LAST_CALL) ends. Then
 * the other nodes continue. */
Test(rendezvous, a_survivor_that_does_not_come_back_is_not_waited_for_long, .init = three_elastic)
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

Test(rendezvous, workers_are_asked_before_the_job_grows, .init = three_elastic)
{
    rsim_join(&sim, 3);
    rsim_join(&sim, 4);
    rsim_expect_part(&sim, "key waiting_nodes = 1\n"); /* 1 of 2, because only one more node fits */
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    rsim_lost(&sim, 3);
    rsim_lost(&sim, 4);
    rsim_expect_part(&sim, "key waiting_nodes = 0\n");
    rdzv_grow_agreed(sim.r, sim.now_ms); /* no new round, because the waiting nodes have left */
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    rsim_join(&sim, 5);
    cr_assert_eq(rsim_state(&sim), RDZV_STOPPING);
}

Test(rendezvous, growth_is_not_charged_and_not_waited_for, .init = three_elastic)
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

Test(rendezvous, a_job_that_never_grows_does_not_ask)
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
    rsim_expect_part(&sim, "n1 < finish: done, exit 0/0/0\n"); /* the spare gets the verdict, too */
}

Test(rendezvous, growth_may_need_no_agreement)
{
    rsim_init_elastic(&sim, 1, 4);
    sim.join.grow = RDZV_GROW_NOW;
    sim.join.last_call_ms = 0;
    rsim_join(&sim, 0);
    rsim_join(&sim, 1);
    rsim_expect_part(&sim, "attempt 0 stops: 1 more node can join\n");
}

/* --- restarts -------------------------------------------------------------------------------------------- */

Test(rendezvous, what_cannot_be_killed_ends_the_job)
{
    rsim_init(&sim);
    sim.join.max_restarts = 5;
    rsim_join_all(&sim, 0, 1);
    rsim_fail(&sim, 0, 1, 0, 9);
    rdzv_stopped(sim.r, 2, 1, &(struct rdzv_stopped){ .unkillable = true }, sim.now_ms);
    rsim_stopped(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: failed, exit 137/137/137, unkillable\n");
}

Test(rendezvous, the_progress_of_the_workers_is_asked_before_the_keys_go)
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

Test(rendezvous, an_end_without_a_restart_is_none)
{
    rsim_init(&sim);
    sim.join.max_restarts = 9;
    sim.join.max_no_progress = 1;
    sim.progress = 42;
    rsim_join_all(&sim, 0, 1);
    rsim_fail(&sim, 0, 1, 0, 9);
    stop_all(1, 0, 1);
    cr_expect_eq(facts().restarts, 1);
    rsim_rejoin(&sim, 0);
    rsim_rejoin(&sim, 1);
    rsim_at(&sim, 1000);
    rsim_fail(&sim, 0, 2, 0, 9);
    stop_all(2, 0, 1);
    cr_assert_eq(rsim_state(&sim), RDZV_OVER);
    cr_expect_eq(facts().restarts, 1);
}

/* A lost node ends an elastic round. This end does not count for --max_restarts, so the store does not read the
 * progress of the ranks. */
Test(rendezvous, an_end_that_does_not_count_has_no_step)
{
    rsim_init_elastic(&sim, 1, 2);
    sim.join.max_restarts = 3;
    sim.progress = 100;
    rsim_join_all(&sim, 0, 1);
    rsim_fail(&sim, 0, 1, 0, 9);
    stop_all(1, 0, 1);
    cr_expect_eq(sim.r->restarts.step, 100);
    rsim_rejoin(&sim, 0);
    rsim_rejoin(&sim, 1);
    rsim_at(&sim, 10000);
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
    rsim_lost(&sim, 1);
    stop_all(2, 0, 0);
    rsim_expect_part(&sim, "n0 < restart after node_lost, in 0 ms");
    cr_expect_eq(sim.r->restarts.step, -1);
}

Test(rendezvous, a_lost_static_node_without_restarts_ends_the_job)
{
    rsim_lost(&sim, 1);
    rsim_stopped(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: node_lost, exit 125/125/125\n");
    cr_assert_str_eq(facts().cause->failure.words, "node 1 (n1) is lost: connection closed");
}

Test(rendezvous, a_silent_node_whose_connection_closes_is_lost_by_its_silence)
{
    rsim_init(&sim);
    sim.join.node_timeout_ms = 3000;
    rsim_join_all(&sim, 0, 1);
    sim.now_ms += 3000; /* without a tick, which would drop the node first */
    rsim_lost(&sim, 1);
    cr_assert_not_null(facts().cause);
    cr_expect(facts().cause->silent);
    cr_expect_not_null(strstr(facts().cause->failure.words, ": silent for "), "%s",
                       facts().cause->failure.words);
}

Test(rendezvous, a_store_without_memory_for_the_keys_ends_the_job)
{
    rsim_init(&sim);
    sim.no_memory = true;
    rsim_join_all(&sim, 0, 1);
    rsim_expect_part(&sim, "n0 < finish: refused, exit 125/125/125, not_ready\n");
    cr_assert_eq(sim.told[RDZV_NOTICE_ROUND], 0);
}

/* --- observers ------------------------------------------------------------------------------------------- */

Test(rendezvous, a_rank_finds_its_node)
{
    const uint64_t nodes[] = { 1, 1, 2, 2, 0 };
    for (uint32_t rank = 0; rank < 5; rank++)
        cr_assert_eq(rdzv_node_of_rank(sim.r, rank), nodes[rank], "rank %u", rank);
    rsim_done(&sim, 0, 1);
    rsim_lost(&sim, 0);
    cr_assert_eq(rdzv_node_of_rank(sim.r, 1), 0);
    cr_assert_eq(rdzv_node_of_rank(sim.r, 2), 2);
}

/* While the job has no node, the store makes no checks. When the next node joins, the last check was long ago. The
 * store must not conclude from this pause that the store itself was suspended, because then it would excuse the silence
 * of the new node. */
Test(rendezvous, the_first_node_after_a_pause_without_nodes_needs_no_excuse)
{
    rsim_init(&sim);
    sim.join.node_timeout_ms = 3000;
    rsim_join(&sim, 0);
    rsim_lost(&sim, 0);
    sim.now_ms = 600000; /* without a tick, because an empty job has no deadline */
    cr_assert_gt(rdzv_deadline(sim.r), sim.now_ms);
    rsim_join(&sim, 1);
    rsim_at(&sim, 601000);
    cr_expect_eq(rdzv_find(sim.r, 2)->excuses, 0);
}

Test(rendezvous, who_has_gone_is_remembered)
{
    rsim_at(&sim, 5000);
    rsim_lost(&sim, 1);
    struct rdzv_facts f = facts();
    cr_assert_eq(f.n_gone, 1);
    cr_assert_str_eq(f.gone[0].host, "n1");
    cr_assert_str_eq(f.gone[0].how, "connection closed");
    cr_assert(f.gone[0].lost && f.gone[0].node_rank == 1 && f.gone[0].gone_ms == 5000);
    cr_assert_eq(rdzv_next_node(sim.r, 0), 1);
    cr_assert_eq(rdzv_next_node(sim.r, 1), 0);
}

Test(rendezvous, every_word_of_the_protocol_is_there)
{
    cr_assert_str_eq(rdzv_state_word(RDZV_OVER), "over");
    cr_assert_str_eq(rdzv_why_word(RDZV_WHY_REFUSED), "refused");
    cr_assert_str_eq(no_restart_word(NO_RESTART_NOT_READY), "not_ready");
    cr_assert_str_eq(rdzv_refused_code(RDZV_REFUSED_STORE_FULL), "STORE_FULL");
    cr_assert_str_eq(rdzv_node_state_word(RDZV_NODE_FINISHED), "finished");
    cr_assert_str_eq(rdzv_state_word(RDZV_N_STATES), "?");
}

/* --- the table of states and events ---------------------------------------------------------------------- */

/* Bring an elastic job of two to three nodes into `state`. n0 has joined in all states, n1 in all but the first. */
static void enter_state(enum rdzv_state state)
{
    rsim_init_elastic(&sim, 2, 3);
    sim.join.max_restarts = 3;
    rsim_join(&sim, 0);
    if (state == RDZV_GATHERING)
        return;
    rsim_join(&sim, 1);
    if (state == RDZV_LAST_CALL)
        return;
    rsim_at(&sim, 30000);
    if (state == RDZV_OVER) {
        rsim_done(&sim, 0, 1);
        rsim_done(&sim, 1, 1);
    }
    if (state == RDZV_STOPPING || state == RDZV_BACKING_OFF)
        rsim_fail(&sim, 0, 1, 0, 11);
    if (state == RDZV_BACKING_OFF)
        stop_all(1, 0, 1);
}

/* Call rdzv_step() directly. The public functions reject messages that this state does not allow, so these messages
 * would not reach the table. */
static void step(enum rdzv_event_type type)
{
    const struct failure failure = { .rank = 0, .signal = 6, .words = "was killed" };
    const struct rdzv_stopped stopped = { .max_code = 1 };
    struct rdzv_join join = sim.join;
    join.host = "n7";
    join.pid = 107;
    struct rdzv_joining joining = { .id = 8, .join = &join, .refusal = &sim.refusal };
    const struct rdzv_event event = { .type = type,
                                      .joining = &joining,
                                      .failure = &failure,
                                      .how = &stopped,
                                      .signal = 15,
                                      .words = "it is gone",
                                      .next = 1 };
    const bool has_node = type <= RDZV_BACK;
    sim.r->now_ms = sim.now_ms;
    rdzv_step(sim.r, has_node ? rdzv_find(sim.r, 1) : NULL, &event);
}

/* Append the first line that was logged since the latest rsim_forget, without its time. Append nothing if no line was
 * logged. */
static void print_log(struct buf *out)
{
    enum { TIME = 9 };
    const char *line = sim.trace.len > 0 ? (const char *)sim.trace.data : "";
    cr_assert(buf_append(&sim.trace, "", 1));
    for (; *line != '\0'; line += strcspn(line, "\n") + 1)
        if (line[TIME] != ' ') {
            cr_assert(buf_printf(out, ": %.*s", (int)strcspn(line + TIME, "\n"), line + TIME));
            return;
        }
}

static void walk(struct buf *out)
{
    static const char *const names[RDZV_N_EVENTS] = {
        [RDZV_FAILED] = "failed",   [RDZV_EXPLAINED] = "explained", [RDZV_DONE] = "done",
        [RDZV_STOPPED] = "stopped", [RDZV_LEAVE] = "leave",         [RDZV_LOST] = "lost",
        [RDZV_GROW] = "grow",       [RDZV_RECHECK] = "settle",      [RDZV_TIME_UP] = "time is up",
        [RDZV_JOIN] = "join",       [RDZV_HANGS] = "hangs",         [RDZV_BACK] = "back",
    };
    static const char *const kinds[] = { "round", "waiting", "stop", "verdict" };
    for (int state = 0; state < RDZV_N_STATES; state++)
        for (int event = 0; event < RDZV_N_EVENTS; event++) {
            enter_state((enum rdzv_state)state);
            cr_assert_eq((int)rsim_state(&sim), state);
            memset(sim.told, 0, sizeof(sim.told));
            rsim_forget(&sim);
            sim.refusal.code = RDZV_WELCOME;
            step((enum rdzv_event_type)event);
            const size_t before = out->len;
            cr_assert(buf_printf(out, "%s, %s: ", rdzv_state_word((enum rdzv_state)state), names[event]));
            const size_t named = out->len;
            if ((int)rsim_state(&sim) != state)
                cr_assert(buf_printf(out, "%s", rdzv_state_word(rsim_state(&sim))));
            for (int i = 0; i <= RDZV_NOTICE_VERDICT; i++)
                if (sim.told[i] > 0)
                    cr_assert(buf_printf(out, ", %u %s", sim.told[i], kinds[i]));
            print_log(out);
            if (out->len > named)
                cr_assert(buf_append(out, "\n", 1));
            else
                out->len = before;
        }
    cr_assert(buf_append(out, "", 1));
}

/* The text has one row for each state and each event that has an effect in this state. A row has the state, the event,
 * the new state (if the state changes), the messages to nodes, and the first line of the log. */
Test(rendezvous, every_cell_of_the_table)
{
    static const char *const expected =
        "gathering, leave: , 1 verdict: node n0 leaves: SIGTERM from it is gone\n"
        "gathering, lost: : node n0 is lost: it is gone\n"
        "gathering, back: : node n0 has connected again after 0 ms\n"
        "gathering, time is up: over, 1 verdict: too few nodes: 1 of 2 joined within 10 min (--timeout)\n"
        "gathering, join: : node n7 joined (2 of 2 to 3)\n"
        "last call, leave: , 1 verdict: node n0 leaves: SIGTERM from it is gone\n"
        "last call, lost: : node n0 is lost: it is gone\n"
        "last call, back: : node n0 has connected again after 0 ms\n"
        "last call, time is up: running, 2 round: attempt 0 begins: 2 nodes, 4 ranks\n"
        "last call, join: : node n7 joined (3 of 2 to 3)\n"
        "running, failed: stopping, 2 stop: attempt 0 stops: rank 0 on n0 was killed\n"
        "running, done: : node 0 (n0) is done (1 of 2)\n"
        "running, stopped: stopping, 1 stop: attempt 0 stops: node 0 (n0) stopped without giving a reason\n"
        "running, leave: stopping, 1 stop: node 0 (n0) leaves its round: SIGTERM from it is gone\n"
        "running, lost: stopping, 1 stop: node 0 (n0) is lost: it is gone\n"
        "running, back: : node 0 (n0) has connected again after 30.0 s\n"
        "running, hangs: stopping, 2 stop: attempt 0 stops: was killed\n"
        "running, join: : node n7 joined as a spare: a round is running\n"
        "stopping, stopped: : node 0 (n0) has stopped\n"
        "stopping, leave: : node 0 (n0) leaves its round: SIGTERM from it is gone\n"
        "stopping, lost: : node 0 (n0) is lost: it is gone\n"
        "stopping, back: : node 0 (n0) has connected again after 0 ms\n"
        "stopping, time is up: over: node 0 (n0) is lost: its workers did not stop in time\n"
        "stopping, join: : node n7 joined as a spare: a round is running\n"
        "backing off, leave: , 1 verdict: node 0 (n0) leaves: SIGTERM from it is gone\n"
        "backing off, lost: : node 0 (n0) is lost: it is gone\n"
        "backing off, back: : node 0 (n0) has connected again after 0 ms\n"
        "backing off, time is up: gathering\n"
        "backing off, join: : node n7 joined (1 of 2 to 3)\n"
        "over, back: : node 0 (n0) has connected again after 0 ms\n"
        "over, join: : refused (JOB_OVER): job 'j' is over: n7 (pid 107) cannot join; start the job again, "
        "with another --rdzv_id if the old job is still ending\n";
    struct buf walked = { 0 };
    walk(&walked);
    cr_assert_str_eq((char *)walked.data, expected);
    buf_free(&walked);
}

/* --- rdzv join ------------------------------------------------------------------------------------------------ */

/* Tests of who may join. An error names both values and both nodes. */

static void nobody_yet(void)
{
    rsim_init(&sim);
}

static void two_to_four(void)
{
    rsim_init_elastic(&sim, 2, 4);
}

TestSuite(rdzv_join, .init = nobody_yet, .fini = end);

static void expect_refusal(const struct rdzv_join *join, enum rdzv_refused code, const char *sentence)
{
    cr_assert_eq(rsim_join_as(&sim, 7, join), code, "%s: %s", rdzv_refused_code(sim.refusal.code),
                 sim.refusal.sentence);
    cr_assert_eq(sim.refusal.code, code);
    cr_assert_str_eq(sim.refusal.sentence, sentence);
    cr_assert(strlen(rdzv_refused_advice(code)) > 0);
}

Test(rdzv_join, another_version)
{
    struct rdzv_join join = sim.join;
    rsim_join(&sim, 0);
    join.version = "1.1";
    expect_refusal(&join, RDZV_REFUSED_VERSION_DIFFERS,
                   "n7 (pid 107) runs ddprun 1.1, but n0 (pid 100), which joined earlier, runs ddprun 1.0");
    rsim_expect_part(&sim, "refused (VERSION_DIFFERS): n7 (pid 107) runs ddprun 1.1, but n0 (pid 100), which "
                           "joined earlier, runs ddprun 1.0; install "
                           "the same version of ddprun");
    join.version = "1.0.7";
    cr_assert_eq(rsim_join_as(&sim, 7, &join), RDZV_WELCOME);
}

/* No other node has joined, so the error compares the node's version with the store's version. */
Test(rdzv_join, another_version_than_the_stores)
{
    struct rdzv_join join = sim.join;
    const struct rdzv_env env = { .version = "2.3.1" };
    struct quota quota = { .max = 1 << 20 };
    struct rdzv *r = rdzv_new(&env, &quota, "j", "life-1");
    struct rdzv_refusal refusal;
    join.host = "n7";
    join.pid = 107;
    join.version = "2.2.1";
    cr_assert_eq(rdzv_join(r, 1, &join, 0, &refusal), RDZV_REFUSED_VERSION_DIFFERS);
    cr_assert_str_eq(refusal.sentence,
                     "n7 (pid 107) runs ddprun 2.2.1, the store of the job has version 2.3.1");
    join.version = "2.3.0";
    cr_assert_eq(rdzv_join(r, 1, &join, 0, &refusal), RDZV_WELCOME);
    rdzv_free(r);
}

Test(rdzv_join, another_number_of_nodes)
{
    struct rdzv_join join = sim.join;
    rsim_join(&sim, 0);
    join.nnodes_min = join.nnodes_max = 3;
    expect_refusal(&join, RDZV_REFUSED_NNODES_DIFFERS,
                   "n7 (pid 107) has --nnodes=3, n0 (pid 100) has --nnodes=2");
    join.elastic = true;
    join.nnodes_min = 2;
    expect_refusal(&join, RDZV_REFUSED_NNODES_DIFFERS,
                   "n7 (pid 107) has --nnodes=2:3, n0 (pid 100) has --nnodes=2 (static)");
    join.nnodes_max = 2;
    expect_refusal(&join, RDZV_REFUSED_NNODES_DIFFERS,
                   "n7 (pid 107) has --nnodes=2 (elastic), n0 (pid 100) has --nnodes=2 (static)");
}

Test(rdzv_join, two_nodes_of_one_host_are_told_apart)
{
    struct rdzv_join join = sim.join;
    sim.join.node_rank = 0;
    rsim_join(&sim, 0);
    join.host = "n0";
    join.node_rank = 1;
    join.nnodes_min = join.nnodes_max = 3;
    expect_refusal(&join, RDZV_REFUSED_NNODES_DIFFERS,
                   "node 1 (n0, pid 107) has --nnodes=3, node 0 (n0, pid 100) has --nnodes=2");
}

/* Both hosts have the name n0. Only the addresses in the error show which host is meant. */
Test(rdzv_join, two_hosts_of_one_name_are_told_apart)
{
    struct rdzv_join join = sim.join;
    sim.join.addr = "10.9.0.1";
    rsim_join(&sim, 0);
    join.host = "n0";
    join.addr = "10.9.0.2";
    join.version = "1.1";
    expect_refusal(&join, RDZV_REFUSED_VERSION_DIFFERS,
                   "n0 (10.9.0.2, pid 107) runs ddprun 1.1, but n0 (10.9.0.1, pid 100), which joined "
                   "earlier, runs ddprun 1.0");
}

Test(rdzv_join, another_job)
{
    struct rdzv_join join = sim.join;
    join.job = "k";
    expect_refusal(&join, RDZV_REFUSED_JOB_DIFFERS,
                   "n7 (pid 107) belongs to job 'k', but this is the rendezvous of job 'j'");
}

Test(rdzv_join, another_number_of_workers_is_refused_in_an_elastic_job, .init = two_to_four)
{
    struct rdzv_join join = sim.join;
    rsim_join(&sim, 0);
    join.nproc = 8;
    expect_refusal(&join, RDZV_REFUSED_NPROC_DIFFERS,
                   "n7 (pid 107) has --nproc_per_node=8, n0 (pid 100) has --nproc_per_node=2");
    join.uneven = true;
    cr_assert_eq(rsim_join_as(&sim, 7, &join), RDZV_WELCOME);
    cr_assert_eq(rsim_join_as(&sim, 8, &sim.join), RDZV_WELCOME);
}

/* If a node counts its workers itself (gpu, cpu or auto), the numbers of workers may differ between nodes. */
Test(rdzv_join, counted_workers_may_differ, .init = two_to_four)
{
    struct rdzv_join join = sim.join;
    join.nproc_given = false;
    join.nproc = 8;
    cr_assert_eq(rsim_join_as(&sim, 1, &join), RDZV_WELCOME);
    cr_assert_eq(rsim_join(&sim, 2), RDZV_WELCOME);
    join.nproc = 4;
    rsim_forget(&sim);
    cr_assert_eq(rsim_join_as(&sim, 3, &join), RDZV_WELCOME);
    rsim_expect_part(&sim, "node n3 has 4 workers, but n2 has 2\n");
}

Test(rdzv_join, static_nodes_may_bring_different_numbers)
{
    struct rdzv_join join = sim.join;
    rsim_join(&sim, 0);
    join.nproc = 5;
    cr_assert_eq(rsim_join_as(&sim, 1, &join), RDZV_WELCOME);
    rsim_expect_part(&sim, "n1 < round 1: node 1 of 2, ranks from 2 of 7\n");
}

Test(rdzv_join, another_program)
{
    struct rdzv_join join = sim.join;
    rsim_join(&sim, 0);
    join.program = "eval.py";
    expect_refusal(&join, RDZV_REFUSED_PROGRAM_DIFFERS,
                   "n7 (pid 107) starts the program 'eval.py', n0 (pid 100) starts 'train.py'");
    join.uneven = true;
    cr_assert_eq(rsim_join_as(&sim, 7, &join), RDZV_WELCOME);
}

/* The store cuts long program names. Here each name is cut before its two-byte letter. */
Test(rdzv_join, programs_with_one_long_name_are_the_same)
{
    char program[80];
    snprintf(program, sizeof(program), "%062d\xc3\xa9.py", 0);
    sim.join.program = program;
    rsim_join(&sim, 0);
    cr_expect_eq(rsim_join(&sim, 1), RDZV_WELCOME);
}

Test(rdzv_join, a_node_rank_that_is_taken_or_not_there)
{
    struct rdzv_join join = sim.join;
    sim.join.node_rank = join.node_rank = 1;
    rsim_join(&sim, 0);
    expect_refusal(&join, RDZV_REFUSED_NODE_RANK_TAKEN,
                   "n7 (pid 107) has the same --node_rank=1 as n0 (pid 100)");
    join.host = "n0";
    expect_refusal(&join, RDZV_REFUSED_LAUNCHED_TWICE,
                   "ddprun was started twice on n0: pid 107 has the same --node_rank=1 as pid 100");
    join.task = "Slurm";
    expect_refusal(&join, RDZV_REFUSED_WRONG_TASK_LAYOUT,
                   "n0 runs ddprun several times, once for each task of Slurm: pids 100 and 107 both have "
                   "node rank 1");
    join.task = NULL;
    join.host = NULL;
    join.node_rank = 2;
    expect_refusal(&join, RDZV_REFUSED_NODE_RANK_TOO_HIGH,
                   "n7 (pid 107) has --node_rank=2: expected a number from 0 to 1, because --nnodes is 2 on "
                   "node 1 (n0, pid 100)");
}

Test(rdzv_join, the_first_node_cannot_bring_nonsense)
{
    struct rdzv_join join = sim.join;
    join.node_rank = 2;
    expect_refusal(&join, RDZV_REFUSED_NODE_RANK_TOO_HIGH,
                   "n7 (pid 107) has --node_rank=2: expected a number from 0 to 1, because --nnodes is 2");
    join = sim.join;
    join.nproc = 0;
    expect_refusal(&join, RDZV_REFUSED_BAD_JOIN,
                   "n7 (pid 107) has 0 workers: expected a number from 1 to 4096");
    join = sim.join;
    join.nnodes_max = 100000;
    expect_refusal(&join, RDZV_REFUSED_BAD_JOIN,
                   "n7 (pid 107) has --nnodes=2:100000: expected MIN:MAX, with 1 <= MIN <= MAX <= 16384");
    join.nnodes_max = 1;
    expect_refusal(&join, RDZV_REFUSED_BAD_JOIN,
                   "n7 (pid 107) has --nnodes=2:1: expected MIN:MAX, with 1 <= MIN <= MAX <= 16384");
    join.nnodes_max = 3;
    expect_refusal(&join, RDZV_REFUSED_BAD_JOIN,
                   "n7 (pid 107) has --nnodes=2:3: a static job needs one number");
}

Test(rdzv_join, one_node_too_many_is_refused_in_a_static_job)
{
    rsim_join_all(&sim, 0, 1);
    expect_refusal(
        &sim.join, RDZV_REFUSED_JOB_FULL,
        "n7 (pid 107) is one node too many: job 'j' already has 2 of 2 nodes; the first node was n0 "
        "(pid 100)");
}

Test(rdzv_join, one_node_too_many_is_a_spare_in_an_elastic_job, .init = two_to_four)
{
    rsim_join_all(&sim, 0, 4);
    cr_assert(rdzv_is_spare(sim.r, 5));
    cr_assert_not(rdzv_is_spare(sim.r, 4));
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
}

Test(rdzv_join, an_agent_of_an_earlier_life)
{
    struct rdzv_join join = sim.join;
    join.instance = "life-0";
    expect_refusal(
        &join, RDZV_REFUSED_STALE_INSTANCE,
        "n7 (pid 107) belongs to an earlier run of job 'j' (instance id life-0); the present run has "
        "instance id life-1");
}

Test(rdzv_join, a_job_that_is_over)
{
    rsim_join_all(&sim, 0, 1);
    rsim_done(&sim, 0, 1);
    rsim_done(&sim, 1, 1);
    expect_refusal(&sim.join, RDZV_REFUSED_JOB_OVER, "job 'j' is over: n7 (pid 107) cannot join");
    cr_assert_eq(rsim_rejoin(&sim, 0), RDZV_REFUSED_JOB_OVER);
    cr_assert(rdzv_is_over(sim.r));
}

Test(rdzv_join, a_member_cannot_join_twice)
{
    cr_assert_eq(rsim_join(&sim, 0), RDZV_WELCOME);
    cr_assert_eq(rsim_join(&sim, 0), RDZV_WELCOME); /* a second `join` before the round: the same answer */
    rsim_join(&sim, 1);
    cr_assert_eq(rsim_join(&sim, 0), RDZV_REFUSED_ALREADY_IN);
    cr_assert_str_eq(sim.refusal.sentence, "node 0 (n0) takes part in attempt 0 already");
}

/* If all nodes leave before the first round, the next node that joins may bring other rules. So a user can correct a
 * mistake at once. */
Test(rdzv_join, when_all_have_left_before_the_first_round_the_next_brings_new_rules)
{
    struct rdzv_join join = sim.join;
    rsim_join(&sim, 0);
    rsim_lost(&sim, 0);
    join.nnodes_min = join.nnodes_max = 1;
    join.version = "2.0";
    cr_assert_eq(rsim_join_as(&sim, 1, &join), RDZV_WELCOME);
    cr_assert_eq(rsim_state(&sim), RDZV_RUNNING);
}

Test(rdzv_join, what_is_refused_leaves_nothing_behind)
{
    struct rdzv_join join = sim.join;
    join.version = "1.1";
    rsim_join(&sim, 0);
    uint64_t used = sim.quota.used;
    rsim_join_as(&sim, 7, &join);
    cr_assert_eq(sim.quota.used, used);
    cr_assert_not(rdzv_node_facts(sim.r, 8, &(struct rdzv_node_facts){ 0 }));
}

Test(rdzv_join, a_full_store_refuses, .init = two_to_four)
{
    sim.quota.max = sim.quota.used + 5000; /* bytes, enough for a few nodes */
    int n = 0;
    while (n < 20 && rsim_join(&sim, n) == RDZV_WELCOME)
        n++;
    cr_assert(n >= 2 && n < 20, "%d", n);
    cr_assert_eq(sim.refusal.code, RDZV_REFUSED_STORE_FULL);
    rsim_lost(&sim, 0);
    cr_assert_eq(rsim_join(&sim, 0), RDZV_WELCOME);
}

/* The name has 300 letters of two bytes each. The name is cut between two letters. */
Test(rdzv_join, a_long_name_is_cut_between_letters)
{
    char host[601];
    struct rdzv_node_facts facts;
    for (int i = 0; i < 600; i += 2)
        memcpy(host + i, "\xc3\xa9", 3);
    sim.join.host = host;
    rsim_join(&sim, 0);
    cr_assert(rdzv_node_facts(sim.r, 1, &facts));
    cr_assert_eq(strlen(facts.host), 254);
}

/* --- rdzv order ----------------------------------------------------------------------------------------------- */

/* Tests of which node gets which rank. */

Test(rdzv_order, names_are_compared_as_people_do)
{
    const char *const sorted[] = { "",
                                   "a",
                                   "a1",
                                   "a2",
                                   "a10",
                                   "a10b",
                                   "b",
                                   "node01",
                                   "node1",
                                   "node1-9",
                                   "node1-10",
                                   "node2",
                                   "node10",
                                   "node99999999999999999999999999",
                                   "node100000000000000000000000000" };
    const size_t n = sizeof(sorted) / sizeof(sorted[0]);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            int order = rdzv_compare_names(sorted[i], sorted[j]);
            bool right = i < j ? order < 0 : i > j ? order > 0 : order == 0;
            cr_expect(right, "'%s' and '%s': %d", sorted[i], sorted[j], order);
        }
}

static void expect_ranks(const int *nodes, int n)
{
    for (int rank = 0; rank < n; rank++)
        cr_expect_eq(rsim_rank(&sim, nodes[rank]), rank, "n%d has rank %d instead of %d", nodes[rank],
                     rsim_rank(&sim, nodes[rank]), rank);
}

Test(rdzv_order, the_first_round_follows_the_names, .fini = end)
{
    rsim_init_elastic(&sim, 4, 4);
    const int come[] = { 10, 9, 100, 2 };
    for (int i = 0; i < 4; i++)
        rsim_join(&sim, come[i]);
    expect_ranks((const int[]){ 2, 9, 10, 100 }, 4);
}

/* Two agents may run on one host, in a test or by intent. */
Test(rdzv_order, the_pid_orders_nodes_of_one_name, .fini = end)
{
    rsim_init_elastic(&sim, 2, 2);
    sim.join.host = "same";
    rsim_join(&sim, 5);
    rsim_join(&sim, 3);
    expect_ranks((const int[]){ 3, 5 }, 2);
}

/* Let each of the first `n` nodes report that it has stopped. Then let each of them join again, in reverse order. Nodes
 * that have left also report and try to join. */
static void next_round(uint32_t round, int n)
{
    for (int i = 0; i < n; i++)
        rsim_stopped(&sim, i, round);
    for (int i = n - 1; i >= 0; i--)
        rsim_rejoin(&sim, i);
}

Test(rdzv_order, a_gap_is_closed_by_the_highest, .fini = end)
{
    rsim_init_elastic(&sim, 2, 6);
    sim.join.uneven = true;
    rsim_join_all(&sim, 0, 5);
    rsim_lost(&sim, 1);
    rsim_lost(&sim, 2);
    for (int i = 0; i < 6; i++)
        rsim_stopped(&sim, i, 1);
    const int back[] = { 5, 3, 4, 0 };
    for (int i = 0; i < 4; i++)
        rsim_rejoin(&sim, back[i]);
    expect_ranks((const int[]){ 0, 5, 4, 3 }, 4);
}

/* n9 and n1 join after n3 and n4. n9 and n1 get the last node ranks, in the order of their names. */
Test(rdzv_order, newcomers_go_to_the_end, .fini = end)
{
    rsim_init_elastic(&sim, 2, 6);
    sim.join.last_call_ms = 0;
    sim.join.grow = RDZV_GROW_NOW;
    rsim_join_all(&sim, 3, 4);
    rsim_join(&sim, 9);
    rsim_stopped(&sim, 3, 1);
    rsim_join(&sim, 1);
    rsim_stopped(&sim, 4, 1);
    rsim_rejoin(&sim, 4);
    rsim_rejoin(&sim, 3);
    expect_ranks((const int[]){ 3, 4, 1, 9 }, 4);
}

Test(rdzv_order, who_came_first_is_taken_first, .fini = end)
{
    rsim_init_elastic(&sim, 2, 3);
    sim.join.grow = RDZV_GROW_NEVER;
    sim.join.last_call_ms = 0;
    rsim_join_all(&sim, 0, 1);
    rsim_join(&sim, 9);
    rsim_join(&sim, 2);
    rsim_leave(&sim, 0, 15);
    next_round(1, 2);
    expect_ranks((const int[]){ 1, 2, 9 }, 3);
}

Test(rdzv_order, static_ranks_are_those_given, .fini = end)
{
    rsim_init(&sim);
    sim.join.nnodes_min = sim.join.nnodes_max = 4;
    const int wanted[] = { 3, -1, 1, -1 };
    for (int i = 0; i < 4; i++) {
        sim.join.node_rank = wanted[3 - i];
        rsim_join(&sim, 3 - i);
    }
    expect_ranks((const int[]){ 1, 2, 3, 0 }, 4);
}

/* n1 and n3 had no rank before the first round. Later they keep their ranks. */
Test(rdzv_order, static_nodes_keep_what_they_got, .fini = end)
{
    rsim_init(&sim);
    sim.join.nnodes_min = sim.join.nnodes_max = 3;
    sim.join.max_restarts = 9;
    sim.join.backoff_ms = 0;
    rsim_join_all(&sim, 1, 3);
    expect_ranks((const int[]){ 1, 2, 3 }, 3);
    rsim_lost(&sim, 2);
    rsim_stopped(&sim, 1, 1);
    rsim_stopped(&sim, 3, 1);
    rsim_rejoin(&sim, 3);
    rsim_join(&sim, 0);
    rsim_rejoin(&sim, 1);
    expect_ranks((const int[]){ 1, 0, 3 }, 3);
}

/* --- restarts ------------------------------------------------------------------------------------------------- */

/* Tests of the number of attempts, and of the waits before the attempts. */

static struct restarts a;
static const struct rdzv_cause crash = { .why = RDZV_WHY_FAILED, .failure.signal = 11 };

static void begin(uint32_t max_restarts, uint32_t max_no_progress)
{
    const struct rdzv_join rules = { .max_restarts = max_restarts,
                                     .max_no_progress = max_no_progress,
                                     .backoff_ms = 1000,
                                     .backoff_cap_ms = 10000 };
    restarts_init(&a, &rules);
}

/* Let an attempt that reached `step` fail. Return the milliseconds until the next attempt, or -1 if no attempt
 * follows. */
static int64_t next_after(int64_t step)
{
    if (restarts_failed(&a, &crash) != NO_RESTART_NONE)
        return -1;
    return restarts_progress(&a, step) == NO_RESTART_NONE ? (int64_t)restarts_backoff(&a) : -1;
}

Test(restarts, the_budget_is_used_up)
{
    begin(2, 0);
    cr_assert_eq(next_after(-1), 1000);
    cr_assert_eq(next_after(-1), 2000);
    cr_assert_eq(restarts_failed(&a, &crash), NO_RESTART_USED_UP);
}

Test(restarts, who_asked_for_none_is_told_no_reason)
{
    begin(0, 0);
    cr_assert_eq(restarts_failed(&a, &crash), NO_RESTART_NONE);
}

Test(restarts, what_cannot_change_is_not_tried_again)
{
    struct rdzv_cause cause = { .why = RDZV_WHY_FAILED, .no_retry = NO_RESTART_USAGE };
    begin(5, 0);
    cr_assert_eq(restarts_failed(&a, &cause), NO_RESTART_USAGE);
    cause.no_retry = NO_RESTART_IMPORT;
    cr_assert_eq(restarts_failed(&a, &cause), NO_RESTART_IMPORT);
    cause.no_retry = NO_RESTART_CANNOT_START;
    cr_assert_eq(restarts_failed(&a, &cause), NO_RESTART_CANNOT_START);
}

/* No restart is left, but the reported reason is the usage error, because this error helps the user more. */
Test(restarts, a_usage_error_is_named_before_the_budget)
{
    const struct rdzv_cause cause = { .why = RDZV_WHY_FAILED, .no_retry = NO_RESTART_USAGE };
    begin(1, 0);
    next_after(-1);
    cr_assert_eq(restarts_failed(&a, &cause), NO_RESTART_USAGE);
}

Test(restarts, the_wait_doubles_up_to_its_cap_while_nothing_is_told)
{
    begin(100, 0);
    const int64_t waits[] = { 1000, 2000, 4000, 8000, 10000, 10000 };
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
        cr_assert_eq(next_after(-1), waits[i], "wait %zu", i);
}

Test(restarts, who_gets_on_is_not_punished_for_the_past)
{
    begin(100, 0);
    cr_assert_eq(next_after(10), 1000);
    cr_assert_eq(next_after(10), 2000);
    cr_assert_eq(next_after(9), 4000);
    cr_assert_eq(next_after(11), 1000);
}

Test(restarts, standing_still_ends_the_job)
{
    begin(100, 2);
    cr_assert_eq(next_after(42), 1000);
    cr_assert_eq(next_after(42), 2000);
    cr_assert_eq(restarts_failed(&a, &crash), NO_RESTART_NONE);
    cr_assert_eq(restarts_progress(&a, -1), NO_RESTART_NO_PROGRESS);
}

Test(restarts, workers_that_never_tell_are_not_judged_by_it)
{
    begin(100, 2);
    for (int i = 0; i < 50; i++)
        cr_assert(next_after(-1) > 0);
}

Test(restarts, odd_waits_do_not_run_over)
{
    begin(100, 0);
    a.backoff_cap_ms = UINT64_MAX;
    a.backoff_ms = 1ull << 62;
    next_after(-1);
    cr_assert_eq(next_after(-1), INT64_MIN); /* 2^63 */
    next_after(-1);
    cr_assert_eq(restarts_backoff(&a), UINT64_MAX);
    a.backoff_ms = 0;
    cr_assert_eq(restarts_backoff(&a), 0);
    a.backoff_ms = 5000, a.backoff_cap_ms = 100;
    cr_assert_eq(restarts_backoff(&a), 100);
}
