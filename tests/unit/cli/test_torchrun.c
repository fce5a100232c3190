/* Tests of torchrun's own options, and of the defaults of ddprun if its program name is torchrun. A script must
 * start in the same way under both names. */
#include "command_line.h"
#include "plan/plan.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct cli cli;
static struct plan plan;
static struct plan_facts facts;
static struct ddp_err err;
static char *bare[] = { NULL };

static void tear_down(void)
{
    plan_free(&plan);
    cli_free(&cli);
}

/* Make a plan from a command line and from the words in `environment`. The machine has two GPUs more than any test
 * needs. */
static ddp_status make(char *const *words, char *const *environment)
{
    int argc = 0;
    while (words[argc] != NULL)
        argc++;
    ddp_status status = cli_parse(&cli, argc, words, environment, &err);
    facts = (struct plan_facts){ .environ_block = environment,
                                 .cpus = 4,
                                 .host = "n1",
                                 .cookie = "c00k1e",
                                 .nonce = "k3x9",
                                 .start_time = "20240229T235959Z",
                                 .tmp_dir = "/tmp",
                                 .error_stem = "/run/ddprun/c00k1e" };
    return status == DDP_OK ? plan_make(&plan, &cli, &facts, &err) : status;
}

static void expect_made(char *const *words, char *const *environment)
{
    tear_down();
    cr_assert_eq(make(words, environment), DDP_OK, "%s", err.msg);
}

#define WORDS(...)    ((char *[]){ __VA_ARGS__, NULL })
#define DDPRUN(...)   expect_made(WORDS("ddprun", __VA_ARGS__), bare)
#define TORCHRUN(...) expect_made(WORDS("/usr/local/bin/torchrun", __VA_ARGS__), bare)

/* Expect an error that begins with `begin`, such as the option and its value. */
static void refused(char *const *words, char *const *environment, const char *begin)
{
    tear_down();
    cr_assert_eq(make(words, environment), DDP_ERR_ARG, "taken, but should be refused: %s", begin);
    cr_assert_eq(strncmp(err.msg, begin, strlen(begin)), 0, "%s", err.msg);
}

#define REFUSED(begin, ...) refused(WORDS("ddprun", __VA_ARGS__), bare, begin)

/* Return the worker's command, with blanks between the words. */
static const char *command(int local_rank)
{
    static char text[512];
    size_t used = 0;
    text[0] = '\0';
    for (char **arg = plan.workers[local_rank].argv; *arg != NULL; arg++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used > 0 ? " " : "", *arg);
    return text;
}

/* Return one variable of a worker, or NULL if the variable is not set. */
static const char *variable(int local_rank, const char *name)
{
    static char text[256];
    struct worker_env env;
    cr_assert_eq(plan_env(&plan, local_rank, &env, &err), DDP_OK);
    const char *value = env_find(env.block, name);
    snprintf(text, sizeof(text), "%s", value != NULL ? value : "");
    worker_env_free(&env);
    return value != NULL ? text : NULL;
}

/* --- torchrun's options ----------------------------------------------------------------------------------- */

Test(torchrun, run_path_gives_the_script_its_own_words, .fini = tear_down)
{
    DDPRUN("--run_path", "--no_python", "-m", "/x/train.py", "--lr", "1");
    cr_assert_str_eq(command(0),
                     "python3 -u -c import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], "
                     "run_name='__main__') /x/train.py --lr 1");
}

Test(torchrun, the_local_rank_can_be_an_argument_as_with_launch, .fini = tear_down)
{
    DDPRUN("--nproc_per_node=2", "--pass_local_rank=local-rank", "train.py", "a${local_rank}b$$");
    cr_assert_str_eq(command(1), "python3 -u train.py --local-rank=1 a1b$$");
    DDPRUN("--pass_local_rank", "local_rank", "--use-env", "train.py", "x");
    cr_assert_str_eq(command(0), "python3 -u train.py x");
    REFUSED("--pass_local_rank=rank: expected", "--pass_local_rank=rank", "train.py");
}

Test(torchrun, a_virtual_local_rank_is_0_on_the_workers_own_gpu, .fini = tear_down)
{
    char *three[] = { "CUDA_VISIBLE_DEVICES=5, GPU-77 ,0", NULL };
    char *hip[] = { "HIP_VISIBLE_DEVICES=3,2", "CUDA_VISIBLE_DEVICES=1", NULL };
    char *const *words = WORDS("ddprun", "--nproc_per_node=2", "--virtual-local-rank", "p", "${local_rank}");
    expect_made(words, three);
    cr_assert_str_eq(variable(1, "LOCAL_RANK"), "0");
    cr_assert_str_eq(variable(1, "RANK"), "1");
    cr_assert_str_eq(variable(1, "CUDA_VISIBLE_DEVICES"), "GPU-77");
    cr_assert_str_eq(variable(1, "DDPRUN_OWN_GPU"), "1");
    cr_assert_null(variable(1, "HIP_VISIBLE_DEVICES"));
    cr_assert_str_eq(command(1), "p 1", "arguments still get the real one");
    expect_made(words, hip);
    cr_assert_str_eq(variable(0, "CUDA_VISIBLE_DEVICES"), "3");
    cr_assert_str_eq(variable(0, "HIP_VISIBLE_DEVICES"), "3");
    char *const *named =
        WORDS("ddprun", "--nproc_per_node=2", "--env=HIP_VISIBLE_DEVICES", "--virtual_local_rank", "p");
    expect_made(named, hip);
    cr_assert_str_eq(variable(0, "HIP_VISIBLE_DEVICES"), "3");
    expect_made(words, bare);
    cr_assert_str_eq(variable(1, "CUDA_VISIBLE_DEVICES"), "1");
}

Test(torchrun, a_virtual_local_rank_needs_a_gpu_for_each)
{
    char *one[] = { "CUDA_VISIBLE_DEVICES=5", NULL };
    char *hip[] = { "HIP_VISIBLE_DEVICES=3", "CUDA_VISIBLE_DEVICES=5,6", NULL };
    char *const *words = WORDS("ddprun", "--nproc_per_node=2", "--virtual_local_rank", "p");
    refused(words, one, "--virtual_local_rank");
    cr_expect(strstr(err.msg, "CUDA_VISIBLE_DEVICES") != NULL, "%s", err.msg);
    refused(words, hip, "--virtual_local_rank");
    cr_expect(strstr(err.msg, "HIP_VISIBLE_DEVICES") != NULL, "%s", err.msg);
    REFUSED("--env=CUDA_VISIBLE_DEVICES: cannot", "--env=CUDA_VISIBLE_DEVICES=0,1", "--virtual_local_rank",
            "p");
}

Test(torchrun, a_role_has_a_name, .fini = tear_down)
{
    DDPRUN("--role=trainer", "p");
    cr_assert_str_eq(variable(0, "ROLE_NAME"), "trainer");
    REFUSED("--role=a\nb: expected", "--role=a\nb", "p");
}

Test(torchrun, what_only_python_can_do_is_refused_with_the_way_out)
{
    REFUSED("--event_log_handler=mine: expected", "--event-log-handler=mine", "p");
    REFUSED("--logs_specs=mine: expected", "--logs-specs", "mine", "p");
    REFUSED("--start_method=thread: expected", "--start-method=thread", "p");
    REFUSED("--monitor_interval=soon: expected", "--monitor-interval=soon", "p");
    REFUSED("--shutdown_timeout=1.5: expected", "--shutdown_timeout=1.5", "p");
}

Test(torchrun, its_variable_for_the_grace_time_is_the_weakest_default, .fini = tear_down)
{
    char *one[] = { "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=5", NULL };
    char *two[] = { "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=5", "PET_GRACE=7s", NULL };
    expect_made(WORDS("ddprun", "p"), one);
    cr_assert_eq(cli.grace_ms, 5000);
    expect_made(WORDS("ddprun", "p"), two);
    cr_assert_eq(cli.grace_ms, 7000);
    expect_made(WORDS("ddprun", "--shutdown-timeout=9", "p"), two);
    cr_assert_eq(cli.grace_ms, 9000);
}

/* --- ddprun under the name torchrun ----------------------------------------------------------------------- */

Test(torchrun, defaults_are_its_own_under_its_name, .fini = tear_down)
{
    TORCHRUN("p", "$local_rank", "$local_rank_", "$$x", "$LOCAL_RANK");
    cr_assert_eq(plan.nproc, 1);
    cr_assert_str_eq(command(0), "python3 -u p 0 $local_rank_ $x $LOCAL_RANK");
    cr_assert_eq(signals_act(cli.stop_signals, SIGQUIT), SIGNAL_STOP);
    cr_assert_str_eq(variable(0, "TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
    cr_assert_str_eq(cli.scheduler, "none");
    cr_assert_str_eq(plan.job, "k3x9");
    TORCHRUN("--no_python", "p");
    cr_assert_str_eq(command(0), "p");
    DDPRUN("p");
    cr_assert_not(cli.torchrun);
}

Test(torchrun, a_job_with_a_place_is_called_none_under_its_name, .fini = tear_down)
{
    TORCHRUN("--master_port=29501", "--log-dir=logs", "p");
    cr_assert_str_eq(plan.job, "none");
    cr_assert_str_eq(plan.log_root, "logs/none_k3x9");
    cr_assert_null(plan.workers[0].out.file, "a directory alone redirects nothing");
    cr_assert_str_eq(plan.workers[0].error_file, "logs/none_k3x9/attempt_0/0/error.json");
    TORCHRUN("--standalone", "--master_port=29501", "p");
    cr_assert_str_eq(plan.job, "k3x9");
}

Test(torchrun, only_what_is_teed_has_a_prefix_under_its_name, .fini = tear_down)
{
    TORCHRUN("--nproc-per-node=2", "p");
    cr_assert_not(plan.prefix);
    TORCHRUN("--nproc-per-node=2", "-t3", "p");
    cr_assert(plan.prefix);
    cr_assert_eq(plan.line_prefix.n, 4, "[ role, local rank ]:");
    TORCHRUN("--nproc-per-node=2", "--tee=0:1,1:2", "p");
    cr_expect(plan_stream_has_prefix(&plan, 0, STD_OUT));
    cr_expect_not(plan_stream_has_prefix(&plan, 0, STD_ERR));
    cr_expect_not(plan_stream_has_prefix(&plan, 1, STD_OUT));
    cr_expect(plan_stream_has_prefix(&plan, 1, STD_ERR));
    TORCHRUN("--nproc-per-node=2", "--tee=0:1", "--prefix", "p");
    cr_expect(plan_stream_has_prefix(&plan, 1, STD_ERR), "the user asks for all");
}

Test(torchrun, a_node_without_rank_is_the_first_under_its_name, .fini = tear_down)
{
    TORCHRUN("--nnodes=2", "p");
    cr_assert_eq(plan.node_rank, 0);
    cr_assert_str_eq(plan.meeting.host, "127.0.0.1");
    cr_assert_str_eq(plan.job, "none");
}

/* Return true if one of the plan's notes contains these words. */
static bool notes(const char *words)
{
    bool found = false;
    for (int i = 0; i < PLAN_NOTES_MAX && plan.notes[i] != NULL; i++)
        found = found || strstr(plan.notes[i], words) != NULL;
    return found;
}

/* A script may write --rdzv_endpoint=$UNSET. The option is then empty, which means its default, even if a variable such
 * as PET_RDZV_ENDPOINT has a value. */
Test(torchrun, an_empty_value_is_the_default_under_its_name, .fini = tear_down)
{
    char *set[] = { "PET_RDZV_ENDPOINT=h:7", "PET_MASTER_ADDR=g", "PET_LOG_DIR=logs", "PET_ROLE=r", NULL };
    expect_made(WORDS("torchrun", "--rdzv-endpoint=", "--master_addr", "",
                      "--log_dir=", "--rdzv_id=", "--local_addr=", "--signals_to_handle=",
                      "--log_line_prefix_template=", "--rdzv_conf=  ", "--role=", "p"),
                set);
    cr_assert_str_eq(plan.meeting.host, "127.0.0.1");
    cr_assert_eq(plan.meeting.port, 29500);
    cr_assert_null(plan.log_root);
    cr_assert_str_eq(plan.job, "k3x9");
    cr_assert_str_eq(variable(0, "ROLE_NAME"), "");
    cr_assert_eq(signals_act(cli.stop_signals, SIGQUIT), SIGNAL_STOP);
    expect_made(WORDS("torchrun", "--master_addr=", "p"), set);
    cr_assert_str_eq(plan.meeting.host, "h", "what is not typed is not empty");
    REFUSED("--log_dir=: expected", "--log_dir=", "p");
    REFUSED("--rdzv_id=: expected", "--rdzv_id=", "p");
    refused(WORDS("torchrun", "--tee=", "p"), bare, "--tee=: expected");
}

Test(torchrun, a_key_that_nobody_knows_is_passed_over_under_its_name, .fini = tear_down)
{
    TORCHRUN("--rdzv_conf=timeout=70,cacert=/etc/ssl/ca.pem", "p");
    cr_assert_eq(plan.meeting.join_ms, 70000);
    cr_assert(notes("'cacert' in --rdzv_conf"));
    refused(WORDS("torchrun", "--rdzv_conf=cacert=", "p"), bare, "--rdzv_conf=cacert=: expected");
    TORCHRUN("--rdzv_conf=timeout=70", "p");
    cr_assert_not(notes("cacert"));
}
