/* control_rdzv.c -- what agents say about their node, from JSON to rendezvous.h.
 *
 * `join` chooses the job of its connection. Every later call is about a round and names it: an agent that was cut off
 * for a while speaks of a round that is over, and must hear that before it disturbs the next one. Texts and numbers
 * are compared with their limits here; what they mean together is the rendezvous' business.
 *
 * A refusal is an answer like any other: "ok" false, the code of the row that refused, and its advice. The
 * connection stays, since closing it would look like a store that is gone. */
#include "hub/control_calls.h"

#include "base/endpoint.h"
#include "hub/job_nodes.h"
#include "hub/job_rdzv.h"
#include "hub/json.h"

#include <stddef.h>

/* --- join ------------------------------------------------------------------------------------------------- */

/* Fields that are copied as they are. What is missing stays 0 or "". A field is a row: its name, its place
 * in struct rdzv_join, and its limits, which are compared before the value is made smaller. Only those
 * without which no rank can be given are needed; a field that is new may be left out. */
enum field_kind { TEXT, WHOLE, FLAG };

struct join_field {
    const char *name;
    size_t at, size; /* in struct rdzv_join */
    enum field_kind kind;
    bool needed;
    int64_t min, max;
};

/* A number in JSON is a double here and whole up to 2^53: `pid_start`, in clock ticks since the boot, ends
 * well before. */
#define AT(member) offsetof(struct rdzv_join, member), sizeof(((struct rdzv_join *)0)->member)
static const struct join_field fields[] = {
    { "job", AT(job), TEXT, true, 0, 0 },
    { "instance", AT(instance), TEXT, false, 0, 0 },
    { "version", AT(version), TEXT, true, 0, 0 },
    { "host", AT(host), TEXT, true, 0, 0 },
    { "boot_id", AT(boot_id), TEXT, false, 0, 0 },
    { "addr", AT(addr), TEXT, false, 0, 0 },
    { "own", AT(own), TEXT, false, 0, 0 },
    { "task", AT(task), TEXT, false, 0, 0 },
    { "program", AT(program), TEXT, false, 0, 0 },
    { "role", AT(role), TEXT, false, 0, 0 },
    { "join_knob", AT(join_knob), TEXT, false, 0, 0 },
    { "pid", AT(pid), WHOLE, true, 1, INT32_MAX },
    { "pid_start", AT(pid_start), WHOLE, false, 0, 1ll << 52 },
    { "nnodes_min", AT(nnodes_min), WHOLE, true, 1, INT32_MAX },
    { "nnodes_max", AT(nnodes_max), WHOLE, true, 1, INT32_MAX },
    { "node_rank", AT(node_rank), WHOLE, false, -1, INT32_MAX },
    { "nproc", AT(nproc), WHOLE, true, 1, INT32_MAX },
    { "store_port", AT(store_port), WHOLE, false, 0, UINT16_MAX },
    { "nproc_given", AT(nproc_given), FLAG, false, 0, 0 },
    { "uneven", AT(uneven), FLAG, false, 0, 0 },
    { "max_restarts", AT(max_restarts), WHOLE, false, 0, INT32_MAX },
    { "max_no_progress", AT(max_no_progress), WHOLE, false, 0, INT32_MAX },
    { "backoff_ms", AT(backoff_ms), WHOLE, false, 0, CONTROL_MS_MAX },
    { "backoff_cap_ms", AT(backoff_cap_ms), WHOLE, false, 0, CONTROL_MS_MAX },
    { "last_call_ms", AT(last_call_ms), WHOLE, false, 0, CONTROL_MS_MAX },
    { "join_timeout_ms", AT(join_timeout_ms), WHOLE, false, 0, CONTROL_MS_MAX },
    { "node_timeout_ms", AT(node_timeout_ms), WHOLE, false, 0, CONTROL_MS_MAX },
    { "grace_ms", AT(grace_ms), WHOLE, false, 0, CONTROL_MS_MAX },
};

/* A number of 4 or 8 bytes; -1 is the same in both. By memcpy, since the members are signed and unsigned,
 * and through a pointer of another type would be undefined. */
static void put_whole(void *at, size_t size, int64_t value)
{
    int32_t small = (int32_t)value;
    memcpy(at, size == sizeof(small) ? (void *)&small : (void *)&value, size);
}

static bool read_text(const cJSON *request, const struct join_field *f, const char **at, struct ddp_err *err)
{
    *at = "";
    return f->needed ? json_text(request, f->name, RDZV_TEXT_MAX - 1, at, err)
                     : json_text_or(request, f->name, RDZV_TEXT_MAX - 1, at, err);
}

static bool read_whole(const cJSON *request, const struct join_field *f, void *at, struct ddp_err *err)
{
    int64_t value = f->min > 0 ? f->min : f->min < 0 ? -1 : 0;
    if (f->needed ? !json_integer(request, f->name, f->min, f->max, &value, err)
                  : !json_integer_or(request, f->name, f->min, f->max, &value, err))
        return false;
    put_whole(at, f->size, value);
    return true;
}

static bool read_field(const cJSON *request, const struct join_field *f, struct rdzv_join *join,
                       struct ddp_err *err)
{
    void *at = (char *)join + f->at;
    switch (f->kind) {
    case TEXT:
        return read_text(request, f, at, err);
    case WHOLE:
        return read_whole(request, f, at, err);
    case FLAG:
        break;
    }
    *(bool *)at = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, f->name));
    return true;
}

/* The index of a word, or the first one's when it is missing. An unknown word is refused and not passed
 * over: it would be a rule of the job that one node follows alone. */
static bool read_word(const cJSON *request, const char *name, const char *const words[], int n, int *which,
                      struct ddp_err *err)
{
    const char *word = words[0];
    if (!json_text_or(request, name, 16, &word, err))
        return false;
    for (*which = 0; *which < n; ++*which)
        if (strcmp(word, words[*which]) == 0)
            return true;
    ddp_fail(err, DDP_ERR_ARG, "\"%s\" \"%s\" is not known", name, word);
    return false;
}

static bool read_join(const cJSON *request, struct rdzv_join *join, struct ddp_err *err)
{
    static const char *const modes[] = { "static", "elastic" };
    static const char *const grows[] = {
        [RDZV_GROW_AGREED] = "agreed", [RDZV_GROW_NOW] = "now", [RDZV_GROW_NEVER] = "never"
    };
    int elastic, grow;
    *join = (struct rdzv_join){ .node_rank = -1 };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (!read_field(request, &fields[i], join, err))
            return false;
    if (!read_word(request, "mode", modes, 2, &elastic, err) ||
        !read_word(request, "grow", grows, 3, &grow, err))
        return false;
    join->elastic = elastic == 1;
    join->grow = (enum rdzv_grow)grow;
    return true;
}

static bool refuse(struct hub *hub, cJSON *answer, const char *code, const char *advice)
{
    cJSON_AddStringToObject(answer, "code", code);
    if (advice != NULL)
        cJSON_AddStringToObject(answer, "advice", advice);
    if (hub->err.msg[0] == '\0')
        ddp_fail(&hub->err, DDP_ERR_MISMATCH, "refused: %s", code);
    return false;
}

/* The job whose rendezvous a node that says `join` means. NULL: refused. Who is a node already stays in its
 * job, whatever it names: the rendezvous then refuses the name in its own words. A store that nobody has
 * named yet takes the name of its first node. */
static struct job *joined_job(struct hub *hub, struct session *s, const struct rdzv_join *join, cJSON *answer)
{
    struct job *job = s->is_node ? s->job : job_claim(hub, s, join->job);
    if (job != NULL && job->name[0] == '\0')
        job_rename(job, join->job);
    if (job == NULL || job_rdzv(job) == NULL) {
        ddp_fail(&hub->err, DDP_ERR_NOMEM, "the store has no room for job '%s'", join->job);
        refuse(hub, answer, rdzv_refused_code(RDZV_REFUSED_STORE_FULL),
               rdzv_refused_advice(RDZV_REFUSED_STORE_FULL));
        return NULL;
    }
    return job;
}

/* "10.0.0.2" of "10.0.0.2:41234": the address that the store sees is one that others may try. `peer` is the
 * caller's, since the join borrows its text. */
static void fill_address(struct rdzv_join *join, const struct session *s, struct endpoint *peer)
{
    if (join->addr[0] == '\0' && endpoint_parse(s->peer, 0, peer, NULL) == DDP_OK)
        join->addr = peer->host;
}

/* The store's clock goes along for those who keep the event log: they put its times beside their own. */
static bool welcome(struct session *s, struct job *job, cJSON *answer)
{
    session_enter(s, job);
    job_node_joined(s);
    if (rdzv_is_spare(job->rdzv, s->id))
        job_watch_spare(job);
    cJSON_AddStringToObject(answer, "job", job->name);
    cJSON_AddStringToObject(answer, "instance", rdzv_instance(job->rdzv));
    if (s->takes_events)
        cJSON_AddNumberToObject(answer, "ms", (double)s->job->hub->now_ms);
    cJSON_AddStringToObject(answer, "state", rdzv_is_spare(job->rdzv, s->id) ? "spare" : "waiting");
    return true;
}

/* What follows from it is told behind the answer: see on_control. Events are asked for before the join,
 * because the join is itself an event. One that is refused takes none, and tells the others soon: they wait
 * for it. The job's deadline is then read again, which the hurry has brought forward. */
bool control_join(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    struct rdzv_join join;
    struct rdzv_refusal refusal = { .code = RDZV_WELCOME };
    struct endpoint peer;
    if (!read_join(request, &join, &hub->err))
        return refuse(hub, answer, rdzv_refused_code(RDZV_REFUSED_BAD_JOIN), NULL);
    struct job *job = job_node_room(s) ? joined_job(hub, s, &join, answer) : NULL;
    if (job == NULL)
        return false;
    fill_address(&join, s, &peer);
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "events")))
        job_events_ask(job, s);
    if (rdzv_join(job->rdzv, s->id, &join, hub->now_ms, &refusal) == RDZV_WELCOME)
        return welcome(s, job, answer);
    job_watch_hurry(job);
    if (!s->is_node)
        job_events_leave(job, s);
    job_touch(job);
    refusals_note(&hub->refusals, &join, &refusal, hub->now_ms);
    ddp_fail(&hub->err, DDP_ERR_MISMATCH, "%s", refusal.sentence);
    return refuse(hub, answer, rdzv_refused_code(refusal.code), rdzv_refused_advice(refusal.code));
}

/* What a process can end with. Every node exits with the job's code, and exit() cuts it to a byte: 256 of one node, or
 * its signal 128, would make all others succeed. */
enum { CODE_MAX = 255, SIGNAL_MAX = 64 };

/* --- about a round ---------------------------------------------------------------------------------------- */

bool control_is_node(struct hub *hub, const struct session *s)
{
    if (!s->is_node)
        ddp_fail(&hub->err, DDP_ERR_ARG, "this connection is no node of a job: join first");
    return s->is_node;
}

/* The round that a node speaks of; NULL when it is none. A number that is missing is an error and not "the
 * one that runs": between two rounds nobody knows which one was meant. */
static struct rdzv *read_round(struct hub *hub, struct session *s, const cJSON *request, uint32_t *round)
{
    int64_t value;
    if (!control_is_node(hub, s) || !json_integer(request, "round", 0, UINT32_MAX, &value, &hub->err))
        return NULL;
    *round = (uint32_t)value;
    return s->job->rdzv;
}

/* True when it was acted on. What is stale is refused, and the agent goes on: the verdict of that round was
 * sent before, and is on its way to it. */
static bool answered(struct hub *hub, struct rdzv *r, uint32_t round, enum rdzv_answer how, cJSON *answer)
{
    struct rdzv_facts facts;
    if (how == RDZV_OK)
        return true;
    rdzv_facts(r, &facts);
    if (how == RDZV_STALE_ROUND)
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "round %u is over, now is round %u", round, facts.round);
    else
        ddp_fail(&hub->err, DDP_ERR_MEMBERSHIP, "this node is not in round %u", facts.round);
    return refuse(hub, answer, how == RDZV_STALE_ROUND ? "STALE_ROUND" : "NO_MEMBER", NULL);
}

bool control_owns_rank(struct hub *hub, const struct session *s, int64_t rank, cJSON *answer)
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

/* "" and whatever we do not know allow another attempt: a newer agent's reason is no reason for us. */
static enum rdzv_no_restart read_no_retry(const cJSON *request)
{
    const char *word = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(request, "no_retry"));
    static const enum rdzv_no_restart known[] = { RDZV_NO_RESTART_CANNOT_START, RDZV_NO_RESTART_USAGE,
                                                  RDZV_NO_RESTART_IMPORT };
    for (size_t i = 0; word != NULL && i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(word, rdzv_no_restart_word(known[i])) == 0)
            return known[i];
    return RDZV_NO_RESTART_NONE;
}

/* `lines` is the caller's, with room for RDZV_STDERR_MAX; what is beyond that, or no text, is left out. */
static void read_lines(const cJSON *request, struct rdzv_failure *f, const char *lines[])
{
    const cJSON *line;
    f->stderr_lines = lines;
    cJSON_ArrayForEach(line, cJSON_GetObjectItemCaseSensitive(request, "stderr"))
    {
        if (f->n_stderr_lines < RDZV_STDERR_MAX && cJSON_IsString(line))
            lines[f->n_stderr_lines++] = line->valuestring;
    }
}

/* Only the rank is needed. Texts stay in the request's tree, which lives until the call is over; the
 * rendezvous copies. */
static bool read_failure(const cJSON *request, struct rdzv_failure *f, const char *lines[],
                         struct ddp_err *err)
{
    int64_t rank, local_rank = -1, pid = 0, code = 0, signal = 0, error = 0;
    *f = (struct rdzv_failure){ .words = "", .log = "" };
    if (!json_integer(request, "rank", 0, WIRE_MAX_RANKS, &rank, err) ||
        !json_integer_or(request, "local_rank", -1, WIRE_MAX_RANKS, &local_rank, err) ||
        !json_integer_or(request, "pid", 0, INT32_MAX, &pid, err) ||
        !json_integer_or(request, "exit_code", 0, CODE_MAX, &code, err) ||
        !json_integer_or(request, "signal", 0, SIGNAL_MAX, &signal, err) ||
        !json_integer_or(request, "error", 0, 4095, &error, err) ||
        !json_text_or(request, "words", 4096, &f->words, err) ||
        !json_text_or(request, "log", 4096, &f->log, err))
        return false;
    f->rank = (int32_t)rank;
    f->local_rank = (int32_t)local_rank;
    f->pid = (int)pid;
    f->exit_code = (int)code;
    f->signal = (int)signal;
    f->error = (int)error;
    f->victim = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "victim"));
    f->from_stdout = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "from_stdout"));
    f->no_retry = read_no_retry(request);
    read_lines(request, f, lines);
    return true;
}

/* `failed` and `cause` carry the same fields: the first at once, so that the others can stop, the second
 * when the last words of the worker have been read. */
typedef enum rdzv_answer (*tell_failure)(struct rdzv *r, uint64_t node, uint32_t round,
                                         const struct rdzv_failure *failure, uint64_t now_ms);

static bool about_failure(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer,
                          tell_failure tell)
{
    struct rdzv_failure failure;
    const char *lines[RDZV_STDERR_MAX];
    uint32_t round;
    struct rdzv *r = read_round(hub, s, request, &round);
    if (r == NULL || !read_failure(request, &failure, lines, &hub->err))
        return false;
    const enum rdzv_answer how = tell(r, s->id, round, &failure, hub->now_ms);
    return how == RDZV_OTHER_RANK ? control_owns_rank(hub, s, failure.rank, answer)
                                  : answered(hub, r, round, how, answer);
}

bool control_failed(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    return about_failure(hub, s, request, answer, rdzv_failed);
}

bool control_cause(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    return about_failure(hub, s, request, answer, rdzv_explain);
}

/* All workers of the node have ended with 0; codes need not be told. */
bool control_done(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    uint32_t round;
    struct rdzv *r = read_round(hub, s, request, &round);
    return r != NULL && answered(hub, r, round, rdzv_done(r, s->id, round, hub->now_ms), answer);
}

/* Only the node of rank 0 has a rank0_code. INT64_MIN stands for "not sent", for -1 might be what a peer
 * means by a code. */
bool control_stopped(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    uint32_t round;
    int64_t max_code = 0, rank0 = INT64_MIN;
    struct rdzv *r = read_round(hub, s, request, &round);
    if (r == NULL || !json_integer_or(request, "max_code", 0, CODE_MAX, &max_code, &hub->err) ||
        !json_integer_or(request, "rank0_code", 0, CODE_MAX, &rank0, &hub->err))
        return false;
    struct rdzv_stopped how = {
        .unkillable = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "unkillable")),
        .max_code = (int)max_code,
        .has_rank0 = rank0 != INT64_MIN,
        .rank0_code = rank0 != INT64_MIN ? (int)rank0 : 0,
    };
    return answered(hub, r, round, rdzv_stopped(r, s->id, round, &how, hub->now_ms), answer);
}

/* Allowed at any time: also a node that is in no round has a user who stops it. */
bool control_leave(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    (void)answer;
    int64_t signal = 0;
    const char *by = "";
    if (!json_integer_or(request, "signal", 0, SIGNAL_MAX, &signal, &hub->err) ||
        !json_text_or(request, "by", 4096, &by, &hub->err))
        return false;
    if (s->is_node)
        rdzv_leave(s->job->rdzv, s->id, (int)signal, by, hub->now_ms);
    return true;
}

/* For reports about workers: one that was under way when the next round began would be put down to the
 * worker that has the same rank now. Without a number it is believed, for agents that know no rounds. */
bool control_is_stale(struct hub *hub, const struct session *s, const cJSON *request, cJSON *answer)
{
    struct rdzv_facts facts;
    int64_t round = -1;
    if (!s->is_node)
        return false;
    rdzv_facts(s->job->rdzv, &facts);
    if (!json_integer_or(request, "round", 0, UINT32_MAX, &round, &hub->err) || round < 0 ||
        round == facts.round)
        return false;
    answered(hub, s->job->rdzv, (uint32_t)round, RDZV_STALE_ROUND, answer);
    return true;
}

/* --- heartbeat -------------------------------------------------------------------------------------------- */

/* A whole number that a double holds. */
static bool is_count(const cJSON *item, double least)
{
    return cJSON_IsNumber(item) && item->valuedouble >= least && item->valuedouble < 9e15;
}

/* [local_rank, "D", percent, "wchan"] about a worker of this node; what is no such row is passed over. */
static void note_worker(struct job *job, const struct rdzv_node_facts *node, const cJSON *row)
{
    const cJSON *local = cJSON_GetArrayItem(row, 0), *percent = cJSON_GetArrayItem(row, 2);
    const char *letter = cJSON_GetStringValue(cJSON_GetArrayItem(row, 1));
    const char *wchan = cJSON_GetStringValue(cJSON_GetArrayItem(row, 3));
    if (!cJSON_IsNumber(local) || local->valueint < 0 || (uint32_t)local->valueint >= node->nproc)
        return;
    struct member *member = members_at(&job->members, node->first_rank + (uint32_t)local->valueint);
    if (member != NULL)
        member_look(member, letter != NULL ? letter[0] : '\0',
                    cJSON_IsNumber(percent) ? percent->valueint : -1, wchan, job->hub->now_ms);
}

/* [local_rank, step, number, "all_reduce"]. A rank that waits sets a time at which somebody looks for whom. */
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
    if (member->call[0] != '\0')
        job_watch_call(job);
}

/* That it lives has been noted with its bytes. A beat also is the moment to see whether all ranks have
 * agreed to grow, so a job that asks for it waits one beat at most and no SET pays for the question. */
bool control_heartbeat(struct hub *hub, struct session *s, const cJSON *request, cJSON *answer)
{
    struct rdzv_node_facts node;
    const cJSON *row;
    if (control_is_stale(hub, s, request, answer))
        return false;
    if (!s->is_node || !rdzv_node_facts(s->job->rdzv, s->id, &node) ||
        rdzv_check_rank(s->job->rdzv, s->id, node.first_rank) != RDZV_OK) /* a spare runs no ranks */
        return true;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(request, "workers"))
    {
        note_worker(s->job, &node, row);
    }
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(request, "steps"))
    {
        note_step(s->job, &node, row);
    }
    job_touch(s->job);
    job_look_at_grow_keys(s->job);
    return true;
}
