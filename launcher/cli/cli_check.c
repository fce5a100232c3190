/* cli_check.c -- what does not go together, because it takes two options to be wrong. What depends on the machine
 * is plan.c's.
 *
 * A wrong pair is refused here, on every node at once and before anything is started, since many of them would
 * otherwise show as nodes that wait for each other until the time is up. Every check is one function and a row
 * in checks[]; the first that finds something speaks. */
#include "cli/cli_table.h"

#include <string.h>

bool cli_gives(const struct cli *cli, enum cli_option option)
{
    return cli->origin[option] != FROM_DEFAULT;
}

/* torchrun's default is static, with N:N too, and it would wait for all of a range; that can only be meant as elastic. */
bool cli_is_elastic(const struct cli *cli)
{
    return cli->backend == BACKEND_C10D ||
           (cli->backend == BACKEND_UNSAID && cli->nnodes.min != cli->nnodes.max);
}

/* Each side is named as it was given: the variable when it came from the environment. */
static ddp_status exclude(const struct cli *cli, enum cli_option a, enum cli_option b, struct ddp_err *err)
{
    char pet_a[CLI_PET_MAX], pet_b[CLI_PET_MAX];
    cli_pet_name(pet_a, &cli_rows[a]);
    cli_pet_name(pet_b, &cli_rows[b]);
    return ddp_fail(err, DDP_ERR_ARG, "%s%s and %s%s exclude each other",
                    cli->origin[a] == FROM_ENVIRONMENT ? "" : "--",
                    cli->origin[a] == FROM_ENVIRONMENT ? pet_a : cli_rows[a].name,
                    cli->origin[b] == FROM_ENVIRONMENT ? "" : "--",
                    cli->origin[b] == FROM_ENVIRONMENT ? pet_b : cli_rows[b].name);
}

static ddp_status check_program(const struct cli *cli, struct ddp_err *err)
{
    if (cli->program == NULL && !cli->why)
        return ddp_fail(err, DDP_ERR_ARG, "no program given. Usage: ddprun [options] PROGRAM [args...]");
    if (cli->program != NULL && cli->program[0] == '\0')
        return ddp_fail(err, DDP_ERR_ARG, "the program's name is empty");
    return DDP_OK;
}

static ddp_status check_pairs(const struct cli *cli, struct ddp_err *err)
{
    const enum cli_origin *origin = cli->origin;
    if (cli->module && cli->no_python && !cli->run_path)
        return exclude(cli, OPT_MODULE, OPT_NO_PYTHON, err);
    if (cli->per_task && cli->standalone)
        return exclude(cli, OPT_PER_TASK, OPT_STANDALONE, err);
    if (cli->per_task && cli->origin[OPT_NPROC_PER_NODE] > FROM_SCHEDULER)
        return exclude(cli, OPT_PER_TASK, OPT_NPROC_PER_NODE, err);
    if (origin[OPT_GRACE] == FROM_COMMAND_LINE && origin[OPT_SHUTDOWN_TIMEOUT] == FROM_COMMAND_LINE)
        return exclude(cli, OPT_GRACE, OPT_SHUTDOWN_TIMEOUT, err);
    if (cli->quiet && cli->verbose)
        return exclude(cli, OPT_QUIET, OPT_VERBOSE, err);
    if (origin[OPT_PREFIX] == FROM_COMMAND_LINE && origin[OPT_NO_PREFIX] == FROM_COMMAND_LINE)
        return exclude(cli, OPT_PREFIX, OPT_NO_PREFIX, err);
    return DDP_OK;
}

/* A node rank that nobody gave would be 0 with torchrun, on every node that forgot it: then two nodes want to be
 * the first, and the others wait. Only who is called torchrun must take it so. */
static ddp_status check_node_rank(const struct cli *cli, struct ddp_err *err)
{
    if (cli_gives(cli, OPT_NODE_RANK) && cli->node_rank >= cli->nnodes.max)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--node_rank=%d is not valid; expected: less than --nnodes, which is %d",
                        cli->node_rank, cli->nnodes.max);
    if (cli->nnodes.max > 1 && !cli_is_elastic(cli) && !cli_gives(cli, OPT_NODE_RANK) && !cli->torchrun)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--nnodes=%d needs --node_rank on each node: 0 on the one that has the master address, "
            "up to %d on the others; or --rdzv_backend=c10d, which numbers the nodes itself",
            cli->nnodes.max, cli->nnodes.max - 1);
    return DDP_OK;
}

static ddp_status check_mode(const struct cli *cli, struct ddp_err *err)
{
    const struct cli_nnodes *nodes = &cli->nnodes;
    if (cli->standalone && nodes->max > 1)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--standalone is a job of this node alone, but --nnodes=%d:%d asks for more; leave one "
            "of them out",
            nodes->min, nodes->max);
    if (cli->backend == BACKEND_STATIC && nodes->min != nodes->max)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--rdzv_backend=static needs one number of nodes, but --nnodes=%d:%d is a range; say "
                        "--rdzv_backend=c10d for nodes that come and go",
                        nodes->min, nodes->max);
    return DDP_OK;
}

/* Both name the same thing; when they differ one of them is a mistake, and which one only the user knows. */
static ddp_status check_one_place(const struct cli *cli, struct ddp_err *err)
{
    const struct endpoint *at = &cli->endpoint;
    if (cli_gives(cli, OPT_MASTER_ADDR) && strcmp(cli->master_addr, at->host) != 0)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--master_addr=%.200s and --rdzv_endpoint's host %.200s name two places for one store; "
            "leave one of them out",
            cli->master_addr, at->host);
    if (cli_gives(cli, OPT_MASTER_PORT) && at->port >= 0 && at->port != cli->master_port)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--master_port=%d and --rdzv_endpoint's port %d differ; leave one of them out",
                        cli->master_port, at->port);
    return DDP_OK;
}

/* Several nodes can only meet where all of them know it beforehand. A job that can run with one node may take a free port: others
 * can join once they are told which. */
static ddp_status check_meeting(const struct cli *cli, struct ddp_err *err)
{
    const bool endpoint = cli_gives(cli, OPT_RDZV_ENDPOINT) && !cli->standalone;
    const bool open_port =
        (cli_gives(cli, OPT_MASTER_PORT) && cli->master_port == 0) || (endpoint && cli->endpoint.port == 0);
    if (endpoint && check_one_place(cli, err) != DDP_OK)
        return DDP_ERR_ARG;
    if (cli->nnodes.max > 1 && !endpoint && !cli_gives(cli, OPT_MASTER_ADDR) && !cli->torchrun)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--nnodes=%d needs the address where the nodes meet: --master_addr=HOST (node 0's) or "
            "--rdzv_endpoint=HOST[:PORT], the same on every node",
            cli->nnodes.max);
    if (cli->nnodes.min > 1 && open_port)
        return ddp_fail(err, DDP_ERR_ARG,
                        "port 0 (any free one) cannot be with --nnodes=%d: the other nodes could not know it",
                        cli->nnodes.max);
    if (cli->host_store == HOST_STORE_NO && !endpoint && cli->nnodes.max == 1)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--host_store=no needs --rdzv_endpoint: nobody else has the store of "
                        "a job of one node");
    return DDP_OK;
}

ddp_status cli_check(const struct cli *cli, struct ddp_err *err)
{
    static ddp_status (*const checks[])(const struct cli *, struct ddp_err *) = { check_program, check_pairs,
                                                                                  check_mode, check_meeting,
                                                                                  check_node_rank };
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]) && status == DDP_OK; i++)
        status = checks[i](cli, err);
    return status;
}
