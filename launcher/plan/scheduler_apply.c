/* scheduler_apply.c -- from what the scheduler says to the command line, and whether the job was started the right way.
 *
 * The number of nodes is settled first, because with one node there is nowhere to meet: then neither rank nor address nor port
 * of the scheduler's are needed, and any free port will do.
 *
 *     finding               when                                                      exit
 *     WRONG_TASK_LAYOUT     more tasks than nodes, without --per_task                 2
 *     LAUNCHED_ON_ONE_NODE  several nodes, and we run where only the first one does   2, or a warning if that is not sure
 *     STEP_IS_SMALLER       the job has more nodes than were used to start us         a warning
 *     NNODES_NOT_LAUNCHED   --nnodes asks for more than were used to start us         a warning
 *
 * Who says what he wants (--standalone, or nodes and ranks by hand) is not told that it is wrong. */
#include "plan/scheduler_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool says_user(const struct cli *cli, enum cli_option option)
{
    return cli->origin[option] > FROM_SCHEDULER;
}

static int number_of(const struct scheduler *s, enum scheduler_value_id id)
{
    return atoi(s->values[id].text);
}

/* --- what the user has said otherwise ------------------------------------------------------------------- */

/* Names, addresses and ports are free to choose; a number that differs may be a slip. */
static void note_conflicts(struct scheduler *s, const struct cli *cli)
{
    const bool known_nodes = s->values[SCHEDULER_NODES].text[0] != '\0' && !cli->standalone;
    const bool known_rank = s->values[SCHEDULER_NODE_RANK].text[0] != '\0' && !cli_is_elastic(cli);
    const struct cli_nnodes *n = &cli->nnodes;
    if (known_nodes && says_user(cli, OPT_NNODES) && n->min == n->max &&
        n->max != number_of(s, SCHEDULER_NODES))
        scheduler_note(s, "--nnodes=%d counts, though %s says %s (%s)", n->max, s->title,
                       s->values[SCHEDULER_NODES].text, s->values[SCHEDULER_NODES].from);
    if (known_rank && says_user(cli, OPT_NODE_RANK) && cli->node_rank != number_of(s, SCHEDULER_NODE_RANK))
        scheduler_note(s, "--node_rank=%d counts, though %s says %s (%s)", cli->node_rank, s->title,
                       s->values[SCHEDULER_NODE_RANK].text, s->values[SCHEDULER_NODE_RANK].from);
    if (says_user(cli, OPT_NPROC_PER_NODE) && cli->nproc.kind == NPROC_NUMBER &&
        s->values[SCHEDULER_WORKERS].text[0] != '\0' && cli->nproc.count != number_of(s, SCHEDULER_WORKERS))
        scheduler_note(s, "--nproc_per_node=%d counts, though %s gives %s GPUs (%s)", cli->nproc.count,
                       s->title, s->values[SCHEDULER_WORKERS].text, s->values[SCHEDULER_WORKERS].from);
}

/* --- giving values -------------------------------------------------------------------------------------- */

/* Is there a use for it? */
static bool is_wanted(const struct cli *cli, enum scheduler_value_id id)
{
    const bool endpoint = says_user(cli, OPT_RDZV_ENDPOINT), meet = cli->nnodes.max > 1 && !cli->standalone;
    switch (id) {
    case SCHEDULER_NODES:
        return !cli->standalone;
    case SCHEDULER_NODE_RANK:
        return meet && !cli_is_elastic(cli);
    case SCHEDULER_ADDRESS:
    case SCHEDULER_PORT:
        return meet && !endpoint;
    case SCHEDULER_WORKERS:
    case SCHEDULER_JOB:
    case SCHEDULER_VALUE_COUNT:
        break;
    }
    return id != SCHEDULER_JOB || !cli->standalone;
}

/* What a worker of one task finds in its environment: where it really is, and not what the rendezvous takes it for. */
static void give_task(const struct scheduler *s, struct cli *cli)
{
    const struct scheduler_tasks *t = &s->tasks;
    if (cli->per_task)
        cli->task = (struct cli_task){
            .local_rank = t->local, .local_world_size = t->here, .node_rank = t->node, .nnodes = t->nodes
        };
}

/* --- findings ------------------------------------------------------------------------------------------- */

/* How one launcher for each node is started. */
static const char *one_each(const struct scheduler *s)
{
    static const char *const rows[][2] = {
        { "slurm", "srun --ntasks-per-node=1 ddprun" }, { "openmpi", "mpirun --map-by ppr:1:node ddprun" },
        { "hydra", "mpiexec -ppn 1 ddprun" },           { "pbs", "pbsdsh -u -- ddprun" },
        { "lsf", "blaunch -z \"$LSB_HOSTS\" ddprun" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(s->name, rows[i][0]) == 0)
            return rows[i][1];
    return "ddprun";
}

static void find_tasks(struct scheduler *s)
{
    const struct scheduler_tasks *t = &s->tasks;
    char words[SCHEDULER_WORDS_MAX];
    snprintf(words, sizeof(words),
             "%s has started %d ddprun on %d node%s (%s), %d of them here: each would start all workers of "
             "its node",
             s->title, t->tasks, t->nodes, t->nodes == 1 ? "" : "s", s->values[SCHEDULER_JOB].text, t->here);
    finding_make(&s->finding.found, FINDING_WRONG_TASK_LAYOUT, s->values[SCHEDULER_JOB].text, "words", words,
                 NULL);
    s->finding.fatal = true;
}

/* The others are about numbers of nodes: how many there are, and where a launcher was started. */
static void find_nodes(struct scheduler *s, enum finding_code code, int nodes)
{
    const char *const who = s->reach == REACH_ONE
                                ? "the batch script or shell that has started this ddprun runs"
                                : "a batch script runs";
    const char *const job = s->values[SCHEDULER_JOB].text;
    char count[16], launched[16], subject[SCHEDULER_TEXT_MAX];
    snprintf(count, sizeof(count), "%d", nodes);
    snprintf(launched, sizeof(launched), "%d", s->tasks.nodes);
    snprintf(subject, sizeof(subject), "job %.120s", job[0] != '\0' ? job : "of this user");
    finding_make(&s->finding.found, code, subject, "scheduler", s->title, "count", count, "launched",
                 launched, "who", who, "launch", one_each(s), NULL);
    s->finding.fatal = code == FINDING_LAUNCHED_ON_ONE_NODE && s->reach == REACH_ONE;
}

/* Each of them would start all workers of the node. */
static bool is_wrong_layout(const struct scheduler *s, const struct cli *cli)
{
    const struct scheduler_tasks *t = &s->tasks;
    const bool by_hand = cli->standalone || says_user(cli, OPT_NODE_RANK) ||
                         (says_user(cli, OPT_NNODES) && cli->nnodes.max == t->tasks);
    return t->known && t->tasks > t->nodes && !cli->per_task && !by_hand;
}

static void find(struct scheduler *s, const struct cli *cli)
{
    const struct scheduler_tasks *t = &s->tasks;
    const int nodes = number_of(s, SCHEDULER_NODES);
    const bool said = cli->standalone || says_user(cli, OPT_NNODES) || says_user(cli, OPT_NODE_RANK);
    s->finding.mine = !t->known || t->local == 0;
    if (is_wrong_layout(s, cli))
        find_tasks(s);
    else if (s->reach != REACH_ALL && nodes > 1 && !said && !cli->per_task)
        find_nodes(s, FINDING_LAUNCHED_ON_ONE_NODE, nodes);
    else if (t->known && s->job_nodes > t->nodes && !said)
        find_nodes(s, FINDING_STEP_IS_SMALLER, s->job_nodes);
    else if (t->known && !cli->per_task && says_user(cli, OPT_NNODES) && cli->nnodes.min > t->tasks)
        find_nodes(s, FINDING_NNODES_NOT_LAUNCHED, cli->nnodes.min);
}

ddp_status scheduler_apply(struct scheduler *s, struct cli *cli, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (s->kind < 0)
        return DDP_OK;
    note_conflicts(s, cli);
    for (int i = 0; i < SCHEDULER_VALUE_COUNT && status == DDP_OK; i++) {
        const struct scheduler_value *v = &s->values[i];
        if (v->text[0] != '\0' && !says_user(cli, scheduler_options[i]) &&
            is_wanted(cli, (enum scheduler_value_id)i))
            status = cli_offer(cli, scheduler_options[i], v->text, v->from, err);
    }
    give_task(s, cli);
    find(s, cli);
    if (s->restarts > 0)
        scheduler_note(s, "%s has started this job again (%d time%s)", s->title, s->restarts,
                       s->restarts == 1 ? "" : "s");
    return status;
}
