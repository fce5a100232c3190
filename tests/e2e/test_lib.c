/* Tests of the process runner that all end-to-end tests use. An error of the runner could hide an error of the
 * product. */
#include "scene.h"
#include "run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

static struct run_result shell(const char *script, const struct run_options *options)
{
    const char *argv[] = { "/bin/sh", "-c", script, NULL };
    return run_command(argv, options);
}

Test(run, keeps_both_outputs_and_the_exit_code)
{
    struct run_result r = shell("echo to-out; echo to-err >&2; exit 3", NULL);
    cr_assert_eq(r.exit_code, 3);
    cr_assert_eq(r.signal, 0);
    cr_assert_str_eq(r.out, "to-out\n");
    cr_assert_str_eq(r.err, "to-err\n");
    cr_assert_not(r.timed_out);
}

Test(run, says_which_signal_ended_it)
{
    struct run_result r = shell("kill -USR1 $$", NULL);
    cr_assert_eq(r.exit_code, -1);
    cr_assert_eq(r.signal, SIGUSR1);
    cr_assert_str_eq(r.out, "");
}

Test(run, kills_a_program_and_its_children_when_time_is_up)
{
    struct run_result r = shell("sleep 60 & sleep 60", &(struct run_options){ .timeout_ms = 100 });
    cr_assert(r.timed_out);
    cr_assert_eq(r.signal, SIGKILL);
    cr_expect_not_null(strstr(r.err, "run: still there: sh, pid "), "%s", r.err);
}

Test(run, sets_and_removes_variables_and_feeds_stdin)
{
    const char *env[] = { "COLOUR=blue", "HOME", NULL };
    struct run_result r = shell("cat; echo $COLOUR ${HOME-none}; pwd",
                                &(struct run_options){ .env = env, .cwd = "/", .stdin_text = "fed " });
    cr_assert_str_eq(r.out, "fed blue none\n/\n");
}

Test(run, says_that_a_program_cannot_be_executed)
{
    const char *argv[] = { "/no/such/program", NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 127);
    cr_assert_not_null(strstr(r.err, "/no/such/program"));
}

Test(run, a_program_in_the_background_is_heard_and_signalled)
{
    const char *argv[] = { "/bin/sh", "-c",
                           "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done", NULL };
    struct run_process *p = run_start(argv, NULL);
    cr_assert(run_until_output(p, "ready\n", PATIENCE_MS));
    cr_assert_not(run_until_output(p, "bye", 1), "nothing was signalled yet");
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    cr_assert_eq(r.exit_code, 7);
    cr_assert_str_eq(r.out, "ready\nbye\n");
}

Test(run, much_output_does_not_block)
{
    struct run_result r = shell("head -c 3000000 /dev/zero | tr '\\0' x", NULL);
    cr_assert_eq(r.exit_code, 0);
    cr_assert_eq(strlen(r.out), 3000000);
}

Test(run, finds_programs_in_the_named_build_directory)
{
    setenv("DDP_BUILD", "/somewhere", 1);
    cr_assert_str_eq(bin("ddprun"), "/somewhere/ddprun");
    unsetenv("DDP_BUILD");
    cr_assert_not_null(strstr(bin("train"), "/train"));
}

Test(run, parts_must_all_be_there_and_in_order)
{
    cr_expect(has_parts("rank 3 on n1: exit 7", "rank 3|exit 7"));
    cr_expect(has_parts("7 7", "7|7"));
    cr_expect_not(has_parts("rank 3 on n1: exit 7", "exit 7|rank 3"));
    cr_expect_not(has_parts("rank 3 on n1: exit 7", "rank 3|exit 9"));
    cr_expect_not(has_parts("7", "7|7"));
}

/* Tests of the hosts that the tests of many nodes use. */

TestSuite(hosts, .timeout = 240);

/* Expect that host `h` reaches node0. Try several times, because the bridge between the hosts must first learn where
 * each host is. */
static void expect_reaches(const struct host *h)
{
    const char *argv[] = { "ping", "-c1", "-W1", "node0", NULL };
    for (struct patience p = { 0 }; patience_left(&p);) {
        struct run_result r = host_run(h, argv);
        const bool reached = r.exit_code == 0;
        if (reached)
            return;
    }
    cr_assert_fail("%s does not reach node0", h->name);
}

/* Expect `text` in the output of a shell command on host `h`. */
static void expect_says(const struct host *h, const char *command, const char *text)
{
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    struct run_result r = host_run(h, argv);
    cr_expect(strstr(r.out, text) != NULL, "'%s' on %s says: %s%s", command, h->name, r.out, r.err);
}

Test(hosts, each_has_a_name_an_address_and_process_ids_of_its_own)
{
    struct hosts *net = hosts_open(2);
    expect_says(&net->host[0], "hostname", "node0");
    expect_says(&net->host[1], "hostname", "node1");
    expect_says(&net->host[1], "ip -br address show eth0", "10.9.0.2/24");
    expect_says(&net->host[1], "getent hosts node0", "10.9.0.1");
    expect_says(&net->host[1], "test $$ -lt 100 && echo few processes", "few processes");
    hosts_close(net);
}

Test(hosts, reach_each_other_unless_a_rule_or_a_cable_is_between)
{
    static const char knock[] = "ping -c1 -W1 node0 >/dev/null 2>&1 && echo yes || echo no";
    struct hosts *net = hosts_open(2);
    const struct host *b = &net->host[1];
    expect_reaches(b);
    host_rules(b, "add rule inet f out ip daddr 10.9.0.1 drop");
    expect_says(b, knock, "no");
    host_heal(b);
    expect_reaches(b);
    host_cable(net, 0, false);
    expect_says(b, knock, "no");
    host_cable(net, 0, true);
    expect_reaches(b);
    hosts_close(net);
}

Test(hosts, die_with_all_that_runs_on_them)
{
    static const char *const argv[] = { "/bin/sh", "-c", "setsid sleep 1000 & setsid sleep 1001 & wait",
                                        NULL };
    struct hosts *net = hosts_open(1);
    char names[256] = "";
    struct run_process *p = host_start(&net->host[0], argv, NULL);
    for (struct patience left = { 0 }; strstr(names, "sleep sleep") == NULL && patience_left(&left);)
        host_left(&net->host[0], 0, names, sizeof(names));
    cr_expect(strstr(names, "sleep sleep") != NULL, "running:%s", names);
    host_signal(&net->host[0], NULL, SIGKILL);
    cr_expect_eq(host_left(&net->host[0], PATIENCE_MS, names, sizeof(names)), 0, "left:%s", names);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.signal, SIGKILL);
    hosts_close(net);
}

Test(hosts, come_in_sixteen)
{
    struct hosts *net = hosts_open(16);
    expect_reaches(&net->host[15]);
    hosts_close(net);
}

/* Tests of jobs on several hosts, with one case of each kind. `make nodes` runs all cases. */

TestSuite(nodes, .timeout = 120);

SCENE(nodes, two_nodes_run_and_end_well, .program = "worker env",
      .node = { { .prints = "[0] RANK=0|[0] WORLD_SIZE=4|[0] GROUP_RANK=0|[0] MASTER_ADDR=10.9.0.1" },
                { .prints = "[2] RANK=2|[2] WORLD_SIZE=4|[2] GROUP_RANK=1|[2] MASTER_ADDR=10.9.0.1" } })

SCENE(nodes, ranks_of_two_hosts_meet, .program = "member sum barrier:end",
      .node = { { .exit = 0 }, { .exit = 0 } })

SCENE(nodes, the_first_failure_is_named_on_all,
      .program = "member say:up only:3 err:bang exit:7 all barrier:end",
      .says = "rank 3 on node1 failed first|exit 7|bang|of rank 3", .within_ms = EXITS,
      .node = { { .exit = 7 }, { .exit = 7 } })

SCENE(nodes, a_lost_node_is_named, .until = "up", .fault = fault_power, .victim = 1,
      .says = "node 1 (node1) is lost: silent", .within_ms = BEATS,
      .node = { { .exit = 125 }, { .exit = KILLED } })

static void drop(struct play *play)
{
    host_rules(&play->net->host[0], "add rule inet f in iifname eth0 tcp dport 29500 drop");
}

SCENE(nodes, a_firewall_is_named, .options = "--timeout=13", .before = drop, .within_ms = CONNECTIONS,
      .node = { { .exit = 125, .says = "node 1 has|NODE_MISSING", .ends = "--timeout" },
                { .exit = 125, .says = "10.9.0.1:29500|CONNECT_DROPPED", .ends = "gives up|--timeout" } })

static void lose_1_of_3(struct play *play)
{
    fault_kill_launcher(play);
    cr_expect(run_until_output(play->node[0], "GROUP_WORLD_SIZE=2", PATIENCE_MS));
    cr_expect(run_until_output(play->node[2], "GROUP_WORLD_SIZE=2", PATIENCE_MS));
    after_stop_all(play);
}

SCENE(nodes, an_elastic_job_goes_on_without_a_lost_node, .hosts = 3, .elastic = true,
      .options = "--nnodes=2:3 --rdzv_id=el --rdzv_endpoint=10.9.0.1", .program = "worker env say:up forever",
      .until = "up", .fault = lose_1_of_3, .victim = 1, .says = "node 1 (node1) is lost", .within_ms = 60000,
      .node = { { .exit = 143 }, { .exit = KILLED }, { .exit = 143 } })
