/* Options about several nodes: values, torchrun's configuration keys, and pairs that cannot be. */
#include "command_line.h"
#include "cli/cli_table.h"

#include <criterion/criterion.h>
#include <string.h>

static struct cli cli;
static struct ddp_err err;

static ddp_status parse(char *const *argv)
{
    static char *const nothing[] = { NULL };
    int argc = 0;
    while (argv[argc] != NULL)
        argc++;
    return cli_parse(&cli, argc, argv, nothing, &err);
}

#define WORDS(...)        ((char *[]){ "ddprun", __VA_ARGS__, "prog", NULL })
#define PARSE(...)        cr_assert_eq(parse(WORDS(__VA_ARGS__)), DDP_OK, "%s", err.msg)
#define REFUSED(msg, ...) refused(WORDS(__VA_ARGS__), msg)

static void refused(char *const *argv, const char *words)
{
    cr_assert_eq(parse(argv), DDP_ERR_ARG, "%s", words);
    cr_assert(strstr(err.msg, words) != NULL, "%s", err.msg);
}

Test(cli_nodes, torchruns_static_line_is_understood)
{
    PARSE("--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=1234");
    cr_assert_not(cli_is_elastic(&cli));
    cr_assert_eq(cli.nnodes.max, 2);
    cr_assert_eq(cli.node_rank, 1);
    cli_free(&cli);
    PARSE("--nnodes=2", "--node-rank=1", "--rdzv-endpoint=[fe80::1]:7");
    cr_assert_str_eq(cli.endpoint.host, "fe80::1");
    cr_assert_eq(cli.endpoint.port, 7);
    cli_free(&cli);
}

Test(cli_nodes, a_range_of_nodes_or_c10d_is_elastic)
{
    PARSE("--nnodes=1:4", "--rdzv-endpoint=n0");
    cr_assert(cli_is_elastic(&cli));
    cr_assert_eq(cli.endpoint.port, -1);
    cli_free(&cli);
    PARSE("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n0:1");
    cli_free(&cli);
}

/* torchrun's default is static, whatever the form of --nnodes; scripts write 2:2 and a node rank. */
Test(cli_nodes, a_range_of_one_number_is_that_number_and_static)
{
    PARSE("--nnodes=2:2", "--node_rank=1", "--master_addr=10.0.0.1");
    cr_assert_not(cli_is_elastic(&cli));
    cr_assert_eq(cli.nnodes.max, 2);
    cr_assert_eq(cli.node_rank, 1);
    cli_free(&cli);
    PARSE("--nnodes=2:2", "--rdzv_backend=c10d", "--rdzv_endpoint=n0");
    cr_assert(cli_is_elastic(&cli));
    cli_free(&cli);
    REFUSED("--nnodes=2 needs --node_rank on each node", "--nnodes=2:2", "--master_addr=h");
}

Test(cli_nodes, keys_of_torchrun_have_their_meaning_or_a_reason)
{
    PARSE("--rdzv_conf=timeout=12,keep_alive_interval=2,keep_alive_max_attempt=4");
    cr_assert_eq(cli.rdzv_conf.join_ms, 12000);
    cr_assert_eq(cli.rdzv_conf.keep_alive_ms, 2000);
    cr_assert_eq(cli.rdzv_conf.keep_alive_attempts, 4);
    cli_free(&cli);
    PARSE("--rdzv_conf= timeout = 12 , keep_alive_interval= 2");
    cr_assert_eq(cli.rdzv_conf.join_ms, 12000);
    cr_assert_eq(cli.rdzv_conf.keep_alive_ms, 2000);
    cli_free(&cli);
    PARSE("--rdzv_conf=is_host=0,close_timeout=9");
    cr_assert_eq(cli.rdzv_conf.is_host, HOST_STORE_NO);
    cr_assert_str_eq(cli.rdzv_conf.idle, "close_timeout");
    cli_free(&cli);
    PARSE("--rdzv_conf=store_type=tcp");
    cli_free(&cli);
    REFUSED("store_type=... with tcp", "--rdzv_conf=store_type=file");
    REFUSED("there is no key 'jion_timeout', the keys are join_timeout, timeout,",
            "--rdzv_conf=jion_timeout=3");
    REFUSED("join_timeout=... with seconds above 0", "--rdzv_conf=join_timeout=0");
    REFUSED("KEY=VALUE,... as in", "--rdzv_conf=join_timeout");
    REFUSED("KEY=VALUE,... as in", "--rdzv_conf==3");
}

Test(cli_nodes, values_say_what_would_be_right)
{
    REFUSED("'static' or 'c10d'", "--rdzv_backend=etcd");
    REFUSED("the host is missing", "--rdzv_endpoint=:29400");
    REFUSED("is not a number", "--rdzv_endpoint=n0:http");
    REFUSED("'yes', 'no' or 'auto'", "--host_store=maybe");
    REFUSED("'agreed', 'now' or 'never'", "--grow=later");
    REFUSED("'fast' (1.5s) or a time of at least 500ms", "--node_timeout=10ms");
    REFUSED("1 <= MIN <= MAX <= 16384", "--nnodes=0");
    REFUSED("1 <= MIN <= MAX <= 16384", "--nnodes=1:");
}

Test(cli_nodes, combinations_that_cannot_be_are_refused)
{
    REFUSED("--node_rank=2 is not valid; expected: less than --nnodes, which is 2", "--nnodes=2",
            "--node_rank=2", "--master_addr=h");
    REFUSED("--nnodes=2 needs --node_rank on each node", "--nnodes=2", "--master_addr=h");
    REFUSED("--standalone is a job of this node alone, but --nnodes=2:2 asks for more", "--standalone",
            "--nnodes=2");
    REFUSED("needs one number of nodes, but --nnodes=1:2 is a range", "--rdzv_backend=static",
            "--nnodes=1:2");
    REFUSED("--nnodes=2 needs the address where the nodes meet", "--nnodes=2", "--node_rank=0");
    REFUSED("name two places for one store", "--nnodes=2", "--node_rank=0", "--master_addr=a",
            "--rdzv_endpoint=b");
    REFUSED("--master_port=1 and --rdzv_endpoint's port 2 differ", "--master_port=1", "--rdzv_endpoint=b:2");
    REFUSED("port 0 (any free one) cannot be with --nnodes=2", "--nnodes=2", "--node_rank=0",
            "--master_addr=a", "--master_port=0");
    REFUSED("port 0 (any free one) cannot be with --nnodes=3", "--nnodes=2:3", "--rdzv_endpoint=localhost:0");
    REFUSED("--host_store=no needs --rdzv_endpoint", "--host_store=no");
}

Test(cli_nodes, an_address_has_no_port)
{
    REFUSED("a name or an address alone; a port has an option of its own", "--master_addr=h:29500");
    REFUSED("a name or an address alone", "--master_addr=[fd00::1]:29500");
    REFUSED("a name or an address alone", "--master_addr=10.9.0.1:29500");
}
