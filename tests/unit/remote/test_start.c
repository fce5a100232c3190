/* Tests of the decisions of --hosts: messages, commands, the address of the store, and the reason why a host did not
 * start. The module starts no process, so the tests need no second host. */
#include "remote/relay.c"
#include "run.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* --- messages ------------------------------------------------------------------------------------------------ */

Test(remote_messages, a_message_is_taken_when_it_is_complete)
{
    struct buf wire = { 0 };
    enum remote_message kind;
    struct slice body;
    size_t size;
    cr_assert(remote_encode(&wire, REMOTE_SIGNAL, slice_str("15")));
    cr_assert(remote_encode(&wire, REMOTE_BEAT, slice_str("")));
    for (size_t n = 0; n < REMOTE_HEADER_BYTES + 2; n++)
        cr_expect_eq(remote_decode(slice_of(wire.data, n), &kind, &body, &size), 0, "%zu bytes", n);
    cr_assert_eq(remote_decode(buf_slice(&wire), &kind, &body, &size), 1);
    cr_expect_eq(kind, REMOTE_SIGNAL);
    cr_expect(slice_equal(body, slice_str("15")));
    buf_consume(&wire, size);
    cr_assert_eq(remote_decode(buf_slice(&wire), &kind, &body, &size), 1);
    cr_expect_eq(kind, REMOTE_BEAT);
    buf_free(&wire);
}

Test(remote_messages, a_length_above_the_limit_is_rejected_before_its_bytes_arrive)
{
    enum remote_message kind;
    struct slice body;
    size_t size;
    struct buf wire = { 0 };
    cr_expect_eq(remote_decode(slice_of("s\0\0\0\5", 5), &kind, &body, &size), -1);
    cr_expect_eq(remote_decode(slice_of("j\377\377\377\377", 5), &kind, &body, &size), -1);
    cr_expect_eq(remote_decode(slice_of("?\0\0\0\0", 5), &kind, &body, &size), -1);
    cr_expect_not(remote_encode(&wire, REMOTE_SIGNAL, slice_str("12345")));
    buf_free(&wire);
}

static void pass_signal(struct relay *r, int signal)
{
    char number[8];
    snprintf(number, sizeof(number), "%d", signal);
    handle_SIGNAL(r, slice_str(number));
}

/* Until the guardian of the host's ddprun handles signals, a Ctrl-C kills ddprun itself. Another signal may follow
 * before the relay reaps ddprun. If two signals are pending, the kernel may deliver the second signal first. In each
 * case, the exit code must be that of the first signal. */
Test(remote_messages, a_stop_before_ddprun_handles_signals_is_that_signal)
{
    static const struct {
        int first, second, killer;
    } stops[] = { { SIGINT, 0, SIGINT },
                  { SIGTERM, 0, SIGTERM },
                  { SIGINT, SIGTERM, SIGINT },
                  { SIGTERM, SIGINT, SIGINT } };
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        struct relay r = { .listener = -1, .news = -1, .child_in = -1, .exit_code = -1 };
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, stops[i].killer == SIGTERM ? SIG_DFL : SIG_IGN);
        r.child = fork();
        while (r.child == 0)
            pause();
        pass_signal(&r, stops[i].first);
        if (stops[i].second != 0)
            pass_signal(&r, stops[i].second);
        for (struct patience wait = { 0 }; r.exit_code < 0 && patience_left(&wait);)
            reap(&r);
        cr_expect_eq(r.exit_code, 128 + stops[i].first);
    }
}

Test(remote_messages, answers_are_found_among_the_lines_of_a_login_shell)
{
    const struct remote_answer here = { .news = REMOTE_HERE,
                                        .version = "0.1.0",
                                        .port = 4711,
                                        .token = "ab12",
                                        .addresses = "10.0.0.1 fd00::1" };
    struct remote_answer got;
    struct buf out = { 0 };
    cr_assert(remote_print_answer(&here, &out));
    cr_assert(remote_parse_answer(slice_of(out.data, out.len - 1), &got));
    cr_expect_eq(got.news, REMOTE_HERE);
    cr_expect_eq(got.port, 4711);
    cr_expect_str_eq(got.version, "0.1.0");
    cr_expect_str_eq(got.token, "ab12");
    cr_expect_str_eq(got.addresses, "10.0.0.1 fd00::1");
    cr_expect_not(remote_parse_answer(slice_str("Welcome to n1"), &got));
    cr_expect_not(remote_parse_answer(slice_str(REMOTE_ANSWER "here 0.1.0 99999 ab "), &got));
    cr_expect_not(remote_parse_answer(slice_str(REMOTE_ANSWER "gone 0.1.0 1 ab "), &got));
    cr_expect_not(remote_parse_answer(slice_str(REMOTE_ANSWER), &got));
    buf_free(&out);
}

/* Feed a text byte by byte, as a slow connection would. */
static void expect_inside(const char *text, const char *expected, uint64_t expected_taken,
                          const char *expected_findings)
{
    struct buf held = { 0 }, out = { 0 }, findings = { 0 };
    uint64_t taken = 0;
    int files = -1;
    for (size_t i = 0; i < strlen(text); i++)
        cr_assert(buf_append(&held, text + i, 1) &&
                  remote_split(&held, "ab12", &out, &taken, &findings, &files));
    cr_assert(buf_append(&out, held.data, held.len) && buf_append(&out, "", 1) &&
              buf_append(&findings, "", 1));
    cr_expect_str_eq((const char *)out.data, expected);
    cr_expect_str_eq((const char *)findings.data, expected_findings);
    buf_free(&findings);
    cr_expect_eq(taken, expected_taken);
    cr_expect_eq(files, -1);
    buf_free(&held);
    buf_free(&out);
}

static void expect_without_room(const char *text, const char *expected, uint64_t expected_taken)
{
    expect_inside(text, expected, expected_taken, "");
}

Test(remote_messages, findings_for_other_hosts_are_removed_from_the_output)
{
    expect_inside("one" REMOTE_ANSWER "finding 0.1.0 0 ab12 {\"host\":\"n 1\"}\ntwo" REMOTE_ANSWER
                  "room 0.1.0 0 ab12 7\n",
                  "onetwo", 7, "{\"host\":\"n 1\"}\n");
    /* the line is from a worker, which does not have the token */
    expect_inside(REMOTE_ANSWER "finding 0.1.0 0 ab13 {}\n", REMOTE_ANSWER "finding 0.1.0 0 ab13 {}\n", 0,
                  "");
}

Test(remote_messages, answers_about_input_are_removed_from_the_output)
{
    expect_without_room("one" REMOTE_ANSWER "room 0.1.0 0 ab12 700000\ntwo\n", "onetwo\n", 700000);
    expect_without_room(REMOTE_ANSWER "room 0.1.0 0 ab12 1\n" REMOTE_ANSWER "room 0.1.0 0 ab12 2\n", "", 2);
    expect_without_room("\036\036ddp" REMOTE_ANSWER "room 0.1.0 0 ab12 5\nx", "\036\036ddpx", 5);
    /* the line is from a worker, which does not have the token */
    expect_without_room(REMOTE_ANSWER "room 0.1.0 0 ab13 5\nx", REMOTE_ANSWER "room 0.1.0 0 ab13 5\nx", 0);
    expect_without_room("x" REMOTE_ANSWER "ended 0.1.0 0 - \n", "x" REMOTE_ANSWER "ended 0.1.0 0 - \n", 0);
    expect_without_room("end" REMOTE_ANSWER "roo", "end" REMOTE_ANSWER "roo", 0);
}

/* The line before the answer may be longer than any line that the console keeps. */
Test(remote_messages, files_follow_their_answer_after_an_unfinished_line)
{
    enum { LONG = 3 << 20 };
    static const char answer[] = REMOTE_ANSWER "files 0.1.0 7 ab12 \n";
    char *line = malloc(LONG);
    memset(line, 'x', LONG);
    for (size_t cut = 0; cut <= strlen(answer); cut++) {
        struct buf held = { 0 }, out = { 0 }, findings = { 0 };
        uint64_t taken = 0;
        int files = -1;
        cr_assert(buf_append(&held, line, LONG) && buf_append(&held, answer, cut));
        cr_assert(remote_split(&held, "ab12", &out, &taken, &findings, &files));
        cr_expect_eq(out.len, LONG);
        cr_expect_eq(files, cut < strlen(answer) ? -1 : 7);
        cr_assert(buf_append(&held, answer + cut, strlen(answer) - cut) && buf_append(&held, "file", 4));
        cr_assert(remote_split(&held, "ab12", &out, &taken, &findings, &files));
        cr_expect_eq(files, 7);
        cr_expect_eq(out.len, LONG, "cut %zu", cut);
        cr_expect(slice_equal(buf_slice(&held), slice_str("file")));
        buf_free(&held);
        buf_free(&out);
    }
    free(line);
}

/* --- commands --------------------------------------------------------------------------------------------------- */

static char *environ_block[] = { "PATH=/bin", "HOME=/root", "NCCL_DEBUG=INFO", "PATHS=no", "VIRTUAL_ENV=/v",
                                 "AWS_SECRET=no", "TORCH_LOGS=x", "WANDB_KEY=k", "WANDB_KEYS=no",
                                 /* carried to the host */
                                 "LD_LIBRARY_PATH=/l", "CONDA_PREFIX=/c", "PYTHONPATH=/p", "UCX_TLS=rc",
                                 "OMP_NUM_THREADS=4", "DDP_X=1", "PET_X=2",
                                 /* these variables are not carried */
                                 "LD_LIBRARY_PATHS=no", "LD_PRELOAD=no", "CONDA_PREFIX_1=no", "CONDA=no",
                                 "PYTHONPATHS=no", "PYTHONHOME=no", "VIRTUAL_ENVS=no", "UCX=no",
                                 "XUCX_TLS=no", "OMP=no", "GOMP_X=no", NULL };
static char *argv[] = { "ddprun", "--hosts", "a:2,b", "--env=WANDB_KEY", "train.py", "it's", NULL };

static struct start_facts facts_of(struct cli *cli)
{
    struct ddp_err err;
    cr_assert_eq(cli_read(cli, 6, argv, environ_block, &err), DDP_OK, "%s", err.msg);
    return (struct start_facts){ .cli = cli,
                                 .argv = argv,
                                 .environ_block = environ_block,
                                 .program = "/opt/my dir/ddprun",
                                 .directory = "/home/ann",
                                 .host = "here",
                                 .job = "job1",
                                 .umask = 0022,
                                 .terminal = true,
                                 .limits = { 65536, REMOTE_UNLIMITED } };
}

Test(remote_command, ssh_gets_its_options_the_host_and_one_script)
{
    struct cli cli;
    struct ddp_err err;
    struct start_facts facts = facts_of(&cli);
    struct host_spec host = { .name = "ann@a" };
    char **words;
    cli.remote_shell = "/usr/bin/ssh -p 2222";
    cr_assert_eq(start_command(&facts, &host, &words, &err), DDP_OK);
    const char *const expected[] = { "/usr/bin/ssh", "-p",
                                     "2222",         "-T",
                                     "-o",           "BatchMode=yes",
                                     "-o",           "ConnectTimeout=10",
                                     "-o",           "ServerAliveCountMax=2",
                                     "-o",           "ServerAliveInterval=3",
                                     "ann@a" };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        cr_expect_str_eq(words[i], expected[i]);
    cr_expect_str_eq(words[13],
                     "sh -c 'for p in /v/bin/ddprun '\\''/opt/my dir/ddprun'\\''; do if test -x \"$p\"; then "
                     "exec \"$p\" --relay; fi; done; exec ddprun --relay'");
    cr_expect_null(words[14]);
    start_free(words);
    cli.node_timeout_ms = 60000;
    cr_assert_eq(start_command(&facts, &host, &words, &err), DDP_OK);
    cr_expect_str_eq(words[11], "ServerAliveInterval=20");
    start_free(words);
    cli_free(&cli);
}

Test(remote_command, another_remote_shell_gets_no_options_and_this_host_none_at_all)
{
    struct cli cli;
    struct ddp_err err;
    struct start_facts facts = facts_of(&cli);
    struct host_spec a = { .name = "a" }, here = { .name = "here" };
    char **words;
    cli.remote_shell = "rsh";
    cr_assert_eq(start_command(&facts, &a, &words, &err), DDP_OK);
    cr_expect_str_eq(words[0], "rsh");
    cr_expect_str_eq(words[1], "a");
    start_free(words);
    cr_assert_eq(start_command(&facts, &here, &words, &err), DDP_OK);
    cr_expect_str_eq(words[0], "/opt/my dir/ddprun");
    cr_expect_str_eq(words[1], "--relay");
    cr_expect_null(words[2]);
    start_free(words);
    cli_free(&cli);
}

/* Return as text which host starts each of the `n` hosts n0, n1, ... The number -1 is the starter, which runs on n5. */
static const char *tree_of(struct cli *cli, int n)
{
    static char text[1024];
    struct start_facts facts = { .cli = cli, .host = "n5" };
    struct host_spec hosts[100] = { 0 };
    int above[100];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n; i++)
        snprintf(hosts[i].name, sizeof(hosts[i].name), "n%d", i);
    start_tree(&facts, hosts, n, above);
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d", i > 0 ? " " : "", above[i]);
    return text;
}

Test(remote_command, hosts_start_as_a_tree_from_a_number_on)
{
    struct cli cli;
    facts_of(&cli);
    cr_expect_null(strstr(tree_of(&cli, 63), "0"), "%s", tree_of(&cli, 63));
    cr_expect_not_null(strstr(tree_of(&cli, 64), "-1 0 1 2 3"), "%s", tree_of(&cli, 64));
    cli.remote_shell = "srun";
    cr_expect_null(strstr(tree_of(&cli, 64), "0"), "%s", tree_of(&cli, 64));
    cli.remote_shell = "ssh";
    cli.origin[OPT_SSH_FANOUT] = FROM_COMMAND_LINE;
    cli.ssh_fanout = 0;
    cr_expect_null(strstr(tree_of(&cli, 64), "0"), "%s", tree_of(&cli, 64));
    cli.ssh_fanout = 2;
    cr_expect_str_eq(tree_of(&cli, 9), "-1 -1 0 1 0 -1 2 3 4");
    cli.ssh_fanout = 1;
    cr_expect_str_eq(tree_of(&cli, 4), "-1 0 1 2");
    cli_free(&cli);
}

/* srun starts no login shell on the host, and its option for the host accepts no user name. */
Test(remote_command, srun_gets_a_step_on_the_host)
{
    struct cli cli;
    struct ddp_err err;
    struct start_facts facts = facts_of(&cli);
    struct host_spec host = { .name = "ann@a" };
    const char *const expected[] = { "srun",       "--mem=0",      "--nodes=1",
                                     "--ntasks=1", "--overlap",    "--cpu-bind=none",
                                     "--quiet",    "--nodelist=a", "sh",
                                     "-c" };
    char **words;
    cli.remote_shell = "srun --mem=0";
    cr_assert_eq(start_command(&facts, &host, &words, &err), DDP_OK);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        cr_expect_str_eq(words[i], expected[i]);
    cr_expect_eq(strncmp(words[10], "for p in /v/bin/ddprun '/opt/my dir/ddprun'; do", 47), 0, "%s",
                 words[10]);
    cr_expect_null(words[11]);
    start_free(words);
    cli_free(&cli);
}

/* ssh uses the first of several port options. */
Test(remote_command, the_port_of_the_list_goes_to_ssh)
{
    struct cli cli;
    struct ddp_err err;
    struct start_facts facts = facts_of(&cli);
    struct host_spec host = { .name = "here", .port = 2222 };
    struct finding late;
    char **words;
    cli.remote_shell = "/usr/bin/ssh -p 22";
    cr_assert_eq(start_command(&facts, &host, &words, &err), DDP_OK);
    cr_expect_str_eq(words[1], "-p2222");
    cr_expect_str_eq(words[12], "ServerAliveInterval=3");
    cr_expect_str_eq(words[13], "here", "a port leads to ssh, even on this host");
    start_explain_late(&facts, &host, NULL, false, &late);
    cr_expect_not_null(strstr(late.advice, "'/usr/bin/ssh -p 22 -p 2222 here true'"), "%s", late.advice);
    start_free(words);
    cr_expect_eq(start_check(&cli, &host, 1, &err), DDP_OK);
    cli.remote_shell = "ssh2 -x";
    cr_expect_eq(start_check(&cli, &host, 1, &err), DDP_ERR_ARG);
    cr_expect_str_eq(err.msg,
                     "host here: port 2222: ddprun can pass a port only to ssh; remove the port from "
                     "the list, and set the port in --remote_shell (now 'ssh2 -x')");
    cli.remote_shell = "ssh";
    host = (struct host_spec){ .name = "here", .count = "2", .slots = 2 };
    cr_assert_eq(rank_set_parse(&cli.input.ranks, "1", CLI_NPROC_MAX, &err), DDP_OK);
    cr_expect_eq(start_check(&cli, &host, 1, &err), DDP_OK);
    cr_assert_eq(rank_set_parse(&cli.input.ranks, "0,2", CLI_NPROC_MAX, &err), DDP_OK);
    cr_expect_eq(start_check(&cli, &host, 1, &err), DDP_ERR_ARG);
    cr_expect_str_eq(
        err.msg, "--stdin: rank 2 does not exist; list only ranks up to 1, the highest rank of these hosts");
    cli_free(&cli);
}

/* Return a text with one digit for each host: 1 if the host gets stdin, otherwise 0. The digits are followed by a blank
 * and the world size. */
static const char *readers_of(const char *list, const char *input, int nproc)
{
    static char text[32];
    struct cli cli;
    facts_of(&cli);
    struct host_spec *hosts;
    struct ddp_err err;
    bool reads[8];
    int n;
    cr_assert_eq(host_specs_parse(list, &hosts, &n, &err), DDP_OK);
    cli.input.all = input == NULL;
    rank_set_free(&cli.input.ranks);
    if (input != NULL && input[0] != '\0')
        cr_assert_eq(rank_set_parse(&cli.input.ranks, input, CLI_NPROC_MAX, &err), DDP_OK);
    cli.nproc = (struct cli_nproc){ nproc > 0 ? NPROC_NUMBER : NPROC_DEFAULT, nproc };
    const int size = start_readers(&cli, hosts, n, reads);
    for (int i = 0; i < n; i++)
        text[i] = (char)('0' + reads[i]);
    snprintf(text + n, sizeof(text) - (size_t)n, " %d", size);
    free(hosts);
    cli_free(&cli);
    return text;
}

Test(remote_job, input_is_sent_to_the_hosts_of_the_ranks_that_read)
{
    cr_expect_str_eq(readers_of("a:2,b:2,c:1", "0", 0), "100 5");
    cr_expect_str_eq(readers_of("a:2,b:2,c:1", "3", 0), "010 5");
    cr_expect_str_eq(readers_of("a:2,b:2,c:1", "1,4-5", 0), "101 5");
    cr_expect_str_eq(readers_of("a:2,b:2,c:1", NULL, 0), "111 5");
    cr_expect_str_eq(readers_of("a:2,b:2,c:1", "", 0), "000 5");
    cr_expect_str_eq(readers_of("a,b,c", "7", 4), "010 12");
    cr_expect_str_eq(readers_of("a,b,c", "0", 0), "100 0");
    cr_expect_str_eq(readers_of("a,b,c", "1", 0), "110 0");
    cr_expect_str_eq(readers_of("a:2,b:gpu,c:2", "1", 0), "100 0");
    cr_expect_str_eq(readers_of("a:2,b:gpu,c:2", "3", 0), "011 0");
    cr_expect_str_eq(readers_of("a:gpu,b:2,c:2", "2", 0), "110 0");
}

/* The secret is a separate member of the message, and is not in the arguments or variables of the job. */
Test(remote_job, the_job_has_options_before_those_of_the_user_and_the_carried_variables)
{
    struct cli cli;
    struct start_facts facts = facts_of(&cli);
    struct host_spec host = { .name = "ann@a", .count = "2" };
    const struct start_meeting meeting = {
        .nodes = 2, .address = "10.0.0.1", .port = 4711, .secret = "5ec7e7"
    };
    const char *const expected[] = { "ddprun",
                                     "--one_console",
                                     "--scheduler=none",
                                     "--nnodes=2",
                                     "--node_rank=1",
                                     "--master_addr=10.0.0.1",
                                     "--master_port=4711",
                                     "--secret_file=-",
                                     "--nproc_per_node=2",
                                     "--rdzv_id=job1",
                                     "--log_line_prefix_template=[a:${rank}] ",
                                     "--quiet",
                                     "--hosts",
                                     "a:2,b",
                                     "--env=WANDB_KEY",
                                     "train.py",
                                     "it's" };
    const char *const env[] = { "PATH=/bin",        "NCCL_DEBUG=INFO",    "VIRTUAL_ENV=/v",  "TORCH_LOGS=x",
                                "WANDB_KEY=k",      "LD_LIBRARY_PATH=/l", "CONDA_PREFIX=/c", "PYTHONPATH=/p",
                                "UCX_TLS=rc",       "OMP_NUM_THREADS=4",  "DDP_X=1",         "PET_X=2",
                                "DDPRUN_TERMINAL=1" };
    const int n_env = (int)(sizeof(env) / sizeof(env[0]));
    struct buf out = { 0 };
    cr_assert(start_job(&facts, &host, 1, false, &meeting, &out));
    cJSON *o = cJSON_ParseWithLength((const char *)out.data, out.len);
    const cJSON *words = cJSON_GetObjectItem(o, "argv"), *variables = cJSON_GetObjectItem(o, "env");
    cr_expect_eq(cJSON_GetArraySize(words), (int)(sizeof(expected) / sizeof(expected[0])));
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetArrayItem(words, (int)i)), expected[i]);
    cr_expect_eq(cJSON_GetArraySize(variables), n_env);
    for (int i = 0; i < n_env; i++)
        cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetArrayItem(variables, i)), env[i]);
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(o, "secret")), "5ec7e7");
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(o, "directory")), "/home/ann");
    cr_expect_eq(cJSON_GetObjectItem(o, "umask")->valueint, 0022);
    cr_expect_eq(cJSON_GetObjectItem(o, "nofile")->valuedouble, 65536);
    cr_expect_eq(cJSON_GetObjectItem(o, "memlock")->valuedouble, REMOTE_UNLIMITED);
    cr_expect(cJSON_IsFalse(cJSON_GetObjectItem(o, "input")));
    cJSON_Delete(o);
    buf_free(&out);
    cli_free(&cli);
}

/* Each node gets a separate directory, and its relay gets the path. */
Test(remote_job, collected_log_files_have_a_directory_for_each_node)
{
    struct cli cli;
    struct start_facts facts = facts_of(&cli);
    const struct start_meeting meeting = { .nodes = 1, .address = "10.0.0.1", .secret = "", .token = "7a" };
    struct host_spec host = { .name = "a" };
    struct buf out = { 0 };
    cli.log_dir = "logs";
    facts.log_name = "job1";
    cr_assert(start_job(&facts, &host, 3, false, &meeting, &out));
    cJSON *o = cJSON_ParseWithLength((const char *)out.data, out.len), *word;
    bool found = false;
    cJSON_ArrayForEach(word, cJSON_GetObjectItem(o, "argv")) found =
        found || strcmp(cJSON_GetStringValue(word), "--log_name=job1_node3") == 0;
    cr_expect(found);
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(o, "collect")), "logs/job1_node3");
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(o, "token")), "7a");
    cJSON_Delete(o);
    buf_free(&out);
    cli_free(&cli);
}

/* Between two heartbeats, the starter may write a log file to a slow disk. So a host waits longer for the starter if
 * log files are collected. */
Test(remote_job, with_collected_log_files_a_host_waits_longer_for_the_starter)
{
    struct cli cli = { .node_timeout_ms = 1 };
    cr_expect_eq(start_silent_ms(&cli), 3 * REMOTE_BEAT_MS);
    cli.collect_logs = true;
    cr_expect_eq(start_silent_ms(&cli), REMOTE_SLOW_DISK_MS);
    cli.node_timeout_ms = 2 * REMOTE_SLOW_DISK_MS;
    cr_expect_eq(start_silent_ms(&cli), 2 * REMOTE_SLOW_DISK_MS);
}

/* --- relay ------------------------------------------------------------------------------------------------------ */

/* The relay may be too busy to read stdin. */
Test(remote_relay, a_message_that_waits_on_stdin_is_no_silence)
{
    const struct relay r = { .silent_ms = 0, .last_received_ms = 0 };
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    cr_expect(is_silent(&r));
    cr_assert_eq(write(ends[1], "b", 1), 1);
    cr_expect_not(is_silent(&r));
}

Test(remote_relay, a_host_that_cannot_fork_has_one_finding)
{
    struct relay r = { .listener = -1, .job_token = "ab12", .exit_code = -1 };
    const struct rlimit none = { 0 };
    char *words[] = { "ddprun", NULL };
    signal(SIGPIPE, SIG_IGN);
    if (geteuid() == 0 && setuid(65534) != 0)
        cr_skip_test("skipped, because the limit does not bind root, and this namespace has no other user");
    cr_assert_eq(setrlimit(RLIMIT_NPROC, &none), 0);
    spawn_job(&r, words, "5ec7e7", false);
    cr_expect_eq(r.exit_code, EXIT_CODE_DDPRUN);
    cr_expect_not(r.had_job);
    cr_assert_gt(r.findings.len, 0);
    const char *end = memchr(r.findings.data, '\n', r.findings.len);
    cr_expect_eq((const uint8_t *)end, r.findings.data + r.findings.len - 1, "one line: %.*s",
                 (int)r.findings.len, (const char *)r.findings.data);
    buf_free(&r.findings);
}

/* --- address of the store, and reasons of failed starts --------------------------------------------------------- */

static const char *chosen(const char *own, const char *const *reached, int n)
{
    static char address[ENDPOINT_HOST_MAX];
    start_choose_address(own, reached, n, address);
    return address;
}

Test(remote_address, the_first_address_that_all_reach_is_chosen)
{
    cr_expect_str_eq(
        chosen("10.0.0.1 192.168.0.1", (const char *[]){ "10.0.0.1 192.168.0.1", "192.168.0.1" }, 2),
        "192.168.0.1");
    cr_expect_str_eq(chosen("10.0.0.1", (const char *[]){ "10.0.0.1", "" }, 2), "");
    cr_expect_str_eq(chosen("10.0.0.1", (const char *[]){ "10.0.0.11" }, 1), "");
    cr_expect_str_eq(chosen("10.0.0.1 127.0.0.1", NULL, 0), "10.0.0.1");
    cr_expect_str_eq(chosen("", NULL, 0), "");
}

static struct finding explained(int exit_code, const char *words)
{
    struct cli cli = { .remote_shell = "ssh" };
    const struct start_facts facts = { .cli = &cli, .program = "/bin/ddprun" };
    const struct host_spec host = { .name = "n1" };
    struct finding f;
    start_explain(&facts, &host, NULL, exit_code, words, 310, &f);
    return f;
}

Test(remote_failures, texts_of_ssh_become_findings)
{
    cr_expect_eq(explained(255, "ssh: Could not resolve hostname n1: Name or service not known\r\n").code,
                 FINDING_HOST_NOT_REACHED);
    const struct finding unreached = explained(255, "ssh: connect to host n1 port 22: No route to host\n");
    cr_expect_eq(unreached.code, FINDING_HOST_NOT_REACHED);
    cr_expect_not_null(strstr(unreached.sentence, "310 ms"), "%s", unreached.sentence);
    cr_expect_not_null(strstr(explained(255, "Host key verification failed.\n").sentence, "310 ms"));
    cr_expect_eq(explained(255, "ann@n1: Permission denied (publickey).\n").code, FINDING_HOST_REJECTS_LOGIN);
    cr_expect_eq(explained(255, "Host key verification failed.\n").code, FINDING_HOST_KEY_UNKNOWN);
    const struct finding changed =
        explained(255, "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n"
                       "Host key for n1 has changed and you have requested strict checking.\n"
                       "Host key verification failed.\n");
    cr_expect_eq(changed.code, FINDING_HOST_KEY_DIFFERS);
    cr_expect_not_null(strstr(changed.sentence, "310 ms: Host key for n1 has changed"), "%s",
                       changed.sentence);
    cr_expect_eq(explained(255, "Host key for n1 was revoked and you have requested strict checking.\n"
                                "Host key verification failed.\n")
                     .code,
                 FINDING_HOST_KEY_DIFFERS);
    cr_expect_eq(explained(127, "sh: 1: exec: ddprun: not found\n").code, FINDING_HOST_HAS_NO_DDPRUN);
    cr_expect_eq(explained(255, "exec request failed on channel 0\r\n").code, FINDING_HOST_BUSY);
    cr_expect_eq(explained(255, "ssh_exchange_identification: Connection closed by remote host\r\n").code,
                 FINDING_HOST_BUSY);
    cr_expect_eq(explained(1, "sh: 2: Cannot fork\n").code, FINDING_HOST_BUSY);
    cr_expect_eq(explained(1, "This account is currently not available.\n").code, FINDING_HOST_HAS_NO_SHELL);
}

Test(remote_failures, the_sentence_has_the_last_line_and_no_control_characters)
{
    const struct finding f = explained(1, "Last login: today\nno \033[31mspace\n\n");
    cr_expect_str_eq(f.sentence, "n1 failed to start the job after 310 ms: no ?[31mspace");
    cr_expect_str_eq(
        explained(255, "banner\nkex_exchange_identification: closed\r\nConnection closed\n").sentence,
        "n1 rejected the start after 310 ms, because it accepts no more processes or logins: "
        "kex_exchange_identification: closed");
    cr_expect_eq(start_code("Disk quota exceeded"), FINDING_HOST_QUOTA_FULL);
    cr_expect_eq(start_code("No space left on device"), FINDING_HOST_DISK_FULL);
    cr_expect_eq(start_code("Is a directory"), FINDING_HOST_NOT_READY);
    cr_expect_str_eq(explained(3, "").sentence, "n1 failed to start the job after 310 ms: exit status 3");
}

Test(remote_failures, a_banner_with_the_text_of_an_error_explains_nothing)
{
    const struct finding f = explained(255, "Permission denied without a reason. No space left on device.\n"
                                            "ann@n1: Permission denied (publickey).\n");
    cr_expect_eq(f.code, FINDING_HOST_REJECTS_LOGIN);
    cr_expect_str_eq(f.sentence,
                     "n1 rejected the login after 310 ms: ann@n1: Permission denied (publickey).");
}

/* An entry of known_hosts never contains a user or port 22. With another port, the name is in brackets. */
Test(remote_failures, the_remedy_of_a_changed_key_names_the_host_as_known_hosts_does)
{
    static const struct {
        struct host_spec host;
        const char *command;
    } rows[] = { { { .name = "ann@n1" }, "'ssh-keygen -R n1'" },
                 { { .name = "n1", .port = 22 }, "'ssh-keygen -R n1'" },
                 { { .name = "ann@n1", .port = 2222 }, "'ssh-keygen -R \"[n1]:2222\"'" } };
    struct cli cli = { .remote_shell = "ssh" };
    const struct start_facts facts = { .cli = &cli, .program = "/bin/ddprun" };
    struct finding f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        start_explain(&facts, &rows[i].host, NULL, 255, "REMOTE HOST IDENTIFICATION HAS CHANGED!", 310, &f);
        cr_expect_not_null(strstr(f.advice, rows[i].command), "%s", f.advice);
    }
}

/* With --ship, the time limit of the first answer grows with the size of the program. The host "here" gets no
 * program. */
Test(remote_failures, a_late_answer_names_the_limit_that_applied)
{
    static const struct {
        struct host_spec host;
        const char *via, *sentence;
        size_t ship;
        bool is_probe;
    } rows[] = {
        { { .name = "n1" }, NULL, "n1 was not reached: no answer within 60 s", 0, false },
        { { .name = "n1" }, NULL, "n1 was not reached: no answer within 90 s", 3000000, false },
        { { .name = "n1" }, NULL, "n1 was not reached: no answer to the probe within 15 s", 3000000, true },
        { { .name = "here" }, NULL, "here was not reached: no answer within 60 s", 3000000, false },
        { { .name = "n1" },
          "n0",
          "n0 should start ddprun on n1, but cannot reach it: no answer within 90 s",
          3000000,
          false },
    };
    struct cli cli;
    struct start_facts facts = facts_of(&cli);
    struct finding f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        facts.ship = slice_of("", rows[i].ship);
        start_explain_late(&facts, &rows[i].host, rows[i].via, rows[i].is_probe, &f);
        cr_expect_str_eq(f.sentence, rows[i].sentence);
    }
    cli.timeout_ms = 2500;
    start_explain_late(&facts, &rows[1].host, NULL, false, &f);
    cr_expect_str_eq(f.sentence, "n1 was not reached: no answer within 2.5 s");
    cli.timeout_ms = 900000;
    cr_expect_eq(start_limit_ms(&facts, &rows[0].host, true), 15000);
    cli.timeout_ms = 1000; /* less than the probes of a host take */
    cr_expect_eq(start_limit_ms(&facts, &rows[0].host, false), 1000);
    cr_expect_eq(start_limit_ms(&facts, &rows[0].host, true), 4000);
    cli.timeout_ms = 5000;
    cr_expect_eq(start_limit_ms(&facts, &rows[0].host, true), 5000);
    cli_free(&cli);
}
