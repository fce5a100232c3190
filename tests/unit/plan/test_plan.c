/* Tests of the plan of a node: its decisions, its rejections, the output of --dry_run, and the effect of a round.
 * The plan is a pure function of the options and the machine, so the tests start no process. */
#include "command_line.h"
#include "output/lines.h"
#include "plan/plan.h"
#include "plan/worker.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct cli cli;
static struct plan plan;
static struct ddp_err err;
static struct plan_facts facts;
static const struct python_choice *python;
static char *bare[] = { "PATH=/bin", NULL };
static char *prog[] = { "ddprun", "./train", "-x", NULL };

static ddp_status make(char *const *words, char *const *environment, int gpus)
{
    static char *argv[16];
    int argc = 0;
    while (words[argc] != NULL) {
        argv[argc] = words[argc];
        argc++;
    }
    argv[argc] = NULL;
    facts = (struct plan_facts){ .environ_block = environment,
                                 .physical_gpus = gpus,
                                 .cpus = 8,
                                 .python = python,
                                 .host = "n1",
                                 .nonce = "k3x9",
                                 .tmp_dir = "/tmp",
                                 .start_time = "",
                                 .error_stem = "/run/ddprun/c00k1e" };
    cr_assert_eq(cli_parse(&cli, argc, argv, environment, &err), DDP_OK, "%s", err.msg);
    return plan_make(&plan, &cli, &facts, &err);
}

#define PLAN(...) \
    cr_assert_eq(make((char *[]){ "ddprun", __VA_ARGS__, NULL }, bare, 0), DDP_OK, "%s", err.msg)

static void tear_down(void)
{
    plan_free(&plan);
    cli_free(&cli);
}

static bool has_note(const char *words)
{
    for (int i = 0; i < PLAN_NOTES_MAX && plan.notes[i] != NULL; i++)
        if (strstr(plan.notes[i], words) != NULL)
            return true;
    return false;
}

Test(plan, says_which_options_do_nothing_here, .fini = tear_down)
{
    PLAN("--log_rotate=1M", "--log_merge", "./train");
    cr_assert(has_note("--log_rotate has no effect"));
    cr_assert(has_note("--log_merge has no effect"));
    tear_down();
    PLAN("--log_rotate=1M", "--log_dir=logs", "./train");
    cr_assert_not(has_note("has no effect"));
    tear_down();
    cr_assert_eq(make(prog, (char *[]){ "PET_LOG_ROTATE=1M", NULL }, 0), DDP_OK);
    cr_assert_not(has_note("has no effect"));
    tear_down();
    PLAN("--encrypt", "./train");
    cr_assert(
        has_note("--encrypt has no effect: the job has one node, so all its connections stay on this host"));
}

Test(plan, without_options_is_one_worker, .fini = tear_down)
{
    cr_assert_eq(make(prog, bare, 0), DDP_OK);
    cr_assert_eq(plan.nproc, 1);
    cr_assert_eq(plan.master_port, 29500);
    cr_assert(plan.meeting.port_may_change);
    cr_assert_not(plan.prefix);
    cr_assert_str_eq(plan.job, "k3x9");
    cr_assert_null(plan.log_root);
    cr_assert_null(plan.workers[0].gpu);
    cr_assert_str_eq(plan.workers[0].argv[0], "./train");
    cr_assert_str_eq(plan.workers[0].argv[1], "-x");
    cr_assert_null(plan.workers[0].argv[2]);
    cr_assert_str_eq(plan.workers[0].error_file, "/run/ddprun/c00k1e.attempt_0_rank_0.json");
}

Test(plan, lets_rank_0_host_for_a_pytorch_that_refuses_our_store, .fini = tear_down)
{
    static const struct torch_version refuses = { .refuses_stores = true, .version = "2.6.0", .dir = "/opt" };
    struct worker_env env;
    cr_assert_eq(make((char *[]){ "ddprun", "train.py", NULL }, bare, 0), DDP_OK);
    cr_expect_not(plan.rank0_store);
    facts.torch = &refuses;
    plan_free(&plan);
    cr_assert_eq(plan_make(&plan, &cli, &facts, &err), DDP_OK);
    cr_assert(plan.rank0_store);
    cr_expect(has_note("PyTorch 2.6.0 in /opt was built without libuv"));
    plan_offer_port(&plan, 4711);
    cr_assert_eq(plan_env(&plan, 0, &env, &err), DDP_OK);
    cr_expect_str_eq(env_find(env.block, "MASTER_PORT"), "4711");
    cr_expect_str_eq(env_find(env.block, "TORCHELASTIC_USE_AGENT_STORE"), "False");
    cr_expect_str_eq(env_find(env.block, "USE_LIBUV"), "0");
    cr_expect_null(env_find(env.block, "DDPRUN_STORE"));
    worker_env_free(&env);
}

/* Expect the worker to have one variable `name`, with this value. */
static void expect_once(const char *name, const char *value)
{
    struct worker_env env;
    int n = 0;
    cr_assert_eq(plan_env(&plan, 0, &env, &err), DDP_OK);
    cr_expect_null(env.block[env.n]);
    for (size_t i = 0; i < env.n; i++)
        n += strncmp(env.block[i], name, strlen(name)) == 0 && env.block[i][strlen(name)] == '=';
    cr_expect_eq(n, 1, "%s: %d", name, n);
    cr_expect_str_eq(env_find(env.block, name), value, "%s", name);
    worker_env_free(&env);
}

/* Some variables are set only after the common part of the environments was built. */
Test(plan, variables_that_are_set_later_occur_once, .fini = tear_down)
{
    char *outer[] = { "USE_LIBUV=5", "DDPRUN_FLIGHT_SHM=/outer", NULL };
    PLAN("--torch_store=rank0", "--env=USE_LIBUV=1", "train.py");
    plan_offer_port(&plan, 4711);
    expect_once("USE_LIBUV", "1");
    tear_down();
    cr_assert_eq(make((char *[]){ "ddprun", "--torch_store=rank0", "train.py", NULL }, outer, 0), DDP_OK);
    plan_offer_port(&plan, 4711);
    expect_once("USE_LIBUV", "0");
    struct worker_env env;
    cr_assert_eq(plan_env(&plan, 0, &env, &err), DDP_OK);
    cr_expect_null(env_find(env.block, "DDPRUN_FLIGHT_SHM"));
    worker_env_free(&env);
    plan.page.pid = 7;
    char page[FLIGHT_PAGE_TEXT];
    flight_page_print(page, &plan.page);
    expect_once("DDPRUN_FLIGHT_SHM", page);
}

#define SWITCH "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"

/* With SWITCH=1, rank 0 hosts a store. A cluster may set SWITCH for all jobs, so SWITCH applies only to Python
 * programs. Other programs need the launcher's store. */
Test(plan, torchruns_switch_is_for_programs_of_pythons, .fini = tear_down)
{
    char *set[] = { "PATH=/bin", SWITCH "=1", NULL };
    cr_assert_eq(make((char *[]){ "ddprun", "train.py", NULL }, set, 0), DDP_OK);
    cr_expect(plan.rank0_store);
    cr_expect(has_note(SWITCH "=1 is set, so rank 0 hosts a store"));
    tear_down();
    cr_assert_eq(make(prog, set, 0), DDP_OK);
    cr_expect_not(plan.rank0_store);
    cr_expect_not(has_note(SWITCH));
    tear_down();
    cr_assert_eq(make((char *[]){ "ddprun", "--env=" SWITCH "=0", "train.py", NULL }, set, 0), DDP_OK);
    cr_expect_not(plan.rank0_store, "--env is what the workers find");
    tear_down();
    PLAN("--env=" SWITCH "=1", "train.py");
    cr_expect(plan.rank0_store);
    tear_down();
    PLAN("--env=" SWITCH "=1", "--torch_store=launcher", "train.py");
    cr_expect_not(plan.rank0_store, "who says it on the command line means that");
}

Test(plan, a_dry_run_shows_the_store_that_rank_0_would_host, .fini = tear_down)
{
    struct buf out = { 0 };
    PLAN("--dry_run", "--torch_store=rank0", "--master_port=4711", "train.py");
    cr_assert(plan_print(&plan, &out) && buf_append(&out, "", 1));
    const char *text = (const char *)out.data;
    cr_expect_not_null(
        strstr(text, "MASTER_PORT=0  # placeholder for a free port that ddprun chooses at the start"), "%s",
        text);
    cr_expect_not_null(strstr(text, "TORCHELASTIC_USE_AGENT_STORE=False"), "%s", text);
    cr_expect_not_null(strstr(text, "USE_LIBUV=0"), "%s", text);
    cr_expect_null(strstr(text, "DDPRUN_STORE"), "%s", text);
    buf_free(&out);
}

Test(plan, one_worker_per_visible_gpu, .fini = tear_down)
{
    char *environment[] = { "CUDA_VISIBLE_DEVICES=3,1", NULL };
    cr_assert_eq(make(prog, environment, 4), DDP_OK);
    cr_assert_eq(plan.nproc, 2);
    cr_assert_str_eq(plan.workers[0].gpu, "3");
    cr_assert_str_eq(plan.workers[1].gpu, "1");
    cr_assert(plan.prefix);
    cr_assert_not(has_note("OMP_NUM_THREADS"));
    tear_down();
    cr_assert_eq(make((char *[]){ "ddprun", "train.py", NULL }, environment, 4), DDP_OK);
    cr_assert(has_note("OMP_NUM_THREADS is not set, so each worker gets OMP_NUM_THREADS=1"));
    /* a job of --hosts has one console, so only node 0 adds the note */
    for (int rank = 0; rank < 2; rank++) {
        tear_down();
        cr_assert_eq(make((char *[]){ "ddprun", "--one_console", "--nnodes=2",
                                      rank == 0 ? "--node_rank=0" : "--node_rank=1",
                                      "--master_addr=127.0.0.1", "train.py", NULL },
                          environment, 4),
                     DDP_OK);
        cr_assert_eq(has_note("OMP_NUM_THREADS"), rank == 0);
    }
}

/* The workers get the variables of --env, so the plan uses them, too. */
Test(plan, variables_of_env_count_for_gpus_and_timers, .fini = tear_down)
{
    cr_assert_eq(make((char *[]){ "ddprun", "--env=CUDA_VISIBLE_DEVICES=0,1", "p", NULL }, bare, 4), DDP_OK);
    cr_expect_eq(plan.nproc, 2);
    cr_expect_null(plan.timer_file);
    tear_down();
    cr_assert_eq(make((char *[]){ "ddprun", "--nproc_per_node=16", "--env=CUDA_VISIBLE_DEVICES=", "p", NULL },
                      bare, 8),
                 DDP_OK, "%s", err.msg);
    cr_expect_null(plan.workers[15].gpu);
    tear_down();
    PLAN("--env=TORCHELASTIC_ENABLE_FILE_TIMER=1", "p");
    cr_assert_not_null(plan.timer_file);
    cr_expect_str_eq(plan.timer_file, "/run/ddprun/c00k1e.timer");
}

/* Read /sys of a machine with one NUMA node. */
static const char *read_numa(void *user, const char *path)
{
    (void)user;
    return strstr(path, "cpulist") != NULL ? "0-1\n" : "0\n";
}

static bool find_pci(void *user, const char *gpu, char out[NUMA_PCI_SIZE])
{
    (void)user;
    snprintf(out, NUMA_PCI_SIZE, "0000:%.8s:00.0", gpu);
    return true;
}

Test(plan, workers_that_share_a_gpu_are_bound_near_it, .fini = tear_down)
{
    struct numa_source numa = { .read = read_numa, .pci_address = find_pci };
    cr_assert_eq(rank_set_parse(&numa.allowed, "0-1", NUMA_CPUS_MAX, &err), DDP_OK);
    cr_assert_eq(make((char *[]){ "ddprun", "--share_gpu", "--nproc_per_node=4", "p", NULL }, bare, 2),
                 DDP_OK);
    plan_free(&plan);
    cli.numa_binding = NUMA_NODE;
    facts.numa = &numa;
    cr_assert_eq(plan_make(&plan, &cli, &facts, &err), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(plan.workers[2].gpu, "0");
    cr_expect(rank_set_has(&plan.workers[2].cpus, 1));
    rank_set_free(&numa.allowed);
}

Test(plan, workers_that_share_gpus_need_no_longer_list, .fini = tear_down)
{
    char *two[] = { "CUDA_VISIBLE_DEVICES=5,4", NULL };
    char *words[] = { "ddprun", "--share_gpu", "--nproc_per_node=4", "--virtual_local_rank", "p", NULL };
    cr_assert_eq(make(words, two, 6), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(plan.workers[2].visible, "5");
    cr_expect_str_eq(plan.workers[3].visible, "4");
}

Test(plan, a_port_that_was_asked_for_stays, .fini = tear_down)
{
    PLAN("--master_port=1234", "p");
    cr_assert_not(plan.meeting.port_may_change);
    tear_down();
    PLAN("--standalone", "p");
    cr_assert_eq(plan.master_port, 0);
    tear_down();
    PLAN("--standalone", "--master_port=1234", "p");
    cr_assert_eq(plan.master_port, 1234);
}

Test(plan, programs_are_run_as_what_they_are, .fini = tear_down)
{
    static const struct {
        char *words[5];
        const char *argv[6];
    } cases[] = {
        { { "ddprun", "train.py", "a" }, { "python3", "-u", "train.py", "a" } },
        { { "ddprun", "-m", "pkg", "a" }, { "python3", "-u", "-m", "pkg", "a" } },
        { { "ddprun", "--no_python", "train.py" }, { "train.py" } },
        { { "ddprun", ".py" }, { ".py" } },
        { { "ddprun", "sh", "-c", "echo $$ ${local_rank}" }, { "sh", "-c", "echo $$ 0" } },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_assert_eq(make(cases[i].words, bare, 0), DDP_OK);
        char **argv = plan.workers[0].argv;
        for (int k = 0; k < 6 && cases[i].argv[k] != NULL; k++)
            cr_assert_str_eq(argv[k], cases[i].argv[k], "case %zu", i);
        tear_down();
    }
    static const struct python_choice other = { .program = "/opt/py", .why = "it is there" };
    python = &other;
    cr_assert_eq(make((char *[]){ "ddprun", "t.py", NULL }, bare, 0), DDP_OK);
    cr_assert_str_eq(plan.workers[0].argv[0], "/opt/py");
}

/* PyTorch's recorder has variables with an old and a new name. The plan sets both names. The plan also sets the
 * variable for libddp's records, unless the user has set it. */
Test(plan, the_flight_recorder_writes_beside_the_logs, .fini = tear_down)
{
    struct worker_env env;
    PLAN("--log_dir=logs", "--rdzv_id=j", "--flight_recorder", "--env=DDP_FLIGHT_RECORDER=/mine", "p");
    cr_assert_eq(plan_env(&plan, 0, &env, &err), DDP_OK);
    cr_expect_str_eq(env_find(env.block, "TORCH_FR_BUFFER_SIZE"), "2000");
    cr_expect_str_eq(env_find(env.block, "TORCH_FR_DUMP_TEMP_FILE"), "logs/j_k3x9/attempt_0/flight_torch_");
    cr_expect_str_eq(env_find(env.block, "TORCH_NCCL_TRACE_BUFFER_SIZE"), "2000");
    cr_expect_str_eq(env_find(env.block, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
                     "logs/j_k3x9/attempt_0/flight_torch_");
    cr_expect_str_eq(env_find(env.block, "DDP_FLIGHT_RECORDER"), "/mine");
    cr_expect_null(env_find(env.block, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"));
    worker_env_free(&env);
    tear_down();
    static const struct {
        const char *program, *variable, *pipe;
        bool can_fifo;
    } cases[] = {
        { "t.py", "A=1", "logs/j_k3x9/attempt_0/flight_pipe_", true },
        { "t.py", "A=1", NULL, false },
        { "t.sh", "A=1", NULL, true }, /* a shell script may start its ranks in containers */
        { "t.py", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/mine", "/mine", true },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char variable[80], program[8];
        snprintf(variable, sizeof(variable), "--env=%s", cases[i].variable);
        snprintf(program, sizeof(program), "%s", cases[i].program);
        PLAN("--log_dir=logs", "--rdzv_id=j", "--flight_recorder", variable, program);
        plan.can_fifo = cases[i].can_fifo;
        cr_assert_eq(plan_env(&plan, 0, &env, &err), DDP_OK);
        const char *pipe = env_find(env.block, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
        cr_expect(cases[i].pipe == NULL ? pipe == NULL : pipe != NULL && strcmp(pipe, cases[i].pipe) == 0,
                  "case %zu: %s", i, pipe);
        worker_env_free(&env);
        tear_down();
    }
    PLAN("--log_dir=logs", "--flight_recorder", "--env=TORCH_NCCL_TRACE_BUFFER_SIZE=7", "p");
    cr_assert_eq(plan_env(&plan, 0, &env, &err), DDP_OK);
    cr_expect_str_eq(env_find(env.block, "TORCH_FR_BUFFER_SIZE"), "7");
    cr_expect_str_eq(env_find(env.block, "TORCH_NCCL_TRACE_BUFFER_SIZE"), "7");
    worker_env_free(&env);
    tear_down();
    PLAN("--log_dir=logs", "p");
    cr_assert_eq(plan_env(&plan, 0, &env, &err), DDP_OK);
    cr_expect_null(env_find(env.block, "TORCH_FR_BUFFER_SIZE"));
    worker_env_free(&env);
    tear_down();
    cr_expect_eq(make((char *[]){ "ddprun", "--flight_recorder", "p", NULL }, bare, 0), DDP_ERR_ARG);
    cr_expect_str_eq(err.msg, "--flight_recorder: no directory for the ranks' records; add --log_dir=DIR");
}

Test(plan, the_python_of_an_active_environment_comes_first)
{
    static const struct {
        struct python_facts facts;
        const char *program, *why;
    } cases[] = {
        { { .virtual_env = "/v",
            .active = "/v/bin/python",
            .beside = "/w/bin/python",
            .python_exec = "/opt/py" },
          "/v/bin/python",
          "VIRTUAL_ENV is set; not used: PYTHON_EXEC=/opt/py" },
        { { .virtual_env = "/v", .active = "/v/bin/python", .python_exec = "" },
          "/v/bin/python",
          "VIRTUAL_ENV is set" },
        { { .virtual_env = "/v", .active = "", .beside = "/w/bin/python", .in_path = "/usr/bin/python3" },
          "/w/bin/python",
          "ddprun is installed in this environment; VIRTUAL_ENV is ignored, because bin/python is missing in "
          "/v" },
        { { .virtual_env = "", .python_exec = "/opt/py", .in_path = "/usr/bin/python3" },
          "/opt/py",
          "PYTHON_EXEC is set" },
        { { .in_path = "/usr/bin/python3" }, "python3", "the first in PATH: /usr/bin/python3" },
        { { 0 }, "python3", "PATH has no python3" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct python_choice choice;
        python_choose(&choice, &cases[i].facts);
        cr_expect_str_eq(choice.program, cases[i].program, "case %zu", i);
        cr_expect_str_eq(choice.why, cases[i].why, "case %zu", i);
    }
}

Test(plan, a_dry_run_names_the_python_and_the_reason, .fini = tear_down)
{
    static const struct python_choice chosen = { .program = "/v/bin/python", .why = "VIRTUAL_ENV is set" };
    struct buf out = { 0 };
    python = &chosen;
    PLAN("t.py");
    cr_assert(plan_print(&plan, &out) && plan_print_json(&plan, &out) && buf_append(&out, "", 1));
    cr_expect(strstr((char *)out.data, "\nPython: /v/bin/python (VIRTUAL_ENV is set)\n"), "%s",
              (char *)out.data);
    cr_expect(strstr((char *)out.data, "\"why\":\t\"VIRTUAL_ENV is set\""), "%s", (char *)out.data);
    buf_free(&out);
    tear_down();
    PLAN("./train");
    cr_assert(plan_print(&plan, &out) && plan_print_json(&plan, &out) && buf_append(&out, "", 1));
    cr_expect_not(strstr((char *)out.data, "Python: "), "%s", (char *)out.data);
    cr_expect(strstr((char *)out.data, "\"python\":\tnull"), "%s", (char *)out.data);
    buf_free(&out);
}

Test(plan, a_log_directory_means_files_and_console, .fini = tear_down)
{
    PLAN("--log_dir=logs", "--rdzv_id=j", "--nproc_per_node=2", "p");
    cr_assert_str_eq(plan.log_root, "logs/j_k3x9");
    cr_assert_str_eq(plan.workers[1].log_dir, "logs/j_k3x9/attempt_0/1");
    cr_assert_str_eq(plan.workers[1].out.file, "logs/j_k3x9/attempt_0/1/stdout.log");
    cr_assert_str_eq(plan.workers[1].error_file, "logs/j_k3x9/attempt_0/1/error.json");
    cr_assert(plan.workers[1].out.console && plan.workers[1].err.console);
}

Test(plan, maps_say_which_stream_goes_where, .fini = tear_down)
{
    PLAN("--nproc_per_node=3", "--redirects=0:3,1:1", "--tee=1:2", "p");
    cr_assert_str_eq(plan.log_root, "/tmp/ddprun_k3x9");
    cr_assert(has_note("log files are in /tmp/ddprun_k3x9"));
    const struct plan_worker *w = plan.workers;
    cr_assert(!w[0].out.console && w[0].out.file != NULL && !w[0].err.console && w[0].err.file != NULL);
    cr_assert(!w[1].out.console && w[1].out.file != NULL && w[1].err.console && w[1].err.file != NULL);
    cr_assert(w[2].out.console && w[2].out.file == NULL && w[2].err.console && w[2].err.file == NULL);
    cr_assert(plan.prefix, "two still write to the console");
    tear_down();
    PLAN("--log_dir=/dev/null", "--redirects=1", "p");
    cr_assert_null(plan.log_root);
    cr_assert_null(plan.workers[0].out.file);
    cr_assert_str_eq(plan.workers[0].error_file, "", "as torchrun: no files at all");
}

Test(plan, what_cannot_be_is_refused)
{
    cr_assert_eq(make((char *[]){ "ddprun", "--nproc_per_node=3", "p", NULL }, bare, 2), DDP_ERR_ARG);
    cr_assert_str_eq(err.msg, "--nproc_per_node=3: more workers than the 2 GPUs of this machine; set "
                              "CUDA_VISIBLE_DEVICES=\"\" for a "
                              "job on CPUs, or add --share_gpu for a test");
    cli_free(&cli);
}

Test(plan, names_what_it_cannot_obey, .fini = tear_down)
{
    char *environment[] = { "PET_STRATEGY=ddp", NULL };
    cr_assert_eq(make(prog, environment, 0), DDP_OK);
    cr_assert(has_note("PET_STRATEGY has no effect: ddprun has no option of this name"));
}

Test(plan, names_a_default_that_is_only_read_from_the_command_line, .fini = tear_down)
{
    char *environment[] = { "PET_USE_ENV=1", NULL };
    cr_assert_eq(make(prog, environment, 0), DDP_OK);
    cr_assert(has_note("PET_USE_ENV has no effect: --use_env works only on the command line"));
}

Test(plan, gives_each_worker_its_environment, .fini = tear_down)
{
    PLAN("--nproc_per_node=2", "--env=A=b c", "--timeout=90", "p");
    plan.master_port = 4711;
    struct worker_env env;
    cr_assert_eq(plan_env(&plan, 1, &env, &err), DDP_OK);
    cr_assert_str_eq(env_find(env.block, "RANK"), "1");
    cr_assert_str_eq(env_find(env.block, "MASTER_PORT"), "4711");
    cr_assert_str_eq(env_find(env.block, "DDPRUN_INIT_TIMEOUT_MS"), "90000");
    cr_assert_str_eq(env_find(env.block, "A"), "b c");
    cr_assert_str_eq(env_find(env.block, "PATH"), "/bin");
    worker_env_free(&env);
}

Test(plan, is_printed_so_that_it_can_be_pasted, .fini = tear_down)
{
    struct buf out = { 0 };
    PLAN("--rdzv_id=j", "--env=A=b c", "sh", "-c", "echo 'hi'");
    cr_assert(plan_print(&plan, &out));
    cr_assert(buf_append(&out, "", 1));
    cr_assert_str_eq((char *)out.data,
                     "job j: 1 worker on n1, store at 127.0.0.1:29500\n"
                     "GPUs: 0 visible of 0\n"
                     "rank 0: local rank 0, GPU none\n"
                     "    command: sh -c 'echo '\\''hi'\\'''\n"
                     "    stdout: console\n"
                     "    stderr: console\n"
                     "    environment:\n"
                     "        RANK=0\n"
                     "        LOCAL_RANK=0\n"
                     "        WORLD_SIZE=1\n"
                     "        LOCAL_WORLD_SIZE=1\n"
                     "        GROUP_RANK=0\n"
                     "        GROUP_WORLD_SIZE=1\n"
                     "        ROLE_RANK=0\n"
                     "        ROLE_WORLD_SIZE=1\n"
                     "        ROLE_NAME=default\n"
                     "        MASTER_ADDR=127.0.0.1\n"
                     "        MASTER_PORT=29500\n"
                     "        TORCHELASTIC_RESTART_COUNT=0\n"
                     "        TORCHELASTIC_MAX_RESTARTS=0\n"
                     "        TORCHELASTIC_RUN_ID=j\n"
                     "        TORCHELASTIC_USE_AGENT_STORE=True\n"
                     "        TORCHELASTIC_ERROR_FILE=/run/ddprun/c00k1e.attempt_0_rank_0.json\n"
                     "        TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP\n"
                     "        TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n"
                     "        NCCL_ASYNC_ERROR_HANDLING=1\n"
                     "        DDPRUN_STORE=1\n"
                     "        DDPRUN_JOB=j\n"
                     "        DDPRUN_ATTEMPT=0\n"
                     "        'A=b c'\n");
    buf_free(&out);
}

Test(plan, is_also_json, .fini = tear_down)
{
    struct buf out = { 0 };
    PLAN("--nproc_per_node=2", "--log_dir=logs", "p", "bad\xff utf");
    cr_assert(plan_print_json(&plan, &out));
    cr_assert(buf_append(&out, "", 1));
    cJSON *o = cJSON_Parse((char *)out.data);
    cr_assert_not_null(o);
    cr_assert_eq(cJSON_GetObjectItem(o, "world_size")->valueint, 2);
    cJSON *w = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "workers"), 1);
    cr_assert_eq(cJSON_GetObjectItem(w, "rank")->valueint, 1);
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(w, "gpu")));
    cr_assert_str_eq(cJSON_GetArrayItem(cJSON_GetObjectItem(w, "command"), 1)->valuestring,
                     "bad\xef\xbf\xbd utf");
    cr_assert_str_eq(cJSON_GetObjectItem(cJSON_GetObjectItem(w, "environment"), "LOCAL_RANK")->valuestring,
                     "1");
    cr_assert_str_eq(cJSON_GetObjectItem(cJSON_GetObjectItem(w, "stderr"), "file")->valuestring,
                     "logs/k3x9/attempt_0/1/stderr.log");
    cJSON_Delete(o);
    buf_free(&out);
}

/* With --master_port=0, --dry_run must not show 0 as the value of MASTER_PORT: the text marks this value as a
 * placeholder, and JSON has null. */
Test(plan, a_port_that_is_not_known_yet_is_not_shown_as_a_value, .fini = tear_down)
{
    struct buf text = { 0 }, json = { 0 };
    PLAN("--master_port=0", "p");
    cr_assert(plan_print(&plan, &text) && buf_append(&text, "", 1));
    cr_assert(plan_print_json(&plan, &json) && buf_append(&json, "", 1));
    cr_expect_not_null(strstr((char *)text.data, "MASTER_PORT=0  # placeholder for"), "%s",
                       (char *)text.data);
    cJSON *o = cJSON_Parse((char *)json.data);
    cJSON *w = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "workers"), 0);
    cr_expect(cJSON_IsNull(cJSON_GetObjectItem(o, "master_port")));
    cr_expect(cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetObjectItem(w, "environment"), "MASTER_PORT")));
    cJSON_Delete(o);
    buf_free(&text);
    buf_free(&json);
}

/* --- the console ---------------------------------------------------------------------------------------- */

/* Return the prefix of rank 1's lines, or "". */
static const char *prefix_text(void)
{
    static char shown[256];
    struct buf out = { 0 };
    const struct line_origin from = { .local_rank = 1, .which = STD_ERR, .pid = 77, .at = { 42, 1500000 } };
    cr_assert(line_prefix(&plan, &from, false, &out) && buf_append(&out, "", 1));
    snprintf(shown, sizeof(shown), "%s", (const char *)out.data);
    buf_free(&out);
    return shown;
}

Test(plan, a_prefix_has_its_template_from_the_option, .fini = tear_down)
{
    PLAN("--nproc_per_node=2", "--log-line-prefix-template=$host:${local_rank} $pid $stream|", "x");
    cr_assert_str_eq(prefix_text(), "n1:1 77 stderr|");
}

Test(plan, else_from_torchruns_variable_else_it_is_the_rank, .fini = tear_down)
{
    char *environment[] = { "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=[${role_name}${local_rank}]:", NULL };
    cr_assert_eq(make((char *[]){ "ddprun", "--nproc_per_node=2", "x", NULL }, environment, 0), DDP_OK);
    cr_assert_str_eq(prefix_text(), "[default1]:");
    tear_down();
    PLAN("--nproc_per_node=2", "--timestamps", "x");
    cr_assert_str_eq(prefix_text(), "1970-01-01T00:00:00.000042Z [1] ");
    tear_down();
    PLAN("--nproc_per_node=2", "--no_prefix", "x");
    cr_assert_str_eq(prefix_text(), "");
}

Test(plan, a_template_on_the_command_line_is_for_a_single_worker_too, .fini = tear_down)
{
    char *environment[] = { "PET_LOG_LINE_PREFIX_TEMPLATE=$host ", NULL };
    PLAN("--log-line-prefix-template=$host ", "x");
    cr_assert(plan.prefix);
    tear_down();
    PLAN("--timestamps", "x");
    cr_assert(plan.prefix);
    tear_down();
    cr_assert_eq(make((char *[]){ "ddprun", "x", NULL }, environment, 0), DDP_OK);
    cr_assert_not(plan.prefix, "the environment is for all jobs, also for those that want a terminal");
}

Test(plan, a_wrong_template_is_refused_with_its_name)
{
    cr_assert_eq(make((char *[]){ "ddprun", "--log-line-prefix-template=[$rnak]", "x", NULL }, bare, 0),
                 DDP_ERR_ARG);
    cr_expect_not_null(strstr(err.msg, "--log_line_prefix_template=[$rnak]: unknown field 'rnak'"), "%s",
                       err.msg);
    cr_expect_not_null(strstr(err.msg, "elapsed"), "the list is whole: %s", err.msg);
    cli_free(&cli);
}

Test(plan, a_line_of_several_ranks_shows_them_in_any_case, .fini = tear_down)
{
    struct rank_set ranks = { 0 };
    struct buf out = { 0 };
    cr_assert_eq(rank_set_parse(&ranks, "0,2-3", 8, NULL), DDP_OK);
    const struct line_origin from = { .ranks = &ranks };
    PLAN("--nproc_per_node=4", "x");
    cr_assert(line_prefix(&plan, &from, true, &out));
    tear_down();
    PLAN("--nproc_per_node=4", "--log-line-prefix-template=$host$pid ", "x");
    cr_assert(line_prefix(&plan, &from, false, &out));
    tear_down();
    PLAN("--nproc_per_node=4", "--no-prefix", "x");
    cr_assert(line_prefix(&plan, &from, false, &out) && buf_append(&out, "", 1));
    cr_assert_str_eq((const char *)out.data, "\033[1m[0,2-3]\033[0m [0,2-3] n1- [0,2-3] ");
    rank_set_free(&ranks);
    buf_free(&out);
}

Test(plan, a_filter_takes_ranks_off_the_console_and_leaves_their_files, .fini = tear_down)
{
    PLAN("--nproc_per_node=3", "--local-ranks-filter=1", "x");
    cr_assert(plan.workers[1].out.console && plan.workers[1].err.console);
    cr_assert_not(plan.workers[0].out.console);
    cr_assert_null(plan.workers[0].out.file);
    cr_assert_not(plan.prefix, "only one is shown");
    tear_down();
    PLAN("--nproc_per_node=3", "--local-ranks-filter=0,2", "--log_dir=logs", "x");
    cr_assert_not(plan.workers[1].err.console);
    cr_assert_not_null(plan.workers[1].err.file);
    cr_assert(plan.prefix);
}

/* As in torchrun, options may name local ranks that a node does not have. One command line may serve nodes of different
 * sizes. */
Test(plan, ranks_that_this_node_does_not_have_are_a_note, .fini = tear_down)
{
    PLAN("--nproc_per_node=2", "--log_dir=logs", "--tee=0:1,5:1", "--redirects=2:3",
         "--local_ranks_filter=0-3", "x");
    cr_expect(
        has_note("--tee: local rank 5 does not exist: this node has 2 workers; list only ranks below 2"));
    cr_expect(has_note(
        "--redirects: local rank 2 does not exist: this node has 2 workers; list only ranks below 2"));
    cr_expect(has_note("--local_ranks_filter: local rank 3 does not exist: this node has 2 workers; list "
                       "only ranks below 2"));
    cr_assert(plan.workers[1].out.console && plan.workers[0].out.file != NULL);
}

/* --- one node of several: what is known before the nodes have met, and what each round brings ------------- */

#define PLAN_NODE(...) PLAN(__VA_ARGS__, "p")

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
    PLAN_NODE("--nproc_per_node=2");
    cr_assert(plan.settled);
    cr_assert_not(plan.meeting.elsewhere);
    cr_assert_eq(plan.world_size, 2);
    cr_assert_str_eq(plan.job, "k3x9");
}

Test(plan_nodes, a_static_node_knows_its_place, .fini = tear_down)
{
    PLAN_NODE("--nnodes=3", "--node_rank=2", "--nproc_per_node=2", "--master_addr=10.0.0.1", "--dry_run");
    cr_assert_eq(plan.meeting.node_rank, 2);
    cr_assert_eq(plan.meeting.join_ms, 900000);
    cr_assert_str_eq(plan.meeting.join_knob, "--timeout");
    cr_assert_eq(plan.meeting.port, 29500);
    cr_assert_not(plan.meeting.port_may_change);
    cr_assert_str_eq(plan.job, "none");
    cr_assert_eq(plan.workers[1].rank, 5);
    cr_assert(prints("nodes: static; this is node 2 of 3, counted from 0; 15 min to join (--timeout)"));
    cr_assert(prints("note: the ranks shown are correct if each of the 3 nodes has 2 workers"));
    cr_assert(prints("rank 5: local rank 1"));
}

Test(plan_nodes, an_elastic_node_waits_for_its_ranks, .fini = tear_down)
{
    PLAN_NODE("--nnodes=1:4", "--nproc_per_node=2", "--rdzv_endpoint=n0", "--dry_run");
    cr_assert(plan.meeting.elastic);
    cr_assert_eq(plan.meeting.node_rank, -1);
    cr_assert_eq(plan.meeting.join_ms, 600000);
    cr_assert_eq(plan.meeting.last_call_ms, 30000);
    cr_assert_eq(plan.meeting.port, 29400);
    cr_assert(prints("nodes: elastic, 1 to 4; 10 min to join (--timeout)"));
    cr_assert(prints("rank ?: local rank 1"));
    cr_assert(prints("WORLD_SIZE=8  # placeholder for a value that the rendezvous assigns"));
    cr_assert(prints("MASTER_ADDR=n0  # placeholder for the numeric address"));
    cr_assert(prints("        LOCAL_RANK=1\n"));
}

Test(plan_nodes, a_round_brings_ranks_and_the_place, .fini = tear_down)
{
    PLAN_NODE("--nnodes=1:4", "--nproc_per_node=2", "--rdzv_endpoint=n0", "--log_file=%n/%r.%a",
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
    PLAN_NODE("--nnodes=2:2", "--node_rank=0", "--master_addr=h", "--rdzv_conf=timeout=70");
    cr_assert_eq(plan.meeting.join_ms, 70000);
    cr_assert_str_eq(plan.meeting.join_knob, "--rdzv_conf timeout");
    tear_down();
    PLAN_NODE("--nnodes=1:2", "--rdzv_endpoint=h:5", "--rdzv_conf=join_timeout=70", "--timeout=20");
    cr_assert_eq(plan.meeting.join_ms, 20000);
    cr_assert_str_eq(plan.meeting.join_knob, "--timeout");
    cr_assert_eq(plan.meeting.port, 5);
    expect_variable(0, "DDPRUN_INIT_TIMEOUT_MS", "20000");
}

Test(plan_nodes, silence_is_judged_by_the_option_else_by_torchruns_keys, .fini = tear_down)
{
    PLAN_NODE("--rdzv_conf=keep_alive_interval=2");
    cr_assert_eq(plan.meeting.node_timeout_ms, 6000);
    tear_down();
    PLAN_NODE("--rdzv_conf=keep_alive_interval=2", "--node_timeout=fast");
    cr_assert_eq(plan.meeting.node_timeout_ms, 1500);
    tear_down();
    PLAN_NODE("--verbose");
    cr_assert_eq(plan.meeting.node_timeout_ms, 3000);
}

Test(plan_nodes, of_the_command_the_name_of_the_program_is_compared, .fini = tear_down)
{
    cr_assert_eq(make((char *[]){ "ddprun", "/opt/here/p", "ab", NULL }, bare, 0), DDP_OK);
    cr_assert_str_eq(plan.meeting.program, "p");
    tear_down();
    cr_assert_eq(make((char *[]){ "ddprun", "-q", "./train.py", "--lr=1", NULL }, bare, 0), DDP_OK);
    cr_assert_str_eq(plan.meeting.program, "train.py");
    tear_down();
    cr_assert_eq(make((char *[]){ "ddprun", "-m", "package.train", NULL }, bare, 0), DDP_OK);
    cr_assert_str_eq(plan.meeting.program, "package.train");
}

/* The name ends before the two-byte letter that does not fit. */
Test(plan_nodes, a_long_name_of_a_program_is_cut_between_letters, .fini = tear_down)
{
    char program[80];
    snprintf(program, sizeof(program), "%062d\xc3\xa9.py", 0);
    cr_assert_eq(make((char *[]){ "ddprun", program, NULL }, bare, 0), DDP_OK);
    cr_assert_eq(strlen(plan.meeting.program), 62);
}

Test(plan_nodes, what_does_nothing_here_is_said, .fini = tear_down)
{
    PLAN_NODE("--nnodes=1:2", "--node_rank=1", "--rdzv_endpoint=h", "--rdzv_conf=close_timeout=3");
    cr_assert(prints("note: --node_rank has no effect: the rendezvous assigns the node ranks"));
    cr_assert(prints("note: close_timeout in --rdzv_conf has no effect"));
    tear_down();
    PLAN_NODE("--grow=now");
    cr_assert(prints("note: --grow has no effect"));
}

Test(plan_nodes, a_pattern_that_gives_two_workers_one_file_is_found_before_anybody_waits)
{
    cr_assert_eq(make((char *[]){ "ddprun", "--nnodes=1:2", "--rdzv_endpoint=h", "--nproc_per_node=2",
                                  "--log_file=out_%n", "p", NULL },
                      bare, 0),
                 DDP_ERR_ARG);
    cli_free(&cli);
}
