/* control_job.c -- the calls that declare a job, and what becomes of its workers and barriers.
 *
 * An agent's word about its own workers is taken as true: it has started them and the kernel tells it of their end. What
 * it says is still compared with what is known, since the commonest stranger here is an agent of the same job's past. */
#include "hub/control_calls.h"

#include "hub/json.h"

/* An operator names the job, an agent has entered one; where there is only one, nobody needs to. */
struct job *control_job(struct hub *hub, const struct session *s, const cJSON *request)
{
    const char *name = NULL;
    if (!json_text_or(request, "job", MEMBER_TEXT_MAX - 1, &name, &hub->err))
        return NULL;
    struct job *job = name != NULL ? job_find(hub, name) : s->job != NULL ? s->job : job_only(hub);
    if (job == NULL && name != NULL)
        ddp_fail(&hub->err, DDP_ERR_ARG, "no job '%s' is known here ('ddpctl jobs' lists them)", name);
    else if (job == NULL)
        ddp_fail(&hub->err, DDP_ERR_ARG, "%u jobs are served here: say which one (\"job\", ddpctl --job ID)",
                 hub->jobs.count);
    return job;
}

/* A new attempt may be declared by any agent of the same job, a new job only when no agent of the old one
 * is left. */
static bool other_agents(const struct job *job, const struct session *but)
{
    LIST_EACH(node, &job->sessions)
    {
        const struct session *s = LIST_ENTRY(node, struct session, in_job);
        if (s != but && s->role == ROLE_AGENT)
            return true;
    }
    return false;
}

/* The store belongs to one job at a time. What is refused here would otherwise take the keys away from under
 * workers that run: a second job on the same port, an agent that was cut off and comes back with an attempt of the
 * past. */
static bool may_begin(const struct job *job, const struct session *s, const struct job_name *name)
{
    struct hub *hub = job->hub;
    const struct members *m = &job->members;
    if (job->rdzv != NULL) {
        ddp_fail(&hub->err, DDP_ERR_MISMATCH,
                 "the nodes of job '%s' join it, and its rendezvous places the ranks", job->name);
        return false;
    }
    if (!m->known)
        return true;
    bool same_job = strcmp(job->name, name->job) == 0;
    if (!same_job && other_agents(job, s))
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "job '%s' is running here", job->name);
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
bool control_declare(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)answer;
    struct job_name name = { .job = "none" };
    int64_t world_size = 0;
    if (!json_text_or(request, "job", MEMBER_TEXT_MAX - 1, &name.job, &hub->err) ||
        !json_integer(request, "attempt", 0, INT32_MAX, &name.attempt, &hub->err) ||
        !json_integer(request, "world_size", 1, WIRE_MAX_RANKS, &world_size, &hub->err))
        return false;
    if (s->is_node) {
        ddp_fail(&hub->err, DDP_ERR_ARG,
                 "this connection is a node of job '%s', and its rendezvous places the ranks", s->job->name);
        return false;
    }
    name.world_size = (uint32_t)world_size;
    struct job *job = job_claim(hub, s, name.job);
    if (job == NULL ||
        (!job_is_at(job, &name) && (!may_begin(job, s, &name) || !attempt_begin(job, &name, true))))
        return false;
    job->members.by_agent = true;
    session_enter(s, job);
    return true;
}

/* The rank that a report is about. Only the node that runs a rank reports about it: any other connection could end a rank
 * of somebody else. */
static struct member *read_rank(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer,
                                int64_t *rank)
{
    if (!control_is_node(hub, s) || control_is_stale(hub, s, request, answer) ||
        !json_integer(request, "rank", 0, WIRE_MAX_RANKS, rank, &hub->err) ||
        !control_owns_rank(hub, s, *rank, answer))
        return NULL;
    return members_at(&s->job->members, (uint32_t)*rank);
}

/* Also takes back an exit: a rank may be started again within an attempt by hand. */
bool control_worker_started(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    int64_t rank, pid;
    const char *host = NULL;
    struct member *member = read_rank(hub, s, request, answer, &rank);
    if (member == NULL || !json_integer(request, "pid", 1, INT32_MAX, &pid, &hub->err) ||
        !json_text_or(request, "host", MEMBER_TEXT_MAX - 1, &host, &hub->err))
        return false;
    member->process_pid = (int)pid;
    member->exited = member->told = false;
    return member_place(member, host, (int)pid);
}

/* A report about another pid than the one that was started last is about a process of the past. */
bool control_worker_exited(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    int64_t rank, pid = 0, exit_code = 0, signal = 0;
    struct member *member = read_rank(hub, s, request, answer, &rank);
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
    member->told = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "told"));
    member->exit_code = (int)exit_code;
    member->signal = (int)signal;
    barriers_member_ended(&s->job->barriers, (uint32_t)rank, hub->now_ms);
    job_watch_torch_exit(s->job);
    return true;
}

/* For operators, too: a job that hangs at a barrier is let go with an error that names who has cancelled it. */
bool control_barrier_cancel(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)answer;
    const char *name;
    struct job *job = control_job(hub, s, request);
    if (job == NULL || !json_text(request, "name", WIRE_MAX_KEY, &name, &hub->err))
        return false;
    if (barriers_cancel(&job->barriers, slice_str(name), s->peer, hub->now_ms))
        return true;
    ddp_fail(&hub->err, DDP_ERR_ARG, "no barrier '%.200s' is open", name);
    return false;
}
