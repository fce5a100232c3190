/* The hosts that the tests of many nodes stand on. */
#include "hosts.h"
#include "run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

TestSuite(hosts, .timeout = 240);

/* Reaches node0 at last: a bridge learns where a cable leads by what comes through. */
static void expect_reaches(const struct host *h)
{
    const char *argv[] = { "ping", "-c1", "-W1", "node0", NULL };
    for (struct patience p = { 0 }; patience_left(&p);) {
        struct run_result r = host_run(h, argv);
        const bool reached = r.exit_code == 0;
        run_free(&r);
        if (reached)
            return;
    }
    cr_assert_fail("%s does not reach node0", h->name);
}

/* What a shell command says there. */
static void expect_says(const struct host *h, const char *command, const char *text)
{
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    struct run_result r = host_run(h, argv);
    cr_expect(strstr(r.out, text) != NULL, "'%s' on %s says: %s%s", command, h->name, r.out, r.err);
    run_free(&r);
}

Test(hosts, each_has_a_name_an_address_and_process_ids_of_its_own)
{
    struct hosts *net = hosts_open(2);
    expect_says(&net->host[0], "hostname", "node0");
    expect_says(&net->host[1], "hostname", "node1");
    expect_says(&net->host[1], "ip -br address show eth0", "10.9.0.2/24");
    expect_says(&net->host[1], "getent hosts node0", "10.9.0.1");
    expect_says(&net->host[1], "test $$ -lt 100 && echo few processes", "few processes");
    hosts_close(net);
}

Test(hosts, reach_each_other_unless_a_rule_or_a_cable_is_between)
{
    static const char knock[] = "ping -c1 -W1 node0 >/dev/null 2>&1 && echo yes || echo no";
    struct hosts *net = hosts_open(2);
    const struct host *b = &net->host[1];
    expect_reaches(b);
    host_rules(b, "add rule inet f out ip daddr 10.9.0.1 drop");
    expect_says(b, knock, "no");
    host_heal(b);
    expect_reaches(b);
    host_cable(net, 0, false);
    expect_says(b, knock, "no");
    host_cable(net, 0, true);
    expect_reaches(b);
    hosts_close(net);
}

Test(hosts, die_with_all_that_runs_on_them)
{
    static const char *const argv[] = { "/bin/sh", "-c", "setsid sleep 1000 & setsid sleep 1001 & wait",
                                        NULL };
    struct hosts *net = hosts_open(1);
    char names[256] = "";
    struct run_process *p = host_start(&net->host[0], argv, NULL);
    for (struct patience left = { 0 }; strstr(names, "sleep sleep") == NULL && patience_left(&left);)
        host_left(&net->host[0], 0, names, sizeof(names));
    cr_expect(strstr(names, "sleep sleep") != NULL, "running:%s", names);
    host_signal(&net->host[0], NULL, SIGKILL);
    cr_expect_eq(host_left(&net->host[0], PATIENCE_MS, names, sizeof(names)), 0, "left:%s", names);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.signal, SIGKILL);
    run_free(&r);
    hosts_close(net);
}

Test(hosts, come_in_sixteen)
{
    struct hosts *net = hosts_open(16);
    expect_reaches(&net->host[15]);
    hosts_close(net);
}
