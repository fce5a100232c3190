/* control.c -- see control.h.
 *
 * The calls that change something. An agent's word about its own workers is taken as true: it has started
 * them and the kernel tells it of their end. What it says is still compared with what is known, since the
 * commonest stranger here is an agent of the same job's past. */
#include "core/control.h"

#include "core/json.h"

#include <inttypes.h>

/* A new attempt may be declared by any agent of the same job, a new job only when no agent of the old one
 * is left. */
static bool other_agents(struct hub *hub, const struct session *but)
{
    for (struct table_node *node = table_next(&hub->sessions, NULL); node;
         node = table_next(&hub->sessions, node)) {
        const struct session *s = TABLE_ENTRY(node, struct session, node);
        if (s != but && s->role == ROLE_AGENT)
            return true;
    }
    return false;
}

/* The store belongs to one job at a time. What is refused here would otherwise take the keys away from under
 * workers that run: a second job on the same port, an agent that was cut off and comes back with an attempt of the
 * past. */
static bool may_begin(struct hub *hub, const struct session *s, const struct job_name *name)
{
    const struct members *m = &hub->members;
    if (!m->known)
        return true;
    bool same_job = strcmp(m->job, name->job) == 0;
    if (!same_job && other_agents(hub, s))
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "job '%s' is running here", m->job);
    else if (same_job && name->attempt < m->attempt)
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "attempt %lld is running already", (long long)m->attempt);
    else if (same_job && name->attempt == m->attempt && name->world_size != m->world_size)
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "attempt %lld has %u ranks already", (long long)m->attempt,
                 m->world_size);
    else
        return true;
    return false;
}

/* Declaring what is declared already is no error: every agent of a job does it, and one that lost its
 * connection does it again. */
static bool call_job(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)answer;
    struct job_name name = { .job = "none" };
    int64_t world_size = 0;
    if (!json_text_or(request, "job", MEMBER_TEXT_MAX - 1, &name.job, &hub->err) ||
        !json_integer(request, "attempt", 0, INT32_MAX, &name.attempt, &hub->err) ||
        !json_integer(request, "world_size", 1, WIRE_MAX_RANKS, &world_size, &hub->err))
        return false;
    name.world_size = (uint32_t)world_size;
    if (members_is_same(&hub->members, &name)) {
        hub->members.by_agent = true;
        return true;
    }
    return may_begin(hub, s, &name) && attempt_begin(hub, &name, true);
}

/* The rank that a report is about. */
static struct member *read_rank(struct hub *hub, const cJSON *request, int64_t *rank)
{
    if (!hub->members.known) {
        ddp_fail(&hub->err, DDP_ERR_ARG, "no job has been declared");
        return NULL;
    }
    if (!json_integer(request, "rank", 0, (int64_t)hub->members.world_size - 1, rank, &hub->err))
        return NULL;
    return members_at(&hub->members, (uint32_t)*rank);
}

/* Also takes back an exit: a rank may be started again within an attempt by hand. */
static bool call_worker_started(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)s, (void)answer;
    int64_t rank, pid;
    const char *host = NULL;
    struct member *member = read_rank(hub, request, &rank);
    if (member == NULL || !json_integer(request, "pid", 1, INT32_MAX, &pid, &hub->err) ||
        !json_text_or(request, "host", MEMBER_TEXT_MAX - 1, &host, &hub->err))
        return false;
    member->process_pid = (int)pid;
    member->exited = false;
    return member_place(member, host, (int)pid);
}

/* A report about another pid than the one that was started last is about a process of the past. */
static bool call_worker_exited(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)s, (void)answer;
    int64_t rank, pid = 0, exit_code = 0, signal = 0;
    struct member *member = read_rank(hub, request, &rank);
    if (member == NULL || !json_integer_or(request, "pid", 1, INT32_MAX, &pid, &hub->err) ||
        !json_integer_or(request, "exit_code", INT32_MIN, INT32_MAX, &exit_code, &hub->err) ||
        !json_integer_or(request, "signal", 0, 255, &signal, &hub->err))
        return false;
    if (pid != 0 && member->process_pid != 0 && pid != member->process_pid) {
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "rank %d is pid %d, not %d", (int)rank, member->process_pid,
                 (int)pid);
        return false;
    }
    member->exited = true;
    member->exit_code = (int)exit_code;
    member->signal = (int)signal;
    barriers_member_ended(&hub->barriers, (uint32_t)rank, hub->now_ms);
    return true;
}

/* Its bytes have been noted already, as those of every request. */
static bool call_heartbeat(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)hub, (void)s, (void)request, (void)answer;
    return true;
}

/* For operators, too: a job that hangs at a barrier is let go with an error that names who has cancelled it. */
static bool call_barrier_cancel(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)answer;
    const char *name;
    if (!json_text(request, "name", WIRE_MAX_KEY, &name, &hub->err))
        return false;
    if (barriers_cancel(&hub->barriers, slice_str(name), s->peer, hub->now_ms))
        return true;
    ddp_fail(&hub->err, DDP_ERR_ARG, "no barrier '%.200s' is open", name);
    return false;
}

/* Who may change what is known of workers is whoever started them; to look is free for all. */
static const struct {
    const char *op;
    bool agents_only;
    control_call call;
} call_table[] = {
    { "job", true, call_job },
    { "worker_started", true, call_worker_started },
    { "worker_exited", true, call_worker_exited },
    { "heartbeat", true, call_heartbeat },
    { "barrier_cancel", false, call_barrier_cancel },
    { "status", false, control_status },
    { "keys", false, control_keys },
    { "waiters", false, control_waiters },
    { "barriers", false, control_barriers },
};

/* Nine rows: looking at each is faster than anything cleverer. */
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

/* One object back for whatever came, so that a caller never waits for an answer that will not come. */
char *control_answer(struct hub *hub, struct session *s, struct slice text)
{
    cJSON *request = json_object(text, &hub->err);
    cJSON *answer = cJSON_CreateObject();
    bool ok = request != NULL && dispatch(hub, s, request, answer);
    cJSON_AddBoolToObject(answer, "ok", ok);
    if (!ok)
        cJSON_AddStringToObject(answer, "error", hub->err.msg[0] ? hub->err.msg : "out of memory");
    char *printed = answer ? cJSON_PrintUnformatted(answer) : NULL;
    cJSON_Delete(request);
    cJSON_Delete(answer);
    return printed;
}
