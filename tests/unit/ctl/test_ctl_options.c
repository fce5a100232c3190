/* Tests of ddpctl's command line and requests. The module is pure: a test passes the arguments and the variables,
 * and reads the request as text. */
#include "ctl/options.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_WORDS = 16 };

static char *no_env(const char *name)
{
    (void)name;
    return NULL;
}

static char *worker_env(const char *name)
{
    if (strcmp(name, "MASTER_ADDR") == 0)
        return "node-1";
    return strcmp(name, "MASTER_PORT") == 0 ? "29500" : NULL;
}

static char *ddprun_env(const char *name)
{
    return strcmp(name, "DDPRUN_STORE_ADDR") == 0 ? "[::1]:7" : worker_env(name);
}

static const char *wrong_port, *wrong_addr;

/* Return the wrong values that the test has set. */
static char *wrong_env(const char *name)
{
    if (strcmp(name, "DDPRUN_STORE_ADDR") == 0)
        return (char *)(uintptr_t)wrong_addr;
    return strcmp(name, "MASTER_PORT") == 0 ? (char *)(uintptr_t)wrong_port : worker_env(name);
}

/* Split `line` at blanks, and parse the words. */
static ddp_status parse(const char *line, char *(*env)(const char *), struct ctl_options *o,
                        struct ddp_err *err)
{
    static char text[256];
    char *argv[MAX_WORDS] = { "ddpctl" };
    int argc = 1;
    snprintf(text, sizeof(text), "%s", line);
    for (char *word = strtok(text, " "); word != NULL && argc + 1 < MAX_WORDS; word = strtok(NULL, " "))
        argv[argc++] = word;
    return ctl_options_parse(argc, argv, env, o, err);
}

static void expect_request(const char *line, const char *request)
{
    struct ctl_options o;
    struct ddp_err err = { 0 };
    cr_assert_eq(parse(line, worker_env, &o, &err), DDP_OK, "%s: %s", line, err.msg);
    char *text = ctl_options_request(&o);
    cr_assert_str_eq(text, request);
    free(text);
}

static void expect_error(const char *line, const char *words)
{
    struct ctl_options o;
    struct ddp_err err = { 0 };
    cr_assert_eq(parse(line, no_env, &o, &err), DDP_ERR_ARG, "%s", line);
    cr_assert_not_null(strstr(err.msg, words), "%s: %s", line, err.msg);
}

Test(ctl_options, a_command_becomes_a_request)
{
    expect_request("status", "{\"op\":\"status\"}");
    expect_request("keys --prefix /a --limit=7", "{\"op\":\"keys\",\"prefix\":\"/a\",\"limit\":7}");
    expect_request("status --job night-7", "{\"op\":\"status\",\"job\":\"night-7\"}");
    expect_request("jobs", "{\"op\":\"jobs\"}");
    expect_request("--json cancel epoch-1", "{\"op\":\"barrier_cancel\",\"name\":\"epoch-1\"}");
    expect_request("stacks --rank 0,2-5 --native", "{\"op\":\"stacks\",\"ranks\":\"0,2-5\",\"native\":true}");
}

Test(ctl_options, options_may_stand_before_and_behind_the_command)
{
    struct ctl_options o;
    cr_assert_eq(parse("--json status --addr n:1 --timeout 0.5", no_env, &o, NULL), DDP_OK);
    cr_assert(o.json);
    cr_assert_str_eq(o.command->name, "status");
    cr_assert_str_eq(o.addr.host, "n");
    cr_assert_eq(o.addr.port, 1);
    cr_assert_eq(o.timeout_ms, 500);
}

Test(ctl_options, the_address_comes_from_the_environment_when_it_is_not_given)
{
    struct ctl_options o;
    cr_assert_eq(parse("status", worker_env, &o, NULL), DDP_OK);
    cr_assert_str_eq(o.addr.host, "node-1");
    cr_assert_eq(o.addr.port, 29500);
    cr_assert_eq(parse("status", ddprun_env, &o, NULL), DDP_OK);
    cr_assert_str_eq(o.addr.host, "::1");
    cr_assert_eq(parse("status --addr x:5", ddprun_env, &o, NULL), DDP_OK);
    cr_assert_str_eq(o.addr.host, "x");
    cr_assert_eq(parse("status", no_env, &o, NULL), DDP_OK);
    cr_assert_eq(o.addr.port, 0, "then the user's job on this machine is asked");
}

/* The rules for an address in the environment are as strict as for --addr. The error names the variable, its value and
 * --addr. */
Test(ctl_options, a_wrong_address_of_the_environment_is_an_error)
{
    static const char *const ports[] = { "29500x", "", " 29500", "+29500", "0x7", ":29500", "0", "65536" };
    struct ctl_options o;
    struct ddp_err err;
    char says[64];
    for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
        wrong_port = ports[i];
        snprintf(says, sizeof(says), "MASTER_PORT=%s: ", wrong_port);
        cr_assert_eq(parse("status", wrong_env, &o, &err), DDP_ERR_ARG, "%s", wrong_port);
        cr_expect(strstr(err.msg, says) && strstr(err.msg, "--addr"), "%s", err.msg);
        cr_assert_eq(parse("status --addr x:5", wrong_env, &o, &err), DDP_OK, "%s", wrong_port);
    }
    wrong_addr = "n7:1x";
    cr_assert_eq(parse("status", wrong_env, &o, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "DDPRUN_STORE_ADDR=n7:1x: ") == err.msg, "%s", err.msg);
}

Test(ctl_options, a_port_alone_is_one_of_this_machine)
{
    struct ctl_options o;
    static const char *const lines[] = { "status --addr 29500", "status --addr :29500" };
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(parse(lines[i], no_env, &o, NULL), DDP_OK, "%s", lines[i]);
        cr_assert_str_eq(o.addr.host, "");
        cr_assert_eq(o.addr.port, 29500);
    }
}

Test(ctl_options, mistakes_are_named)
{
    expect_error("", "COMMAND: ");
    expect_error("stats", "'stats': unknown");
    expect_error("stats", "'status', 'jobs', ");
    expect_error("stats", " or 'flight'");
    expect_error("status now", "'now': ");
    expect_error("cancel", "cancel: ");
    expect_error("cancel", " ddpctl cancel NAME");
    expect_error("cancel a b", "'b': ");
    expect_error("--addr host status", "--addr=host: expected HOST:PORT");
    expect_error("--addr :0 status", "--addr=:0: ");
    expect_error("--limit 0 keys", "--limit=0: expected");
    expect_error("--rank x stacks", "--rank=x: expected ranks ");
    expect_error("--rank 1-0 stacks", "--rank=1-0: expected ranks");
    expect_error("--rank 1048576 stacks", "--rank=1048576: expected ranks from 0 to 1048575");
    expect_error("--timeout -1 keys", "--timeout=-1: ");
    expect_error("--timeout nan keys", "--timeout=nan: ");
    expect_error("timeline a -o x.txt", "--output=x.txt: ");
    expect_error("timeline a", "timeline: no --output");
    expect_error("--secret_file= status", "--secret_file=: expected");
    expect_error("--job= status", "--job=: expected");
    expect_error("--timeout +7 keys", "--timeout=+7: ");
    expect_error("--jsno status", "--jsno: unknown option");
}

Test(ctl_options, help_and_version_need_nothing_else)
{
    struct ctl_options o;
    struct buf text = { 0 };
    cr_assert_eq(parse("--help", no_env, &o, NULL), DDP_OK);
    cr_assert_eq(o.action, CTL_HELP);
    cr_assert_eq(parse("status --version", no_env, &o, NULL), DDP_OK);
    cr_assert_eq(o.action, CTL_VERSION);
    cr_assert_eq(parse("--version --json", no_env, &o, NULL), DDP_OK);
    cr_assert(o.action == CTL_VERSION && o.json);
    o.action = CTL_HELP;
    cr_assert(ctl_options_text(&o, &text));
    o.action = CTL_HELP_MAN;
    cr_assert(ctl_options_text(&o, &text) && buf_append(&text, "", 1));
    cr_assert_not_null(strstr((char *)text.data, "  cancel NAME             cancel"));
    cr_assert_not_null(strstr((char *)text.data, ".BR cancel \" \\fINAME\\fR\""));
    cr_assert_not_null(strstr((char *)text.data, "\n  2  the command"));
    cr_assert_not_null(strstr((char *)text.data, "\n.TP\n.B 2\nthe command"));
    buf_free(&text);
}
