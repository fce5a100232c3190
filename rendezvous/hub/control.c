/* control.c -- handles the JSON calls of agents, ranks and ddpctl, and checks which role may make each call. See
 * session.h. The connection stays open after a rejected call, because an agent would mistake a closed connection for a
 * lost store. */
#include "hub/messages.h"

#include "base/endpoint.h"
#include "hub/job.h"
#include "hub/schedule.h"
#include "hub/session.h"

#include <stdio.h>

/* --- about the caller ----------------------------------------------------------------------------------- */

/* Add the code and the advice to the answer of a rejected call. `advice` may be NULL. Return false. */
static bool refuse_call(struct hub *hub, cJSON *answer, const char *code, const char *advice)
{
    message_add_refusal(&(struct message_refusal){ .code = code, .advice = advice }, answer);
    if (hub->err.msg[0] == '\0')
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "refused: %s", code);
    return false;
}

static bool is_node(struct hub *hub, const struct session *s)
{
    if (!s->is_node)
        ddp_fail(&hub->err, DDP_ERR_ARG, "the sender has not joined a job; send `join` first");
    return s->is_node;
}

/* Return true if `how`, the answer of the rendezvous to a call, is RDZV_OK. Otherwise fill `answer` with the rejection.
 * The agent ignores the codes STALE_ROUND and NO_MEMBER, because it soon receives the verdict on its own round. */
static bool answered(struct hub *hub, struct rdzv *r, uint32_t round, enum rdzv_answer how, cJSON *answer)
{
    struct rdzv_facts facts;
    if (how == RDZV_OK)
        return true;
    rdzv_facts(r, &facts);
    if (how == RDZV_STALE_ROUND)
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "round %u is over; the current round is %u", round,
                 facts.round);
    else
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "this node is not a member of round %u", facts.round);
    return refuse_call(hub, answer, how == RDZV_STALE_ROUND ? "STALE_ROUND" : "NO_MEMBER", NULL);
}

/* Return true if this node runs `rank` in the current round. Otherwise write the reason to hub->err and reject the
 * call. The store trusts an agent's report about its own workers, because the agent is the parent of these processes.
 * An agent must not report about the ranks of other nodes, because it cannot see their processes. */
static bool owns_rank(struct hub *hub, const struct session *s, int64_t rank, cJSON *answer)
{
    struct rdzv_node_facts node;
    const enum rdzv_answer how = rdzv_check_rank(s->job->rdzv, s->id, rank);
    if (how != RDZV_OTHER_RANK)
        return answered(hub, s->job->rdzv, 0, how, answer);
    rdzv_node_facts(s->job->rdzv, s->id, &node);
    ddp_fail(&hub->err, DDP_ERR_ARG, "rank %lld is not on this node, which runs ranks %u to %u",
             (long long)rank, node.first_rank, node.first_rank + node.nproc - 1);
    return false;
}

/* Return true if a report about a worker is from an earlier round. Then also put a rejection in `answer`. Such a report
 * must not change the worker that now has the same rank. Older agents send no round, and their reports are accepted. */
static bool is_stale(struct hub *hub, const struct session *s, int64_t round, cJSON *answer)
{
    struct rdzv_facts facts;
    if (!s->is_node || round == MESSAGE_NONE)
        return false;
    rdzv_facts(s->job->rdzv, &facts);
    if (round == facts.round)
        return false;
    answered(hub, s->job->rdzv, (uint32_t)round, RDZV_STALE_ROUND, answer);
    return true;
}

/* --- a job without a rendezvous, and its workers -------------------------------------------------------- */

/* Return true if an agent other than `but` is connected to the job. */
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

/* Return true if an agent may declare `name`. A declaration begins a new attempt, which removes the keys of the running
 * workers. So reject a second job in a store that serves only one job. Also reject an attempt that is older than the
 * current attempt. */
static bool may_begin(const struct job *job, const struct session *s, const struct job_name *name)
{
    struct hub *hub = job->hub;
    const struct members *m = &job->members;
    if (job->rdzv != NULL) {
        ddp_fail(&hub->err, DDP_ERR_MISMATCH,
                 "`job`: nodes have already joined job '%s'; send the request `join` instead", job->name);
        return false;
    }
    if (!m->known)
        return true;
    bool same_job = strcmp(job->name, name->job) == 0;
    if (!same_job && other_agents(job, s))
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "this store already serves job '%s'", job->name);
    else if (same_job && name->attempt < m->attempt)
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "attempt %lld is running already, so attempt %lld is over",
                 (long long)m->attempt, (long long)name->attempt);
    else if (same_job && name->attempt == m->attempt && name->world_size != m->world_size)
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "attempt %lld has world size %u, not %u", (long long)m->attempt,
                 m->world_size, name->world_size);
    else
        return true;
    return false;
}

/* Declare a job. A repeated declaration is accepted, because every agent declares the job, and declares it again on a
 * new connection. */
static bool call_declare(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    (void)answer;
    const struct job_name name = { .job = m->job.job != NULL ? m->job.job : "none",
                                   .attempt = m->job.attempt,
                                   .world_size = (uint32_t)m->job.world_size };
    if (s->is_node) {
        ddp_fail(&hub->err, DDP_ERR_ARG,
                 "`job`: this connection belongs to a node of job '%s' and cannot declare a job; open a new "
                 "connection",
                 s->job->name);
        return false;
    }
    struct job *job = gate_check_job(hub, s, name.job) ? job_claim(hub, s, name.job) : NULL;
    if (job == NULL ||
        (!job_is_at(job, &name) && (!may_begin(job, s, &name) || !attempt_begin(job, &name, true))))
        return false;
    job->members.by_agent = true;
    session_enter(s, job);
    return true;
}

/* Return the worker that a report is about. Reject the call and return NULL if another node runs the rank, or if the
 * report is from an earlier round. */
static struct member *reported_worker(struct hub *hub, struct session *s, int64_t rank, int64_t round,
                                      cJSON *answer)
{
    if (is_stale(hub, s, round, answer) || !owns_rank(hub, s, rank, answer))
        return NULL;
    return members_at(&s->job->members, (uint32_t)rank);
}

/* Record the start of a worker. An earlier exit of the rank is forgotten, because a user may start the rank again
 * within an attempt. */
static bool call_worker_started(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    const struct message_worker_started *started = &m->worker_started;
    struct member *member = reported_worker(hub, s, started->rank, started->round, answer);
    if (member == NULL)
        return false;
    member->process_pid = (int)started->pid;
    member->exited = member->stop_requested = false;
    return member_place(member, started->host, (int)started->pid);
}

/* Record the end of a worker. If the pid differs from the pid of the last start, reject the report, because it is about
 * an earlier process of the rank. */
static bool call_worker_exited(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    const struct message_worker_exited *exited = &m->worker_exited;
    struct member *member = reported_worker(hub, s, exited->rank, exited->round, answer);
    if (member == NULL)
        return false;
    if (exited->pid != 0 && member->process_pid != 0 && exited->pid != member->process_pid) {
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "rank %d has pid %d, not %d", (int)exited->rank,
                 member->process_pid, (int)exited->pid);
        return false;
    }
    member->exited = true;
    member->state_since_ms = hub->now_ms;
    member->stop_requested = exited->told;
    member->exit_code = (int)exited->exit_code;
    member->signal = (int)exited->signal;
    barriers_member_ended(&s->job->barriers, (uint32_t)exited->rank, hub->now_ms);
    schedule_torch_exit(s->job);
    return true;
}

/* Cancel a barrier. An operator may also make this call, to release ranks that hang in a barrier. The ranks get an
 * error that names the operator. */
static bool call_barrier_cancel(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    (void)answer;
    const char *name = m->barrier_cancel.name;
    struct job *job = inspect_job(hub, s, m->barrier_cancel.job);
    if (job == NULL)
        return false;
    if (barriers_cancel(&job->barriers, slice_str(name), s->peer, hub->now_ms))
        return true;
    ddp_fail(&hub->err, DDP_ERR_ARG, "no barrier '%.200s' is open; 'ddpctl barriers' lists the open barriers",
             name);
    return false;
}

/* --- join ----------------------------------------------------------------------------------------------- */

/* Set *which to the index of `word` in `words`, or to 0 if `word` is empty. Reject an unknown word. */
static bool find_word(const char *name, const char *word, const char *const words[], int n, int *which,
                      struct ddp_err *err)
{
    *which = 0;
    if (word[0] == '\0')
        return true;
    for (; *which < n; ++*which)
        if (strcmp(word, words[*which]) == 0)
            return true;
    ddp_fail(err, DDP_ERR_ARG, "\"%s\": \"%s\" is not a known value", name, word);
    return false;
}

/* Convert the message of a joining node. Texts are borrowed from the message. message_decode has checked the range
 * of each number, so the casts lose nothing. */
static bool read_join(const struct message_join *m, struct rdzv_join *join, struct ddp_err *err)
{
    static const char *const modes[] = { "static", "elastic" };
    static const char *const grows[] = {
        [RDZV_GROW_AGREED] = "agreed", [RDZV_GROW_NOW] = "now", [RDZV_GROW_NEVER] = "never"
    };
    int elastic, grow;
    if (!find_word("mode", m->mode, modes, 2, &elastic, err) ||
        !find_word("grow", m->grow, grows, 3, &grow, err))
        return false;
    *join = (struct rdzv_join){
        .job = m->job,
        .instance = m->instance,
        .version = m->version,
        .host = m->host,
        .boot_id = m->boot_id,
        .addr = m->addr,
        .own = m->own,
        .task = m->task,
        .role = m->role,
        .program = m->program,
        .store_port = (uint32_t)m->store_port,
        .pid = (int)m->pid,
        .elastic = elastic == 1,
        .nnodes_min = (uint32_t)m->nnodes_min,
        .nnodes_max = (uint32_t)m->nnodes_max,
        .node_rank = (int32_t)m->node_rank,
        .nproc = (uint32_t)m->nproc,
        .nproc_given = m->nproc_given,
        .uneven = m->uneven,
        .max_restarts = (uint32_t)m->max_restarts,
        .max_no_progress = (uint32_t)m->max_no_progress,
        .backoff_ms = (uint64_t)m->backoff_ms,
        .backoff_cap_ms = (uint64_t)m->backoff_cap_ms,
        .last_call_ms = (uint64_t)m->last_call_ms,
        .join_timeout_ms = (uint64_t)m->join_timeout_ms,
        .join_knob = m->join_knob,
        .node_timeout_ms = (uint64_t)m->node_timeout_ms,
        .grow = (enum rdzv_grow)grow,
        .grace_ms = (uint64_t)m->grace_ms,
    };
    return true;
}

/* Return the job of a `join`, or NULL if the join is rejected. For a node that joins again, return its present job. If
 * this join names another job, the rendezvous rejects the join later. A job without a name gets the name from its
 * first node. */
static struct job *joined_job(struct hub *hub, struct session *s, const struct rdzv_join *join, cJSON *answer)
{
    if (!gate_check_job(hub, s, join->job))
        return NULL;
    struct job *job = s->is_node ? s->job : job_claim(hub, s, join->job);
    if (job != NULL && job->name[0] == '\0')
        job_rename(job, join->job);
    if (job == NULL || job_rendezvous(job) == NULL) {
        ddp_fail(&hub->err, DDP_ERR_NOMEM, "the store has no room for job '%s'", join->job);
        refuse_call(hub, answer, rdzv_refused_code(RDZV_REFUSED_STORE_FULL),
                    rdzv_refused_advice(RDZV_REFUSED_STORE_FULL));
        return NULL;
    }
    return job;
}

/* Use the address of the node's connection ("10.0.0.2" from "10.0.0.2:41234") if the join contains no address. The join
 * borrows the text from `peer`, which the caller owns. */
static void fill_address(struct rdzv_join *join, const struct session *s, struct endpoint *peer)
{
    if (join->addr[0] == '\0' && endpoint_parse(s->peer, 0, peer, NULL) == DDP_OK)
        join->addr = peer->host;
}

/* Use --hang_timeout, --on_hang and --profile_ranks of the first node for the whole job. The sender of `m` is the first
 * node if it is the job's only node and no round has begun yet. */
static void apply_hang_rules(struct job *job, const struct message_join *m)
{
    struct rdzv_facts facts;
    rdzv_facts(job->rdzv, &facts);
    if (facts.round != 0 || facts.nodes != 1)
        return;
    job->profile.is_on = m->profile;
    schedule_hang_rules(job,
                        m->hang_ms == MESSAGE_NONE ? 0
                        : m->hang_ms == 0          ? UINT64_MAX
                                                   : (uint64_t)m->hang_ms,
                        m->on_hang);
}

/* Make the session a node and answer its join. A node that writes the event log also gets the time of the store's
 * clock, because the log contains times of this clock and of the node's clock. Only the answer to the first join
 * contains the token. If the node has a token, the store keeps this answer and each later frame until the node confirms
 * the frame. */
static bool welcome(struct session *s, struct job *job, bool resumes, cJSON *answer)
{
    const bool is_first = !s->is_node;
    session_enter(s, job);
    job_node_joined(s);
    gate_agent_joined(job->hub, s);
    const bool is_spare = rdzv_is_spare(job->rdzv, s->id);
    if (is_spare)
        schedule_spare(job);
    if (resumes && is_first)
        session_may_resume(s);
    message_add_joined(
        &(struct message_joined){ .job = job->name,
                                  .instance = rdzv_instance(job->rdzv),
                                  .ms = s->takes_events ? (int64_t)job->hub->now_ms : MESSAGE_NONE,
                                  .token =
                                      is_first && s->as_node->token[0] != '\0' ? s->as_node->token : NULL,
                                  .state = is_spare ? "spare" : "waiting" },
        answer);
    return true;
}

/* Reject a node, because the host of this store cannot serve the job. The answer contains the host's reason
 * (hub_limits.refusal). */
static bool refuse_by_host(struct hub *hub, cJSON *answer)
{
    const struct hub_refusal *refusal = hub->limits.refusal;
    refusal->on_refused(refusal->user);
    ddp_fail(&hub->err, DDP_ERR_MISMATCH, "%s reports: %s", hub->limits.host, refusal->sentence);
    return refuse_call(hub, answer, refusal->code, refusal->advice);
}

/* Handle `join`, which chooses the job of the connection. After a rejection, schedule a check, because a rejected node
 * can explain why the job does not start. */
static bool call_join(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    struct rdzv_join join;
    struct rdzv_refusal refusal = { .code = RDZV_WELCOME };
    struct endpoint peer;
    if (hub->limits.refusal != NULL)
        return refuse_by_host(hub, answer);
    if (!read_join(&m->join, &join, &hub->err))
        return refuse_call(hub, answer, rdzv_refused_code(RDZV_REFUSED_BAD_JOIN), NULL);
    /* Call job_node_room() first, so that an accepted node cannot fail for lack of memory. */
    struct job *job = job_node_room(s) ? joined_job(hub, s, &join, answer) : NULL;
    if (job == NULL)
        return false;
    fill_address(&join, s, &peer);
    /* Ask for events before the join, because the join itself is an event. */
    if (m->join.events)
        events_ask(job, s);
    if (rdzv_join(job->rdzv, s->id, &join, hub->now_ms, &refusal) == RDZV_WELCOME) {
        apply_hang_rules(job, &m->join);
        return welcome(s, job, m->join.resumes, answer);
    }
    schedule_hurry(job);
    if (!s->is_node)
        events_leave(job, s);
    job_touch(job);
    refusals_note(&hub->refusals, &join, &refusal, hub->now_ms);
    ddp_fail(&hub->err, DDP_ERR_MISMATCH, "%s", refusal.sentence);
    return refuse_call(hub, answer, rdzv_refused_code(refusal.code), rdzv_refused_advice(refusal.code));
}

/* --- resume ---------------------------------------------------------------------------------------------- */

static bool send_answer(struct hub *hub, struct session *s, cJSON *answer, bool ok);

/* Return true if two tokens are equal. Compare all bytes, so that an attacker cannot measure how many bytes of a
 * guessed token are right. */
static bool is_token(const char *a, const char *b)
{
    unsigned char differs = 0;
    if (strlen(a) != LIMIT_TOKEN || strlen(b) != LIMIT_TOKEN)
        return false;
    for (size_t i = 0; i < LIMIT_TOKEN; i++)
        differs |= (unsigned char)(a[i] ^ b[i]);
    return differs == 0;
}

/* Return the node with this token, or NULL. `m->heard` is the number of frames that the node has received. This number
 * must not exceed the number of sent frames. It must not be lower than the number of confirmed frames, because
 * confirmed frames are deleted. */
static struct session *find_old(struct hub *hub, const struct session *s, const struct message_resume *m)
{
    struct job *job = job_find(hub, m->job);
    if (job == NULL || !gate_is_job(s, m->job) || !session_may_use(hub, s, m->job) || s->is_node)
        return NULL;
    LIST_EACH(at, &job->sessions)
    {
        struct session *old = LIST_ENTRY(at, struct session, in_job);
        /* `heard` must not be below `done`, because confirmed frames are deleted */
        if (old->is_node && is_token(old->as_node->token, m->token) &&
            (uint64_t)m->heard >= old->as_node->sent.done && (uint64_t)m->heard <= old->as_node->sent.last)
            return old;
    }
    return NULL;
}

/* Send again the frames that the node has not received. */
static bool send_again(struct hub *hub, struct session *s)
{
    struct slice frame;
    for (size_t at = 0; kept_next(&s->as_node->sent, &at, &frame);)
        if (!session_append_frame(s, &hub->out, 0, frame))
            return false;
    return true;
}

/* Handle `resume`: move a node to its new connection. */
static bool call_resume(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    struct session *old = find_old(hub, s, &m->resume);
    if (old == NULL) {
        ddp_fail(
            &hub->err, DDP_ERR_MEMBERSHIP,
            "this node cannot resume: the store has removed this node from the job, or another store has "
            "started");
        return refuse_call(hub, answer, "NO_MEMBER", NULL);
    }
    const bool is_cut = session_is_cut(old);
    session_confirms(old, (uint64_t)m->resume.heard);
    message_add_resumed(&(struct message_resumed){ .received = (int64_t)old->as_node->received }, answer);
    hub->answers_later = true;
    /* Send the answer before `s` becomes a node. After that, the store would number and keep the answer like every
     * other frame to a node. */
    if (!send_answer(hub, s, answer, true))
        return false;
    const conn_id from = old->id;
    session_moves_node(hub, old, s);
    stacks_moved(s->job, from, s->id);
    /* Send the kept frames before any new push. */
    const bool ok = send_again(hub, s);
    rdzv_back(s->job->rdzv, from, s->id, hub->now_ms);
    if (is_cut)
        session_free(hub, old, "the node has opened a new connection");
    else
        session_replace(hub, old, "the node has opened a new connection");
    gate_agent_joined(hub, s);
    return ok;
}

/* --- about a round -------------------------------------------------------------------------------------- */

/* Each call of this section, except `leave`, is a report about a round. The rendezvous rejects a report about an
 * earlier round. */

/* The type of rdzv_failed() and rdzv_explain(). An agent sends `failed` at once, and `cause` after it has read the
 * end of the worker's log. */
typedef enum rdzv_answer (*report_failure)(struct rdzv *r, uint64_t node, uint32_t round,
                                           const struct failure *failure, uint64_t now_ms);

/* Handle `failed` or `cause`. Copy the failure and cut its texts, because a peer may send texts of any length. */
static bool about_failure(struct hub *hub, struct session *s, const struct message_failed *m, cJSON *answer,
                          report_failure report)
{
    struct failure failure;
    struct rdzv *r = s->job->rdzv;
    message_decode_failure(m->object, &failure);
    const enum rdzv_answer how = report(r, s->id, (uint32_t)m->round, &failure, hub->now_ms);
    return how == RDZV_OTHER_RANK ? owns_rank(hub, s, failure.rank, answer)
                                  : answered(hub, r, (uint32_t)m->round, how, answer);
}

/* Handle `failed`. Report duplicate ranks first, because they may have caused the failure. The end of the round deletes
 * the data about these ranks. */
static bool call_failed(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    monitor_report_repeated(s->job);
    return about_failure(hub, s, &m->failed, answer, rdzv_failed);
}

static bool call_explain(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    return about_failure(hub, s, &m->failed, answer, rdzv_explain);
}

static bool call_done(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    struct rdzv *r = s->job->rdzv;
    const uint32_t round = (uint32_t)m->done.round;
    return answered(hub, r, round, rdzv_done(r, s->id, round, hub->now_ms), answer);
}

/* Handle `stopped`. The message contains the exit code of rank 0 if the node runs rank 0 and this rank has ended by
 * itself. First merge the stacks of the message, because the last `stopped` of a round leads to the verdict. The
 * verdict contains the stacks. */
static bool call_stopped(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    struct rdzv *r = s->job->rdzv;
    const uint32_t round = (uint32_t)m->stopped.round;
    const bool has_rank0 = m->stopped.rank0_code != MESSAGE_NONE;
    const struct rdzv_stopped how = { .unkillable = m->stopped.unkillable,
                                      .max_code = (int)m->stopped.max_code,
                                      .has_rank0 = has_rank0,
                                      .rank0_code = has_rank0 ? (int)m->stopped.rank0_code : 0 };
    stacks_add_survivors(s, round, m->stopped.stacks);
    return answered(hub, r, round, rdzv_stopped(r, s->id, round, &how, hub->now_ms), answer);
}

/* Remove a node from the rendezvous. A node may leave at any time, even while no round runs. */
static bool call_leave(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    (void)answer;
    if (s->is_node)
        rdzv_leave(s->job->rdzv, s->id, (int)m->leave.signal, m->leave.by, m->leave.code, hub->now_ms);
    return true;
}

/* --- heartbeat -------------------------------------------------------------------------------------------- */

/* Return true if `item` is a number from `least` to 9e15. A double represents whole numbers up to 9e15 exactly. */
static bool is_count(const cJSON *item, double least)
{
    return cJSON_IsNumber(item) && item->valuedouble >= least && item->valuedouble < 9e15;
}

/* Record the process state of a worker: [local_rank, "D", percent, "wchan"]. If the worker is a script that waits for a
 * program, the row contains the state of this program. The fifth element is then the program's pid. Malformed rows are
 * skipped. */
static void note_worker(struct job *job, const struct rdzv_node_facts *node, const cJSON *row)
{
    const cJSON *local = cJSON_GetArrayItem(row, 0), *percent = cJSON_GetArrayItem(row, 2);
    const char *letter = cJSON_GetStringValue(cJSON_GetArrayItem(row, 1));
    const char *wchan = cJSON_GetStringValue(cJSON_GetArrayItem(row, 3));
    if (!cJSON_IsNumber(local) || local->valueint < 0 || (uint32_t)local->valueint >= node->nproc)
        return;
    struct member *member = members_at(&job->members, node->first_rank + (uint32_t)local->valueint);
    if (member == NULL)
        return;
    const cJSON *program = cJSON_GetArrayItem(row, 4);
    if (cJSON_IsNumber(program) && program->valueint > 0)
        member->pid = program->valueint;
    const bool was_reported = member->stop_reported;
    member_set_state(member, letter != NULL ? letter[0] : '\0',
                     cJSON_IsNumber(percent) ? percent->valueint : -1, wchan, job->hub->now_ms);
    if (member->proc_state == 'T' || member->proc_state == 't')
        schedule_stopped(job);
    else if (was_reported)
        schedule_continued(job);
}

/* Record the last line of a worker's traceback: [local_rank, "ValueError: ..."]. */
static void note_error(struct job *job, const struct rdzv_node_facts *node, const cJSON *row)
{
    const cJSON *local = cJSON_GetArrayItem(row, 0);
    if (!cJSON_IsNumber(local) || local->valueint < 0 || (uint32_t)local->valueint >= node->nproc)
        return;
    struct member *member = members_at(&job->members, node->first_rank + (uint32_t)local->valueint);
    if (member != NULL)
        member_error(member, cJSON_GetStringValue(cJSON_GetArrayItem(row, 1)));
}

/* Record the progress of a rank: [local_rank, step, number, "all_reduce"]. If the rank is in a collective, schedule
 * a check. */
static void note_step(struct job *job, const struct rdzv_node_facts *node, const cJSON *row)
{
    const cJSON *local = cJSON_GetArrayItem(row, 0), *step = cJSON_GetArrayItem(row, 1);
    const cJSON *seq = cJSON_GetArrayItem(row, 2);
    const char *call = cJSON_GetStringValue(cJSON_GetArrayItem(row, 3));
    if (!cJSON_IsNumber(local) || local->valueint < 0 || (uint32_t)local->valueint >= node->nproc ||
        !is_count(step, -1) || !is_count(seq, 0))
        return;
    struct member *member = members_at(&job->members, node->first_rank + (uint32_t)local->valueint);
    if (member == NULL)
        return;
    member_step(member, (int64_t)step->valuedouble, (uint64_t)seq->valuedouble, call, job->hub->now_ms);
    schedule_moved(job, 0);
    if (member->call[0] != '\0')
        schedule_call(job);
}

/* Handle a heartbeat. hub_receive() has already recorded that the node lives. Also check whether all ranks have agreed
 * to a restart with more nodes. */
static bool call_heartbeat(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    struct rdzv_node_facts node;
    const cJSON *row;
    if (s->is_node && m->heartbeat.heard != MESSAGE_NONE)
        session_confirms(s, (uint64_t)m->heartbeat.heard);
    if (is_stale(hub, s, m->heartbeat.round, answer))
        return false;
    if (!s->is_node || !rdzv_node_facts(s->job->rdzv, s->id, &node) ||
        rdzv_check_rank(s->job->rdzv, s->id, node.first_rank) != RDZV_OK) /* a spare node runs no ranks */
        return true;
    cJSON_ArrayForEach(row, m->heartbeat.workers)
    {
        note_worker(s->job, &node, row);
    }
    cJSON_ArrayForEach(row, m->heartbeat.steps)
    {
        note_step(s->job, &node, row);
    }
    cJSON_ArrayForEach(row, m->heartbeat.errors)
    {
        note_error(s->job, &node, row);
    }
    if (m->heartbeat.moved_ms != MESSAGE_NONE)
        schedule_moved(s->job, (uint64_t)m->heartbeat.moved_ms);
    job_touch(s->job);
    /* Each rank agrees to a restart with more nodes by setting its own key. Check these keys at each heartbeat, because
     * a check at every SET would cost too much. */
    rounds_check_grow_keys(s->job);
    return true;
}

/* --- findings of nodes and ranks ------------------------------------------------------------------------ */

/* Return true if the subject contains the host as a word, as in "GPU 0 of n1". A subject contains at most the first
 * HOST_LEAST bytes of a long name. */
static bool subject_names_host(const char *subject, const char *host)
{
    enum { HOST_LEAST = 60 };
    char name[HOST_LEAST + 1];
    const size_t len = strlen(host) < HOST_LEAST ? strlen(host) : HOST_LEAST;
    snprintf(name, sizeof(name), "%.*s", (int)len, host);
    for (const char *at = subject; len > 0 && (at = strstr(at, name)) != NULL; at++)
        if ((at == subject || at[-1] == ' ') && (at[len] == '\0' || at[len] == ' ' || len == HOST_LEAST))
            return true;
    return false;
}

/* Keep a finding that a node has reported about itself, such as a full /dev/shm. Reports to all nodes then contain the
 * finding. Long texts are cut. Reject a finding about another node, and a finding that another node has already sent.
 * After a rejection (NOTICE_REFUSED), the agent's connection stays open. */
static bool call_notice(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    struct job *job = s->job;
    const struct message_notice *notice = &m->notice;
    struct rdzv_node_facts node;
    struct rdzv_facts facts = { 0 };
    const char *why = NULL;
    if (!rdzv_node_facts(job->rdzv, s->id, &node))
        why = "the sender has not joined as a node";
    else if (!subject_names_host(notice->subject, node.host))
        why = "a node can report findings only about its own host";
    else if (!notices_add(&job->notices, s->id, notice->code, notice->subject, notice->sentence,
                          notice->advice))
        why = "another node has already sent this finding";
    if (why != NULL) {
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "notice about '%.80s': rejected: %s", notice->subject, why);
        return refuse_call(hub, answer, "NOTICE_REFUSED", NULL);
    }
    if (job->rdzv != NULL)
        rdzv_facts(job->rdzv, &facts);
    /* Nodes wait for a report only while no round runs. */
    if (facts.state != RDZV_RUNNING)
        schedule_hurry(job);
    job_touch(job);
    return true;
}

/* Return true for findings that a rank may report. */
static bool is_of_ranks(enum finding_code code)
{
    return code == FINDING_PORTS_CLOSED;
}

/* Format the culprit of a finding: the rank, and its host and pid if these are known. */
static void subject_of(const struct session *s, char subject[FINDING_SUBJECT_MAX])
{
    struct snapshot_rank facts;
    snapshot_of_rank(s->job, s->rank, &facts);
    if (facts.host != NULL)
        snprintf(subject, FINDING_SUBJECT_MAX, "rank %u (%.100s, pid %d)", s->rank, facts.host, facts.pid);
    else
        snprintf(subject, FINDING_SUBJECT_MAX, "rank %u", s->rank);
}

/* Keep a finding of a rank until the attempt ends. The rank sends only a code and the variable part of the text; the
 * rest of the text is in findings.h. Only the first finding is pushed to all nodes. The call `why` shows all
 * findings. */
static bool call_trouble(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    (void)answer;
    const char *code = m->trouble.code;
    char subject[FINDING_SUBJECT_MAX];
    struct finding f;
    if (s->role != ROLE_WORKER || !is_of_ranks(finding_by_name(code))) {
        ddp_fail(&hub->err, DDP_ERR_ARG, "`trouble`: code '%.60s' was rejected: %s", code,
                 s->role != ROLE_WORKER ? "the sender is not a rank" : "ranks cannot report this code");
        return false;
    }
    subject_of(s, subject);
    finding_make(&f, finding_by_name(code), subject, "words", m->trouble.words, NULL);
    if (s->job->troubles.count == 0) /* later findings are usually about the same problem */
        schedule_trouble(s->job);
    notices_add(&s->job->troubles, NOTICE_OF_STORE, code, f.subject, f.sentence, f.advice);
    job_touch(s->job);
    return true;
}

/* --- the calls ------------------------------------------------------------------------------------------ */

/* Answer a launcher that checks whether a store listens at this address. */
static bool call_hello(struct hub *hub, struct session *s, const union message *m, cJSON *answer)
{
    (void)hub, (void)s, (void)m, (void)answer;
    return true;
}

/* The handlers. The class of a call (messages.h) decides which clients may make it. If `nodes_only` is true, only
 * agents that have joined may make the call. */
static const struct {
    control_call handle;
    bool nodes_only;
} calls[MESSAGE_COUNT] = {
    [MESSAGE_HEARTBEAT] = { call_heartbeat, false },
    [MESSAGE_HELLO] = { call_hello, false },
    [MESSAGE_JOB] = { call_declare, false },
    [MESSAGE_WORKER_STARTED] = { call_worker_started, true },
    [MESSAGE_WORKER_EXITED] = { call_worker_exited, true },
    [MESSAGE_JOIN] = { call_join, false },
    [MESSAGE_RESUME] = { call_resume, false },
    [MESSAGE_FAILED] = { call_failed, true },
    [MESSAGE_EXPLAIN] = { call_explain, true },
    [MESSAGE_DONE] = { call_done, true },
    [MESSAGE_STOPPED] = { call_stopped, true },
    [MESSAGE_LEAVE] = { call_leave, false },
    [MESSAGE_VOUCH] = { control_vouch, false },
    [MESSAGE_OWNER] = { control_owner, true },
    [MESSAGE_NOTICE] = { call_notice, true },
    [MESSAGE_SAMPLED] = { control_sampled, true },
    [MESSAGE_TROUBLE] = { call_trouble, false },
    [MESSAGE_BARRIER_CANCEL] = { call_barrier_cancel, false },
    [MESSAGE_JOBS] = { inspect_jobs, false },
    [MESSAGE_REJECTS] = { inspect_rejects, false },
    [MESSAGE_WHY] = { inspect_why, false },
    [MESSAGE_STATUS] = { inspect_status, false },
    [MESSAGE_STACKS] = { control_stacks, false },
    [MESSAGE_KEYS] = { inspect_keys, false },
    [MESSAGE_WAITERS] = { inspect_waiters, false },
    [MESSAGE_BARRIERS] = { inspect_barriers, false },
};

/* Return true if the session may make calls of this class. Agents' calls are only for a client that has identified
 * itself as an agent. If the store has a secret, the agent must also have proved in AUTH that it has this secret. Calls
 * that change the job need the same proof if the client is on another host. */
static bool may_call(struct hub *hub, const struct session *s, enum message_class class, const char *op)
{
    if (class == MESSAGE_IS_AGENT_CALL && (s->role != ROLE_AGENT || !gate_is_agent(hub, s))) {
        ddp_fail(&hub->err, DDP_ERR_ARG, "\"%s\" is for agents; send IDENTIFY as an agent first", op);
        return false;
    }
    if (class == MESSAGE_IS_CHANGE_CALL && !gate_may_change(hub, s)) {
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP,
                 "%s: refused: this client on another host has not proved that it has the secret; pass "
                 "--secret_file or run ddpctl on the store's host",
                 op);
        return false;
    }
    return true;
}

/* Return the call of a request. If this fails, write the error to hub->err and return MESSAGE_COUNT. */
static enum message_id find_call(struct hub *hub, const struct session *s, const cJSON *request)
{
    struct message_op op;
    if (!message_decode(MESSAGE_OP, request, &op, &hub->err))
        return MESSAGE_COUNT;
    const enum message_id id = message_find_call(op.op);
    if (id == MESSAGE_COUNT)
        ddp_fail(&hub->err, DDP_ERR_UNSUPPORTED, "\"%s\" is not a known call", op.op);
    return id != MESSAGE_COUNT && may_call(hub, s, message_class(id), op.op) ? id : MESSAGE_COUNT;
}

/* Check a request against the rows of messages.h, and pass the decoded struct to the handler of the call. The
 * rendezvous checks whether the values fit together. A malformed `join` gets a code, because the reports to the waiting
 * nodes show each rejected node with its code. */
static bool dispatch_call(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    union message message;
    const enum message_id id = find_call(hub, s, request);
    if (id == MESSAGE_COUNT || (calls[id].nodes_only && !is_node(hub, s)))
        return false;
    if (message_decode(id, request, &message, &hub->err))
        return calls[id].handle(hub, s, &message, answer);
    return id == MESSAGE_JOIN && refuse_call(hub, answer, rdzv_refused_code(RDZV_REFUSED_BAD_JOIN), NULL);
}

static bool send_answer(struct hub *hub, struct session *s, cJSON *answer, bool ok)
{
    const char *error = hub->err.msg[0] ? hub->err.msg : "out of memory";
    message_add_answer(&(struct message_answer){ .ok = ok, .error = ok ? NULL : error }, answer);
    char *printed = answer ? cJSON_PrintUnformatted(answer) : NULL;
    const bool put = printed != NULL && session_append_blob(s, &hub->out, 0, slice_str(printed));
    cJSON_free(printed);
    return put;
}

/* Answer a call with exactly one object. Two calls are exceptions: `stacks` is answered later, and `resume` sends its
 * own answer. */
bool control_answer(struct hub *hub, struct session *s, struct slice text)
{
    cJSON *request = message_parse(text, &hub->err);
    cJSON *answer = cJSON_CreateObject();
    hub->answers_later = false;
    /* Count rejected calls, too, because the node counts them as sent. */
    if (s->is_node)
        s->as_node->received += s->as_node->token[0] != '\0';
    const bool ok = request != NULL && dispatch_call(hub, s, request, answer);
    const bool put = hub->answers_later ? ok : send_answer(hub, s, answer, ok);
    cJSON_Delete(request);
    cJSON_Delete(answer);
    return put;
}
