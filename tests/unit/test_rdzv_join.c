/* Who may join, and what the refused are told: both values, both hosts. */
#include "sim_rdzv.h"

#include <criterion/criterion.h>
#include <string.h>

static struct sim_rdzv sim;

static void two_static(void)
{
    rsim_init(&sim);
}

static void two_to_four(void)
{
    rsim_init_elastic(&sim, 2, 4);
}

static void end(void)
{
    rsim_free(&sim);
}

TestSuite(rdzv_join, .init = two_static, .fini = end);

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
                   "n7 (pid 107) runs ddprun 1.1, n0 (pid 100) runs ddprun 1.0");
}

Test(rdzv_join, another_number_of_nodes)
{
    struct rdzv_join join = sim.join;
    rsim_join(&sim, 0);
    join.nnodes_min = join.nnodes_max = 3;
    expect_refusal(&join, RDZV_REFUSED_NNODES_DIFFERS,
                   "n7 (pid 107) says --nnodes=3 (static), n0 (pid 100) says --nnodes=2 (static)");
    join.elastic = true;
    join.nnodes_min = 2;
    expect_refusal(&join, RDZV_REFUSED_NNODES_DIFFERS,
                   "n7 (pid 107) says --nnodes=2:3, n0 (pid 100) says --nnodes=2 (static)");
    join.nnodes_max = 2;
    expect_refusal(&join, RDZV_REFUSED_NNODES_DIFFERS,
                   "n7 (pid 107) says --nnodes=2 (elastic), n0 (pid 100) says --nnodes=2 (static)");
}

Test(rdzv_join, two_nodes_of_one_host_are_told_apart)
{
    struct rdzv_join join = sim.join;
    sim.join.node_rank = 0;
    rsim_join(&sim, 0);
    join.host = "n0";
    join.node_rank = 1;
    join.nnodes_min = join.nnodes_max = 3;
    expect_refusal(
        &join, RDZV_REFUSED_NNODES_DIFFERS,
        "node 1 (n0, pid 107) says --nnodes=3 (static), node 0 (n0, pid 100) says --nnodes=2 (static)");
}

/* Both are called "localhost": only their addresses say which terminal to look for. */
Test(rdzv_join, two_hosts_of_one_name_are_told_apart)
{
    struct rdzv_join join = sim.join;
    sim.join.addr = "10.9.0.1";
    rsim_join(&sim, 0);
    join.host = "n0";
    join.addr = "10.9.0.2";
    join.version = "1.1";
    expect_refusal(&join, RDZV_REFUSED_VERSION_DIFFERS,
                   "n0 (10.9.0.2, pid 107) runs ddprun 1.1, n0 (10.9.0.1, pid 100) runs ddprun 1.0");
}

Test(rdzv_join, another_job)
{
    struct rdzv_join join = sim.join;
    join.job = "k";
    expect_refusal(&join, RDZV_REFUSED_JOB_DIFFERS,
                   "n7 (pid 107) belongs to job 'k', this is the rendezvous of job 'j'");
}

Test(rdzv_join, another_number_of_workers_is_refused_in_an_elastic_job, .init = two_to_four)
{
    struct rdzv_join join = sim.join;
    rsim_join(&sim, 0);
    join.nproc = 8;
    expect_refusal(&join, RDZV_REFUSED_NPROC_DIFFERS,
                   "n7 (pid 107) says --nproc_per_node=8, n0 (pid 100) says --nproc_per_node=2");
    join.uneven = true;
    cr_assert_eq(rsim_join_as(&sim, 7, &join), RDZV_WELCOME);
    cr_assert_eq(rsim_join_as(&sim, 8, &sim.join), RDZV_WELCOME);
}

/* A number that a node has found out by itself is what it is. */
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
    rsim_expect_part(&sim, "node n3 brings 4 workers, n2 brings 2\n");
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
                   "n7 (pid 107) starts the program 'eval.py', n0 (pid 100) 'train.py'");
    join.uneven = true;
    cr_assert_eq(rsim_join_as(&sim, 7, &join), RDZV_WELCOME);
}

Test(rdzv_join, a_node_rank_that_is_taken_or_not_there)
{
    struct rdzv_join join = sim.join;
    sim.join.node_rank = join.node_rank = 1;
    rsim_join(&sim, 0);
    expect_refusal(&join, RDZV_REFUSED_NODE_RANK_TAKEN,
                   "n7 (pid 107) says --node_rank=1, which n0 (pid 100) has already");
    join.host = "n0";
    expect_refusal(&join, RDZV_REFUSED_LAUNCHED_TWICE,
                   "ddprun was started twice on n0: pid 107 says --node_rank=1, which pid 100 has already");
    join.task = "Slurm";
    expect_refusal(&join, RDZV_REFUSED_WRONG_TASK_LAYOUT,
                   "Slurm starts ddprun several times on n0, one for each task: pid 100 and pid 107 are both "
                   "node 1");
    join.task = NULL;
    join.host = NULL;
    join.node_rank = 2;
    expect_refusal(&join, RDZV_REFUSED_NODE_RANK_TOO_HIGH,
                   "n7 (pid 107) says --node_rank=2, but --nnodes=2, like node 1 (n0, pid 100)");
}

Test(rdzv_join, the_first_node_cannot_bring_nonsense)
{
    struct rdzv_join join = sim.join;
    join.node_rank = 2;
    expect_refusal(&join, RDZV_REFUSED_NODE_RANK_TOO_HIGH, "n7 (pid 107) says --node_rank=2, but --nnodes=2");
    join = sim.join;
    join.nproc = 0;
    expect_refusal(&join, RDZV_REFUSED_BAD_JOIN, "n7 (pid 107) brings 0 workers; a node has 1 to 4096");
    join = sim.join;
    join.nnodes_max = 100000;
    expect_refusal(&join, RDZV_REFUSED_BAD_JOIN,
                   "n7 (pid 107) says --nnodes=2:100000; a job has 1 to 16384 nodes");
    join.nnodes_max = 3;
    expect_refusal(&join, RDZV_REFUSED_BAD_JOIN, "n7 (pid 107) joins a static job with --nnodes=2:3");
}

Test(rdzv_join, one_node_too_many_is_refused_in_a_static_job)
{
    rsim_join_all(&sim, 0, 1);
    expect_refusal(&sim.join, RDZV_REFUSED_JOB_FULL,
                   "n7 (pid 107) is one node too many: job 'j' has 2 of 2 already, as n0 (pid 100) says");
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
    expect_refusal(&join, RDZV_REFUSED_STALE_INSTANCE,
                   "n7 (pid 107) knew an earlier life of job 'j' (instance life-0, this is life-1): the job "
                   "was ended and "
                   "begun again since");
}

Test(rdzv_join, a_job_that_is_over)
{
    rsim_join_all(&sim, 0, 1);
    rsim_done(&sim, 0, 1);
    rsim_done(&sim, 1, 1);
    expect_refusal(&sim.join, RDZV_REFUSED_JOB_OVER, "job 'j', which n7 (pid 107) wants to join, is over");
    cr_assert_eq(rsim_rejoin(&sim, 0), RDZV_REFUSED_JOB_OVER);
    cr_assert(rdzv_is_over(sim.r));
}

Test(rdzv_join, a_member_cannot_join_twice)
{
    cr_assert_eq(rsim_join(&sim, 0), RDZV_WELCOME);
    cr_assert_eq(rsim_join(&sim, 0), RDZV_WELCOME); /* asked again before any answer: the same */
    rsim_join(&sim, 1);
    cr_assert_eq(rsim_join(&sim, 0), RDZV_REFUSED_ALREADY_IN);
    cr_assert_str_eq(sim.refusal.sentence, "node 0 (n0) takes part in attempt 0 already");
}

/* Before the first round a mistake can be mended without waiting for anything. */
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
    sim.quota.max = sim.quota.used + 5000; /* a few nodes */
    int n = 0;
    while (n < 20 && rsim_join(&sim, n) == RDZV_WELCOME)
        n++;
    cr_assert(n >= 2 && n < 20, "%d", n);
    cr_assert_eq(sim.refusal.code, RDZV_REFUSED_STORE_FULL);
    rsim_lost(&sim, 0);
    cr_assert_eq(rsim_join(&sim, 0), RDZV_WELCOME);
}

/* 300 bytes of two-byte letters, cut between two letters. */
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
