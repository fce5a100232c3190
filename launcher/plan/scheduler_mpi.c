/* scheduler_mpi.c -- processes that mpirun or mpiexec has started: Open MPI and MPICH's Hydra.
 *
 * Both tell a process its number and how many share its node, and neither tells where number 0 is. So the address comes from
 * the batch system around them where there is one, and from the user elsewhere.
 *
 * Nor do they tell the number of the node. With one process on each it is the process' own. With several it follows from the
 * order in which processes were dealt out, which the local number shows: node by node (their default), or in turn. */
#include "plan/scheduler_parts.h"

#include <stdio.h>

/* The variables of one of the two. */
struct names {
    const char *size, *rank, *local_size, *local_rank;
    const char *job; /* NULL = it names its jobs nowhere */
};

static int node_of(const struct scheduler_tasks *t)
{
    const bool in_turn = t->local != t->task % t->here && t->local == t->task / t->nodes;
    return in_turn ? t->task % t->nodes : t->task / t->here;
}

static void read_tasks(struct scheduler_tasks *t, const struct scheduler_facts *f, const struct names *names)
{
    t->tasks = scheduler_number(f, names->size);
    t->task = scheduler_number(f, names->rank);
    t->here = scheduler_number(f, names->local_size);
    t->local = scheduler_number(f, names->local_rank);
    t->known = t->tasks > 0 && t->task >= 0 && t->task < t->tasks && t->here > 0 && t->here <= t->tasks &&
               t->local >= 0 && t->local < t->here;
    if (!t->known)
        return;
    t->nodes = (t->tasks + t->here - 1) / t->here;
    t->node = node_of(t);
}

/* The first host of the batch job that mpirun runs in: mpirun fills the hosts of a job from its first. */
static void put_address(struct scheduler *s, const struct scheduler_facts *f)
{
    const char *slurm = scheduler_env(f, "SLURM_JOB_NODELIST"), *lsf = scheduler_env(f, "LSB_MCPU_HOSTS");
    struct host_list list;
    if (slurm != NULL && host_list_slurm(slurm, &list))
        scheduler_put(s, SCHEDULER_ADDRESS, list.first, "the first of SLURM_JOB_NODELIST=%.120s", slurm);
    else if (lsf != NULL && host_list_words(lsf, true, f->host, &list))
        scheduler_put(s, SCHEDULER_ADDRESS, list.first, "the first of LSB_MCPU_HOSTS");
    else if (f->file != NULL && host_list_words(f->file, false, f->host, &list))
        scheduler_put(s, SCHEDULER_ADDRESS, list.first, "the first of PBS_NODEFILE");
    else
        scheduler_note(s, "%s does not tell where its process 0 is; say --master_addr", s->title);
}

/* Two jobs of mpirun on the same nodes need names of their own; the same text stands on all nodes. */
static void put_job(struct scheduler *s, const struct scheduler_facts *f, const struct names *names)
{
    const char *const around[] = { "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID" };
    char job[SCHEDULER_TEXT_MAX];
    const char *name = names->job, *id = name != NULL ? scheduler_env(f, name) : NULL;
    for (size_t i = 0; id == NULL && i < sizeof(around) / sizeof(around[0]); i++)
        id = scheduler_env(f, name = around[i]);
    if (id == NULL)
        return;
    snprintf(job, sizeof(job), "mpi-%.100s", id);
    for (char *p = job; *p != '\0'; p++)
        if (*p == '/')
            *p = '-'; /* a job's name becomes a file's */
    scheduler_put_job(s, job, name);
}

static void read_mpi(struct scheduler *s, const struct scheduler_facts *f, const struct names *names)
{
    struct scheduler_tasks *t = &s->tasks;
    read_tasks(t, f, names);
    if (!t->known)
        return;
    scheduler_put_number(s, SCHEDULER_NODES, t->nodes, "%s / %s", names->size, names->local_size);
    scheduler_put_number(s, SCHEDULER_NODE_RANK, t->node, "%s, %s", names->rank, names->local_rank);
    if (t->nodes > 1)
        put_address(s, f);
    put_job(s, f, names);
}

void scheduler_read_OPEN_MPI(struct scheduler *s, const struct scheduler_facts *f)
{
    static const struct names names = { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "PMIX_NAMESPACE" };
    read_mpi(s, f, &names);
}

void scheduler_read_HYDRA(struct scheduler *s, const struct scheduler_facts *f)
{
    static const struct names names = { "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", NULL };
    read_mpi(s, f, &names);
}
