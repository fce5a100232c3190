/* control.c -- see control.h: which calls there are, and who may make them. */
#include "hub/control.h"

#include "hub/control_calls.h"
#include "store/encode.h"
#include "hub/json.h"

/* A launcher on its way here: that there is an answer is all it asks. */
static bool call_hello(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)hub, (void)s, (void)request, (void)answer;
    return true;
}

/* Who may change what is known of workers is whoever started them; to look is free for all. What thousands of nodes say
 * again and again comes first. */
static const struct {
    const char *op;
    bool agents_only;
    control_call call;
} call_table[] = {
    { "heartbeat", true, control_heartbeat },
    { "hello", false, call_hello },
    { "job", true, control_declare },
    { "worker_started", true, control_worker_started },
    { "worker_exited", true, control_worker_exited },
    { "join", true, control_join },
    { "failed", true, control_failed },
    { "cause", true, control_cause },
    { "done", true, control_done },
    { "stopped", true, control_stopped },
    { "leave", true, control_leave },
    { "vouch", true, control_vouch },
    { "owner", true, control_owner },
    { "notice", true, control_notice },
    { "trouble", false, control_trouble },
    { "barrier_cancel", false, control_barrier_cancel },
    { "jobs", false, control_jobs },
    { "rejects", false, control_rejects },
    { "why", false, control_why },
    { "status", false, control_status },
    { "keys", false, control_keys },
    { "waiters", false, control_waiters },
    { "barriers", false, control_barriers },
};

/* Few rows: looking at each is faster than anything cleverer. */
static bool dispatch(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    const char *op;
    if (!json_text(request, "op", 64, &op, &hub->err))
        return false;
    for (size_t i = 0; i < sizeof(call_table) / sizeof(call_table[0]); i++) {
        if (strcmp(op, call_table[i].op) != 0)
            continue;
        if (!call_table[i].agents_only || s->role == ROLE_AGENT)
            return call_table[i].call(hub, s, request, answer);
        ddp_fail(&hub->err, DDP_ERR_ARG, "\"%s\" is for agents: IDENTIFY as one first", op);
        return false;
    }
    ddp_fail(&hub->err, DDP_ERR_UNSUPPORTED, "op \"%s\" is not known", op);
    return false;
}

static bool put_answer(struct hub *hub, cJSON *answer, bool ok)
{
    cJSON_AddBoolToObject(answer, "ok", ok);
    if (!ok)
        cJSON_AddStringToObject(answer, "error", hub->err.msg[0] ? hub->err.msg : "out of memory");
    char *printed = answer ? cJSON_PrintUnformatted(answer) : NULL;
    const bool put = printed != NULL && put_blob(&hub->out, slice_str(printed));
    cJSON_free(printed);
    return put;
}

/* One object back for every call, so that no caller waits for an answer that does not come. */
bool control_answer(struct hub *hub, struct session *s, struct slice text)
{
    cJSON *request = json_object(text, &hub->err);
    cJSON *answer = cJSON_CreateObject();
    const bool ok = request != NULL && dispatch(hub, s, request, answer);
    const bool put = put_answer(hub, answer, ok);
    cJSON_Delete(request);
    cJSON_Delete(answer);
    return put;
}
