/* Tests of --encrypt on loopback: jobs, ddp-rendezvous and ddpctl as users start them, and a client that shares no code
 * with ddprun. */
#include "auth/auth.h"
#include "auth/secret.h"
#include "job.h"
#include "run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *dir, key[256];

static void begin(void)
{
    struct ddp_err err;
    dir = job_dir();
    snprintf(key, sizeof(key), "%s/key", dir);
    cr_assert_eq(secret_write(key, &err), DDP_OK, "%s", err.msg);
}

static void end(void)
{
    job_dir_remove(dir);
}

TestSuite(encrypt, .init = begin, .fini = end, .timeout = 240);

static const char *with(const char *option, const char *value)
{
    static char text[8][512];
    static int n;
    char *at = text[n++ % 8];
    snprintf(at, sizeof(text[0]), "%s%s", option, value);
    return at;
}

static struct run_result sh(const char *command)
{
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    return run_command(argv, NULL);
}

static void expect_text(struct run_result r, int code, const char *text)
{
    cr_expect_eq(r.exit_code, code, "%s%s", r.out, r.err);
    cr_expect(strstr(r.out, text) != NULL || strstr(r.err, text) != NULL, "no '%s' in %s%s", text, r.out,
              r.err);
}

static struct run_process *ddprun(const char *const options[])
{
    const char *argv[24] = { bin("ddprun") };
    for (int n = 1; *options != NULL; options++)
        argv[n++] = *options;
    return run_start(argv, NULL);
}

#define DDPRUN(...) ddprun((const char *const[]){ __VA_ARGS__, NULL })

/* --- a job ---------------------------------------------------------------------------------------------------- */

Test(encrypt, two_nodes_of_one_host_meet)
{
    const char *port = free_port_option("--master_port="), *file = with("--secret_file=", key);
    struct run_process *node[2];
    for (int i = 0; i < 2; i++)
        node[i] = DDPRUN("--encrypt", "--nnodes=2", with("--node_rank=", i == 0 ? "0" : "1"),
                         "--master_addr=127.0.0.1", port, file, "--nproc_per_node=2", "sh", "-c",
                         "echo rank=$RANK at=$MASTER_ADDR");
    for (int i = 0; i < 2; i++)
        expect_text(run_wait(node[i]), 0, i == 0 ? "rank=1 at=127.0.0.1" : "rank=3 at=127.0.0.1");
}

/* Without other nodes, ddprun does not even load OpenSSL's library. */
Test(encrypt, changes_nothing_on_one_node)
{
    struct run_result r = JOB("--encrypt", "--nproc_per_node=1", "sh", "-c",
                              "grep -c libssl /proc/$PPID/maps; echo port=$MASTER_PORT");
    expect_text(r, 0, "0\n");
}

Test(encrypt, wrong_usage_is_refused)
{
    expect_text(
        run_wait(DDPRUN("--encrypt", "--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", "true")), 2,
        "--encrypt: no secret");
    expect_text(run_wait(DDPRUN("--encrypt", "--torch_store=rank0", "--nnodes=2", "--node_rank=0",
                                "--master_addr=127.0.0.1", with("--secret_file=", key), "true")),
                2, "--torch_store");
    char command[1024];
    snprintf(
        command, sizeof(command),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 %s --encrypt --nnodes=2 --node_rank=0 --master_addr=127.0.0.1 "
        "--secret_file=%s --dry_run x.py",
        bin("ddprun"), key);
    expect_text(sh(command), 2, "because TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is");
    snprintf(command, sizeof(command), "%s --encrypt", bin("ddp-rendezvous"));
    expect_text(sh(command), 2, "--encrypt: no secret");
    snprintf(command, sizeof(command), "%s --addr 127.0.0.1:1 --encrypt status", bin("ddpctl"));
    expect_text(sh(command), 2, "--encrypt: ");
}

/* --- ddp-rendezvous --------------------------------------------------------------------------------------------- */

static struct run_process *start_daemon(int *port)
{
    char file[512];
    snprintf(file, sizeof(file), "--secret_file=%s", key);
    const char *argv[] = { bin("ddp-rendezvous"), "--listen=127.0.0.1:0", "--encrypt", file, NULL };
    struct run_process *p = run_start(argv, NULL);
    cr_assert(run_until_output(p, "listening on 127.0.0.1:", PATIENCE_MS) &&
              run_until_output(p, "\n", PATIENCE_MS));
    cr_assert_eq(sscanf(run_output(p), "listening on 127.0.0.1:%d", port), 1);
    return p;
}

static void stop_daemon(struct run_process *p)
{
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
}

Test(encrypt, a_daemon_serves_an_elastic_job_and_ddpctl)
{
    int port;
    char command[1024], endpoint[64];
    struct run_process *d = start_daemon(&port);
    snprintf(endpoint, sizeof(endpoint), "--rdzv_endpoint=127.0.0.1:%d", port);
    struct run_process *job =
        DDPRUN("--encrypt", "--nnodes=1:2", "--rdzv_id=e", endpoint, "--rdzv_conf=last_call_timeout=1",
               with("--secret_file=", key), "--nproc_per_node=2", "sh", "-c", "echo up; exec sleep 1000");
    cr_assert(run_until_output(job, "up", PATIENCE_MS));
    snprintf(command, sizeof(command), "%s --addr 127.0.0.1:%d --encrypt --secret_file %s --job e status",
             bin("ddpctl"), port, key);
    expect_text(sh(command), 0, "world size 2");
    snprintf(command, sizeof(command),
             "%s --make_secret %s/other && %s --addr 127.0.0.1:%d --encrypt --secret_file %s/other status",
             bin("ddprun"), dir, bin("ddpctl"), port, dir);
    expect_text(sh(command), 1, "TLS handshake");
    run_signal(job, SIGTERM);
    run_wait(job);
    stop_daemon(d);
}

/* --- openssl ---------------------------------------------------------------------------------------------------- */

static struct run_result s_client(int port, const char *options)
{
    char command[1024];
    snprintf(command, sizeof(command),
             "printf '\\0\\316\\367\\205\\074\\015\\001\\002\\003\\004' | "
             "openssl s_client -connect 127.0.0.1:%d %s 2>&1; echo code $?",
             port, options);
    return sh(command);
}

/* The attacker has no key, or a wrong key, or a certificate instead of a key. */
Test(encrypt, a_client_without_the_secret_gets_no_byte)
{
    static const char *const options[] = { "-tls1_3", "-tls1_2", "-tls1_3 -psk 00112233 -psk_identity x",
                                           "known identity", "certificate" };
    struct secret *secret;
    struct ddp_err err;
    char text[512], print[AUTH_PRINT_TEXT];
    int port;
    snprintf(text, sizeof(text),
             "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x "
             "-days 2 "
             "-out cert.pem -keyout key.pem >/dev/null 2>&1",
             dir);
    struct run_result made = sh(text);
    const bool has_openssl = made.exit_code == 0;
    if (!has_openssl)
        cr_skip_test("skipped, because openssl is not installed");
    struct run_process *d = start_daemon(&port);
    cr_assert_eq(secret_read(key, &secret, &err), DDP_OK);
    auth_fingerprint(secret, print);
    secret_free(secret);
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        snprintf(text, sizeof(text), "%s", options[i]);
        if (i == 3)
            snprintf(text, sizeof(text),
                     "-tls1_3 -psk 00112233445566778899aabbccddeeff -psk_identity 'ddprun1 %s job'", print);
        if (i == 4)
            snprintf(text, sizeof(text), "-tls1_3 -cert %s/cert.pem -key %s/key.pem", dir, dir);
        struct run_result r = s_client(port, text);
        cr_expect_not_null(strstr(r.out, "code 1"), "%s: %s", text, r.out);
        cr_expect_not_null(strstr(r.out, "alert"), "%s: %s", text, r.out);
    }
    stop_daemon(d);
}

/* The key and the identity are computed by another program. */
Test(encrypt, a_client_with_the_secret_gets_the_answer)
{
    char command[1024];
    int port;
    struct run_result found = sh("openssl version && command -v python3");
    const bool has = found.exit_code == 0;
    if (!has)
        cr_skip_test("skipped, because openssl or python3 is not installed");
    struct run_process *d = start_daemon(&port);
    snprintf(
        command, sizeof(command),
        "eval $(python3 -c \"import hashlib,hmac,sys; k=bytes.fromhex(open('%s').read()); j=b'job'; "
        "print('psk='+hmac.new(k,b'ddprun tls key'+j.ljust(256,bytes(1)),hashlib.sha256).hexdigest(), "
        "'print='+hashlib.sha256(k).hexdigest()[:16])\"); "
        "printf '\\0\\316\\367\\205\\074\\015\\001\\002\\003\\004' | openssl s_client -quiet -connect "
        "127.0.0.1:%d -tls1_3 -psk $psk -psk_identity \"ddprun1 $print job\" 2>/dev/null | od -An -tx1 -N4",
        key, port);
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    struct run_process *client = run_start(argv, NULL); /* s_client waits for more bytes of the store */
    cr_expect(run_until_output(client, "01 02 03 04", PATIENCE_MS), "%s", run_output(client));
    run_signal(client, SIGKILL);
    run_wait(client);
    stop_daemon(d);
}
