/* control_push.c -- what a rendezvous tells its nodes, as JSON.
 *
 * A round is told to thousands of nodes at once, and its list of nodes is the same for all: it is printed once, when
 * the round begins, and put into each node's message as it is. */
#include "hub/control_push.h"

#include "hub/json.h"
#include "hub/session.h"

#include "base/text.h"

#include <stdlib.h>

/* --- pieces ----------------------------------------------------------------------------------------------- */

static void add_number(cJSON *o, const char *name, uint64_t value)
{
    json_add_integer(o, name, (int64_t)value);
}

/* UINT64_MAX stands for "never". */
static void add_ms(cJSON *o, const char *name, uint64_t ms)
{
    if (ms == UINT64_MAX)
        cJSON_AddNullToObject(o, name);
    else
        add_number(o, name, ms);
}

/* A list that cannot be whole need not be long: every one of thousands gets it, so all of it grows with the square of
 * their number, and each shows a few to its user; its own numbers stand beside the list. Yours (cJSON_free); NULL when
 * memory is short. */
char *control_round_nodes(const struct rdzv_round *world)
{
    const uint32_t n = world->nnodes <= RDZV_LIST_MAX ? world->nnodes : RDZV_SHORT_LIST_MAX;
    cJSON *array = cJSON_CreateArray();
    for (uint32_t i = 0; i < n; i++) {
        const struct rdzv_seat *seat = &world->seats[i];
        cJSON *row = cJSON_CreateObject();
        add_number(row, "node_rank", seat->node_rank);
        cJSON_AddStringToObject(row, "host", seat->host);
        add_number(row, "nproc", seat->nproc);
        cJSON_AddStringToObject(row, "addr", seat->addr);
        if (seat->store_port != 0)
            add_number(row, "store_port", seat->store_port);
        json_append(array, row);
    }
    char *text = cJSON_PrintUnformatted(array);
    cJSON_Delete(array);
    return text;
}

/* How the worker ended, by the one of the three that says it. */
static void add_end(cJSON *o, const struct rdzv_cause *cause)
{
    if (cause->error != 0)
        json_add_integer(o, "error", cause->error);
    else if (cause->signal != 0)
        json_add_integer(o, "signal", cause->signal);
    else
        json_add_integer(o, "exit_code", cause->exit_code);
}

static void add_worker(cJSON *o, const struct rdzv_cause *cause)
{
    json_add_integer(o, "rank", cause->rank);
    json_add_integer(o, "local_rank", cause->local_rank);
    json_add_integer(o, "pid", cause->pid);
    add_end(o, cause);
    cJSON_AddStringToObject(o, "no_retry", rdzv_no_restart_word(cause->no_retry));
    cJSON_AddBoolToObject(o, "victim", cause->is_victim);
    if (cause->log[0] != '\0')
        cJSON_AddStringToObject(o, "log", cause->log);
}

static void add_lines(cJSON *o, const struct rdzv_cause *cause)
{
    cJSON *lines = cJSON_AddArrayToObject(o, "stderr");
    for (uint32_t i = 0; i < cause->n_stderr_lines; i++)
        json_append(lines, cJSON_CreateString(cause->stderr_lines[i]));
    if (cause->from_stdout)
        cJSON_AddBoolToObject(o, "from_stdout", true);
}

/* What the nodes that are told to stop read is a finding as well; a job that grows has none, and a rank that gave up because of
 * another is not what was found. */
static enum finding_code finding_of(const struct rdzv_cause *cause)
{
    switch (cause->why) {
    case RDZV_WHY_FAILED:
        if (cause->is_victim)
            return FINDING_NONE;
        return cause->error != 0 ? FINDING_PROGRAM_MISSING_ON_NODE : FINDING_WORKER_FAILED;
    case RDZV_WHY_NODE_LOST:
        return cause->silent ? FINDING_NODE_LOST_SILENT : FINDING_NODE_LOST_CLOSED;
    case RDZV_WHY_NODE_LEFT:
        return FINDING_NODE_LEFT;
    default:
        return FINDING_NONE;
    }
}

static void add_cause(cJSON *o, const struct rdzv_cause *cause)
{
    if (cause == NULL) {
        cJSON_AddNullToObject(o, "cause");
        return;
    }
    cJSON *c = cJSON_AddObjectToObject(o, "cause");
    cJSON_AddStringToObject(c, "why", rdzv_why_word(cause->why));
    cJSON_AddNumberToObject(c, "node_rank", cause->node_rank);
    cJSON_AddStringToObject(c, "host", cause->host);
    add_number(c, "after_ms", cause->after_ms);
    cJSON_AddStringToObject(c, "words", cause->words);
    if (finding_of(cause) != FINDING_NONE)
        cJSON_AddStringToObject(c, "code", finding_code_name(finding_of(cause)));
    if (cause->rank >= 0)
        add_worker(c, cause);
    else
        add_end(c, cause); /* the user's signal */
    add_lines(c, cause);
}

/* --- the kinds --------------------------------------------------------------------------------------- */

/* Lists are short and the counts whole, see RDZV_SHORT_LIST_MAX: this goes to every node, again and again
 * while they wait. */
static void fill_waiting(const struct job *job, const struct rdzv_tell *tell, cJSON *o)
{
    (void)job;
    const struct rdzv_waiting *w = tell->waiting;
    cJSON_AddStringToObject(o, "state", rdzv_state_word(w->state));
    add_number(o, "joined", w->joined);
    add_number(o, "min", w->min);
    add_number(o, "max", w->max);
    add_number(o, "spare", w->spare);
    add_number(o, "returning", w->returning);
    add_ms(o, "left_ms", w->left_ms);
    add_ms(o, "last_call_ms", w->last_call_ms);
    add_number(o, "backoff_ms", w->backoff_ms);
    cJSON *nodes = cJSON_AddArrayToObject(o, "nodes");
    for (uint32_t i = 0; i < w->n_hosts; i++)
        json_append(nodes, cJSON_CreateString(w->hosts[i]));
    cJSON *missing = cJSON_AddArrayToObject(o, "missing");
    for (uint32_t i = 0; i < w->n_missing_listed; i++)
        json_append(missing, cJSON_CreateNumber(w->missing[i]));
    add_number(o, "missing_count", w->n_missing);
}

static void fill_stop(const struct job *job, const struct rdzv_tell *tell, cJSON *o)
{
    (void)job;
    add_number(o, "round", tell->round);
    cJSON_AddStringToObject(o, "why", rdzv_why_word(tell->why));
    add_cause(o, tell->cause);
}

/* All three exit codes, since --exit_code is a choice of each node's user and not of the job. */
static void fill_verdict(const struct job *job, const struct rdzv_tell *tell, cJSON *o)
{
    fill_stop(job, tell, o);
    cJSON_AddStringToObject(o, "next", tell->restart ? "restart" : "finish");
    add_number(o, "attempt", tell->attempt);
    add_number(o, "backoff_ms", tell->backoff_ms);
    cJSON_AddStringToObject(o, "no_restart", rdzv_no_restart_word(tell->no_restart));
    cJSON_AddNumberToObject(o, "step", (double)tell->step);
    cJSON_AddNumberToObject(o, "best_step", (double)tell->best_step);
    cJSON *codes = cJSON_AddObjectToObject(o, "exit");
    cJSON_AddNumberToObject(codes, "first", tell->exit.first);
    cJSON_AddNumberToObject(codes, "max", tell->exit.max);
    cJSON_AddNumberToObject(codes, "rank0", tell->exit.rank0);
}

/* --- out -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *kind;
    void (*fill)(const struct job *job, const struct rdzv_tell *tell, cJSON *o);
} kinds[] = {
    [RDZV_TELL_WAITING] = { "waiting", fill_waiting },
    [RDZV_TELL_STOP] = { "stop", fill_stop },
    [RDZV_TELL_VERDICT] = { "verdict", fill_verdict },
};

/* Numbers, and a list that is text already: no tree is built for it, since thousands get one at the same
 * moment. Nothing in it needs to be escaped: the format has numbers only. */
static void push_round(struct job *job, struct session *s, const struct rdzv_tell *tell)
{
    const struct rdzv_round *w = tell->world;
    struct buf text = { 0 };
    if (buf_printf(&text,
                   "{\"push\":\"round\",\"round\":%u,\"attempt\":%u,\"restarts\":%u,\"node_rank\":%u,"
                   "\"nnodes\":%u,\"first_rank\":%u,\"world_size\":%u,\"nodes\":",
                   w->round, w->attempt, w->restarts, tell->node_rank, w->nnodes, tell->first_rank,
                   w->world_size) &&
        buf_append(&text, job->round_nodes, strlen(job->round_nodes)) &&
        (tell->role_size == 0 ||
         buf_printf(&text, ",\"role_rank\":%u,\"role_size\":%u", tell->role_rank, tell->role_size)) &&
        buf_append(&text, "}", 1))
        hub_push_text(job->hub, s, buf_slice(&text));
    buf_free(&text);
}

static void push_object(struct job *job, struct session *s, const struct rdzv_tell *tell)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "push", kinds[tell->kind].kind);
    kinds[tell->kind].fill(job, tell, o);
    hub_push(job->hub, s, o);
    cJSON_Delete(o);
}

/* A node whose connection is gone is one that the rendezvous will hear of in a moment. */
void control_push(void *user, uint64_t node, const struct rdzv_tell *tell)
{
    struct job *job = user;
    struct session *s = session_find(job->hub, node);
    if (s != NULL)
        (tell->kind == RDZV_TELL_ROUND ? push_round : push_object)(job, s, tell);
}
