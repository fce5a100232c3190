/* scheduler_tell.c -- see scheduler_parts.h: how the readers look at variables, and how they say what they have found. */
#include "plan/scheduler_parts.h"

#include "tables/worker_env.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { PORT_BASE = 12000, PORT_SPAN = 16000, NUMBER_MAX = 100000000 };

const enum cli_option scheduler_options[SCHEDULER_VALUE_COUNT] = {
#define X(id, option) [SCHEDULER_##id] = OPT_##option,
    SCHEDULER_VALUES(X)
#undef X
};

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
