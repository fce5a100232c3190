/* scheduler_batch.c -- PBS (OpenPBS, PBS Pro, Torque) and LSF: a list of hosts, and this host's place in it.
 *
 * Both run a job's script on the first host only. What starts something on the others is pbsdsh and blaunch (or an mpirun,
 * which is asked before). PBS tells them apart: the script is task 1. LSF does not, as far as variables go: on the first
 * host it may be either. */
#include "plan/scheduler_parts.h"

#include <stdio.h>
#include <string.h>

/* What follows from the hosts. The place in the list is the node rank: it is the same list on every host. */
static void put_hosts(struct scheduler *s, const struct host_list *list, const struct scheduler_facts *f,
                      const char *name)
{
    scheduler_put_number(s, SCHEDULER_NODES, list->n, "hosts in %s", name);
    scheduler_put(s, SCHEDULER_ADDRESS, list->first, "the first of %s", name);
    if (list->here >= 0)
        scheduler_put_number(s, SCHEDULER_NODE_RANK, list->here, "the place of this host in %s", name);
    else
        scheduler_note(s, "this host, %.80s, is not in %s; say --node_rank", f->host, name);
}

/* "1234.server" and "1234[7].server" without the server's name: it may be written differently on other nodes. */
void scheduler_read_PBS(struct scheduler *s, const struct scheduler_facts *f)
{
    const char *id = scheduler_env(f, "PBS_JOBID");
    const int task = scheduler_number(f, "PBS_TASKNUM");
    struct host_list list;
    char job[SCHEDULER_TEXT_MAX];
    snprintf(job, sizeof(job), "pbs-%.*s", (int)(strcspn(id, ".") < 60 ? strcspn(id, ".") : 60), id);
    scheduler_put_job(s, job, "PBS_JOBID");
    s->reach = task == 1 ? REACH_ONE : task < 0 ? REACH_PERHAPS_ONE : REACH_ALL;
    if (f->file == NULL || !host_list_words(f->file, false, f->host, &list)) {
        scheduler_note(
            s, "PBS_NODEFILE=%.120s cannot be read on this host; say --nnodes, --node_rank and --master_addr",
            scheduler_env(f, "PBS_NODEFILE"));
        return;
    }
    put_hosts(s, &list, f, "PBS_NODEFILE");
    if (list.here != 0)
        s->reach = REACH_ALL; /* somebody has started us here */
}

void scheduler_read_LSF(struct scheduler *s, const struct scheduler_facts *f)
{
    const char *id = scheduler_env(f, "LSB_JOBID"), *counted = scheduler_env(f, "LSB_MCPU_HOSTS");
    const char *name = counted != NULL ? "LSB_MCPU_HOSTS" : "LSB_HOSTS";
    const int index = scheduler_number(f, "LSB_JOBINDEX");
    struct host_list list;
    char job[SCHEDULER_TEXT_MAX];
    if (index > 0)
        snprintf(job, sizeof(job), "lsf-%.60s.%d", id, index);
    else
        snprintf(job, sizeof(job), "lsf-%.60s", id);
    scheduler_put_job(s, job, index > 0 ? "LSB_JOBID, LSB_JOBINDEX" : "LSB_JOBID");
    if (!host_list_words(scheduler_env(f, name), counted != NULL, f->host, &list)) {
        scheduler_note(s, "%s names too many hosts; say --nnodes and --node_rank", name);
        return;
    }
    put_hosts(s, &list, f, name);
    s->reach = list.here == 0 ? REACH_PERHAPS_ONE : REACH_ALL;
}
