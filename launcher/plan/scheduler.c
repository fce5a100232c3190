/* scheduler.c -- see scheduler.h. Who is here is one look at the first variables of the table; what they all do in the same
 * way stands here, what each tells in a file of its own.
 *
 * Variables are read from the block that was handed in, and files as text: no function here looks at the
 * machine, so a scheduler that is not installed is tested by its variables. What is no number or makes no
 * sense is passed over as if it were not there, for a wrong guess would start a job of the wrong size. */
#include "plan/scheduler_parts.h"

#include "tables/worker_env.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT_BASE = 12000, PORT_SPAN = 16000, NUMBER_MAX = 100000000 };

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

const enum cli_option scheduler_options[SCHEDULER_VALUE_COUNT] = {
#define X(id, option) [SCHEDULER_##id] = OPT_##option,
    SCHEDULER_VALUES(X)
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

/* --- for the readers ------------------------------------------------------------------------------------ */

/* Empty counts as not set: scripts empty a variable to hide it. */
const char *scheduler_env(const struct scheduler_facts *f, const char *name)
{
    const char *text = env_find(f->environ_block, name);
    return text != NULL && *text != '\0' ? text : NULL;
}

/* Digits only: strtol would take blanks, signs and "4(x2)", Slurm's way of writing "4 on each of two
 * nodes". */
int scheduler_number(const struct scheduler_facts *f, const char *name)
{
    const char *text = scheduler_env(f, name);
    char *end;
    if (text == NULL || !isdigit((unsigned char)*text))
        return -1;
    const long value = strtol(text, &end, 10);
    return *end == '\0' && value < NUMBER_MAX ? (int)value : -1;
}

static void put(struct scheduler *s, enum scheduler_value_id id, const char *text, const char *from,
                va_list ap) __attribute__((format(printf, 4, 0)));
static void put(struct scheduler *s, enum scheduler_value_id id, const char *text, const char *from,
                va_list ap)
{
    struct scheduler_value *v = &s->values[id];
    snprintf(v->text, sizeof(v->text), "%s", text);
    vsnprintf(v->from, sizeof(v->from), from, ap);
}

void scheduler_put(struct scheduler *s, enum scheduler_value_id id, const char *text, const char *from, ...)
{
    va_list ap;
    va_start(ap, from);
    put(s, id, text, from, ap);
    va_end(ap);
}

void scheduler_put_number(struct scheduler *s, enum scheduler_value_id id, int number, const char *from, ...)
{
    char text[16];
    va_list ap;
    snprintf(text, sizeof(text), "%d", number);
    va_start(ap, from);
    put(s, id, text, from, ap);
    va_end(ap);
}

/* Notes beyond the room are dropped; they explain, nothing depends on them. */
void scheduler_note(struct scheduler *s, const char *fmt, ...)
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

/* The next number in `text`, 0 when there is none. What is too long for a number wraps, the same on every node. */
static unsigned long long next_number(const char **text)
{
    unsigned long long value = 0;
    while (**text != '\0' && !isdigit((unsigned char)**text))
        ++*text;
    while (isdigit((unsigned char)**text))
        value = value * 10 + (unsigned long long)(*(*text)++ - '0');
    return value;
}

/* Two jobs that share a node must not share a port, and all nodes must find the same one without asking: so
 * it comes from the job's id. An id with two numbers is a task of an array; 31 parts them, so that
 * neighbouring tasks of neighbouring jobs differ. The span ends below 28000, before the ports that the
 * kernel hands out itself (32768 on) and torchrun's own (29400, 29500). */
void scheduler_put_job(struct scheduler *s, const char *job, const char *from)
{
    const char *at = job;
    const unsigned long long first = next_number(&at), second = next_number(&at);
    scheduler_put(s, SCHEDULER_JOB, job, "%s", from);
    scheduler_put_number(s, SCHEDULER_PORT, PORT_BASE + (int)((first * 31 + second) % PORT_SPAN),
                         "%d + (%llu * 31 + %llu) %% %d, from the job id", PORT_BASE, first, second,
                         PORT_SPAN);
}

int scheduler_entries(const char *text)
{
    int n = 1;
    for (; *text != '\0'; text++)
        n += *text == ',';
    return n;
}

/* Slurm's number is the node's, CUDA_VISIBLE_DEVICES what this process may see of it: the smaller one
 * counts. A variable that is empty or negative hides all GPUs on purpose, and nothing is said then. */
void scheduler_put_gpus(struct scheduler *s, const struct scheduler_facts *f, const char *name)
{
    const char *visible = env_find(f->environ_block, "CUDA_VISIBLE_DEVICES");
    const int given = scheduler_number(f, name);
    if (given <= 0 || (visible != NULL && (*visible == '\0' || *visible == '-')))
        return;
    if (visible != NULL && scheduler_entries(visible) < given)
        scheduler_put_number(s, SCHEDULER_WORKERS, scheduler_entries(visible),
                             "CUDA_VISIBLE_DEVICES=%.80s, less than %s=%d", visible, name, given);
    else
        scheduler_put_number(s, SCHEDULER_WORKERS, given, "%s", name);
}

/* To the rendezvous each ddprun is a node of one worker. When all are on one machine they meet on loopback. */
void scheduler_per_task(struct scheduler *s)
{
    const struct scheduler_tasks *t = &s->tasks;
    scheduler_put_number(s, SCHEDULER_NODES, t->tasks, "--per_task: one for each of the %d tasks", t->tasks);
    scheduler_put_number(s, SCHEDULER_NODE_RANK, t->task, "--per_task: the number of this task");
    scheduler_put(s, SCHEDULER_WORKERS, "1", "--per_task");
    if (t->nodes == 1)
        scheduler_put(s, SCHEDULER_ADDRESS, "127.0.0.1", "all tasks are on this node");
}

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
