/* test_store_host.c -- a node starts a store, or uses the store of another node. The plan of the node is made from a
 * command line. */
#include "command_line.h"
#include "run.h"
#include "auth/secret.h"
#include "net/store_host.h"
#include "plan/scheduler.h"
#include "base/endpoint.h"

#include "store_peers.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(store_host, .timeout = 120);

static uv_loop_t loop;
static struct cli cli;
static struct plan plan;
static struct store_host *host;
static struct scheduler slurm;
static bool has_slurm; /* a scheduler has started this node */
static int turns;      /* number of times that a timer has fired during the search */
static struct store_place place;
static int found, failed, said;
static char code[64], words[4096], tell_at[64];

static void on_found(void *user, const struct store_place *p)
{
    (void)user;
    found++;
    place = *p;
    store_host_close(host);
}

static void on_failed(void *user, const struct host_failure *failure)
{
    (void)user;
    failed++;
    snprintf(code, sizeof(code), "%s", failure->code);
    snprintf(words, sizeof(words), "%s", failure->words);
    snprintf(tell_at, sizeof(tell_at), "%s", failure->at != NULL ? failure->at : "nowhere");
    store_host_close(host);
}

static void on_print(void *user, const char *text)
{
    (void)user;
    said++;
    snprintf(words, sizeof(words), "%s", text);
}

static void on_turn(uv_timer_t *timer)
{
    (void)timer;
    turns++;
}

static void find(char *const *argv)
{
    static char *const nothing[] = { NULL };
    const struct plan_facts facts = { .environ_block = nothing,
                                      .cpus = 1,
                                      .host = "n1",
                                      .nonce = "k3x9",
                                      .tmp_dir = "/tmp",
                                      .start_time = "",
                                      .scheduler = has_slurm ? &slurm : NULL };
    const struct store_host_options options = {
        .loop = &loop, .plan = &plan, .found = on_found, .failed = on_failed, .print = on_print
    };
    struct ddp_err err;
    int argc = 0;
    while (argv[argc] != NULL)
        argc++;
    cr_assert_eq(cli_parse(&cli, argc, argv, nothing, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(plan_make(&plan, &cli, &facts, &err), DDP_OK, "%s", err.msg);
    uv_timer_t timer;
    uv_loop_init(&loop);
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_turn, 0, 10);
    uv_unref((uv_handle_t *)&timer);
    cr_assert_eq(store_host_find(&options, &host, &err), DDP_OK, "%s", err.msg);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    cr_assert_eq(found + failed, 1);
}

#define FIND(...) find((char *[]){ "ddprun", __VA_ARGS__, "prog", NULL })

static void tear_down(void)
{
    store_server_stop(place.server);
    plan_free(&plan);
    cli_free(&cli);
}

Test(store_host, one_node_has_its_own_store_on_loopback, .fini = tear_down)
{
    FIND("--standalone");
    cr_assert_eq(found, 1);
    cr_assert_not_null(place.server);
    cr_assert_str_eq(place.host, "127.0.0.1");
    cr_assert_eq(place.port, plan.master_port);
}

Test(store_host, node_0_listens_on_the_master_address, .fini = tear_down)
{
    FIND("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.5",
         (char *)free_port_option("--master_port="));
    cr_assert_eq(found, 1, "%s", words);
    cr_assert(strncmp(store_server_address(place.server), "127.0.0.5:", 10) == 0);
    cr_assert_str_eq(place.host, "127.0.0.5");
}

Test(store_host, node_1_joins_without_a_look_up, .fini = tear_down)
{
    FIND("--nnodes=2", "--node_rank=1", "--master_addr=some-name");
    cr_assert_eq(found, 1);
    cr_assert_null(place.server);
    cr_assert_str_eq(place.host, "some-name");
    cr_assert_eq(place.port, 29500);
}

/* This node has no secret, and does not know whether the store of node 0 has one. So the finding blames this node, and
 * not the store. */
Test(store_host, a_node_without_a_secret_names_itself, .fini = tear_down)
{
    FIND("--nnodes=2", "--node_rank=1", "--master_addr=203.0.113.9");
    cr_assert_eq(failed, 1);
    cr_expect_str_eq(code, "NODE_HAS_NO_SECRET");
    cr_expect(strncmp(words, "node 1 (n1) ", 12) == 0, "%s", words);
    cr_expect_not_null(strstr(words, "203.0.113.9:29500"), "%s", words);
}

Test(store_host, node_0_without_a_secret_names_its_store, .fini = tear_down)
{
    FIND("--nnodes=2", "--node_rank=0", "--master_addr=0.0.0.0", "--host_store=yes");
    cr_assert_eq(failed, 1);
    cr_expect_str_eq(code, "NO_SECRET");
}

Test(store_host, a_port_in_use_names_its_holder, .fini = tear_down)
{
    char port[32];
    snprintf(port, sizeof(port), "--master_port=%d", rude_start(RUDE_SILENT));
    FIND("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", port);
    cr_assert_eq(failed, 1);
    cr_assert_str_eq(code, "PORT_IN_USE");
    cr_assert(strstr(words, "by test_store_host (pid ") != NULL, "%s", words);
    cr_assert(strstr(words, "--host_store=no") != NULL, "%s", words);
    cr_assert_str_eq(tell_at, "nowhere", "the other nodes reach the holder of the port");
}

/* Another node rank would not help, because this node must host the store with any rank. */
Test(store_host, a_node_that_must_host_is_not_advised_to_change_its_rank, .fini = tear_down)
{
    char port[32];
    snprintf(port, sizeof(port), "--master_port=%d", rude_start(RUDE_SILENT));
    FIND("--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1", "--host_store=yes", port);
    cr_assert_eq(failed, 1);
    cr_assert_str_eq(code, "PORT_IN_USE");
    cr_expect_null(strstr(words, "--node_rank"), "%s", words);
}

Test(store_host, an_elastic_node_joins_who_has_the_port_on_its_address, .fini = tear_down)
{
    char endpoint[64];
    const int port = rude_start(RUDE_SILENT);
    snprintf(endpoint, sizeof(endpoint), "--rdzv_endpoint=127.0.0.1:%d", port);
    FIND("--nnodes=1:2", endpoint);
    cr_assert_eq(found, 1, "%s", words);
    cr_assert_null(place.server);
    cr_assert_eq(place.port, port);
    cr_assert_not_null(strstr(place.note, "LOOPBACK_ADDRESS"), "%s", place.note);
    cr_assert_null(strstr(place.note, "by test_store_host"), "%s", place.note);
    cr_assert_not_null(strstr(plan.meeting.local_only, "127.0.0.1"), "%s", plan.meeting.local_only);
    cr_assert(strstr(place.report_note, "by test_store_host") != NULL, "%s", place.report_note);
}

Test(store_host, an_address_of_nobody_is_told_at_node_0, .fini = tear_down)
{
    FIND("--nnodes=2", "--node_rank=0", "--master_addr=203.0.113.7");
    cr_assert_str_eq(place.code, "NO_STORE_HOST", "unless a store answers there");
    cr_assert(strstr(place.note, "203.0.113.7 (203.0.113.7)") != NULL, "%s", place.note);
}

Test(store_host, a_name_that_nobody_knows_uses_the_budget_up, .fini = tear_down)
{
    rude_own_mounts();
    rude_replace("/etc/nsswitch.conf", "hosts: files\n");
    FIND("--nnodes=2", "--node_rank=0", "--master_addr=pod-0.svc", "--timeout=6s");
    cr_assert_str_eq(code, "NAME_UNKNOWN");
    cr_assert_geq(said, 1);
    cr_assert(strstr(words, "gives up") != NULL, "%s", words);
}

Test(store_host, a_name_of_our_own_that_is_loopback_is_refused, .fini = tear_down)
{
    rude_own_mounts();
    rude_replace("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 n1\n");
    FIND("--nnodes=2", "--node_rank=0", "--master_addr=n1");
    cr_assert_str_eq(code, "MASTER_NAME_IS_LOOPBACK");
    cr_assert_str_eq(tell_at, "", "the other nodes may reach any address of this one");
}

/* Another process has the port on loopback only, so the store cannot listen on every address. */
Test(store_host, a_store_on_all_addresses_reports_on_one_that_has_the_port_free, .fini = tear_down)
{
    char port[32];
    snprintf(port, sizeof(port), "--master_port=%d", rude_start(RUDE_SILENT));
    FIND("--nnodes=2", "--node_rank=0", "--master_addr=203.0.113.7", "--host_store=yes", "--insecure", port);
    if (strcmp(tell_at, "nowhere") == 0)
        cr_skip_test("this machine has only loopback addresses");
    struct refusing_store *store;
    struct ddp_err err;
    const struct host_failure failure = { .code = code, .words = words, .at = tell_at };
    cr_assert_str_eq(code, "PORT_IN_USE");
    cr_assert_eq(refusing_store_start(&plan, &failure, &store, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(refusing_store_count(store), 0);
    refusing_store_stop(store);
    cr_assert_eq(refusing_store_start(&plan, &(struct host_failure){ .code = code, .words = words, .at = "" },
                                      &store, &err),
                 DDP_ERR_IO);
}

/* --- MUNGE ---------------------------------------------------------------------------------------------------- */

/* Host a store for other hosts. tests/fake/fake_munge.c fails as `what` says. */
static void host_with_munge(const char *what)
{
    static char address[64 + 16];
    struct own_address own[OWN_ADDRESSES_MAX];
    const int n = own_addresses(own);
    int at = 0;
    while (at < n && (endpoint_is_loopback(own[at].text) || strpbrk(own[at].text, ":%") != NULL))
        at++;
    if (at == n)
        cr_skip_test("skipped, because this host has only loopback addresses");
    setenv("DDP_MUNGE_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
    setenv("FAKE_MUNGE", what, 1);
    has_slurm = true;
    snprintf(address, sizeof(address), "--master_addr=%s", own[at].text);
    FIND("--nnodes=2", "--node_rank=0", "--encrypt", address, (char *)free_port_option("--master_port="));
}

Test(store_host, munge_delivers_the_key_of_encrypt, .fini = tear_down)
{
    host_with_munge("");
    cr_assert_eq(found, 1, "%s", words);
    cr_assert(place.server != NULL && plan.secret != NULL && plan.credential != NULL);
    store_server_stop(place.server);
    place.server = NULL;
    secret_free(plan.secret);
}

/* munged hangs for 3 s, but the loop continues. On an idle machine, the timer fires 300 times in this time. A much
 * smaller number suffices here. */
Test(store_host, a_munged_that_hangs_does_not_stop_the_loop, .fini = tear_down)
{
    host_with_munge("hang");
    cr_assert_eq(failed, 1);
    cr_expect_str_eq(code, "NO_SECRET");
    cr_expect_not_null(strstr(words, "munged"), "%s", words);
    cr_expect_gt(turns, 2);
    cr_expect(plan.secret == NULL && plan.credential == NULL);
}
