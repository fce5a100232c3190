/* event_log.c -- see event_log.h. This file formats lines, and a thread of log.c writes the lines. So a slow disk may
 * cause lost lines but never delays the job. */
#include "output/event_log.h"

#include "base/clock.h"
#include "base/events.h"
#include "base/limits.h"
#include "base/log.h"
#include "output/disk_watch.h"
#include "output/log_files.h"
#include "tables/signals.h"
#include "tables/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Create an event with the members "event" and "t". The caller adds the other members. A complete event:
 *
 *     {"event":"output","t":2.5,"time":"...","rank":1,"local_rank":1,"stream":"stdout","kind":"line","text":"..."} */
static cJSON *event_new_us(enum event_kind kind, uint64_t t_us)
{
    cJSON *o = cJSON_CreateObject();
    if (o != NULL && json_add_text(o, "event", event_word(kind)) &&
        json_add_number(o, "t", (double)t_us / 1e6))
        return o;
    cJSON_Delete(o);
    return NULL;
}

cJSON *event_new(enum event_kind kind, uint64_t t_ms)
{
    return event_new_us(kind, t_ms * 1000);
}

bool event_print(struct buf *out, cJSON *o, bool complete)
{
    if (complete)
        return json_print(out, o, false);
    cJSON_Delete(o);
    return false;
}

bool event_add_worker(cJSON *o, const struct plan_worker *who)
{
    return json_add_number(o, "rank", who->rank) && json_add_number(o, "local_rank", who->local_rank);
}

/* Append a line of a worker. The member "kind" lets a program join the parts of a long line, and draw a progress
 * bar on one row. */
bool event_output(struct buf *out, struct line_time at, const struct plan_worker *who, int stream,
                  struct slice text, enum line_kind kind)
{
    static const char *const kinds[] = {
        [LINE_WHOLE] = "line", [LINE_LAST] = "last", [LINE_UPDATE] = "update", [LINE_CUT] = "part"
    };
    char time[PREFIX_TIME_MAX];
    cJSON *o = event_new_us(EVENT_OUTPUT, at.since_us);
    prefix_time(time, at.unix_us);
    return event_print(out, o,
                       o != NULL && json_add_text(o, "time", time) && event_add_worker(o, who) &&
                           json_add_text(o, "stream", stream == STD_OUT ? "stdout" : "stderr") &&
                           json_add_text(o, "kind", kinds[kind]) && json_add_bytes(o, "text", text));
}

bool event_note(struct buf *out, uint64_t t_ms, const char *text)
{
    cJSON *o = event_new(EVENT_NOTE, t_ms);
    return event_print(out, o, o != NULL && json_add_text(o, "text", text));
}

/* --- signals in JSON --------------------------------------------------------------------------------------- */

/* Each function of this section always adds all its members. The value of a member is null if the value is not known. */

enum { MEMBER_MAX = 64 };

bool json_add_signal(cJSON *o, int signal)
{
    char name[SIGNAL_NAME_MAX];
    signal_name(name, signal);
    return json_add_number(o, "signal", signal) && json_add_text(o, "signal_name", name);
}

bool json_add_number_or_null(cJSON *o, const char *name, bool known, double value)
{
    return known ? json_add_number(o, name, value) : json_add_null(o, name);
}

bool json_add_sender(cJSON *o, const char *prefix, const struct signal_sender *sender)
{
    char pid[MEMBER_MAX], name[MEMBER_MAX], uid[MEMBER_MAX];
    const bool sent = sender != NULL && !sender->kernel;
    snprintf(pid, sizeof(pid), "%s_pid", prefix);
    snprintf(name, sizeof(name), "%s_name", prefix);
    snprintf(uid, sizeof(uid), "%s_uid", prefix);
    return json_add_number_or_null(o, pid, sent && sender->pid > 0, sent ? sender->pid : 0) &&
           json_add_text(o, name, sent && sender->name[0] != '\0' ? sender->name : NULL) &&
           json_add_number_or_null(o, uid, sent, sent ? sender->uid : 0);
}

/* --- the log of --events ----------------------------------------------------------------------------------- */

/* Limit in bytes for the lines that wait in memory. If the name of the log file contains the rank of the node (%n), the
 * lines of an elastic node wait until the node has its rank. */

enum { EARLY_BYTES = 256 << 10 };

struct event_log {
    const struct plan *plan;
    void (*warn)(void *user, const char *words);
    void *user;
    char *path;             /* path of the log file, owned; NULL until the path is formatted */
    struct line_file *file; /* owned; NULL if the file is not open */
    struct buf early;       /* lines that wait until the file is open */
    bool warned;
    int round;        /* current round; 0 before the first round */
    int64_t ahead_ms; /* store's clock minus this host's clock; valid if `instance` is set */
    char instance[LIMIT_INSTANCE];
};

/* Warn the user about `error`, at most once. `why` is the text of write_error_text() for this error. If `why` is "",
 * print the text of strerror(). */
static void warn(struct event_log *log, int error, const char *why)
{
    char words[LOG_PATTERN_MAX + WRITE_ERROR_MAX + 128];
    if (log->warned)
        return;
    log->warned = true;
    snprintf(words, sizeof(words), "warning: --events=%s: events are missing: %s",
             log->path != NULL ? log->path : log->plan->cli->events,
             error == ENOBUFS ? "the file system is too slow"
             : why[0] != '\0' ? why
                              : strerror(error));
    log->warn(log->user, words);
}

/* --- the file ------------------------------------------------------------------------------------------- */

/* Format the file's name with the %-letters of --log_file. %r, %l and %a, which describe a worker, become 0. */
static char *make_path(const struct plan *plan)
{
    const struct log_names names = { .host = plan->facts->host,
                                     .time = plan->facts->start_time,
                                     .job = plan->job,
                                     .stream = "events",
                                     .node_rank = plan->node_rank };
    struct buf out = { 0 };
    if (log_pattern_name(plan->cli->events, &names, &out) && buf_append(&out, "", 1))
        return (char *)out.data;
    buf_free(&out);
    return NULL;
}

/* Set `path`, open the file, and write the early lines. Create missing parent directories. If the file cannot be
 * opened, all later lines are dropped, because event_log_line() tries to open the file only while `path` is NULL. */
static void open_file(struct event_log *log)
{
    int error = ENOMEM;
    char why[WRITE_ERROR_MAX] = "";
    log->path = make_path(log->plan);
    disk_begin(DISK_EVENTS, log->path != NULL ? log->path : "");
    if (log->path != NULL)
        log->file = line_file_open(log->path, &error);
    if (log->path != NULL && error == ENOENT && (error = logdir_parents(log->path)) == 0)
        log->file = line_file_open(log->path, &error);
    if (log->path != NULL && log->file == NULL)
        write_error_text(error, log->path, why);
    disk_end(DISK_EVENTS);
    if (log->file == NULL)
        warn(log, error, why);
    else if (log->early.len > 0)
        line_file_append(log->file, buf_slice(&log->early));
    buf_free(&log->early);
}

/* Return true while the name of the file contains %n, but the rank of the node is not known: no round has begun,
 * and --node_rank is not given. */
static bool waits_for_name(const struct event_log *log)
{
    return log->path == NULL && log->round == 0 && log->plan->meeting.node_rank < 0 &&
           strstr(log->plan->cli->events, "%n") != NULL;
}

/* Write a line, or keep the line until the file is open. Lines beyond EARLY_BYTES are dropped. */
static void event_log_line(struct event_log *log, struct slice line)
{
    if (log->path == NULL && !waits_for_name(log))
        open_file(log);
    if (log->file != NULL) {
        line_file_append(log->file, line);
        const struct line_file_state state = line_file_state(log->file);
        if (state.error != 0)
            warn(log, state.error, state.why);
    } else if (log->path == NULL && log->early.len + line.len <= EARLY_BYTES) {
        buf_append(&log->early, line.data, line.len);
    }
}

struct event_log *event_log_new(const struct plan *plan, void (*warn_user)(void *user, const char *words),
                                void *user)
{
    struct event_log *log = calloc(1, sizeof(*log));
    if (log == NULL)
        return NULL;
    log->plan = plan;
    log->warn = warn_user;
    log->user = user;
    if (!waits_for_name(log))
        open_file(log);
    return log;
}

/* Close the log. If the node never joined a round, lines may still wait for the node's rank. Write these lines now. */
void event_log_close(struct event_log *log)
{
    if (log == NULL)
        return;
    if (log->early.len > 0)
        open_file(log);
    disk_begin(DISK_EVENTS, log->path != NULL ? log->path : "");
    const struct line_file_state state = line_file_close(log->file, LINE_FILE_CLOSE_MS);
    if (state.error != ETIMEDOUT) /* after ETIMEDOUT the thread still hangs in the file system */
        disk_end(DISK_EVENTS);
    if (state.error != 0)
        warn(log, state.error, state.why);
    buf_free(&log->early);
    free(log->path);
    free(log);
}

/* --- lines ---------------------------------------------------------------------------------------------- */

/* Append the time of the wall clock, so that a reader can compare the events with other logs. The wall clock may be set
 * to another time, so a reader computes durations from the member "ms" instead. */
static bool add_time(struct buf *more)
{
    char time[EVENT_TIME_MAX];
    event_time(time, clock_unix_us());
    return buf_printf(more, ",\"time\":\"%s\"", time);
}

/* Write an event: the members of `object`, then the members in `more`. If memory was short (`ok` is false), drop the
 * event, because a reader cannot sort an event without time and job. */
static void finish(struct event_log *log, struct slice object, const struct buf *more, bool ok)
{
    struct buf line = { 0 };
    if (ok && event_line(&line, object, buf_slice(more)))
        event_log_line(log, buf_slice(&line));
    buf_free(&line);
}

/* Return true if the object has the member "job". A string cannot contain `"job":`, because JSON escapes its
 * quotes. */
static bool names_job(struct slice object)
{
    static const char member[] = ",\"job\":";
    return memmem(object.data, object.len, member, sizeof(member) - 1) != NULL;
}

void event_log_append(struct event_log *log, struct slice object)
{
    struct buf more = { 0 };
    const uint64_t now_ms = clock_ms();
    bool ok = buf_printf(&more, ",\"ms\":%llu", (unsigned long long)now_ms) && add_time(&more) &&
              (names_job(object) || event_add_text(&more, "job", log->plan->job)) &&
              event_add_text(&more, "agent_host", log->plan->facts->host) &&
              buf_printf(&more, ",\"agent_pid\":%d", (int)getpid());
    if (ok && log->instance[0] != '\0')
        ok = buf_printf(&more, ",\"store_ms\":%lld", (long long)((int64_t)now_ms + log->ahead_ms)) &&
             event_add_text(&more, "instance", log->instance);
    if (ok && log->round > 0)
        ok = buf_printf(&more, ",\"round\":%d,\"node_rank\":%d", log->round, log->plan->node_rank);
    finish(log, object, &more, ok);
    buf_free(&more);
}

void event_log_append_store(struct event_log *log, struct slice object)
{
    struct buf more = { 0 };
    const bool ok = add_time(&more);
    finish(log, object, &more, ok);
    buf_free(&more);
}

void event_log_clock(struct event_log *log, uint64_t store_ms, const char *instance)
{
    log->ahead_ms = (int64_t)store_ms - (int64_t)clock_ms();
    snprintf(log->instance, sizeof(log->instance), "%s", instance);
}

void event_log_round(struct event_log *log, int round)
{
    log->round = round;
    if (log->path == NULL)
        open_file(log);
}
