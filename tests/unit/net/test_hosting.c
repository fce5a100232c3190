/* The addresses determine which node hosts the store. The names of the machines have no effect. */
#include "net/hosting.h"
#include "run.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct own_address own[] = {
    { "127.0.0.1", "lo" }, { "10.1.0.5", "eth0" }, { "172.17.0.1", "docker0" }, { "fe80::5%eth0", "eth0" }
};

static struct hosting out;

static enum hosting_choice decide(struct plan_meeting m, const char *first, const char *second)
{
    const char *resolved[] = { first, second };
    m.nnodes_max = m.nnodes_max > 0 ? m.nnodes_max : 2;
    const struct hosting_facts facts = { .meeting = &m,
                                         .here = "n0",
                                         .resolved = resolved,
                                         .n_resolved = second != NULL ? 2 : first != NULL,
                                         .own = own,
                                         .n_own = sizeof(own) / sizeof(own[0]) };
    hosting_decide(&facts, &out);
    return out.choice;
}

#define MEETING(...) ((struct plan_meeting){ __VA_ARGS__ })

Test(hosting, node_0_hosts_on_its_own_address_alone)
{
    cr_assert_eq(decide(MEETING(.host = "n0"), "10.1.0.5", NULL), HOSTING_HOST);
    cr_assert_str_eq(out.address, "10.1.0.5");
    cr_assert(out.here);
    cr_assert_null(out.code);
    cr_assert_eq(decide(MEETING(.host = "n0"), "127.0.1.1", "10.1.0.5"), HOSTING_HOST);
    cr_assert_str_eq(out.address, "10.1.0.5", "one that the others can reach");
}

Test(hosting, the_other_nodes_of_a_static_job_join)
{
    cr_assert_eq(decide(MEETING(.host = "n0", .node_rank = 1), "10.1.0.4", NULL), HOSTING_JOIN);
    cr_assert_eq(decide(MEETING(.host = "n0", .node_rank = 1), NULL, NULL), HOSTING_JOIN);
    cr_assert_eq(decide(MEETING(.host = "10.1.0.5", .node_rank = 1), "10.1.0.5", NULL), HOSTING_JOIN,
                 "also on the same machine");
    cr_assert(out.here);
    cr_assert_eq(decide(MEETING(.host = "localhost", .node_rank = 1), "127.0.0.1", NULL), HOSTING_JOIN);
    cr_assert_not(out.here, "a loopback address is hardly what is meant");
}

Test(hosting, a_node_0_without_that_address_is_told_which_it_has)
{
    cr_assert_eq(decide(MEETING(.host = "train-svc"), "10.96.3.4", NULL), HOSTING_ASK);
    cr_assert_str_eq(out.code, "NO_STORE_HOST");
    cr_assert(strstr(out.words, "train-svc (10.96.3.4) is not") != NULL, "%s", out.words);
    cr_assert(strstr(out.words, "finding  NO_STORE_HOST") != NULL);
    cr_assert_eq(decide(MEETING(.host = "train-svc", .host_store = HOST_STORE_YES), "10.96.3.4", NULL),
                 HOSTING_HOST);
    cr_assert_str_eq(out.address, "", "it listens everywhere then");
    cr_assert_str_eq(out.dial, "10.1.0.5");
}

Test(hosting, a_name_that_is_loopback_on_its_own_machine_is_refused)
{
    cr_assert_eq(decide(MEETING(.host = "n0"), "127.0.1.1", NULL), HOSTING_ERROR);
    cr_assert_str_eq(out.code, "MASTER_NAME_IS_LOOPBACK");
    cr_assert(has_parts(out.words, "on n0 |'n0' resolves to 127.0.1.1"), "%s", out.words);
    cr_assert_eq(decide(MEETING(.host = "n0", .elastic = true, .node_rank = -1), "127.0.1.1", NULL),
                 HOSTING_ERROR, "or each node would have its own store");
}

Test(hosting, a_chosen_loopback_address_is_a_job_on_one_machine)
{
    cr_assert_eq(decide(MEETING(.host = "127.0.0.1"), "127.0.0.1", NULL), HOSTING_HOST);
    cr_assert_eq(decide(MEETING(.host = "localhost"), "::1", "127.0.0.1"), HOSTING_HOST);
    cr_assert_eq(decide(MEETING(.host = "127.0.0.9"), "127.0.0.9", NULL), HOSTING_HOST);
    cr_assert_eq(decide(MEETING(.host = "0:0:0:0:0:0:0:1"), "::1", NULL), HOSTING_HOST,
                 "however it is written");
    cr_assert_eq(decide(MEETING(.host = "n0", .nnodes_max = 1), "127.0.1.1", NULL), HOSTING_HOST);
}

Test(hosting, the_owner_of_an_elastic_endpoint_tries_and_the_others_join)
{
    const struct plan_meeting m = { .host = "n0", .elastic = true, .node_rank = -1 };
    cr_assert_eq(decide(m, "10.1.0.5", NULL), HOSTING_TRY);
    cr_assert_str_eq(out.address, "10.1.0.5");
    cr_assert_eq(decide(m, "10.1.0.6", NULL), HOSTING_JOIN);
    cr_assert_not(out.here);
    cr_assert(strstr(out.words, "of n0 (10.1.0.5 (eth0)") != NULL, "%s", out.words);
    struct plan_meeting no = m;
    no.host_store = HOST_STORE_NO;
    cr_assert_eq(decide(no, "10.1.0.5", NULL), HOSTING_JOIN);
}

Test(hosting, a_bridges_address_is_warned_of)
{
    cr_assert_eq(decide(MEETING(.host = "172.17.0.1"), "172.17.0.1", NULL), HOSTING_HOST);
    cr_assert_str_eq(out.code, "BRIDGE_ADDRESS");
    cr_assert(strstr(out.words, "docker0 on n0") != NULL, "%s", out.words);
    cr_assert_eq(decide(MEETING(.host = "172.17.0.1", .node_rank = 1), "172.17.0.1", NULL), HOSTING_JOIN);
    cr_assert_str_eq(out.code, "BRIDGE_ADDRESS");
}

static void expect_loopback_warning(const char *subject)
{
    cr_assert_not_null(out.code);
    cr_assert_str_eq(out.code, "LOOPBACK_ADDRESS");
    cr_assert(strncmp(out.words, subject, strlen(subject)) == 0, "%s", out.words);
    cr_assert_not_null(strstr(out.words, "on n0 can"), "%s", out.words);
    cr_assert_not_null(strstr(out.words, ": 10.1.0.5 (eth0), 172.17.0.1 (docker0)\n  finding"),
                       "addresses of other hosts' use, bridges last: %s", out.words);
    cr_assert(strncmp(out.local_only, out.words, strlen(out.local_only)) == 0 && out.local_only[0] != '\0');
    cr_assert_null(strchr(out.local_only, '\n'), "%s", out.local_only);
}

Test(hosting, a_loopback_address_is_warned_of_on_every_node)
{
    const struct plan_meeting elastic = { .host = "localhost", .elastic = true, .node_rank = -1 };
    struct plan_meeting no = elastic, yes = elastic, one = elastic;
    no.host_store = HOST_STORE_NO;
    yes.host_store = HOST_STORE_YES;
    one.nnodes_max = 1;
    cr_assert_eq(decide(elastic, "127.0.0.1", NULL), HOSTING_TRY);
    expect_loopback_warning("localhost");
    cr_assert_eq(decide(yes, "127.0.0.1", NULL), HOSTING_HOST);
    expect_loopback_warning("localhost");
    cr_assert_eq(decide(no, NULL, NULL), HOSTING_JOIN, "a node that joins resolves no name here");
    expect_loopback_warning("localhost");
    cr_assert_eq(decide(MEETING(.host = "localhost"), "::1", "127.0.0.1"), HOSTING_HOST);
    expect_loopback_warning("localhost");
    cr_assert_eq(decide(MEETING(.host = "localhost", .node_rank = 1), NULL, NULL), HOSTING_JOIN);
    expect_loopback_warning("localhost");
    cr_assert_eq(decide(MEETING(.host = "127.0.0.9", .node_rank = 1), "127.0.0.9", NULL), HOSTING_JOIN);
    expect_loopback_warning("127.0.0.9");
    decide(one, "127.0.0.1", NULL);
    cr_assert_null(out.code, "one node needs no other host");
    cr_assert_str_eq(out.local_only, "");
    decide(MEETING(.host = "n0"), "10.1.0.5", NULL);
    cr_assert_null(out.code);
    cr_assert_str_eq(out.local_only, "");
}
