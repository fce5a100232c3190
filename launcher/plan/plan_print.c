/* plan_print.c -- --dry_run: the plan in words that can be pasted into a shell, and as JSON.
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
#include "plan/plan.h"

#include "text/json_text.h"

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

/* With port 0 no worker will ever see this value: the store finds a free port, and the start puts that in. */
static bool is_open_port(const char *entry)
{
    return strcmp(entry, "MASTER_PORT=0") == 0;
}

/* A shell comment, so that pasting still works. */
static bool print_variable(struct buf *out, const char *entry)
{
    return buf_printf(out, "        ") && shell_word(out, entry) &&
           buf_printf(out, is_open_port(entry) ? "  # stands for the free port that is found at the start\n"
                                               : "\n");
}

/* Only what we set: the inherited rest is the user's own and long. */
static bool print_environment(struct buf *out, const struct plan *plan, int local_rank)
{
    struct worker_env env;
    if (plan_env(plan, local_rank, &env, NULL) != DDP_OK)
        return false;
    bool ok = buf_printf(out, "    environment:\n");
    for (size_t i = 0; i < env.n_ours; i++)
        ok = ok && print_variable(out, env.block[i]);
    worker_env_free(&env);
    return ok;
}

static bool print_worker(struct buf *out, const struct plan *plan, const struct plan_worker *w)
{
    return buf_printf(out, "rank %d: local rank %d, GPU %s\n", w->rank, w->local_rank,
                      w->gpu != NULL ? w->gpu : "none") &&
           print_command(out, w->argv) && print_stream(out, "stdout", &w->out) &&
           print_stream(out, "stderr", &w->err) && print_environment(out, plan, w->local_rank);
}

/* What the workers have in common. A port of 0 is not known before the store listens. */
static bool print_head(struct buf *out, const struct plan *plan)
{
    bool ok = buf_printf(out, "job %s: %d worker%s on %s, store at %s:", plan->job, plan->nproc,
                         plan->nproc == 1 ? "" : "s", plan->facts->host, plan->master_addr);
    ok = ok && (plan->master_port != 0 ? buf_printf(out, "%d\n", plan->master_port)
                                       : buf_printf(out, "any free port\n"));
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
static bool add_variable(cJSON *object, const char *entry)
{
    size_t len = strcspn(entry, "=");
    struct buf name = { 0 };
    bool ok = utf8_clean(&name, slice_of(entry, len)) && buf_append(&name, "", 1) &&
              json_add_text(object, (const char *)name.data, is_open_port(entry) ? NULL : entry + len + 1);
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
        ok = ok && add_variable(o, env.block[i]);
    worker_env_free(&env);
    return ok;
}

static bool add_worker(cJSON *array, const struct plan *plan, const struct plan_worker *w)
{
    cJSON *o = json_add_object(array);
    bool ok = o != NULL && json_add_number(o, "rank", w->rank) &&
              json_add_number(o, "local_rank", w->local_rank) && json_add_text(o, "gpu", w->gpu);
    cJSON *command = below(o, "command", cJSON_CreateArray());
    for (char *const *arg = w->argv; *arg != NULL; arg++)
        ok = ok && add_to_array(command, *arg);
    return ok && add_stream(o, "stdout", &w->out) && add_stream(o, "stderr", &w->err) &&
           json_add_text(o, "error_file", w->error_file) && add_environment(o, plan, w->local_rank);
}

/* null = any free one, found at the start. */
static bool add_port(cJSON *o, int port)
{
    return port != 0 ? json_add_number(o, "master_port", port) : json_add_text(o, "master_port", NULL);
}

static bool add_job(cJSON *o, const struct plan *plan)
{
    return json_add_text(o, "job", plan->job) && json_add_text(o, "host", plan->facts->host) &&
           json_add_text(o, "master_addr", plan->master_addr) && add_port(o, plan->master_port) &&
           json_add_number(o, "world_size", plan->world_size) && json_add_number(o, "nnodes", plan->nnodes) &&
           json_add_number(o, "node_rank", plan->node_rank) &&
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
