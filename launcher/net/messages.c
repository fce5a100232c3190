/* messages.c -- see messages.h. The peer is not trusted, so hub/messages.h limits every number in a push (a message
 * that the store sends without a request), and this file cuts texts to their buffers. Of the pushes, this file rejects
 * only an invalid round, because such a round could start wrong ranks. store_link.c decodes the pushes about the end of
 * a round. */
#include "net/messages.h"

#include "base/text.h"
#include "ddp/context.h"
#include "hub/messages.h"
#include "record/flight_dump.h"
#include "base/exit_codes.h"
#include "tables/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* --- requests ------------------------------------------------------------------------------------------- */

/* store_link_send frees the JSON tree of a request. If memory is short, the tree is NULL, so store_link_send accepts
 * NULL. */

/* Return the name of the scheduler if this process is one of several tasks of the node, or "". */
static const char *scheduler_of_task(const struct plan *plan)
{
    const struct scheduler *s = plan->facts->scheduler;
    return s != NULL && s->tasks.known && s->tasks.here > 1 && !plan->cli->per_task ? s->title : "";
}

/* Encode `join`. The store compares the options that must be equal on all nodes, so the message has these options. The
 * address of this end of the connection lets the store detect a router that translates addresses. If the store cannot
 * be on another host (plan_meeting.elsewhere), the job has only this node. In this case, node_timeout_ms is 0, because
 * no other node waits for this node. */
cJSON *encode_join(const struct plan *plan, const struct link_who *who, const char *instance)
{
    static const char *const grow_words[] = {
        [GROW_AGREED] = "agreed", [GROW_NOW] = "now", [GROW_NEVER] = "never"
    };
    static const char *const on_hang_words[] = {
        [ON_HANG_REPORT] = "report", [ON_HANG_STOP] = "stop", [ON_HANG_RESTART] = "restart"
    };
    const struct plan_meeting *m = &plan->meeting;
    const struct cli *cli = plan->cli;
    return message_encode_join(&(struct message_join){
        .job = plan->job,
        .instance = instance,
        .version = DDP_VERSION,
        .host = plan->facts->host,
        .pid = who->pid,
        .pid_start = (int64_t)who->pid_start,
        .boot_id = who->boot_id,
        .addr = "",
        .own = who->own,
        .mode = m->elastic ? "elastic" : "static",
        .nnodes_min = m->nnodes_min,
        .nnodes_max = m->nnodes_max,
        .node_rank = m->node_rank,
        .nproc = plan->nproc,
        .store_port = plan->offered_port != 0 ? plan->offered_port : MESSAGE_NONE,
        .nproc_given = cli->nproc.kind == NPROC_NUMBER,
        .uneven = cli->uneven,
        .task = scheduler_of_task(plan),
        .program = m->program,
        .role = cli->role,
        .events = cli->events != NULL,
        .max_restarts = cli->max_restarts,
        .max_no_progress = cli->max_no_progress,
        .backoff_ms = (int64_t)cli->backoff_ms,
        .backoff_cap_ms = (int64_t)cli->backoff_cap_ms,
        .last_call_ms = (int64_t)m->last_call_ms,
        .join_timeout_ms = (int64_t)m->join_ms,
        .node_timeout_ms = m->elsewhere ? (int64_t)m->node_timeout_ms : 0,
        .join_knob = m->join_knob != NULL ? m->join_knob : "",
        .grow = grow_words[cli->grow],
        .hang_ms = cli->hang_timeout_ms == 0              ? MESSAGE_NONE
                   : cli->hang_timeout_ms == CLI_HANG_OFF ? 0
                                                          : (int64_t)cli->hang_timeout_ms,
        .on_hang = on_hang_words[cli->on_hang],
        .profile = cli->profile_ranks,
        .resumes = who->resumes,
        .grace_ms = (int64_t)cli->grace_ms });
}

/* Encode a finding as text, because the store only displays the finding and does not evaluate it. */
cJSON *encode_notice(const struct finding *finding)
{
    return message_encode_notice(&(struct message_notice){ .code = finding_code_name(finding->code),
                                                           .subject = finding->subject,
                                                           .sentence = finding->sentence,
                                                           .advice = finding->advice,
                                                           .round = MESSAGE_NONE });
}

cJSON *encode_started(int rank, int local_rank, int pid, const char *host)
{
    return message_encode_worker_started(&(struct message_worker_started){
        .rank = rank, .pid = pid, .host = host, .local_rank = local_rank, .round = MESSAGE_NONE });
}

/* Encode the end of a worker. The store uses the pid to detect a report about a worker of another attempt. */
cJSON *encode_exited(int rank, int pid, int exit_code, int signal, bool told)
{
    return message_encode_worker_exited(
        &(struct message_worker_exited){ .rank = rank,
                                         .pid = pid,
                                         .signal = signal != 0 ? signal : MESSAGE_NONE,
                                         .exit_code = signal != 0 ? MESSAGE_NONE : exit_code,
                                         .told = told,
                                         .round = MESSAGE_NONE });
}

cJSON *encode_sampled(int64_t id, cJSON *rows, cJSON *calls, bool is_cut)
{
    return message_encode_sampled(&(struct message_sampled){
        .id = id, .stacks = rows, .calls = calls, .cut = is_cut, .round = MESSAGE_NONE });
}

cJSON *encode_flight_call(int rank, const struct flight_entry *call)
{
    const uint64_t most = MESSAGE_NUMBER_MAX;
    return message_encode_flight_call(
        &(struct message_flight_call){ .rank = rank,
                                       .group = call->group,
                                       .seq = (int64_t)(call->seq < most ? call->seq : most),
                                       .name = call->name,
                                       .state = call->state,
                                       .dtype = call->dtype,
                                       .reduce = call->op,
                                       .n = (int64_t)(call->n < most ? call->n : most),
                                       .root = call->root,
                                       .created_ms = call->created_ns / 1000000,
                                       .at = call->place });
}

/* Encode `leave`. `by` is a text that the other nodes print. If `code` is "", `by` describes the sender of the
 * signal. Otherwise `by` is the sentence of the finding with this code. */
cJSON *encode_leave(int signal, const char *by, const char *code)
{
    return message_encode_leave(&(struct message_leave){
        .signal = signal, .by = by, .code = code[0] != '\0' ? code : NULL, .round = MESSAGE_NONE });
}

cJSON *encode_vouch(int64_t conn, int rank, int pid)
{
    return message_encode_vouch(
        &(struct message_vouch){ .conn = conn, .rank = rank, .pid = pid, .round = MESSAGE_NONE });
}

cJSON *encode_owner(int64_t conn, int pid, const char *words)
{
    return message_encode_owner(
        &(struct message_owner){ .conn = conn, .pid = pid, .words = words, .round = MESSAGE_NONE });
}

/* --- pushes --------------------------------------------------------------------------------------------- */

/* Decode the list of nodes, up to the size of the array. */
static void decode_nodes(const cJSON *list, struct heard_round *r)
{
    const cJSON *item;
    r->n_nodes = 0;
    cJSON_ArrayForEach(item, list)
    {
        struct message_node m;
        if (r->n_nodes == HEARD_NODES_MAX)
            return;
        message_read_node(item, &m);
        struct heard_node *node = &r->nodes[r->n_nodes++];
        node->node_rank = (int)m.node_rank;
        node->nproc = (int)m.nproc;
        node->store_port = (int)m.store_port;
        text_copy(node->host, sizeof(node->host), m.host);
        text_copy(node->addr, sizeof(node->addr), m.addr);
        text_copy(node->own, sizeof(node->own), m.own);
    }
}

static int value_or(int64_t value, int otherwise)
{
    return value != MESSAGE_NONE ? (int)value : otherwise;
}

/* Decode `round` and check all values that are used as indexes. */
bool decode_round(const cJSON *push, int nproc, struct heard_round *r)
{
    struct message_round m;
    message_read_round(push, &m);
    r->round = (int)m.round;
    r->attempt = (int)m.attempt;
    r->restarts = value_or(m.restarts, r->attempt);
    r->node_rank = (int)m.node_rank;
    r->nnodes = (int)m.nnodes;
    r->first_rank = (int)m.first_rank;
    r->world_size = (int)m.world_size;
    r->role_rank = value_or(m.role_rank, r->first_rank);
    r->role_size = value_or(m.role_size, r->world_size);
    decode_nodes(m.nodes, r);
    return r->role_rank >= 0 && r->role_rank <= r->role_size - nproc && r->round > 0 && r->attempt >= 0 &&
           r->node_rank >= 0 && r->node_rank < r->nnodes && r->first_rank >= 0 &&
           r->first_rank <= r->world_size - nproc;
}

/* Append `text` to the list in `out`, such as "n0, n1". The list has *len bytes. If `text` does not fit, append ", ..."
 * instead and return false. Never cut `text`, because a cut name may be the name of another host. */
static bool append_item(char *out, size_t size, size_t *len, const char *text)
{
    const char *comma = *len > 0 ? ", " : "";
    if (*len + strlen(comma) + strlen(text) + sizeof(", ...") > size) {
        memcpy(out + *len, ", ...", sizeof(", ..."));
        return false;
    }
    *len += (size_t)snprintf(out + *len, size - *len, "%s%s", comma, text);
    return true;
}

/* Write the items of `array` as "n0, n1, ...". */
static void join_list(const cJSON *array, char *out, size_t size)
{
    const cJSON *item;
    size_t len = 0;
    out[0] = '\0';
    cJSON_ArrayForEach(item, array)
    {
        char text[HEARD_NAME_MAX];
        if (cJSON_IsString(item))
            text_copy(text, sizeof(text), item->valuestring);
        else
            snprintf(text, sizeof(text), "%d", cJSON_IsNumber(item) ? item->valueint : -1);
        if (!append_item(out, size, &len, text))
            return;
    }
}

void decode_waiting(const cJSON *push, struct heard_waiting *w)
{
    struct message_waiting m;
    message_read_waiting(push, &m);
    w->joined = (int)m.joined;
    w->min = (int)m.min;
    w->max = (int)m.max;
    w->spare = (int)m.spare;
    w->left_ms = m.left_ms;
    w->last_call_ms = m.last_call_ms;
    join_list(m.nodes, w->hosts, sizeof(w->hosts));
    join_list(m.missing, w->missing, sizeof(w->missing));
}

/* Return true if the finding explains why the job does not start. Such a finding has a sentence and the grade "error",
 * and is not only a count of missing nodes (finding_is_count). If this ddprun does not know the code of the finding,
 * use the grade in the message. */
static bool is_cause(const struct message_finding *f)
{
    const enum finding_code known = finding_by_name(f->code);
    const char *grade = known != FINDING_NONE ? finding_grade_name(known) : f->grade;
    return f->sentence[0] != '\0' && !finding_is_count(known) && strcmp(grade, "error") == 0;
}

/* Write the first cause in the push to `out`, or "" if the push has no cause. The store lists causes before their
 * consequences. */
enum finding_code decode_first_cause(const cJSON *push, char *out, size_t size)
{
    struct message_findings m;
    const cJSON *item;
    message_read_findings(push, &m);
    out[0] = '\0';
    cJSON_ArrayForEach(item, m.findings)
    {
        struct message_finding f;
        message_read_finding(item, &f);
        if (!is_cause(&f))
            continue;
        snprintf(out, size, "%.210s  [%.40s]", f.sentence, f.code);
        return finding_by_name(f.code);
    }
    return FINDING_NONE;
}

void decode_first_finding(const cJSON *push, struct message_finding *first)
{
    struct message_findings m;
    message_read_findings(push, &m);
    message_read_finding(cJSON_GetArrayItem(m.findings, 0), first);
}

static bool is_unfinished(const char *state)
{
    return strcmp(state, "running") == 0 || strcmp(state, "stopping") == 0;
}

/* List the unfinished nodes of a status, except node `node_rank`. A node with an unknown state is left out. */
void decode_unfinished(const cJSON *status, int node_rank, char out[HEARD_LIST_MAX])
{
    struct message_status_lists m;
    const cJSON *item;
    size_t len = 0;
    message_read_status_lists(status, &m);
    out[0] = '\0';
    cJSON_ArrayForEach(item, m.nodes)
    {
        char text[HEARD_NAME_MAX + 32], host[HEARD_NAME_MAX];
        struct message_node_status node;
        message_read_node_status(item, &node);
        if (node.node_rank == node_rank || !is_unfinished(node.state))
            continue;
        text_copy(host, sizeof(host), node.host);
        snprintf(text, sizeof(text), "node %d (%s)", (int)node.node_rank, host);
        if (!append_item(out, HEARD_LIST_MAX, &len, text))
            return;
    }
}

/* --- findings between hosts ----------------------------------------------------------------------------- */

/* Copy a text, and replace bytes that could control a terminal. */
static void copy_news_text(char *out, size_t size, const char *text)
{
    text_copy(out, size, text);
    text_disarm(out, strlen(out), '\0');
}

bool encode_news(const struct news *news, struct buf *out)
{
    cJSON *o = cJSON_CreateObject();
    struct news clean;
    copy_news_text(clean.host, sizeof(clean.host), news->host);
    copy_news_text(clean.code, sizeof(clean.code), news->code);
    copy_news_text(clean.sentence, sizeof(clean.sentence), news->sentence);
    copy_news_text(clean.advice, sizeof(clean.advice), news->advice);
    bool ok = o != NULL && json_add_text(o, "host", clean.host) && json_add_text(o, "code", clean.code) &&
              json_add_text(o, "sentence", clean.sentence) && json_add_text(o, "advice", clean.advice) &&
              json_add_bool(o, "ends", news->ends) && json_add_bool(o, "stops", news->stops);
    char *text = ok ? cJSON_PrintUnformatted(o) : NULL;
    ok = text != NULL && strlen(text) <= NEWS_MAX && buf_append(out, text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(o);
    return ok;
}

bool decode_news(struct slice line, struct news *news)
{
    cJSON *o = line.len <= NEWS_MAX ? cJSON_ParseWithLength(line.data, line.len) : NULL;
    const char *host = cJSON_GetStringValue(cJSON_GetObjectItem(o, "host"));
    const char *code = cJSON_GetStringValue(cJSON_GetObjectItem(o, "code"));
    const char *sentence = cJSON_GetStringValue(cJSON_GetObjectItem(o, "sentence"));
    const char *advice = cJSON_GetStringValue(cJSON_GetObjectItem(o, "advice"));
    const bool ok = host != NULL && code != NULL && sentence != NULL && advice != NULL;
    *news = (struct news){ .ends = cJSON_IsTrue(cJSON_GetObjectItem(o, "ends")),
                           .stops = cJSON_IsTrue(cJSON_GetObjectItem(o, "stops")) };
    if (ok) {
        copy_news_text(news->host, sizeof(news->host), host);
        copy_news_text(news->code, sizeof(news->code), code);
        copy_news_text(news->sentence, sizeof(news->sentence), sentence);
        copy_news_text(news->advice, sizeof(news->advice), advice);
    }
    cJSON_Delete(o);
    return ok;
}
