/* plan_make.c -- see plan.h. The order of decisions: how many workers, what the job is called, where it meets,
 * where output goes, and last each worker's command. What cannot be is refused here, before anything is
 * started. */
#include "plan/plan_parts.h"

#include "plan/program.h"

#include <stdlib.h>
#include <string.h>

/* --- workers and the place to meet ---------------------------------------------------------------------- */

/* The number of workers comes first, everything else depends on it. */
static ddp_status plan_workers(struct plan *plan, struct ddp_err *err)
{
    const struct plan_facts *facts = plan->facts;
    plan->gpus = malloc(sizeof(*plan->gpus));
    if (plan->gpus == NULL)
        return DDP_ERR_NOMEM;
    gpus_list(plan->gpus, env_find(facts->environ_block, "CUDA_VISIBLE_DEVICES"), facts->physical_gpus);
    if (plan->gpus->note[0] != '\0')
        plan_note(plan, "%s", plan->gpus->note);
    ddp_status status =
        gpus_workers(plan->gpus, plan->cli->nproc, plan->cli->share_gpu, facts->cpus, &plan->nproc, err);
    if (status != DDP_OK)
        return status;
    plan->workers = calloc((size_t)plan->nproc, sizeof(*plan->workers));
    return plan->workers != NULL ? DDP_OK : DDP_ERR_NOMEM;
}

/* --- output --------------------------------------------------------------------------------------------- */

/* A rank that does not exist is a typing error, and what is typed would be lost. */
static ddp_status check_input(const struct plan *plan, struct ddp_err *err)
{
    char why[PLAN_RANKS_WORDS];
    return plan_lacks_rank(plan, "stdin", rank_set_highest(&plan->cli->input.ranks), why)
               ? ddp_fail(err, DDP_ERR_ARG, "%s", why)
               : DDP_OK;
}

/* Other tasks of the scheduler's write to the same console, or file. */
static bool shares_console(const struct plan *plan)
{
    const struct scheduler *s = plan->facts->scheduler;
    return s != NULL && s->tasks.known && s->tasks.tasks > 1 && !plan->cli->standalone;
}

static bool tees(const struct plan *plan)
{
    for (int r = 0; r < plan->nproc; r++)
        if (std_map_get(&plan->cli->tee, r) != 0)
            return true;
    return false;
}

/* Counted by who writes to the console, not by who runs: with all but one redirected a prefix says nothing. */
static bool needs_prefix(const struct plan *plan)
{
    int writers = 0;
    for (int r = 0; r < plan->nproc; r++)
        writers += plan->workers[r].out.console || plan->workers[r].err.console;
    if (plan->cli->prefix != PREFIX_AUTO)
        return plan->cli->prefix == PREFIX_ON;
    if (plan->cli->torchrun) /* it passes output on as it is, but for what it tees */
        return tees(plan);
    return writers > 1 || (writers == 1 && shares_console(plan)) ||
           plan->cli->origin[OPT_PREFIX_TEMPLATE] == FROM_COMMAND_LINE ||
           plan->cli->origin[OPT_TIMESTAMPS] == FROM_COMMAND_LINE;
}

bool plan_stream_has_prefix(const struct plan *plan, int local_rank, int which)
{
    const bool tees_only = plan->cli->torchrun && plan->cli->prefix == PREFIX_AUTO;
    return plan->prefix && (!tees_only || (std_map_get(&plan->cli->tee, local_rank) & which) != 0);
}

/* The option, else torchrun's variable, else ours. A wrong one is refused now and not found in the logs. */
static ddp_status plan_prefix(struct plan *plan, struct ddp_err *err)
{
    const struct cli *cli = plan->cli;
    struct ddp_err why;
    const char *from = "--log_line_prefix_template", *template = cli->prefix_template;
    if (template == NULL) {
        from = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
        template = env_find(plan->facts->environ_block, from);
    }
    if (template == NULL || *template == '\0')
        template = cli->torchrun ? "[${role_name}${local_rank}]:" : "[${rank}] ";
    ddp_status status = cli->timestamps ? prefix_add(&plan->line_prefix, "${time} ", &why) : DDP_OK;
    if (status == DDP_OK)
        status = prefix_add(&plan->line_prefix, template, &why);
    return status == DDP_OK ? status : ddp_fail(err, status, "%s=%.60s: %s", from, template, why.msg);
}

/* --- all workers ---------------------------------------------------------------------------------------- */

/* LOCAL_RANK is the index, as everywhere. */
static const char *task_gpu(const struct plan *plan)
{
    const int local = plan->cli->task.local_rank;
    return local < plan->gpus->n ? plan->gpus->names[local] : NULL;
}

/* More workers than GPUs share them, or are a CPU job. */
static const char *worker_gpu(const struct plan *plan, int local_rank)
{
    const struct gpu_list *gpus = plan->gpus;
    if (plan->cli->share_gpu && gpus->n > 0)
        return gpus->names[local_rank % gpus->n];
    return plan->nproc <= gpus->n ? gpus->names[local_rank] : NULL;
}

/* torchrun's reading, which is the text and not what CUDA makes of it: HIP's variable when there is one, else CUDA's,
 * and the local rank itself where nothing is set. */
static const char *parent_gpus(const struct plan *plan)
{
    const char *hip = env_find(plan->facts->environ_block, "HIP_VISIBLE_DEVICES");
    return hip != NULL && *hip != '\0' ? hip : env_find(plan->facts->environ_block, "CUDA_VISIBLE_DEVICES");
}

static ddp_status check_visible(const struct plan *plan, struct ddp_err *err)
{
    const char *list = plan->cli->virtual_local_rank ? parent_gpus(plan) : NULL;
    int entries = 1;
    for (const char *p = list; p != NULL && *p != '\0'; p++)
        entries += *p == ',';
    if (list == NULL || entries >= plan->nproc)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG,
                    "--virtual_local_rank gives each of %d workers one entry of CUDA_VISIBLE_DEVICES, but "
                    "\"%.200s\" has %d; set more, or start fewer workers",
                    plan->nproc, list, entries);
}

/* The worker's entry of the list, which check_visible has counted. */
static bool plan_visible_gpu(const struct plan *plan, struct plan_worker *w)
{
    const char *at = parent_gpus(plan);
    if (at == NULL) {
        w->visible = plan_text_of("%d", w->local_rank);
        return w->visible != NULL;
    }
    for (int i = 0; i < w->local_rank; i++)
        at += strcspn(at, ",") + 1;
    at += strspn(at, " \t");
    size_t len = strcspn(at, ",");
    while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t'))
        len--;
    w->visible = plan_text_of("%.*s", (int)len, at);
    return w->visible != NULL;
}

static ddp_status plan_cpus(struct plan *plan, struct ddp_err *err)
{
    const struct cli *cli = plan->cli;
    ddp_status status = DDP_OK;
    for (int r = 0; r < plan->nproc && cli->numa_binding != NUMA_NONE && status == DDP_OK; r++)
        status = numa_choose(cli->numa_binding, plan->facts->numa, plan->gpus,
                             cli->per_task ? cli->task.local_rank : r, &plan->workers[r].cpus, err);
    return status;
}

/* Commands differ between workers only where an argument names the local rank. The round is a guess; it finds a wrong
 * pattern of file names before anybody waits. */
static ddp_status plan_each(struct plan *plan, struct ddp_err *err)
{
    const char *python = env_find(plan->facts->environ_block, "PYTHON_EXEC");
    const struct plan_round first = plan_same_round(plan, 0);
    plan->script = program_script(plan->cli, python);
    for (int r = 0; r < plan->nproc; r++) {
        struct plan_worker *w = &plan->workers[r];
        w->local_rank = r;
        w->gpu = worker_gpu(plan, r);
        if (plan->cli->per_task)
            w->gpu = task_gpu(plan);
        if (plan->cli->virtual_local_rank && !plan_visible_gpu(plan, w))
            return DDP_ERR_NOMEM;
        w->argv = program_argv(plan->cli, python, plan->cli->per_task ? plan->cli->task.local_rank : r);
        if (w->argv == NULL)
            return DDP_ERR_NOMEM;
    }
    ddp_status status = plan_cpus(plan, err);
    if (status == DDP_OK)
        status = plan_round(plan, &first, err);
    plan->prefix = needs_prefix(plan);
    return status;
}

/* Usage errors come before anything that costs memory per worker. */
static ddp_status decide(struct plan *plan, struct ddp_err *err)
{
    ddp_status status = plan_workers(plan, err);
    if (status == DDP_OK && cli_gives(plan->cli, OPT_STDIN) && plan->cli->nnodes.max == 1)
        status = check_input(plan, err);
    if (status == DDP_OK)
        status = check_visible(plan, err);
    if (status == DDP_OK)
        status = plan_prefix(plan, err);
    if (status == DDP_OK)
        status = plan_check_tmp_dir(plan, err);
    if (status == DDP_OK && (!plan_meet(plan) || !plan_log_root(plan)))
        status = DDP_ERR_NOMEM;
    if (status == DDP_OK)
        status = plan_each(plan, err);
    if (status == DDP_OK)
        status = plan_environment(plan);
    plan_note_idle(plan);
    return status == DDP_ERR_NOMEM ? ddp_fail(err, status, "out of memory for %d workers", plan->nproc)
                                   : status;
}

ddp_status plan_make(struct plan *plan, const struct cli *cli, const struct plan_facts *facts,
                     struct ddp_err *err)
{
    *plan = (struct plan){ .cli = cli, .facts = facts };
    ddp_status status = decide(plan, err);
    if (status != DDP_OK)
        plan_free(plan);
    return status;
}
