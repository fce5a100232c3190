/* scheduler_slurm.c -- Slurm's variables.
 *
 *     started by              SLURM_STEP_ID          what counts
 *     srun                    0, 1, 2 ...            the step: SLURM_STEP_*, SLURM_PROCID, SLURM_NODEID, SLURM_LOCALID
 *     the batch script        not set                the job: SLURM_JOB_*; we are on its first node only
 *     a shell of salloc       not set, or huge       the job; we may even be on a login node
 *
 * SLURM_NNODES and SLURM_NTASKS are asked last: inside of a step they may be what an outer shell has said. */
#include "plan/scheduler_parts.h"

#include <stdio.h>

/* The names of a fact in a step and in a job. */
static const char *of(bool step, const char *in_step, const char *in_job)
{
    return step ? in_step : in_job;
}

/* Steps that are no srun's (batch script, interactive shell) have numbers near 2^32, which are no numbers for us. */
static bool is_step(const struct scheduler_facts *f)
{
    return scheduler_number(f, "SLURM_STEP_ID") >= 0 && scheduler_number(f, "SLURM_STEP_NUM_TASKS") > 0 &&
           scheduler_number(f, "SLURM_PROCID") >= 0;
}

/* A job that was started again has the same number; a launcher of its last life must not take part. */
static void put_job(struct scheduler *s, const struct scheduler_facts *f, bool step)
{
    char job[SCHEDULER_TEXT_MAX], again[32] = "";
    const char *id = scheduler_env(f, "SLURM_JOB_ID");
    s->restarts = scheduler_number(f, "SLURM_RESTART_COUNT");
    if (s->restarts > 0)
        snprintf(again, sizeof(again), "-restart%d", s->restarts);
    snprintf(job, sizeof(job), "slurm-%.60s.%d%s", id, step ? scheduler_number(f, "SLURM_STEP_ID") : 0,
             again);
    scheduler_put_job(s, job,
                      s->restarts > 0 ? "SLURM_JOB_ID, SLURM_STEP_ID, SLURM_RESTART_COUNT"
                                      : "SLURM_JOB_ID, SLURM_STEP_ID");
}

static void put_address(struct scheduler *s, const struct scheduler_facts *f, bool step)
{
    const char *name = of(step, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
    const char *text = scheduler_env(f, name);
    struct host_list list;
    if (text == NULL)
        return;
    if (host_list_slurm(text, &list))
        scheduler_put(s, SCHEDULER_ADDRESS, list.first, "the first of %s=%.120s", name, text);
    else
        scheduler_note(s, "%s=%.120s is no list of hosts; say --master_addr", name, text);
}

/* Each component has a job number of its own, and so a rendezvous of its own. */
static void note_components(struct scheduler *s, const struct scheduler_facts *f)
{
    const int components = scheduler_number(f, "SLURM_HET_SIZE");
    if (components > 1)
        scheduler_note(s,
                       "this is one of %d components of a heterogeneous Slurm job, and each is a job of its "
                       "own here; say "
                       "--nnodes, --node_rank, --master_addr and --rdzv_id for one job over all of them",
                       components);
}

static void read_tasks(struct scheduler *s, const struct scheduler_facts *f, int nodes)
{
    struct scheduler_tasks *t = &s->tasks;
    const char *layout = scheduler_env(f, "SLURM_STEP_TASKS_PER_NODE");
    t->tasks = scheduler_number(f, "SLURM_STEP_NUM_TASKS");
    t->task = scheduler_number(f, "SLURM_PROCID");
    t->local = scheduler_number(f, "SLURM_LOCALID");
    t->node = scheduler_number(f, "SLURM_NODEID");
    t->nodes = nodes;
    t->here = layout != NULL ? host_list_tasks(layout, t->node) : 0;
    t->known = t->local >= 0 && t->node >= 0 && t->node < nodes && t->task < t->tasks && t->local < t->here &&
               t->here <= t->tasks;
}

void scheduler_read_SLURM(struct scheduler *s, const struct scheduler_facts *f)
{
    const bool step = is_step(f);
    const char *name = of(step, "SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES");
    int nodes = scheduler_number(f, name);
    if (nodes <= 0)
        nodes = scheduler_number(f, name = "SLURM_NNODES");
    if (nodes > 0)
        scheduler_put_number(s, SCHEDULER_NODES, nodes, "%s", name);
    if (step)
        read_tasks(s, f, nodes);
    if (s->tasks.known)
        scheduler_put_number(s, SCHEDULER_NODE_RANK, s->tasks.node, "SLURM_NODEID");
    s->job_nodes = scheduler_number(f, "SLURM_JOB_NUM_NODES");
    s->reach = step ? REACH_ALL : REACH_ONE;
    put_job(s, f, step);
    note_components(s, f);
    put_address(s, f, step);
    scheduler_put_gpus(s, f, "SLURM_GPUS_ON_NODE");
    if (s->values[SCHEDULER_WORKERS].text[0] == '\0' && scheduler_env(f, "SLURM_STEP_GPUS") != NULL)
        scheduler_put_number(s, SCHEDULER_WORKERS, scheduler_entries(scheduler_env(f, "SLURM_STEP_GPUS")),
                             "SLURM_STEP_GPUS=%.80s", scheduler_env(f, "SLURM_STEP_GPUS"));
}
