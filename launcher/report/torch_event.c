/* torch_event.c -- see torch_event.h.
 *
 *     {"name": "torchelastic.worker.status.START", "source": "WORKER", "timestamp": 0, "metadata": {...}}
 *
 * One oddity is kept because readers rely on it: "metadata" within the metadata is a text that is JSON itself, and what
 * is about a worker stands in lists of one. */
#include "report/torch_event.h"

#include "tables/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

const char *torch_event_state(enum worker_verdict verdict)
{
    if (verdict == WORKER_OK)
        return "SUCCEEDED";
    return verdict == WORKER_CONSEQUENCE ? "TERMINATED" : "FAILED";
}

static bool add_or_null(cJSON *o, const char *name, bool known, double value)
{
    return known ? json_add_number(o, name, value) : json_add_null(o, name);
}

/* [7], or [null] */
static bool add_list_of_one(cJSON *o, const char *name, bool known, double value)
{
    cJSON *list = cJSON_CreateArray();
    cJSON *item = known ? cJSON_CreateNumber(value) : cJSON_CreateNull();
    if (!json_add(o, name, list) || item == NULL || !cJSON_AddItemToArray(list, item)) {
        cJSON_Delete(item);
        return false;
    }
    return true;
}

static bool add_worker(cJSON *o, const struct torch_event *e)
{
    return add_list_of_one(o, "local_rank", true, e->who->local_rank) &&
           add_list_of_one(o, "role_rank", true, e->plan->role_rank + e->who->local_rank) &&
           add_list_of_one(o, "role_world_size", true, e->plan->role_size) &&
           add_list_of_one(o, "exit_code", e->failed, e->exit_code) &&
           add_list_of_one(o, "worker_pid", e->failed, e->pid);
}

/* torchrun tells the name without its directories. */
static const char *entry_point(const struct plan *plan)
{
    const char *slash = strrchr(plan->workers[0].argv[0], '/');
    return slash != NULL ? slash + 1 : plan->workers[0].argv[0];
}

/* As torchrun has it: what the worker's @record wrote, and this where it wrote nothing. */
static const char *raw_error(const struct torch_event *e)
{
    if (!e->failed)
        return NULL;
    return e->error != NULL ? e->error : "{\"message\": \"<NONE>\"}";
}

/* The text within the text. */
static bool add_inner(cJSON *o, const struct torch_event *e)
{
    struct buf text = { 0 };
    cJSON *inner = cJSON_CreateObject();
    bool ok = inner != NULL && json_add_number(inner, "group_world_size", e->plan->nnodes) &&
              json_add_text(inner, "entry_point", entry_point(e->plan)) &&
              (e->who == NULL || add_worker(inner, e));
    if (ok) {
        ok = json_print(&text, inner, false) && text.len > 0;
    } else {
        cJSON_Delete(inner);
    }
    if (ok)
        text.data[text.len - 1] = '\0'; /* the newline */
    ok = ok && json_add_text(o, "metadata", (const char *)text.data);
    buf_free(&text);
    return ok;
}

static bool add_metadata(cJSON *o, const struct torch_event *e)
{
    char id[16];
    const struct plan *plan = e->plan;
    snprintf(id, sizeof(id), "%d", e->pid);
    return json_add_text(o, "run_id", plan->job) &&
           add_or_null(o, "global_rank", e->who != NULL, e->who != NULL ? e->who->rank : 0) &&
           json_add_number(o, "group_rank", plan->node_rank) &&
           json_add_text(o, "worker_id", e->who != NULL ? id : NULL) &&
           json_add_text(o, "role", plan->cli->role) && json_add_text(o, "hostname", plan->facts->host) &&
           json_add_text(o, "state", e->state) &&
           json_add_number(o, "total_run_time", (double)(e->run_ms / 1000)) &&
           json_add_text(o, "rdzv_backend", plan->meeting.elastic ? "c10d" : "static") &&
           json_add_text(o, "raw_error", raw_error(e)) && add_inner(o, e) &&
           json_add_number(o, "agent_restarts", plan->restarts) &&
           add_or_null(o, "duration_ms", e->timed, (double)e->duration_ms);
}

/* NULL when memory is short. */
static cJSON *metadata_in(cJSON *o)
{
    cJSON *metadata = cJSON_CreateObject();
    return json_add(o, "metadata", metadata) ? metadata : NULL;
}

static bool add_all(cJSON *o, const struct torch_event *e)
{
    char name[64];
    cJSON *metadata;
    snprintf(name, sizeof(name), "torchelastic.worker.status.%s", e->state);
    return json_add_text(o, "name", name) &&
           json_add_text(o, "source", e->who != NULL ? "WORKER" : "AGENT") &&
           json_add_number(o, "timestamp", 0) && (metadata = metadata_in(o)) != NULL &&
           add_metadata(metadata, e);
}

bool torch_event(struct buf *out, const struct torch_event *e)
{
    cJSON *o = cJSON_CreateObject();
    if (o != NULL && add_all(o, e))
        return json_print(out, o, false);
    cJSON_Delete(o);
    return false;
}
