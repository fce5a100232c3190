/* Tests of the command line: its rules, its environment variables, its errors, and the printed texts. This is the
 * golden file of the options, so the errors and the texts are compared word by word. */
#include "cli_case.h"
#include "cli/cli.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

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
    REFUSED("--no: ambiguous option: may mean --node_rank, --node_timeout, --no_python or --no_prefix; write "
            "the whole name",
            "--no", "prog");
    REFUSED("--ex: ambiguous option: may mean --exit_barrier_timeout, --explain or --exit_code; write the "
            "whole name",
            "--ex=1", "prog");
    REFUSED("--master: ambiguous option: may mean --master_addr or --master_port; write the whole name",
            "--master=h", "prog");
}

/* These abbreviations also fit --max_no_progress, --timeout and --no_prefix. But only ddprun has these options, so the
 * abbreviations mean torchrun's options. */
Test(cli, what_is_clear_to_torchrun_is_clear)
{
    PARSE("--max=2", "--t", "3", "--no-p", "--re=0:1", "prog");
    cr_assert_eq(cli.max_restarts, 2);
    cr_assert_eq(std_map_get(&cli.tee, 0), 3);
    cr_assert_eq(std_map_get(&cli.redirects, 0), 1);
    cr_assert(cli.no_python);
    cli_free(&cli);
    PARSE("--log=L", "prog"); /* means --log_dir: torchrun 1.13 had no --log_line_prefix_template */
    cr_assert_str_eq(cli.log_dir, "L");
    cli_free(&cli);
    PARSE("--max-no=5", "--timeo=9", "prog");
    cr_assert_eq(cli.max_no_progress, 5);
    cr_assert_eq(cli.timeout_ms, 9000);
    cli_free(&cli);
}

/* Python's int() accepts blanks, and scripts produce such blanks. */
Test(cli, blanks_around_a_number_are_no_part_of_it)
{
    PARSE("--max_restarts= 3 ", "--nnodes= 1 : 1 ", "--nproc_per_node= 4\n", "prog");
    cr_expect(cli.max_restarts == 3 && cli.nnodes.min == 1 && cli.nnodes.max == 1 && cli.nproc.count == 4);
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

Test(cli, lists_of_hosts_add_up_and_a_second_file_is_rejected)
{
    PARSE("-H", "a:2", "--hosts=b:2,c", "-Hd", "prog");
    cr_assert_str_eq(cli.hosts, "a:2,b:2,c,d");
    cli_free(&cli);
    REFUSED("--hosts=: expected a list of hosts, such as 'a:8,b:8'", "--hosts=a", "--hosts=", "prog");
    cli_free(&cli);
    REFUSED("--hostfile=y: expected only one --hostfile; write all hosts into one file", "--hostfile=x",
            "--hostfile=y", "prog");
}

Test(cli, env_without_a_value_names_a_variable_that_is_set)
{
    char *environment[] = { "A=", "AB=1", NULL };
    cr_assert_eq(parse_in(environment, WORDS("--env=A", "--env", "AB", "--env=C=1", "prog")), DDP_OK);
    cr_assert_eq(cli.env.n, 3);
    cr_expect_str_eq(cli.env.items[0], "A=");
    cr_expect_str_eq(cli.env.items[1], "AB=1", "the value overrides a variable that ddprun sets");
    cr_expect_str_eq(cli.env.items[2], "C=1");
    cr_assert_eq(cli.env.n_names, 2);
    cr_expect_str_eq(cli.env.names[1], "AB");
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

/* --- errors --------------------------------------------------------------------------------------- */

Test(cli, errors_name_option_value_and_what_would_be_right)
{
    REFUSED("--nproc_per_node=4x: expected a number from 1 to 4096, 'gpu', 'cpu' or 'auto'",
            "--nproc-per-node=4x", "prog");
    REFUSED("--nproc_per_node=0: expected a number from 1 to 4096, 'gpu', 'cpu' or 'auto'",
            "--nproc_per_node", "0", "prog");
    REFUSED("--master_port=65536: expected a port from 1 to 65535, or 0 for any free port",
            "--master_port=65536", "prog");
    REFUSED("--nnodes=3:2: expected N or MIN:MAX, with 1 <= MIN <= MAX <= 16384", "--nnodes=3:2", "prog");
    REFUSED("--node_rank=1: expected 0, because --nnodes is 1", "--node_rank=1", "prog");
    REFUSED("--env=a.py: expected NAME=VALUE or NAME", "--env", "a.py", "prog");
    REFUSED("--env==x: expected NAME=VALUE or NAME", "--env==x", "prog");
    REFUSED("--env=1x=2: expected NAME=VALUE or NAME, where NAME does not begin with a digit", "--env=1x=2",
            "prog");
    REFUSED("--standalone: starts a job of this node only, but --nnodes=2:2 requests more nodes; leave out "
            "one of the two options",
            "--standalone", "--nnodes=2:2", "prog");
    REFUSED(
        "--env=FOO: ddprun's environment has no such variable; set this variable, or pass --env=FOO=VALUE",
        "--env", "FOO", "prog");
    REFUSED("--rdzv_id=a/b: expected 1 to 128 characters, without '/' and without control characters",
            "--rdzv_id=a/b", "prog");
    REFUSED("--rdzv_id=a\033c: expected 1 to 128 characters, without '/' and without control characters",
            "--rdzv_id=a\033c", "prog");
    REFUSED("--timeout=0: expected a time above 0 and of at most 365 days, such as 90 "
            "(seconds) or 2m",
            "--timeout=0", "prog");
}

Test(cli, errors_in_the_environment_name_the_variable)
{
    char *environment[] = { "PET_MASTER_PORT=http", NULL };
    refused(environment, WORDS("prog"),
            "PET_MASTER_PORT=http: expected a port from 1 to 65535, or 0 for any free port");
    environment[0] = "PET_STANDALONE=yes";
    refused(environment, WORDS("prog"), "PET_STANDALONE=yes: expected an integer, 0 for off and 1 for on");
}

Test(cli, the_nearest_option_is_suggested)
{
    REFUSED("--nprocs_per_node: unknown option; did you mean --nproc_per_node?", "--nprocs_per_node", "prog");
    REFUSED("--nprocs: unknown option; did you mean --nproc_per_node?", "--nprocs=2", "prog");
    REFUSED("--tea: unknown option; did you mean --tee?", "--tea=3", "prog");
    REFUSED("--xylophone: unknown option; see --help", "--xylophone", "prog");
    REFUSED("-x: unknown option; see --help", "-x", "prog");
    REFUSED("-n: unknown option in '-np'; did you mean --nproc_per_node?", "-np", "4", "prog");
}

Test(cli, what_is_missing_or_too_much_is_said)
{
    REFUSED("PROGRAM: missing; usage: ddprun [options] PROGRAM [args...]", "--nproc_per_node=2");
    REFUSED("PROGRAM: empty name; usage: ddprun [options] PROGRAM [args...]", "");
    REFUSED("--master_port: missing value; use --master_port=PORT", "--master_port");
    REFUSED("--log_dir: missing value; use --log_dir=DIR", "--log_dir", "--tee=3", "prog");
    REFUSED("--tee: missing value; use --tee=MAP", "-t");
    REFUSED("--standalone=1: unexpected value: --standalone is a switch; leave out the value",
            "--standalone=1", "prog");
    REFUSED("--module: cannot be used with --no_python; leave out one of the two options", "-m",
            "--no_python", "prog");
    REFUSED("--grace: cannot be used with --shutdown_timeout; leave out one of the two options", "--grace=1",
            "--shutdown-timeout=1", "prog");
    REFUSED("--quiet: cannot be used with --verbose; leave out one of the two options", "-qv", "prog");
    REFUSED("--prefix: cannot be used with --no_prefix; leave out one of the two options", "--prefix",
            "--no_prefix", "prog");
    REFUSED("--hosts: cannot be used with --nnodes: ddprun itself starts every node of the list; leave out "
            "--nnodes",
            "--hosts=a,b", "--nnodes=2", "prog");
    char *environment[] = { "PET_NODE_RANK=0", NULL };
    refused(
        environment, WORDS("--hostfile=f", "prog"),
        "--hostfile: cannot be used with PET_NODE_RANK: ddprun itself starts every node of the list; unset "
        "PET_NODE_RANK");
}

/* --hosts excludes other options only if they have an effect. PET_STANDALONE=0 and PET_PER_TASK=0 switch their options
 * off, so --hosts accepts these variables. is_host in --rdzv_conf is another name of --host_store, so --hosts rejects
 * is_host. */
Test(cli, hosts_exclude_only_options_that_have_an_effect)
{
    char *environment[] = { "PET_STANDALONE=0", "PET_PER_TASK=0", NULL };
    cr_expect_eq(parse_in(environment, WORDS("--hosts=a,b", "prog")), DDP_OK, "%s", err.msg);
    cli_free(&cli);
    PARSE("--hosts=a,b", "--rdzv_conf=timeout=12", "prog");
    cli_free(&cli);
    cr_expect_eq(parse_in(no_environment, WORDS("--hosts=a,b", "--rdzv_conf=is_host=true", "prog")),
                 DDP_ERR_ARG);
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

/* --- printed text --------------------------------------------------------------------------------------- */

static bool print_help(struct buf *out)
{
    cli.help = HELP_SHORT;
    return cli_print_help(&cli, out);
}

static bool print_whole_help(struct buf *out)
{
    cli.help = HELP_ALL;
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

static void expect_every_option_in_80_columns(char *help)
{
    for (int i = 0; i < OPTIONS; i++) {
        char word[128];
        if (cli_rows[i].help == NULL)
            continue;
        snprintf(word, sizeof(word), "--%s", cli_rows[i].name);
        cr_assert_not_null(strstr(help, word), "%s", word);
    }
    for (char *line = strtok(help, "\n"); line != NULL; line = strtok(NULL, "\n"))
        cr_assert_leq(strlen(line), 80, "%s", line);
}

Test(cli, the_whole_help_has_every_option_and_fits_80_columns)
{
    char *help = printed(print_whole_help);
    cr_assert_not_null(strstr(help, "--node_timeout=TIME"));
    expect_every_option_in_80_columns(help);
}

/* The help explains ten options and only names the other options. */
Test(cli, the_help_fits_two_screens)
{
    char *help = printed(print_help);
    int lines = 0, explained = 0;
    for (const char *p = help; *p != '\0'; p++)
        lines += *p == '\n';
    cr_expect_leq(lines, 60, "%d lines", lines);
    for (const char *p = help; (p = strstr(p, "\n  -")) != NULL; p++)
        explained++;
    cr_expect_eq(explained, 10, "%d options are explained", explained);
    cr_expect_not_null(strstr(help, "  --nproc_per_node=N      workers"));
    cr_expect_not_null(strstr(help, "--help=all"));
    cr_expect_null(strstr(help, "--node_timeout=TIME"));
    expect_every_option_in_80_columns(help);
}

Test(cli, help_and_version_need_no_program)
{
    PARSE("--help");
    cr_assert_eq(cli.help, HELP_SHORT);
    cli_free(&cli);
    PARSE("-h");
    cr_assert_eq(cli.help, HELP_SHORT);
    cli_free(&cli);
    PARSE("--help=all");
    cr_assert_eq(cli.help, HELP_ALL);
    cli_free(&cli);
    REFUSED("--help=some: expected no value, or 'all'", "--help=some");
    PARSE("-V", "--nonsense");
    cr_assert(cli.version && !cli.json);
    cli_free(&cli);
    PARSE("--version", "--json", "--nonsense");
    cr_assert(cli.version && cli.json);
    cli_free(&cli);
    PARSE("--json", "--version");
    cr_assert(cli.version && cli.json);
    cli_free(&cli);
}

Test(cli, the_manual_page_has_every_option_variable_and_exit_code)
{
    const char *man = printed(cli_print_man);
    for (int i = 0; i < OPTIONS; i++) {
        char entry[128];
        if (cli_rows[i].help == NULL)
            continue;
        snprintf(entry, sizeof(entry), "\\fB\\-\\-%s\\fR", cli_rows[i].name);
        cr_assert_not_null(strstr(man, entry), "%s", entry);
    }
    cr_assert_not_null(strstr(man, "PET_NPROC_PER_NODE"));
    cr_assert_not_null(strstr(man, "\\fBTORCHELASTIC_USE_AGENT_STORE\\fR"));
    cr_assert_not_null(strstr(man, "\\fBXDG_RUNTIME_DIR\\fR"));
    cr_assert_not_null(strstr(man, "\\fB127\\fR"));
    cr_assert_not_null(strstr(man, "\\fBother\\fR"));
}

/* --- several nodes: values, torchrun's configuration keys, and options that exclude each other ------------- */

#define PARSE_NODE(...)        PARSE(__VA_ARGS__, "prog")
#define REFUSED_NODE(msg, ...) refused_for(WORDS(__VA_ARGS__, "prog"), msg)

/* Expect that the message contains `words`. */
static void refused_for(char *const *line, const char *words)
{
    cr_assert_eq(parse_in(no_environment, line), DDP_ERR_ARG, "%s", words);
    cr_assert(strstr(err.msg, words) != NULL, "%s", err.msg);
}

Test(cli_nodes, torchruns_static_line_is_understood)
{
    PARSE_NODE("--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=1234");
    cr_assert_not(cli_is_elastic(&cli));
    cr_assert_eq(cli.nnodes.max, 2);
    cr_assert_eq(cli.node_rank, 1);
    cli_free(&cli);
    PARSE_NODE("--nnodes=2", "--node-rank=1", "--rdzv-endpoint=[fe80::1]:7");
    cr_assert_str_eq(cli.endpoint.host, "fe80::1");
    cr_assert_eq(cli.endpoint.port, 7);
    cli_free(&cli);
}

/* In a job of --hosts, the starter (the ddprun that the user has started) adds its options before the options of the
 * user on each node. If the user's option is --master_port=0, the port of the starter applies. */
Test(cli_nodes, port_0_of_the_user_is_the_starters_port)
{
    PARSE_NODE("--one_console", "--nnodes=2", "--node_rank=0", "--master_addr=10.0.0.1", "--master_port=1234",
               "--master_port=0");
    cr_expect_eq(cli.master_port, 1234);
    cli_free(&cli);
    PARSE_NODE("--master_port=1234", "--master_port=0");
    cr_expect_eq(cli.master_port, 0);
    cli_free(&cli);
}

Test(cli_nodes, a_range_of_nodes_or_c10d_is_elastic)
{
    PARSE_NODE("--nnodes=1:4", "--rdzv-endpoint=n0");
    cr_assert(cli_is_elastic(&cli));
    cr_assert_eq(cli.endpoint.port, -1);
    cli_free(&cli);
    PARSE_NODE("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n0:1");
    cli_free(&cli);
}

/* A rendezvous is static by default, as in torchrun, even for --nnodes=2:2. Scripts use this form with --node_rank. */
Test(cli_nodes, a_range_of_one_number_is_that_number_and_static)
{
    PARSE_NODE("--nnodes=2:2", "--node_rank=1", "--master_addr=10.0.0.1");
    cr_assert_not(cli_is_elastic(&cli));
    cr_assert_eq(cli.nnodes.max, 2);
    cr_assert_eq(cli.node_rank, 1);
    cli_free(&cli);
    PARSE_NODE("--nnodes=2:2", "--rdzv_backend=c10d", "--rdzv_endpoint=n0");
    cr_assert(cli_is_elastic(&cli));
    cli_free(&cli);
    REFUSED_NODE("--nnodes=2:2: no --node_rank; add it on each node", "--nnodes=2:2", "--master_addr=h");
}

Test(cli_nodes, keys_of_torchrun_have_their_meaning_or_a_reason)
{
    PARSE_NODE("--rdzv_conf=timeout=12,keep_alive_interval=2,keep_alive_max_attempt=4");
    cr_assert_eq(cli.rdzv_conf.join_ms, 12000);
    cr_assert_eq(cli.rdzv_conf.keep_alive_ms, 2000);
    cr_assert_eq(cli.rdzv_conf.keep_alive_attempts, 4);
    cli_free(&cli);
    PARSE_NODE("--rdzv_conf= timeout = 12 , keep_alive_interval= 2");
    cr_assert_eq(cli.rdzv_conf.join_ms, 12000);
    cr_assert_eq(cli.rdzv_conf.keep_alive_ms, 2000);
    cli_free(&cli);
    PARSE_NODE("--rdzv_conf=is_host=0,close_timeout=9");
    cr_assert_eq(cli.rdzv_conf.is_host, HOST_STORE_NO);
    cr_assert_str_eq(cli.rdzv_conf.idle, "close_timeout");
    cli_free(&cli);
    PARSE_NODE("--rdzv_conf=store_type=tcp");
    cli_free(&cli);
    REFUSED_NODE("store_type=VALUE, where VALUE is tcp", "--rdzv_conf=store_type=file");
    REFUSED_NODE("the key 'join_timeout', 'timeout', ", "--rdzv_conf=jion_timeout=3");
    REFUSED_NODE("join_timeout=VALUE, where VALUE is a time above 0", "--rdzv_conf=join_timeout=0");
    REFUSED_NODE("KEY=VALUE,... such as", "--rdzv_conf=join_timeout");
    REFUSED_NODE("KEY=VALUE,... such as", "--rdzv_conf==3");
}

Test(cli_nodes, values_say_what_would_be_right)
{
    REFUSED_NODE("'static' or 'c10d'", "--rdzv_backend=etcd");
    REFUSED_NODE("the host is missing", "--rdzv_endpoint=:29400");
    REFUSED_NODE("is not a number", "--rdzv_endpoint=n0:http");
    REFUSED_NODE("'auto', 'yes' or 'no'", "--host_store=maybe");
    REFUSED_NODE("'agreed', 'now' or 'never'", "--grow=later");
    REFUSED_NODE("'fast' (1.5s) or a time of at least 500ms", "--node_timeout=10ms");
    REFUSED_NODE("'off' or a time of at least 1000ms", "--hang_timeout=0");
    REFUSED_NODE("'report', 'stop' or 'restart'", "--on_hang=kill");
    REFUSED_NODE("a valid extended regular expression (error: Unmatched [", "--progress=step [0-9");
    REFUSED_NODE("a text of 1 to 4095 bytes", "--progress=");
    REFUSED_NODE("1 <= MIN <= MAX <= 16384", "--nnodes=0");
    REFUSED_NODE("1 <= MIN <= MAX <= 16384", "--nnodes=1:");
}

Test(cli_nodes, combinations_that_cannot_be_are_refused)
{
    REFUSED_NODE("--node_rank=2: expected a number from 0 to 1, because --nnodes is 2", "--nnodes=2",
                 "--node_rank=2", "--master_addr=h");
    REFUSED_NODE("--nnodes=2: no --node_rank; add it on each node: 0 on the node with the master address, 1 "
                 "on the other;",
                 "--nnodes=2", "--master_addr=h");
    REFUSED_NODE("--standalone: starts a job of this node only, but --nnodes=2 requests more", "--standalone",
                 "--nnodes=2");
    REFUSED_NODE("needs one number of nodes, but --nnodes=1:2 is a range", "--rdzv_backend=static",
                 "--nnodes=1:2");
    REFUSED_NODE("--nnodes=2: no address of the store; add --master_addr", "--nnodes=2", "--node_rank=0");
    REFUSED_NODE("--nnodes=2:4: no address of the store; add --rdzv_endpoint", "--nnodes=2:4");
    REFUSED_NODE("--master_addr=a: differs from the host b in --rdzv_endpoint", "--nnodes=2", "--node_rank=0",
                 "--master_addr=a", "--rdzv_endpoint=b");
    REFUSED_NODE("--master_port=1: differs from the port 2 in --rdzv_endpoint", "--master_port=1",
                 "--rdzv_endpoint=b:2");
    REFUSED_NODE("--nnodes=2: with port 0, ", "--nnodes=2", "--node_rank=0", "--master_addr=a",
                 "--master_port=0");
    REFUSED_NODE("--nnodes=2:3: with port 0, ", "--nnodes=2:3", "--rdzv_endpoint=localhost:0");
    REFUSED_NODE("--host_store=no: ", "--host_store=no");
}

Test(cli_nodes, an_address_has_no_port)
{
    REFUSED_NODE("a name or an address without a port; set the port with --master_port",
                 "--master_addr=h:29500");
    REFUSED_NODE("a name or an address without a port", "--master_addr=[fd00::1]:29500");
    REFUSED_NODE("a name or an address without a port", "--master_addr=10.9.0.1:29500");
    REFUSED_NODE("--master_addr=/x: expected a name or an address of letters, ", "--master_addr=/x");
    REFUSED_NODE("--master_addr=: expected a name or an address of letters, ", "--master_addr=");
}
