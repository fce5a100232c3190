/* events.c -- see events.h.
 *
 *     {"event":"output","t":2.5,"rank":1,"local_rank":1,"stream":"stdout","text":"..."} */
#include "output/events.h"

#include "tables/text.h"

cJSON *event_new_us(enum event_kind kind, uint64_t t_us)
{
    cJSON *o = cJSON_CreateObject();
    if (o != NULL && json_add_text(o, "event", event_word(kind)) &&
        json_add_number(o, "t", (double)t_us / 1e6))
        return o;
    cJSON_Delete(o);
    return NULL;
}

cJSON *event_new(enum event_kind kind, uint64_t t_ms)
{
    return event_new_us(kind, t_ms * 1000);
}

bool event_print(struct buf *out, cJSON *o, bool complete)
{
    if (complete)
        return json_print(out, o, false);
    cJSON_Delete(o);
    return false;
}

bool event_add_worker(cJSON *o, const struct plan_worker *who)
{
    return json_add_number(o, "rank", who->rank) && json_add_number(o, "local_rank", who->local_rank);
}

/* `kind` lets a reader put together again what was too long for one event, and draw a progress bar over itself. */
bool event_output(struct buf *out, struct line_time at, const struct plan_worker *who, int stream,
                  struct slice text, enum line_kind kind)
{
    static const char *const kinds[] = {
        [LINE_WHOLE] = "line", [LINE_LAST] = "last", [LINE_UPDATE] = "update", [LINE_CUT] = "part"
    };
    char time[PREFIX_TIME_MAX];
    cJSON *o = event_new_us(EVENT_OUTPUT, at.since_us);
    prefix_time(time, at.unix_us);
    return event_print(out, o,
                       o != NULL && json_add_text(o, "time", time) && event_add_worker(o, who) &&
                           json_add_text(o, "stream", stream == STD_OUT ? "stdout" : "stderr") &&
                           json_add_text(o, "kind", kinds[kind]) && json_add_bytes(o, "text", text));
}

bool event_note(struct buf *out, uint64_t t_ms, const char *text)
{
    cJSON *o = event_new(EVENT_NOTE, t_ms);
    return event_print(out, o, o != NULL && json_add_text(o, "text", text));
}
