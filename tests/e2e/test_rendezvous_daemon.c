/* Tests of ddp-rendezvous as a process: its ready line, its end, and its errors. Other programs start the daemon and
 * read its first line, so these are part of its interface. */
#include "auth/secret.h"
#include "ddp/store.h"
#include "job.h"
#include "run.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(rendezvous_daemon, .timeout = 120);

static struct run_result run_with(const char *a, const char *b)
{
    const char *argv[] = { bin("ddp-rendezvous"), a, b, NULL };
    return run_command(argv, NULL);
}

static bool matches(const char *text, const char *pattern)
{
    regex_t re;
    cr_assert_eq(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    bool yes = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return yes;
}

Test(rendezvous_daemon, says_where_it_listens_and_nothing_else)
{
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    peer_expect_service(d.port);
    run_signal(d.process, SIGTERM);
    struct run_result r = run_wait(d.process);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert(matches(r.out, "^listening on 127\\.0\\.0\\.1:[0-9]+\n$"), "%s", r.out);
}

Test(rendezvous_daemon, ends_cleanly_on_ctrl_c_with_clients_connected)
{
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    int silent = peer_connect(d.port), waiter = peer_connect_c(d.port);
    peer_wait(waiter, "/never");
    run_signal(d.process, SIGINT);
    struct run_result r = run_wait(d.process);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    peer_expect_end(silent);
    peer_expect_end(waiter);
}

/* A client that does not read delays the normal end by a second. A second signal ends the daemon at once. */
Test(rendezvous_daemon, a_second_signal_ends_it_at_once)
{
    enum { BYTES = 8 << 20 };
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    char *value = calloc(1, BYTES);
    int fd = peer_connect_c(d.port), other = peer_connect_c(d.port);
    peer_set(fd, "/big", slice_of(value, BYTES));
    peer_send_hex(fd, "03 0400000000000000 2f626967");
    peer_expect_silence(other, 'C');
    run_signal(d.process, SIGSTOP); /* so that both signals arrive together */
    cr_assert(job_until_state(run_pid(d.process), 'T'));
    run_signal(d.process, SIGINT);
    run_signal(d.process, SIGTERM);
    run_signal(d.process, SIGCONT);
    struct run_result r = run_wait(d.process);
    cr_assert_neq(r.signal, 0, "exit code %d", r.exit_code);
    SAYS(r, "stopping");
    close(fd);
    close(other);
    free(value);
}

Test(rendezvous_daemon, a_port_can_be_used_again_at_once)
{
    char again[32];
    snprintf(again, sizeof(again), "127.0.0.1:%d", free_port());
    struct daemon d = daemon_start(again, NULL);
    int fd = peer_connect_c(d.port);
    daemon_stop(&d);
    peer_expect_end(fd);
    d = daemon_start(again, NULL);
    peer_expect_service(d.port);
    daemon_stop(&d);
}

Test(rendezvous_daemon, names_who_holds_a_port_in_use)
{
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    char at[32], holder[64];
    snprintf(at, sizeof(at), "127.0.0.1:%d", d.port);
    struct run_result r = run_with("--listen", at);
    snprintf(holder, sizeof(holder), "by ddp-rendezvous (pid %d", (int)run_pid(d.process));
    cr_assert_eq(r.exit_code, 1);
    cr_assert_str_eq(r.out, "");
    cr_assert_not_null(strstr(r.err, at), "%s", r.err);
    cr_assert_not_null(strstr(r.err, holder), "%s", r.err);
    peer_expect_service(d.port);
    daemon_stop(&d);
}

static char secrets[64], key_a[64], key_b[64]; /* paths */

static void write_key(char path[static 64], const char *name)
{
    struct ddp_err err;
    snprintf(path, 64, "/tmp/test_daemon_%d.%s", (int)getpid(), name);
    unlink(path);
    cr_assert_eq(secret_write(path, &err), DDP_OK, "%s", err.msg);
}

/* Write a file of two tenants, and a ddprun secret file for each tenant. */
static void write_tenants(void)
{
    char command[320];
    write_key(key_a, "a");
    write_key(key_b, "b");
    snprintf(secrets, sizeof(secrets), "/tmp/test_daemon_%d.all", (int)getpid());
    snprintf(command, sizeof(command),
             "umask 077 && { echo '# two tenants'; echo a $(cat %s); echo b $(cat %s); } >%s", key_a, key_b,
             secrets);
    cr_assert_eq(system(command), 0);
}

static void remove_tenants(void)
{
    unlink(secrets);
    unlink(key_a);
    unlink(key_b);
}

Test(rendezvous_daemon, no_other_host_is_served_without_a_secret)
{
    static const char *const open[] = { ":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "node0:0" };
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++) {
        struct run_result r = run_with("--listen", open[i]);
        cr_assert_eq(r.exit_code, 1, "%s: %d", open[i], r.exit_code);
        cr_assert_str_eq(r.out, "");
        cr_assert_not_null(strstr(r.err, "no secret\n  try  "), "%s", r.err);
        cr_assert_not_null(strstr(r.err, "\n  finding  NO_SECRET\n"), "%s", r.err);
        cr_assert_null(strstr(r.err, "(ddprun explain"), "%s", r.err);
    }
    const char *argv[] = { bin("ddp-rendezvous"), "--listen", open[0], NULL };
    struct run_result r = run_command(argv, &(struct run_options){ .terminal = true });
    cr_assert_not_null(strstr(r.out, "finding  NO_SECRET\n  (ddprun explain NO_SECRET)\n"), "%s", r.out);
}

Test(rendezvous_daemon, a_warning_has_a_hint)
{
    const char *argv[] = { bin("ddp-rendezvous"), "--listen=:0", "--insecure", NULL };
    struct run_process *daemon = run_start(argv, &(struct run_options){ .terminal = true });
    cr_assert(run_until_output(daemon, "listening on ", PATIENCE_MS));
    run_signal(daemon, SIGTERM);
    struct run_result r = run_wait(daemon);
    cr_expect_not_null(strstr(r.out, "  finding  STORE_IS_OPEN\n  (ddprun explain STORE_IS_OPEN)\n"), "%s",
                       r.out);
}

Test(rendezvous_daemon, a_file_of_secrets_is_checked)
{
    char option[96];
    write_tenants();
    snprintf(option, sizeof(option), "--secret_file=%s", secrets);
    cr_assert_eq(chmod(secrets, 0644), 0);
    struct run_result r = run_with("--listen=:0", option);
    cr_assert_eq(r.exit_code, 1);
    cr_assert_not_null(strstr(r.err, "chmod 600"), "%s", r.err);
    cr_assert_eq(chmod(secrets, 0600), 0);
    struct daemon d = daemon_start(":0", option);
    run_signal(d.process, SIGTERM);
    r = run_wait(d.process);
    cr_assert_eq(r.exit_code, 0);
    cr_assert_null(strstr(r.err, "STORE_IS_OPEN"), "%s", r.err);
    remove_tenants();
}

Test(rendezvous_daemon, warns_when_more_than_this_machine_can_reach_it)
{
    struct daemon d = daemon_start(":0", "--insecure");
    char taken[32];
    snprintf(taken, sizeof(taken), "--listen=:%d", d.port);
    struct run_result r = run_with(taken, "--insecure");
    cr_assert_eq(r.exit_code, 1);
    cr_assert_null(strstr(r.err, "STORE_IS_OPEN"), "it does not listen: %s", r.err);
    peer_expect_service(d.port);
    run_signal(d.process, SIGTERM);
    r = run_wait(d.process);
    cr_assert(matches(r.out, "^listening on (\\[::\\]|0\\.0\\.0\\.0):[0-9]+\n$"), "%s", r.out);
    cr_assert_not_null(strstr(r.err, "every host"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "  finding  STORE_IS_OPEN"), "%s", r.err);
}

Test(rendezvous_daemon, verbose_tells_who_comes_and_goes_and_why)
{
    struct daemon d = daemon_start("127.0.0.1:0", "--verbose");
    int fd = peer_connect_c(d.port);
    peer_send_hex(fd, "77");
    peer_expect_end(fd);
    run_signal(d.process, SIGTERM);
    struct run_result r = run_wait(d.process);
    cr_assert(matches(r.err, "127\\.0\\.0\\.1:[0-9]+: connected\n"), "%s", r.err);
    cr_assert(matches(r.err, "warning: .*127\\.0\\.0\\.1:[0-9]+: dropped: .*(0x77|119)"), "%s", r.err);
}

/* A health check that connects every second must not fill the disk with log lines. */
Test(rendezvous_daemon, a_stranger_is_named_once_in_a_minute)
{
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    for (int i = 0; i < 3; i++) {
        int fd = peer_connect(d.port);
        cr_assert(peer_send(fd, slice_str("GET /healthz HTTP/1.1\r\n\r\n")));
        peer_expect_end(fd);
    }
    run_signal(d.process, SIGTERM);
    struct run_result r = run_wait(d.process);
    const char *line = strstr(r.err, "uses HTTP");
    cr_assert_not_null(line, "%s", r.err);
    cr_assert_null(strstr(line + 1, "store client"), "%s", r.err);
}

/* While the daemon is stopped, a key arrives, and then a reset from the client that waits for the key. So the daemon
 * sends its reply to a connection that is already closed. This happens often if workers are killed. */
Test(rendezvous_daemon, a_client_that_dies_before_its_reply_is_nothing_to_warn_of)
{
    const struct linger reset = { .l_onoff = 1 };
    siginfo_t stopped;
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    int waiter = peer_connect_c(d.port), writer = peer_connect_c(d.port);
    peer_wait(waiter, "/go");
    peer_expect_silence(writer, 'C');
    run_signal(d.process, SIGSTOP);
    cr_assert_eq(waitid(P_PID, (id_t)run_pid(d.process), &stopped, WSTOPPED), 0);
    peer_set(writer, "/go", slice_str("1"));
    setsockopt(waiter, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(waiter);
    run_signal(d.process, SIGCONT);
    peer_expect_silence(writer, 'C');
    run_signal(d.process, SIGTERM);
    struct run_result r = run_wait(d.process);
    cr_assert_eq(r.exit_code, 0);
    cr_assert_null(strstr(r.err, "warning"), "%s", r.err);
    close(writer);
}

Test(rendezvous_daemon, quiet_is_quiet)
{
    const char *argv[] = { bin("ddp-rendezvous"), "--listen=:0", "--insecure", "--quiet", NULL };
    struct run_process *daemon = run_start(argv, NULL);
    cr_assert(run_until_output(daemon, "listening", 20000));
    run_signal(daemon, SIGTERM);
    struct run_result r = run_wait(daemon);
    cr_assert_eq(r.exit_code, 0);
    cr_assert_str_eq(r.err, "");
}

Test(rendezvous_daemon, torch_2_1_clients_can_append)
{
    struct daemon d = daemon_start("127.0.0.1:0", "--torch21");
    int fd = peer_connect(d.port);
    peer_send_hex(fd, "00 0200000000000000 2f61 0200000000000000 6869"); /* SET /a hi */
    peer_send_hex(fd, "08 0200000000000000 2f61 0100000000000000 21");   /* APPEND /a ! */
    peer_send_hex(fd, "02 0200000000000000 2f61");                       /* GET /a */
    peer_expect(fd, "0300000000000000 686921");
    close(fd);
    daemon_stop(&d);
}

static void expect_usage_error(const char *a, const char *b, const char *words)
{
    struct run_result r = run_with(a, b);
    cr_assert_eq(r.exit_code, 2, "%s: %d", a, r.exit_code);
    cr_assert_str_eq(r.out, "");
    cr_assert_not_null(strstr(r.err, words), "%s", r.err);
}

Test(rendezvous_daemon, wrong_usage_is_named)
{
    expect_usage_error("--bogus", NULL, "--bogus: unknown");
    expect_usage_error("--listen", "::1:7", "[::1]:7");
    expect_usage_error("--listen", "here:http", "'http' is");
    expect_usage_error("--max-bytes", "lots", "=lots: expected");
    expect_usage_error("serve", NULL, "'serve': ");
}

Test(rendezvous_daemon, an_address_that_cannot_be_had_is_explained)
{
    struct run_result r = run_with("--listen=192.0.2.1:0", "--insecure");
    cr_assert_eq(r.exit_code, 1);
    cr_assert_not_null(strstr(r.err, "192.0.2.1:0"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "this host"), "%s", r.err);
}

Test(rendezvous_daemon, help_and_version_go_to_stdout)
{
    struct run_result help = run_with("--help", NULL), version = run_with("--version", NULL);
    cr_assert_eq(help.exit_code, 0);
    cr_assert_not_null(strstr(help.out, "--listen HOST:PORT"));
    cr_assert_not_null(strstr(help.out, "exit status: 0"));
    cr_assert(matches(version.out, "^ddp-rendezvous [0-9]+\\.[0-9]+\\.[0-9]+ \\(commit [^ ]+, [^ ]+, .*\\)"),
              "%s", version.out);
}

struct joiner {
    ddp_store *store;
    ddp_status status;
    struct ddp_err err;
};

static struct joiner joiner_of_2(int port, int rank)
{
    struct joiner j = { 0 };
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.role = "worker";
    options.job = "demo";
    options.rank = rank;
    options.world_size = 2;
    cr_assert_eq(ddp_store_connect("127.0.0.1", port, &options, &j.store, &j.err), DDP_OK, "%s", j.err.msg);
    return j;
}

enum { BARRIER_MS = 2500 };

static void *join(void *arg)
{
    struct joiner *j = arg;
    j->status = ddp_store_barrier(j->store, "b", NULL, 0, BARRIER_MS, &j->err);
    return NULL;
}

/* Wait until rank 0 is in the barrier. The timeout of the barrier begins at this time. */
static void until_rank_0_is_there(int port)
{
    ddp_store *ctl;
    struct ddp_err err;
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.role = "ctl";
    cr_assert_eq(ddp_store_connect("127.0.0.1", port, &options, &ctl, &err), DDP_OK, "%s", err.msg);
    for (bool there = false; !there;) {
        char *reply;
        cr_assert_eq(ddp_store_control(ctl, "{\"op\":\"barriers\"}", 0, &reply, &err), DDP_OK, "%s", err.msg);
        there = strstr(reply, "\"arrived\":[0]") != NULL;
        free(reply);
    }
    ddp_store_close(ctl);
}

/* The daemon is suspended before the second rank arrives, and continues after the timeout of the barrier. The rank has
 * arrived in time, so the barrier must succeed. */
Test(rendezvous_daemon, that_stood_still_blames_nobody)
{
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    struct joiner j[2] = { joiner_of_2(d.port, 0), joiner_of_2(d.port, 1) };
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, join, &j[0]);
    until_rank_0_is_there(d.port);
    run_signal(d.process, SIGSTOP);
    pthread_create(&threads[1], NULL, join, &j[1]);
    usleep((BARRIER_MS + 1000) * 1000);
    run_signal(d.process, SIGCONT);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(j[i].status, DDP_OK, "rank %d: %s", i, j[i].err.msg);
        ddp_store_close(j[i].store);
    }
    daemon_stop(&d);
}

/* Tests of several jobs at once through one ddp-rendezvous, with real ddpruns. */

static struct daemon store;
static char endpoint[64];

static void start(void)
{
    store = daemon_start("127.0.0.1:0", NULL);
    snprintf(endpoint, sizeof(endpoint), "--rdzv_endpoint=127.0.0.1:%d", store.port);
}

static void stop(void)
{
    daemon_stop(&store);
}

TestSuite(many_jobs, .init = start, .fini = stop, .timeout = 120);

/* Start one of two nodes, with one worker that runs `script`. `secret` is NULL or "--secret_file=FILE". */
static struct run_process *node(const char *id, const char *script, const char *secret)
{
    const char *argv[] = { bin("ddprun"),
                           "--nnodes=2",
                           "--rdzv_backend=c10d",
                           endpoint,
                           id,
                           "--host_store=no",
                           "--nproc_per_node=1",
                           "--max_restarts=1",
                           "--restart_backoff=0",
                           "--grace=1",
                           secret != NULL ? secret : "--no_prefix",
                           "sh",
                           "-c",
                           script,
                           NULL };
    return run_start(argv, NULL);
}

static void expect_end(struct run_process *process, int exit_code, const char *words, const char *absent)
{
    struct run_result r = run_wait(process);
    cr_assert_eq(r.exit_code, exit_code, "%d: %s%s", r.exit_code, r.out, r.err);
    cr_assert_not_null(strstr(r.out, words), "no \"%s\" in %s%s", words, r.out, r.err);
    cr_assert_null(strstr(r.out, absent), "\"%s\" in %s", absent, r.out);
}

/* Job a fails once and restarts on both of its nodes. Job b must continue without a restart. */
Test(many_jobs, a_restart_stays_in_its_job)
{
    const char *fails_once =
        "echo a rank $RANK of $WORLD_SIZE, start $TORCHELASTIC_RESTART_COUNT;"
        "test $TORCHELASTIC_RESTART_COUNT = 1 || { test $RANK = 1 && exit 3; sleep 20; }";
    const char *runs = "echo b rank $RANK of $WORLD_SIZE, start $TORCHELASTIC_RESTART_COUNT; sleep 2";
    struct run_process *a[] = { node("--rdzv_id=a", fails_once, NULL),
                                node("--rdzv_id=a", fails_once, NULL) };
    struct run_process *b[] = { node("--rdzv_id=b", runs, NULL), node("--rdzv_id=b", runs, NULL) };
    for (int i = 0; i < 2; i++)
        expect_end(a[i], 0, "of 2, start 1", "b rank");
    for (int i = 0; i < 2; i++)
        expect_end(b[i], 0, "of 2, start 0", "start 1");
}

static struct run_result ask_why(bool terminal)
{
    char addr[64];
    snprintf(addr, sizeof(addr), "--addr=127.0.0.1:%d", store.port);
    const char *argv[] = { bin("ddpctl"), addr, "why", NULL };
    return run_command(argv, &(struct run_options){ .terminal = terminal });
}

/* A client with the first bytes of a TLS handshake causes a warning, which `ddpctl why` lists before the error. */
Test(many_jobs, why_names_the_explanation_of_the_first_error_only_on_a_terminal)
{
    struct run_process *waits = node("--rdzv_id=a", "true", NULL);
    const int client = peer_connect(store.port);
    cr_assert(peer_send_hex(client, "1603010005 0100000100"));
    peer_expect_end(client);
    struct run_result r = ask_why(false);
    for (struct patience left = { 0 }; strstr(r.out, "[TOO_FEW_NODES]") == NULL && patience_left(&left);)
        r = ask_why(false);
    cr_expect_not_null(strstr(r.out, "[TOO_FEW_NODES]"), "%s%s", r.out, r.err);
    cr_expect_null(strstr(r.out, "(ddprun explain"), "%s", r.out);
    r = ask_why(true);
    const char *warning = strstr(r.out, "[TLS_CLIENT]");
    cr_expect(warning != NULL && strstr(warning, "[TOO_FEW_NODES]") != NULL, "%s", r.out);
    cr_expect_not_null(strstr(r.out, "\n  (ddprun explain TOO_FEW_NODES)\n"), "%s", r.out);
    run_signal(waits, SIGTERM);
    run_wait(waits);
}

/* --- tenants ------------------------------------------------------------------------------------------------ */

static char option_a[96], option_b[96];

static void start_tenants(void)
{
    char option[96];
    write_tenants();
    snprintf(option, sizeof(option), "--secret_file=%s", secrets);
    snprintf(option_a, sizeof(option_a), "--secret_file=%s", key_a);
    snprintf(option_b, sizeof(option_b), "--secret_file=%s", key_b);
    store = daemon_start("127.0.0.1:0", option);
    snprintf(endpoint, sizeof(endpoint), "--rdzv_endpoint=127.0.0.1:%d", store.port);
}

static void stop_tenants(void)
{
    stop();
    remove_tenants();
}

TestSuite(tenants, .init = start_tenants, .fini = stop_tenants, .timeout = 120);

Test(tenants, run_their_jobs_through_one_store)
{
    const char *script = "echo rank $RANK of $WORLD_SIZE, start $TORCHELASTIC_RESTART_COUNT;"
                         "test $TORCHELASTIC_RESTART_COUNT = 1 || { test $RANK = 1 && exit 3; sleep 20; }";
    struct run_process *nodes[] = { node("--rdzv_id=a1", script, option_a),
                                    node("--rdzv_id=b1", script, option_b),
                                    node("--rdzv_id=a1", script, option_a),
                                    node("--rdzv_id=b1", script, option_b) };
    for (int i = 0; i < 4; i++)
        expect_end(nodes[i], 0, "of 2, start 1", "error");
}

static void expect_refused(const char *id, const char *secret, const char *words)
{
    struct run_result r = run_wait(node(id, "echo runs", secret));
    cr_expect_eq(r.exit_code, 125, "%s: %d", id, r.exit_code);
    cr_expect_str_eq(r.out, "");
    cr_expect_not_null(strstr(r.err, words), "no \"%s\" in %s", words, r.err);
}

Test(tenants, join_no_job_of_another_tenant)
{
    expect_refused("--rdzv_id=b1", option_a, "secrets differ: sha256 ");
    expect_refused("--rdzv_id=c1", option_a, "no secret");
    expect_refused("--rdzv_id=a1", NULL, "--secret_file");
}

static void expect_ctl(const char *secret, const char *const args[2], int exit_code, const char *words,
                       const char *absent)
{
    char addr[48];
    snprintf(addr, sizeof(addr), "--addr=127.0.0.1:%d", store.port);
    const char *argv[] = { bin("ddpctl"), addr, secret, args[0], args[1], NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_eq(r.exit_code, exit_code, "%s: %d: %s%s", args[0], r.exit_code, r.out, r.err);
    cr_expect(strstr(r.out, words) != NULL || strstr(r.err, words) != NULL, "no \"%s\" in %s%s", words, r.out,
              r.err);
    cr_expect_null(strstr(r.out, absent), "\"%s\" in %s", absent, r.out);
}

#define EXPECT_CTL(secret, exit_code, words, absent, ...) \
    expect_ctl(secret, (const char *const[2]){ __VA_ARGS__ }, exit_code, words, absent)

Test(tenants, see_their_own_jobs_only)
{
    struct run_process *nodes[4];
    for (int i = 0; i < 4; i++)
        nodes[i] =
            node(i % 2 ? "--rdzv_id=b1" : "--rdzv_id=a1", "echo up; sleep 60", i % 2 ? option_b : option_a);
    for (int i = 0; i < 4; i++)
        cr_assert(run_until_output(nodes[i], "up", 30000));
    EXPECT_CTL(option_a, 0, "a1", "b1", "jobs");
    EXPECT_CTL(option_b, 0, "b1", "a1", "jobs");
    EXPECT_CTL(option_a, 0, "world size 2", "b1", "status");
    EXPECT_CTL(option_a, 0, "a1", "b1", "--job=a1", "status");
    EXPECT_CTL(option_a, 1, "no job 'b1'", "world size 2", "--job=b1", "status");
    EXPECT_CTL(option_a, 1, "no job 'c1'", "world size 2", "--job=c1", "status");
    EXPECT_CTL(option_b, 0, "b1", "a1", "why");
    for (int i = 0; i < 4; i++)
        run_signal(nodes[i], SIGKILL);
    for (int i = 0; i < 4; i++) {
        run_wait(nodes[i]);
    }
}
