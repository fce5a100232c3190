/* The plan of one node of several: what is known before they have met, and what each round brings. */
#include "command_line.h"
#include "plan/plan.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct cli cli;
static struct plan plan;
static struct ddp_err err;
static struct plan_facts facts;
static char *environment[] = { "PATH=/bin", NULL };

static ddp_status make(char *const *argv)
{
    int argc = 0;
    while (argv[argc] != NULL)
        argc++;
    facts = (struct plan_facts){ .environ_block = environment,
                                 .cpus = 8,
                                 .host = "n1",
                                 .nonce = "k3x9",
                                 .tmp_dir = "/tmp",
                                 .start_time = "",
                                 .error_stem = "/run/ddprun/c00k1e" };
    cr_assert_eq(cli_parse(&cli, argc, argv, environment, &err), DDP_OK, "%s", err.msg);
    return plan_make(&plan, &cli, &facts, &err);
}

#define PLAN(...) cr_assert_eq(make((char *[]){ "ddprun", __VA_ARGS__, "p", NULL }), DDP_OK, "%s", err.msg)

static void tear_down(void)
{
    plan_free(&plan);
    cli_free(&cli);
}

static void expect_variable(int local_rank, const char *name, const char *value)
{
    struct worker_env env;
    cr_assert_eq(plan_env(&plan, local_rank, &env, &err), DDP_OK);
    cr_expect_str_eq(env_find(env.block, name), value, "%s=%s", name, env_find(env.block, name));
    worker_env_free(&env);
}

static bool prints(const char *words)
{
    struct buf text = { 0 };
    cr_assert(plan_print(&plan, &text) && buf_append(&text, "", 1));
    const bool found = strstr((char *)text.data, words) != NULL;
    if (!found)
        fprintf(stderr, "%s", (char *)text.data);
    buf_free(&text);
    return found;
}

Test(plan_nodes, one_node_is_settled, .fini = tear_down)
{
    PLAN("--nproc_per_node=2");
    cr_assert(plan.settled);
    cr_assert_not(plan.meeting.elsewhere);
    cr_assert_eq(plan.world_size, 2);
    cr_assert_str_eq(plan.job, "k3x9");
}

Test(plan_nodes, a_static_node_knows_its_place, .fini = tear_down)
{
    PLAN("--nnodes=3", "--node_rank=2", "--nproc_per_node=2", "--master_addr=10.0.0.1", "--dry_run");
    cr_assert_eq(plan.meeting.node_rank, 2);
    cr_assert_eq(plan.meeting.join_ms, 900000);
    cr_assert_str_eq(plan.meeting.join_knob, "--timeout");
    cr_assert_eq(plan.meeting.port, 29500);
    cr_assert_not(plan.meeting.port_may_change);
    cr_assert_str_eq(plan.job, "none");
    cr_assert_eq(plan.workers[1].rank, 5);
    cr_assert(prints("nodes: static, this is node 2 of 3; 15 min to come together (--timeout)"));
    cr_assert(prints("note: ranks are right if each of the 3 nodes brings 2 workers"));
    cr_assert(prints("rank 5: local rank 1"));
}

Test(plan_nodes, an_elastic_node_waits_for_its_ranks, .fini = tear_down)
{
    PLAN("--nnodes=1:4", "--nproc_per_node=2", "--rdzv_endpoint=n0", "--dry_run");
    cr_assert(plan.meeting.elastic);
    cr_assert_eq(plan.meeting.node_rank, -1);
    cr_assert_eq(plan.meeting.join_ms, 600000);
    cr_assert_eq(plan.meeting.last_call_ms, 30000);
    cr_assert_eq(plan.meeting.port, 29400);
    cr_assert(prints("nodes: elastic, 1 to 4; 10 min to come together (--timeout)"));
    cr_assert(prints("rank ?: local rank 1"));
    cr_assert(prints("WORLD_SIZE=8  # stands for what the rendezvous decides"));
    cr_assert(prints("MASTER_ADDR=n0  # stands for the numeric address"));
    cr_assert(prints("        LOCAL_RANK=1\n"));
}

Test(plan_nodes, a_round_brings_ranks_and_the_place, .fini = tear_down)
{
    PLAN("--nnodes=1:4", "--nproc_per_node=2", "--rdzv_endpoint=n0", "--log_file=%n/%r.%a",
         "--max_restarts=3");
    const struct plan_round round = { .attempt = 2,
                                      .restarts = 1,
                                      .node_rank = 1,
                                      .nnodes = 3,
                                      .first_rank = 8,
                                      .world_size = 13,
                                      .role_rank = 2,
                                      .role_size = 6,
                                      .master_addr = "10.0.0.7",
                                      .master_port = 29401 };
    cr_assert_eq(plan_round(&plan, &round, &err), DDP_OK, "%s", err.msg);
    expect_variable(1, "RANK", "9");
    expect_variable(1, "ROLE_RANK", "3");
    expect_variable(1, "LOCAL_RANK", "1");
    expect_variable(1, "WORLD_SIZE", "13");
    expect_variable(1, "ROLE_WORLD_SIZE", "6");
    expect_variable(1, "LOCAL_WORLD_SIZE", "2");
    expect_variable(1, "GROUP_RANK", "1");
    expect_variable(1, "GROUP_WORLD_SIZE", "3");
    expect_variable(1, "MASTER_ADDR", "10.0.0.7");
    expect_variable(1, "MASTER_PORT", "29401");
    expect_variable(1, "TORCHELASTIC_RESTART_COUNT", "1");
    expect_variable(1, "DDPRUN_ATTEMPT", "2");
    expect_variable(1, "TORCHELASTIC_MAX_RESTARTS", "3");
    expect_variable(1, "TORCHELASTIC_RUN_ID", "none");
    cr_assert_str_eq(plan.workers[1].out.file, "1/9.2");
    const struct plan_round next = { .attempt = 3, .restarts = 2, .nnodes = 2, .world_size = 4 };
    cr_assert_eq(plan_round(&plan, &next, &err), DDP_OK);
    expect_variable(1, "RANK", "1");
    expect_variable(1, "MASTER_ADDR", "10.0.0.7");
    cr_assert_str_eq(plan.workers[1].out.file, "0/1.3");
}

Test(plan_nodes, one_budget_with_its_knob, .fini = tear_down)
{
    PLAN("--nnodes=2:2", "--node_rank=0", "--master_addr=h", "--rdzv_conf=timeout=70");
    cr_assert_eq(plan.meeting.join_ms, 70000);
    cr_assert_str_eq(plan.meeting.join_knob, "--rdzv_conf timeout");
    tear_down();
    PLAN("--nnodes=1:2", "--rdzv_endpoint=h:5", "--rdzv_conf=join_timeout=70", "--timeout=20");
    cr_assert_eq(plan.meeting.join_ms, 20000);
    cr_assert_str_eq(plan.meeting.join_knob, "--timeout");
    cr_assert_eq(plan.meeting.port, 5);
    expect_variable(0, "DDPRUN_INIT_TIMEOUT_MS", "20000");
}

Test(plan_nodes, silence_is_judged_by_the_option_else_by_torchruns_keys, .fini = tear_down)
{
    PLAN("--rdzv_conf=keep_alive_interval=2");
    cr_assert_eq(plan.meeting.node_timeout_ms, 6000);
    tear_down();
    PLAN("--rdzv_conf=keep_alive_interval=2", "--node_timeout=fast");
    cr_assert_eq(plan.meeting.node_timeout_ms, 1500);
    tear_down();
    PLAN("--verbose");
    cr_assert_eq(plan.meeting.node_timeout_ms, 3000);
}

Test(plan_nodes, of_the_command_the_name_of_the_program_is_compared, .fini = tear_down)
{
    cr_assert_eq(make((char *[]){ "ddprun", "/opt/here/p", "ab", NULL }), DDP_OK);
    cr_assert_str_eq(plan.meeting.program, "p");
    tear_down();
    cr_assert_eq(make((char *[]){ "ddprun", "-q", "./train.py", "--lr=1", NULL }), DDP_OK);
    cr_assert_str_eq(plan.meeting.program, "train.py");
    tear_down();
    cr_assert_eq(make((char *[]){ "ddprun", "-m", "package.train", NULL }), DDP_OK);
    cr_assert_str_eq(plan.meeting.program, "package.train");
}

Test(plan_nodes, what_does_nothing_here_is_said, .fini = tear_down)
{
    PLAN("--nnodes=1:2", "--node_rank=1", "--rdzv_endpoint=h", "--rdzv_conf=close_timeout=3");
    cr_assert(prints("note: --node_rank does nothing here: the rendezvous numbers the nodes"));
    cr_assert(prints("note: close_timeout in --rdzv_conf does nothing here"));
    tear_down();
    PLAN("--grow=now");
    cr_assert(prints("note: --grow does nothing here"));
}

Test(plan_nodes, a_pattern_that_gives_two_workers_one_file_is_found_before_anybody_waits)
{
    cr_assert_eq(make((char *[]){ "ddprun", "--nnodes=1:2", "--rdzv_endpoint=h", "--nproc_per_node=2",
                                  "--log_file=out_%n", "p", NULL }),
                 DDP_ERR_ARG);
    cli_free(&cli);
}
