/* scheduler.c -- see scheduler.h. Who is here is one look at the first variables of the table; what each
 * scheduler tells is read in a file of its own.
 *
 * Variables are read from the block that was handed in, and files as text: no function here looks at the
 * machine, so a scheduler that is not installed is tested by its variables. What is no number or makes no
 * sense is passed over as if it were not there, for a wrong guess would start a job of the wrong size. */
#include "plan/scheduler_parts.h"

#include <stdio.h>
#include <string.h>

enum scheduler_id {
#define X(id, ...) ID_##id,
    SCHEDULERS(X)
#undef X
        IDS
};

static const struct {
    const char *name, *title, *rule;
    void (*read)(struct scheduler *, const struct scheduler_facts *);
} kinds[IDS] = {
#define X(id, name, title, rule, tells) { name, title, rule, scheduler_read_##id },
    SCHEDULERS(X)
#undef X
};

/* The variables that must all be there, and one of the last two if any. Asked in the order of schedulers.h:
 * under both, mpirun's word about tasks is nearer to this process than Slurm's. */
static const struct {
    const char *all[4], *one_of[2];
} signs[IDS] = {
    [ID_OPEN_MPI] = { .all = { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" } },
    [ID_HYDRA] = { .all = { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID" } },
    [ID_SLURM] = { .all = { "SLURM_JOB_ID" } },
    [ID_PYTORCHJOB] = { .all = { "KUBERNETES_SERVICE_HOST", "MASTER_ADDR", "WORLD_SIZE", "RANK" } },
    [ID_KUBERNETES] = { .all = { "KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX" } },
    [ID_PBS] = { .all = { "PBS_JOBID", "PBS_NODEFILE" } },
    [ID_LSF] = { .all = { "LSB_JOBID" }, .one_of = { "LSB_MCPU_HOSTS", "LSB_HOSTS" } },
};

/* --- who is here ---------------------------------------------------------------------------------------- */

/* The same question for all, from the table above: no scheduler is recognised by code of its own. */
static bool is_here(int id, const struct scheduler_facts *f)
{
    bool one = signs[id].one_of[0] == NULL;
    for (int i = 0; i < 4 && signs[id].all[i] != NULL; i++)
        if (scheduler_env(f, signs[id].all[i]) == NULL)
            return false;
    for (int i = 0; i < 2 && signs[id].one_of[i] != NULL; i++)
        one = one || scheduler_env(f, signs[id].one_of[i]) != NULL;
    return one;
}

/* IDS when there is none of that name. */
static int named(const char *name)
{
    int id = 0;
    while (id < IDS && strcmp(kinds[id].name, name) != 0)
        id++;
    return id;
}

/* Known but not here, or not known at all: the first names what is missing, the second what would be valid. */
static ddp_status not_here(const char *wanted, struct ddp_err *err)
{
    char list[200] = "";
    size_t used = 0;
    const int id = named(wanted);
    if (id < IDS)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--scheduler=%s, but %s did not start this process: it would be there if %s", wanted,
                        kinds[id].title, kinds[id].rule);
    for (int i = 0; i < IDS; i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, ", %s", kinds[i].name);
    return ddp_fail(err, DDP_ERR_ARG, "--scheduler=%.60s is not valid; expected: auto, none%s", wanted, list);
}

/* -1 = none, and why. A worker of ddprun has all its variables from the job around it. */
static int choose(struct scheduler *s, const char *wanted, const struct scheduler_facts *f)
{
    const bool any = strcmp(wanted, "auto") == 0;
    if (strcmp(wanted, "none") == 0) {
        snprintf(s->rule, sizeof(s->rule), "--scheduler=none");
        return -1;
    }
    if (any && scheduler_env(f, "DDPRUN_JOB") != NULL) {
        snprintf(s->rule, sizeof(s->rule), "DDPRUN_JOB is set: a worker of ddprun has started this one");
        return -1;
    }
    for (int id = 0; id < IDS; id++)
        if ((any || strcmp(wanted, kinds[id].name) == 0) && is_here(id, f))
            return id;
    snprintf(s->rule, sizeof(s->rule), "no variables of a scheduler are set");
    return -1;
}

/* The one file that a reader needs. It is named before it is read, so that reading stays with the caller. */
const char *scheduler_file(char *const *environ_block)
{
    const struct scheduler_facts f = { .environ_block = environ_block };
    const char *nodes = is_here(ID_PBS, &f) ? scheduler_env(&f, "PBS_NODEFILE") : NULL;
    return nodes == NULL && is_here(ID_KUBERNETES, &f) ? "/etc/hosts" : nodes;
}

/* Asked for by name and not here is an error: the user counts on it. --per_task comes last, since it writes
 * over what the reader has put. */
ddp_status scheduler_read(struct scheduler *s, const char *wanted, const struct scheduler_facts *f,
                          struct ddp_err *err)
{
    *s = (struct scheduler){ .kind = -1, .name = "none", .title = "no scheduler" };
    s->kind = choose(s, wanted, f);
    if (s->kind < 0 && strcmp(wanted, "auto") != 0 && strcmp(wanted, "none") != 0)
        return not_here(wanted, err);
    if (s->kind >= 0) {
        s->name = kinds[s->kind].name;
        s->title = kinds[s->kind].title;
        snprintf(s->rule, sizeof(s->rule), "%s", kinds[s->kind].rule);
        kinds[s->kind].read(s, f);
    }
    if (f->per_task && !s->tasks.known)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--per_task runs one worker in each task of a scheduler, but none has started this "
                        "process as a task (%s; known are Slurm's srun and mpirun)",
                        s->rule);
    if (f->per_task)
        scheduler_per_task(s);
    return DDP_OK;
}
