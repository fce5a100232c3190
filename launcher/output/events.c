/* user_messages.c -- see user_messages.h.
 *
 *     {"event":"output","t":2.5,"rank":1,"local_rank":1,"stream":"stdout","text":"..."} */
#include "output/events.h"

#include "agent/failure.h"
#include "tables/text.h"

#include <stdio.h>

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

/* --- signals -------------------------------------------------------------------------------------------- */

/* The members are always there, so a reader need not ask which exist. */

enum { MEMBER_MAX = 64 };

bool json_add_signal(cJSON *o, int signal)
{
    char name[ENDING_MAX];
    signal_name(name, signal);
    return json_add_number(o, "signal", signal) && json_add_text(o, "signal_name", name);
}

bool json_add_number_or_null(cJSON *o, const char *name, bool known, double value)
{
    return known ? json_add_number(o, name, value) : json_add_null(o, name);
}

bool json_add_sender(cJSON *o, const char *prefix, const struct signal_sender *sender)
{
    char pid[MEMBER_MAX], name[MEMBER_MAX], uid[MEMBER_MAX];
    const bool sent = sender != NULL && !sender->kernel;
    snprintf(pid, sizeof(pid), "%s_pid", prefix);
    snprintf(name, sizeof(name), "%s_name", prefix);
    snprintf(uid, sizeof(uid), "%s_uid", prefix);
    return json_add_number_or_null(o, pid, sent && sender->pid > 0, sent ? sender->pid : 0) &&
           json_add_text(o, name, sent && sender->name[0] != '\0' ? sender->name : NULL) &&
           json_add_number_or_null(o, uid, sent, sent ? sender->uid : 0);
}
