/* plan_env.c -- the environments of the workers: what all of them have is put together once, what differs is added when
 * one is started. */
#include "plan/plan_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* To the rendezvous a task is a node; its worker is told the places of machines, as in every other job. */
static void tell_task(struct env_facts *facts, const struct cli_task *task)
{
    facts->local_world_size = task->local_world_size;
    facts->node_rank = task->node_rank;
    facts->nnodes = task->nnodes;
}

/* A dry run offers no port, and shows what would follow from one. */
static bool has_rank0_store(const struct plan *plan)
{
    return plan->rank0_port != 0 || (plan->cli->dry_run && plan->rank0_store);
}

/* Theirs is the launcher's store, or one that rank 0 hosts beside it. */
static void tell_rank0_store(struct env_facts *facts, const struct plan *plan)
{
    if (!has_rank0_store(plan))
        return;
    facts->rank0_store = true;
    facts->master_port = plan->rank0_port;
    if (plan->rank0_addr[0] != '\0')
        facts->master_addr = plan->rank0_addr;
}

/* What differs between the workers of a node. */
static void tell_worker(struct env_facts *facts, const struct plan *plan, int local_rank)
{
    const struct plan_worker *w = &plan->workers[local_rank];
    facts->rank = w->rank;
    facts->local_rank = w->visible != NULL    ? 0
                        : plan->cli->per_task ? plan->cli->task.local_rank
                                              : w->local_rank;
    facts->role_rank = plan->role_rank + local_rank;
    facts->visible = w->visible;
    facts->error_file = w->error_file;
    facts->flight = plan->flight;
    struct flight_page page = plan->page;
    page.index = (uint64_t)local_rank;
    if (page.pid != 0)
        flight_page_print(facts->page, &page);
    facts->terminal = plan->facts->terminal && w->err.console && !plan->cli->json;
}

/* Made anew for each block, because the port becomes known only after the plan is made. */
static struct env_facts facts_of(const struct plan *plan, int local_rank)
{
    struct env_facts facts = { .world_size = plan->world_size,
                               .role_size = plan->role_size,
                               .local_world_size = plan->nproc,
                               .node_rank = plan->node_rank,
                               .nnodes = plan->nnodes,
                               .restart_count = plan->restarts,
                               .attempt = plan->attempt,
                               .max_restarts = plan->cli->max_restarts,
                               .master_addr = plan->master_addr,
                               .master_port = plan->master_port,
                               .job = plan->job,
                               .role = plan->cli->role,
                               .signals = plan->stop_signals,
                               .timer_file = plan->timer_file,
                               .cookie = plan->facts->cookie,
                               .share_gpu = plan->cli->share_gpu,
                               .timeout_ms = plan->cli->timeout_ms };
    tell_rank0_store(&facts, plan);
    if (plan->cli->per_task)
        tell_task(&facts, &plan->cli->task);
    tell_worker(&facts, plan, local_rank);
    env_facts_inherit(&facts, plan->facts->environ_block, plan->cli->env.items, plan->cli->env.n);
    return facts;
}

/* torchrun's file timer is asked for by a variable. Its FIFO lies beside the workers' error files, and goes with them. */
static bool plan_timer_file(struct plan *plan)
{
    const struct plan_facts *f = plan->facts;
    const char *enabled = env_find(f->environ_block, "TORCHELASTIC_ENABLE_FILE_TIMER");
    const char *named = env_find(f->environ_block, worker_env_name(ENV_TORCHELASTIC_TIMER_FILE));
    if (enabled == NULL || strcmp(enabled, "1") != 0)
        return true;
    if (named != NULL && *named != '\0')
        plan->timer_file = plan_text_of("%s", named);
    else if (f->error_stem != NULL)
        plan->timer_file = plan_text_of("%s.timer", f->error_stem);
    else if (f->tmp_dir == NULL)
        return true; /* no directory is safe for it: there are no timers */
    else
        plan->timer_file = plan_text_of("%s/watchdog_timer_%s", f->tmp_dir, f->nonce);
    return plan->timer_file != NULL;
}

/* torchrun prints a banner when it sets OMP_NUM_THREADS; so do we, since slow CPU work is often blamed on us. */
ddp_status plan_environment(struct plan *plan)
{
    char *const *inherited = plan->facts->environ_block;
    struct buf signals = { 0 };
    if (!plan_timer_file(plan) || !signals_print(plan->cli->stop_signals, &signals)) {
        buf_free(&signals);
        return DDP_ERR_NOMEM;
    }
    plan->stop_signals = (char *)signals.data;
    struct env_facts facts = facts_of(plan, 0);
    if (facts.set_omp && plan->cli->task.local_rank == 0) /* of several tasks on a node one says it */
        plan_note(
            plan,
            "OMP_NUM_THREADS is not set, so each of the %d workers gets OMP_NUM_THREADS=1; set it to let "
            "them use more threads",
            facts.local_world_size);
    return env_base_init(&plan->env, &facts, inherited, plan->cli->env.items, plan->cli->env.n)
               ? DDP_OK
               : DDP_ERR_NOMEM;
}

static const char *own_flight(const struct plan *plan)
{
    const struct env_sources sources = { plan->cli->env.items, plan->cli->env.n, plan->facts->environ_block };
    const char *value = env_sources_find(&sources, worker_env_name(ENV_DDP_FLIGHT_RECORDER));
    return value != NULL && *value != '\0' ? value : NULL;
}

const char *plan_flight(const struct plan *plan)
{
    const char *own = own_flight(plan);
    return own != NULL ? own : plan->flight;
}

/* Beside the logs of the attempt, where there are any and the user has named no other place. */
bool plan_set_flight(struct plan *plan)
{
    free(plan->flight);
    plan->flight = NULL;
    if (plan->log_root == NULL || own_flight(plan) != NULL)
        return true;
    plan->flight = plan_text_of("%s/attempt_%d", plan->log_root, plan->attempt);
    return plan->flight != NULL;
}

ddp_status plan_env(const struct plan *plan, int local_rank, struct worker_env *env, struct ddp_err *err)
{
    struct env_facts facts = facts_of(plan, local_rank);
    if (worker_env_init(env, &facts, &plan->env))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the environment of local rank %d", local_rank);
}
