/* rounds.c -- connects a job's rendezvous to the hub. The rendezvous (rendezvous.h) decides, and this file carries out
 * its decisions: attempts and messages to nodes. The two modules are separate, because the rendezvous is pure: it uses
 * neither sessions nor JSON.
 *
 *     agent's call -> control.c -> rendezvous -> rounds.c -> begin an attempt, drop a node,
 *                                                            push `round`, `waiting`, `stop` or `verdict` */
#include "hub/session.h"

#include "base/text.h"
#include "base/limits.h"
#include "ddp/context.h"
#include "diagnosis/diagnosis.h"
#include "hub/job.h"
#include "hub/messages.h"
#include "hub/schedule.h"
#include "store/store.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

/* The keys of limits.h as the store receives them: PyTorch puts a slash in front of each key. */
#define WAITING_KEY "/" GROW_WAITING_KEY
#define AGREED_KEY  "/" GROW_AGREED_KEY

/* --- messages to nodes --------------------------------------------------------------------------------- */

/* Print the nodes of a round as JSON; the caller frees the text (cJSON_free). In a large round, list only the first
 * nodes, because every node gets the list. Return NULL if memory is short. */
static char *print_nodes(const struct rdzv_round *world)
{
    const uint32_t n = world->nnodes <= RDZV_LIST_MAX ? world->nnodes : RDZV_SHORT_LIST_MAX;
    cJSON *array = cJSON_CreateArray();
    for (uint32_t i = 0; i < n; i++) {
        const struct rdzv_row *row = &world->rows[i];
        json_append(array,
                    message_encode_node(&(struct message_node){
                        .node_rank = row->node_rank,
                        .host = row->host,
                        .nproc = row->nproc,
                        .addr = row->addr,
                        .own = row->own[0] != '\0' && strcmp(row->own, row->addr) != 0 ? row->own : NULL,
                        .store_port = row->store_port != 0 ? (int64_t)row->store_port : MESSAGE_NONE }));
    }
    char *text = cJSON_PrintUnformatted(array);
    cJSON_Delete(array);
    return text;
}

/* Return the finding that describes the cause of a stop. Return FINDING_NONE for a worker that failed because another
 * worker was lost. Also return FINDING_NONE for a cause without a finding, such as RDZV_WHY_GROW. */
static enum finding_code finding_of(const struct rdzv_cause *cause)
{
    switch (cause->why) {
    case RDZV_WHY_FAILED:
        if (cause->failure.victim)
            return FINDING_NONE;
        return cause->failure.error != 0 ? FINDING_PROGRAM_MISSING_ON_NODE : FINDING_WORKER_FAILED;
    case RDZV_WHY_NODE_LOST:
        return cause->silent ? FINDING_NODE_LOST_SILENT : FINDING_NODE_LOST_CLOSED;
    case RDZV_WHY_NODE_LEFT:
        return cause->failure.code[0] == '\0' ? FINDING_NODE_LEFT : finding_by_name(cause->failure.code);
    case RDZV_WHY_HANGS:
        return finding_by_name(cause->failure.code);
    default:
        return FINDING_NONE;
    }
}

/* Return the cause as JSON, or NULL if there is no cause. */
static cJSON *encode_cause(const struct rdzv_cause *cause)
{
    struct failure failure;
    if (cause == NULL)
        return NULL;
    failure = cause->failure;
    text_copy(failure.why, sizeof(failure.why), rdzv_why_word(cause->why));
    text_copy(failure.no_retry, sizeof(failure.no_retry), no_restart_word(cause->no_retry));
    text_copy(failure.code, sizeof(failure.code),
              finding_of(cause) != FINDING_NONE ? finding_code_name(finding_of(cause)) : "");
    return message_encode_failure_cause(&failure);
}

/* Convert a time for a message. UINT64_MAX (never) becomes MESSAGE_NONE, which is sent as null. */
static int64_t limit_ms(uint64_t ms)
{
    return ms == UINT64_MAX ? MESSAGE_NONE : (int64_t)ms;
}

/* Encode the push `round`. print_nodes() has already encoded the list of nodes, which is the same for all receivers. */
static cJSON *encode_round(const struct job *job, const struct rdzv_notice *notice)
{
    const struct rdzv_round *w = notice->world;
    return message_encode_round(&(struct message_round){
        .round = w->round,
        .attempt = w->attempt,
        .restarts = w->restarts,
        .node_rank = notice->node_rank,
        .nnodes = w->nnodes,
        .first_rank = notice->first_rank,
        .world_size = w->world_size,
        .nodes = cJSON_CreateRaw(job->round_nodes),
        .role_rank = notice->role_size != 0 ? (int64_t)notice->role_rank : MESSAGE_NONE,
        .role_size = notice->role_size != 0 ? (int64_t)notice->role_size : MESSAGE_NONE });
}

/* Encode the push `waiting`. A list has at most RDZV_SHORT_LIST_MAX rows, but the counts include all nodes. */
static cJSON *encode_waiting(const struct job *job, const struct rdzv_notice *notice)
{
    (void)job;
    const struct rdzv_waiting *w = notice->waiting;
    cJSON *nodes = cJSON_CreateArray(), *missing = cJSON_CreateArray();
    for (uint32_t i = 0; i < w->n_hosts; i++)
        json_append(nodes, cJSON_CreateString(w->hosts[i]));
    for (uint32_t i = 0; i < w->n_missing_listed; i++)
        json_append(missing, cJSON_CreateNumber(w->missing[i]));
    return message_encode_waiting(&(struct message_waiting){ .state = rdzv_state_word(w->state),
                                                             .joined = w->joined,
                                                             .min = w->min,
                                                             .max = w->max,
                                                             .spare = w->spare,
                                                             .returning = w->returning,
                                                             .left_ms = limit_ms(w->left_ms),
                                                             .last_call_ms = limit_ms(w->last_call_ms),
                                                             .backoff_ms = (int64_t)w->backoff_ms,
                                                             .nodes = nodes,
                                                             .missing = missing,
                                                             .missing_count = w->n_missing });
}

static cJSON *encode_stop(const struct job *job, const struct rdzv_notice *notice)
{
    (void)job;
    return message_encode_stop(&(struct message_stop){
        .round = notice->round, .why = rdzv_why_word(notice->why), .cause = encode_cause(notice->cause) });
}

/* Encode the push `verdict` with three exit codes. Each node selects one of them by its --exit_code. The verdict
 * "finish" also contains the stacks of all surviving workers, because each node then prints a report. */
static cJSON *encode_verdict(const struct job *job, const struct rdzv_notice *notice)
{
    cJSON *codes = message_encode_exit(&(struct message_exit){
        .first = notice->exit.first, .max = notice->exit.max, .rank0 = notice->exit.rank0 });
    return message_encode_verdict(
        &(struct message_verdict){ .round = notice->round,
                                   .why = rdzv_why_word(notice->why),
                                   .cause = encode_cause(notice->cause),
                                   .next = notice->restart ? "restart" : "finish",
                                   .attempt = notice->attempt,
                                   .backoff_ms = (int64_t)notice->backoff_ms,
                                   .no_restart = no_restart_word(notice->no_restart),
                                   .step = notice->step,
                                   .best_step = notice->best_step,
                                   .exit = codes,
                                   .stacks = notice->restart ? NULL : stacks_of_survivors(job) });
}

/* Send a push to a node. Skip a node whose connection is already closed. */
static void push_to_node(void *user, uint64_t node, const struct rdzv_notice *notice)
{
    static cJSON *(*const encode[])(const struct job *job, const struct rdzv_notice *notice) = {
        [RDZV_NOTICE_ROUND] = encode_round,
        [RDZV_NOTICE_WAITING] = encode_waiting,
        [RDZV_NOTICE_STOP] = encode_stop,
        [RDZV_NOTICE_VERDICT] = encode_verdict,
    };
    struct job *job = user;
    struct session *s = session_find(job->hub, node);
    if (s == NULL)
        return;
    cJSON *o = encode[notice->kind](job, notice);
    hub_push(job->hub, s, o);
    cJSON_Delete(o);
}

/* --- effects of the rendezvous ---------------------------------------------------------------------------- */

/* Return true if the monitor need not compare the nodes of this round. This is the case if all nodes have the same
 * number of workers. In the first round, there must also be no node whose address NAT has translated. */
static bool is_ordinary(const struct rdzv_round *world)
{
    for (uint32_t i = 0; i < world->nnodes; i++) {
        const struct rdzv_row *row = &world->rows[i];
        if (row->nproc != world->rows[0].nproc ||
            (world->round == 1 && diagnose_is_translated(row->own, row->addr)))
            return false;
    }
    return true;
}

/* Begin a round. If memory is short, change nothing and return false; rdzv_begin_round() then ends the job. */
static bool begin_round(void *user, const struct rdzv_round *world)
{
    struct job *job = user;
    struct job_name name = { .job = job->name, .attempt = world->attempt, .world_size = world->world_size };
    /* Format the list before attempt_begin(), which cannot be undone. */
    char *nodes = print_nodes(world);
    if (nodes == NULL || !attempt_begin(job, &name, true)) {
        free(nodes);
        return false;
    }
    free(job->round_nodes);
    job->round_nodes = nodes;
    if (!is_ordinary(world))
        schedule_round(job);
    job->agreed = 0;
    events_members(job, world);
    return true;
}

/* Return the highest step that a rank has stored under PROGRESS_KEY, or -1 if no rank has stored a step. The function
 * reads all keys, but it is called only when a round has failed. */
static int64_t progress(void *user)
{
    const struct job *job = user;
    const struct entry *at = NULL;
    struct slice key, value, prefix = slice_str("/" PROGRESS_KEY);
    int64_t best = -1, step;
    while (store_next(job->store, &at, &key, &value))
        if (key.len > prefix.len && slice_equal(slice_of(key.data, prefix.len), prefix) &&
            decimal_parse(value, &step) && step > best)
            best = step;
    return best;
}

/* Store the number of waiting nodes under WAITING_KEY. If the store is full, the key keeps its old value. */
static void waiting_nodes(void *user, uint32_t count)
{
    struct job *job = user;
    char text[DECIMAL_MAX];
    job->spares = count;
    store_set(job->store, slice_str(WAITING_KEY), decimal_print(count, text));
}

/* Push the reason to a node before its connection is closed. A frozen node can still read the reason later. */
static void push_farewell(struct hub *hub, struct session *s, const char *why)
{
    cJSON *o = message_encode_dropped(&(struct message_dropped){ .why = why });
    hub_push(hub, s, o);
    cJSON_Delete(o);
}

/* Drop a node for the rendezvous (rdzv_env.drop). First end the session's role as a node, because session_drop() must
 * not report a lost node back to the rendezvous. If process_bytes() in hub.c is processing this session, only set
 * drop_reason: process_bytes() then drops the session. */
static void drop(void *user, uint64_t node, const char *why)
{
    struct hub *hub = ((struct job *)user)->hub;
    struct session *s = session_find(hub, node);
    if (s == NULL)
        return;
    job_node_ends(s);
    push_farewell(hub, s, why);
    if (s == hub->processing)
        ddp_fail(&hub->drop_reason, DDP_ERR_TIMEOUT, "%s", why);
    else
        session_drop(hub, s, why);
}

/* Report in the event log and in `ddpctl why` which processes use the GPU of the failed worker. Do nothing if
 * job->troubles already has this finding. If a node has already reported this finding (job->notices), overwrite the
 * node's text. Send no message to the nodes, because the verdict contains the same facts. */
static void report_gpu_users(struct job *job)
{
    struct rdzv_facts facts;
    struct finding f;
    rdzv_facts(job->rdzv, &facts);
    const struct failure *cause = facts.cause != NULL ? &facts.cause->failure : NULL;
    if (cause == NULL || !finding_gpu_users(&f, cause->gpu, cause->host, cause->rank, cause->gpu_users) ||
        notices_have(&job->troubles, f.code, f.subject))
        return;
    events_finding(job, &f);
    notices_add(notices_have(&job->notices, f.code, f.subject) ? &job->notices : &job->troubles,
                NOTICE_OF_STORE, finding_code_name(f.code), f.subject, f.sentence, f.advice);
}

/* Record an event of the rendezvous (rdzv_env.record). Before a verdict, report the findings that explain the verdict.
 * The agents can then print a finding about a lost rank together with the failure. */
static void record(void *user, const struct rdzv_record *what)
{
    if (what->kind == RDZV_RECORD_VERDICT) {
        lost_peer_verdict(user);
        report_gpu_users(user);
    }
    events_record(user, what);
}

/* --- life cycle ------------------------------------------------------------------------------------------- */

/* Create a rendezvous. Its instance id consists of the random text of this hub and a number. No other rendezvous has
 * the same id: the number differs within this hub, and a later store on the same port has another random text. */
static struct rdzv *make_rendezvous(struct job *job)
{
    struct hub *hub = job->hub;
    char instance[RDZV_TEXT_MAX];
    struct rdzv_env env = { .user = job,
                            .version = DDP_VERSION,
                            .notify = push_to_node,
                            .begin = begin_round,
                            .progress = progress,
                            .waiting_nodes = waiting_nodes,
                            .drop = drop,
                            .log = job_log,
                            .record = record };
    snprintf(instance, sizeof(instance), "%s-%u", hub->limits.instance, ++hub->n_instances);
    return rdzv_new(&env, job->quota, job->name, instance);
}

/* Return the rendezvous of the job. In a hub of many jobs a finished rendezvous is replaced. In a launcher the
 * finished rendezvous stays and rejects later nodes. */
struct rdzv *job_rendezvous(struct job *job)
{
    const bool is_over = job->rdzv != NULL && job->hub->limits.many_jobs && rdzv_is_over(job->rdzv);
    if (job->rdzv != NULL && !is_over)
        return job->rdzv;
    if (is_over)
        attempt_end(job);
    struct rdzv *next = make_rendezvous(job);
    if (next == NULL)
        return NULL;
    if (is_over) { /* findings, events and rejections of the finished run do not concern the next run */
        notices_free(&job->notices);
        events_free(&job->events);
        refusals_forget(&job->hub->refusals, job->name);
    }
    rdzv_free(job->rdzv);
    return job->rdzv = next;
}

/* --- growth --------------------------------------------------------------------------------------------- */

/* Request the restart with more nodes when all ranks have agreed to this restart. A rank agrees by setting its key.
 * Begin with the first rank that had not agreed at the last call, so that most calls read only the key of this rank. */
void rounds_check_grow_keys(struct job *job)
{
    if (job->rdzv == NULL || job->spares == 0)
        return;
    for (char key[64]; job->agreed < job->members.world_size; job->agreed++) {
        snprintf(key, sizeof(key), AGREED_KEY "%u", job->agreed);
        if (store_get(job->store, slice_str(key)).len == 0)
            return;
    }
    rdzv_grow_agreed(job->rdzv, job->hub->now_ms);
}
