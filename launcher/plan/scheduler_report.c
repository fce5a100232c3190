/* scheduler_report.c -- --why: what was decided before anything starts, and why.
 *
 *     scheduler       Slurm: SLURM_JOB_ID is set
 *     task            1 of 2; on this node 0 of 1; node 1 of 2
 *     nnodes          2            SLURM_STEP_NUM_NODES
 *     master_port     12031        12000 + (1 * 31 + 0) % 16000, from the job id
 *     nproc_per_node  4            command line; Slurm says 8 (SLURM_GPUS_ON_NODE)
 *
 * Values are those that count, read back from the command line after everybody has spoken. */
#include "cli/cli_table.h"
#include "plan/scheduler.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

enum { FROM_MAX = 2 * SCHEDULER_TEXT_MAX + 100, WIDTH_MIN = 19, WIDTH_MAX = 40 };

/* One value in words. */
struct shown {
    const char *name;
    char text[SCHEDULER_TEXT_MAX], from[FROM_MAX];
};

/* As it would be typed, so that it can be copied into a command line. */
static void print_nodes(const struct cli *cli, char *out, size_t size)
{
    const struct cli_nnodes *n = &cli->nnodes;
    if (n->min == n->max)
        snprintf(out, size, "%d", n->max);
    else
        snprintf(out, size, "%d:%d", n->min, n->max);
}

static void print_workers(const struct cli *cli, char *out, size_t size)
{
    static const char *const words[] = { [NPROC_DEFAULT] = "one for each visible GPU, or 1",
                                         [NPROC_GPU] = "gpu",
                                         [NPROC_CPU] = "cpu",
                                         [NPROC_AUTO] = "auto" };
    if (cli->nproc.kind == NPROC_NUMBER)
        snprintf(out, size, "%d", cli->nproc.count);
    else
        snprintf(out, size, "%s", words[cli->nproc.kind]);
}

/* Not the scheduler's values, but what the options came to: who asks why is misled by a value that was
 * overruled. */
static void print_value(const struct cli *cli, enum scheduler_value_id id, char *out, size_t size)
{
    switch (id) {
    case SCHEDULER_NODES:
        print_nodes(cli, out, size);
        break;
    case SCHEDULER_NODE_RANK:
        if (cli_is_elastic(cli))
            snprintf(out, size, "from the rendezvous");
        else
            snprintf(out, size, "%d", cli->node_rank);
        break;
    case SCHEDULER_ADDRESS:
        snprintf(out, size, "%s", cli->endpoint.host[0] != '\0' ? cli->endpoint.host : cli->master_addr);
        break;
    case SCHEDULER_PORT:
        snprintf(out, size, "%d", cli->endpoint.port > 0 ? cli->endpoint.port : cli->master_port);
        break;
    case SCHEDULER_WORKERS:
        print_workers(cli, out, size);
        break;
    case SCHEDULER_JOB:
    case SCHEDULER_VALUE_COUNT:
        snprintf(out, size, "%s", cli->job != NULL ? cli->job : cli->nnodes.max > 1 ? "none" : "made up");
        break;
    }
}

/* Who has said it; and what the scheduler would have said. An endpoint on the command line overrules
 * address and port together, though neither option was given. */
static void print_origin(const struct scheduler *s, const struct cli *cli, enum scheduler_value_id id,
                         struct shown *shown)
{
    const enum cli_option option =
        (id == SCHEDULER_ADDRESS || id == SCHEDULER_PORT) && cli_gives(cli, OPT_RDZV_ENDPOINT)
            ? OPT_RDZV_ENDPOINT
            : scheduler_options[id];
    const struct scheduler_value *v = &s->values[id];
    char pet[OPTION_PET_MAX];
    int used = 0;
    options_pet_name(pet, &cli_rows[option]);
    switch (cli->origin[option]) {
    case FROM_DEFAULT:
        used = snprintf(shown->from, FROM_MAX, "default");
        break;
    case FROM_SCHEDULER:
        snprintf(shown->from, FROM_MAX, "%s", v->from);
        return;
    case FROM_ENVIRONMENT:
        used = snprintf(shown->from, FROM_MAX, "%s", pet);
        break;
    case FROM_COMMAND_LINE:
        used = snprintf(shown->from, FROM_MAX, "command line (--%s)", cli_rows[option].name);
        break;
    }
    if (v->text[0] != '\0')
        snprintf(shown->from + used, FROM_MAX - (size_t)used, "; %s says %s (%s)", s->title, v->text,
                 v->from);
}

static void show(const struct scheduler *s, const struct cli *cli, enum scheduler_value_id id,
                 struct shown *shown)
{
    shown->name = cli_rows[scheduler_options[id]].name;
    print_value(cli, id, shown->text, sizeof(shown->text));
    print_origin(s, cli, id, shown);
}

/* Counted from 0 like everything that a worker finds in its environment. */
static bool print_tasks(const struct scheduler *s, const struct cli *cli, struct buf *out)
{
    const struct scheduler_tasks *t = &s->tasks;
    if (!t->known)
        return true;
    bool ok = buf_printf(out, "%-16sthis is task %d of %d, on this node %d of %d; node %d of %d\n", "task",
                         t->task, t->tasks, t->local, t->here, t->node, t->nodes);
    if (cli->per_task)
        ok = ok &&
             buf_printf(out, "%-16sRANK=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d GROUP_RANK=%d WORLD_SIZE=%d\n",
                        "worker", t->task, t->local, t->here, t->node, t->tasks);
    return ok;
}

/* The values' column is as wide as its widest, but a host's name that is longer than most shifts its own line alone. */
static bool print_values(const struct scheduler *s, const struct cli *cli, struct buf *out)
{
    struct shown shown[SCHEDULER_VALUE_COUNT];
    int width = WIDTH_MIN;
    bool ok = true;
    for (int i = 0; i < SCHEDULER_VALUE_COUNT; i++) {
        show(s, cli, (enum scheduler_value_id)i, &shown[i]);
        const int len = (int)strlen(shown[i].text);
        if (len > width && len <= WIDTH_MAX)
            width = len;
    }
    for (int i = 0; ok && i < SCHEDULER_VALUE_COUNT; i++)
        ok = buf_printf(out, "%-16s%-*s  %s\n", shown[i].name, width, shown[i].text, shown[i].from);
    return ok;
}

bool scheduler_print(const struct scheduler *s, const struct cli *cli, struct buf *out)
{
    const struct finding *f = &s->finding.found;
    bool ok = buf_printf(out, "%-16s%s: %s\n", "scheduler", s->title, s->rule) && print_tasks(s, cli, out) &&
              print_values(s, cli, out);
    for (int i = 0; ok && i < SCHEDULER_NOTES_MAX && s->notes[i][0] != '\0'; i++)
        ok = buf_printf(out, "%-16s%s\n", "note", s->notes[i]);
    if (ok && f->code != FINDING_NONE)
        ok = buf_printf(out, "%-16s%s: %s\n%-16s%s\n", "finding", finding_code_name(f->code), f->sentence,
                        "  try", f->advice);
    return ok;
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

static bool add_values(cJSON *values, const struct scheduler *s, const struct cli *cli)
{
    struct shown shown;
    bool ok = values != NULL;
    for (int i = 0; ok && i < SCHEDULER_VALUE_COUNT; i++) {
        cJSON *o = json_add_object(values);
        show(s, cli, (enum scheduler_value_id)i, &shown);
        ok = o != NULL && json_add_text(o, "option", shown.name) && json_add_text(o, "value", shown.text) &&
             json_add_text(o, "from", shown.from);
    }
    return ok;
}

static bool add_notes(cJSON *notes, const struct scheduler *s)
{
    bool ok = notes != NULL;
    for (int i = 0; ok && i < SCHEDULER_NOTES_MAX && s->notes[i][0] != '\0'; i++) {
        cJSON *text = cJSON_CreateString(s->notes[i]);
        ok = text != NULL && cJSON_AddItemToArray(notes, text);
    }
    return ok;
}

static bool add_finding(cJSON *o, const struct scheduler *s)
{
    const struct finding *f = &s->finding.found;
    if (f->code == FINDING_NONE)
        return json_add_null(o, "finding");
    cJSON *finding = cJSON_AddObjectToObject(o, "finding");
    return finding != NULL && json_add_text(finding, "code", finding_code_name(f->code)) &&
           json_add_text(finding, "sentence", f->sentence) && json_add_text(finding, "advice", f->advice) &&
           json_add_bool(finding, "fatal", s->finding.fatal);
}

bool scheduler_print_json(const struct scheduler *s, const struct cli *cli, struct buf *out)
{
    cJSON *o = cJSON_CreateObject();
    if (o != NULL && json_add_text(o, "scheduler", s->name) && json_add_text(o, "title", s->title) &&
        json_add_text(o, "rule", s->rule) && add_values(cJSON_AddArrayToObject(o, "values"), s, cli) &&
        add_notes(cJSON_AddArrayToObject(o, "notes"), s) && add_finding(o, s))
        return json_print(out, o, true);
    cJSON_Delete(o);
    return false;
}
