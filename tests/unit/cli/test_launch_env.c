/* Tests of a worker's environment, variable by variable. Scripts depend on torchrun's variables, so each one is
 * compared with its exact value. */
#include "cli/cli.h"
#include "tables/worker_env.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct env_facts facts;
static struct env_base base;
static struct worker_env env;

/* Build the environment of worker 2 of 4 on one node. */
static void build(char *const *inherited, const char *const *overrides, size_t n)
{
    facts = (struct env_facts){ .rank = 2,
                                .local_rank = 2,
                                .world_size = 4,
                                .local_world_size = 4,
                                .node_rank = 0,
                                .nnodes = 1,
                                .master_addr = "127.0.0.1",
                                .master_port = 29500,
                                .role_rank = 2,
                                .role_size = 4,
                                .job = "job7",
                                .role = "default",
                                .signals = "SIGTERM,SIGINT,SIGHUP",
                                .error_file = "/logs/attempt_0/2/error.json" };
    env_facts_inherit(&facts, inherited, overrides, n);
    cr_assert(env_base_init(&base, &facts, inherited, overrides, n));
    cr_assert(worker_env_init(&env, &facts, &base));
}

static void tear_down(void)
{
    worker_env_free(&env);
    env_base_free(&base);
}

static size_t count(const char *name)
{
    size_t found = 0, len = strlen(name);
    for (char **p = env.block; *p != NULL; p++)
        found += strncmp(*p, name, len) == 0 && (*p)[len] == '=';
    return found;
}

static void expect(const char *name, const char *value)
{
    const char *is = env_find(env.block, name);
    cr_assert_not_null(is, "%s is not set", name);
    cr_assert_str_eq(is, value, "%s", name);
    cr_assert_eq(count(name), 1, "%s", name);
}

/* A worker may change its working directory before it uses a path, as programs with the library Hydra do. */
Test(launch_env, relative_paths_become_absolute, .fini = tear_down)
{
    char *inherited[] = { NULL };
    build(inherited, NULL, 0);
    tear_down();
    facts.directory = "/home/u/";
    facts.error_file = facts.timer_file = facts.flight = facts.torch_flight = "logs/a";
    facts.torch_pipes = true;
    facts.torch_calls = "2000";
    cr_assert(env_base_init(&base, &facts, inherited, NULL, 0));
    cr_assert(worker_env_init(&env, &facts, &base));
    expect("TORCHELASTIC_ERROR_FILE", "/home/u/logs/a");
    expect("TORCHELASTIC_TIMER_FILE", "/home/u/logs/a");
    expect("DDP_FLIGHT_RECORDER", "/home/u/logs/a");
    expect("TORCH_FR_DUMP_TEMP_FILE", "/home/u/logs/a/" FLIGHT_TORCH_STEM);
    expect("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "/home/u/logs/a/" FLIGHT_PIPE_STEM);
    expect("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/home/u/logs/a/" FLIGHT_TORCH_STEM);
}

Test(launch_env, has_torchruns_variables_and_ours, .fini = tear_down)
{
    static const char *const expected[][2] = {
        { "RANK", "2" },
        { "LOCAL_RANK", "2" },
        { "WORLD_SIZE", "4" },
        { "LOCAL_WORLD_SIZE", "4" },
        { "GROUP_RANK", "0" },
        { "GROUP_WORLD_SIZE", "1" },
        { "ROLE_RANK", "2" },
        { "ROLE_WORLD_SIZE", "4" },
        { "ROLE_NAME", "default" },
        { "MASTER_ADDR", "127.0.0.1" },
        { "MASTER_PORT", "29500" },
        { "TORCHELASTIC_RESTART_COUNT", "0" },
        { "TORCHELASTIC_MAX_RESTARTS", "0" },
        { "TORCHELASTIC_RUN_ID", "job7" },
        { "TORCHELASTIC_USE_AGENT_STORE", "True" },
        { "TORCHELASTIC_ERROR_FILE", "/logs/attempt_0/2/error.json" },
        { "TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP" },
        { "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1" },
        { "NCCL_ASYNC_ERROR_HANDLING", "1" },
        { "OMP_NUM_THREADS", "1" },
        { "DDPRUN_STORE", "1" },
        { "DDPRUN_JOB", "job7" },
        { "DDPRUN_ATTEMPT", "0" },
    };
    char *inherited[] = { "HOME=/root", NULL };
    build(inherited, NULL, 0);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        expect(expected[i][0], expected[i][1]);
    expect("HOME", "/root");
    cr_assert_eq(env.n_set, sizeof(expected) / sizeof(expected[0]));
    cr_assert_eq(env.n, env.n_set + 1);
    cr_assert_null(env.block[env.n]);
}

Test(launch_env, inherited_values_of_ours_are_replaced, .fini = tear_down)
{
    char *inherited[] = { "RANK=77", "PATH=/bin", "MASTER_PORT=1", "RANKS=x", "PATH=/twice", NULL };
    build(inherited, NULL, 0);
    expect("RANK", "2");
    expect("MASTER_PORT", "29500");
    expect("RANKS", "x");
    expect("PATH", "/bin");
}

Test(launch_env, options_replace_everything, .fini = tear_down)
{
    char *inherited[] = { "A=inherited", NULL };
    static const char *const overrides[] = { "A=1", "MASTER_ADDR=elsewhere", "A=2", "OMP_NUM_THREADS=8" };
    build(inherited, overrides, 4);
    expect("A", "2");
    expect("MASTER_ADDR", "elsewhere");
    expect("OMP_NUM_THREADS", "8");
    cr_assert_not(facts.set_omp);
}

/* In a cluster with thousands of services, a pod has thousands of variables. Comparing every variable with all others
 * would take a minute. */
Test(launch_env, thousands_of_variables_are_passed_on_once, .fini = tear_down)
{
    enum { MANY = 50000 };
    static char text[MANY][40];
    static char *inherited[2 * MANY + 1];
    for (int i = 0; i < MANY; i++) {
        snprintf(text[i], sizeof(text[i]), "SVC_%d_PORT=%d", i, i);
        inherited[i] = inherited[2 * MANY - 1 - i] = text[i];
    }
    build(inherited, NULL, 0);
    expect("SVC_0_PORT", "0");
    expect("SVC_49999_PORT", "49999");
    cr_assert_eq(base.n, MANY);
}

Test(launch_env, some_values_are_inherited_when_they_are_there, .fini = tear_down)
{
    char *inherited[] = { "OMP_NUM_THREADS=6", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3",
                          "NCCL_ASYNC_ERROR_HANDLING=0", "DDPRUN_INIT_TIMEOUT_MS=5", NULL };
    build(inherited, NULL, 0);
    expect("OMP_NUM_THREADS", "6");
    expect("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3");
    expect("NCCL_ASYNC_ERROR_HANDLING", "0");
    expect("DDPRUN_INIT_TIMEOUT_MS", "5");
}

Test(launch_env, one_worker_keeps_its_threads)
{
    char *inherited[] = { NULL };
    facts = (struct env_facts){ .local_world_size = 1 };
    env_facts_inherit(&facts, inherited, NULL, 0);
    cr_assert_not(facts.set_omp);
}
