/* The command line: every option in all its spellings, the environment below it, and what is said when it is
 * wrong. */
#include "command_line.h"
#include "cli/cli_table.h"

#include <ctype.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cli cli;
static struct ddp_err err;
static char *no_environment[] = { NULL };

/* The words are copied to a place that outlives the statement that made them, as main's argv does. */
static ddp_status parse_in(char *const *environment, char *const *words)
{
    static char *argv[32];
    int argc = 0;
    while (words[argc] != NULL) {
        argv[argc] = words[argc];
        argc++;
    }
    argv[argc] = NULL;
    err = (struct ddp_err){ 0 };
    return cli_parse(&cli, argc, argv, environment, &err);
}

#define WORDS(...) ((char *[]){ "ddprun", __VA_ARGS__, NULL })
#define PARSE(...) cr_assert_eq(parse_in(no_environment, WORDS(__VA_ARGS__)), DDP_OK, "%s", err.msg)

static void refused(char *const *environment, char *const *words, const char *message)
{
    cr_assert_eq(parse_in(environment, words), DDP_ERR_ARG, "taken, but should say: %s", message);
    cr_assert_str_eq(err.msg, message);
}

#define REFUSED(message, ...) refused(no_environment, WORDS(__VA_ARGS__), message)

/* --- every option --------------------------------------------------------------------------------------- */

/* A value that differs from the default, for each option that has one. */
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
    [OPT_MAX_RESTARTS] = "4",
    [OPT_RESTART_BACKOFF] = "250ms",
    [OPT_RESTART_BACKOFF_MAX] = "5m",
    [OPT_MAX_NO_PROGRESS] = "0",
    [OPT_EXIT_CODE] = "rank0",
    [OPT_RDZV_BACKEND] = "c10d",
    [OPT_RDZV_ENDPOINT] = "n0:29401",
    [OPT_RDZV_CONF] = "join_timeout=60, is_host=true,last_call_timeout=5",
    [OPT_LOCAL_ADDR] = "10.0.0.7",
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

/* Is the option's field what the sample (a switch: on) makes it? One function for each kind of option. */
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
    case OPT_PER_TASK:
        return cli.per_task;
    case OPT_WHY:
        return cli.why;
    default:
        return false;
    }
}

static bool is_output_option_set(enum cli_option option)
{
    switch (option) {
    case OPT_LOG_DIR:
        return strcmp(cli.log_dir, "logs") == 0;
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
    case OPT_HELP:
        return cli.help;
    case OPT_VERSION:
        return cli.version;
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
        return cli.torch_events;
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

/* "--name" with `dash` between its words, and "=value" when there is one. */
static void spell(char out[128], int option, char dash, const char *value)
{
    int n = snprintf(out, 128, "--%s", cli_rows[option].name);
    for (int i = 2; i < n; i++)
        if (out[i] == '_')
            out[i] = dash;
    if (value != NULL)
        snprintf(out + n, 128 - (size_t)n, "=%s", value);
}

Test(cli, every_option_is_read_in_both_spellings_with_equals_and_with_a_space)
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

Test(cli, every_letter_is_read)
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

Test(cli, every_default_can_come_from_the_environment)
{
    for (int i = 0; i < OPTIONS; i++) {
        char name[CLI_PET_MAX], entry[256];
        if (!cli_rows[i].in_environment)
            continue;
        cli_pet_name(name, &cli_rows[i]);
        snprintf(entry, sizeof(entry), "%s=%s", name, samples[i] != NULL ? samples[i] : "1");
        char *environment[] = { "HOME=/", entry, NULL };
        expect_set(i, FROM_ENVIRONMENT, environment, WORDS("prog"));
    }
}

/* --- rules ---------------------------------------------------------------------------------------------- */

Test(cli, defaults_are_those_of_the_help)
{
    PARSE("prog");
    cr_assert_eq(cli.nproc.kind, NPROC_DEFAULT);
    cr_assert_eq(cli.nnodes.max, 1);
    cr_assert_eq(cli.node_timeout_ms, 3000);
    cr_assert_eq(cli.exit_barrier_ms, 300000);
    cr_assert_not(cli_is_elastic(&cli));
    cr_assert_str_eq(cli.master_addr, "127.0.0.1");
    cr_assert_eq(cli.master_port, 29500);
    cr_assert_eq(cli.grace_ms, 30000);
    cr_assert_eq(cli.timeout_ms, 0);
    cr_assert_eq(cli.prefix, PREFIX_AUTO);
    cr_assert_null(cli.log_dir);
    cr_assert_eq(cli.origin[OPT_MASTER_PORT], FROM_DEFAULT);
    cli_free(&cli);
}

Test(cli, what_follows_the_program_is_the_programs)
{
    PARSE("-m", "pkg.mod", "--nproc_per_node=2", "-x", "--", "--help");
    cr_assert_str_eq(cli.program, "pkg.mod");
    cr_assert_str_eq(cli.args[0], "--nproc_per_node=2");
    cr_assert_str_eq(cli.args[2], "--");
    cr_assert_str_eq(cli.args[3], "--help");
    cr_assert_null(cli.args[4]);
    cr_assert_not(cli.help);
    cli_free(&cli);
    PARSE("--", "--odd-name", "a");
    cr_assert_str_eq(cli.program, "--odd-name");
    cli_free(&cli);
    PARSE("-", "a");
    cr_assert_str_eq(cli.program, "-");
    cli_free(&cli);
}

Test(cli, names_may_be_cut_short_where_that_is_clear)
{
    PARSE("--nproc", "2", "--master-p=1", "--stand", "prog");
    cr_assert_eq(cli.nproc.count, 2);
    cr_assert_eq(cli.master_port, 1);
    cr_assert(cli.standalone);
    cli_free(&cli);
    REFUSED("option --no is ambiguous: --node_rank, --node_timeout, --no_python, --no_prefix", "--no",
            "prog");
    REFUSED("option --ex=1 is ambiguous: --exit_barrier_timeout, --exit_code", "--ex=1", "prog");
    REFUSED("option --master=h is ambiguous: --master_addr, --master_port", "--master=h", "prog");
}

/* --max_no_progress, --timeout and --no_prefix begin like these, but torchrun does not have them. */
Test(cli, what_is_clear_to_torchrun_is_clear)
{
    PARSE("--max=2", "--t", "3", "--no-p", "--re=0:1", "prog");
    cr_assert_eq(cli.max_restarts, 2);
    cr_assert_eq(std_map_get(&cli.tee, 0), 3);
    cr_assert_eq(std_map_get(&cli.redirects, 0), 1);
    cr_assert(cli.no_python);
    cli_free(&cli);
    PARSE("--max-no=5", "--timeo=9", "prog");
    cr_assert_eq(cli.max_no_progress, 5);
    cr_assert_eq(cli.timeout_ms, 9000);
    cli_free(&cli);
}

Test(cli, the_last_value_counts_and_env_adds_up)
{
    PARSE("--grace=1", "--env", "A=1", "--grace", "2m", "--env=B=x=y", "prog");
    cr_assert_eq(cli.grace_ms, 120000);
    cr_assert_eq(cli.env.n, 2);
    cr_assert_str_eq(cli.env.items[1], "B=x=y");
    cli_free(&cli);
}

Test(cli, the_command_line_replaces_the_environment)
{
    char *environment[] = { "PET_NPROC_PER_NODE=8", "PET_TEE=0:1,7:2", "PET_LOG_DIR=", "PET_QUIET=0", NULL };
    cr_assert_eq(parse_in(environment, WORDS("--nproc_per_node=2", "--tee=3", "prog")), DDP_OK);
    cr_assert_eq(cli.nproc.count, 2);
    cr_assert_eq(std_map_get(&cli.tee, 7), 3);
    cr_assert_null(cli.log_dir, "an empty variable counts as not set");
    cr_assert_not(cli.quiet, "a switch of 0 is off");
    cli_free(&cli);
}

Test(cli, numbers_of_workers_may_be_words)
{
    static const enum nproc_kind kinds[] = { NPROC_GPU, NPROC_CPU, NPROC_AUTO };
    static char *const words[] = { "gpu", "cpu", "auto" };
    for (int i = 0; i < 3; i++) {
        PARSE("--nproc_per_node", words[i], "prog");
        cr_assert_eq(cli.nproc.kind, kinds[i]);
        cli_free(&cli);
    }
}

Test(cli, times_have_units)
{
    static const struct {
        char *text;
        uint64_t ms;
    } cases[] = { { "0", 0 },       { "30", 30000 },   { "0.5", 500 },   { "1500ms", 1500 },
                  { "2m", 120000 }, { "1h", 3600000 }, { "1.5s", 1500 }, { "365.0", 365000 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        PARSE("--grace", cases[i].text, "prog");
        cr_assert_eq(cli.grace_ms, cases[i].ms, "%s", cases[i].text);
        cli_free(&cli);
    }
    static char *const wrong[] = {
        "", "s", "1d", "-1", "1e5", "0x10", "1..2", "nan", "inf", "9999999h", "1 s"
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char word[64];
        snprintf(word, sizeof(word), "--grace=%s", wrong[i]);
        cr_assert_eq(parse_in(no_environment, WORDS(word, "prog")), DDP_ERR_ARG, "%s", word);
    }
}

Test(cli, stream_maps_name_any_rank)
{
    PARSE("--redirects=120:2,7:1,4095:0", "prog");
    cr_assert_eq(std_map_get(&cli.redirects, 120), 2);
    cr_assert_eq(std_map_get(&cli.redirects, 7), 1);
    cr_assert_eq(std_map_get(&cli.redirects, 8), 0);
    cr_assert_eq(std_map_highest(&cli.redirects), 4095);
    cli_free(&cli);
    static char *const wrong[] = { "4",       "",    ":1",      "1:",         "1:4", "1:1,",
                                   "1:1,1:2", "x:1", "1:1;2:1", "99999999:1", "33" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char word[64];
        snprintf(word, sizeof(word), "--tee=%s", wrong[i]);
        cr_assert_eq(parse_in(no_environment, WORDS(word, "prog")), DDP_ERR_ARG, "%s", word);
    }
}

/* --- what is said --------------------------------------------------------------------------------------- */

Test(cli, errors_name_option_value_and_what_would_be_right)
{
    REFUSED("--nproc_per_node=4x is not valid; expected: a number from 1 to 4096, 'gpu', 'cpu' or 'auto'",
            "--nproc-per-node=4x", "prog");
    REFUSED("--nproc_per_node=0 is not valid; expected: a number from 1 to 4096, 'gpu', 'cpu' or 'auto'",
            "--nproc_per_node", "0", "prog");
    REFUSED("--master_port=65536 is not valid; expected: a port from 1 to 65535, or 0 for any free one",
            "--master_port=65536", "prog");
    REFUSED("--nnodes=3:2 is not valid; expected: N or MIN:MAX, with 1 <= MIN <= MAX <= 16384",
            "--nnodes=3:2", "prog");
    REFUSED("--node_rank=1 is not valid; expected: less than --nnodes, which is 1", "--node_rank=1", "prog");
    REFUSED("--env=FOO is not valid; expected: NAME=VALUE", "--env", "FOO", "prog");
    REFUSED("--rdzv_id=a/b is not valid; expected: 1 to 128 characters without '/' and control characters",
            "--rdzv_id=a/b", "prog");
    REFUSED("--rdzv_id=a\033c is not valid; expected: 1 to 128 characters without '/' and control characters",
            "--rdzv_id=a\033c", "prog");
    REFUSED("--timeout=0 is not valid; expected: a time above 0 and of at most 365 days, as 90, 30s or 2m",
            "--timeout=0", "prog");
}

Test(cli, errors_in_the_environment_name_the_variable)
{
    char *environment[] = { "PET_MASTER_PORT=http", NULL };
    refused(environment, WORDS("prog"),
            "PET_MASTER_PORT=http is not valid; expected: a port from 1 to 65535, or 0 for any free one");
    environment[0] = "PET_STANDALONE=yes";
    refused(environment, WORDS("prog"),
            "PET_STANDALONE=yes is not valid; expected: an integer, 0 for off and 1 for on");
}

Test(cli, the_nearest_option_is_suggested)
{
    REFUSED("unknown option --nprocs_per_node; did you mean --nproc_per_node?", "--nprocs_per_node", "prog");
    REFUSED("unknown option --nprocs=2; did you mean --nproc_per_node?", "--nprocs=2", "prog");
    REFUSED("unknown option --tea=3; did you mean --tee?", "--tea=3", "prog");
    REFUSED("unknown option --xylophone; ddprun --help lists them", "--xylophone", "prog");
    REFUSED("unknown option -x in '-x'; ddprun --help lists them", "-x", "prog");
    REFUSED("unknown option -n in '-np'; did you mean --nproc_per_node?", "-np", "4", "prog");
}

Test(cli, what_is_missing_or_too_much_is_said)
{
    REFUSED("no program given. Usage: ddprun [options] PROGRAM [args...]; ddprun --help lists the options",
            "--nproc_per_node=2");
    REFUSED("the program's name is empty", "");
    REFUSED("--master_port needs a value: --master_port=PORT", "--master_port");
    REFUSED("--log_dir needs a value: --log_dir=DIR", "--log_dir", "--tee=3", "prog");
    REFUSED("--tee needs a value: --tee=MAP", "-t");
    REFUSED("--standalone is a switch and takes no value, but got '1'", "--standalone=1", "prog");
    REFUSED("--module and --no_python exclude each other", "-m", "--no_python", "prog");
    REFUSED("--grace and --shutdown_timeout exclude each other", "--grace=1", "--shutdown-timeout=1", "prog");
    REFUSED("--quiet and --verbose exclude each other", "-qv", "prog");
    REFUSED("--prefix and --no_prefix exclude each other", "--prefix", "--no_prefix", "prog");
}

Test(cli, an_environment_of_another_launcher_is_noticed)
{
    char *environment[] = { "PET_NNODES=1", "PET_STRATEGY=ddp", NULL };
    const char *option;
    cr_assert_str_eq(cli_idle_pet(environment, &option), "PET_STRATEGY=ddp");
    cr_assert_null(option);
    cr_assert_null(cli_idle_pet(no_environment, &option));
    environment[1] = "PET_USE_ENV=1";
    cr_assert_str_eq(cli_idle_pet(environment, &option), "PET_USE_ENV=1");
    cr_assert_str_eq(option, "use_env");
}

/* --- what is printed ------------------------------------------------------------------------------------ */

static bool print_help(struct buf *out)
{
    return cli_print_help(&cli, out);
}

static char *printed(bool (*print)(struct buf *out))
{
    static struct buf out;
    out.len = 0;
    cr_assert(print(&out));
    cr_assert(buf_append(&out, "", 1));
    return (char *)out.data;
}

Test(cli, the_help_has_every_option_and_fits_80_columns)
{
    char *help = printed(print_help);
    for (int i = 0; i < OPTIONS; i++) {
        char word[128];
        spell(word, i, '_', NULL);
        cr_assert_not_null(strstr(help, word), "%s", word);
    }
    for (char *line = strtok(help, "\n"); line != NULL; line = strtok(NULL, "\n"))
        cr_assert_leq(strlen(line), 80, "%s", line);
}

Test(cli, help_and_version_need_no_program)
{
    PARSE("--help");
    cr_assert(cli.help);
    cli_free(&cli);
    PARSE("-V", "--nonsense");
    cr_assert(cli.version);
    cli_free(&cli);
    cr_assert_eq(strncmp(printed(cli_print_version), "ddprun ", 7), 0);
}

Test(cli, the_manual_page_has_every_option_variable_and_exit_code)
{
    const char *man = printed(cli_print_man);
    for (int i = 0; i < OPTIONS; i++) {
        char entry[128];
        snprintf(entry, sizeof(entry), "\\fB\\-\\-%s\\fR", cli_rows[i].name);
        cr_assert_not_null(strstr(man, entry), "%s", entry);
    }
    cr_assert_not_null(strstr(man, "PET_NPROC_PER_NODE"));
    cr_assert_not_null(strstr(man, "\\fBTORCHELASTIC_USE_AGENT_STORE\\fR"));
    cr_assert_not_null(strstr(man, "\\fB127\\fR"));
}
