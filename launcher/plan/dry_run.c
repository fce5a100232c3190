/* dry_run.c -- prints the plan for --dry_run and the options for --explain, as text and as JSON. Commands and
 * variables that --dry_run prints can be pasted into a shell:
 *
 *     job j: 2 workers on n1, store at 127.0.0.1:29500
 *     GPUs: 2 visible of 4
 *     rank 0: local rank 0, GPU 3
 *         command: ./train --name 'two words'
 *         stdout: console
 *         environment:
 *             RANK=0
 *
 * A dry run and a real start build the environment with the same function, so both environments are equal.
 * Inherited variables are not printed. */
#include "base/text.h"
#include "cli/cli.h"
#include "plan/plan.h"
#include "plan/scheduler.h"
#include "plan/worker.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* Print a command line. Quote an argument only if a shell needs the quotes. */
static bool print_command(struct buf *out, char *const *argv)
{
    bool ok = buf_printf(out, "    command:");
    for (; *argv != NULL; argv++)
        ok = ok && buf_append(out, " ", 1) && shell_word(out, *argv);
    return ok && buf_append(out, "\n", 1);
}

static bool print_stream(struct buf *out, const char *name, const struct plan_stream *stream)
{
    if (!stream->console && stream->file == NULL)
        return buf_printf(out, "    %s: not shown; if the worker fails, ddprun prints the last lines\n",
                          name);
    return buf_printf(out, "    %s: %s%s%s\n", name, stream->console ? "console" : "",
                      stream->console && stream->file != NULL ? " and " : "",
                      stream->file != NULL ? stream->file : "");
}

/* Return true if the ranks are unknown until the rendezvous. In a static job the user sets the node ranks, so all ranks
 * are known before the rendezvous. */
static bool has_open_ranks(const struct plan *plan)
{
    return !plan->settled && plan->meeting.elastic;
}

static bool is_variable(const char *entry, const char *name)
{
    const size_t len = strlen(name);
    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

/* Return a description of a variable's value if this value is not known yet. Return NULL if the value is known. */
static const char *unknown_value(const struct plan *plan, const char *entry)
{
    static const char *const ranks[] = { "RANK",      "WORLD_SIZE",     "GROUP_RANK", "GROUP_WORLD_SIZE",
                                         "ROLE_RANK", "ROLE_WORLD_SIZE" };
    if (strcmp(entry, "MASTER_PORT=0") == 0)
        return "a free port that ddprun chooses at the start";
    if (plan->meeting.elsewhere && is_variable(entry, "MASTER_ADDR"))
        return "the numeric address at which this node reaches the store";
    for (size_t i = 0; has_open_ranks(plan) && i < sizeof(ranks) / sizeof(ranks[0]); i++)
        if (is_variable(entry, ranks[i]))
            return "a value that the rendezvous assigns";
    return NULL;
}

/* Print a variable. If the value is a placeholder, append the meaning as a shell comment. */
static bool print_variable(struct buf *out, const struct plan *plan, const char *entry)
{
    const char *meaning = unknown_value(plan, entry);
    return buf_printf(out, "        ") && shell_word(out, entry) &&
           (meaning != NULL ? buf_printf(out, "  # placeholder for %s\n", meaning) : buf_printf(out, "\n"));
}

/* Print the variables that ddprun sets. Do not print inherited variables, because there are too many of these. */
static bool print_environment(struct buf *out, const struct plan *plan, int local_rank)
{
    struct worker_env env;
    if (plan_env(plan, local_rank, &env, NULL) != DDP_OK)
        return false;
    bool ok = buf_printf(out, "    environment:\n");
    for (size_t i = 0; i < env.n_set; i++)
        ok = ok && print_variable(out, plan, env.block[i]);
    worker_env_free(&env);
    return ok;
}

static bool print_cpus(struct buf *out, const struct rank_set *cpus)
{
    if (cpus->limit == 0)
        return true;
    return buf_printf(out, "    CPUs: ") && numa_print(cpus, out) && buf_printf(out, "\n");
}

static bool print_worker(struct buf *out, const struct plan *plan, const struct plan_worker *w)
{
    const bool ok =
        has_open_ranks(plan) ? buf_printf(out, "rank ?: ") : buf_printf(out, "rank %d: ", w->rank);
    return ok &&
           buf_printf(out, "local rank %d, GPU %s\n", w->local_rank, w->gpu != NULL ? w->gpu : "none") &&
           print_command(out, w->argv) && print_cpus(out, &w->cpus) && print_stream(out, "stdout", &w->out) &&
           print_stream(out, "stderr", &w->err) && print_environment(out, plan, (int)(w - plan->workers));
}

/* Print, for example, "nodes: static; this is node 1 of 2, counted from 0; 15 min to join (--timeout)". */
static bool print_nodes(struct buf *out, const struct plan *plan)
{
    const struct plan_meeting *m = &plan->meeting;
    if (m->nnodes_max == 1)
        return true;
    bool ok = m->elastic ? buf_printf(out, "nodes: elastic, %d to %d; ", m->nnodes_min, m->nnodes_max)
                         : buf_printf(out, "nodes: static; this is node %d of %d, counted from 0; ",
                                      m->node_rank, m->nnodes_max);
    return ok && text_append_ms(out, m->join_ms) && buf_printf(out, " to join (%s)\n", m->join_knob);
}

/* Return the chosen Python, or NULL if PROGRAM is neither a script nor a module. */
static const struct python_choice *chosen_python(const struct plan *plan)
{
    return program_needs_python(plan->cli) ? plan->facts->python : NULL;
}

/* Print the lines that apply to all workers. Port 0 means that the store chooses a port at the start. */
static bool print_head(struct buf *out, const struct plan *plan)
{
    bool ok = buf_printf(out, "job %s: %d worker%s on %s, store at %s:", plan->job, plan->nproc,
                         plan->nproc == 1 ? "" : "s", plan->facts->host, plan->master_addr);
    ok = ok && (plan->master_port != 0 ? buf_printf(out, "%d\n", plan->master_port)
                                       : buf_printf(out, "any free port\n"));
    ok = ok && print_nodes(out, plan);
    ok = ok && buf_printf(out, "GPUs: %d visible of %d\n", plan->gpus->n, plan->gpus->physical);
    if (chosen_python(plan) != NULL)
        ok = ok &&
             buf_printf(out, "Python: %s (%s)\n", chosen_python(plan)->program, chosen_python(plan)->why);
    if (plan->contained_by != NULL)
        ok = ok && buf_printf(out, "contained by: %s\n", plan->contained_by);
    if (plan->log_root != NULL)
        ok = ok && buf_printf(out, "logs: %s\n", plan->log_root);
    for (int i = 0; i < PLAN_NOTES_MAX && plan->notes[i] != NULL; i++)
        ok = ok && buf_printf(out, "note: %s\n", plan->notes[i]);
    return ok;
}

bool plan_print(const struct plan *plan, struct buf *out)
{
    bool ok = print_head(out, plan);
    for (int r = 0; r < plan->nproc; r++)
        ok = ok && print_worker(out, plan, &plan->workers[r]);
    return ok;
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

/* Add an argument, as UTF-8, which JSON requires. */
static bool add_to_array(cJSON *array, const char *text)
{
    struct buf clean = { 0 };
    bool ok = array != NULL && utf8_clean(&clean, slice_str(text)) && buf_append(&clean, "", 1);
    cJSON *item = ok ? cJSON_CreateString((const char *)clean.data) : NULL;
    buf_free(&clean);
    if (item != NULL && cJSON_AddItemToArray(array, item))
        return true;
    cJSON_Delete(item);
    return false;
}

/* Add the chosen Python, or null if PROGRAM is neither a script nor a module. */
static bool add_python(cJSON *o, const struct python_choice *python)
{
    cJSON *member = python != NULL ? cJSON_AddObjectToObject(o, "python") : NULL;
    if (python == NULL)
        return json_add_null(o, "python");
    return json_add_text(member, "program", python->program) && json_add_text(member, "why", python->why);
}

static bool add_stream(cJSON *worker, const char *name, const struct plan_stream *stream)
{
    cJSON *o = cJSON_AddObjectToObject(worker, name);
    return o != NULL && json_add_bool(o, "console", stream->console) &&
           json_add_text(o, "file", stream->file);
}

/* Add the variable "KEY=VALUE" as a member. The member is null if the value is not known yet. */
static bool add_variable(cJSON *object, const struct plan *plan, const char *entry)
{
    size_t len = strcspn(entry, "=");
    struct buf name = { 0 };
    bool ok = utf8_clean(&name, slice_of(entry, len)) && buf_append(&name, "", 1) &&
              json_add_text(object, (const char *)name.data,
                            unknown_value(plan, entry) != NULL ? NULL : entry + len + 1);
    buf_free(&name);
    return ok;
}

static bool add_environment(cJSON *worker, const struct plan *plan, int local_rank)
{
    struct worker_env env;
    cJSON *o = cJSON_AddObjectToObject(worker, "environment");
    if (o == NULL || plan_env(plan, local_rank, &env, NULL) != DDP_OK)
        return false;
    bool ok = true;
    for (size_t i = 0; i < env.n_set; i++)
        ok = ok && add_variable(o, plan, env.block[i]);
    worker_env_free(&env);
    return ok;
}

/* Add a rank, or null if only the rendezvous knows the rank. */
static bool add_rank(cJSON *o, const struct plan *plan, const char *name, int value)
{
    return has_open_ranks(plan) ? json_add_text(o, name, NULL) : json_add_number(o, name, value);
}

/* Add the CPUs of a worker. Add no member if the worker is not bound to CPUs. */
static bool add_cpus(cJSON *o, const struct rank_set *cpus)
{
    struct buf text = { 0 };
    if (cpus->limit == 0)
        return true;
    const bool ok = numa_print(cpus, &text) && buf_append(&text, "", 1) &&
                    json_add_text(o, "cpus", (const char *)text.data);
    buf_free(&text);
    return ok;
}

static bool add_worker(cJSON *array, const struct plan *plan, const struct plan_worker *w)
{
    cJSON *o = json_add_object(array);
    bool ok = o != NULL && add_rank(o, plan, "rank", w->rank) &&
              json_add_number(o, "local_rank", w->local_rank) && json_add_text(o, "gpu", w->gpu);
    cJSON *command = cJSON_AddArrayToObject(o, "command");
    for (char *const *arg = w->argv; *arg != NULL; arg++)
        ok = ok && add_to_array(command, *arg);
    return ok && add_cpus(o, &w->cpus) && add_stream(o, "stdout", &w->out) &&
           add_stream(o, "stderr", &w->err) && json_add_text(o, "error_file", w->error_file) &&
           add_environment(o, plan, (int)(w - plan->workers));
}

/* Add the port, or null if ddprun chooses a free port at the start. */
static bool add_port(cJSON *o, int port)
{
    return port != 0 ? json_add_number(o, "master_port", port) : json_add_text(o, "master_port", NULL);
}

static bool add_nodes(cJSON *o, const struct plan_meeting *m)
{
    return json_add_bool(o, "elastic", m->elastic) && json_add_number(o, "nnodes_min", m->nnodes_min) &&
           json_add_number(o, "nnodes_max", m->nnodes_max) &&
           json_add_number(o, "join_timeout_ms", (double)m->join_ms);
}

static bool add_job(cJSON *o, const struct plan *plan)
{
    return json_add_text(o, "job", plan->job) && json_add_text(o, "host", plan->facts->host) &&
           json_add_text(o, "master_addr", plan->master_addr) && add_port(o, plan->master_port) &&
           add_rank(o, plan, "world_size", plan->world_size) && add_rank(o, plan, "nnodes", plan->nnodes) &&
           add_rank(o, plan, "node_rank", plan->node_rank) && add_nodes(o, &plan->meeting) &&
           json_add_number(o, "gpus_visible", plan->gpus->n) &&
           json_add_number(o, "gpus_physical", plan->gpus->physical) && add_python(o, chosen_python(plan)) &&
           json_add_text(o, "contained_by", plan->contained_by) &&
           json_add_text(o, "log_dir", plan->log_root) && json_add_bool(o, "prefix", plan->prefix);
}

bool plan_print_json(const struct plan *plan, struct buf *out)
{
    cJSON *o = cJSON_CreateObject();
    bool ok = o != NULL && add_job(o, plan);
    cJSON *notes = ok ? cJSON_AddArrayToObject(o, "notes") : NULL;
    cJSON *workers = ok ? cJSON_AddArrayToObject(o, "workers") : NULL;
    ok = notes != NULL && workers != NULL;
    for (int i = 0; ok && i < PLAN_NOTES_MAX && plan->notes[i] != NULL; i++)
        ok = add_to_array(notes, plan->notes[i]);
    for (int r = 0; ok && r < plan->nproc; r++)
        ok = add_worker(workers, plan, &plan->workers[r]);
    if (ok)
        return json_print(out, o, true);
    cJSON_Delete(o);
    return false;
}

/* --- --explain: the values that the plan starts from, and their origins ------------------------------------------- */

/* --explain prints the value in effect of each option that a scheduler can provide, and the origin of the value:
 *
 *     scheduler       Slurm: SLURM_JOB_ID is set
 *     task            counted from 0: task 1 of 2; task 0 of 1 on this node; node 1 of 2
 *     nnodes          2            SLURM_STEP_NUM_NODES
 *     master_port     12031        computed from the job id
 *     nproc_per_node  4            command line; Slurm provides 8 (SLURM_GPUS_ON_NODE) */

enum { FROM_MAX = 2 * SCHEDULER_TEXT_MAX + 100, WIDTH_MIN = 19, WIDTH_MAX = 40 };

/* A line of --explain: the option, its value and the origin of the value. */
struct shown {
    const char *name;
    char text[SCHEDULER_TEXT_MAX], from[FROM_MAX];
};

/* Print --nnodes in the form of the command line, so that the user can copy the value. */
static void print_nnodes(const struct cli *cli, char *out, size_t size)
{
    const struct cli_nnodes *n = &cli->nnodes;
    if (n->min == n->max)
        snprintf(out, size, "%d", n->max);
    else
        snprintf(out, size, "%d:%d", n->min, n->max);
}

static void print_nproc(const struct cli *cli, char *out, size_t size)
{
    static const char *const words[] = { [NPROC_DEFAULT] = "one per visible GPU, 1 if none",
                                         [NPROC_GPU] = "gpu",
                                         [NPROC_CPU] = "cpu",
                                         [NPROC_AUTO] = "auto" };
    if (cli->nproc.kind == NPROC_NUMBER)
        snprintf(out, size, "%d", cli->nproc.count);
    else
        snprintf(out, size, "%s", words[cli->nproc.kind]);
}

/* Print the value in effect. This value may differ from the scheduler's value, because options override the
 * scheduler. */
static void print_value(const struct cli *cli, enum scheduler_value_id id, char *out, size_t size)
{
    struct plan_meeting m = { .elastic = cli_is_elastic(cli), .nnodes_max = cli->nnodes.max };
    plan_choose_place(&m, cli);
    switch (id) {
    case SCHEDULER_NODES:
        print_nnodes(cli, out, size);
        break;
    case SCHEDULER_NODE_RANK:
        if (cli_is_elastic(cli))
            snprintf(out, size, "from the rendezvous");
        else
            snprintf(out, size, "%d", cli->node_rank);
        break;
    case SCHEDULER_ADDRESS:
        snprintf(out, size, "%s", m.host);
        break;
    case SCHEDULER_PORT:
        if (m.port == 0)
            snprintf(out, size, "any free port");
        else
            snprintf(out, size, "%d", m.port);
        break;
    case SCHEDULER_WORKERS:
        print_nproc(cli, out, size);
        break;
    case SCHEDULER_JOB:
    case SCHEDULER_VALUE_COUNT:
        snprintf(out, size, "%s", cli->job != NULL ? cli->job : cli->nnodes.max > 1 ? "none" : "random");
        break;
    }
}

/* Print where a value comes from. If the scheduler provides another value, print that value too. Address and port may
 * come from --rdzv_endpoint. */
static void print_origin(const struct scheduler *s, const struct cli *cli, enum scheduler_value_id id,
                         struct shown *shown)
{
    const bool by_endpoint = plan_has_endpoint(cli) &&
                             (id == SCHEDULER_ADDRESS || (id == SCHEDULER_PORT && cli->endpoint.port >= 0));
    const enum cli_option option = by_endpoint ? OPT_RDZV_ENDPOINT : scheduler_options[id];
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
        snprintf(shown->from + used, FROM_MAX - (size_t)used, "; %s provides %s (%s)", s->title, v->text,
                 v->from);
}

static void show(const struct scheduler *s, const struct cli *cli, enum scheduler_value_id id,
                 struct shown *shown)
{
    shown->name = cli_rows[scheduler_options[id]].name;
    print_value(cli, id, shown->text, sizeof(shown->text));
    print_origin(s, cli, id, shown);
}

/* Print three numbers, each counted from 0: the task in the job, the task on its node, and the node. */
static bool print_tasks(const struct scheduler *s, const struct cli *cli, struct buf *out)
{
    const struct scheduler_tasks *t = &s->tasks;
    if (!t->known)
        return true;
    bool ok =
        buf_printf(out, "%-16scounted from 0: task %d of %d; task %d of %d on this node; node %d of %d\n",
                   "task", t->task, t->tasks, t->local, t->here, t->node, t->nodes);
    if (cli->per_task)
        ok = ok &&
             buf_printf(out, "%-16sRANK=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d GROUP_RANK=%d WORLD_SIZE=%d\n",
                        "worker", t->task, t->local, t->here, t->node, t->tasks);
    return ok;
}

/* Print all values in columns. The column of values is at most WIDTH_MAX wide. A longer value, such as a very long
 * host name, moves only the rest of its line. */
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

bool scheduler_print(const struct scheduler *s, const struct cli *cli, const struct python_choice *python,
                     struct buf *out)
{
    const struct finding *f = &s->finding.found;
    bool ok = buf_printf(out, "%-16s%s: %s\n", "scheduler", s->title, s->rule) && print_tasks(s, cli, out) &&
              print_values(s, cli, out);
    if (python != NULL)
        ok = ok && buf_printf(out, "%-16s%-*s  %s\n", "python", WIDTH_MIN, python->program, python->why);
    for (int i = 0; ok && i < SCHEDULER_NOTES_MAX && s->notes[i][0] != '\0'; i++)
        ok = buf_printf(out, "%-16s%s\n", "note", s->notes[i]);
    if (ok && f->code != FINDING_NONE)
        ok = buf_printf(out, "%-16s%s: %s\n%-16s%s\n", "finding", finding_code_name(f->code), f->sentence,
                        "  try", f->advice);
    return ok;
}

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
    for (int i = 0; ok && i < SCHEDULER_NOTES_MAX && s->notes[i][0] != '\0'; i++)
        ok = add_to_array(notes, s->notes[i]);
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

bool scheduler_print_json(const struct scheduler *s, const struct cli *cli,
                          const struct python_choice *python, struct buf *out)
{
    cJSON *o = cJSON_CreateObject();
    if (o != NULL && json_add_text(o, "scheduler", s->name) && json_add_text(o, "title", s->title) &&
        json_add_text(o, "rule", s->rule) && add_values(cJSON_AddArrayToObject(o, "values"), s, cli) &&
        add_python(o, python) && add_notes(cJSON_AddArrayToObject(o, "notes"), s) && add_finding(o, s))
        return json_print(out, o, true);
    cJSON_Delete(o);
    return false;
}
