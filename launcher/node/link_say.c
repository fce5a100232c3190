/* link_say.c -- see link_say.h.
 *
 * Each function makes one request and hands it over: the tree is the caller's, and link_queue_add frees it.
 * Memory that is short leaves a tree with less in it or none at all; cJSON passes NULL on, so it is asked
 * for once, in the queue, and not at every field. */
#include "node/link_say.h"

#include "tables/text.h"

#include "base/json_integer.h"
#include "ddp/context.h"

#include <cjson/cJSON.h>

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
