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

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool says_user(const struct cli *cli, enum cli_option option)
{
    return cli->origin[option] > FROM_SCHEDULER;
}

static void note(struct scheduler *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct scheduler *s, const char *fmt, ...)
{
    va_list ap;
    int i = 0;
    while (i < SCHEDULER_NOTES_MAX && s->notes[i][0] != '\0')
        i++;
    if (i == SCHEDULER_NOTES_MAX)
        return;
    va_start(ap, fmt);
    vsnprintf(s->notes[i], sizeof(s->notes[i]), fmt, ap);
    va_end(ap);
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
        note(s, "--nnodes=%d counts, though %s says %s (%s)", n->max, s->title,
             s->values[SCHEDULER_NODES].text, s->values[SCHEDULER_NODES].from);
    if (known_rank && says_user(cli, OPT_NODE_RANK) && cli->node_rank != number_of(s, SCHEDULER_NODE_RANK))
        note(s, "--node_rank=%d counts, though %s says %s (%s)", cli->node_rank, s->title,
             s->values[SCHEDULER_NODE_RANK].text, s->values[SCHEDULER_NODE_RANK].from);
    if (says_user(cli, OPT_NPROC_PER_NODE) && cli->nproc.kind == NPROC_NUMBER &&
        s->values[SCHEDULER_WORKERS].text[0] != '\0' && cli->nproc.count != number_of(s, SCHEDULER_WORKERS))
        note(s, "--nproc_per_node=%d counts, though %s gives %s GPUs (%s)", cli->nproc.count, s->title,
             s->values[SCHEDULER_WORKERS].text, s->values[SCHEDULER_WORKERS].from);
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

static void find(struct scheduler *s, const char *code, bool fatal, const char *words, ...)
    __attribute__((format(printf, 4, 5)));
static void find(struct scheduler *s, const char *code, bool fatal, const char *words, ...)
{
    struct scheduler_finding *f = &s->finding;
    va_list ap;
    f->code = code;
    f->fatal = fatal;
    f->mine = !s->tasks.known || s->tasks.local == 0;
    va_start(ap, words);
    vsnprintf(f->words, sizeof(f->words), words, ap);
    va_end(ap);
}

static void advise(struct scheduler *s, const char *advice, ...) __attribute__((format(printf, 2, 3)));
static void advise(struct scheduler *s, const char *advice, ...)
{
    va_list ap;
    va_start(ap, advice);
    vsnprintf(s->finding.advice, sizeof(s->finding.advice), advice, ap);
    va_end(ap);
}

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

/* Each of them would start all workers of the node. */
static bool is_wrong_layout(const struct scheduler *s, const struct cli *cli)
{
    const struct scheduler_tasks *t = &s->tasks;
    const bool by_hand = cli->standalone || says_user(cli, OPT_NODE_RANK) ||
                         (says_user(cli, OPT_NNODES) && cli->nnodes.max == t->tasks);
    return t->known && t->tasks > t->nodes && !cli->per_task && !by_hand;
}

static void find_layout(struct scheduler *s, const struct cli *cli)
{
    const struct scheduler_tasks *t = &s->tasks;
    const int nodes = number_of(s, SCHEDULER_NODES);
    const char *job = s->values[SCHEDULER_JOB].text;
    const bool said = cli->standalone || says_user(cli, OPT_NNODES) || says_user(cli, OPT_NODE_RANK);
    if (is_wrong_layout(s, cli)) {
        find(s, "WRONG_TASK_LAYOUT", true,
             "%s has started %d ddprun on %d node%s (%s), %d of them here: each would start all workers of "
             "its "
             "node",
             s->title, t->tasks, t->nodes, t->nodes == 1 ? "" : "s", job, t->here);
        advise(
            s,
            "one ddprun for each node, which starts the workers itself: '%s ...'; or 'ddprun --per_task ...' "
            "to run one worker in each task",
            one_each(s));
    } else if (s->reach != REACH_ALL && nodes > 1 && !said && !cli->per_task) {
        find(s, "LAUNCHED_ON_ONE_NODE", s->reach == REACH_ONE,
             "%s has given this job %d nodes (%s), but %s only on the first of them", s->title, nodes, job,
             s->reach == REACH_ONE ? "this ddprun was started by the batch script or a shell, which runs"
                                   : "a batch script runs");
        advise(s, "'%s ...' starts one on each node; --nnodes=1 says that this node is enough", one_each(s));
    } else if (t->known && s->job_nodes > t->nodes && !said) {
        find(s, "STEP_IS_SMALLER", false,
             "%s has given this job %d nodes (%s), but has started ddprun on %d of them", s->title,
             s->job_nodes, job, t->nodes);
        advise(s, "'%s ...' starts one on each node (look for --ntasks=1); --nnodes=%d says that it is meant",
               one_each(s), t->nodes);
    } else if (t->known && !cli->per_task && !cli->standalone && says_user(cli, OPT_NNODES) &&
               cli->nnodes.min > t->tasks) {
        find(s, "NNODES_NOT_LAUNCHED", false, "--nnodes=%d, but %s has started ddprun on %d node%s (%s)",
             cli->nnodes.min, s->title, t->nodes, t->nodes == 1 ? "" : "s", job);
        advise(s, "ask %s for %d nodes, or leave --nnodes out", s->title, cli->nnodes.min);
    }
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
    find_layout(s, cli);
    if (s->restarts > 0)
        note(s, "%s has started this job again (%d time%s)", s->title, s->restarts,
             s->restarts == 1 ? "" : "s");
    return status;
}
