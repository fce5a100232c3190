/* dry_run.c -- --dry_run: the plan in words that can be pasted into a shell, and as JSON.
 *
 *     job j: 2 workers on n1, store at 127.0.0.1:29500
 *     GPUs: 2 visible of 4
 *     rank 0: local rank 0, GPU 3
 *         command: ./train --name 'two words'
 *         stdout: console
 *         environment:
 *             RANK=0
 *
 * Both show what the workers would really get: the environment is made by the function that the start uses,
 * too, so that a dry run cannot drift away from the real one. Inherited variables are left out. */
#include "base/text.h"
#include "plan/plan.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <string.h>

/* A word as a POSIX shell would read it back. */
static bool shell_word(struct buf *out, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+./:=,@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0')
        return buf_printf(out, "%s", word);
    bool ok = buf_append(out, "'", 1);
    for (; *word != '\0'; word++)
        ok = ok && (*word == '\'' ? buf_append(out, "'\\''", 4) : buf_append(out, word, 1));
    return ok && buf_append(out, "'", 1);
}

/* As it could be typed; quotes only where a shell needs them. */
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
        return buf_printf(out, "    %s: not shown; a report would have its last lines\n", name);
    return buf_printf(out, "    %s: %s%s%s\n", name, stream->console ? "console" : "",
                      stream->console && stream->file != NULL ? " and " : "",
                      stream->file != NULL ? stream->file : "");
}

/* Will the rendezvous give out ranks? Those of a static job follow from its node ranks. */
static bool has_open_ranks(const struct plan *plan)
{
    return !plan->settled && plan->meeting.elastic;
}

static bool is_variable(const char *entry, const char *name)
{
    const size_t len = strlen(name);
    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

/* What no worker will ever see as it stands here, and what it stands for; NULL when it is what it says. */
static const char *stands_for(const struct plan *plan, const char *entry)
{
    static const char *const ranks[] = { "RANK",      "WORLD_SIZE",     "GROUP_RANK", "GROUP_WORLD_SIZE",
                                         "ROLE_RANK", "ROLE_WORLD_SIZE" };
    if (strcmp(entry, "MASTER_PORT=0") == 0)
        return "the free port that is found at the start";
    if (plan->meeting.elsewhere && is_variable(entry, "MASTER_ADDR"))
        return "the numeric address at which this node reaches the store";
    for (size_t i = 0; has_open_ranks(plan) && i < sizeof(ranks) / sizeof(ranks[0]); i++)
        if (is_variable(entry, ranks[i]))
            return "what the rendezvous decides";
    return NULL;
}

/* A shell comment, so that pasting still works. */
static bool print_variable(struct buf *out, const struct plan *plan, const char *entry)
{
    const char *meaning = stands_for(plan, entry);
    return buf_printf(out, "        ") && shell_word(out, entry) &&
           (meaning != NULL ? buf_printf(out, "  # stands for %s\n", meaning) : buf_printf(out, "\n"));
}

/* Only what we set: the inherited rest is the user's own and long. */
static bool print_environment(struct buf *out, const struct plan *plan, int local_rank)
{
    struct worker_env env;
    if (plan_env(plan, local_rank, &env, NULL) != DDP_OK)
        return false;
    bool ok = buf_printf(out, "    environment:\n");
    for (size_t i = 0; i < env.n_ours; i++)
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
           print_stream(out, "stderr", &w->err) && print_environment(out, plan, w->local_rank);
}

/* "nodes: static, this is node 1 of 2; 15 min to come together (--timeout)" */
static bool print_nodes(struct buf *out, const struct plan *plan)
{
    const struct plan_meeting *m = &plan->meeting;
    if (m->nnodes_max == 1)
        return true;
    bool ok = m->elastic
                  ? buf_printf(out, "nodes: elastic, %d to %d; ", m->nnodes_min, m->nnodes_max)
                  : buf_printf(out, "nodes: static, this is node %d of %d; ", m->node_rank, m->nnodes_max);
    return ok && text_put_ms(out, m->join_ms) && buf_printf(out, " to come together (%s)\n", m->join_knob);
}

/* What the workers have in common. A port of 0 is not known before the store listens. */
static bool print_head(struct buf *out, const struct plan *plan)
{
    bool ok = buf_printf(out, "job %s: %d worker%s on %s, store at %s:", plan->job, plan->nproc,
                         plan->nproc == 1 ? "" : "s", plan->facts->host, plan->master_addr);
    ok = ok && (plan->master_port != 0 ? buf_printf(out, "%d\n", plan->master_port)
                                       : buf_printf(out, "any free port\n"));
    ok = ok && print_nodes(out, plan);
    ok = ok && buf_printf(out, "GPUs: %d visible of %d\n", plan->gpus->n, plan->gpus->physical);
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

/* Make an empty object or array below `object`; NULL when memory is short. */
static cJSON *below(cJSON *object, const char *name, cJSON *item)
{
    return json_add(object, name, item) ? item : NULL;
}

/* Arguments are bytes, JSON is text. */
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

static bool add_stream(cJSON *worker, const char *name, const struct plan_stream *stream)
{
    cJSON *o = below(worker, name, cJSON_CreateObject());
    return o != NULL && json_add_bool(o, "console", stream->console) &&
           json_add_text(o, "file", stream->file);
}

/* One "KEY=VALUE" as a member; null where the value is not known yet. */
static bool add_variable(cJSON *object, const struct plan *plan, const char *entry)
{
    size_t len = strcspn(entry, "=");
    struct buf name = { 0 };
    bool ok = utf8_clean(&name, slice_of(entry, len)) && buf_append(&name, "", 1) &&
              json_add_text(object, (const char *)name.data,
                            stands_for(plan, entry) != NULL ? NULL : entry + len + 1);
    buf_free(&name);
    return ok;
}

static bool add_environment(cJSON *worker, const struct plan *plan, int local_rank)
{
    struct worker_env env;
    cJSON *o = below(worker, "environment", cJSON_CreateObject());
    if (o == NULL || plan_env(plan, local_rank, &env, NULL) != DDP_OK)
        return false;
    bool ok = true;
    for (size_t i = 0; i < env.n_ours; i++)
        ok = ok && add_variable(o, plan, env.block[i]);
    worker_env_free(&env);
    return ok;
}

/* null = the rendezvous decides. */
static bool add_rank(cJSON *o, const struct plan *plan, const char *name, int value)
{
    return has_open_ranks(plan) ? json_add_text(o, name, NULL) : json_add_number(o, name, value);
}

/* Left out where nothing is bound. */
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
    cJSON *command = below(o, "command", cJSON_CreateArray());
    for (char *const *arg = w->argv; *arg != NULL; arg++)
        ok = ok && add_to_array(command, *arg);
    return ok && add_cpus(o, &w->cpus) && add_stream(o, "stdout", &w->out) &&
           add_stream(o, "stderr", &w->err) && json_add_text(o, "error_file", w->error_file) &&
           add_environment(o, plan, w->local_rank);
}

/* null = any free one, found at the start. */
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
           json_add_number(o, "gpus_physical", plan->gpus->physical) &&
           json_add_text(o, "contained_by", plan->contained_by) &&
           json_add_text(o, "log_dir", plan->log_root) && json_add_bool(o, "prefix", plan->prefix);
}

bool plan_print_json(const struct plan *plan, struct buf *out)
{
    cJSON *o = cJSON_CreateObject();
    bool ok = o != NULL && add_job(o, plan);
    cJSON *notes = ok ? below(o, "notes", cJSON_CreateArray()) : NULL;
    cJSON *workers = ok ? below(o, "workers", cJSON_CreateArray()) : NULL;
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
