/* Tests of the command line of ddp-rendezvous, and of the table of options. The help and the man page are made from
 * this table. */
#include "server/daemon_options.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ARGS = 8 };

static ddp_status parse(struct daemon_options *o, struct ddp_err *err, const char *a, const char *b)
{
    char *argv[MAX_ARGS] = { "ddp-rendezvous", (char *)(uintptr_t)a, (char *)(uintptr_t)b, NULL };
    return daemon_options_parse(a == NULL ? 1 : b == NULL ? 2 : 3, argv, o, err);
}

static void expect_error(const char *a, const char *b, const char *words)
{
    struct daemon_options o;
    struct ddp_err err = { 0 };
    cr_assert_eq(parse(&o, &err, a, b), DDP_ERR_ARG, "%s", a);
    cr_assert_not_null(strstr(err.msg, words), "%s: %s", a, err.msg);
}

Test(daemon_options, listens_on_loopback_unless_told_otherwise)
{
    struct daemon_options o;
    cr_assert_eq(parse(&o, NULL, NULL, NULL), DDP_OK);
    cr_assert_eq(o.action, DAEMON_SERVE);
    cr_assert_str_eq(o.listen.host, "127.0.0.1");
    cr_assert_eq(o.listen.port, 29400);
    cr_assert_not(o.torch21);
}

Test(daemon_options, values_come_behind_a_blank_or_an_equals_sign)
{
    struct daemon_options o;
    cr_assert_eq(parse(&o, NULL, "--listen", "[::1]:7"), DDP_OK);
    cr_assert_str_eq(o.listen.host, "::1");
    cr_assert_eq(parse(&o, NULL, "--listen=:8", "--torch21"), DDP_OK);
    cr_assert_str_eq(o.listen.host, "");
    cr_assert_eq(o.listen.port, 8);
    cr_assert(o.torch21);
}

Test(daemon_options, sizes_have_units)
{
    struct daemon_options o;
    cr_assert_eq(parse(&o, NULL, "--max-bytes=1000", NULL), DDP_OK);
    cr_assert_eq(o.max_bytes, 1000);
    cr_assert_eq(parse(&o, NULL, "--max-bytes=64M", NULL), DDP_OK);
    cr_assert_eq(o.max_bytes, 64u << 20);
    cr_assert_eq(parse(&o, NULL, "--max-bytes=2G", NULL), DDP_OK);
    cr_assert_eq(o.max_bytes, 2ull << 30);
    cr_assert_eq(parse(&o, NULL, "--keep=90", NULL), DDP_OK);
    cr_assert_eq(o.keep_ms, 90000);
}

Test(daemon_options, what_is_wrong_is_named)
{
    expect_error("--lisen=:1", NULL, "--lisen: unknown");
    expect_error("-l", NULL, "-l: unknown");
    expect_error("--port", "3", "--port=3: expected --listen=HOST:PORT");
    expect_error("--host=a", NULL, "--host=a: expected --listen=HOST:PORT");
    expect_error("--listen", NULL, "--listen: ");
    expect_error("--listen", "node:x", "--listen=node:x: ");
    expect_error("--json", NULL, "--version");
    expect_error("--quiet=yes", NULL, "--quiet=yes: ");
    expect_error("29400", NULL, "'29400': ");
    for (const char *const *bad = (const char *const[]){ "", "0", "-1", "1T", "5MM", "K", NULL }; *bad; bad++)
        expect_error("--max-bytes", *bad, ": expected");
    expect_error("--max-bytes", "99999999999999999999", "to 8589934591G");
    expect_error("--keep", "0", ": expected");
    expect_error("--keep", "5m", ": expected");
    expect_error("--max-bytes", "9999999999999G", "to 8589934591G");
    expect_error("--events=", NULL, "--events=: ");
    expect_error("--secret_file=", NULL, "--secret_file=: ");
}

Test(daemon_options, other_hosts_need_a_secret_or_the_users_wish)
{
    static const struct {
        const char *listen, *more;
        enum finding_code code;
    } cases[] = {
        { "127.0.0.1:7", NULL, FINDING_NONE },
        { "127.9.9.9", NULL, FINDING_NONE },
        { "[::1]:7", NULL, FINDING_NONE },
        { "localhost", NULL, FINDING_NONE },
        { "7", NULL, FINDING_NO_SECRET },
        { "[::]:7", NULL, FINDING_NO_SECRET },
        { "10.0.0.1:7", NULL, FINDING_NO_SECRET },
        { "127.example.org:7", NULL, FINDING_NO_SECRET },
        { "10.0.0.1:7", "--secret_file=f", FINDING_NONE },
        { "10.0.0.1:7", "--insecure", FINDING_STORE_IS_OPEN },
    };
    static const char *const ways[] = { "--hosts", "--secret_file", "munged", "--insecure" };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct daemon_options o;
        struct finding finding = { .code = FINDING_NONE };
        char listen[64];
        snprintf(listen, sizeof(listen), "--listen=%s", cases[i].listen);
        cr_assert_eq(parse(&o, NULL, listen, cases[i].more), DDP_OK);
        cr_expect_eq(daemon_options_check_open(&o, &finding), cases[i].code, "%s", cases[i].listen);
        if (cases[i].code != FINDING_NO_SECRET)
            continue;
        cr_expect_not_null(strstr(finding.sentence, "7 is not"), "%s", finding.sentence);
        for (int k = 0; k < 4; k++)
            cr_expect_not_null(strstr(finding.advice, ways[k]), "%s", finding.advice);
    }
}

Test(daemon_options, help_and_man_page_show_every_option_that_is_for_users)
{
    static const char *const names[] = { "listen",  "max-bytes", "keep",        "insecure",
                                         "torch21", "encrypt",   "secret_file", "verbose",
                                         "quiet",   "help",      "version" };
    struct buf help = { 0 }, man = { 0 };
    char line[64];
    cr_assert(daemon_options_text(DAEMON_HELP, &help) && buf_append(&help, "", 1));
    cr_assert(daemon_options_text(DAEMON_HELP_MAN, &man) && buf_append(&man, "", 1));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(line, sizeof(line), " --%s ", names[i]);
        cr_assert_not_null(strstr((char *)help.data, line), "%s", names[i]);
    }
    cr_assert_null(strstr((char *)help.data, "help-man"));
    cr_assert_not_null(strstr((char *)man.data, "\\fB\\-\\-max\\-bytes\\fR \\fIN\\fR\n"));
    cr_assert_null(strstr((char *)man.data, "help\\-man"));
    buf_free(&help);
    buf_free(&man);
}
