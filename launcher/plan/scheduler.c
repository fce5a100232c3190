/* scheduler.c -- see scheduler.h.
 *
 * Each scheduler is a row of `rows`. The caller passes variables and files as text, so a test needs no scheduler.
 * Implausible numbers are ignored, because a wrong number would start a job of the wrong size. */
#include "plan/scheduler.h"

#include "tables/worker_env.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum scheduler_id {
#define X(id, ...) ID_##id,
    SCHEDULERS(X)
#undef X
        IDS
};

/* Formats of a list of hosts (see hosts.h). */
enum list_format { LIST_SLURM, LIST_WORDS, LIST_COUNTED, LIST_FILE };

typedef void read_scheduler(struct scheduler *s, const struct scheduler_facts *f);
static read_scheduler read_slurm, read_kubernetes, read_pytorchjob;

/* The schedulers. A row names the variables that identify the scheduler, and the variables of its tasks, its job and
 * its lists of hosts. read_tasks and read_hosts read these variables. Slurm and Kubernetes need their own functions.
 *
 * A scheduler is recognized if all variables of `all` are set, and if at least one variable of `one_of` is set. If
 * `one_of` is empty, the variables of `all` are enough. */
static const struct row {
    const char *all[4], *one_of[2];                    /* variables that identify the scheduler */
    const char *launch;                                /* command that starts one ddprun on each node */
    const char *size, *rank, *local_size, *local_rank; /* variables with the task numbers; may be NULL */
    const char *job, *job_index;                       /* variables with the job id and the job-array index */
    struct list {
        const char *variable;
        enum list_format format;
    } lists[2];           /* only the first list whose variable is set is used */
    read_scheduler *code; /* reads the variables; NULL means read_tasks, or read_hosts if `size` is NULL */
} rows[IDS] = {
    [ID_OPEN_MPI] = { .all = { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
                      .launch = "mpirun --map-by ppr:1:node ddprun",
                      .size = "OMPI_COMM_WORLD_SIZE",
                      .rank = "OMPI_COMM_WORLD_RANK",
                      .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
                      .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
                      .job = "PMIX_NAMESPACE" },
    [ID_HYDRA] = { .all = { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID" },
                   .launch = "mpiexec -ppn 1 ddprun",
                   .size = "PMI_SIZE",
                   .rank = "PMI_RANK",
                   .local_size = "MPI_LOCALNRANKS",
                   .local_rank = "MPI_LOCALRANKID" },
    [ID_SLURM] = { .all = { "SLURM_JOB_ID" },
                   .launch = "srun --ntasks-per-node=1 ddprun",
                   .job = "SLURM_JOB_ID",
                   .lists = { { "SLURM_JOB_NODELIST", LIST_SLURM } },
                   .code = read_slurm },
    [ID_PYTORCHJOB] = { .all = { "KUBERNETES_SERVICE_HOST", "MASTER_ADDR", "WORLD_SIZE", "RANK" },
                        .launch = "ddprun",
                        .code = read_pytorchjob },
    [ID_KUBERNETES] = { .all = { "KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX" },
                        .launch = "ddprun",
                        .code = read_kubernetes },
    [ID_PBS] = { .all = { "PBS_JOBID", "PBS_NODEFILE" },
                 .launch = "pbsdsh -u -- ddprun",
                 .rank = "PBS_TASKNUM",
                 .job = "PBS_JOBID",
                 .lists = { { "PBS_NODEFILE", LIST_FILE } } },
    [ID_LSF] = { .all = { "LSB_JOBID" },
                 .one_of = { "LSB_MCPU_HOSTS", "LSB_HOSTS" },
                 .launch = "blaunch -z \"$LSB_HOSTS\" ddprun",
                 .job = "LSB_JOBID",
                 .job_index = "LSB_JOBINDEX",
                 .lists = { { "LSB_MCPU_HOSTS", LIST_COUNTED }, { "LSB_HOSTS", LIST_WORDS } } },
};

static const struct {
    const char *name, *title, *rule;
} names[IDS] = {
#define X(id, name, title, rule, sets) { name, title, rule },
    SCHEDULERS(X)
#undef X
};

/* --- variables and values ------------------------------------------------------------------------------------ */

/* PORT_BASE and PORT_SPAN: scheduler_set_job uses these numbers to compute a port.
 * NUMBER_MAX: scheduler_number rejects a number of this size or larger, because no job has so many workers. */
enum { PORT_BASE = 12000, PORT_SPAN = 16000, NUMBER_MAX = 100000000 };

const enum cli_option scheduler_options[SCHEDULER_VALUE_COUNT] = {
#define X(id, option) [SCHEDULER_##id] = OPT_##option,
    SCHEDULER_VALUES(X)
#undef X
};

/* Return the value of a variable, or NULL if the variable is unset. An empty variable counts as unset, because a
 * script may hide a variable by an empty value. The value is borrowed. */
static const char *scheduler_env(const struct scheduler_facts *f, const char *name)
{
    const char *text = env_find(f->environ_block, name);
    return text != NULL && *text != '\0' ? text : NULL;
}

/* Return a variable as a number of at least 0. Return -1 if the variable is unset or has any other text, such as
 * "4(x2)". */
static int scheduler_number(const struct scheduler_facts *f, const char *name)
{
    const char *text = scheduler_env(f, name);
    char *end;
    if (text == NULL || !isdigit((unsigned char)*text))
        return -1;
    const long value = strtol(text, &end, 10);
    return *end == '\0' && value < NUMBER_MAX ? (int)value : -1;
}

__attribute__((format(printf, 4, 0))) static void scheduler_vset(struct scheduler *s,
                                                                 enum scheduler_value_id id, const char *text,
                                                                 const char *from, va_list ap)
{
    struct scheduler_value *v = &s->values[id];
    snprintf(v->text, sizeof(v->text), "%s", text);
    vsnprintf(v->from, sizeof(v->from), from, ap);
}

/* Set a value and its origin, which is usually the name of a variable. */
__attribute__((format(printf, 4, 5))) static void
scheduler_set(struct scheduler *s, enum scheduler_value_id id, const char *text, const char *from, ...)
{
    va_list ap;
    va_start(ap, from);
    scheduler_vset(s, id, text, from, ap);
    va_end(ap);
}

__attribute__((format(printf, 4, 5))) static void
scheduler_set_number(struct scheduler *s, enum scheduler_value_id id, int number, const char *from, ...)
{
    char text[16];
    va_list ap;
    snprintf(text, sizeof(text), "%d", number);
    va_start(ap, from);
    scheduler_vset(s, id, text, from, ap);
    va_end(ap);
}

/* Add a note for the user. Drop the note if the array is full. */
__attribute__((format(printf, 2, 3))) static void scheduler_note(struct scheduler *s, const char *fmt, ...)
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

/* Return the next number in `text`, or 0 if no number follows. A number that is too large wraps around. All nodes get
 * the same result. */
static unsigned long long next_number(const char **text)
{
    unsigned long long value = 0;
    while (**text != '\0' && !isdigit((unsigned char)**text))
        ++*text;
    while (isdigit((unsigned char)**text))
        value = value * 10 + (unsigned long long)(*(*text)++ - '0');
    return value;
}

/* Set the job id, and compute a port from the first two numbers a and b in the id: 12000 + (a * 31 + b) % 16000.
 * So all nodes compute the same port, and two jobs on one node usually have different ports. The factor 31 gives
 * neighbouring jobs of an array different ports. All ports are below 28000, because the kernel's ephemeral ports
 * begin at 32768 and torchrun's defaults are 29400 and 29500. */
static void scheduler_set_job(struct scheduler *s, const char *job, const char *from)
{
    const char *at = job;
    const unsigned long long first = next_number(&at), second = next_number(&at);
    scheduler_set(s, SCHEDULER_JOB, job, "%s", from);
    scheduler_set_number(s, SCHEDULER_PORT, PORT_BASE + (int)((first * 31 + second) % PORT_SPAN),
                         "computed from the job id");
}

/* Return how many entries a list such as "0,1,3" has. */
static int scheduler_entries(const char *text)
{
    int n = 1;
    for (; *text != '\0'; text++)
        n += *text == ',';
    return n;
}

/* Set the number of workers to the smaller of two numbers: the number of GPUs in the variable `name`, and the
 * number of visible GPUs. Set nothing if the variable is not set, or if CUDA_VISIBLE_DEVICES hides all GPUs. */
static void scheduler_set_gpus(struct scheduler *s, const struct scheduler_facts *f, const char *name)
{
    const char *visible = f->visible;
    const int given = scheduler_number(f, name);
    if (given <= 0 || (visible != NULL && (*visible == '\0' || *visible == '-')))
        return;
    if (visible != NULL && scheduler_entries(visible) < given)
        scheduler_set_number(s, SCHEDULER_WORKERS, scheduler_entries(visible),
                             "CUDA_VISIBLE_DEVICES=%.80s has fewer GPUs than %s=%d", visible, name, given);
    else
        scheduler_set_number(s, SCHEDULER_WORKERS, given, "%s", name);
}

/* Make each task a node with one worker in the rendezvous. If all tasks run on one machine, set the loopback
 * address. */
static void scheduler_per_task(struct scheduler *s)
{
    const struct scheduler_tasks *t = &s->tasks;
    scheduler_set_number(s, SCHEDULER_NODES, t->tasks, "--per_task: one node for each of the %d tasks",
                         t->tasks);
    scheduler_set_number(s, SCHEDULER_NODE_RANK, t->task, "--per_task: the number of this task");
    scheduler_set(s, SCHEDULER_WORKERS, "1", "--per_task");
    if (t->nodes == 1)
        scheduler_set(s, SCHEDULER_ADDRESS, "127.0.0.1", "all tasks are on this host");
}

/* Parse a list of hosts. Return false if the list is missing or invalid. */
static bool list_read(const struct list *l, const struct scheduler_facts *f, struct host_list *out)
{
    const char *text = scheduler_env(f, l->variable);
    if (text != NULL && l->format == LIST_FILE)
        text = f->file;
    if (text == NULL)
        return false;
    return l->format == LIST_SLURM ? host_list_slurm(text, out)
                                   : host_list_words(text, l->format == LIST_COUNTED, f->host, out);
}

/* Set the address to the first host of a list. Return false if the list is missing or invalid. */
static bool set_first_host(struct scheduler *s, const struct scheduler_facts *f, const struct list *l)
{
    struct host_list hosts;
    if (!list_read(l, f, &hosts))
        return false;
    if (l->format == LIST_SLURM)
        scheduler_set(s, SCHEDULER_ADDRESS, hosts.first, "the first host of %s=%.120s", l->variable,
                      scheduler_env(f, l->variable));
    else
        scheduler_set(s, SCHEDULER_ADDRESS, hosts.first, "the first host of %s", l->variable);
    return true;
}

/* Return the row's first list whose variable is set, or NULL. */
static const struct list *row_list(const struct row *r, const struct scheduler_facts *f)
{
    for (int i = 0; i < 2 && r->lists[i].variable != NULL; i++)
        if (scheduler_env(f, r->lists[i].variable) != NULL)
            return &r->lists[i];
    return NULL;
}

/* --- Slurm ------------------------------------------------------------------------------------------------ */

/* Slurm's variables. A step is a set of tasks that one srun starts.
 *
 *     ddprun started by       SLURM_STEP_ID          source of the values
 *     srun                    0, 1, 2 ...            the step: SLURM_STEP_*, SLURM_PROCID and others
 *     the batch script        not set                the job: SLURM_JOB_*; ddprun runs only on the job's first node
 *     a shell of salloc       not set, or near 2^32  the job; ddprun may even run on a login node
 *
 * The number of nodes comes from SLURM_STEP_NUM_NODES for a step, and from SLURM_JOB_NUM_NODES for a job. If this
 * variable is missing, the number comes from SLURM_NNODES. SLURM_NNODES is only the second choice, because a step may
 * inherit SLURM_NNODES from an outer shell. */

/* Return true if srun started this process as a step. scheduler_number rejects an interactive shell's SLURM_STEP_ID,
 * which is near 2^32. */
static bool is_step(const struct scheduler_facts *f)
{
    return scheduler_number(f, "SLURM_STEP_ID") >= 0 && scheduler_number(f, "SLURM_STEP_NUM_TASKS") > 0 &&
           scheduler_number(f, "SLURM_PROCID") >= 0;
}

/* Set the job id of the rendezvous. If `step` is true, srun started this process, and the id contains the number of the
 * step. A requeued job keeps Slurm's job id. Therefore the id also contains Slurm's restart count. Without this count,
 * nodes of an earlier run could join. */
static void slurm_job(struct scheduler *s, const struct scheduler_facts *f, bool step)
{
    char job[SCHEDULER_TEXT_MAX], again[32] = "";
    const char *id = scheduler_env(f, "SLURM_JOB_ID");
    s->restarts = scheduler_number(f, "SLURM_RESTART_COUNT");
    if (s->restarts > 0)
        snprintf(again, sizeof(again), "-restart%d", s->restarts);
    snprintf(job, sizeof(job), "slurm-%.60s.%d%s", id, step ? scheduler_number(f, "SLURM_STEP_ID") : 0,
             again);
    scheduler_set_job(s, job,
                      s->restarts > 0 ? "SLURM_JOB_ID, SLURM_STEP_ID, SLURM_RESTART_COUNT"
                                      : "SLURM_JOB_ID, SLURM_STEP_ID");
}

static void slurm_address(struct scheduler *s, const struct scheduler_facts *f, bool step)
{
    const struct list list = { step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST", LIST_SLURM };
    const char *text = scheduler_env(f, list.variable);
    if (text != NULL && !set_first_host(s, f, &list))
        scheduler_note(s, "%s=%.120s is not a list of hosts; set --master_addr", list.variable, text);
}

/* Add a note if this process belongs to a heterogeneous job. Each component has a different SLURM_JOB_ID, and
 * therefore a different rendezvous. */
static void note_components(struct scheduler *s, const struct scheduler_facts *f)
{
    const int components = scheduler_number(f, "SLURM_HET_SIZE");
    if (components > 1)
        scheduler_note(
            s,
            "this heterogeneous Slurm job has %d components, and each component is a separate ddprun job; to "
            "join the components, set --nnodes, --node_rank, --master_addr and --rdzv_id",
            components);
}

static void slurm_tasks(struct scheduler *s, const struct scheduler_facts *f, int nodes)
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

static void read_slurm(struct scheduler *s, const struct scheduler_facts *f)
{
    const bool step = is_step(f);
    const char *name = step ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES";
    int nodes = scheduler_number(f, name);
    if (nodes <= 0)
        nodes = scheduler_number(f, name = "SLURM_NNODES");
    if (nodes > 0)
        scheduler_set_number(s, SCHEDULER_NODES, nodes, "%s", name);
    if (step)
        slurm_tasks(s, f, nodes);
    if (s->tasks.known)
        scheduler_set_number(s, SCHEDULER_NODE_RANK, s->tasks.node, "SLURM_NODEID");
    s->job_nodes = scheduler_number(f, "SLURM_JOB_NUM_NODES");
    s->reach = step ? REACH_ALL : REACH_ONE;
    slurm_job(s, f, step);
    note_components(s, f);
    slurm_address(s, f, step);
    scheduler_set_gpus(s, f, "SLURM_GPUS_ON_NODE");
    if (s->values[SCHEDULER_WORKERS].text[0] == '\0' && scheduler_env(f, "SLURM_STEP_GPUS") != NULL)
        scheduler_set_number(s, SCHEDULER_WORKERS, scheduler_entries(scheduler_env(f, "SLURM_STEP_GPUS")),
                             "SLURM_STEP_GPUS=%.80s", scheduler_env(f, "SLURM_STEP_GPUS"));
}

/* --- tasks of mpirun ---------------------------------------------------------------------------------------- */

/* The functions below read the variables of processes that mpirun or mpiexec has started (Open MPI, MPICH's Hydra). No
 * variable contains the name of the host of process 0. So this name comes from the batch job or from the user. */

/* Return the node number of a task. mpirun either fills one node after another, or gives each node one task in turn
 * (round robin). The number of the task within its node shows which of the two mpirun has done. */
static int node_of(const struct scheduler_tasks *t)
{
    const bool in_turn = t->local != t->task % t->here && t->local == t->task / t->nodes;
    return in_turn ? t->task % t->nodes : t->task / t->here;
}

/* Set the address to the first host of the batch job, because mpirun starts process 0 there. */
static void tasks_address(struct scheduler *s, const struct scheduler_facts *f)
{
    for (int id = 0; id < IDS; id++) {
        const struct list *l = row_list(&rows[id], f);
        if (l != NULL && set_first_host(s, f, l))
            return;
    }
    scheduler_note(s, "%s does not report the host of its process 0; set --master_addr", s->title);
}

/* Write ".7" for element 7 of a job array, else "". */
static void array_index(const struct scheduler_facts *f, const struct row *r, char out[16])
{
    const int index = r->job_index != NULL ? scheduler_number(f, r->job_index) : -1;
    out[0] = '\0';
    if (index > 0)
        snprintf(out, 16, ".%d", index);
}

/* Set the job id from mpirun's id, or from the batch job's id if mpirun provides no id. All nodes of a run need the
 * same id, but concurrent runs need different ids. Hydra's mpirun provides no id, so all runs in one batch job get the
 * same id. For concurrent runs, the user must then set different values of --rdzv_id. */
static void tasks_job(struct scheduler *s, const struct scheduler_facts *f, const struct row *r)
{
    char job[SCHEDULER_TEXT_MAX], index[16], from[64];
    const char *id = r->job != NULL ? scheduler_env(f, r->job) : NULL;
    for (int i = ID_SLURM; id == NULL && i < IDS; i++)
        if ((r = &rows[i])->job != NULL)
            id = scheduler_env(f, r->job);
    if (id == NULL)
        return;
    array_index(f, r, index);
    snprintf(job, sizeof(job), "mpi-%.100s%s", id, index);
    for (char *p = job; *p != '\0'; p++)
        if (*p == '/')
            *p = '-'; /* the job id is a part of the log directory's name, so it must not contain '/' */
    snprintf(from, sizeof(from), index[0] != '\0' ? "%s, %s" : "%s", r->job, r->job_index);
    scheduler_set_job(s, job, from);
}

static void read_tasks(struct scheduler *s, const struct scheduler_facts *f, const struct row *r)
{
    struct scheduler_tasks *t = &s->tasks;
    t->tasks = scheduler_number(f, r->size);
    t->task = scheduler_number(f, r->rank);
    t->here = scheduler_number(f, r->local_size);
    t->local = scheduler_number(f, r->local_rank);
    t->known = t->tasks > 0 && t->task >= 0 && t->task < t->tasks && t->here > 0 && t->here <= t->tasks &&
               t->local >= 0 && t->local < t->here;
    if (!t->known)
        return;
    t->nodes = (t->tasks + t->here - 1) / t->here;
    t->node = node_of(t);
    /* A node detects uneven numbers of tasks only if the number of all tasks is not a multiple of the node's own number
     * of tasks. For example, 2+1+1 tasks are not detected, because 4 is a multiple of 2 and of 1. */
    if (f->per_task && t->local == 0 && t->tasks % t->here != 0)
        scheduler_note(s,
                       "%s started different numbers of tasks on the nodes (%s=%d, %s=%d), so GROUP_RANK and "
                       "GROUP_WORLD_SIZE may be wrong; start the same number of tasks on each node",
                       s->title, r->size, t->tasks, r->local_size, t->here);
    scheduler_set_number(s, SCHEDULER_NODES, t->nodes, "%s / %s", r->size, r->local_size);
    scheduler_set_number(s, SCHEDULER_NODE_RANK, t->node, "%s, %s", r->rank, r->local_rank);
    if (t->nodes > 1)
        tasks_address(s, f);
    tasks_job(s, f, r);
}

/* --- lists of hosts ------------------------------------------------------------------------------------------ */

/* PBS (OpenPBS, PBS Pro, Torque) and LSF provide a list of hosts. The index of this host in the list is the node rank.
 *
 * The batch script runs only on the first host. To start processes on the other hosts, the script runs pbsdsh (PBS),
 * blaunch (LSF) or mpirun (see read_tasks). In PBS, the script itself has task number 1. In LSF, no variable shows
 * whether ddprun was started by the script or by blaunch. */

/* Set the job id to "pbs-1234" or "lsf-1234.7". The server's name after the first dot of PBS_JOBID may differ between
 * nodes. */
static void batch_job(struct scheduler *s, const struct scheduler_facts *f, const struct row *r)
{
    const char *id = scheduler_env(f, r->job);
    const int len = (int)strcspn(id, ".");
    char job[SCHEDULER_TEXT_MAX], index[16], from[64];
    array_index(f, r, index);
    snprintf(job, sizeof(job), "%s-%.*s%s", s->name, len < 60 ? len : 60, id, index);
    snprintf(from, sizeof(from), index[0] != '\0' ? "%s, %s" : "%s", r->job, r->job_index);
    scheduler_set_job(s, job, from);
}

/* Return whether ddprun was started on all hosts or only on the first host. `place` is the index of this host in the
 * list, or -1. If this host is not the first host, pbsdsh or blaunch has started ddprun on all hosts. On the first
 * host, PBS_TASKNUM decides: 1 means the batch script, and any other number means a task of pbsdsh. Without this
 * number, for example with LSF, return REACH_PERHAPS_ONE. */
static enum scheduler_reach batch_reach(const struct scheduler_facts *f, const struct row *r, int place)
{
    const int task = r->rank != NULL ? scheduler_number(f, r->rank) : -1;
    if (place != 0 || task > 1 || task == 0)
        return REACH_ALL;
    return task == 1 ? REACH_ONE : REACH_PERHAPS_ONE;
}

static void read_hosts(struct scheduler *s, const struct scheduler_facts *f, const struct row *r)
{
    const struct list *l = row_list(r, f);
    const char *name = l->variable;
    struct host_list hosts;
    batch_job(s, f, r);
    if (list_read(l, f, &hosts)) {
        scheduler_set_number(s, SCHEDULER_NODES, hosts.n, "hosts in %s", name);
        scheduler_set(s, SCHEDULER_ADDRESS, hosts.first, "the first host of %s", name);
        if (hosts.here >= 0)
            scheduler_set_number(s, SCHEDULER_NODE_RANK, hosts.here, "the position of this host in %s", name);
        else
            scheduler_note(s, "this host, %.80s, is not in %s; set --node_rank", f->host, name);
        s->reach = batch_reach(f, r, hosts.here);
    } else if (l->format == LIST_FILE) {
        scheduler_note(s, "cannot read %s=%.120s on this host; set --nnodes, --node_rank and --master_addr",
                       name, scheduler_env(f, name));
    } else {
        scheduler_note(s,
                       "%s lists no host, or more than %d hosts; set --nnodes, --node_rank and --master_addr",
                       name, HOST_WORDS_MAX);
    }
}

/* --- Kubernetes ------------------------------------------------------------------------------------------- */

/* The functions below read the variables of pods of indexed Jobs, and of pods of PyTorchJobs (Kubeflow's training
 * operator). Each pod has a separate address, so the default port is free.
 *
 * Indexed Job: the host name is JOB-NUMBER. With a headless service (subdomain: in the pod's template), the full name
 * of pod 0 is JOB-0, followed by the domain of this pod from /etc/hosts. The user must set --nnodes, because no
 * variable contains the number of pods.
 *
 * PyTorchJob: WORLD_SIZE is the number of pods, and RANK is the index of this pod. Newer operators set torchrun's
 * variables PET_*, and WORLD_SIZE is then the number of workers. So if PET_NNODES is set, WORLD_SIZE and RANK are
 * ignored. */

/* Return the length of "job" in a host name such as "job-3.domain". If the name before the first dot does not end with
 * a dash and a number, return the length of this name. */
static int stem_of(const char *host)
{
    const size_t len = strcspn(host, ".");
    size_t at = len;
    while (at > 0 && host[at - 1] >= '0' && host[at - 1] <= '9')
        at--;
    return (int)(at < len && at > 1 && host[at - 1] == '-' ? at - 1 : len);
}

/* Return the domain of `host`, and set *len to the length of the domain. The domain follows the first dot of the first
 * long name of `host` in `hosts`, which is the content of /etc/hosts. Return NULL if `host` is empty, or has no long
 * name in /etc/hosts. */
static const char *domain_in(const char *hosts, const char *host, size_t *len)
{
    const size_t short_len = strcspn(host, ".");
    for (const char *at = short_len > 0 ? hosts : NULL; at != NULL && (at = strstr(at, host)) != NULL;
         at += short_len) {
        const bool whole = at > hosts && (at[-1] == ' ' || at[-1] == '\t');
        if (whole && at[short_len] == '.') {
            *len = strcspn(at + short_len + 1, " \t\r\n#");
            return *len > 0 ? at + short_len + 1 : NULL;
        }
    }
    return NULL;
}

static const char *host_of(const struct scheduler_facts *f)
{
    const char *name = scheduler_env(f, "HOSTNAME");
    return name != NULL ? name : f->host;
}

/* Set the address to the name of pod 0, with the domain of this pod. If the host name of this pod contains no domain,
 * read the domain from /etc/hosts. With setHostnameAsFQDN the host name contains the domain. */
static void set_pod_0(struct scheduler *s, const struct scheduler_facts *f)
{
    const char *host = host_of(f), *dot = strchr(host, '.'), *domain = dot != NULL ? dot + 1 : NULL;
    char name[SCHEDULER_TEXT_MAX], first[SCHEDULER_TEXT_MAX];
    size_t len = domain != NULL ? strlen(domain) : 0;
    if (domain == NULL && f->file != NULL)
        domain = domain_in(f->file, host, &len);
    snprintf(first, sizeof(first), "%.*s-0", stem_of(host), host);
    if (domain == NULL) {
        scheduler_note(s,
                       "the host name of this pod has no domain, so the name of pod 0 is unknown; give the "
                       "pods a headless service (subdomain: in the pod template), or set --master_addr");
        return;
    }
    if ((size_t)snprintf(name, sizeof(name), "%s.%.*s", first, (int)len, domain) >= sizeof(name)) {
        scheduler_note(s,
                       "the name of pod 0 is unknown, because the host name of this pod, %.60s..., is too "
                       "long; set --master_addr",
                       host);
        return;
    }
    scheduler_set(s, SCHEDULER_ADDRESS, name, "host name %.80s, its number replaced by 0", host);
}

static void read_kubernetes(struct scheduler *s, const struct scheduler_facts *f)
{
    const char *host = host_of(f);
    char job[SCHEDULER_TEXT_MAX];
    const int index = scheduler_number(f, "JOB_COMPLETION_INDEX");
    if (index < 0)
        return;
    scheduler_set_number(s, SCHEDULER_NODE_RANK, index, "JOB_COMPLETION_INDEX");
    snprintf(job, sizeof(job), "%.*s", stem_of(host), host);
    scheduler_set(s, SCHEDULER_JOB, job, "part of the host name %.80s before its number", host);
    set_pod_0(s, f);
}

/* Set the job id from a host name: "mnist-worker-1" -> "mnist". */
static void set_job_name(struct scheduler *s, const char *host)
{
    static const char *const roles[] = { "-master", "-worker" };
    char job[SCHEDULER_TEXT_MAX];
    snprintf(job, sizeof(job), "%.*s", stem_of(host), host);
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        const size_t len = strlen(job), role = strlen(roles[i]);
        if (len > role && strcmp(job + len - role, roles[i]) == 0) {
            job[len - role] = '\0';
            scheduler_set(s, SCHEDULER_JOB, job, "part of the host name %.80s before '%s'", host, roles[i]);
            return;
        }
    }
}

/* Set the address to MASTER_ADDR. Older PyTorchJob operators set MASTER_ADDR to localhost in the pod of rank 0. In a
 * job of several pods, use this pod's host name instead, because other pods cannot reach localhost. `pods` is below 1
 * if the number of pods is unknown. */
static void set_master(struct scheduler *s, const struct scheduler_facts *f, int pods, int pod)
{
    const char *master = scheduler_env(f, "MASTER_ADDR");
    const bool is_local = strcmp(master, "localhost") == 0 || endpoint_is_loopback(master);
    if (pod == 0 && pods > 1 && is_local)
        scheduler_set(s, SCHEDULER_ADDRESS, host_of(f),
                      "host name of this pod, because other pods cannot reach MASTER_ADDR=%.80s", master);
    else
        scheduler_set(s, SCHEDULER_ADDRESS, master, "MASTER_ADDR");
}

static void read_pytorchjob(struct scheduler *s, const struct scheduler_facts *f)
{
    const int pods = scheduler_number(f, "WORLD_SIZE"), pod = scheduler_number(f, "RANK");
    const int port = scheduler_number(f, "MASTER_PORT");
    const bool has_pet = scheduler_env(f, "PET_NNODES") != NULL;
    if (pods > 0 && !has_pet)
        scheduler_set_number(s, SCHEDULER_NODES, pods, "WORLD_SIZE, the number of pods");
    if (pod >= 0 && !has_pet)
        scheduler_set_number(s, SCHEDULER_NODE_RANK, pod,
                             "RANK, which here is the index of this pod, not the rank of a worker");
    if (port > 0)
        scheduler_set_number(s, SCHEDULER_PORT, port, "MASTER_PORT");
    set_master(s, f, has_pet ? 0 : pods, pod);
    set_job_name(s, host_of(f));
}

/* --- the scheduler ------------------------------------------------------------------------------------------ */

/* Return true if the scheduler's variables are set. */
static bool is_here(int id, const struct scheduler_facts *f)
{
    const struct row *r = &rows[id];
    bool one = r->one_of[0] == NULL;
    for (int i = 0; i < 4 && r->all[i] != NULL; i++)
        if (scheduler_env(f, r->all[i]) == NULL)
            return false;
    for (int i = 0; i < 2 && r->one_of[i] != NULL; i++)
        one = one || scheduler_env(f, r->one_of[i]) != NULL;
    return one;
}

/* Return the row of the scheduler called `name`, or IDS if no row has this name. */
static int row_by_name(const char *name)
{
    int id = 0;
    while (id < IDS && strcmp(names[id].name, name) != 0)
        id++;
    return id;
}

/* Report that --scheduler names a scheduler that did not start this process, or an unknown scheduler. */
static ddp_status not_here(const char *wanted, struct ddp_err *err)
{
    char list[200] = "'auto', 'none'";
    const int id = row_by_name(wanted);
    if (id < IDS)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--scheduler=%s: this process is not in a job of %s (in such a job, %s); "
                        "leave out --scheduler",
                        wanted, names[id].title, names[id].rule);
    for (int i = 0; i < IDS; i++)
        options_list_add(list, sizeof(list), i + 1 == IDS, "'%s'", names[i].name);
    return ddp_fail(err, DDP_ERR_ARG, "--scheduler=%.60s: expected %s", wanted, list);
}

/* Return the row of the scheduler that started this process, or -1 with the reason in s->rule. With --scheduler=auto,
 * a ddprun that a worker has started (DDPRUN_JOB is set) belongs to no scheduler, although ddprun then inherits a
 * scheduler's variables. */
static int scheduler_choose(struct scheduler *s, const char *wanted, const struct scheduler_facts *f)
{
    const bool any = strcmp(wanted, "auto") == 0;
    if (strcmp(wanted, "none") == 0) {
        snprintf(s->rule, sizeof(s->rule), "--scheduler=none");
        return -1;
    }
    if (any && scheduler_env(f, "DDPRUN_JOB") != NULL) {
        snprintf(s->rule, sizeof(s->rule), "a worker of ddprun started this process (DDPRUN_JOB is set)");
        return -1;
    }
    for (int id = 0; id < IDS; id++)
        if ((any || strcmp(wanted, names[id].name) == 0) && is_here(id, f))
            return id;
    snprintf(s->rule, sizeof(s->rule), "no variables of a scheduler are set");
    return -1;
}

/* Return the path of the file that scheduler_read needs. The caller reads this file, so that this module stays
 * pure. */
const char *scheduler_file(char *const *environ_block)
{
    const struct scheduler_facts f = { .environ_block = environ_block };
    const char *nodes = is_here(ID_PBS, &f) ? scheduler_env(&f, "PBS_NODEFILE") : NULL;
    return nodes == NULL && is_here(ID_KUBERNETES, &f) ? "/etc/hosts" : nodes;
}

/* Read the scheduler's values. Fail if --scheduler names a scheduler that did not start this process. Apply --per_task
 * last, because this option replaces values of the scheduler. */
ddp_status scheduler_read(struct scheduler *s, const char *wanted, const struct scheduler_facts *f,
                          struct ddp_err *err)
{
    *s = (struct scheduler){ .kind = -1, .name = "none", .title = "no scheduler", .host = f->host };
    s->kind = scheduler_choose(s, wanted, f);
    if (s->kind < 0 && strcmp(wanted, "auto") != 0 && strcmp(wanted, "none") != 0)
        return not_here(wanted, err);
    if (s->kind >= 0) {
        s->name = names[s->kind].name;
        s->title = names[s->kind].title;
        snprintf(s->rule, sizeof(s->rule), "%s", names[s->kind].rule);
        const struct row *r = &rows[s->kind];
        if (r->code != NULL)
            r->code(s, f);
        else if (r->size != NULL)
            read_tasks(s, f, r);
        else
            read_hosts(s, f, r);
    }
    if (f->per_task && !s->tasks.known)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--per_task: no scheduler has started this process as a task (%s%s); start ddprun "
                        "with srun or mpirun",
                        s->kind >= 0 ? "although " : "", s->rule);
    if (f->per_task)
        scheduler_per_task(s);
    return DDP_OK;
}

/* --- into the command line --------------------------------------------------------------------------------- */

/* These functions set options from the scheduler's values, and check how the job was started.
 *
 * The number of nodes is set first, because a job of one node does not need the scheduler's rank, address and port.
 *
 *     finding               when                                                      exit code
 *     WRONG_TASK_LAYOUT     more tasks than nodes, without --per_task                 2
 *     LAUNCHED_ON_ONE_NODE  several nodes, but ddprun runs only on the first node     2, or a warning if not certain
 *     STEP_TOO_SMALL        ddprun was not started on all nodes of the job            a warning
 *     NNODES_NOT_LAUNCHED   ddprun was started on fewer nodes than --nnodes           a warning
 *
 * The first three findings are not reported if --standalone, --nnodes or --node_rank shows that the layout is
 * intended. */

static bool is_set_by_user(const struct cli *cli, enum cli_option option)
{
    return cli->origin[option] > FROM_SCHEDULER;
}

static int number_of(const struct scheduler *s, enum scheduler_value_id id)
{
    return atoi(s->values[id].text);
}

/* Add a note for each option that differs from the scheduler's number, because a different number may be a mistake.
 * Addresses and job ids are not compared. */
static void note_conflicts(struct scheduler *s, const struct cli *cli)
{
    const bool known_nodes = s->values[SCHEDULER_NODES].text[0] != '\0' && !cli->standalone;
    const bool known_rank = s->values[SCHEDULER_NODE_RANK].text[0] != '\0' && !cli_is_elastic(cli);
    const struct cli_nnodes *n = &cli->nnodes;
    if (known_nodes && is_set_by_user(cli, OPT_NNODES) && n->min == n->max &&
        n->max != number_of(s, SCHEDULER_NODES))
        scheduler_note(s, "--nnodes=%d overrides the value from %s: %s (%s)", n->max, s->title,
                       s->values[SCHEDULER_NODES].text, s->values[SCHEDULER_NODES].from);
    if (known_rank && is_set_by_user(cli, OPT_NODE_RANK) &&
        cli->node_rank != number_of(s, SCHEDULER_NODE_RANK))
        scheduler_note(s, "--node_rank=%d overrides the value from %s: %s (%s)", cli->node_rank, s->title,
                       s->values[SCHEDULER_NODE_RANK].text, s->values[SCHEDULER_NODE_RANK].from);
    if (is_set_by_user(cli, OPT_NPROC_PER_NODE) && cli->nproc.kind == NPROC_NUMBER &&
        s->values[SCHEDULER_WORKERS].text[0] != '\0' && cli->nproc.count != number_of(s, SCHEDULER_WORKERS))
        scheduler_note(s, "--nproc_per_node=%d is used, although %s provides %s GPUs (%s)", cli->nproc.count,
                       s->title, s->values[SCHEDULER_WORKERS].text, s->values[SCHEDULER_WORKERS].from);
}

/* Return true if a job with these options needs this value of the scheduler. The caller checks whether the user has set
 * the option of this value. */
static bool scheduler_value_counts(const struct cli *cli, enum scheduler_value_id id)
{
    const bool endpoint = is_set_by_user(cli, OPT_RDZV_ENDPOINT),
               meet = cli->nnodes.max > 1 && !cli->standalone;
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

/* Store the values of LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK and GROUP_WORLD_SIZE for the worker of --per_task. The
 * rendezvous cannot provide these values, because the rendezvous counts each task as a node. */
static void give_task(const struct scheduler *s, struct cli *cli)
{
    const struct scheduler_tasks *t = &s->tasks;
    if (cli->per_task)
        cli->task = (struct cli_task){
            .local_rank = t->local, .local_world_size = t->here, .node_rank = t->node, .nnodes = t->nodes
        };
}

/* Store the finding WRONG_TASK_LAYOUT. Format its sentence here, because the sentence needs plural forms. */
static void find_tasks(struct scheduler *s)
{
    const struct scheduler_tasks *t = &s->tasks;
    char words[SCHEDULER_WORDS_MAX];
    const char *job = s->values[SCHEDULER_JOB].text;
    snprintf(words, sizeof(words),
             "runs %d of the %d copies of ddprun that %s has started on %d node%s%s%s; each copy would start "
             "all workers of its node",
             t->here, t->tasks, s->title, t->nodes, t->nodes == 1 ? "" : "s",
             job[0] != '\0' ? " for job " : "", job);
    finding_make(&s->finding.found, FINDING_WRONG_TASK_LAYOUT, s->host, "layout", words, NULL);
    s->finding.fatal = true;
}

/* Store a finding about the number of nodes on which ddprun was started. */
static void find_nodes(struct scheduler *s, enum finding_code code, int nodes)
{
    const char *const who = s->reach == REACH_ONE ? "ddprun runs" : "ddprun probably runs";
    const char *const job = s->values[SCHEDULER_JOB].text;
    char count[16], launched[16], subject[SCHEDULER_TEXT_MAX];
    snprintf(count, sizeof(count), "%d", nodes);
    snprintf(launched, sizeof(launched), "%d", s->tasks.nodes);
    snprintf(subject, sizeof(subject), "%s%.120s", job[0] != '\0' ? "job " : "this job", job);
    finding_make(&s->finding.found, code, subject, "scheduler", s->title, "nnodes", count, "started_nodes",
                 launched, "who", who, "launch_command", rows[s->kind].launch, NULL);
    s->finding.fatal = code == FINDING_LAUNCHED_ON_ONE_NODE && s->reach == REACH_ONE;
}

/* Return true if the job has more tasks than nodes. In this case each task of a node would start all workers of the
 * node. Return false if options of the user show that the layout is intended. */
static bool is_wrong_layout(const struct scheduler *s, const struct cli *cli)
{
    const struct scheduler_tasks *t = &s->tasks;
    const bool by_hand = cli->standalone || is_set_by_user(cli, OPT_NODE_RANK) ||
                         (is_set_by_user(cli, OPT_NNODES) && cli->nnodes.max == t->tasks);
    return t->known && t->tasks > t->nodes && !cli->per_task && !by_hand;
}

/* Check how the job was started, and store at most one finding about the start. */
static void scheduler_find(struct scheduler *s, const struct cli *cli)
{
    const struct scheduler_tasks *t = &s->tasks;
    const int nodes = number_of(s, SCHEDULER_NODES);
    const bool by_user =
        cli->standalone || is_set_by_user(cli, OPT_NNODES) || is_set_by_user(cli, OPT_NODE_RANK);
    s->finding.mine = !t->known || t->local == 0;
    if (is_wrong_layout(s, cli))
        find_tasks(s);
    else if (s->reach != REACH_ALL && nodes > 1 && !by_user && !cli->per_task)
        find_nodes(s, FINDING_LAUNCHED_ON_ONE_NODE, nodes);
    else if (t->known && s->job_nodes > t->nodes && !by_user)
        find_nodes(s, FINDING_STEP_TOO_SMALL, s->job_nodes);
    else if (t->known && !cli->per_task && is_set_by_user(cli, OPT_NNODES) && cli->nnodes.min > t->tasks)
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
        if (v->text[0] != '\0' && !is_set_by_user(cli, scheduler_options[i]) &&
            scheduler_value_counts(cli, (enum scheduler_value_id)i))
            status = cli_offer(cli, scheduler_options[i], v->text, v->from, err);
    }
    give_task(s, cli);
    scheduler_find(s, cli);
    if (s->restarts > 0)
        scheduler_note(s, "%s has restarted this job %d time%s", s->title, s->restarts,
                       s->restarts == 1 ? "" : "s");
    return status;
}

const char *scheduler_launch(const struct scheduler *s)
{
    return rows[s->kind].launch;
}
