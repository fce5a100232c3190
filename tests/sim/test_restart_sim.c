/* Tests with simulated jobs: how the agent reacts to a verdict, and which failure it reports first if several workers
 * fail. test_rendezvous.c tests the rules by which the store grants another attempt. */
#include "sim_agent.h"

#include "ddp/error.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

static struct asim sim;

static const struct agent_options options = { .nproc = 2, .grace_ms = 30000, .max_restarts = 3 };

/* Start two workers. In every attempt, worker 1 fails after 1 s. The store grants three more attempts, each after a
 * delay of 1 s. */
static void two_workers(void)
{
    asim_init_with(&sim, &options);
    sim.restarts = 3;
    sim.backoff_ms = 1000;
    sim.worker[1] = (struct asim_worker){ .lives_ms = 1000, .exit_code = 7 };
}

static void done(void)
{
    asim_free(&sim);
}

Test(restart_sim, a_failure_is_followed_by_a_new_attempt, .init = two_workers, .fini = done)
{
    sim.good_from = 1;
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "          start worker 1\n"
                      "[     0] worker 1 runs\n"
                      "[  1000] worker 1: exit 7, failed\n"
                      "          tell: worker 1 failed\n"
                      "          sample the survivors\n"
                      "          SIGTERM to worker 0\n"
                      "          SIGCONT to worker 0\n"
                      "[  1000] worker 0: SIGTERM, consequence\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  1000] nothing is left\n"
                      "          take the last output\n"
                      "[  1000] all output is taken\n"
                      "          tell: why it failed\n"
                      "          tell: stopped\n"
                      "[  1000] the verdict\n"
                      "          again in 1000 ms\n"
                      "[  2000] time is up\n"
                      "          join again\n"
                      "[  2000] begin\n"
                      "          start worker 0\n"
                      "[  2000] worker 0 runs\n"
                      "          start worker 1\n"
                      "[  2000] worker 1 runs\n"
                      "[  3000] worker 0: exit 0, ok\n"
                      "[  3000] worker 1: exit 0, ok\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  3000] nothing is left\n"
                      "          tell: done\n"
                      "[  3000] the verdict\n"
                      "          finish with 0\n");
    cr_assert_eq(agent_attempt(sim.agent), 1);
    cr_assert_eq(agent_first_failure(sim.agent), -1);
}

/* A worker and a daemon ignore SIGTERM. The next attempt waits until both have ended. */
Test(restart_sim, nothing_of_the_old_attempt_is_left_when_the_next_begins, .init = two_workers, .fini = done)
{
    sim.good_from = 1;
    sim.worker[0] = (struct asim_worker){
        .lives_ms = ASIM_FOR_EVER, .ignores_polite = true, .leaves_daemon = true, .stubborn_daemon = true
    };
    asim_run(&sim); /* the simulation itself checks that no worker or daemon is left */
    cr_assert_eq(sim.exit_code, 0);
    cr_assert_eq(sim.now_ms, 1000 + 30000 + 1000 + 1000, "failure, grace, back-off, the good attempt");
}

Test(restart_sim, without_a_further_restart_the_verdict_is_the_end, .init = two_workers, .fini = done)
{
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 4 * 1000 + 3 * 1000);
    cr_assert_eq(sim.exit_code, 7);
    cr_assert_eq(agent_attempt(sim.agent), 3);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_USED_UP);
}

Test(restart_sim, ctrl_c_during_the_wait_ends_the_job_at_once, .init = two_workers, .fini = done)
{
    asim_stop_at(&sim, 1500, SIGINT);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1500);
    cr_assert_eq(sim.exit_code, 7, "the failure was first");
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_STOPPED);
}

/* The user presses Ctrl-C while the failed attempt is being stopped, so this attempt is the last one. */
Test(restart_sim, ctrl_c_during_the_stop_means_no_new_attempt, .init = two_workers, .fini = done)
{
    sim.worker[0].slow_ms = 500;
    asim_stop_at(&sim, 1200, SIGINT);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1500);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_STOPPED);
    cr_assert_eq(agent_attempt(sim.agent), 0);
}

Test(restart_sim, ctrl_c_in_a_healthy_second_attempt_is_the_users_stop, .init = two_workers, .fini = done)
{
    sim.good_from = 1;
    asim_stop_at(&sim, 2500, SIGINT);
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 128 + SIGINT);
    cr_assert_eq(agent_attempt(sim.agent), 1);
}

/* --- failures that a restart cannot change -------------------------------------------------------------- */

static enum no_restart after_worker(int lives_ms, int exit_code, int spawn_error)
{
    two_workers();
    sim.restarts = 0;
    sim.worker[1] = (struct asim_worker){ .lives_ms = (uint64_t)lives_ms,
                                          .exit_code = exit_code,
                                          .spawn_error = spawn_error };
    asim_run(&sim);
    const enum no_restart never = agent_never_again(sim.agent);
    done();
    return never;
}

Test(restart_sim, what_cannot_be_found_is_told_as_such)
{
    cr_expect_eq(after_worker(0, 0, ENOENT), NO_RESTART_CANNOT_START);
    cr_expect_eq(after_worker(0, 0, EACCES), NO_RESTART_CANNOT_START);
}

/* A worker cannot start, because processes or memory are short. The shortage may pass, so a restart may help. */
Test(restart_sim, a_shortage_at_the_start_may_pass)
{
    cr_expect_eq(after_worker(0, 0, EAGAIN), NO_RESTART_NONE);
    cr_expect_eq(after_worker(0, 0, ENOMEM), NO_RESTART_NONE);
}

/* Exit code 2 means a usage error only if the worker ends within 5 s. Later this code may have any meaning. */
Test(restart_sim, a_usage_error_shows_within_five_seconds)
{
    cr_expect_eq(after_worker(4999, 2, 0), NO_RESTART_USAGE);
    cr_expect_eq(after_worker(5000, 2, 0), NO_RESTART_NONE);
    cr_expect_eq(after_worker(100, 3, 0), NO_RESTART_NONE);
}

/* --- import errors -------------------------------------------------------------------------------------- */

/* Run two workers that fail after `first_ms` and `second_ms`. The first worker has an import error with hash 7. The
 * second worker has an import error with hash `second_error`, or no import error if `second_error` is 0. Return why the
 * job must not restart. */
static enum no_restart after_imports(uint64_t first_ms, uint64_t second_ms, uint64_t second_error)
{
    two_workers();
    sim.restarts = 0;
    sim.worker[0] = (struct asim_worker){ .lives_ms = first_ms, .exit_code = 1, .import_error = 7 };
    sim.worker[1] =
        (struct asim_worker){ .lives_ms = second_ms, .exit_code = 1, .import_error = second_error };
    asim_run(&sim);
    const enum no_restart never = agent_never_again(sim.agent);
    cr_expect_eq(agent_first_failure(sim.agent), 0);
    done();
    return never;
}

Test(restart_sim, the_same_import_error_of_all_ranks_would_come_again)
{
    cr_expect_eq(after_imports(30, 30, 7), NO_RESTART_IMPORT);
    cr_expect_eq(after_imports(30, 30 + AGENT_SAME_MS - 1, 7), NO_RESTART_IMPORT);
    cr_expect_eq(after_imports(400, 799, 7), NO_RESTART_IMPORT, "a busy machine");
    cr_expect_eq(after_imports(4900, 4999, 7), NO_RESTART_IMPORT);
}

Test(restart_sim, any_other_import_error_is_tried_again)
{
    cr_expect_eq(after_imports(30, 30, 8), NO_RESTART_NONE, "another one");
    cr_expect_eq(after_imports(30, 30, 0), NO_RESTART_NONE, "another failure");
    cr_expect_eq(after_imports(30, 31 + AGENT_SAME_MS, 7), NO_RESTART_NONE,
                 "it was still fine when it was stopped");
    cr_expect_eq(after_imports(30, ASIM_FOR_EVER, 7), NO_RESTART_NONE);
    cr_expect_eq(after_imports(5000, 5000, 7), NO_RESTART_NONE, "not at the start");
    cr_expect_eq(after_imports(3000, 3001 + AGENT_DOUBT_MS, 7), NO_RESTART_NONE,
                 "waited for a second at most");
}

/* Without --max_restarts the other workers are stopped at once, as after any failure. */
Test(restart_sim, without_restarts_an_import_error_is_as_any_failure)
{
    asim_init(&sim, 2, 30000);
    sim.worker[0] = (struct asim_worker){ .lives_ms = 30, .exit_code = 1, .import_error = 7 };
    sim.worker[1] = (struct asim_worker){ .lives_ms = ASIM_FOR_EVER };
    asim_run(&sim);
    cr_expect_eq(sim.now_ms, 30, "%llu", (unsigned long long)sim.now_ms);
    done();
}

Test(restart_sim, what_cannot_be_made_ready_is_no_attempt, .init = two_workers, .fini = done)
{
    sim.not_ready = true;
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 7);
    cr_assert(sim.left, "the other nodes must not wait for this one");
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_NOT_READY);
    cr_assert_eq(agent_first_failure(sim.agent), 1, "the report still has the failed attempt");
}

/* A process of the old attempt hangs in the kernel and keeps its GPU and port. So no new attempt begins. */
Test(restart_sim, no_new_attempt_beside_what_cannot_be_killed, .init = two_workers, .fini = done)
{
    sim.worker[0].stuck = true;
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 124);
    cr_assert_eq(sim.now_ms, 1000 + 30000 + AGENT_UNKILLABLE_MS);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_UNKILLABLE);
}

/* --- ranks that lost a peer ----------------------------------------------------------------------------- */

/* Worker 0 ends before the agent detects the death of worker 1. */
Test(restart_sim, who_lost_a_peer_is_not_the_cause, .fini = done)
{
    asim_init(&sim, 3, 30000);
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .exit_code = DDP_EXIT_PEER_LOST };
    sim.worker[1] = (struct asim_worker){ .lives_ms = 1004, .signal = SIGSEGV };
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "          start worker 1\n"
                      "[     0] worker 1 runs\n"
                      "          start worker 2\n"
                      "[     0] worker 2 runs\n"
                      "[  1000] worker 0: exit 75, victim\n"
                      "[  1004] worker 1: SIGSEGV, failed\n"
                      "          tell: worker 1 failed\n"
                      "          sample the survivors\n"
                      "          SIGTERM to worker 2\n"
                      "          SIGCONT to worker 2\n"
                      "[  1004] worker 2: SIGTERM, consequence\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  1004] nothing is left\n"
                      "          take the last output\n"
                      "[  1004] all output is taken\n"
                      "          tell: why it failed\n"
                      "          tell: stopped\n"
                      "[  1004] the verdict\n"
                      "          finish with 139\n");
    cr_assert_eq(agent_first_failure(sim.agent), 1);
}

/* Worker 1 fails. Worker 0 ends after that, and its exit code shows that another failure was first. */
Test(restart_sim, a_victim_after_the_cause_changes_nothing, .fini = done)
{
    asim_init(&sim, 2, 30000);
    sim.worker[1] = (struct asim_worker){ .lives_ms = 1000, .exit_code = 1 };
    sim.worker[0].polite_exit = DDP_EXIT_PEER_LOST;
    asim_run(&sim);
    cr_assert_eq(agent_first_failure(sim.agent), 1);
    cr_assert_eq(sim.exit_code, 1);
    cr_assert_eq(agent_worker(sim.agent, 0)->verdict, WORKER_VICTIM);
}

/* Worker 0 exits because of a lost peer, but no other worker fails. After AGENT_DOUBT_MS, worker 0 is the first
 * failure, and the agent stops worker 1. */
Test(restart_sim, a_lone_victim_is_the_cause_after_a_second, .fini = done)
{
    asim_init(&sim, 2, 30000);
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .exit_code = DDP_EXIT_PEER_LOST };
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1000 + AGENT_DOUBT_MS);
    cr_assert_eq(agent_first_failure(sim.agent), 0);
    cr_assert_eq(sim.exit_code, DDP_EXIT_PEER_LOST);
}

/* Worker 1 dumps core. Worker 1 ends seconds after its victims, but is the cause. */
Test(restart_sim, who_is_dying_when_the_doubt_ends_is_waited_for, .fini = done)
{
    asim_init(&sim, 3, 30000);
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .exit_code = DDP_EXIT_PEER_LOST };
    sim.worker[1] = (struct asim_worker){ .lives_ms = 5030, .dies_ms = 4050, .signal = SIGSEGV };
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 5030);
    cr_assert_eq(agent_first_failure(sim.agent), 1);
    cr_assert_eq(sim.exit_code, 128 + SIGSEGV);
    cr_assert(buf_append(&sim.trace, "", 1));
    const char *said = strstr((const char *)sim.trace.data, "say that worker 1 is dying");
    cr_assert_not_null(said);
    cr_assert_null(strstr(said + 1, "say that"), "once");
}

/* Worker 1 hangs in the kernel while it dies. The agent waits only for a limited time until worker 1 ends. */
Test(restart_sim, who_dies_too_long_is_not_waited_for, .fini = done)
{
    asim_init(&sim, 2, 1000);
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .exit_code = DDP_EXIT_PEER_LOST };
    sim.worker[1] = (struct asim_worker){ .lives_ms = 90000, .dies_ms = 89050, .stuck = true };
    asim_run(&sim);
    cr_assert_eq(agent_first_failure(sim.agent), 0);
    cr_assert_lt(sim.now_ms, 1000 + AGENT_DOUBT_MS + AGENT_DYING_MS + 1000 + AGENT_UNKILLABLE_MS + 200);
}

/* Worker 0 exits too early with code 0, and the other workers fail at different times as its victims. The agent ends
 * the attempt as soon as all workers have exited. */
Test(restart_sim, when_all_are_victims_the_first_of_them_is_named, .fini = done)
{
    asim_init(&sim, 3, 30000);
    sim.worker[0] = (struct asim_worker){ .lives_ms = 500 };
    sim.worker[1] = (struct asim_worker){ .lives_ms = 1020, .exit_code = DDP_EXIT_PEER_LOST };
    sim.worker[2] = (struct asim_worker){ .lives_ms = 1000, .exit_code = DDP_EXIT_PEER_LOST };
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1020);
    cr_assert_eq(agent_first_failure(sim.agent), 2);
}

Test(restart_sim, the_users_stop_ends_the_doubt, .fini = done)
{
    asim_init(&sim, 2, 30000);
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .exit_code = DDP_EXIT_PEER_LOST };
    asim_stop_at(&sim, 1300, SIGTERM);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1300);
    cr_assert_eq(agent_first_failure(sim.agent), 0, "it gave up before the user did");
}

/* With several nodes, the store may need seconds to detect a lost node. Until then, the agent does not report a worker
 * as the cause if the worker has ended because of a lost peer. */
Test(restart_sim, the_doubt_lasts_as_long_as_the_job_needs, .fini = done)
{
    asim_init_with(&sim, &(struct agent_options){ .nproc = 2, .grace_ms = 30000, .settle_ms = 4000 });
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .exit_code = DDP_EXIT_PEER_LOST };
    asim_told_at(&sim, 4500, 125);
    sim.cause_code = 125;
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 4500);
    cr_assert_not(sim.told_failed);
    cr_assert_eq(agent_first_failure(sim.agent), -1);
    cr_assert_eq(sim.exit_code, 125);
}

/* --- leftovers ------------------------------------------------------------------------------------------ */

/* A daemon hangs in the kernel. */
Test(restart_sim, a_daemon_that_cannot_be_killed_does_not_hold_up_the_end, .fini = done)
{
    asim_init(&sim, 1, 2000);
    sim.immortal_daemons = true;
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .leaves_daemon = true, .stubborn_daemon = true };
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 124);
    cr_assert_eq(sim.now_ms, 1000 + 2000 + AGENT_UNKILLABLE_MS);
}

/* --- chance --------------------------------------------------------------------------------------------- */

static uint64_t dice = 2463534242u;

static unsigned roll(unsigned sides)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (unsigned)(dice % sides);
}

static void random_worker(struct asim_worker *w)
{
    static const int codes[] = { 0, 0, 1, 2, DDP_EXIT_PEER_LOST, DDP_EXIT_PEER_LOST };
    *w = (struct asim_worker){ .lives_ms = roll(3) == 0 ? ASIM_FOR_EVER : roll(8000),
                               .exit_code = codes[roll(6)],
                               .spawn_error = roll(40) == 0 ? EAGAIN : 0,
                               .ignores_polite = roll(4) == 0,
                               .slow_ms = roll(1500),
                               .stuck = roll(60) == 0,
                               .leaves_daemon = roll(4) == 0,
                               .stubborn_daemon = roll(2) == 0 };
}

/* A job never has more attempts than allowed. The simulation itself checks that two attempts never overlap. */
Test(restart_sim, any_job_with_restarts_comes_to_an_end)
{
    for (int round = 0; round < 2000; round++) {
        struct agent_options some = options;
        some.nproc = 1 + (int)roll(8);
        const int restarts = (int)roll(5);
        asim_init_with(&sim, &some);
        sim.restarts = restarts;
        sim.backoff_ms = roll(3000);
        sim.good_from = (int)roll(6);
        sim.verdict_ms = roll(3) == 0 ? roll(4000) : 0;
        for (int r = 0; r < sim.nproc; r++)
            random_worker(&sim.worker[r]);
        if (roll(3) == 0)
            asim_stop_at(&sim, 1 + roll(30000), SIGINT);
        asim_stop_at(&sim, 200000, SIGTERM); /* end a job that does not end by itself */
        asim_run(&sim);
        const int first = agent_first_failure(sim.agent);
        cr_assert_leq(agent_attempt(sim.agent), restarts);
        cr_assert_eq(sim.exit_code == 0, first < 0 && agent_stop_signal(sim.agent) == 0);
        asim_free(&sim);
    }
}
