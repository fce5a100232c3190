/* plan_meeting.c -- where, when and how the nodes meet, from the options alone.
 *
 *     nodes       backend   port    budget                          ranks
 *     1           -         29500   -                               known
 *     N           static    29500   --timeout, rdzv_conf, 900 s     by --node_rank
 *     MIN:MAX     c10d      29400   --timeout, rdzv_conf, 600 s     by the rendezvous
 *
 * --rdzv_endpoint replaces address and port of the table. The defaults are torchrun's.
 *
 * Nothing is looked up or opened here: --dry_run and the tests get the same answers as a real start. */
#include "base/limits.h"
#include "plan/plan_parts.h"
#include "plan/program.h"

#include <stdio.h>
#include <string.h>

#define RANK0_SWITCH "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"

enum { STATIC_JOIN_MS = 900000, ELASTIC_JOIN_MS = 600000, LAST_CALL_MS = 30000, KEEP_ALIVE_ATTEMPTS = 3 };

/* --standalone wins over an endpoint, as with torchrun. */
static bool has_endpoint(const struct cli *cli)
{
    return cli->endpoint.host[0] != '\0' && !cli->standalone;
}

/* A port that nobody asked for may be exchanged for a free one when nobody else has to know it; one that was
 * asked for is obeyed or refused. */
static void choose_place(struct plan_meeting *m, const struct cli *cli)
{
    const bool endpoint = has_endpoint(cli), port_given = cli_gives(cli, OPT_MASTER_PORT);
    m->host = endpoint ? cli->endpoint.host : cli->master_addr;
    if (endpoint && cli->endpoint.port >= 0)
        m->port = cli->endpoint.port;
    else if (port_given || !endpoint || !m->elastic)
        m->port = cli->standalone && !port_given ? 0 : cli->master_port;
    else
        m->port = RDZV_DEFAULT_PORT;
    m->elsewhere = endpoint || m->nnodes_max > 1;
    m->port_may_change = !port_given && !m->elsewhere;
}

/* Whoever says --timeout means that, else torchrun's key, else torchrun's default. The knob's name goes
 * along, since every message about this time must name the option that would change it. Torchrun speaks of
 * intervals and attempts where we have one time: their product. With any free port the job begins at once, because no other node
 * can know the port yet. */
static void choose_times(struct plan_meeting *m, const struct cli *cli)
{
    const struct cli_rdzv_conf *conf = &cli->rdzv_conf;
    const int attempts = conf->keep_alive_attempts > 0 ? conf->keep_alive_attempts : KEEP_ALIVE_ATTEMPTS;
    m->join_ms = m->elastic ? ELASTIC_JOIN_MS : STATIC_JOIN_MS;
    m->join_knob = "--timeout";
    if (cli->timeout_ms > 0) {
        m->join_ms = cli->timeout_ms;
    } else if (conf->join_ms > 0) {
        m->join_ms = conf->join_ms;
        m->join_knob = m->elastic ? "--rdzv_conf join_timeout" : "--rdzv_conf timeout";
    }
    m->last_call_ms = conf->last_call_ms > 0 ? conf->last_call_ms : m->port == 0 ? 0 : LAST_CALL_MS;
    m->node_timeout_ms = cli->node_timeout_ms;
    if (conf->keep_alive_ms > 0 && !cli_gives(cli, OPT_NODE_TIMEOUT))
        m->node_timeout_ms = conf->keep_alive_ms * (uint64_t)attempts;
}

/* Nodes of one job run one program; where it lies and its arguments may differ from node to node. A name
 * that is longer than its room is cut, the same on every node. */
static void name_program(const struct cli *cli, char text[PLAN_PROGRAM_SIZE])
{
    const char *slash = cli->program != NULL ? strrchr(cli->program, '/') : NULL;
    const char *name = slash != NULL ? slash + 1 : cli->program;
    snprintf(text, PLAN_PROGRAM_SIZE, "%s", name != NULL ? name : "");
}

/* Before anybody has met: one node is alone; the nodes of a static job know their places, if all bring as many
 * workers as this one; an elastic one looks as on its first node. */
static void guess(struct plan *plan)
{
    const struct plan_meeting *m = &plan->meeting;
    plan->nnodes = m->nnodes_max;
    plan->node_rank = m->node_rank > 0 ? m->node_rank : 0;
    plan->world_size = plan->nproc * plan->nnodes;
    plan->settled = m->nnodes_max == 1;
    plan->master_port = m->port;
    snprintf(plan->master_addr, sizeof(plan->master_addr), "%s", m->host);
}

/* Of torchrun's defaults "none" is one, too, but for a node that meets nobody and names no port. */
static const char *made_up_name(const struct plan *plan)
{
    const struct cli *cli = plan->cli;
    const bool named_place =
        cli_gives(cli, OPT_MASTER_PORT) || cli_gives(cli, OPT_RDZV_ENDPOINT) || cli->backend == BACKEND_C10D;
    if (plan->meeting.nnodes_max > 1 || (cli->torchrun && named_place && !cli->standalone))
        return "none";
    return plan->facts->nonce;
}

/* torchrun's switch for the same; there it needs no reason. It is often set for a whole cluster, so it means programs that may
 * have a PyTorch: others need the launcher's store. */
static bool asks_for_rank0(const struct plan *plan)
{
    const struct cli *cli = plan->cli;
    char *const *inherited = plan->facts->environ_block;
    const struct env_sources env = { cli->env.items, cli->env.n, inherited };
    const char *disabled = env_sources_find(&env, RANK0_SWITCH);
    return !cli_gives(cli, OPT_TORCH_STORE) && disabled != NULL && strcmp(disabled, "1") == 0 &&
           program_python(cli, env_find(inherited, "PYTHON_EXEC")) != NULL;
}

/* A PyTorch that refuses our store would fail before it says a word to it. */
static void choose_worker_store(struct plan *plan)
{
    const struct torch_look *torch = plan->facts->torch;
    const bool refuses = plan->cli->torch_store == TORCH_STORE_AUTO && torch != NULL && torch->refuses_stores;
    const bool asked = asks_for_rank0(plan);
    plan->rank0_store = plan->cli->torch_store == TORCH_STORE_RANK0 || asked || refuses;
    if (asked && !refuses)
        plan_note(plan, "%s=1 is set, so rank 0 hosts a store for the workers (--torch_store)", RANK0_SWITCH);
    if (!refuses)
        return;
    plan_note(
        plan,
        "PyTorch %s in %s was built without libuv and refuses the launcher's store, so rank 0 hosts one for "
        "the workers (--torch_store)",
        torch->version, torch->dir);
}

/* Several nodes must call their job the same without being told; "none" is torchrun's name for it. One node
 * needs no name that others know, and gets one of its own: two jobs of one user on one machine are then
 * told apart. */
bool plan_meet(struct plan *plan)
{
    const struct cli *cli = plan->cli;
    struct plan_meeting *m = &plan->meeting;
    const struct cli_rdzv_conf *conf = &cli->rdzv_conf;
    m->nnodes_min = cli->nnodes.min;
    m->nnodes_max = cli->nnodes.max;
    m->elastic = cli_is_elastic(cli);
    m->node_rank = m->nnodes_max == 1 ? 0 : m->elastic ? -1 : cli->node_rank;
    m->host_store = cli->host_store != HOST_STORE_AUTO ? cli->host_store : conf->is_host;
    choose_place(m, cli);
    choose_times(m, cli);
    name_program(cli, m->program);
    choose_worker_store(plan);
    guess(plan);
    plan->job = plan_text_of("%s", cli->job != NULL ? cli->job : made_up_name(plan));
    return plan->job != NULL;
}
