/* Tests of every option, in all spellings and from the environment. Each option that takes a value needs a sample
 * here, so that no new option lacks a test. */
#include "cli_case.h"
#include "cli/cli.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Each option that takes a value has a sample here. The sample differs from the default of the option. */
static const char *const samples[OPTIONS] = {
    [OPT_NPROC_PER_NODE] = "3",
    [OPT_NNODES] = "1:1",
    [OPT_NODE_RANK] = "0",
    [OPT_MASTER_ADDR] = "h1",
    [OPT_MASTER_PORT] = "81",
    [OPT_RDZV_ID] = "job7",
    [OPT_ENV] = "A=b",
    [OPT_LOG_DIR] = "logs",
    [OPT_REDIRECTS] = "0:3,1:1",
    [OPT_TEE] = "2",
    [OPT_LOG_FILE] = "%j/%r.%s",
    [OPT_EVENTS] = "%h.jsonl",
    [OPT_LOG_ROTATE] = "64M,3",
    [OPT_LOG_POLICY] = "drop",
    [OPT_GRACE] = "1500ms",
    [OPT_TIMEOUT] = "2m",
    [OPT_CONTAIN] = "pidns",
    [OPT_PREFIX_TEMPLATE] = "$host: ",
    [OPT_LOCAL_RANKS_FILTER] = "0,2-5",
    [OPT_SIGNALS] = "SIGUSR1",
    [OPT_STDIN] = "2-3",
    [OPT_SSH_FANOUT] = "7",
    [OPT_MAX_RESTARTS] = "4",
    [OPT_RESTART_BACKOFF] = "250ms",
    [OPT_RESTART_BACKOFF_MAX] = "5m",
    [OPT_MAX_NO_PROGRESS] = "0",
    [OPT_EXIT_CODE] = "rank0",
    [OPT_HANG_TIMEOUT] = "90s",
    [OPT_ON_HANG] = "stop",
    [OPT_PROGRESS] = "^step [0-9]+",
    [OPT_RDZV_BACKEND] = "c10d",
    [OPT_RDZV_ENDPOINT] = "n0:29401",
    [OPT_RDZV_CONF] = "join_timeout=60, is_host=true,last_call_timeout=5",
    [OPT_LOCAL_ADDR] = "10.0.0.7",
    [OPT_SECRET_FILE] = "key",
    [OPT_HOSTS] = "a:8,b",
    [OPT_LOG_NAME] = "run1",
    [OPT_HOSTFILE] = "hosts",
    [OPT_REMOTE_SHELL] = "ssh -p 2222",
    [OPT_SSH] = "ssh -p 2222",
    [OPT_MAKE_SECRET] = "key",
    [OPT_HOST_STORE] = "yes",
    [OPT_TORCH_STORE] = "rank0",
    [OPT_GROW] = "now",
    [OPT_NODE_TIMEOUT] = "fast",
    [OPT_EXIT_BARRIER_TIMEOUT] = "90",
    [OPT_SCHEDULER] = "slurm",
    [OPT_ROLE] = "trainer",
    [OPT_START_METHOD] = "fork",
    [OPT_PASS_LOCAL_RANK] = "local_rank",
    [OPT_EVENT_LOG_HANDLER] = "console",
    [OPT_LOGS_SPECS] = "default",
    [OPT_STDOUT_FILTERS] = "a,b,,c,",
    [OPT_STDERR_FILTERS] = "Error",
    [OPT_PRINT_COMPLETION] = "zsh",
    [OPT_NUMA_BINDING] = "core-complex",
    [OPT_SHUTDOWN_TIMEOUT] = "7",
    [OPT_MONITOR_INTERVAL] = "0.5",
};

/* Return true if the option's field has the sample's value. For a switch, the sample's value is true. There is one
 * function for each kind of option. */
static bool is_job_option_set(enum cli_option option)
{
    switch (option) {
    case OPT_NPROC_PER_NODE:
        return cli.nproc.kind == NPROC_NUMBER && cli.nproc.count == 3;
    case OPT_STANDALONE:
        return cli.standalone;
    case OPT_MASTER_ADDR:
        return strcmp(cli.master_addr, "h1") == 0;
    case OPT_MASTER_PORT:
        return cli.master_port == 81;
    case OPT_RDZV_ID:
        return strcmp(cli.job, "job7") == 0;
    case OPT_MODULE:
        return cli.module;
    case OPT_NO_PYTHON:
        return cli.no_python;
    case OPT_ENV:
        return cli.env.n == 1 && strcmp(cli.env.items[0], "A=b") == 0;
    case OPT_CONTAIN:
        return cli.contain == CONTAIN_PIDNS;
    case OPT_DRY_RUN:
        return cli.dry_run;
    default:
        return false;
    }
}

static bool is_nodes_option_set(enum cli_option option)
{
    switch (option) {
    case OPT_NNODES:
        return cli.nnodes.min == 1 && cli.nnodes.max == 1;
    case OPT_NODE_RANK:
        return cli.node_rank == 0;
    case OPT_RDZV_BACKEND:
        return cli.backend == BACKEND_C10D;
    case OPT_RDZV_ENDPOINT:
        return strcmp(cli.endpoint.host, "n0") == 0 && cli.endpoint.port == 29401;
    case OPT_RDZV_CONF:
        return cli.rdzv_conf.join_ms == 60000 && cli.rdzv_conf.is_host == HOST_STORE_YES &&
               cli.rdzv_conf.last_call_ms == 5000;
    case OPT_LOCAL_ADDR:
        return strcmp(cli.local_addr, "10.0.0.7") == 0;
    case OPT_HOST_STORE:
        return cli.host_store == HOST_STORE_YES;
    case OPT_HOSTS:
        return strcmp(cli.hosts, "a:8,b") == 0;
    case OPT_HOSTFILE:
        return strcmp(cli.hostfile, "hosts") == 0;
    case OPT_REMOTE_SHELL:
    case OPT_SSH:
        return strcmp(cli.remote_shell, "ssh -p 2222") == 0;
    case OPT_SSH_FANOUT:
        return cli.ssh_fanout == 7;
    case OPT_SHIP:
        return cli.ship;
    case OPT_RELAY:
        return cli.relay;
    case OPT_ONE_CONSOLE:
        return cli.one_console;
    case OPT_LOG_NAME:
        return strcmp(cli.log_name, "run1") == 0;
    case OPT_DETACH:
        return cli.detach;
    case OPT_INSECURE:
        return cli.insecure;
    case OPT_ENCRYPT:
        return cli.encrypt;
    case OPT_TORCH_STORE:
        return cli.torch_store == TORCH_STORE_RANK0;
    case OPT_UNEVEN:
        return cli.uneven;
    case OPT_GROW:
        return cli.grow == GROW_NOW;
    case OPT_NODE_TIMEOUT:
        return cli.node_timeout_ms == 1500;
    case OPT_EXIT_BARRIER_TIMEOUT:
        return cli.exit_barrier_ms == 90000;
    case OPT_SCHEDULER:
        return strcmp(cli.scheduler, "slurm") == 0;
    case OPT_SHARE_GPU:
        return cli.share_gpu;
    case OPT_PROFILE_RANKS:
        return cli.profile_ranks;
    case OPT_FLIGHT_RECORDER:
        return cli.flight_recorder;
    case OPT_PER_TASK:
        return cli.per_task;
    case OPT_EXPLAIN:
    case OPT_WHY:
        return cli.explain;
    default:
        return false;
    }
}

static bool is_output_option_set(enum cli_option option)
{
    switch (option) {
    case OPT_LOG_DIR:
        return strcmp(cli.log_dir, "logs") == 0;
    case OPT_COLLECT_LOGS:
        return cli.collect_logs;
    case OPT_LOG_FILE:
        return strcmp(cli.log_file, "%j/%r.%s") == 0;
    case OPT_EVENTS:
        return strcmp(cli.events, "%h.jsonl") == 0;
    case OPT_LOG_MERGE:
        return cli.log_merge;
    case OPT_LOG_ROTATE:
        return cli.log_rotate.bytes == 64 << 20 && cli.log_rotate.keep == 3;
    case OPT_LOG_POLICY:
        return cli.log_policy == LOG_DROP;
    case OPT_REDIRECTS:
        return std_map_get(&cli.redirects, 0) == 3 && std_map_get(&cli.redirects, 1) == 1;
    case OPT_TEE:
        return std_map_get(&cli.tee, 5) == 2;
    case OPT_PREFIX:
        return cli.prefix == PREFIX_ON;
    case OPT_NO_PREFIX:
        return cli.prefix == PREFIX_OFF;
    case OPT_PREFIX_TEMPLATE:
        return strcmp(cli.prefix_template, "$host: ") == 0;
    case OPT_TIMESTAMPS:
        return cli.timestamps;
    case OPT_LOCAL_RANKS_FILTER:
        return rank_set_has(&cli.console_ranks, 5) && !rank_set_has(&cli.console_ranks, 1);
    case OPT_FOLD:
        return cli.fold;
    case OPT_JSON:
        return cli.json;
    case OPT_QUIET:
        return cli.quiet;
    case OPT_VERBOSE:
        return cli.verbose;
    default:
        return false;
    }
}

static bool is_life_option_set(enum cli_option option)
{
    switch (option) {
    case OPT_STDIN:
        return !cli.input.all && rank_set_has(&cli.input.ranks, 3) && !rank_set_has(&cli.input.ranks, 0);
    case OPT_SIGNALS:
        return signals_act(cli.stop_signals, SIGUSR1) == SIGNAL_STOP;
    case OPT_GRACE:
        return cli.grace_ms == 1500;
    case OPT_TIMEOUT:
        return cli.timeout_ms == 120000;
    case OPT_MAX_RESTARTS:
        return cli.max_restarts == 4;
    case OPT_RESTART_BACKOFF:
        return cli.backoff_ms == 250;
    case OPT_RESTART_BACKOFF_MAX:
        return cli.backoff_cap_ms == 300000;
    case OPT_MAX_NO_PROGRESS:
        return cli.max_no_progress == 0;
    case OPT_EXIT_CODE:
        return cli.exit_policy == EXIT_POLICY_RANK0;
    case OPT_HANG_TIMEOUT:
        return cli.hang_timeout_ms == 90000;
    case OPT_ON_HANG:
        return cli.on_hang == ON_HANG_STOP;
    case OPT_PROGRESS:
        return strcmp(cli.progress, "^step [0-9]+") == 0;
    case OPT_HELP:
        return cli.help;
    case OPT_VERSION:
        return cli.version;
    case OPT_SECRET_FILE:
        return strcmp(cli.secret_file, "key") == 0;
    case OPT_MAKE_SECRET:
        return strcmp(cli.make_secret, "key") == 0;
    case OPT_PRINT_PREFIX:
        return cli.print_prefix;
    case OPT_PRINT_MAN:
        return cli.print_man;
    default:
        return false;
    }
}

static bool is_torchruns_option_set(enum cli_option option)
{
    switch (option) {
    case OPT_ROLE:
        return strcmp(cli.role, "trainer") == 0;
    case OPT_RUN_PATH:
        return cli.run_path;
    case OPT_START_METHOD:
        return strcmp(cli.start_method, "fork") == 0;
    case OPT_PASS_LOCAL_RANK:
        return strcmp(cli.rank_argument, "local_rank") == 0;
    case OPT_USE_ENV:
        return cli.use_env;
    case OPT_VIRTUAL_LOCAL_RANK:
        return cli.virtual_local_rank;
    case OPT_EVENT_LOG_HANDLER:
        return strcmp(cli.event_log_handler, "console") == 0;
    case OPT_STDOUT_FILTERS:
        return cli.filters[0].n == 3 && strcmp(cli.filters[0].items[1], "b,c") == 0 &&
               strcmp(cli.filters[0].items[2], "") == 0;
    case OPT_STDERR_FILTERS:
        return cli.filters[1].n == 1 && strcmp(cli.filters[1].items[0], "Error") == 0;
    case OPT_PRINT_COMPLETION:
        return cli.completion == SHELL_ZSH;
    case OPT_NUMA_BINDING:
        return cli.numa_binding == NUMA_CORE_COMPLEX;
    case OPT_LOGS_SPECS:
        return strcmp(cli.logs_specs, "default") == 0;
    case OPT_SHUTDOWN_TIMEOUT:
        return cli.grace_ms == 7000;
    case OPT_MONITOR_INTERVAL:
        return strcmp(cli.monitor_interval, "0.5") == 0;
    default:
        return false;
    }
}

static bool is_set(enum cli_option option)
{
    return is_torchruns_option_set(option) || is_job_option_set(option) || is_nodes_option_set(option) ||
           is_output_option_set(option) || is_life_option_set(option);
}

static void expect_set(int option, enum cli_origin origin, char *const *environment, char *const *words)
{
    cr_assert_eq(parse_in(environment, words), DDP_OK, "%s: %s", cli_rows[option].name, err.msg);
    cr_assert(is_set((enum cli_option)option), "%s", cli_rows[option].name);
    cr_assert_eq(cli.origin[option], origin, "%s", cli_rows[option].name);
    cli_free(&cli);
}

/* Write "--name" with `dash` between its words, and "=value" if there is a value. */
static void spell(char out[128], int option, char dash, const char *value)
{
    int n = snprintf(out, 128, "--%s", cli_rows[option].name);
    for (int i = 2; i < n; i++)
        if (out[i] == '_')
            out[i] = dash;
    if (value != NULL)
        snprintf(out + n, 128 - (size_t)n, "=%s", value);
}

Test(cli_options, every_option_is_read_in_both_spellings_with_equals_and_with_a_space)
{
    char word[128];
    for (int i = 0; i < OPTIONS; i++) {
        for (const char *dash = "_-"; *dash != '\0'; dash++) {
            char *value = (char *)samples[i];
            spell(word, i, *dash, value);
            expect_set(i, FROM_COMMAND_LINE, no_environment, WORDS(word, "prog"));
            spell(word, i, *dash, NULL);
            if (value != NULL)
                expect_set(i, FROM_COMMAND_LINE, no_environment, WORDS(word, value, "prog"));
        }
    }
}

/* The pointers and the texts of the words share one allocation. */
Test(cli_options, filters_have_room_for_every_word)
{
    PARSE("--duplicate_stdout_filters=x", "--duplicate_stderr_filters=,", "prog");
    cr_expect(cli.filters[0].n == 1 && strcmp(cli.filters[0].items[0], "x") == 0);
    cr_expect(cli.filters[1].n == 2 && strcmp(cli.filters[1].items[0], "") == 0 &&
              strcmp(cli.filters[1].items[1], "") == 0);
    cli_free(&cli);
}

Test(cli_options, every_letter_is_read)
{
    for (int i = 0; i < OPTIONS; i++) {
        char word[16] = { '-', cli_rows[i].letter, '\0' };
        if (cli_rows[i].letter == 0)
            continue;
        if (samples[i] == NULL) {
            expect_set(i, FROM_COMMAND_LINE, no_environment, WORDS(word, "prog"));
            continue;
        }
        expect_set(i, FROM_COMMAND_LINE, no_environment, WORDS(word, (char *)samples[i], "prog"));
        snprintf(word, sizeof(word), "-%c%s", cli_rows[i].letter, samples[i]);
        expect_set(i, FROM_COMMAND_LINE, no_environment, WORDS(word, "prog"));
        snprintf(word, sizeof(word), "-%c=%s", cli_rows[i].letter, samples[i]);
        expect_set(i, FROM_COMMAND_LINE, no_environment, WORDS(word, "prog"));
    }
    PARSE("-vm", "prog");
    cr_assert(cli.verbose && cli.module);
    cli_free(&cli);
}

Test(cli_options, every_default_can_come_from_the_environment)
{
    for (int i = 0; i < OPTIONS; i++) {
        char name[OPTION_PET_MAX], entry[256];
        if (!cli_rows[i].in_environment)
            continue;
        options_pet_name(name, &cli_rows[i]);
        snprintf(entry, sizeof(entry), "%s=%s", name, samples[i] != NULL ? samples[i] : "1");
        char *environment[] = { "HOME=/", entry, NULL };
        expect_set(i, FROM_ENVIRONMENT, environment, WORDS("prog"));
    }
}
