/* ddpctl as a process, against ddp-rendezvous as another one. */
#include "run.h"
#include "store_peers.h"

#include "ddp/store.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct daemon store;
static char addr[64];

static void start(void)
{
    store = daemon_start("127.0.0.1:0", NULL);
    snprintf(addr, sizeof(addr), "127.0.0.1:%d", store.port);
}

static void stop(void)
{
    daemon_stop(&store);
}

TestSuite(ddpctl, .init = start, .fini = stop, .timeout = 120);

static struct run_result ask(const char *command, const char *argument)
{
    const char *argv[] = { bin("ddpctl"), "--addr", addr, command, argument, NULL };
    return run_command(argv, NULL);
}

static void expect_answer(const char *command, const char *argument, const char *words)
{
    struct run_result r = ask(command, argument);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, words), "expected \"%s\" in:\n%s", words, r.out);
    run_free(&r);
}

static void expect_failure(struct run_result r, int exit_code, const char *words)
{
    cr_assert_eq(r.exit_code, exit_code, "%s", r.err);
    cr_assert_not_null(strstr(r.err, words), "expected \"%s\" in:\n%s", words, r.err);
    run_free(&r);
}

static ddp_store *client(void)
{
    ddp_store *s;
    struct ddp_err err;
    cr_assert_eq(ddp_store_connect("127.0.0.1", store.port, NULL, &s, &err), DDP_OK, "%s", err.msg);
    return s;
}

static ddp_store *worker_of(const char *job)
{
    ddp_store *s;
    struct ddp_err err;
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.role = "worker";
    options.job = job;
    options.rank = 0;
    options.world_size = 1;
    cr_assert_eq(ddp_store_connect("127.0.0.1", store.port, &options, &s, &err), DDP_OK, "%s", err.msg);
    return s;
}

Test(ddpctl, shows_keys_as_a_table)
{
    ddp_store *s = client();
    ddp_store_set(s, "a", "hi", 2, NULL);
    ddp_store_set(s, "other", "\0\xff", 2, NULL);
    expect_answer("keys", "--prefix=/a", "KEY  SIZE  VALUE\n/a      2  hi\n");
    expect_answer("keys", NULL, "0x00ff");
    expect_answer("keys", "--limit=1", "... and more");
    expect_answer("status", NULL, "store     2 keys, ");
    ddp_store_close(s);
}

Test(ddpctl, prints_json_that_a_program_can_read)
{
    struct run_result r = ask("status", "--json");
    cJSON *json = cJSON_Parse(r.out);
    cr_assert(cJSON_IsTrue(cJSON_GetObjectItem(json, "ok")), "%s", r.out);
    cr_assert_eq(cJSON_GetObjectItem(json, "connections")->valueint, 1);
    cJSON_Delete(json);
    run_free(&r);
}

/* A worker that hangs in a get is what one looks for with this program. */
Test(ddpctl, shows_who_waits_for_what)
{
    const char *argv[] = { bin("ddpctl"), "--addr", addr, "waiters", NULL };
    ddp_store *s = client();
    pid_t pid = fork();
    if (pid == 0) {
        void *value;
        size_t len;
        ddp_store_get(s, "lost", PATIENCE_MS, &value, &len, NULL);
        _exit(0);
    }
    struct run_result r = run_command(argv, NULL);
    for (struct patience p = { 0 }; strstr(r.out, "'/lost'") == NULL;) {
        cr_assert(patience_left(&p), "%s", r.out);
        run_free(&r);
        r = run_command(argv, NULL);
    }
    cr_assert_not_null(strstr(r.out, "WAIT"), "%s", r.out);
    run_free(&r);
    ddp_store *other = client();
    ddp_store_set(other, "lost", "found", 5, NULL); /* lets the child go */
    ddp_store_close(other);
    ddp_store_close(s);
    expect_answer("barriers", NULL, "no barrier is open");
}

/* Two jobs at once: each is asked about by its name. */
Test(ddpctl, tells_one_job_from_another)
{
    ddp_store *a = worker_of("a"), *b = worker_of("b");
    ddp_store_set(b, "k", "v", 1, NULL);
    expect_answer(
        "jobs", NULL,
        "JOB  ATTEMPT  WORLD  KEYS  CONNECTIONS\na          0      1     0            1\nb          0 "
        "     1     1            1\n");
    expect_answer("keys", "--job=b", "/k");
    expect_answer("keys", "--job=a", "no keys");
    expect_failure(ask("keys", NULL), 1, "2 jobs are served here");
    expect_failure(ask("keys", "--job=c"), 1, "no job 'c' is known here");
    ddp_store_close(a);
    ddp_store_close(b);
}

Test(ddpctl, shows_who_came_to_nothing)
{
    int fd = peer_connect(store.port);
    cr_assert(peer_send(fd, slice_str("GET / HTTP/1.1\r\n\r\n")));
    peer_expect_end(fd);
    expect_answer("rejects", NULL, "127.0.0.1  http    474554202f204854  -        1");
}

Test(ddpctl, passes_on_what_the_store_refuses)
{
    expect_failure(ask("cancel", "no-such"), 1, "no-such");
}

Test(ddpctl, takes_the_address_from_the_environment)
{
    char setting[96];
    snprintf(setting, sizeof(setting), "DDPRUN_STORE_ADDR=%s", addr);
    const char *argv[] = { bin("ddpctl"), "status", NULL };
    const char *env[] = { setting, NULL };
    struct run_result r = run_command(argv, &(struct run_options){ .env = env });
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    run_free(&r);
}

Test(ddpctl, tells_usage_errors_from_failures)
{
    expect_failure(ask("statsu", NULL), 2, "unknown command 'statsu'");
    const char *nowhere[] = { bin("ddpctl"), "--job=nobody-s-job", "status", NULL };
    const char *bare[] = { "DDPRUN_STORE_ADDR", "MASTER_ADDR", "MASTER_PORT", NULL };
    expect_failure(run_command(nowhere, &(struct run_options){ .env = bare }), 2, "--addr HOST:PORT");
    int port, reserved = fake_port_reserve(&port);
    char closed[32];
    snprintf(closed, sizeof(closed), "127.0.0.1:%d", port);
    const char *refused[] = { bin("ddpctl"), "--timeout=2", "--addr", closed, "status", NULL };
    expect_failure(run_command(refused, NULL), 1, "refused, nothing listens there (after 2 s in all");
    close(reserved);
}

Test(ddpctl, says_when_a_store_is_not_ddpruns)
{
    struct fake_store *genuine =
        fake_store_start((const char *[]){ "< 00 cef7853c 0d ?? ?? ?? ?? > @ < 80 hangup", NULL });
    snprintf(addr, sizeof(addr), "127.0.0.1:%d", fake_store_port(genuine));
    expect_failure(ask("status", NULL), 1, "not one of ddprun's");
    fake_store_stop(genuine);
}

Test(ddpctl, help_and_version_stand_on_stdout)
{
    expect_answer("--help", NULL, "cancel NAME");
    expect_answer("--version", NULL, "ddpctl ");
}
