/* control_rejects.c -- the call `rejects`: connections that came to nothing, and nodes that were not let in.
 *
 * Every text in it comes from strangers and will be shown on a terminal: first bytes go out as hex, words
 * escaped. */
#include "hub/control_calls.h"

#include "base/text.h"
#include "hub/json.h"

#include <stdlib.h>

static void add_text(cJSON *o, const char *name, struct slice bytes,
                     bool (*put)(struct buf *out, struct slice bytes, size_t max))
{
    struct buf text = { 0 };
    if (put(&text, bytes, REJECT_WHY_MAX) && buf_append(&text, "", 1))
        cJSON_AddStringToObject(o, name, (const char *)text.data);
    buf_free(&text);
}

/* Times are "ago": the reader's clock is not ours. */
static cJSON *reject_row(const struct reject *r, uint64_t now_ms)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "source", r->source);
    cJSON_AddStringToObject(row, "kind", reject_kind_word(r->kind));
    if (r->job[0] != '\0')
        add_text(row, "job", slice_str(r->job), text_put);
    if (r->n_first > 0)
        add_text(row, "first", slice_of(r->first, r->n_first), text_put_hex);
    add_text(row, "why", slice_str(r->why), text_put);
    cJSON_AddNumberToObject(row, "times", r->times);
    cJSON_AddNumberToObject(row, "first_ms", (double)(now_ms - r->first_ms));
    cJSON_AddNumberToObject(row, "last_ms", (double)(now_ms - r->last_ms));
    return row;
}

/* Those that are connected and have said nothing belong to it as long as they are silent: they are counted when
 * somebody asks, into a copy. NULL when memory is short; yours (free). */
struct rejects *hub_all_rejects(struct hub *hub)
{
    struct rejects *all = malloc(sizeof(*all));
    if (all == NULL)
        return NULL;
    *all = hub->rejects;
    EACH_NODE(node, &hub->sessions)
    {
        const struct session *s = TABLE_ENTRY(node, struct session, node);
        if (!s->has_spoken && s->n_first == 0)
            rejects_note(all,
                         &(struct reject_facts){ .peer = s->peer, .why = "connected, and has said nothing" },
                         s->heard_ms);
    }
    return all;
}

static cJSON *refusal_row(const struct refusal *r, uint64_t now_ms)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "code", rdzv_refused_code(r->code));
    cJSON_AddStringToObject(row, "job", r->job);
    cJSON_AddStringToObject(row, "host", r->host);
    cJSON_AddNumberToObject(row, "pid", r->pid);
    cJSON_AddNumberToObject(row, "node_rank", r->node_rank);
    cJSON_AddStringToObject(row, "sentence", r->sentence);
    cJSON_AddStringToObject(row, "advice", rdzv_refused_advice(r->code));
    cJSON_AddNumberToObject(row, "times", r->times);
    cJSON_AddNumberToObject(row, "last_ms", (double)(now_ms - r->last_ms));
    return row;
}

/* Both lists are short by themselves. */
bool control_rejects(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)s, (void)request;
    struct rejects *all = hub_all_rejects(hub);
    if (all == NULL)
        return false;
    cJSON *rows = cJSON_AddArrayToObject(answer, "rejects");
    for (uint32_t i = 0; i < all->count; i++)
        json_append(rows, reject_row(&all->row[i], hub->now_ms));
    free(all);
    cJSON *refused = cJSON_AddArrayToObject(answer, "refused");
    for (uint32_t i = 0; i < hub->refusals.count; i++)
        json_append(refused, refusal_row(&hub->refusals.row[i], hub->now_ms));
    return true;
}
