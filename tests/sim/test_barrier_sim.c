/* Tests of named barriers in a simulated job. The job has a simulated clock, an agent, and workers that arrive, wait
 * and die. */
#include "sim_hub.h"

#include <criterion/criterion.h>

static struct sim sim;

/* Start four ranks. Their processes run, but no rank is connected. */
static void four_ranks(void)
{
    sim_init(&sim, NULL);
    sim_node(&sim, 4);
    for (int rank = 0; rank < 4; rank++)
        sim_started(&sim, rank);
    sim.trace.len = 0;
}

static void connect_workers(void)
{
    for (int rank = 0; rank < 4; rank++)
        sim_worker(&sim, rank, 0, 4);
    sim.trace.len = 0;
}

static void four_workers(void)
{
    four_ranks();
    connect_workers();
}

/* Start four ranks without a rendezvous: an agent declares the attempts. */
static void four_declared(void)
{
    sim_init(&sim, NULL);
    sim_job(&sim, 0, 4);
    connect_workers();
}

static void tear_down(void)
{
    sim_free(&sim);
}

TestSuite(barrier_start, .init = four_ranks, .fini = tear_down);
TestSuite(barrier, .init = four_workers, .fini = tear_down);
TestSuite(barrier_attempts, .init = four_declared, .fini = tear_down);

Test(barrier, all_come_and_all_pass)
{
    sim_barrier(&sim, 2, "a", 30000, NULL);
    sim_barrier(&sim, 0, "a", 30000, NULL);
    sim_later(&sim, 1000);
    sim_barrier(&sim, 1, "a", 30000, NULL);
    sim_expect_trace(&sim, "");
    sim_barrier(&sim, 3, "a", 30000, NULL);
    sim_expect_trace(&sim, "[  1000] rank 0 passes\n"
                           "[  1000] rank 1 passes\n"
                           "[  1000] rank 2 passes\n"
                           "[  1000] rank 3 passes\n");
}

/* One rank has not arrived, another rank waits for a key, and a third rank has never connected. */
Test(barrier_start, a_time_out_says_who_is_missing_and_what_is_known_of_each)
{
    sim_worker(&sim, 0, 0, 4);
    sim_worker(&sim, 1, 0, 4);
    sim_worker(&sim, 2, 0, 4);
    sim_at(&sim, 1000);
    sim_barrier(&sim, 0, "step-1", 30000, NULL);
    sim_at(&sim, 2500);
    sim_wait_key(&sim, 1, "/weights");
    sim_later(&sim, 31000);
    sim_expect_trace(
        &sim,
        "[     0] rank 0 (n1, pid 100) connected from peer:1\n"
        "[     0] rank 1 (n1, pid 101) connected from peer:2\n"
        "[     0] rank 2 (n1, pid 102) connected from peer:3\n"
        "[ 31000] barrier 'step-1' timed out after 30.0 s\n"
        "[ 31000] rank 0 gets outcome 1: barrier 'step-1' timed out after 30.0 s; 1 of 4 ranks have arrived\n"
        "[ 31000]      rank 1: connected (n1, pid 101), but waits for key '/weights', not at the point "
        "where the others wait; last message 28.5 s ago\n"
        "[ 31000]      rank 2: connected (n1, pid 102), but has not reached the point where the others "
        "wait; last message 31.0 s ago\n"
        "[ 31000]      rank 3: started (n1, pid 103), but never connected to the store within 31.0 s\n");
}

/* The first rank sets the deadline of the barrier: the time of its arrival plus its timeout. */
Test(barrier, the_deadline_starts_with_the_first_arrival)
{
    sim_at(&sim, 5000);
    sim_barrier(&sim, 0, "a", 10000, "0 1 2");
    sim_at(&sim, 9000);
    sim_barrier(&sim, 1, "a", 90000, "2 1 0");
    sim_later(&sim, 14999);
    sim_expect_trace(&sim, "");
    sim_later(&sim, 15000);
    sim_expect_trace(
        &sim,
        "[ 15000] barrier 'a' timed out after 10.0 s\n"
        "[ 15000] rank 0 gets outcome 1: barrier 'a' timed out after 10.0 s; 2 of 3 ranks have arrived\n"
        "[ 15000]      rank 2: connected (n1, pid 102), but has not reached the point where the others "
        "wait; last message 15.0 s ago\n"
        "[ 15000] rank 1 gets outcome 1: barrier 'a' timed out after 10.0 s; 2 of 3 ranks have arrived\n"
        "[ 15000]      rank 2: connected (n1, pid 102), but has not reached the point where the others "
        "wait; last message 15.0 s ago\n");
}

Test(barrier, who_comes_too_late_gets_the_same_outcome_once)
{
    sim_barrier(&sim, 0, "a", 1000, "0 1");
    sim_later(&sim, 1000);
    sim.trace.len = 0;
    sim_at(&sim, 3000);
    sim_barrier(&sim, 1, "a", 1000, "0 1");
    sim_barrier(&sim, 1, "a", 1000, "0 1");
    sim_expect_trace(
        &sim, "[  3000] rank 1 gets outcome 1: barrier 'a' timed out after 1.0 s; 1 of 2 ranks have arrived\n"
              "[  3000]      rank 1: connected (n1, pid 101), but has not reached the point where the others "
              "wait; last message 1.0 s ago\n"
              "[  3000] rank 1 gets outcome 4: barrier 'a' is misused: the barrier with this name has "
              "already failed; use each name only once\n");
}

Test(barrier, a_dead_process_fails_it_for_all_at_once)
{
    sim_barrier(&sim, 0, "a", 30000, NULL);
    sim_barrier(&sim, 1, "a", 30000, NULL);
    sim_at(&sim, 700);
    sim_worker_gone(&sim, 3);
    sim_expect_trace(&sim, "");
    sim_exited(&sim, 3, 0, 9);
    sim_expect_trace(
        &sim,
        "[   700] barrier 'a' cannot complete: rank 3 killed by signal 9, SIGKILL (n1, pid 103)\n"
        "[   700] rank 0 gets outcome 2: barrier 'a' cannot complete: rank 3 killed by signal 9, SIGKILL "
        "(n1, pid 103); 2 of 4 ranks have arrived\n"
        "[   700]      rank 2: connected (n1, pid 102), but has not reached the point where the others "
        "wait; last message 700 ms ago\n"
        "[   700]      rank 3: killed by signal 9, SIGKILL (n1, pid 103)\n"
        "[   700] rank 1 gets outcome 2: barrier 'a' cannot complete: rank 3 killed by signal 9, SIGKILL "
        "(n1, pid 103); 2 of 4 ranks have arrived\n"
        "[   700]      rank 2: connected (n1, pid 102), but has not reached the point where the others "
        "wait; last message 700 ms ago\n"
        "[   700]      rank 3: killed by signal 9, SIGKILL (n1, pid 103)\n");
}

/* Rank 1's process ends after its arrival. */
Test(barrier, a_rank_that_has_come_and_dies_counts_as_missing)
{
    sim_barrier(&sim, 0, "a", 30000, "0 1 2");
    sim_barrier(&sim, 1, "a", 30000, "0 1 2");
    sim_exited(&sim, 1, 0, 9);
    sim_expect_trace(
        &sim,
        "[     0] barrier 'a' cannot complete: rank 1 killed by signal 9, SIGKILL (n1, pid 101)\n"
        "[     0] rank 0 gets outcome 2: barrier 'a' cannot complete: rank 1 killed by signal 9, SIGKILL "
        "(n1, pid 101); 1 of 3 ranks have arrived\n"
        "[     0]      rank 1: killed by signal 9, SIGKILL (n1, pid 101)\n"
        "[     0]      rank 2: connected (n1, pid 102), but has not reached the point where the others "
        "wait; last message 0 ms ago\n"
        "[     0] rank 1 gets outcome 2: barrier 'a' cannot complete: rank 1 killed by signal 9, SIGKILL "
        "(n1, pid 101); 1 of 3 ranks have arrived\n"
        "[     0]      rank 1: killed by signal 9, SIGKILL (n1, pid 101)\n"
        "[     0]      rank 2: connected (n1, pid 102), but has not reached the point where the others "
        "wait; last message 0 ms ago\n");
}

/* The process of rank 1 ends before rank 0 arrives, so the deadline does not matter. */
Test(barrier, a_process_that_died_before_fails_the_first_arrival)
{
    sim_exited(&sim, 1, 3, 0);
    sim_barrier(&sim, 0, "a", 30000, "0 1");
    sim_expect_trace(
        &sim,
        "[     0] barrier 'a' cannot complete: rank 1 exited with code 3 (n1, pid 101)\n"
        "[     0] rank 0 gets outcome 2: barrier 'a' cannot complete: rank 1 exited with code 3 (n1, pid "
        "101); 1 of 2 ranks have arrived\n"
        "[     0]      rank 1: exited with code 3 (n1, pid 101)\n");
}

Test(barrier, a_process_that_died_long_before_is_told_with_the_time)
{
    sim_at(&sim, 1000);
    sim_exited(&sim, 1, 3, 0);
    sim_at(&sim, 13000);
    sim_barrier(&sim, 0, "a", 30000, "0 1");
    sim_expect_trace(
        &sim,
        "[ 13000] barrier 'a' cannot complete: rank 1 exited with code 3 (n1, pid 101), 12.0 s ago\n"
        "[ 13000] rank 0 gets outcome 2: barrier 'a' cannot complete: rank 1 exited with code 3 (n1, pid "
        "101), 12.0 s ago; 1 of 2 ranks have arrived\n"
        "[ 13000]      rank 1: exited with code 3 (n1, pid 101), 12.0 s ago\n");
}

Test(barrier, the_death_of_others_does_not_matter)
{
    sim_barrier(&sim, 0, "a", 30000, "0 1");
    sim_exited(&sim, 3, 1, 0);
    sim_expect_trace(&sim, "");
    sim_barrier(&sim, 1, "a", 30000, "0 1");
    sim_expect_trace(&sim, "[     0] rank 0 passes\n"
                           "[     0] rank 1 passes\n");
}

/* A worker that closes its connection to the store is not dead: it may connect again, or its agent will report its
 * end. */
Test(barrier, a_closed_connection_alone_fails_nothing)
{
    sim_barrier(&sim, 0, "a", 30000, "0 1");
    sim_at(&sim, 1000);
    sim_worker_gone(&sim, 1);
    sim_expect_trace(&sim, "");
    sim_later(&sim, 30000);
    sim_expect_trace(
        &sim,
        "[ 30000] barrier 'a' timed out after 30.0 s\n"
        "[ 30000] rank 0 gets outcome 1: barrier 'a' timed out after 30.0 s; 1 of 2 ranks have arrived\n"
        "[ 30000]      rank 1: was connected (n1, pid 101), but closed its connection to the store; last "
        "message 30.0 s "
        "ago\n");
}

Test(barrier, who_leaves_may_come_again)
{
    sim_barrier(&sim, 0, "a", 30000, "0 1");
    sim_cancel_wait(&sim, 0);
    sim_at(&sim, 40000); /* the barrier is empty: no deadline runs */
    sim_barrier(&sim, 1, "a", 30000, "0 1");
    sim_worker_gone(&sim, 1);
    sim_worker(&sim, 1, 0, 4);
    sim_barrier(&sim, 0, "a", 30000, "0 1");
    sim_barrier(&sim, 1, "a", 30000, "0 1");
    sim_expect_trace(&sim, "[     0] rank 0 left its wait\n"
                           "[ 40000] rank 1 (n1, pid 101) connected from peer:2\n"
                           "[ 40000] rank 0 passes\n"
                           "[ 40000] rank 1 passes\n");
}

Test(barrier, an_operator_cancels_it)
{
    sim_barrier(&sim, 0, "a", 30000, "0 1");
    sim_client(&sim, SIM_OPERATOR);
    cr_assert_str_eq(sim_control(&sim, SIM_OPERATOR, "{\"op\":\"barrier_cancel\",\"name\":\"a\"}"),
                     "{\"ok\":true}");
    sim_cancel_wait(&sim, 3);
    sim_expect_trace(
        &sim,
        "[     0] barrier 'a' was cancelled by peer:510\n"
        "[     0] rank 0 gets outcome 3: barrier 'a' was cancelled by peer:510; 1 of 2 ranks have arrived\n"
        "[     0]      rank 1: connected (n1, pid 101), but has not reached the point where the others "
        "wait; last message 0 ms ago\n"
        "[     0] rank 3 left its wait\n");
}

/* The barrier has two members. */
Test(barrier, only_a_member_is_missing_for_an_operator)
{
    sim_barrier(&sim, 0, "a", 30000, "0 1");
    sim_client(&sim, SIM_OPERATOR);
    sim_at(&sim, 20000);
    const char *why = sim_control(&sim, SIM_OPERATOR, "{\"op\":\"why\"}");
    cr_expect_not_null(strstr(why, "\"subject\":\"rank 1\""), "%s", why);
    cr_expect_null(strstr(why, "\"subject\":\"rank 2\""), "%s", why);
}

Test(barrier, misuse_is_told_to_the_one_who_does_it)
{
    sim_barrier(&sim, 0, "a", 30000, "0 1 2");
    sim_barrier(&sim, 1, "a", 30000, "0 1");
    sim_barrier(&sim, 3, "a", 30000, "0 1 2");
    sim_barrier(&sim, 3, "b", -1, NULL);
    sim_barrier(&sim, 3, "b", 0, "3 4");
    sim_expect_trace(
        &sim, "[     0] rank 1 gets outcome 4: barrier 'a' is misused: earlier callers have another list of "
              "members\n"
              "[     0] rank 3 gets outcome 4: barrier 'a' is misused: this rank is not a member\n"
              "[     0] rank 3 gets outcome 4: barrier 'b' is misused: the timeout is negative\n"
              "[     0] rank 3 gets outcome 4: barrier 'b' is misused: a rank in the list of members is not "
              "below the world size\n");
}

Test(barrier_attempts, a_new_attempt_frees_all_names)
{
    sim_barrier(&sim, 0, "a", 30000, "0");
    sim_barrier(&sim, 0, "a", 30000, "0");
    sim_barrier(&sim, 1, "b", 30000, NULL);
    sim_at(&sim, 10);
    sim_job(&sim, 1, 2);
    sim_worker(&sim, 0, 1, 2);
    sim_barrier(&sim, 0, "a", 30000, "0");
    sim_later(&sim, 50000);
    sim_expect_trace(&sim, "[     0] rank 0 passes\n"
                           "[     0] rank 0 gets outcome 4: barrier 'a' is misused: the barrier with this "
                           "name is already over; use each name only once\n"
                           "[    10] attempt 1 of job 'demo' begins with 2 ranks\n"
                           "[    10] rank 0 (n1, pid 100) connected from peer:1\n"
                           "[    10] rank 0 passes\n");
    sim_expect(&sim, 2, "closed: this connection belongs to an attempt that has ended");
}
