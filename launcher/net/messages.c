/* messages.c -- see messages.h.
 *
 * Each function makes one request and hands it over: the tree is the caller's, and link_queue_add frees it.
 * Memory that is short leaves a tree with less in it or none at all; cJSON passes NULL on, so it is asked
 * for once, in the queue, and not at every field. */
#include "net/messages.h"

#include "base/json.h"
#include "ddp/context.h"
#include "diagnosis/findings.h"
#include "tables/exit_codes.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The store finds the call by "op"; the round is added by the link, which knows it. */
cJSON *say(const char *op)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "op", op);
    return json;
}

/* The rules of the job: those of the node that joins first count for all. */
static void add_rules(cJSON *json, const struct plan *plan)
{
    static const char *const grow_words[] = {
        [GROW_AGREED] = "agreed", [GROW_NOW] = "now", [GROW_NEVER] = "never"
    };
    const struct cli *cli = plan->cli;
    json_add_integer(json, "max_restarts", cli->max_restarts);
    json_add_integer(json, "max_no_progress", cli->max_no_progress);
    json_add_integer(json, "backoff_ms", (int64_t)cli->backoff_ms);
    json_add_integer(json, "backoff_cap_ms", (int64_t)cli->backoff_cap_ms);
    json_add_integer(json, "last_call_ms", (int64_t)plan->meeting.last_call_ms);
    json_add_integer(json, "join_timeout_ms", (int64_t)plan->meeting.join_ms);
    /* The only node of a job with its own store is never lost to others: one that is slow to start hundreds of workers just goes on. */
    const bool alone = !plan->meeting.elsewhere;
    json_add_integer(json, "node_timeout_ms", alone ? 0 : (int64_t)plan->meeting.node_timeout_ms);
    cJSON_AddStringToObject(json, "join_knob",
                            plan->meeting.join_knob != NULL ? plan->meeting.join_knob : "");
    cJSON_AddStringToObject(json, "grow", grow_words[cli->grow]);
    json_add_integer(json, "grace_ms", (int64_t)cli->grace_ms);
}

/* The address stays empty: which of ours others can reach is best seen from outside, and the store fills it
 * with the one that we come from. Ours goes along as `own`: where the two differ, somebody translates between them. */
static void add_who(cJSON *json, const struct plan *plan, const struct link_who *who)
{
    cJSON_AddStringToObject(json, "version", DDP_VERSION);
    cJSON_AddStringToObject(json, "host", plan->facts->host);
    json_add_integer(json, "pid", who->pid);
    json_add_integer(json, "pid_start", (int64_t)who->pid_start);
    cJSON_AddStringToObject(json, "boot_id", who->boot_id);
    cJSON_AddStringToObject(json, "addr", "");
    cJSON_AddStringToObject(json, "own", who->own);
}

/* Who has started us as one of several tasks of this node, each with all its workers; "" when we are alone. */
static const char *scheduler_of_task(const struct plan *plan)
{
    const struct scheduler *s = plan->facts->scheduler;
    return s != NULL && s->tasks.known && s->tasks.here > 1 && !plan->cli->per_task ? s->title : "";
}

/* The whole command line as far as nodes may differ by mistake; the store compares, since only it hears
 * both. `instance` is "" the first time. */
cJSON *say_join(const struct plan *plan, const struct link_who *who, const char *instance)
{
    const struct plan_meeting *m = &plan->meeting;
    cJSON *json = say("join");
    cJSON_AddStringToObject(json, "job", plan->job);
    cJSON_AddStringToObject(json, "instance", instance);
    add_who(json, plan, who);
    cJSON_AddStringToObject(json, "mode", m->elastic ? "elastic" : "static");
    json_add_integer(json, "nnodes_min", m->nnodes_min);
    json_add_integer(json, "nnodes_max", m->nnodes_max);
    json_add_integer(json, "node_rank", m->node_rank);
    json_add_integer(json, "nproc", plan->nproc);
    if (plan->offered_port != 0)
        json_add_integer(json, "store_port", plan->offered_port);
    cJSON_AddBoolToObject(json, "nproc_given", plan->cli->nproc.kind == NPROC_NUMBER);
    cJSON_AddBoolToObject(json, "uneven", plan->cli->uneven);
    cJSON_AddStringToObject(json, "task", scheduler_of_task(plan));
    cJSON_AddStringToObject(json, "program", m->program);
    cJSON_AddStringToObject(json, "role", plan->cli->role);
    if (plan->cli->events != NULL)
        cJSON_AddBoolToObject(json, "events", true);
    add_rules(json, plan);
    return json;
}

/* As a sentence and not as numbers: the store need not know what was measured to show it. */
cJSON *say_notice(const struct finding *finding)
{
    cJSON *json = say("notice");
    cJSON_AddStringToObject(json, "code", finding_code_name(finding->code));
    cJSON_AddStringToObject(json, "subject", finding->subject);
    cJSON_AddStringToObject(json, "sentence", finding->sentence);
    cJSON_AddStringToObject(json, "advice", finding->advice);
    return json;
}

/* Global ranks: the store knows no other. */
static cJSON *about_worker(const char *op, int rank, int pid)
{
    cJSON *json = say(op);
    json_add_integer(json, "rank", rank);
    json_add_integer(json, "pid", pid);
    return json;
}

cJSON *say_started(int rank, int local_rank, int pid, const char *host)
{
    cJSON *json = about_worker("worker_started", rank, pid);
    cJSON_AddStringToObject(json, "host", host);
    json_add_integer(json, "local_rank", local_rank);
    return json;
}

/* With the pid, so that the end of a worker of the last attempt is not taken for that of its successor. */
cJSON *say_exited(int rank, int pid, int exit_code, int signal)
{
    cJSON *json = about_worker("worker_exited", rank, pid);
    json_add_integer(json, signal != 0 ? "signal" : "exit_code", signal != 0 ? signal : exit_code);
    return json;
}

/* Any bytes may be in a worker's lines: they become UTF-8 here. */
static void add_lines(cJSON *json, const struct cause *c)
{
    cJSON *lines = cJSON_AddArrayToObject(json, "stderr");
    for (int i = 0; i < c->n_lines; i++) {
        struct buf clean = { 0 };
        if (utf8_clean(&clean, slice_str(c->lines[i])) && buf_append(&clean, "", 1))
            cJSON_AddItemToArray(lines, cJSON_CreateString((const char *)clean.data));
        buf_free(&clean);
    }
}

/* One of error, signal and exit code: that it was never started outweighs how it ended. Whether another
 * attempt may help is said by us, who have seen the end; whether there is one, by the store. */
cJSON *say_failure(const char *op, const struct cause *c, enum no_restart never_again)
{
    cJSON *json = say(op);
    json_add_integer(json, "rank", c->rank);
    json_add_integer(json, "local_rank", c->local_rank);
    json_add_integer(json, "pid", c->pid);
    if (c->error != 0)
        json_add_integer(json, "error", c->error);
    else
        json_add_integer(json, c->signal != 0 ? "signal" : "exit_code",
                         c->signal != 0 ? c->signal : c->exit_code);
    cJSON_AddStringToObject(json, "no_retry",
                            never_again == NO_RESTART_CANNOT_START ? "cannot_start"
                            : never_again == NO_RESTART_USAGE      ? "usage"
                            : never_again == NO_RESTART_IMPORT     ? "import"
                                                                   : "");
    json_add_text(json, "words", c->words);
    json_add_text(json, "log", c->log);
    add_lines(json, c);
    if (c->victim)
        cJSON_AddBoolToObject(json, "victim", true);
    if (c->from_stdout)
        cJSON_AddBoolToObject(json, "from_stdout", true);
    return json;
}

/* Without a rank 0 here nothing is said of it, and the store takes the word of the node that has it. */
cJSON *say_stopped(bool unkillable, int max_code, int rank0)
{
    cJSON *json = say("stopped");
    cJSON_AddBoolToObject(json, "unkillable", unkillable);
    json_add_integer(json, "max_code", max_code);
    if (rank0 >= 0)
        json_add_integer(json, "rank0_code", rank0);
    return json;
}

/* Who has sent the signal goes along: on the other nodes it is the answer to "why did my job stop?". */
cJSON *say_leave(int signal, const char *by)
{
    cJSON *json = say("leave");
    json_add_integer(json, "signal", signal);
    json_add_text(json, "by", by);
    return json;
}

cJSON *say_vouch(int64_t conn, int rank, int pid)
{
    cJSON *json = say("vouch");
    json_add_integer(json, "conn", (int64_t)conn);
    json_add_integer(json, "rank", rank);
    json_add_integer(json, "pid", pid);
    return json;
}

cJSON *say_owner(int64_t conn, int pid, const char *words)
{
    cJSON *json = say("owner");
    json_add_integer(json, "conn", (int64_t)conn);
    json_add_integer(json, "pid", pid);
    json_add_text(json, "words", words);
    return json;
}

/* --- link hear -------------------------------------------------------------------------------------------- */

/* What the store says is data of a peer. Every number is compared with limits before it is made an int (a
 * double beyond these is undefined when it is cast), every text is cut to the room that it gets, and what
 * is missing becomes a value that the reader cannot take for a real one. Only a round and a verdict are
 * refused when they make no sense, for on these we act; the rest is words. */

/* Never NULL, borrowed from the tree. */
const char *hear_text(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text != NULL ? text : "";
}

/* A member that is missing or no number is `otherwise`. Up to 1e15, well within the 2^53 to which a double
 * is whole; below -1 there is nothing that the store could mean. */
static int64_t whole(const cJSON *object, const char *name, int64_t otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    const bool sane = cJSON_IsNumber(item) && item->valuedouble >= -1 && item->valuedouble < 1e15;
    return sane ? (int64_t)item->valuedouble : otherwise;
}

static int number(const cJSON *object, const char *name, int otherwise)
{
    const int64_t value = whole(object, name, otherwise);
    return value > INT_MAX ? otherwise : (int)value;
}

static int port(const cJSON *object, const char *name)
{
    const int value = number(object, name, 0);
    return value > 0 && value <= UINT16_MAX ? value : 0;
}

static uint64_t millis(const cJSON *object, const char *name)
{
    const int64_t value = whole(object, name, 0);
    return value < 0 ? 0 : (uint64_t)value;
}

/* A process ends with 0 to 255; what is cut to that by exit() could turn a failure into a success. */
static int exit_code(const cJSON *object, const char *name)
{
    const int code = number(object, name, 0);
    return code >= 0 && code <= 255 ? code : EXIT_CODE_DDPRUN;
}

/* The precision keeps printf from reading on to the end of a megabyte to count what it has left out. */
static void copy(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%.*s", (int)size - 1, text);
}

/* --- round ---------------------------------------------------------------------------------------------- */

/* The store cuts its list too; the limit here is for a store that does not. */
static void hear_nodes(const cJSON *push, struct heard_round *r)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(push, "nodes"))
    {
        if (r->n_nodes == HEARD_NODES_MAX)
            return;
        struct heard_node *node = &r->nodes[r->n_nodes++];
        node->node_rank = number(item, "node_rank", -1);
        node->nproc = number(item, "nproc", 0);
        node->store_port = port(item, "store_port");
        copy(node->host, sizeof(node->host), hear_text(item, "host"));
        copy(node->addr, sizeof(node->addr), hear_text(item, "addr"));
    }
}

/* What is compared is what we index by: a rank beyond the world would be a worker that nobody waits for. */
bool hear_round(const cJSON *push, int nproc, struct heard_round *r)
{
    memset(r, 0, sizeof(*r));
    r->round = number(push, "round", -1);
    r->attempt = number(push, "attempt", -1);
    r->restarts = number(push, "restarts", r->attempt);
    r->node_rank = number(push, "node_rank", -1);
    r->nnodes = number(push, "nnodes", -1);
    r->first_rank = number(push, "first_rank", -1);
    r->world_size = number(push, "world_size", -1);
    r->role_rank = number(push, "role_rank", r->first_rank);
    r->role_size = number(push, "role_size", r->world_size);
    hear_nodes(push, r);
    return r->role_rank >= 0 && r->role_rank <= r->role_size - nproc && r->round > 0 && r->attempt >= 0 &&
           r->node_rank >= 0 && r->node_rank < r->nnodes && r->first_rank >= 0 &&
           r->first_rank <= r->world_size - nproc;
}

/* --- waiting -------------------------------------------------------------------------------------------- */

/* "n0, n1, ...": what does not fit is dots. Cut between two names: half a host name is another host. */
static void join_list(const cJSON *array, char *out, size_t size)
{
    const cJSON *item;
    size_t len = 0;
    out[0] = '\0';
    cJSON_ArrayForEach(item, array)
    {
        char text[HEARD_NAME_MAX];
        if (cJSON_IsString(item))
            copy(text, sizeof(text), item->valuestring);
        else
            snprintf(text, sizeof(text), "%d", cJSON_IsNumber(item) ? item->valueint : -1);
        if (len + strlen(text) + sizeof(", ...") >= size) {
            memcpy(out + len, ", ...", sizeof(", ..."));
            return;
        }
        len += (size_t)snprintf(out + len, size - len, "%s%s", len > 0 ? ", " : "", text);
    }
}

void hear_waiting(const cJSON *push, struct heard_waiting *w)
{
    w->joined = number(push, "joined", 0);
    w->min = number(push, "min", 0);
    w->max = number(push, "max", 0);
    w->spare = number(push, "spare", 0);
    w->left_ms = whole(push, "left_ms", -1);
    w->last_call_ms = whole(push, "last_call_ms", -1);
    join_list(cJSON_GetObjectItemCaseSensitive(push, "nodes"), w->hosts, sizeof(w->hosts));
    join_list(cJSON_GetObjectItemCaseSensitive(push, "missing"), w->missing, sizeof(w->missing));
}

/* Would it keep a job from coming together? A warning about a host would not, and a count only says that it has not. Of one
 * that a later store knows and we do not, its grade tells. */
static bool is_cause(const cJSON *finding)
{
    const enum finding_code known = finding_by_name(hear_text(finding, "code"));
    const char *grade = known != FINDING_NONE ? finding_grade_name(known) : hear_text(finding, "grade");
    return hear_text(finding, "sentence")[0] != '\0' && !finding_is_count(known) &&
           strcmp(grade, "error") == 0;
}

/* Causes stand before what follows from them. */
void hear_first_cause(const cJSON *push, char *out, size_t size)
{
    const cJSON *finding;
    out[0] = '\0';
    cJSON_ArrayForEach(finding, cJSON_GetObjectItemCaseSensitive(push, "findings"))
    {
        if (!is_cause(finding))
            continue;
        snprintf(out, size, "%.210s  [%.40s]", hear_text(finding, "sentence"), hear_text(finding, "code"));
        return;
    }
}

const char *hear_first_sentence(const cJSON *push)
{
    const cJSON *findings = cJSON_GetObjectItemCaseSensitive(push, "findings");
    return hear_text(cJSON_GetArrayItem(findings, 0), "sentence");
}

const char *hear_first_subject(const cJSON *push)
{
    const cJSON *findings = cJSON_GetObjectItemCaseSensitive(push, "findings");
    return hear_text(cJSON_GetArrayItem(findings, 0), "subject");
}

enum finding_code hear_first_code(const cJSON *push)
{
    const cJSON *findings = cJSON_GetObjectItemCaseSensitive(push, "findings");
    return finding_by_name(hear_text(cJSON_GetArrayItem(findings, 0), "code"));
}

static bool is_unfinished(const char *state)
{
    return strcmp(state, "running") == 0 || strcmp(state, "stopping") == 0;
}

/* From an answer that was made for people: nodes whose state is not known here are left out rather than
 * waited for. */
void hear_unfinished(const cJSON *status, int node_rank, char out[HEARD_LIST_MAX])
{
    const cJSON *node;
    size_t len = 0;
    out[0] = '\0';
    cJSON_ArrayForEach(node, cJSON_GetObjectItemCaseSensitive(status, "nodes"))
    {
        char text[HEARD_NAME_MAX + 32], host[HEARD_NAME_MAX];
        if (number(node, "node_rank", -1) == node_rank || !is_unfinished(hear_text(node, "state")))
            continue;
        copy(host, sizeof(host), hear_text(node, "host"));
        snprintf(text, sizeof(text), "%snode %d (%s)", len > 0 ? ", " : "", number(node, "node_rank", -1),
                 host);
        if (len + strlen(text) + sizeof(", ...") >= HEARD_LIST_MAX) {
            memcpy(out + len, ", ...", sizeof(", ..."));
            return;
        }
        len += (size_t)snprintf(out + len, HEARD_LIST_MAX - len, "%s", text);
    }
}

/* --- the end of an attempt ------------------------------------------------------------------------------ */

static void hear_lines(const cJSON *lines, struct cause *c)
{
    const cJSON *line;
    cJSON_ArrayForEach(line, lines)
    {
        if (c->n_lines == CAUSE_LINES_MAX)
            return;
        if (cJSON_IsString(line))
            copy(c->lines[c->n_lines++], CAUSE_WORDS_MAX, line->valuestring);
    }
}

static void hear_cause(const cJSON *json, struct cause *c)
{
    copy(c->host, sizeof(c->host), hear_text(json, "host"));
    c->node_rank = number(json, "node_rank", -1);
    c->rank = number(json, "rank", -1);
    c->local_rank = number(json, "local_rank", -1);
    c->pid = number(json, "pid", 0);
    c->exit_code = exit_code(json, "exit_code");
    c->signal = number(json, "signal", 0);
    c->error = number(json, "error", 0);
    c->after_ms = millis(json, "after_ms");
    copy(c->words, sizeof(c->words), hear_text(json, "words"));
    copy(c->code, sizeof(c->code), hear_text(json, "code"));
    copy(c->log, sizeof(c->log), hear_text(json, "log"));
    c->victim = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "victim"));
    c->from_stdout = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "from_stdout"));
    hear_lines(cJSON_GetObjectItemCaseSensitive(json, "stderr"), c);
}

int hear_whose_round(const cJSON *push)
{
    return number(push, "round", -1);
}

/* `why` stands beside the cause: it is the round's, and the first to be read. */
void hear_stop(const cJSON *push, struct cause *c)
{
    const cJSON *cause = cJSON_GetObjectItemCaseSensitive(push, "cause");
    memset(c, 0, sizeof(*c));
    hear_cause(cause, c);
    copy(c->why, sizeof(c->why), hear_text(push, "why"));
}

/* The words of view.h. An unknown one reads as none: the verdict itself says whether there is another
 * attempt. */
static enum no_restart hear_no_restart(const char *word)
{
    static const struct {
        const char *word;
        enum no_restart why;
    } words[] = {
        { "used_up", NO_RESTART_USED_UP },
        { "cannot_start", NO_RESTART_CANNOT_START },
        { "usage", NO_RESTART_USAGE },
        { "import", NO_RESTART_IMPORT },
        { "no_progress", NO_RESTART_NO_PROGRESS },
        { "stopped", NO_RESTART_STOPPED },
        { "unkillable", NO_RESTART_UNKILLABLE },
        { "too_few_nodes", NO_RESTART_TOO_FEW_NODES },
        { "not_ready", NO_RESTART_NOT_READY },
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i].word) == 0)
            return words[i].why;
    return RESTART_ALLOWED;
}

bool hear_verdict(const cJSON *push, struct heard_verdict *v)
{
    const char *next = hear_text(push, "next");
    const cJSON *exits = cJSON_GetObjectItemCaseSensitive(push, "exit");
    hear_stop(push, &v->cause);
    if (v->cause.n_lines == 0)
        hear_lines(cJSON_GetObjectItemCaseSensitive(push, "stderr"), &v->cause);
    v->what = (struct agent_verdict){ .restart = strcmp(next, "restart") == 0,
                                      .backoff_ms = millis(push, "backoff_ms"),
                                      .no_restart = hear_no_restart(hear_text(push, "no_restart")),
                                      .exit_first = exit_code(exits, "first"),
                                      .exit_max = exit_code(exits, "max"),
                                      .exit_rank0 = exit_code(exits, "rank0") };
    v->attempt = number(push, "attempt", -1);
    v->step = whole(push, "step", -1);
    v->best = whole(push, "best_step", -1);
    return v->what.restart || strcmp(next, "finish") == 0;
}
