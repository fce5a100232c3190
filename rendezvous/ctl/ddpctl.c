/* ddpctl.c -- ask a running store who is there, who waits, and for what.
 *
 * One connection, one CONTROL request, one answer. What is asked and how the answer looks stands in two
 * tables (ctl_options.c, ctl_format.c); this file only reaches the store and prints. */
#include "base/log.h"
#include "base/text.h"
#include "contain/job_record.h"
#include "ctl/ctl_flight.h"
#include "ctl/ctl_jobs.h"
#include "ctl/ctl_options.h"
#include "ctl/ctl_timeline.h"
#include "ctl/ctl_watch.h"
#include "ddp/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum exit_code { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum {
    PATIENCE_MS = 1000,
    DEFAULT_MS = 500
}; /* nobody waits longer without a word; for the default address */

#define DEFAULT_STORE "127.0.0.1:29500" /* of a ddprun without --master_port */

/* Write the text and free it. */
static int print_text(struct buf *text, bool complete)
{
    bool ok = complete && fwrite(text->data, 1, text->len, stdout) == text->len;
    ok = fflush(stdout) == 0 && ok;
    buf_free(text);
    if (!ok)
        log_error("cannot write the answer");
    return ok ? EXIT_OK : EXIT_FAILED;
}

/* IDENTIFY as "ctl": a store that is not ddprun's says no to that, before it is asked anything else. */
static ddp_status connect_for(const struct ctl_options *o, uint32_t timeout_ms, ddp_store **store,
                              struct ddp_err *err)
{
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.role = "ctl";
    options.connect_timeout_ms = timeout_ms;
    options.timeout_ms = o->timeout_ms;
    return ddp_store_connect(o->addr.host, o->addr.port, &options, store, err);
}

/* The library tries in silence until its deadline, as it should in a worker that is started before its store.
 * At a terminal that looks like a hang. A store that does not answer at once is tried again, but not
 * silently. */
static ddp_status connect_patiently(const struct ctl_options *o, ddp_store **store, struct ddp_err *err)
{
    if (o->timeout_ms <= PATIENCE_MS || o->watch)
        return connect_for(o, o->timeout_ms, store, err);
    ddp_status status = connect_for(o, PATIENCE_MS, store, err);
    if (status != DDP_ERR_TIMEOUT)
        return status;
    log_warn("%s; trying for %.1f s more", err->msg, (o->timeout_ms - PATIENCE_MS) / 1000.0);
    status = connect_for(o, o->timeout_ms - PATIENCE_MS, store, err);
    if (status != DDP_ERR_TIMEOUT)
        return status;
    const struct ddp_err last = *err; /* it counts the second try alone */
    return ddp_fail(err, status,
                    "%.300s (after %.10g s in all, --timeout); is that job running, and is this its store? "
                    "ddprun --verbose says where it is",
                    last.msg, o->timeout_ms / 1000.0);
}

/* The answer as JSON, malloc'ed. NULL: err says why there is none. */
static char *ask(const struct ctl_options *o, struct ddp_err *err)
{
    ddp_store *store;
    char *request = ctl_options_request(o), *reply = NULL;
    if (request == NULL)
        ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    else if (connect_patiently(o, &store, err) == DDP_OK) {
        ddp_store_control(store, request, o->timeout_ms, &reply, err);
        ddp_store_close(store);
    }
    free(request);
    return reply;
}

/* Names of hosts, jobs and programs are in it, and this is for a terminal. */
static void disarm(struct buf *text)
{
    if (text->len > 0)
        text_disarm(text->data, text->len, '\n');
}

static bool put_text(const struct ctl_options *o, const cJSON *answer, struct buf *text)
{
    bool ok = o->command->format(answer, text);
    disarm(text);
    return ok;
}

/* As text for a person, or as it came. False when memory is short. */
static bool put_answer(const struct ctl_options *o, const cJSON *answer, struct buf *text)
{
    if (!o->json)
        return put_text(o, answer, text);
    char *pretty = cJSON_Print(answer);
    bool ok = pretty != NULL && buf_printf(text, "%s\n", pretty);
    free(pretty);
    return ok;
}

/* The exit code says whether the store said yes; its "no" is on stderr, and with --json on stdout as well. */
static int show(const struct ctl_options *o, const cJSON *answer)
{
    const char *error = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "error"));
    const bool ok = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(answer, "ok"));
    struct buf text = { 0 };
    if (!ok)
        log_error("the store says: %s", error != NULL ? error : "no, and not why");
    if (!ok && !o->json)
        return EXIT_FAILED;
    int code = print_text(&text, put_answer(o, answer, &text));
    return ok ? code : EXIT_FAILED;
}

static int ask_once(const struct ctl_options *o)
{
    struct ddp_err err = { 0 };
    char *reply = ask(o, &err);
    if (reply == NULL) {
        log_error("%s", err.msg);
        return EXIT_FAILED;
    }
    cJSON *answer = cJSON_Parse(reply);
    int exit_code = show(o, answer);
    cJSON_Delete(answer);
    free(reply);
    return exit_code;
}

/* What is shown when there is no answer is why. */
static bool watch_once(const struct ctl_options *o)
{
    struct ddp_err err = { 0 };
    struct buf text = { 0 };
    char *reply = ask(o, &err);
    cJSON *answer = reply != NULL ? cJSON_Parse(reply) : NULL;
    const char *error = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "error"));
    bool ok = answer == NULL  ? buf_printf(&text, "%s\n", err.msg)
              : error != NULL ? buf_printf(&text, "the store says: %s\n", error)
                              : put_answer(o, answer, &text);
    if (!o->json)
        disarm(&text);
    ok = ok && ctl_watch_show(buf_slice(&text));
    cJSON_Delete(answer);
    free(reply);
    buf_free(&text);
    return ok;
}

/* What is asked of files and not of a store. */
static int from_files(const struct ctl_options *o)
{
    struct buf text = { 0 };
    if (o->command->draws)
        return ctl_timeline(o) ? EXIT_OK : EXIT_FAILED;
    cJSON *answer = ctl_flight(o);
    const int code = answer != NULL ? print_text(&text, put_answer(o, answer, &text)) : EXIT_FAILED;
    cJSON_Delete(answer);
    return code;
}

/* Until the user, or the reader of the output, has enough. */
static int watch(const struct ctl_options *o)
{
    ctl_watch_begin();
    bool ok = watch_once(o);
    while (ok && ctl_watch_wait())
        ok = watch_once(o);
    ctl_watch_end();
    return ok ? EXIT_OK : EXIT_FAILED;
}

/* --- the user's jobs on this machine --------------------------------------------------------------------- */

struct jobs {
    struct ctl_job *items; /* owned */
    size_t n;
    bool ok;
};

static void add_job(void *user, const struct record_job *r)
{
    struct jobs *jobs = user;
    struct ctl_job *items = realloc(jobs->items, (jobs->n + 1) * sizeof(*items)), *job;
    jobs->ok = jobs->ok && items != NULL;
    if (items == NULL)
        return;
    jobs->items = items;
    job = &items[jobs->n++];
    *job = (struct ctl_job){ .pid = r->pid, .age_ms = r->age_ms };
    snprintf(job->id, sizeof(job->id), "%s", r->job);
    snprintf(job->store, sizeof(job->store), "%s", r->store);
}

/* No job of this user's is known here, as `err` says. A store at the default address may answer all the same: to root, or from
 * another PID namespace. */
static ddp_status try_default(struct ctl_options *o, struct ddp_err *err)
{
    ddp_store *store;
    struct ddp_err why = { 0 };
    ddp_status status = endpoint_parse(DEFAULT_STORE, 0, &o->addr, &why);
    if (status == DDP_OK)
        status = connect_for(o, DEFAULT_MS, &store, &why);
    if (status != DDP_OK)
        return ddp_fail(err, DDP_ERR_ARG,
                        "no job of yours runs on this machine, and the default " DEFAULT_STORE
                        " does not answer (%.300s); give --addr HOST:PORT",
                        why.msg);
    ddp_store_close(store);
    log_info("no job of yours runs on this machine; the answer is from the default " DEFAULT_STORE);
    return DDP_OK;
}

/* Nobody gave an address. The store may serve other jobs, too, so the job is named to it. Several jobs are a question to the
 * user, which the table helps to answer. */
static ddp_status find_store(struct ctl_options *o, struct ddp_err *err)
{
    static char id[sizeof(((struct ctl_job *)NULL)->id)];
    const struct ctl_job *found;
    struct jobs jobs = { .ok = true };
    struct buf list = { 0 };
    record_each(add_job, &jobs);
    ddp_status status = jobs.ok ? ctl_jobs_choose(jobs.items, jobs.n, o->job, &found, &list, err)
                                : ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    if (status == DDP_OK)
        status = endpoint_parse(found->store, 0, &o->addr, err);
    if (status == DDP_OK) {
        snprintf(id, sizeof(id), "%s", found->id);
        o->job = id;
    }
    /* what changes a store is never sent to a guess */
    if (status == DDP_ERR_ARG && list.len == 0 && o->job == NULL && o->command->argument == NULL)
        status = try_default(o, err);
    if (status != DDP_OK) {
        log_error("%s", err->msg);
        if (list.len > 0)
            fwrite(list.data, 1, list.len, stderr);
    }
    buf_free(&list);
    free(jobs.items);
    return status;
}

/* Exit code 2 is for the command line alone, so that a script can tell a typing error from a store that is
 * away. */
int main(int argc, char **argv)
{
    struct ctl_options options;
    struct ddp_err err = { 0 };
    struct buf text = { 0 };
    log_setup("ddpctl", LOG_INFO);
    if (ctl_options_parse(argc, argv, getenv, &options, &err) != DDP_OK) {
        log_error("%s", err.msg);
        return EXIT_USAGE;
    }
    if (options.action != CTL_ASK)
        return print_text(&text, ctl_options_text(&options, &text));
    if (options.command->op == NULL)
        return from_files(&options);
    if (options.addr.port == 0 && find_store(&options, &err) != DDP_OK)
        return EXIT_USAGE;
    return options.watch ? watch(&options) : ask_once(&options);
}
