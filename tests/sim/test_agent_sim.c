/* Simulate one node from start to end. The tests check the agent's effects when workers end, fail, ignore signals or
 * leave processes behind. */
#include "ddp/error.h"
#include "sim_agent.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>

static struct asim sim;

static void two_workers(void)
{
    asim_init(&sim, 2, 30000);
}

static void done(void)
{
    asim_free(&sim);
}

Test(agent_sim, a_good_job_ends_with_zero, .init = two_workers, .fini = done)
{
    sim.worker[0].lives_ms = 5000;
    sim.worker[1].lives_ms = 4000;
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "          start worker 1\n"
                      "[     0] worker 1 runs\n"
                      "[  4000] worker 1: exit 0, ok\n"
                      "[  5000] worker 0: exit 0, ok\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  5000] nothing is left\n"
                      "          tell: done\n"
                      "[  5000] the verdict\n"
                      "          finish with 0\n");
}

Test(agent_sim, a_good_job_of_one_node_needs_no_verdict, .fini = done)
{
    asim_init_with(&sim, &(struct agent_options){ .nproc = 1, .grace_ms = 30000, .alone = true });
    sim.worker[0].lives_ms = 5000;
    sim.verdict_ms = ASIM_FOR_EVER;
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "[  5000] worker 0: exit 0, ok\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  5000] nothing is left\n"
                      "          tell: done\n"
                      "          finish with 0\n");
}

Test(agent_sim, the_first_failure_stops_the_others, .init = two_workers, .fini = done)
{
    sim.worker[1].lives_ms = 1000;
    sim.worker[1].exit_code = 7;
    sim.worker[0].slow_ms = 200;
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
                      "[  1200] worker 0: SIGTERM, consequence\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  1200] nothing is left\n"
                      "          take the last output\n"
                      "[  1200] all output is taken\n"
                      "          tell: why it failed\n"
                      "          tell: stopped\n"
                      "[  1200] the verdict\n"
                      "          finish with 7\n");
    cr_assert_eq(agent_first_failure(sim.agent), 1);
}

Test(agent_sim, who_ignores_sigterm_is_killed_after_the_grace_time, .init = two_workers, .fini = done)
{
    sim.worker[0].lives_ms = 1000;
    sim.worker[0].signal = SIGSEGV;
    sim.worker[1].ignores_polite = true;
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "          start worker 1\n"
                      "[     0] worker 1 runs\n"
                      "[  1000] worker 0: SIGSEGV, failed\n"
                      "          tell: worker 0 failed\n"
                      "          sample the survivors\n"
                      "          SIGTERM to worker 1\n"
                      "          SIGCONT to worker 1\n"
                      "[ 31000] time is up\n"
                      "          SIGKILL to worker 1\n"
                      "          SIGKILL to the rest\n"
                      "[ 31000] worker 1: SIGKILL, consequence\n"
                      "          SIGKILL to the rest\n"
                      "[ 31000] nothing is left\n"
                      "          take the last output\n"
                      "[ 31000] all output is taken\n"
                      "          tell: why it failed\n"
                      "          tell: stopped\n"
                      "[ 31000] the verdict\n"
                      "          finish with 139\n");
}

/* At the first Ctrl-C, the workers get the same signal. Then they have time to end by themselves. */
Test(agent_sim, ctrl_c_once_is_graceful, .init = two_workers, .fini = done)
{
    sim.worker[0].slow_ms = sim.worker[1].slow_ms = 3000;
    sim.worker[0].polite_exit = 1;
    asim_stop_at(&sim, 2000, SIGINT);
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "          start worker 1\n"
                      "[     0] worker 1 runs\n"
                      "[  2000] the user sends SIGINT\n"
                      "          leave\n"
                      "          SIGINT to worker 0\n"
                      "          SIGCONT to worker 0\n"
                      "          SIGINT to worker 1\n"
                      "          SIGCONT to worker 1\n"
                      "[  5000] worker 0: exit 1, consequence\n"
                      "[  5000] worker 1: SIGINT, consequence\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  5000] nothing is left\n"
                      "          tell: stopped\n"
                      "[  5000] the verdict\n"
                      "          finish with 130\n");
    cr_assert_eq(agent_first_failure(sim.agent), -1);
}

Test(agent_sim, ctrl_c_twice_kills, .fini = done)
{
    asim_init(&sim, 1, 30000);
    sim.worker[0].ignores_polite = true;
    asim_stop_at(&sim, 2000, SIGINT);
    asim_stop_at(&sim, 2500, SIGINT);
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "[  2000] the user sends SIGINT\n"
                      "          leave\n"
                      "          SIGINT to worker 0\n"
                      "          SIGCONT to worker 0\n"
                      "[  2500] the user sends SIGINT\n"
                      "          SIGKILL to worker 0\n"
                      "          SIGKILL to the rest\n"
                      "[  2500] worker 0: SIGKILL, consequence\n"
                      "          SIGKILL to the rest\n"
                      "[  2500] nothing is left\n"
                      "          tell: stopped\n"
                      "[  2500] the verdict\n"
                      "          finish with 130\n");
}

/* The second of three workers cannot be started. The third is not tried, and the first is stopped. */
Test(agent_sim, a_worker_that_cannot_start_stops_the_job, .fini = done)
{
    asim_init(&sim, 3, 30000);
    sim.worker[1].spawn_error = ENOENT;
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "          start worker 1\n"
                      "[     0] worker 1: No such file or directory, not_started\n"
                      "          tell: worker 1 failed\n"
                      "          SIGTERM to worker 0\n"
                      "          SIGCONT to worker 0\n"
                      "[     0] worker 0: SIGTERM, consequence\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[     0] nothing is left\n"
                      "          take the last output\n"
                      "[     0] all output is taken\n"
                      "          tell: why it failed\n"
                      "          tell: stopped\n"
                      "[     0] the verdict\n"
                      "          finish with 127\n");
    cr_assert_eq(agent_worker(sim.agent, 2)->verdict, WORKER_PENDING);
}

/* A daemon outlives its worker. The daemon gets at most five seconds, not the whole grace period. */
Test(agent_sim, a_stubborn_daemon_left_behind_is_killed, .fini = done)
{
    asim_init(&sim, 1, 30000);
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .leaves_daemon = true, .stubborn_daemon = true };
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "[  1000] worker 0: exit 0, ok\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  6000] time is up\n"
                      "          SIGKILL to the rest\n"
                      "[  6000] nothing is left\n"
                      "          tell: done\n"
                      "[  6000] the verdict\n"
                      "          finish with 0\n");
}

Test(agent_sim, of_two_failures_in_one_instant_the_first_is_named, .init = two_workers, .fini = done)
{
    sim.worker[1] = (struct asim_worker){ .lives_ms = 1000, .exit_code = 9 };
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .signal = SIGABRT };
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "          start worker 1\n"
                      "[     0] worker 1 runs\n"
                      "[  1000] worker 0: SIGABRT, failed\n"
                      "          tell: worker 0 failed\n"
                      "          sample the survivors\n"
                      "          SIGTERM to worker 1\n"
                      "          SIGCONT to worker 1\n"
                      "[  1000] worker 1: exit 9, failed\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  1000] nothing is left\n"
                      "          take the last output\n"
                      "[  1000] all output is taken\n"
                      "          tell: why it failed\n"
                      "          tell: stopped\n"
                      "[  1000] the verdict\n"
                      "          finish with 134\n");
    cr_assert_eq(agent_first_failure(sim.agent), 0);
}

/* Even SIGKILL does not end the worker. The agent waits only AGENT_UNKILLABLE_MS for its end. */
Test(agent_sim, a_worker_stuck_in_the_kernel_is_left_to_the_report, .fini = done)
{
    asim_init(&sim, 1, 1000);
    sim.worker[0].stuck = true;
    asim_stop_at(&sim, 500, SIGTERM);
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "[   500] the user sends SIGTERM\n"
                      "          leave\n"
                      "          SIGTERM to worker 0\n"
                      "          SIGCONT to worker 0\n"
                      "[  1500] time is up\n"
                      "          SIGKILL to worker 0\n"
                      "          SIGKILL to the rest\n"
                      "[  3000] time is up\n"
                      "          tell: stopped\n"
                      "[  3000] the verdict\n"
                      "          finish with 124\n");
    cr_assert_eq(agent_worker(sim.agent, 0)->verdict, WORKER_ALIVE);
}

/* The user presses Ctrl-C while a failed job is being stopped. One Ctrl-C changes nothing, two end the job at once. */
Test(agent_sim, ctrl_c_during_a_stop_counts_from_one, .init = two_workers, .fini = done)
{
    sim.worker[0] = (struct asim_worker){ .lives_ms = 1000, .exit_code = 3 };
    sim.worker[1].ignores_polite = true;
    asim_stop_at(&sim, 2000, SIGINT);
    asim_stop_at(&sim, 3000, SIGINT);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 3000);
    cr_assert_eq(sim.exit_code, 3, "the failure was first");
    cr_assert_eq(agent_stop_signal(sim.agent), SIGINT);
}

static uint64_t dice = 88172645463325252u;

static unsigned roll(unsigned sides)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (unsigned)(dice % sides);
}

static void random_worker(struct asim_worker *w)
{
    static const int signals[] = { 0, 0, 0, SIGSEGV, SIGABRT, SIGTERM, SIGKILL };
    *w = (struct asim_worker){ .lives_ms = roll(3) == 0 ? ASIM_FOR_EVER : roll(2000),
                               .exit_code = roll(2) == 0 ? 0 : (int)roll(256),
                               .signal = signals[roll(7)],
                               .spawn_error = roll(20) == 0 ? EACCES : 0,
                               .ignores_polite = roll(4) == 0,
                               .slow_ms = roll(1500),
                               .polite_exit = (int)roll(3),
                               .stuck = roll(30) == 0,
                               .leaves_daemon = roll(4) == 0,
                               .stubborn_daemon = roll(2) == 0 };
    if (w->signal != 0)
        w->exit_code = 0;
}

/* Check the end of a job. Only stuck workers are left, and the first failure is the earliest failure. The exit code is
 * 0 only if there was no failure and no stop. */
static void check_end(const struct asim *s)
{
    int first = agent_first_failure(s->agent);
    for (int r = 0; r < s->nproc; r++) {
        const struct agent_worker *w = agent_worker(s->agent, r);
        cr_assert_eq(w->verdict == WORKER_ALIVE, s->alive[r] && s->started[r]);
        cr_assert(!s->alive[r] || s->worker[r].stuck, "finished with worker %d alive", r);
        cr_assert_eq(s->told_exit[r], s->started[r] && !s->alive[r]);
        if (w->verdict == WORKER_FAILED && agent_stop_signal(s->agent) == 0) {
            cr_assert_geq(first, 0);
            cr_assert_leq(agent_worker(s->agent, first)->ended_ms, w->ended_ms);
        }
    }
    cr_assert_eq(agent_deadline(s->agent), UINT64_MAX);
    cr_assert_eq(s->exit_code, agent_exit_code(s->agent));
    cr_assert_eq(s->exit_code == 0, first < 0 && agent_stop_signal(s->agent) == 0);
}

Test(agent_sim, any_job_comes_to_an_end_with_nothing_alive)
{
    for (int round = 0; round < 3000; round++) {
        asim_init(&sim, 1 + (int)roll(ASIM_WORKERS), roll(4000));
        for (int r = 0; r < sim.nproc; r++)
            random_worker(&sim.worker[r]);
        for (unsigned stops = roll(4); stops > 0; stops--)
            asim_stop_at(&sim, 1 + roll(3000), roll(2) == 0 ? SIGINT : SIGTERM);
        /* a user must end a job that does not end by itself */
        asim_stop_at(&sim, 10000, SIGTERM);
        asim_run(&sim);
        check_end(&sim);
        asim_free(&sim);
    }
}

/* Tests of the agent's reaction to other nodes and the store. The test sends the store's messages. */

/* Start one worker with a silent store. */
static void one_worker(void)
{
    asim_init_with(&sim, &(struct agent_options){
                             .nproc = 1, .grace_ms = 30000, .wait_peers_ms = 300000, .max_restarts = 1 });
    sim.verdict_ms = ASIM_FOR_EVER;
}

static const struct agent_verdict again = { .restart = true, .backoff_ms = 500 };

static struct agent_verdict ends_with(int code)
{
    return (struct agent_verdict){
        .no_restart = NO_RESTART_USED_UP, .exit_first = code, .exit_max = code, .exit_rank0 = code
    };
}

Test(agent_nodes, a_failure_elsewhere_stops_the_workers_here, .init = one_worker, .fini = done)
{
    const struct agent_verdict end = ends_with(7);
    sim.worker[0].polite_exit = 3;
    sim.worker[0].slow_ms = 200;
    asim_told_at(&sim, 1000, 7);
    asim_verdict_at(&sim, 2000, &end);
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "[  1000] the store says stop: exit 7\n"
                      "          sample the survivors\n"
                      "          SIGTERM to worker 0\n"
                      "          SIGCONT to worker 0\n"
                      "[  1200] worker 0: exit 3, consequence\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  1200] nothing is left\n"
                      "          take the last output\n"
                      "[  1200] all output is taken\n"
                      "          tell: stopped\n"
                      "[  2000] the verdict\n"
                      "          finish with 7\n");
    cr_assert_eq(agent_first_failure(sim.agent), -1);
}

/* The worker failed a moment before the agent received the message that a worker of another node had failed first. The
 * agent still reports the failure of this worker. But the agent does not send the message `cause` with the details,
 * because the other failure was first. */
Test(agent_nodes, who_failed_second_explains_nothing, .init = one_worker, .fini = done)
{
    const struct agent_verdict end = ends_with(9);
    sim.worker[0] = (struct asim_worker){
        .lives_ms = 999, .exit_code = 3, .leaves_daemon = true, .stubborn_daemon = true
    };
    asim_told_at(&sim, 1000, 9);
    asim_verdict_at(&sim, 9000, &end);
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "[   999] worker 0: exit 3, failed\n"
                      "          tell: worker 0 failed\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  1000] the store says stop: exit 9\n"
                      "[  5999] time is up\n"
                      "          SIGKILL to the rest\n"
                      "[  5999] nothing is left\n"
                      "          take the last output\n"
                      "[  5999] all output is taken\n"
                      "          tell: stopped\n"
                      "[  9000] the verdict\n"
                      "          finish with 9\n");
}

Test(agent_nodes, every_node_starts_again_together, .init = one_worker, .fini = done)
{
    const struct agent_verdict end = ends_with(0);
    sim.good_from = 1;
    asim_told_at(&sim, 1000, 7);
    asim_verdict_at(&sim, 1500, &again);
    asim_verdict_at(&sim, 4000, &end);
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "[  1000] the store says stop: exit 7\n"
                      "          sample the survivors\n"
                      "          SIGTERM to worker 0\n"
                      "          SIGCONT to worker 0\n"
                      "[  1000] worker 0: SIGTERM, consequence\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  1000] nothing is left\n"
                      "          take the last output\n"
                      "[  1000] all output is taken\n"
                      "          tell: stopped\n"
                      "[  1500] the verdict\n"
                      "          again in 500 ms\n"
                      "[  2000] time is up\n"
                      "          join again\n"
                      "[  2000] begin\n"
                      "          start worker 0\n"
                      "[  2000] worker 0 runs\n"
                      "[  3000] worker 0: exit 0, ok\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  3000] nothing is left\n"
                      "          tell: done\n"
                      "[  4000] the verdict\n"
                      "          finish with 0\n");
}

Test(agent_nodes, who_is_done_waits_and_says_so, .init = one_worker, .fini = done)
{
    const struct agent_verdict end = ends_with(0);
    sim.worker[0].lives_ms = 1000;
    asim_verdict_at(&sim, 60000, &end);
    asim_run(&sim);
    asim_expect(&sim, "[     0] begin\n"
                      "          start worker 0\n"
                      "[     0] worker 0 runs\n"
                      "[  1000] worker 0: exit 0, ok\n"
                      "          SIGTERM to the rest\n"
                      "          SIGCONT to the rest\n"
                      "[  1000] nothing is left\n"
                      "          tell: done\n"
                      "[  6000] time is up\n"
                      "          say that others are waited for\n"
                      "[ 60000] the verdict\n"
                      "          finish with 0\n");
}

Test(agent_nodes, who_is_done_does_not_wait_for_ever, .init = one_worker, .fini = done)
{
    sim.worker[0].lives_ms = 1000;
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 301000);
    cr_assert_eq(sim.exit_code, 0);
}

/* All workers of this node have ended with 0, but the job has failed. */
Test(agent_nodes, a_failure_elsewhere_is_also_the_failure_of_who_is_done, .init = one_worker, .fini = done)
{
    const struct agent_verdict end = ends_with(139);
    sim.worker[0].lives_ms = 1000;
    asim_told_at(&sim, 3000, 139);
    asim_verdict_at(&sim, 3100, &end);
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 139);
    cr_assert_eq(sim.now_ms, 3100);
}

Test(agent_nodes, who_is_done_takes_part_in_the_next_attempt, .init = one_worker, .fini = done)
{
    const struct agent_verdict end = ends_with(0);
    sim.worker[0].lives_ms = 1000;
    asim_told_at(&sim, 3000, 139);
    asim_verdict_at(&sim, 3100, &again);
    asim_verdict_at(&sim, 5000, &end);
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 0);
    cr_assert_eq(agent_attempt(sim.agent), 1);
}

/* After Ctrl-C, the node waits at most AGENT_LEAVE_MS for the verdict, even if other nodes use their whole grace
 * period. */
Test(agent_nodes, ctrl_c_waits_a_moment_for_the_verdict_and_no_longer, .init = one_worker, .fini = done)
{
    asim_stop_at(&sim, 1000, SIGINT);
    asim_run(&sim);
    cr_assert(sim.left && sim.told_end);
    cr_assert_eq(sim.now_ms, 1000 + AGENT_LEAVE_MS);
    cr_assert_eq(sim.exit_code, 130);
}

Test(agent_nodes, ctrl_c_twice_waits_for_nothing, .init = one_worker, .fini = done)
{
    asim_told_at(&sim, 1000, 7);
    asim_stop_at(&sim, 1100, SIGINT);
    asim_stop_at(&sim, 1200, SIGINT);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1200);
    cr_assert_eq(sim.exit_code, 7, "the failure was first");
}

Test(agent_nodes, a_verdict_that_comes_in_time_has_the_last_word, .init = one_worker, .fini = done)
{
    const struct agent_verdict end = ends_with(9);
    asim_stop_at(&sim, 1000, SIGINT);
    asim_verdict_at(&sim, 1500, &end);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1500);
    cr_assert_eq(sim.exit_code, 9, "another node had failed before");
}

Test(agent_nodes, without_a_store_the_workers_are_stopped, .init = one_worker, .fini = done)
{
    sim.worker[0].slow_ms = 100;
    asim_lost_at(&sim, 1000);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1100);
    cr_assert_eq(sim.exit_code, 123);
    cr_assert(agent_lost_store(sim.agent));
    cr_assert_eq(agent_first_failure(sim.agent), -1);
}

Test(agent_nodes, a_store_lost_after_the_failure_changes_no_code, .init = one_worker, .fini = done)
{
    asim_told_at(&sim, 1000, 7);
    asim_lost_at(&sim, 1500);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1500);
    cr_assert_eq(sim.exit_code, 7);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_STORE_LOST);
}

/* Workers are clients of the store, too. If a worker and the store end together, the worker is never the cause. */
Test(agent_nodes, a_failure_that_the_store_never_heard_of_is_a_consequence_of_its_loss, .init = one_worker,
     .fini = done)
{
    sim.worker[0].lives_ms = 1000;
    sim.worker[0].exit_code = 7;
    asim_lost_at(&sim, 1002);
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 123);
    cr_assert(agent_lost_store(sim.agent));
    cr_assert_eq(agent_first_failure(sim.agent), -1);
    cr_assert_eq(agent_worker(sim.agent, 0)->verdict, WORKER_CONSEQUENCE);
}

Test(agent_nodes, a_failure_that_the_store_has_heard_of_outlives_it, .init = one_worker, .fini = done)
{
    sim.worker[0].lives_ms = 1000;
    sim.worker[0].exit_code = 7;
    asim_heard_at(&sim, 1001);
    asim_lost_at(&sim, 1002);
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 7);
    cr_assert_eq(agent_first_failure(sim.agent), 0);
}

/* The worker failed because it lost a peer. This peer was on the node that hosted the store. So the loss of the store
 * is the cause, although the store has received the failure of the worker. */
Test(agent_nodes, a_worker_that_lost_its_peer_is_a_consequence_even_if_the_store_has_heard_of_it,
     .init = one_worker, .fini = done)
{
    sim.worker[0].lives_ms = 1000;
    sim.worker[0].exit_code = DDP_EXIT_PEER_LOST;
    asim_heard_at(&sim, 1001);
    asim_lost_at(&sim, 1002);
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 123);
    cr_assert(agent_lost_store(sim.agent));
    cr_assert_eq(agent_first_failure(sim.agent), -1);
}

Test(agent_nodes, and_so_it_is_on_the_other_nodes, .init = one_worker, .fini = done)
{
    asim_told_at(&sim, 1000, DDP_EXIT_PEER_LOST);
    asim_lost_at(&sim, 1050);
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 123);
    cr_assert(agent_lost_store(sim.agent));
}

Test(agent_nodes, a_program_that_cannot_be_started_is_no_consequence, .init = one_worker, .fini = done)
{
    sim.worker[0].spawn_error = ENOENT;
    asim_lost_at(&sim, 2);
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 127);
}

/* This node hosts the store, which the other nodes need. So this node stays until the other nodes are done, or until
 * its user stops it. */
Test(agent_nodes, whoever_has_the_store_stays_beyond_its_time)
{
    size_t n;
    struct agent *a =
        agent_new(&(struct agent_options){ .nproc = 1, .grace_ms = 1000, .wait_peers_ms = 1000 });
    const struct agent_event story[] = {
        { .type = AGENT_START, .hosts = true }, { .type = AGENT_SPAWNED, .pid = 100 },
        { .type = AGENT_EXITED, .now_ms = 10 }, { .type = AGENT_ALONE, .now_ms = 10 },
        { .type = AGENT_TICK, .now_ms = 1010 },
    };
    for (size_t i = 0; i < sizeof(story) / sizeof(story[0]); i++)
        agent_step(a, &story[i], &n);
    cr_assert_eq(agent_state(a), AGENT_WAIT_PEERS);
    cr_assert(agent_overstays(a));
    cr_assert_eq(agent_deadline(a), UINT64_MAX);
    agent_step(a, &(struct agent_event){ .type = AGENT_VERDICT, .now_ms = 5000 }, &n);
    cr_assert_eq(agent_state(a), AGENT_DONE);
    cr_assert_eq(agent_exit_code(a), 0);
    agent_free(a);
}

Test(agent_nodes, between_two_rounds_a_lost_store_is_the_end, .init = one_worker, .fini = done)
{
    asim_told_at(&sim, 1000, 7);
    asim_verdict_at(&sim, 1500, &again);
    asim_lost_at(&sim, 1700);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1700);
    cr_assert_eq(sim.exit_code, 7);
    cr_assert_eq(agent_no_restart(sim.agent), NO_RESTART_STORE_LOST);
}

Test(agent_nodes, who_is_done_and_loses_the_store_does_not_know_how_it_ended, .init = one_worker,
     .fini = done)
{
    sim.worker[0].lives_ms = 1000;
    asim_lost_at(&sim, 2000);
    asim_run(&sim);
    cr_assert_eq(sim.exit_code, 123);
}

/* The store counted this node as lost, so the job continued or ended without the node. */
Test(agent_nodes, a_verdict_while_workers_run_stops_them, .init = one_worker, .fini = done)
{
    const struct agent_verdict end = ends_with(125);
    asim_verdict_at(&sim, 1000, &end);
    asim_run(&sim);
    cr_assert_eq(sim.now_ms, 1000);
    cr_assert_eq(sim.exit_code, 125);
    cr_assert_not(sim.told_end, "no listener is left");
}

/* Random messages of the store at random times. The simulation checks that no process remains, and that the store
 * receives the end of each attempt at most once. */
Test(agent_nodes, any_words_of_the_store_lead_to_an_end)
{
    for (int round = 0; round < 5000; round++) {
        const struct agent_verdict end = ends_with((int)roll(3));
        one_worker();
        sim.worker[0].lives_ms = roll(2) == 0 ? ASIM_FOR_EVER : roll(5000);
        sim.worker[0].exit_code = (int)roll(3);
        sim.worker[0].ignores_polite = roll(5) == 0;
        for (int i = 0; i < 6; i++) {
            const uint64_t at = 1 + roll(8000);
            switch (roll(5)) {
            case 0:
                asim_told_at(&sim, at, (int)roll(3));
                break;
            case 1:
                asim_verdict_at(&sim, at, &end);
                break;
            case 2:
                asim_verdict_at(&sim, at, &again);
                break;
            case 3:
                asim_lost_at(&sim, at);
                break;
            default:
                asim_stop_at(&sim, at, SIGINT);
            }
        }
        asim_stop_at(&sim, 400000, SIGTERM);
        asim_stop_at(&sim, 400001, SIGTERM);
        asim_run(&sim);
        cr_assert_not(sim.alive[0] && sim.started[0]);
        cr_assert_eq(agent_deadline(sim.agent), UINT64_MAX);
        cr_assert_eq(sim.exit_code, agent_exit_code(sim.agent));
        done();
    }
}
