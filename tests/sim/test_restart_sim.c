/* Attempt after attempt, as stories: when the agent starts the workers again, how long it waits, and why it
 * stops to. */
#include "sim_agent.h"

#include "ddp/error.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>

static struct asim sim;

static const struct agent_options options = { .nproc = 2,
                                              .grace_ms = 30000,
                                              .max_restarts = 3,
                                              .backoff_ms = 1000,
                                              .backoff_cap_ms = 3000,
                                              .max_no_progress = 2 };

/* Worker 1 fails after a second, in every attempt. */
static void two_workers(void)
{
    asim_init_with(&sim, &options);
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
                      "          SIGTERM to worker 0\n"
                      "          SIGCONT to worker 0\n"
                      "[  1000] worker 0: killed by SIGTERM (signal 15), consequence\n"
                      "          SIGTERM to what is left\n"
                      "          SIGCONT to what is left\n"
                      "[  1000] nothing is left\n"
                      "          how far did it come?\n"
                      "[  1000] nobody told\n"
                      "          again in 1000 ms\n"
                      "[  2000] time is up\n"
                      "          make ready for attempt 1\n"
                      "[  2000] begin\n"
                      "          start worker 0\n"
                      "[  2000] worker 0 runs\n"
                      "          start worker 1\n"
                      "[  2000] worker 1 runs\n"
                      "[  3000] worker 0: exit 0, ok\n"
                      "[  3000] worker 1: exit 0, ok\n"
                      "          SIGTERM to what is left\n"
                      "          SIGCONT to what is left\n"
                      "[  3000] nothing is left\n"
                      "          finish with 0\n");
    cr_assert_eq(agent_attempt(sim.agent), 1);
    cr_assert_eq(agent_first_failure(sim.agent), -1);
}

/* Somebody who ignores SIGTERM, and a daemon that does, too: the next attempt waits for the end of both. */
Test(restart_sim, nothing_of_the_old_attempt_is_left_when_the_next_begins, .init = two_workers, .fini = done)
{
    sim.good_from = 1;
    sim.worker[0] = (struct asim_worker){
        .lives_ms = ASIM_FOR_EVER, .ignores_polite = true, .leaves_daemon = true, .stubborn_daemon = true
    };
    asim_run(&sim); /* the simulation itself checks that nothing is left */
    cr_assert_eq(sim.exit_code, 0);
    cr_assert_eq(sim.now_ms, 1000 + 30000 + 1000 + 1000, "failure, grace, back-off, the good attempt");
}

/* 1 s, 2 s, then the cap; and after the third restart the job has failed. */
Test(restart_sim, the_wait_doubles_until_the_restarts_are_used_up, .init = two_workers, .fini = done)
{
    int n;
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 4 * 1000 + 1000 + 2000 + 3000);
    cr_assert_eq(sim.exit_code, 7);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_USED_UP);
    const struct agent_attempt *failed = agent_failed_attempts(sim.agent, &n);
    cr_assert_eq(n, 4);
    for (int i = 0; i < n; i++) {
        cr_assert_eq(failed[i].local_rank, 1);
        cr_assert_eq(failed[i].cause.exit_code, 7);
        cr_assert_eq(failed[i].ended_ms - failed[i].started_ms, 1000);
    }
}

Test(restart_sim, ctrl_c_during_the_wait_ends_the_job_at_once, .init = two_workers, .fini = done)
{
    asim_stop_at(&sim, 1500, SIGINT);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1500);
    cr_assert_eq(sim.exit_code, 7, "the failure was first");
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_STOPPED);
}

/* While the failed attempt is still being stopped: it is the last one then. */
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

Test(restart_sim, what_cannot_be_found_is_not_tried_again, .init = two_workers, .fini = done)
{
    sim.worker[0].spawn_error = ENOENT;
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0: could not be started: No such file or directory, not_started\n"
                      "          SIGTERM to what is left\n"
                      "          SIGCONT to what is left\n"
                      "[     0] nothing is left\n"
                      "          finish with 127\n");
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_CANNOT_START);
}

/* The machine was short of processes; that may pass. */
Test(restart_sim, a_shortage_at_the_start_is_tried_again, .init = two_workers, .fini = done)
{
    sim.good_from = 1;
    sim.worker[1].spawn_error = EAGAIN;
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 0);
    cr_assert_eq(agent_attempt(sim.agent), 1);
}

Test(restart_sim, a_usage_error_is_not_tried_again, .init = two_workers, .fini = done)
{
    sim.worker[1].exit_code = 2;
    sim.worker[1].lives_ms = 4999;
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 2);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_USAGE);
    cr_assert_eq(agent_attempt(sim.agent), 0);
}

/* An hour into the training the same code means something else. */
Test(restart_sim, exit_2_after_five_seconds_is_a_failure_like_others, .init = two_workers, .fini = done)
{
    sim.good_from = 1;
    sim.worker[1].exit_code = 2;
    sim.worker[1].lives_ms = 5000;
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 0);
}

/* Step 10, then twice no further: two attempts without progress are enough. */
Test(restart_sim, attempts_that_come_no_further_are_ended, .init = two_workers, .fini = done)
{
    sim.step[0] = sim.step[1] = 10;
    sim.step[2] = 9;
    asim_run(&sim);
    cr_assert_eq(agent_attempt(sim.agent), 2);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_NO_PROGRESS);
    cr_assert_eq(sim.exit_code, 7);
}

/* Each attempt gets on, so the wait stays short, and only the number of restarts ends it. */
Test(restart_sim, progress_keeps_the_wait_short, .init = two_workers, .fini = done)
{
    for (int i = 0; i < ASIM_ATTEMPTS; i++)
        sim.step[i] = 10 * i;
    asim_run(&sim);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_USED_UP);
    cr_assert_eq(sim.now_ms, 4 * 1000 + 3 * 1000);
}

/* It told once; then it dies before it can tell anything. */
Test(restart_sim, an_attempt_that_dies_before_its_first_step_is_no_progress, .init = two_workers,
     .fini = done)
{
    sim.step[0] = 10;
    asim_run(&sim);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_NO_PROGRESS);
    cr_assert_eq(agent_attempt(sim.agent), 2);
}

Test(restart_sim, without_a_store_there_is_no_new_attempt, .init = two_workers, .fini = done)
{
    sim.not_ready = true;
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 7);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_NOT_READY);
    cr_assert_eq(agent_first_failure(sim.agent), 1, "the report still has the failed attempt");
}

/* Beside a process that hangs in the kernel no new attempt could use the same GPU or port. */
Test(restart_sim, no_new_attempt_beside_what_cannot_be_killed, .init = two_workers, .fini = done)
{
    sim.worker[0].stuck = true;
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 124);
    cr_assert_eq(sim.now_ms, 1000 + 30000 + AGENT_UNKILLABLE_MS);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_UNKILLABLE);
}

/* --- who lost a peer ------------------------------------------------------------------------------------ */

/* Worker 0 hears of the death of worker 1 before we do. It is not stopped for that, and not blamed. */
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
                      "[  1000] worker 0: exit 75, gave up because another rank was lost, victim\n"
                      "[  1004] worker 1: killed by SIGSEGV (signal 11), failed\n"
                      "          SIGTERM to worker 2\n"
                      "          SIGCONT to worker 2\n"
                      "[  1004] worker 2: killed by SIGTERM (signal 15), consequence\n"
                      "          SIGTERM to what is left\n"
                      "          SIGCONT to what is left\n"
                      "[  1004] nothing is left\n"
                      "          finish with 139\n");
    cr_assert_eq(agent_first_failure(sim.agent), 1);
}

/* Also when it ends long after: its exit says that something else was first. */
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

/* Nobody else fails: it stands for the cause, and the others are stopped. */
Test(restart_sim, a_lone_victim_is_the_cause_after_a_second, .fini = done)
{
    asim_init(&sim, 2, 30000);
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .exit_code = DDP_EXIT_PEER_LOST };
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1000 + AGENT_DOUBT_MS);
    cr_assert_eq(agent_first_failure(sim.agent), 0);
    cr_assert_eq(sim.exit_code, DDP_EXIT_PEER_LOST);
}

/* One left with 0 too early, the others notice one after the other: nothing is waited for when all are gone. */
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

/* --- what stays behind ---------------------------------------------------------------------------------- */

/* A daemon that hangs in the kernel: SIGKILL is repeated, and then the job leaves without it. */
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

/* The one rule behind all of it: as many attempts as allowed, each failed one on record, and never two at a time
 * (the simulation checks the latter). */
Test(restart_sim, any_job_with_restarts_comes_to_an_end)
{
    for (int round = 0; round < 2000; round++) {
        struct agent_options some = options;
        some.nproc = 1 + (int)roll(8);
        some.max_restarts = (int)roll(5);
        asim_init_with(&sim, &some);
        sim.good_from = (int)roll(6);
        for (int i = 0; i < ASIM_ATTEMPTS; i++)
            sim.step[i] = roll(2) == 0 ? -1 : (int64_t)roll(20);
        for (int r = 0; r < sim.nproc; r++)
            random_worker(&sim.worker[r]);
        if (roll(3) == 0)
            asim_stop_at(&sim, 1 + roll(30000), SIGINT);
        asim_stop_at(&sim, 200000, SIGTERM); /* somebody must end it */
        asim_run(&sim);
        int n, first = agent_first_failure(sim.agent);
        agent_failed_attempts(sim.agent, &n);
        cr_assert_leq(agent_attempt(sim.agent), some.max_restarts);
        cr_assert_eq(n, agent_attempt(sim.agent) + (first >= 0));
        cr_assert_eq(sim.exit_code == 0, first < 0 && agent_stop_signal(sim.agent) == 0);
        asim_free(&sim);
    }
}
