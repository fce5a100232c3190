/* ours.c -- the handlers of our own requests: IDENTIFY, BARRIER_NAMED, CONTROL.
 *
 * Here a wrong request is told so in words, other than in requests.c: these answers have room for them,
 * and the caller is our own code, whose user should read what to do. */
#include "hub/job_rdzv.h"

#include "diagnosis/ranks.h"
#include "hub/control.h"
#include "store/encode.h"

#include <stdio.h>

/* --- IDENTIFY ------------------------------------------------------------------------------------------- */

struct introduction {
    enum role role;
    struct job_name job;
    int64_t rank, pid;
    const char *host;
};

static const char *const role_names[ROLE_COUNT] = {
#define X(name, text) [ROLE_##name] = text,
    ROLES(X)
#undef X
};

/* "plain" is a role nobody can claim: the loop begins behind it. */
static bool find_role(const char *text, enum role *role, struct ddp_err *err)
{
    for (*role = ROLE_WORKER; *role < ROLE_COUNT; (*role)++)
        if (strcmp(text, role_names[*role]) == 0)
            return true;
    ddp_fail(err, DDP_ERR_ARG, "role \"%s\" is not known", text);
    return false;
}

/* Only a worker says which rank of which world it is; for the others the role is enough. */
static bool read_introduction(const cJSON *o, struct introduction *who, struct ddp_err *err)
{
    struct message_identify m;
    if (!message_decode(MESSAGE_IDENTIFY, o, &m, err) || !find_role(m.role, &who->role, err))
        return false;
    who->job.job = m.job != NULL ? m.job : "none";
    who->job.attempt = m.attempt;
    who->host = m.host;
    who->pid = m.pid;
    if (who->role != ROLE_WORKER)
        return true;
    who->job.world_size = m.world_size != MESSAGE_NONE ? (uint32_t)m.world_size : 0;
    who->rank = m.rank;
    if (m.world_size == MESSAGE_NONE || m.rank == MESSAGE_NONE)
        ddp_fail(err, DDP_ERR_ARG, "\"%s\" is missing", m.world_size == MESSAGE_NONE ? "world_size" : "rank");
    else if (m.rank >= m.world_size)
        ddp_fail(err, DDP_ERR_ARG, "\"rank\" must be a whole number from 0 to %lld",
                 (long long)m.world_size - 1);
    else
        return true;
    return false;
}

/* The first difference that is found is the one a user can act on. */
static bool refuse_job(const struct job *job, const struct job_name *name)
{
    struct hub *hub = job->hub;
    const struct members *m = &job->members;
    if (strcmp(job->name, name->job) != 0)
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "this store serves job '%s', not '%s'", job->name, name->job);
    else if (!m->known)
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "the nodes of job '%s' have not come together yet",
                 job->name);
    else if (m->attempt != name->attempt)
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "attempt %lld is running, not %lld", (long long)m->attempt,
                 (long long)name->attempt);
    else
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "the world has %u ranks, not %u", m->world_size,
                 name->world_size);
    return false;
}

/* Without an agent the first worker declares the job, and the next job may begin when the last worker has
 * gone. */
static bool join_job(struct hub *hub, struct session *s, const struct job_name *name)
{
    struct job *job = job_claim(hub, s, name->job);
    if (job == NULL) {
        ddp_fail(&hub->err, DDP_ERR_LIMIT,
                 "the store has no room for job '%s' in the share of this user or address; raise --max-bytes",
                 name->job);
        return false;
    }
    bool runs = job_is_at(job, name);
    if (!runs && job->rdzv != NULL)
        return refuse_job(job, name);
    if (!runs && job->members.known && (job->members.by_agent || job->members.connected > 0))
        return refuse_job(job, name);
    if (!runs && !attempt_begin(job, name, false)) {
        ddp_fail(&hub->err, DDP_ERR_NOMEM, "no memory for %u ranks", name->world_size);
        return false;
    }
    if (!runs)
        s->era = hub->era;
    session_enter(s, job);
    return true;
}

/* A rank may introduce itself on several connections, and again on the same one. */
static bool welcome_worker(struct hub *hub, struct session *s, const struct introduction *who)
{
    if (!join_job(hub, s, &who->job))
        return false;
    session_detach(s);
    s->role = ROLE_WORKER;
    session_attach(s, (uint32_t)who->rank);
    hub_log(hub, "rank %d (%s, pid %d) connected from %s", (int)who->rank,
            who->host ? who->host : "host unknown", (int)who->pid, s->peer);
    return member_place(members_at(&s->job->members, s->rank), who->host, (int)who->pid);
}

/* A node stays an agent until its connection ends: a worker would be closed when an attempt begins, under the rendezvous. */
static bool may_take_role(struct hub *hub, const struct session *s, enum role role)
{
    if (!s->is_node || role == ROLE_AGENT)
        return true;
    ddp_fail(&hub->err, DDP_ERR_ARG,
             "this connection is a node of job '%s' and cannot change its role to \"%s\"", s->job->name,
             role_names[role]);
    return false;
}

static bool welcome(struct hub *hub, struct session *s, const struct introduction *who)
{
    if (!may_take_role(hub, s, who->role))
        return false;
    if (who->role == ROLE_WORKER)
        return welcome_worker(hub, s, who);
    session_detach(s);
    s->role = who->role;
    return true;
}

/* Who is refused is told why, and closed: it must not go on as if it belonged here. */
bool on_identify(struct hub *hub, struct session *s, const struct request *req)
{
    struct introduction who = { .job.job = "" };
    cJSON *o = message_parse(req->blob[0], &hub->err);
    bool ok = o != NULL && read_introduction(o, &who, &hub->err) && welcome(hub, s, &who);
    if (!ok)
        snprintf(hub->asked_job, sizeof(hub->asked_job), "%s", who.job.job);
    cJSON_Delete(o);
    if (ok)
        return put_u8(&hub->out, 0) && put_blob(&hub->out, slice_of("", 0));
    put_u8(&hub->out, 1);
    put_blob(&hub->out, slice_str(hub->err.msg));
    ddp_wrap(&hub->err, "IDENTIFY refused");
    return false;
}

/* --- BARRIER_NAMED -------------------------------------------------------------------------------------- */

static bool put_outcome(struct buf *out, enum barrier_outcome outcome, struct slice json)
{
    return put_u8(out, (uint8_t)outcome) && put_blob(out, json);
}

static bool refuse_barrier(struct hub *hub, struct slice name, const char *why)
{
    struct buf report = { 0 };
    bool ok = barrier_report(NULL, name, NULL, NULL, BARRIER_MISUSE, why, &report) &&
              put_outcome(&hub->out, BARRIER_MISUSE, buf_slice(&report));
    buf_free(&report);
    return ok;
}

/* The wait begins before the arrival, because the arrival may end it at once. */
bool on_barrier_named(struct hub *hub, struct session *s, const struct request *req)
{
    if (s->role != ROLE_WORKER)
        return refuse_barrier(hub, req->blob[0], "needs to know who comes: IDENTIFY as a worker first");
    struct barrier_call call = {
        .name = req->blob[0],
        .timeout_ms = req->number,
        .members = req->blob[2],
        .rank = s->rank,
        .world_size = s->job->members.world_size,
        .now_ms = hub->now_ms,
    };
    session_begin_wait(hub, s, req->op);
    if (s->torch != NULL)
        s->torch->waits = false;
    if (barriers_arrive(&s->job->barriers, &s->seat, &call))
        return true;
    session_leave_wait(s);
    return refuse_barrier(hub, req->blob[0],
                          "the store has no room for it: the job has used its share, or memory is short");
}

/* --- CONTROL -------------------------------------------------------------------------------------------- */

/* What is in the JSON is control.c's business; here it is bytes in and bytes out. What follows from a node's call is
 * told behind the answer to it. */
bool on_control(struct hub *hub, struct session *s, const struct request *req)
{
    bool ok = control_answer(hub, s, req->blob[0]);
    if (ok && s->is_node)
        rdzv_settle(s->job->rdzv, hub->now_ms);
    return ok;
}
