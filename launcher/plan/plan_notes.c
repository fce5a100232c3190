/* plan_notes.c -- sentences for the user about the plan: what was asked for and does nothing here, and what follows
 * from what was not said. None of them stops the job. */
#include "plan/plan_parts.h"

#include <stdio.h>
#include <string.h>

#define FILTERS_NEED "it is about lines that --tee writes to files"

/* On the command line only: a default of the site in PET_LOG_ROTATE is no mistake of a job without files. */
static void note_idle(struct plan *plan, enum cli_option option, const char *name, const char *needs)
{
    if (plan->cli->origin[option] == FROM_COMMAND_LINE)
        plan_note(plan, "--%s does nothing here: %s", name, needs);
}

static void note_files(struct plan *plan)
{
    if (!plan_any_file(plan))
        note_idle(plan, OPT_LOG_ROTATE, "log_rotate",
                  "there are no log files; --log_dir or --log_file makes them");
    if (plan->log_root == NULL || !cli_gives(plan->cli, OPT_TEE)) {
        note_idle(plan, OPT_STDOUT_FILTERS, "duplicate_stdout_filters", FILTERS_NEED);
        note_idle(plan, OPT_STDERR_FILTERS, "duplicate_stderr_filters", FILTERS_NEED);
    }
    if (plan->cli->log_file == NULL)
        note_idle(plan, OPT_LOG_MERGE, "log_merge", "it is about files that --log_file names");
}

bool plan_lacks_rank(const struct plan *plan, const char *option, int highest, char words[PLAN_RANKS_WORDS])
{
    if (highest < plan->nproc)
        return false;
    snprintf(words, PLAN_RANKS_WORDS,
             "--%s names local rank %d, but there %s %d worker%s on this node (0 to %d)", option, highest,
             plan->nproc == 1 ? "is" : "are", plan->nproc, plan->nproc == 1 ? "" : "s", plan->nproc - 1);
    return true;
}

/* No error: torchrun takes it, and one command line may serve nodes of different sizes. */
static void note_ranks(struct plan *plan)
{
    const struct {
        const char *option;
        int highest;
    } named[] = { { "tee", std_map_highest(&plan->cli->tee) },
                  { "redirects", std_map_highest(&plan->cli->redirects) },
                  { "local_ranks_filter", rank_set_highest(&plan->cli->console_ranks) } };
    char words[PLAN_RANKS_WORDS];
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (plan_lacks_rank(plan, named[i].option, named[i].highest, words))
            plan_note(plan, "%s", words);
}

static void note_nodes(struct plan *plan)
{
    const struct cli_rdzv_conf *conf = &plan->cli->rdzv_conf;
    if (plan->meeting.elastic)
        note_idle(plan, OPT_NODE_RANK, "node_rank", "the rendezvous numbers the nodes of an elastic job");
    else
        note_idle(plan, OPT_GROW, "grow", "a static job has all its nodes from the start");
    if (plan->cli->standalone)
        note_idle(plan, OPT_RDZV_ENDPOINT, "rdzv_endpoint", "--standalone is a job of this node alone");
    if (conf->idle != NULL)
        plan_note(plan, "%s in --rdzv_conf does nothing here: %s", conf->idle, conf->idle_why);
    if (conf->unknown[0] != '\0')
        plan_note(plan, "'%s' in --rdzv_conf does nothing: neither torchrun nor ddprun has such a key",
                  conf->unknown);
}

/* PET_STRATEGY and the like: torchrun would read it, this version cannot. The user should know. */
static void note_idle_default(struct plan *plan)
{
    const char *option;
    const char *entry = cli_idle_pet(plan->facts->environ_block, &option);
    const int len = entry != NULL ? (int)strcspn(entry, "=") : 0;
    if (entry != NULL && option != NULL)
        plan_note(plan, "%.*s is set, but --%s is only read from the command line", len, entry, option);
    else if (entry != NULL)
        plan_note(plan, "%.*s is set, but this version has no such option", len, entry);
}

/* A dry run shows ranks that nobody has given out yet. */
static void note_guess(struct plan *plan)
{
    if (plan->settled || !plan->cli->dry_run)
        return;
    if (plan->meeting.elastic)
        plan_note(plan,
                  "ranks, sizes and what is named after them come from the rendezvous; shown as on a first "
                  "node");
    else
        plan_note(plan, "ranks are right if each of the %d nodes brings %d worker%s",
                  plan->meeting.nnodes_max, plan->nproc, plan->nproc == 1 ? "" : "s");
}

/* What the scheduler says and the user does not, and what looks wrong about how we were started. */
static void note_scheduler(struct plan *plan)
{
    const struct scheduler *s = plan->facts->scheduler;
    for (int i = 0; s != NULL && i < SCHEDULER_NOTES_MAX && s->notes[i][0] != '\0'; i++)
        plan_note(plan, "%s", s->notes[i]);
    if (s != NULL && s->finding.found.code != FINDING_NONE && s->finding.mine)
        plan_note(plan, "%s; %s [%s]", s->finding.found.sentence, s->finding.found.advice,
                  finding_code_name(s->finding.found.code));
}

/* A task that is shown one GPU sees it as number 0, whatever its local rank is: the classic of one process for each GPU. */
static void note_task_gpu(struct plan *plan)
{
    const int local = plan->cli->task.local_rank;
    if (plan->cli->per_task && plan->gpus->n > 0 && local >= plan->gpus->n)
        plan_note(plan,
                  "this task sees %d GPU%s, but its LOCAL_RANK is %d: a program that takes GPU LOCAL_RANK "
                  "finds none; let "
                  "all tasks of a node see all its GPUs (Slurm: --gpus-per-node, and not --gpus-per-task)",
                  plan->gpus->n, plan->gpus->n == 1 ? "" : "s", local);
}

/* Said and not refused: a script that always passes an option need not know whether it does anything today. */
void plan_note_idle(struct plan *plan)
{
    note_files(plan);
    note_ranks(plan);
    note_nodes(plan);
    note_idle_default(plan);
    note_scheduler(plan);
    note_task_gpu(plan);
    note_guess(plan);
}
