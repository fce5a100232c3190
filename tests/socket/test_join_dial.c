/* test_join_dial.c -- connects to the store with real sockets. The tests have a store, servers that are not a store,
 * and unreachable networks. Each failure is checked by its code and its sentence. */
#include "net/dial.h"

#include "run.h"
#include "job.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(join_dial, .timeout = 120);

static uv_loop_t loop;
static struct join_dial *dial;
static struct join_dial_found met;
static int ended, said;
static const char *munge_job;
static bool stays_open; /* on_failed does not close the dial */
static char code[64], report[4096], words[4096];

static void on_found(void *user, const struct join_dial_found *found)
{
    (void)user;
    met = *found;
    ended++;
    join_dial_close(dial);
}

static void on_failed(void *user, const char *finding, const char *text)
{
    (void)user;
    ended++;
    snprintf(code, sizeof(code), "%s", finding);
    snprintf(report, sizeof(report), "%s", text);
    if (!stays_open)
        join_dial_close(dial);
}

static void on_print(void *user, const char *text)
{
    (void)user;
    said++;
    snprintf(words, sizeof(words), "%s", text);
}

/* Run a dial from its start to its end. Then nothing may be left on the loop. */
static void dial_on_loop(const char *host, int port, bool master, uint64_t budget_ms)
{
    struct ddp_err err;
    const struct join_dial_options options = { .loop = &loop,
                                               .host = host,
                                               .port = port,
                                               .master = master,
                                               .budget_ms = budget_ms,
                                               .knob = "--timeout",
                                               .who = "the store",
                                               .this_host = "n1",
                                               .munge_job = munge_job,
                                               .found = on_found,
                                               .failed = on_failed,
                                               .print = on_print };
    ended = said = 0;
    cr_assert_eq(join_dial_start(&options, &dial, &err), DDP_OK, "%s", err.msg);
    uv_run(&loop, UV_RUN_DEFAULT);
    if (stays_open)
        join_dial_close(dial);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    cr_assert_eq(ended, 1);
}

static void dial_to(const char *host, int port, bool master, uint64_t budget_ms)
{
    uv_loop_init(&loop);
    dial_on_loop(host, port, master, budget_ms);
}

static void expect(const char *finding, const char *sentence)
{
    cr_assert_str_eq(code, finding, "%s", report);
    cr_assert(has_parts(report, sentence), "%s", report);
}

Test(join_dial, finds_a_store_and_hands_its_connection_over, .init = serve, .fini = serve_end)
{
    dial_to("127.0.0.1", served_port(), true, 10000);
    cr_assert_geq(met.fd, 0, "%s", report);
    cr_assert_str_eq(met.address, "127.0.0.1");
    cr_assert_str_eq(met.source, "127.0.0.1");
    cr_assert_eq(met.port, served_port());
    cr_assert_eq(said, 0);
    uint8_t byte;
    cr_assert_eq(recv(met.fd, &byte, 1, MSG_DONTWAIT), -1, "no byte of an answer is left");
    close(met.fd);
}

Test(join_dial, finds_a_store_by_name, .init = serve, .fini = serve_end)
{
    dial_to("localhost", served_port(), true, 10000);
    cr_assert_str_eq(met.address, "127.0.0.1", "%s", report);
    close(met.fd);
}

Test(join_dial, a_closed_port_refuses)
{
    dial_to("127.0.0.1", rude_closed_port(), true, 4000);
    expect("CONNECT_REFUSED", "127.0.0.1");
    cr_assert_geq(said, 1);
    cr_assert(strstr(words, "store at 127.0.0.1:") != NULL, "%s", words);
    dial_to("127.0.0.1", rude_closed_port(), false, 600);
    expect("MASTER_IS_LOOPBACK", "(n1)");
}

Test(join_dial, a_silent_listener_is_no_store)
{
    dial_to("127.0.0.1", rude_start(RUDE_SILENT), true, 4000);
    expect("HELLO_UNANSWERED", "within 3.0 s");
    cr_assert(strstr(report, "connect  2 of 2 tries") != NULL, "%s", report);
    cr_assert(strstr(report, "'ss -ltnp sport = :") != NULL, "the report names a check on that host:\n%s",
              report);
}

Test(join_dial, who_closes_at_our_hello_may_be_a_proxy)
{
    dial_to("127.0.0.1", rude_start(RUDE_CLOSER), true, 500);
    expect("HELLO_CLOSED", "first message");
    cr_assert(strstr(report, "sidecar.istio.io") != NULL);
}

Test(join_dial, other_services_are_named)
{
    dial_to("127.0.0.1", rude_start(RUDE_HTTP), true, 600);
    expect("PORT_IS_HTTP", "it sent \"HTTP/1.1 400 Bad Reques\"");
    cr_assert_eq(said, 1, "and at once");
    dial_to("127.0.0.1", rude_start(RUDE_TLS), true, 600);
    expect("PORT_IS_TLS", "TLS server");
    dial_to("127.0.0.1", rude_start(RUDE_SSH), true, 600);
    expect("PORT_IS_SSH", "it sent \"SSH-2.0-OpenSSH_9.2\"");
    dial_to("127.0.0.1", rude_start(RUDE_OTHER), true, 600);
    expect("PORT_IS_OTHER_SERVICE", "it sent \"220 mail.example ESMTP\"");
}

Test(join_dial, pytorchs_own_store_is_told_apart)
{
    dial_to("127.0.0.1", rude_start(RUDE_TORCH), true, 600);
    expect("PORT_IS_TORCH", "PyTorch store");
}

Test(join_dial, a_full_queue_looks_like_dropped_packets)
{
    dial_to("127.0.0.1", rude_full_port(), true, 8000);
    expect("CONNECT_DROPPED", "within 5.0 s");
}

Test(join_dial, routes_that_lead_nowhere)
{
    rude_own_network();
    dial_to("10.9.0.1", 29500, false, 600);
    expect("NO_ROUTE", "to 10.9.0.1");
    rude_ip("route add unreachable 10.9.1.0/24");
    dial_to("10.9.1.1", 29500, false, 600);
    expect("ROUTE_UNREACHABLE", "10.9.1.1");
    rude_ip("route add prohibit 10.9.2.0/24");
    dial_to("10.9.2.1", 29500, false, 600);
    expect("ROUTE_PROHIBITED", "prohibits 10.9.2.1");
}

Test(join_dial, a_machine_that_is_down)
{
    rude_own_network();
    rude_ip("link add v0 type veth peer name v1");
    rude_ip("addr add 10.9.0.2/24 dev v0");
    rude_ip("link set v0 up");
    rude_ip("link set v1 up");
    dial_to("10.9.0.1", 29500, false, 5000);
    expect("HOST_SILENT", "address 10.9.0.1");
}

Test(join_dial, a_name_that_nobody_knows)
{
    rude_own_mounts();
    rude_replace("/etc/nsswitch.conf", "hosts: files\n");
    rude_replace("/etc/hosts", "127.0.0.1 localhost\n");
    dial_to("node-that-is-not", 29500, false, 600);
    expect("NAME_UNKNOWN", "n1 cannot resolve 'node-that-is-not'");
    cr_assert(strstr(report, "connect  not reached") != NULL, "%s", report);
}

Test(join_dial, a_hosts_file_that_means_ourselves)
{
    rude_own_mounts();
    rude_replace("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1\tmaster.cluster master # installer\n");
    dial_to("master", rude_closed_port(), false, 600);
    expect("NAME_IS_LOOPBACK", "on n1 |'master' resolves to 127.0.1.1|n1 itself");
    cr_assert(strstr(report, "\"127.0.1.1 master.cluster master # installer\"") != NULL, "%s", report);
    cr_assert_geq(said, 1);
}

/* Continue the store. Until now SIGSTOP stopped it: the kernel still made connections, but the store did not answer. */
static void on_wake_store(uv_timer_t *timer)
{
    if (said == 0 && ended == 0)
        return;
    kill(*(pid_t *)timer->data, SIGCONT);
    uv_close((uv_handle_t *)timer, NULL);
}

/* Let the loop call `what` every 20 ms. After the user has got a message, `what` changes the network and closes the
 * timer. Call this function before the dial begins. */
static void when_said(uv_timer_t *timer, uv_timer_cb what, void *data)
{
    uv_timer_init(&loop, timer);
    timer->data = data;
    uv_timer_start(timer, what, 20, 20);
}

Test(join_dial, a_store_that_is_frozen_is_told_and_found_when_it_goes_on)
{
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    pid_t pid = run_pid(d.process);
    uv_timer_t timer;
    kill(pid, SIGSTOP);
    cr_assert(job_until_state(pid, 'T'));
    uv_loop_init(&loop);
    when_said(&timer, on_wake_store, &pid);
    dial_on_loop("127.0.0.1", d.port, true, 20000);
    cr_assert_geq(met.fd, 0, "%s", report);
    cr_assert_geq(said, 1);
    cr_assert(strstr(words, "127.0.0.1") != NULL);
    close(met.fd);
    daemon_stop(&d);
}

/* Let the name appear late, like a DNS record that appears after its pod. */
static void on_name_appears(uv_timer_t *timer)
{
    if (said == 0 && ended == 0)
        return;
    FILE *file = fopen("/etc/hosts", "a");
    cr_assert_not_null(file);
    fputs("127.0.0.1 pod-0.svc\n", file);
    fclose(file);
    uv_close((uv_handle_t *)timer, NULL);
}

Test(join_dial, a_name_that_appears_later_is_found, .init = serve, .fini = serve_end)
{
    uv_timer_t timer;
    rude_own_mounts();
    rude_replace("/etc/nsswitch.conf", "hosts: files\n");
    rude_replace("/etc/hosts", "127.0.0.1 localhost\n");
    uv_loop_init(&loop);
    when_said(&timer, on_name_appears, NULL);
    dial_on_loop("pod-0.svc", served_port(), true, 20000);
    cr_assert_str_eq(met.address, "127.0.0.1", "%s", report);
    cr_assert(strstr(words, "n1 cannot resolve 'pod-0.svc'") != NULL, "%s", words);
    close(met.fd);
}

Test(join_dial, may_be_closed_at_any_time)
{
    struct ddp_err err;
    const struct join_dial_options options = { .loop = &loop,
                                               .host = "a-name-to-look-up.invalid",
                                               .port = 1,
                                               .budget_ms = 60000,
                                               .knob = "--timeout",
                                               .who = "the store",
                                               .this_host = "n1",
                                               .found = on_found,
                                               .failed = on_failed,
                                               .print = on_print };
    setenv("RES_OPTIONS", "timeout:1 attempts:1", 1); /* keeps the name lookup short: uv_run waits for it */
    for (int turns = 0; turns < 3; turns++) {
        uv_loop_init(&loop);
        cr_assert_eq(join_dial_start(&options, &dial, &err), DDP_OK);
        for (int i = 0; i < turns; i++)
            uv_run(&loop, UV_RUN_NOWAIT);
        join_dial_close(dial);
        uv_run(&loop, UV_RUN_DEFAULT);
        cr_assert_eq(uv_loop_close(&loop), 0);
    }
    cr_assert_eq(ended, 0);
}

/* --- the key of --encrypt from MUNGE ------------------------------------------------------------------------------
 *
 * tests/fake/fake_munge.c replaces libmunge. A store on loopback needs no MUNGE, so the tests dial 0.0.0.0, which
 * Linux connects to this host, too. */

static struct secret *key;
static const struct hub_refusal *refuses;

/* Start a store server. The parameters choose TLS, a secret, and a credential for the secret. */
static void begin_munge(bool encrypts, bool has_secret, bool has_credential)
{
    static char credential[SECRET_CREDENTIAL_MAX];
    struct store_server_options options = { .host = "127.0.0.1",
                                            .encrypt = encrypts,
                                            .limits = HUB_LIMITS_DEFAULT };
    struct ddp_err err;
    setenv("DDP_MUNGE_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
    setenv("FAKE_MUNGE", "", 1);
    cr_assert_eq(secret_make(&key, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(peer_seal(key, credential, &err), DDP_OK, "%s", err.msg);
    options.limits.secret = has_secret ? key : NULL;
    options.limits.credential = has_credential ? credential : NULL;
    options.limits.guarded = refuses == NULL;
    options.limits.refusal = refuses;
    serve_with(&options);
    munge_job = "job";
}

static void end_munge(void)
{
    serve_end();
    secret_free(key);
}

Test(join_dial_munge, the_key_comes_before_the_handshake, .fini = end_munge, .timeout = 120)
{
    begin_munge(true, true, true);
    dial_to("0.0.0.0", served_port(), false, 60000);
    cr_assert_geq(met.fd, 0, "%s", report);
    cr_assert(met.tls != NULL && met.context != NULL && met.secret != NULL);
    cr_expect_eq(tls_state(met.tls), TLS_OPEN);
    cr_expect_arr_eq(met.secret->key, key->key, SECRET_BYTES);
    tls_free(met.tls);
    tls_context_close(met.context);
    secret_free(met.secret);
    close(met.fd);
}

Test(join_dial_munge, a_store_on_loopback_is_not_asked, .fini = end_munge, .timeout = 120)
{
    begin_munge(true, true, false);
    dial_to("127.0.0.1", served_port(), true, 60000);
    cr_assert_geq(met.fd, 0, "%s", report);
    cr_expect(met.tls == NULL && met.secret == NULL);
    close(met.fd);
}

static void expect_no_key(const char *finding, const char *text)
{
    dial_to("0.0.0.0", served_port(), false, 1500);
    expect(finding, text);
}

Test(join_dial_munge, a_local_munged_that_fails_is_named, .fini = end_munge, .timeout = 120)
{
    begin_munge(true, true, true);
    setenv("FAKE_MUNGE", "down", 1);
    expect_no_key("SECRET_UNKNOWN", "Failed to");
    setenv("FAKE_MUNGE", "foreign", 1);
    expect_no_key("SECRET_UNKNOWN", "user id");
}

Test(join_dial_munge, a_local_munged_that_hangs_is_named, .fini = end_munge, .timeout = 120)
{
    begin_munge(true, true, true);
    setenv("FAKE_MUNGE", "hang", 1);
    dial_to("0.0.0.0", served_port(), false, 8000);
    expect("SECRET_UNKNOWN", "within 3 s");
}

/* Close the dial while munged hangs, because the owner of a dial may close it at any time. */
static void on_early(uv_timer_t *timer)
{
    join_dial_close(dial);
    uv_close((uv_handle_t *)timer, NULL);
}

Test(join_dial_munge, a_dial_may_end_while_munged_hangs, .fini = end_munge, .timeout = 120)
{
    uv_timer_t timer;
    struct ddp_err err;
    begin_munge(true, true, true);
    setenv("FAKE_MUNGE", "hang", 1);
    const struct join_dial_options options = { .loop = &loop,
                                               .host = "0.0.0.0",
                                               .port = served_port(),
                                               .budget_ms = 60000,
                                               .knob = "--timeout",
                                               .who = "the store",
                                               .this_host = "n1",
                                               .munge_job = munge_job,
                                               .found = on_found,
                                               .failed = on_failed,
                                               .print = on_print };
    uv_loop_init(&loop);
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_early, 500, 0);
    cr_assert_eq(join_dial_start(&options, &dial, &err), DDP_OK, "%s", err.msg);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0);
    cr_expect_eq(ended, 0);
}

Test(join_dial_munge, a_store_without_munge_is_named, .fini = end_munge, .timeout = 120)
{
    begin_munge(true, true, false);
    expect_no_key("SECRET_UNKNOWN", "use MUNGE");
}

Test(join_dial_munge, a_store_without_a_secret_is_named, .fini = end_munge, .timeout = 120)
{
    begin_munge(false, false, false);
    expect_no_key("SECRET_UNKNOWN", "no secret");
}

static void count_refused(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

static atomic_int refused;

static void begin_refusing(void)
{
    static const struct hub_refusal refusal = { "NO_SECRET", "the store\033[2J refuses", "start munged",
                                                count_refused, &refused };
    refuses = &refusal;
    begin_munge(false, false, false);
}

/* munged, the daemon of MUNGE, fails on node 0. So the store of node 0 has no secret and no TLS, and only reports the
 * reason. The dial then ends at once and sends no join. */
Test(join_dial_munge, a_store_that_only_rejects_ends_the_dial_with_its_reason, .fini = end_munge,
     .timeout = 120)
{
    begin_refusing();
    dial_to("0.0.0.0", served_port(), false, 90000);
    cr_expect_str_eq(code, "NO_SECRET");
    cr_expect_not_null(strstr(report, " reports: the store?[2J refuses; start munged"), "%s", report);
    cr_expect_eq(atomic_load(&refused), 1);
}

/* When the refusal arrives, the timer of the dial is already running. The loop runs until this timer has expired. The
 * expired timer must not report the refusal again. */
Test(join_dial_munge, a_refusal_is_reported_once_by_a_dial_that_stays_open, .fini = end_munge, .timeout = 120)
{
    stays_open = true;
    begin_refusing();
    dial_to("0.0.0.0", served_port(), false, 90000);
    cr_expect_str_eq(code, "NO_SECRET");
}

Test(join_dial_munge, a_plain_store_is_named, .fini = end_munge, .timeout = 120)
{
    begin_munge(false, true, true);
    expect_no_key("STORE_NOT_ENCRYPTED", "--encrypt");
}

/* The encrypting store answers one request for the credential. After that, only TLS may follow. */
Test(join_dial_munge, the_store_answers_one_request, .fini = end_munge, .timeout = 120)
{
    static const char ask[] = "00 cef7853c 83 0200000000000000 0204";
    begin_munge(true, true, false);
    int fd = peer_connect(served_port());
    peer_send_hex(fd, ask);
    peer_expect(fd, "0200000000000000 0207");
    peer_send_hex(fd, ask);
    peer_expect(fd, "15030300020273"); /* TLS alert: the client must use TLS */
    peer_expect_end(fd);
    fd = peer_connect(served_port()); /* this user of this host may use the store without TLS */
    peer_send_hex(fd, "00 cef7853c 0d 01000000");
    peer_expect(fd, "01000000");
    close(fd);
    fd = peer_connect(served_port());
    peer_send_hex(fd, "00 cef7853c 83 0200000000000000 0104"); /* version 1 */
    peer_expect(fd, "0200000000000000 0202");
    peer_expect_end(fd);
}

Test(join_dial_munge, other_services_get_no_further, .timeout = 120)
{
    munge_job = "job";
    dial_to("0.0.0.0", rude_start(RUDE_HTTP), true, 600);
    expect("PORT_IS_HTTP", "it sent \"HTTP/1.1 400 Bad Reques\"");
    dial_to("0.0.0.0", rude_start(RUDE_CLOSER), true, 600);
    expect("HELLO_CLOSED", "first message");
}

/* The probe sends to a closed port of this host, so the kernel answers. The probe resolves no names. */
Test(path_probe, a_path_to_this_host_carries_large_packets)
{
    static const struct {
        const char *address;
        enum path_step result;
    } rows[] = { { "127.0.0.1", PROBE_CARRIES }, { "localhost", PROBE_UNKNOWN }, { "", PROBE_UNKNOWN } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int lost_bytes = -1;
        cr_expect_eq(path_probe(rows[i].address, &lost_bytes), rows[i].result, "%s", rows[i].address);
        cr_expect_eq(lost_bytes, 0, "%s", rows[i].address);
    }
}
