/* Tests of the options that ddprun derives from a scheduler's environment. The tests use recorded environments. */
#include "documents.h"
#include "plan/plan.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct environment env;
static struct scheduler scheduler;
static struct cli cli;
static struct ddp_err err;

/* Run three steps of ddprun's main in the recorded environment `name`: read the options, apply the scheduler, check. */
static ddp_status in(const char *name, char *const *argv)
{
    int argc = 0;
    while (argv[argc] != NULL)
        argc++;
    environment_read(&env, name);
    cr_assert_eq(cli_read(&cli, argc, argv, env.block, &err), DDP_OK, "%s", err.msg);
    const struct scheduler_facts facts = { .environ_block = env.block,
                                           .host = env.host,
                                           .file = env.file[0] != '\0' ? env.file : NULL,
                                           .per_task = cli.per_task,
                                           .visible = env_find(env.block, "CUDA_VISIBLE_DEVICES") };
    ddp_status status = scheduler_read(&scheduler, cli.scheduler, &facts, &err);
    if (status == DDP_OK)
        status = scheduler_apply(&scheduler, &cli, &err);
    return status == DDP_OK ? cli_check(&cli, &err) : status;
}

#define WORDS(...)    ((char *[]){ "ddprun", __VA_ARGS__, NULL })
#define IN(name, ...) cr_assert_eq(in(name, WORDS(__VA_ARGS__)), DDP_OK, "%s: %s", name, err.msg)

/* Return "nnodes node_rank address:port nproc job" with the final values. A value that is not set is "-". */
static const char *plan_text(void)
{
    static char text[600];
    char rank[16] = "-", nproc[16] = "-";
    if (cli_gives(&cli, OPT_NODE_RANK))
        snprintf(rank, sizeof(rank), "%d", cli.node_rank);
    if (cli_gives(&cli, OPT_NPROC_PER_NODE))
        snprintf(nproc, sizeof(nproc), "%d", cli.nproc.count);
    snprintf(text, sizeof(text), "%d %s %s:%d %s %s", cli.nnodes.max, rank, cli.master_addr, cli.master_port,
             nproc, cli.job != NULL ? cli.job : "-");
    return text;
}

static const char *finding(void)
{
    const enum finding_code code = scheduler.finding.found.code;
    return code != FINDING_NONE ? finding_code_name(code) : "-";
}

/* --- recorded environments ------------------------------------------------------------------------------ */

static const struct {
    const char *environment, *scheduler, *plan, *finding;
    bool fatal;
} recorded[] = {
    { "none", "none", "1 - 127.0.0.1:29500 - -", "-", false },
    { "worker-of-ddprun", "none", "1 - 127.0.0.1:29500 - -", "-", false },
    { "slurm-one-task-per-node", "slurm", "4 2 node09:14042 4 slurm-4711.1", "-", false },
    { "slurm-four-tasks-per-node", "slurm", "2 1 n0:12062 - slurm-2.0", "WRONG_TASK_LAYOUT", true },
    { "slurm-one-task-of-two-nodes", "slurm", "1 - 127.0.0.1:29500 - slurm-5.0", "STEP_TOO_SMALL", false },
    { "openmpi-in-slurm", "openmpi", "2 1 n0:15069 - mpi-99", "WRONG_TASK_LAYOUT", true },
    { "pytorchjob", "pytorchjob", "3 2 mnist-master-0:23456 - mnist", "-", false },
    { "pytorchjob-pet", "pytorchjob", "2 1 mnist-master-0:23456 4 mnist", "-", false },
    { "kubernetes-indexed-job", "kubernetes", "4 2 gpt-0.nodes.ml.svc.cluster.local:29500 - gpt", "-",
      false },
    { "kubernetes-no-service", "kubernetes", "1 - 127.0.0.1:29500 - gpt", "-", false },
    { "pbs-task", "pbs", "2 1 cn01.cluster:18254 - pbs-1234", "-", false },
    { "lsf-task", "lsf", "3 2 hostA:13175 - lsf-8812.3", "-", false },
    { "lsf-first", "lsf", "2 0 hostA:13203 - lsf-8813", "LAUNCHED_ON_ONE_NODE", false },
};

Test(scheduler, recorded_environments_become_plans)
{
    for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
        const char *name = recorded[i].environment;
        IN(name, "p");
        cr_expect_str_eq(scheduler.name, recorded[i].scheduler, "%s: %s", name, scheduler.name);
        cr_expect_str_eq(plan_text(), recorded[i].plan, "%s: %s", name, plan_text());
        cr_expect_str_eq(finding(), recorded[i].finding, "%s: %s", name, finding());
        cr_expect_eq(scheduler.finding.fatal, recorded[i].fatal, "%s", name);
        cli_free(&cli);
    }
}

/* The finding names the cause. A later check would report only a missing node rank or missing nodes. */
Test(scheduler, a_script_runs_on_the_first_node_only)
{
    static const char *const alone[] = { "slurm-batch-script", "slurm-salloc-shell", "pbs-script" };
    for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++) {
        in(alone[i], WORDS("p"));
        cr_expect_str_eq(finding(), "LAUNCHED_ON_ONE_NODE", "%s", alone[i]);
        cr_expect(scheduler.finding.fatal && scheduler.finding.mine, "%s", alone[i]);
        cr_expect(strstr(scheduler.finding.found.sentence, ", but ddprun runs only on the first node") !=
                      NULL,
                  "%s", scheduler.finding.found.sentence);
        cli_free(&cli);
        IN(alone[i], "--nnodes=1", "p");
        cr_expect_str_eq(finding(), "-", "%s", alone[i]);
        cr_expect_eq(cli.nnodes.max, 1);
        cli_free(&cli);
    }
}

/* In a pod, ddprun usually finds the address of the first node in /etc/hosts. But mpirun has started these processes,
 * and /etc/hosts does not list the hosts of mpirun. So ddprun must not take an address from this file. */
Test(scheduler, mpirun_in_a_pod_takes_no_address_from_etc_hosts)
{
    char *block[] = { "OMPI_COMM_WORLD_RANK=1",
                      "OMPI_COMM_WORLD_SIZE=2",
                      "OMPI_COMM_WORLD_LOCAL_RANK=0",
                      "OMPI_COMM_WORLD_LOCAL_SIZE=1",
                      "KUBERNETES_SERVICE_HOST=10.0.0.1",
                      "JOB_COMPLETION_INDEX=1",
                      NULL };
    const struct scheduler_facts facts = { .environ_block = block,
                                           .host = "gpt-1",
                                           .file = "127.0.0.1 localhost\n" };
    cr_assert_eq(scheduler_read(&scheduler, "auto", &facts, &err), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(scheduler.name, "openmpi");
    cr_expect_str_eq(scheduler.values[SCHEDULER_ADDRESS].text, "");
    cr_expect(strstr(scheduler.notes[0], "set --master_addr") != NULL, "%s", scheduler.notes[0]);
}

/* gethostname returns "" in a container that was started with an empty host name. */
Test(scheduler, a_pod_without_a_host_name_has_no_address)
{
    char *block[] = { "KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=1", NULL };
    const struct scheduler_facts facts = { .environ_block = block,
                                           .host = "",
                                           .file = "127.0.0.1 localhost\n10.0.0.7 gpt-1.nodes gpt-1\n" };
    cr_assert_eq(scheduler_read(&scheduler, "auto", &facts, &err), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(scheduler.name, "kubernetes");
    cr_expect_str_eq(scheduler.values[SCHEDULER_ADDRESS].text, "");
}

/* Read the facts of pod 1 with a domain of `len` letters. */
static void read_pod(size_t len)
{
    char *block[] = { "KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=1", NULL };
    char host[512] = "gpt-1.";
    memset(host + 6, 'd', len);
    const struct scheduler_facts facts = { .environ_block = block, .host = host };
    memset(&scheduler, 0, sizeof(scheduler));
    cr_assert_eq(scheduler_read(&scheduler, "auto", &facts, &err), DDP_OK, "%s", err.msg);
}

Test(scheduler, a_pod_with_a_long_domain)
{
    read_pod(200);
    cr_expect_eq(strlen(scheduler.values[SCHEDULER_ADDRESS].text), 206);
    read_pod(300);
    cr_expect_str_eq(scheduler.values[SCHEDULER_ADDRESS].text, "");
    cr_expect(strstr(scheduler.notes[0], "too long; set --master_addr") != NULL, "%s", scheduler.notes[0]);
}

/* Return the number of nodes that mpirun's four numbers give, or "" if the numbers contradict each other. */
static const char *nodes_of_tasks(int task, int tasks, int local, int here, bool per_task)
{
    static const char *const names[] = { "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE" };
    const int numbers[] = { task, tasks, local, here };
    char text[4][64], *block[5] = { NULL };
    for (int i = 0; i < 4; i++) {
        snprintf(text[i], sizeof(text[i]), "OMPI_COMM_WORLD_%s=%d", names[i], numbers[i]);
        block[i] = text[i];
    }
    const struct scheduler_facts facts = { .environ_block = block, .host = "n0", .per_task = per_task };
    cr_assert_eq(scheduler_read(&scheduler, "openmpi", &facts, &err), DDP_OK, "%s", err.msg);
    return scheduler.values[SCHEDULER_NODES].text;
}

Test(scheduler, numbers_of_mpirun_that_contradict_each_other_give_no_plan)
{
    cr_expect_str_eq(nodes_of_tasks(0, 4, 0, 2, false), "2");
    cr_expect_str_eq(nodes_of_tasks(3, 4, 1, 2, false), "2");
    cr_expect_str_eq(nodes_of_tasks(3, 4, 3, 4, false), "1");
    cr_expect_str_eq(nodes_of_tasks(4, 4, 1, 2, false), "", "a task after the last");
    cr_expect_str_eq(nodes_of_tasks(-1, 4, 1, 2, false), "", "a task before the first");
    cr_expect_str_eq(nodes_of_tasks(3, 4, 2, 2, false), "", "a local task after the last");
    cr_expect_str_eq(nodes_of_tasks(3, 4, -1, 2, false), "", "a local task before the first");
    cr_expect_str_eq(nodes_of_tasks(3, 4, 4, 5, false), "", "more local tasks than tasks");
    cr_expect_str_eq(nodes_of_tasks(0, 4, 0, 0, false), "", "no local task");
    cr_expect_str_eq(nodes_of_tasks(0, 0, 0, 1, false), "", "no task");
}

/* No variable has the number of nodes, so a node with fewer tasks computes another number than the other nodes. */
Test(scheduler, tasks_that_are_spread_unevenly_are_a_note)
{
    nodes_of_tasks(0, 3, 0, 2, true);
    cr_expect(strstr(scheduler.notes[0], "GROUP_WORLD_SIZE") != NULL, "%s", scheduler.notes[0]);
    nodes_of_tasks(1, 3, 1, 2, true); /* only local task 0 of a node gets the note */
    cr_expect(strstr(scheduler.notes[0], "GROUP_WORLD_SIZE") == NULL, "%s", scheduler.notes[0]);
    nodes_of_tasks(0, 3, 0, 2, false);
    cr_expect(strstr(scheduler.notes[0], "GROUP_WORLD_SIZE") == NULL, "%s", scheduler.notes[0]);
    nodes_of_tasks(0, 4, 0, 2, true);
    cr_expect(strstr(scheduler.notes[0], "GROUP_WORLD_SIZE") == NULL, "%s", scheduler.notes[0]);
}

Test(scheduler, elements_of_a_job_array_have_different_names)
{
    char *block[] = { "PMI_RANK=0",  "PMI_SIZE=1",     "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1",
                      "LSB_JOBID=7", "LSB_JOBINDEX=2", "LSB_HOSTS=a",       NULL };
    const struct scheduler_facts facts = { .environ_block = block, .host = "a" };
    cr_assert_eq(scheduler_read(&scheduler, "auto", &facts, &err), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(scheduler.name, "hydra");
    cr_expect_str_eq(scheduler.values[SCHEDULER_JOB].text, "mpi-7.2");
    cr_expect_str_eq(scheduler.values[SCHEDULER_PORT].text, "12219");
    block[5] = "LSB_JOBINDEX=0";
    cr_assert_eq(scheduler_read(&scheduler, "auto", &facts, &err), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(scheduler.values[SCHEDULER_JOB].text, "mpi-7");
}

/* Older operators set MASTER_ADDR to localhost in the master pod. In the other pods they set it to the service name of
 * the master pod. */
Test(scheduler, the_master_pod_is_reached_by_its_name)
{
    char *block[] = { "KUBERNETES_SERVICE_HOST=10.0.0.1",
                      "MASTER_ADDR=localhost",
                      "MASTER_PORT=23456",
                      "HOSTNAME=mnist-master-0",
                      "RANK=0",
                      "WORLD_SIZE=3",
                      NULL };
    const struct scheduler_facts facts = { .environ_block = block, .host = "mnist-master-0" };
    cr_assert_eq(scheduler_read(&scheduler, "auto", &facts, &err), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(scheduler.name, "pytorchjob");
    cr_expect_str_eq(scheduler.values[SCHEDULER_ADDRESS].text, "mnist-master-0");
    block[5] = "WORLD_SIZE=1";
    cr_assert_eq(scheduler_read(&scheduler, "auto", &facts, &err), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(scheduler.values[SCHEDULER_ADDRESS].text, "localhost");
    block[2] = "PET_NNODES=1";
    block[5] = "WORLD_SIZE=4"; /* four workers in one pod */
    cr_assert_eq(scheduler_read(&scheduler, "auto", &facts, &err), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(scheduler.values[SCHEDULER_ADDRESS].text, "localhost");
}

Test(scheduler, mpirun_does_not_tell_where_process_0_is)
{
    cr_assert_eq(in("openmpi-one-per-node", WORDS("p")), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "--master_addr") != NULL, "%s", err.msg);
    cr_expect(strstr(scheduler.notes[0], "set --master_addr") != NULL, "%s", scheduler.notes[0]);
    cli_free(&cli);
    IN("openmpi-one-per-node", "--master_addr=a", "p");
    cr_expect_str_eq(plan_text(), "2 1 a:15359 - mpi-1747058689");
    cli_free(&cli);
}

Test(scheduler, a_job_that_was_started_again_has_another_name)
{
    in("slurm-batch-script", WORDS("--nnodes=1", "p"));
    cr_expect_str_eq(cli.job, "slurm-3.0-restart2");
    cr_expect(strstr(scheduler.notes[1], "2 times") != NULL, "%s", scheduler.notes[1]);
    cli_free(&cli);
}

Test(scheduler, a_wrong_layout_names_numbers_and_both_ways_out)
{
    in("slurm-four-tasks-per-node", WORDS("p"));
    cr_expect(
        strstr(scheduler.finding.found.sentence,
               "runs 4 of the 8 copies of ddprun that Slurm has started on 2 nodes for job slurm-2.0; "));
    cr_expect(strncmp(scheduler.finding.found.sentence, scheduler.host, strlen(scheduler.host)) == 0);
    cr_expect(strstr(scheduler.finding.found.advice, "srun --ntasks-per-node=1 ddprun"));
    cr_expect(strstr(scheduler.finding.found.advice, "--per_task"));
    cr_expect_not(scheduler.finding.mine); /* this is local task 2; task 0 of the node reports the finding */
    cli_free(&cli);
}

/* --- one worker for each task --------------------------------------------------------------------------- */

/* Make the plan of task 2 of 4 on a machine with `n_gpus` GPUs. If `share` is true, use --share_gpu. `list` is a
 * variable that is added to the environment, such as "CUDA_VISIBLE_DEVICES=3". Expect the GPU `gpu`, or an error if
 * `gpu` is NULL. */
static void expect_task_gpu(bool share, int n_gpus, char *list, const char *gpu)
{
    struct plan plan;
    char **words = share ? WORDS("--per_task", "--virtual_local_rank", "--share_gpu", "p")
                         : WORDS("--per_task", "--virtual_local_rank", "p");
    cr_assert_eq(in("slurm-four-tasks-per-node", words), DDP_OK, "%s", err.msg);
    int n = 0;
    while (env.block[n] != NULL)
        n++;
    env.block[n] = list;
    env.block[n + 1] = NULL;
    const struct plan_facts facts = { .environ_block = env.block,
                                      .physical_gpus = n_gpus,
                                      .cpus = 8,
                                      .host = env.host,
                                      .nonce = "k3x9",
                                      .tmp_dir = "/tmp",
                                      .start_time = "",
                                      .scheduler = &scheduler };
    cr_assert_eq(plan_make(&plan, &cli, &facts, &err), gpu != NULL ? DDP_OK : DDP_ERR_ARG, "%s", list);
    if (gpu != NULL) {
        cr_expect_str_eq(plan.workers[0].visible, gpu, "%s: %s", list, plan.workers[0].visible);
        cr_expect_str_eq(plan.workers[0].gpu, gpu, "%s", list);
        plan_free(&plan);
    }
    cli_free(&cli);
}

Test(scheduler, a_task_with_a_virtual_local_rank_sees_its_own_gpu)
{
    expect_task_gpu(false, 4, "CUDA_VISIBLE_DEVICES=3,2,1,0", "1");
    expect_task_gpu(false, 4, "CUDA_VISIBLE_DEVICES=0,1,2", NULL);
    expect_task_gpu(false, 4, "A=1", "2");
    /* the scheduler shows only the GPU of this task */
    expect_task_gpu(false, 4, "CUDA_VISIBLE_DEVICES=3", "3");
    expect_task_gpu(false, 1, "A=1", "0");
    expect_task_gpu(true, 4, "CUDA_VISIBLE_DEVICES=3,1", "3");
    expect_task_gpu(true, 2, "A=1", "0");
}

static void expect_variable(const struct plan *plan, const char *name, const char *value)
{
    struct worker_env block;
    cr_assert_eq(plan_env(plan, 0, &block, &err), DDP_OK);
    cr_expect_str_eq(env_find(block.block, name), value, "%s=%s", name, env_find(block.block, name));
    worker_env_free(&block);
}

Test(scheduler, a_task_is_a_node_to_the_rendezvous_and_tells_its_worker_the_truth)
{
    struct plan plan;
    char **words = WORDS("--per_task", "p"); /* a variable, because plan_make reads the words again */
    cr_assert_eq(in("slurm-four-tasks-per-node", words), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(plan_text(), "8 6 n0:12062 1 slurm-2.0");
    cr_expect_str_eq(finding(), "-");
    const struct plan_facts facts = { .environ_block = env.block,
                                      .cpus = 8,
                                      .host = env.host,
                                      .nonce = "k3x9",
                                      .tmp_dir = "/tmp",
                                      .start_time = "",
                                      .scheduler = &scheduler,
                                      .error_stem = "/run/ddprun/c00k1e" };
    cr_assert_eq(plan_make(&plan, &cli, &facts, &err), DDP_OK, "%s", err.msg);
    expect_variable(&plan, "RANK", "6");
    expect_variable(&plan, "WORLD_SIZE", "8");
    expect_variable(&plan, "LOCAL_RANK", "2");
    expect_variable(&plan, "LOCAL_WORLD_SIZE", "4");
    expect_variable(&plan, "GROUP_RANK", "1");
    expect_variable(&plan, "GROUP_WORLD_SIZE", "2");
    plan_free(&plan);
    cli_free(&cli);
}

/* Slurm has started this process as local task 2 of 4. File names and filters use this number, like LOCAL_RANK. */
Test(scheduler, the_worker_of_a_task_has_the_local_rank_of_the_task)
{
    struct plan plan;
    char **words =
        WORDS("--per_task", "--log_file=/x/%l.%s", "--local_ranks_filter=2", "--redirects=2:1", "p");
    cr_assert_eq(in("slurm-four-tasks-per-node", words), DDP_OK, "%s", err.msg);
    const struct plan_facts facts = { .environ_block = env.block,
                                      .cpus = 8,
                                      .host = env.host,
                                      .nonce = "k3x9",
                                      .tmp_dir = "/tmp",
                                      .start_time = "",
                                      .scheduler = &scheduler };
    cr_assert_eq(plan_make(&plan, &cli, &facts, &err), DDP_OK, "%s", err.msg);
    const struct plan_worker *w = &plan.workers[0];
    cr_expect_eq(w->local_rank, 2);
    cr_expect(w->out.file != NULL && strcmp(w->out.file, "/x/2.stdout") == 0);
    cr_expect(!w->out.console && w->err.console);
    for (int i = 0; i < PLAN_NOTES_MAX && plan.notes[i] != NULL; i++)
        cr_expect_null(strstr(plan.notes[i], "local_ranks_filter"), "%s", plan.notes[i]);
    plan_free(&plan);
    cli_free(&cli);
}

Test(scheduler, tasks_of_one_machine_meet_on_loopback)
{
    IN("hydra", "--per_task", "p");
    cr_expect_str_eq(plan_text(), "2 1 127.0.0.1:29500 1 -");
    cr_expect_eq(cli.task.local_rank, 1);
    cr_expect_eq(cli.task.nnodes, 1);
    cli_free(&cli);
}

Test(scheduler, the_node_follows_from_how_processes_were_dealt_out)
{
    IN("openmpi-in-slurm", "--per_task", "p");
    cr_expect_eq(cli.task.node_rank, 1);
    cr_expect_eq(cli.task.local_rank, 1);
    cli_free(&cli);
    IN("openmpi-in-turn", "--per_task", "--master_addr=a", "p");
    cr_expect_eq(cli.task.node_rank, 1);
    cr_expect_eq(cli.task.local_rank, 0);
    cli_free(&cli);
}

Test(scheduler, without_tasks_there_is_no_worker_for_each)
{
    cr_assert_eq(in("none", WORDS("--per_task", "p")), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "no scheduler has started this process as a task") != NULL, "%s", err.msg);
    cli_free(&cli);
    cr_assert_eq(in("slurm-batch-script", WORDS("--per_task", "p")), DDP_ERR_ARG);
    cli_free(&cli);
    cr_assert_eq(in("slurm-four-tasks-per-node", WORDS("--per_task", "--nproc_per_node=2", "p")),
                 DDP_ERR_ARG);
    cr_expect_str_eq(err.msg,
                     "--per_task: cannot be used with --nproc_per_node; leave out one of the two options");
    cli_free(&cli);
}

/* --- the user wins -------------------------------------------------------------------------------------- */

Test(scheduler, what_the_user_says_counts_and_what_differs_is_said)
{
    IN("slurm-one-task-per-node", "--nnodes=5", "--node_rank=4", "--master_port=81", "--nproc_per_node=2",
       "p");
    cr_expect_str_eq(plan_text(), "5 4 node09:81 2 slurm-4711.1");
    cr_expect_str_eq(scheduler.notes[0],
                     "--nnodes=5 overrides the value from Slurm: 4 (SLURM_STEP_NUM_NODES)");
    cr_expect_str_eq(scheduler.notes[1], "--node_rank=4 overrides the value from Slurm: 2 (SLURM_NODEID)");
    cr_expect_str_eq(scheduler.notes[2],
                     "--nproc_per_node=2 is used, although Slurm provides 4 GPUs (SLURM_GPUS_ON_NODE)");
    cr_expect_str_eq(finding(), "NNODES_NOT_LAUNCHED");
    cli_free(&cli);
}

Test(scheduler, none_hears_nobody_and_a_name_must_be_right)
{
    IN("slurm-one-task-per-node", "--scheduler=none", "p");
    cr_expect_str_eq(plan_text(), "1 - 127.0.0.1:29500 - -");
    cli_free(&cli);
    IN("openmpi-in-slurm", "--scheduler=slurm", "p");
    cr_expect_str_eq(scheduler.name, "slurm");
    cli_free(&cli);
    cr_assert_eq(in("none", WORDS("--scheduler=lsf", "p")), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "LSB_JOBID") != NULL, "%s", err.msg);
    cli_free(&cli);
    cr_assert_eq(in("none", WORDS("--scheduler=sge", "p")), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "'auto', 'none', 'openmpi'") != NULL, "%s", err.msg);
    cli_free(&cli);
}

Test(scheduler, a_job_of_each_node_alone_takes_only_its_gpus)
{
    IN("slurm-one-task-per-node", "--standalone", "p");
    cr_expect_str_eq(plan_text(), "1 - 127.0.0.1:29500 4 -");
    cli_free(&cli);
}

Test(scheduler, an_elastic_job_gets_a_place_to_meet_and_no_rank)
{
    IN("slurm-one-task-per-node", "--nnodes=2:4", "p");
    cr_expect_str_eq(plan_text(), "4 - node09:14042 4 slurm-4711.1");
    cli_free(&cli);
    IN("slurm-one-task-per-node", "--nnodes=2:4", "--rdzv_endpoint=head:29400", "p");
    cr_expect_str_eq(plan_text(), "4 - 127.0.0.1:29500 4 slurm-4711.1");
    cli_free(&cli);
}

Test(scheduler, gpus_are_those_that_can_be_seen)
{
    environment_read(&env, "slurm-one-task-per-node");
    struct scheduler_facts facts = { .environ_block = env.block, .host = env.host };
    static const char *const shown[] = { "0,1", "" };
    static const char *const expected[] = { "2", "" };
    for (int i = 0; i < 2; i++) {
        facts.visible = shown[i];
        cr_assert_eq(scheduler_read(&scheduler, "auto", &facts, &err), DDP_OK);
        cr_expect_str_eq(scheduler.values[SCHEDULER_WORKERS].text, expected[i]);
    }
}

/* --- --explain ---------------------------------------------------------------------------------------------- */

Test(scheduler, why_shows_each_value_and_where_it_comes_from)
{
    struct buf out = { 0 };
    IN("slurm-one-task-per-node", "--explain", "--nnodes=3");
    cr_assert(scheduler_print(&scheduler, &cli, NULL, &out) && buf_append(&out, "", 1));
    cr_expect_str_eq(
        (char *)out.data,
        "scheduler       Slurm: SLURM_JOB_ID is set\n"
        "task            counted from 0: task 2 of 4; task 0 of 1 on this node; node 2 of 4\n"
        "nnodes          3                    command line (--nnodes); Slurm provides 4 "
        "(SLURM_STEP_NUM_NODES)\n"
        "node_rank       2                    SLURM_NODEID\n"
        "master_addr     node09               the first host of SLURM_STEP_NODELIST=node[09-10,13],gpu3\n"
        "master_port     14042                computed from the job id\n"
        "nproc_per_node  4                    SLURM_GPUS_ON_NODE\n"
        "rdzv_id         slurm-4711.1         SLURM_JOB_ID, SLURM_STEP_ID\n"
        "note            --nnodes=3 overrides the value from Slurm: 4 (SLURM_STEP_NUM_NODES)\n");
    buf_free(&out);
    cr_assert(scheduler_print_json(&scheduler, &cli, NULL, &out) && buf_append(&out, "", 1));
    cr_expect(strstr((char *)out.data, "\"from\":\t\"SLURM_NODEID\"") != NULL, "%s", (char *)out.data);
    buf_free(&out);
    cli_free(&cli);
}

/* Expect the text of --explain to contain both rows. */
static void expect_rows(char *const *words, const char *address, const char *port)
{
    struct buf out = { 0 };
    cr_assert_eq(in("none", words), DDP_OK, "%s", err.msg);
    cr_assert(scheduler_print(&scheduler, &cli, NULL, &out) && buf_append(&out, "", 1));
    const char *text = (char *)out.data;
    cr_expect(strstr(text, address) != NULL && strstr(text, port) != NULL, "%s", text);
    buf_free(&out);
    cli_free(&cli);
}

Test(scheduler, why_shows_the_place_that_the_job_uses)
{
    expect_rows(WORDS("--nnodes=2:4", "--rdzv_endpoint=10.0.0.1", "--explain"), "master_addr     10.0.0.1 ",
                "master_port     29400 ");
    expect_rows(WORDS("--nnodes=2:4", "--rdzv_endpoint=10.0.0.1:7", "--explain"), "10.0.0.1 ",
                "master_port     7 ");
    expect_rows(WORDS("--standalone", "--rdzv_endpoint=h", "--explain"), "master_addr     127.0.0.1 ",
                "master_port     any free");
    expect_rows(WORDS("--rdzv_endpoint=127.0.0.1:0", "--explain"), "127.0.0.1 ", "master_port     any free");
}

Test(scheduler, a_value_longer_than_most_makes_its_column_wider)
{
    struct buf out = { 0 };
    IN("openmpi-in-slurm", "--explain");
    cr_assert(scheduler_print(&scheduler, &cli, NULL, &out) && buf_append(&out, "", 1));
    const char *text = (char *)out.data;
    cr_expect_not_null(strstr(text, "\nnproc_per_node  one per visible GPU, 1 if none  default\n"), "%s",
                       text);
    cr_expect_not_null(strstr(text, "\nnode_rank       1                               OMPI_"), "%s", text);
    buf_free(&out);
    cli_free(&cli);
}

/* --- foreign text --------------------------------------------------------------------------------------- */

/* Any program may set Slurm's variables. */
Test(scheduler, nonsense_in_variables_is_no_crash_and_no_plan)
{
    static char *const block[] = { "SLURM_JOB_ID=../../etc",  "SLURM_STEP_ID=-1",
                                   "SLURM_STEP_NUM_TASKS=x",  "SLURM_PROCID=99999999999999999999",
                                   "SLURM_JOB_NUM_NODES=0",   "SLURM_NNODES=-4",
                                   "SLURM_JOB_NODELIST=n[0-", NULL };
    const struct scheduler_facts facts = { .environ_block = block, .host = "n0" };
    cr_assert_eq(cli_read(&cli, 2, WORDS("p"), block, &err), DDP_OK);
    cr_assert_eq(scheduler_read(&scheduler, "auto", &facts, &err), DDP_OK);
    cr_expect_str_eq(scheduler.values[SCHEDULER_NODES].text, "");
    cr_expect(strstr(scheduler.notes[0], " is not a list of hosts") != NULL, "%s", scheduler.notes[0]);
    cr_expect_eq(scheduler_apply(&scheduler, &cli, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "--rdzv_id (from SLURM_JOB_ID, SLURM_STEP_ID)=slurm-../../etc") != NULL, "%s",
              err.msg);
    cli_free(&cli);
}
