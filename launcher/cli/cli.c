/* cli.c -- see cli.h. The defaults, the variables and the command line all pass through the same parsers. So the table
 * has each default as a text, in the form in which a user would type it. */
#include "cli/cli.h"

#include "tables/text.h"
#include "tables/worker_env.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- torchrun --------------------------------------------------------------------------------------------- */

/* A ddprun that is started as torchrun has other defaults, and accepts some empty values. */

/* Each of these options has another default in torchrun than in ddprun. Defaults that depend on other options are in
 * plan.c and worker.c. */
static const struct {
    enum cli_option option;
    const char *preset;
} torchruns[] = {
    { OPT_NPROC_PER_NODE, "1" },
    { OPT_NODE_RANK, "0" },
    { OPT_SCHEDULER, "none" },
    { OPT_SIGNALS, "SIGTERM,SIGINT,SIGHUP,SIGQUIT" },
};

const char *cli_preset(const struct cli *cli, enum cli_option option)
{
    for (size_t i = 0; cli->torchrun && i < sizeof(torchruns) / sizeof(torchruns[0]); i++)
        if (torchruns[i].option == option)
            return torchruns[i].preset;
    return cli_rows[option].preset;
}

/* Options whose empty value selects torchrun's default, as in --rdzv_endpoint=$UNSET in a script. torchrun treats
 * an empty value of these options as missing. An empty value of any other option is passed to the parser of the
 * option. */
#define FIELD(name) offsetof(struct cli, name), sizeof(((struct cli *)NULL)->name)
static const struct {
    enum cli_option option;
    size_t at, size;
} can_be_empty[] = {
    { OPT_RDZV_ENDPOINT, FIELD(endpoint) },  { OPT_RDZV_ID, FIELD(job) },
    { OPT_MASTER_ADDR, FIELD(master_addr) }, { OPT_LOCAL_ADDR, FIELD(local_addr) },
    { OPT_LOG_DIR, FIELD(log_dir) },         { OPT_PREFIX_TEMPLATE, FIELD(prefix_template) },
    { OPT_SIGNALS, FIELD(stop_signals) },
};
#undef FIELD

/* Clear the option's field in `cli`. Return false if the option is not in can_be_empty. */
static bool cli_forget(struct cli *cli, enum cli_option option)
{
    for (size_t i = 0; i < sizeof(can_be_empty) / sizeof(can_be_empty[0]); i++)
        if (can_be_empty[i].option == option) {
            memset((char *)cli + can_be_empty[i].at, 0, can_be_empty[i].size);
            return true;
        }
    return false;
}

static bool cli_is_torchrun(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash != NULL ? slash + 1 : path, "torchrun") == 0;
}

/* --- checks ----------------------------------------------------------------------------------------------- */

/* Checks of combinations of options. plan.c has the checks that depend on the machine.
 *
 * Each node rejects a wrong combination before any worker starts. Otherwise the nodes could wait for each other until
 * the timeout. Only the first problem is reported. */

bool cli_gives(const struct cli *cli, enum cli_option option)
{
    return cli->origin[option] != FROM_DEFAULT;
}

/* Return true for an elastic job. A range of nodes without --rdzv_backend means an elastic job. torchrun instead starts
 * a static job and waits for the largest number of nodes. */
bool cli_is_elastic(const struct cli *cli)
{
    return cli->backend == BACKEND_C10D ||
           (cli->backend == BACKEND_UNSAID && cli->nnodes.min != cli->nnodes.max);
}

/* Format an option as the user wrote it: "--nnodes", or PET_NNODES if the environment set it. Return `text`. */
static const char *option_format(const struct cli *cli, enum cli_option option, char text[OPTION_PET_MAX])
{
    if (cli->origin[option] == FROM_ENVIRONMENT)
        options_pet_name(text, &cli_rows[option]);
    else
        snprintf(text, OPTION_PET_MAX, "--%s", cli_rows[option].name);
    return text;
}

static ddp_status exclude(const struct cli *cli, enum cli_option a, enum cli_option b, struct ddp_err *err)
{
    char first[OPTION_PET_MAX], second[OPTION_PET_MAX];
    return ddp_fail(err, DDP_ERR_ARG, "%s: cannot be used with %s; leave out one of the two options",
                    option_format(cli, a, first), option_format(cli, b, second));
}

enum { NNODES_TEXT_MAX = 32 };

/* Format --nnodes as the user wrote it: "4" or "2:4". Return `text`. */
static const char *nnodes_format(const struct cli_nnodes *nodes, char text[NNODES_TEXT_MAX])
{
    if (nodes->is_range)
        snprintf(text, NNODES_TEXT_MAX, "%d:%d", nodes->min, nodes->max);
    else
        snprintf(text, NNODES_TEXT_MAX, "%d", nodes->max);
    return text;
}

static ddp_status check_program(const struct cli *cli, struct ddp_err *err)
{
    if (cli->program == NULL && !cli->explain)
        return ddp_fail(err, DDP_ERR_ARG, "PROGRAM: missing; usage: ddprun [options] PROGRAM [args...]");
    if (cli->program != NULL && cli->program[0] == '\0')
        return ddp_fail(err, DDP_ERR_ARG, "PROGRAM: empty name; usage: ddprun [options] PROGRAM [args...]");
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

/* Return true if the option is a switch that is off, as with PET_STANDALONE=0. */
static bool is_switched_off(const struct cli *cli, enum cli_option option)
{
    return (option == OPT_STANDALONE && !cli->standalone) || (option == OPT_PER_TASK && !cli->per_task);
}

/* Reject options whose values --hosts determines. If `one_console` is true, accept these options, because a ddprun with
 * --hosts has started this ddprun with these options. */
static ddp_status check_hosts(const struct cli *cli, struct ddp_err *err)
{
    static const enum cli_option decided[] = { OPT_NNODES,       OPT_NODE_RANK,  OPT_RDZV_ENDPOINT,
                                               OPT_RDZV_BACKEND, OPT_STANDALONE, OPT_LOCAL_ADDR,
                                               OPT_SECRET_FILE,  OPT_HOST_STORE, OPT_PER_TASK };
    const enum cli_option hosts = cli->hosts != NULL ? OPT_HOSTS : OPT_HOSTFILE;
    char list[OPTION_PET_MAX], other[OPTION_PET_MAX];
    if ((cli->hosts == NULL && cli->hostfile == NULL) || cli->one_console)
        return DDP_OK;
    if (cli->collect_logs && (cli->log_dir == NULL || strcmp(cli->log_dir, "/dev/null") == 0))
        return ddp_fail(err, DDP_ERR_ARG,
                        "--collect_logs: no directory for the log files of all hosts; add --log_dir=DIR");
    if (cli->hosts != NULL && cli->hostfile != NULL)
        return exclude(cli, OPT_HOSTS, OPT_HOSTFILE, err);
    if (cli_gives(cli, OPT_NNODES) && cli->nnodes.min != cli->nnodes.max)
        return ddp_fail(err, DDP_ERR_ARG,
                        "%s: cannot be used with --nnodes=%s, which requests an elastic job; for an elastic "
                        "job, start ddprun on each node with --rdzv_endpoint",
                        option_format(cli, hosts, list), nnodes_format(&cli->nnodes, other));
    if (cli->rdzv_conf.is_host != HOST_STORE_AUTO)
        return ddp_fail(err, DDP_ERR_ARG, "%s: cannot be used with 'is_host' in %s; remove 'is_host'",
                        option_format(cli, hosts, list), option_format(cli, OPT_RDZV_CONF, other));
    for (size_t i = 0; i < sizeof(decided) / sizeof(decided[0]); i++)
        if (cli_gives(cli, decided[i]) && !is_switched_off(cli, decided[i]))
            return ddp_fail(err, DDP_ERR_ARG,
                            "%s: cannot be used with %s: ddprun itself starts every node of the list; %s %s",
                            option_format(cli, hosts, list), option_format(cli, decided[i], other),
                            cli->origin[decided[i]] == FROM_ENVIRONMENT ? "unset" : "leave out", other);
    return DDP_OK;
}

/* Check --node_rank. Each node of a static job of several nodes needs the option. If ddprun was started as torchrun,
 * a missing option means rank 0, as in torchrun. */
static ddp_status check_node_rank(const struct cli *cli, struct ddp_err *err)
{
    char text[NNODES_TEXT_MAX];
    if (cli_gives(cli, OPT_NODE_RANK) && cli->node_rank >= cli->nnodes.max)
        return ddp_fail(err, DDP_ERR_ARG, "--node_rank=%d: expected %s%d, because --nnodes is %d",
                        cli->node_rank, cli->nnodes.max > 1 ? "a number from 0 to " : "", cli->nnodes.max - 1,
                        cli->nnodes.max);
    if (cli->nnodes.max > 1 && !cli_is_elastic(cli) && !cli_gives(cli, OPT_NODE_RANK) && !cli->torchrun)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--nnodes=%s: no --node_rank; add it on each node: 0 on the node with the master "
            "address, %s%d on the other%s; or use --rdzv_backend=c10d, which assigns the node ranks",
            nnodes_format(&cli->nnodes, text), cli->nnodes.max > 2 ? "1 to " : "", cli->nnodes.max - 1,
            cli->nnodes.max > 2 ? "s" : "");
    return DDP_OK;
}

static ddp_status check_mode(const struct cli *cli, struct ddp_err *err)
{
    const struct cli_nnodes *nodes = &cli->nnodes;
    char text[NNODES_TEXT_MAX];
    if (cli->standalone && nodes->max > 1)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--standalone: starts a job of this node only, but --nnodes=%s requests more nodes; "
                        "leave out one of the two options",
                        nnodes_format(nodes, text));
    if (cli->backend == BACKEND_STATIC && nodes->min != nodes->max)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--rdzv_backend=static: needs one number of nodes, but --nnodes=%s is a range; use "
                        "--rdzv_backend=c10d for nodes that join and leave",
                        nnodes_format(nodes, text));
    return DDP_OK;
}

/* Check that the master address and the endpoint agree, because both are the address of the store. */
static ddp_status check_one_place(const struct cli *cli, struct ddp_err *err)
{
    const struct endpoint *at = &cli->endpoint;
    if (cli_gives(cli, OPT_MASTER_ADDR) && strcmp(cli->master_addr, at->host) != 0)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--master_addr=%.200s: differs from the host %.200s in --rdzv_endpoint; leave out one of the "
            "two options",
            cli->master_addr, at->host);
    if (cli_gives(cli, OPT_MASTER_PORT) && at->port >= 0 && at->port != cli->master_port)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--master_port=%d: differs from the port %d in --rdzv_endpoint; leave out one of the two "
            "options",
            cli->master_port, at->port);
    return DDP_OK;
}

/* Check that the options give each node the address of the store. A port of 0 means any free port, so the other nodes
 * cannot know the port. Therefore port 0 is valid only if the job can start with one node. */
static ddp_status check_meeting(const struct cli *cli, struct ddp_err *err)
{
    char text[NNODES_TEXT_MAX];
    const bool endpoint = cli_gives(cli, OPT_RDZV_ENDPOINT) && !cli->standalone;
    const bool open_port =
        (cli_gives(cli, OPT_MASTER_PORT) && cli->master_port == 0) || (endpoint && cli->endpoint.port == 0);
    if (endpoint && check_one_place(cli, err) != DDP_OK)
        return DDP_ERR_ARG;
    if (cli->nnodes.max > 1 && !endpoint && !cli_gives(cli, OPT_MASTER_ADDR) && !cli->torchrun)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--nnodes=%s: no address of the store; add %s--rdzv_endpoint=HOST[:PORT], the same on "
            "every node",
            nnodes_format(&cli->nnodes, text),
            cli_is_elastic(cli) ? "" : "--master_addr=HOST (the host of node 0) or ");
    if (cli->nnodes.min > 1 && open_port)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--nnodes=%s: with port 0, the other nodes do not know the port of the store; set a "
                        "port above 0",
                        nnodes_format(&cli->nnodes, text));
    if (cli->host_store == HOST_STORE_NO && !endpoint && cli->nnodes.max == 1)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--host_store=no: a job of one node has no second node to host the store; add "
                        "--rdzv_endpoint, or leave out --host_store");
    return DDP_OK;
}

/* Reject --encrypt with --torch_store=rank0 if the store may be on another host: only ddprun's own store supports
 * encryption. plan.c checks that a secret exists. */
static ddp_status check_encrypt(const struct cli *cli, struct ddp_err *err)
{
    const bool makes_secret = (cli->hosts != NULL || cli->hostfile != NULL) && !cli->one_console;
    const bool elsewhere = cli->nnodes.max > 1 || (cli_gives(cli, OPT_RDZV_ENDPOINT) && !cli->standalone);
    if (!cli->encrypt || (!elsewhere && !makes_secret))
        return DDP_OK;
    if (cli->torch_store == TORCH_STORE_RANK0)
        return exclude(cli, OPT_ENCRYPT, OPT_TORCH_STORE, err);
    return DDP_OK;
}

ddp_status cli_check(const struct cli *cli, struct ddp_err *err)
{
    static ddp_status (*const checks[])(const struct cli *, struct ddp_err *) = {
        check_program, check_pairs, check_hosts, check_mode, check_meeting, check_node_rank, check_encrypt
    };
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]) && status == DDP_OK; i++)
        status = checks[i](cli, err);
    return status;
}

enum { NAME_MAX_LEN = 63, SHOWN_MAX = 200 };

/* Pass `text` to the option's parser; `spelled` is the option as the user typed it, for errors. */
static ddp_status set_option(struct cli *cli, enum cli_option option, const char *text, const char *spelled,
                             struct ddp_err *err)
{
    return options_store(&cli_rows[option], text, spelled, cli, err);
}

/* Read the first source of values, the defaults. An error means that a default in options.h is wrong. */
static ddp_status read_defaults(struct cli *cli, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (int i = 0; i < OPTIONS && status == DDP_OK; i++) {
        const char *preset = cli_preset(cli, (enum cli_option)i);
        if (preset != NULL)
            status = set_option(cli, (enum cli_option)i, preset, cli_rows[i].name, err);
    }
    return status;
}

/* Read one variable. Ignore an empty variable, because users write `PET_X= ddprun ...` to unset the variable. */
static ddp_status read_variable(struct cli *cli, enum cli_option option, const char *name, char *const *block,
                                struct ddp_err *err)
{
    const char *text = env_find(block, name);
    if (text == NULL || text[0] == '\0')
        return DDP_OK;
    ddp_status status = set_option(cli, option, text, name, err);
    if (status == DDP_OK)
        cli->origin[option] = FROM_ENVIRONMENT;
    return status;
}

static bool is_pet(const char *entry)
{
    return strncmp(entry, "PET_", 4) == 0;
}

/* Return true if any PET_ variable is set. Usually no such variable is set, so the caller need not build the names of
 * all variables. */
static bool has_pets(char *const *block)
{
    while (*block != NULL && !is_pet(*block))
        block++;
    return *block != NULL;
}

/* Read the second source of values, the environment variables. --shutdown_timeout has two variables: its PET_ variable
 * is read last, so it overrides TORCH_ELASTIC_SHUTDOWN_TIMEOUT. */
static ddp_status read_environment(struct cli *cli, char *const *block, struct ddp_err *err)
{
    char name[OPTION_PET_MAX];
    ddp_status status =
        read_variable(cli, OPT_SHUTDOWN_TIMEOUT, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", block, err);
    if (!has_pets(block))
        return status;
    for (int i = 0; i < OPTIONS && status == DDP_OK; i++) {
        options_pet_name(name, &cli_rows[i]);
        if (cli_rows[i].in_environment)
            status = read_variable(cli, (enum cli_option)i, name, block, err);
    }
    return status;
}

/* Return the option of the variable "PET_X=...", or NULL if no such option exists. */
static const struct option_row *row_of_pet(const char *entry)
{
    char name[OPTION_PET_MAX];
    for (int i = 0; i < OPTIONS; i++) {
        options_pet_name(name, &cli_rows[i]);
        const size_t len = strlen(name);
        if (strncmp(entry, name, len) == 0 && entry[len] == '=')
            return &cli_rows[i];
    }
    return NULL;
}

const char *cli_idle_pet(char *const *block, const char **option)
{
    for (; *block != NULL; block++) {
        const struct option_row *row = is_pet(*block) ? row_of_pet(*block) : NULL;
        *option = row != NULL ? row->name : NULL;
        if (is_pet(*block) && (row == NULL || !row->in_environment))
            return *block;
    }
    return NULL;
}

/* --- finding an option ---------------------------------------------------------------------------------- */

/* Return the distance between a mistyped name and the name of an option. The user may shorten an option's name. So if
 * the mistyped name has four or more characters, also compare it with the beginning of the option's name. */
static size_t distance_to(const char *name, const char *option)
{
    char front[NAME_MAX_LEN + 1];
    size_t whole = words_distance(name, option);
    size_t len = strlen(name);
    if (len < 4)
        return whole;
    snprintf(front, sizeof(front), "%.*s", (int)len, option);
    size_t cut = words_distance(name, front) + 1; /* + 1, because a match of the whole name is better */
    return cut < whole ? cut : whole;
}

static ddp_status append_hint(struct ddp_err *err, const char *name)
{
    char *see = strstr(err->msg, "; see --help");
    const size_t len = see != NULL ? (size_t)(see - err->msg) : strlen(err->msg);
    snprintf(err->msg + len, sizeof(err->msg) - len, "; did you mean --%s?", name);
    return DDP_ERR_ARG;
}

/* Append to the error the option name that is most similar to the mistyped `word`. Append nothing if no name is
 * similar. */
static ddp_status suggest_option(const char *word, struct ddp_err *err)
{
    char name[NAME_MAX_LEN + 1];
    const size_t len = strcspn(word + 2, "=");
    const char *nearest = NULL;
    if (word[1] != '-')
        return err->msg[1] == 'n' ? append_hint(err, "nproc_per_node") : DDP_ERR_ARG;
    snprintf(name, sizeof(name), "%.*s", (int)len, word + 2);
    for (char *p = name; *p != '\0'; p++)
        *p = *p == '-' ? '_' : *p;
    size_t best = strlen(name) / 3 + 2; /* suggest only a name with a smaller distance */
    for (int i = 0; i < OPTIONS && len <= NAME_MAX_LEN; i++) {
        const size_t distance = distance_to(name, cli_rows[i].name);
        if (distance < best) {
            best = distance;
            nearest = cli_rows[i].name;
        }
    }
    return nearest == NULL ? DDP_ERR_ARG : append_hint(err, nearest);
}

/* Reset the option to its default, because its value on the command line is empty. The default then overrides the
 * option's PET_ variable, too. */
static ddp_status set_default(struct cli *cli, enum cli_option option, const char *spelled,
                              struct ddp_err *err)
{
    const char *preset = cli_preset(cli, option);
    cli->origin[option] = FROM_DEFAULT;
    return preset != NULL ? set_option(cli, option, preset, spelled, err) : DDP_OK;
}

/* Set an option from the command line. If a ddprun with --hosts (the starter) has started this ddprun, the command line
 * has the starter's options first, and the user's options after them. If the user's --master_port is 0, keep the port
 * that the starter has chosen, because that port is free on the first host. */
static ddp_status set_from_line(struct cli *cli, enum cli_option option, const char *text,
                                const char *spelled, struct ddp_err *err)
{
    const bool has_port = cli->one_console && cli->origin[OPT_MASTER_PORT] == FROM_COMMAND_LINE;
    const int port = has_port ? cli->master_port : 0;
    if (cli->torchrun && text[0] == '\0' && cli_forget(cli, option))
        return set_default(cli, option, spelled, err);
    cli->origin[option] = FROM_COMMAND_LINE;
    ddp_status status = set_option(cli, option, text, spelled, err);
    if (option == OPT_MASTER_PORT && cli->master_port == 0)
        cli->master_port = port;
    return status;
}

/* Return true if an option that was already read, such as --help, makes ddprun print a text and exit. The parsing then
 * ends, so an error in a later word is not reported. Exception: --json is still read if it follows --version. */
bool cli_only_prints(const struct cli *cli)
{
    return cli->help != HELP_NONE || cli->version || cli->print_prefix || cli->print_man ||
           cli->make_secret != NULL || cli->completion != SHELL_NONE;
}

/* Read the third source of values, the command line:
 *
 *     ddprun { OPTION } [ "--" ] PROGRAM { ARGUMENT }
 *         OPTION = "--name" | "--name=value" | "--name" value | "-x" | "-xvalue" | "-x=value" | "-x" value
 *
 * The first word that is not an option is the program. All later words are the program's arguments, even words that
 * look like options. */
static ddp_status read_line(struct cli *cli, char *const *argv, struct ddp_err *err)
{
    struct option_reader reader = { .table = &cli_table, .at = argv };
    const struct option_row *row;
    const char *text;
    while (!cli_only_prints(cli) || cli->version) {
        ddp_status status = options_next(&reader, &row, &text, err);
        if (cli->version && (row == NULL || row != &cli_rows[OPT_JSON]))
            break;
        if (status != DDP_OK)
            return row == NULL && strstr(err->msg, ": unknown option") != NULL
                       ? suggest_option(reader.at[-1], err)
                       : status;
        if (row == NULL)
            break;
        status = set_from_line(cli, (enum cli_option)(row - cli_rows), text, reader.spelled, err);
        if (status != DDP_OK)
            return status;
    }
    cli->program = *reader.at;
    cli->args = *reader.at != NULL ? reader.at + 1 : reader.at;
    return DDP_OK;
}

/* Replace each NAME of --env by its entry "NAME=VALUE" in the environment, so that this value overrides a value that
 * ddprun sets. With --virtual_local_rank, drop CUDA_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, because ddprun divides the
 * GPUs in these variables among the workers. Fail if the environment has no variable NAME. Without this check, the
 * workers would fail only after the start. */
static ddp_status read_env_names(struct cli *cli, char *const *block, struct ddp_err *err)
{
    size_t kept = 0;
    for (size_t i = 0; i < cli->env.n; i++) {
        const char *name = cli->env.items[i];
        const char *value = strchr(name, '=') == NULL ? env_find(block, name) : name;
        if (value == NULL)
            return ddp_fail(
                err, DDP_ERR_ARG,
                "--env=%.200s: ddprun's environment has no such variable; set this variable, or pass "
                "--env=%.200s=VALUE",
                name, name);
        if (value == name)
            cli->env.items[kept++] = name;
        else if (!cli->virtual_local_rank ||
                 (strcmp(name, "CUDA_VISIBLE_DEVICES") != 0 && strcmp(name, "HIP_VISIBLE_DEVICES") != 0))
            cli->env.items[kept++] = value - strlen(name) - 1;
    }
    cli->env.n = kept;
    return DDP_OK;
}

/* Read the three sources of values: defaults, PET_* variables, command line. A later source overrides an earlier
 * source. */
static ddp_status cli_read_all(struct cli *cli, char *const *argv, char *const *block, struct ddp_err *err)
{
    ddp_status status = read_defaults(cli, err);
    if (status == DDP_OK)
        status = read_environment(cli, block, err);
    if (status == DDP_OK)
        status = read_line(cli, argv, err);
    return status == DDP_OK ? read_env_names(cli, block, err) : status;
}

ddp_status cli_read(struct cli *cli, int argc, char *const *argv, char *const *block, struct ddp_err *err)
{
    const bool torchrun = argc > 0 && cli_is_torchrun(argv[0]);
    *cli = (struct cli){ .torchrun = torchrun, .rdzv_conf.lenient = torchrun };
    ddp_status status = cli_read_all(cli, argc > 0 ? argv + 1 : argv, block, err);
    if (status != DDP_OK)
        cli_free(cli);
    return status;
}

ddp_status cli_offer(struct cli *cli, enum cli_option option, const char *text, const char *from,
                     struct ddp_err *err)
{
    char spelled[SHOWN_MAX];
    snprintf(spelled, sizeof(spelled), "--%s (from %s)", cli_rows[option].name, from);
    ddp_status status = set_option(cli, option, text, spelled, err);
    if (status == DDP_OK)
        cli->origin[option] = FROM_SCHEDULER;
    return status;
}

void cli_free(struct cli *cli)
{
    free(cli->hosts);
    free(cli->tee.items);
    free(cli->redirects.items);
    free(cli->env.items);
    free(cli->env.names);
    free(cli->filters[0].items);
    free(cli->filters[1].items);
    rank_set_free(&cli->console_ranks);
    rank_set_free(&cli->input.ranks);
    *cli = (struct cli){ 0 };
}
