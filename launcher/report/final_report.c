/* final_report.c -- see final_report.h.
 *
 * This is the last that happens: no worker runs, all output is written, the threads of the writers
 * sleep, or hang because nobody reads. So it may wait a while, and it writes to the descriptors itself
 * instead of going through the sinks again. */
#include "report/final_report.h"

#include "base/clock.h"
#include "base/log.h"
#include "report/aside.h"
#include "output/disk_watch.h"
#include "output/log_files.h"
#include "output/writer.h"
#include "plan/torch_look.h"
#include "plan/worker.h"
#include "report/error_file.h"
#include "report/events.h"
#include "report/program_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    UNREAD_MS = 2000, /* for a reader of the report that does not read */
    LOSSES_MAX = 64,
    LOSSES_SAID = 4
};

/* All of it or none: who reads it later takes half a report for a broken one. */
static void write_file(int fd, const char *path, const char *text)
{
    int error = patient_write(fd, slice_str(text), UNREAD_MS);
    error = error == 0 ? patient_write(fd, slice_str("\n"), UNREAD_MS) : error;
    if (close(fd) != 0 && error == 0)
        error = errno; /* a server may say only now that its disk is full */
    if (error == 0)
        return;
    unlink(path);
    log_warn("cannot write %s: %s", path, strerror(error));
}

/* What the thread that writes report.json needs. It may outlive the node. */
struct report_file {
    char path[PATH_MAX];
    char *text;
};

static void report_file_write(void *user)
{
    struct report_file *file = user;
    struct ddp_err err;
    disk_begin(DISK_MAIN, file->path);
    const int fd = logdir_create(file->path, LOGDIR_PRIVATE, &err);
    if (fd >= 0)
        write_file(fd, file->path, file->text);
    else
        log_warn("%s", err.msg);
    disk_end(DISK_MAIN);
}

static void report_file_free(void *user)
{
    struct report_file *file = user;
    if (file != NULL)
        cJSON_free(file->text);
    free(file);
}

/* A report beside the logs is found again when the terminal is long closed. */
static void leave_in_log_dir(const struct report *r)
{
    char hung[DISK_PATH_MAX];
    if (disk_hangs(DISK_HUNG_MS, hung)) {
        log_warn("%s/report.json is not written: %s: the file system does not answer", r->plan->log_root,
                 hung);
        return;
    }
    struct report_file *file = calloc(1, sizeof(*file));
    cJSON *json = file != NULL ? report_json(r) : NULL;
    if (json != NULL)
        file->text = cJSON_Print(json);
    cJSON_Delete(json);
    if (file == NULL || file->text == NULL) {
        log_warn("no memory for report.json");
        report_file_free(file);
        return;
    }
    snprintf(file->path, sizeof(file->path), "%s/report.json", r->plan->log_root);
    if (aside_run(&(struct aside){ report_file_write, report_file_free, file }, UNREAD_MS))
        report_file_free(file);
    else
        log_warn("%s/report.json is not written: the file system does not answer", r->plan->log_root);
}

/* A stderr that is closed or full has nobody to complain to.
 *
 * Success is silent, as with every program of a pipeline; a machine that reads events always gets
 * the last one. */
static void print_it(const struct report *r, bool midline)
{
    const struct cli *cli = r->plan->cli;
    const bool wanted = cli->json || cli->verbose || report_needed(r);
    struct buf out = { 0 };
    const bool row = !midline || buf_append(&out, "\n", 1); /* never with --json */
    if (wanted && row && (cli->json ? event_finished(&out, r) : report_text(r, &out)))
        (void)patient_write(cli->json ? STDOUT_FILENO : STDERR_FILENO, buf_slice(&out), UNREAD_MS);
    else if (wanted)
        log_error("no memory for the report; the exit code is %d", agent_exit_code(r->agent));
    buf_free(&out);
}

/* The offset of now, not of the start: a job that ran over a change of the clocks is read today. The C library reads the
 * time zone's file for it, so this is for a report that shows a time. */
static int utc_offset_s(void)
{
    struct tm local;
    time_t now = time(NULL);
    return localtime_r(&now, &local) != NULL ? (int)local.tm_gmtoff : 0;
}

/* What can be looked up about the first failure alone. */
struct details {
    char python[PATH_MAX];
    struct program_look look;
    struct error_text error;
    struct ddp_err trouble;
};

/* Which of several Pythons ran is what a failed import asks for. */
static void look_for_python(struct report *r, struct details *d)
{
    const struct cli *cli = r->plan->cli;
    char *const *inherited = r->plan->facts->environ_block;
    const struct env_sources env = { cli->env.items, cli->env.n, inherited };
    const char *python = program_python(cli, env_find(inherited, "PYTHON_EXEC"));
    if (python != NULL && torch_look_python(python, &env, d->python))
        r->python = d->python;
}

/* Of the first failure alone: what the others wrote about a broken connection is in their own files. A worker that
 * was never executed wrote none. */
static void read_error_file(struct report *r, struct details *d)
{
    int first = agent_first_failure(r->agent);
    const char *path = first >= 0 ? r->plan->workers[first].error_file : "";
    if (*path == '\0' || agent_worker(r->agent, first)->verdict == WORKER_NOT_STARTED)
        return;
    ddp_status status = error_file_read(path, &d->error, &d->trouble);
    if (status == DDP_OK)
        r->error = &d->error;
    else if (status != DDP_ERR_CLOSED)
        r->error_trouble = d->trouble.msg;
}

/* A launcher around this one, or the user, may have named a file for the error of the whole. torchrun counts a signal as
 * a negative code. */
static void hand_on_error(const struct report *r)
{
    const char *to = env_find(r->plan->facts->environ_block, worker_env_name(ENV_TORCHELASTIC_ERROR_FILE));
    const int first = agent_first_failure(r->agent);
    if (r->error == NULL || to == NULL || *to == '\0')
        return;
    const struct agent_worker *w = agent_worker(r->agent, first);
    error_file_hand_on(r->plan->workers[first].error_file, to, w->signal != 0 ? -w->signal : w->exit_code);
}

/* Nobody shall believe that output is complete when it is not, after a success least of all. A reader that has
 * gone away (head, a pager) wanted no more. */
static void say_losses(const struct loss *lost, size_t n)
{
    size_t said = 0, more = 0;
    for (size_t i = 0; i < n; i++) {
        if (lost[i].error == EPIPE)
            continue;
        if (said < LOSSES_SAID)
            log_warn("%llu bytes of the workers' output are missing in %s: %s",
                     (unsigned long long)lost[i].bytes, lost[i].name,
                     lost[i].error != 0 ? strerror(lost[i].error) : "they were not read in time");
        *(said < LOSSES_SAID ? &said : &more) += 1;
    }
    if (more > 0)
        log_warn("output is missing in %zu%s more places", more, n == LOSSES_MAX ? " or" : "");
}

static size_t collect_losses(struct output *output, struct loss lost[LOSSES_MAX])
{
    size_t n = 0;
    while (n < LOSSES_MAX && output_loss(output, n, &lost[n]))
        n++;
    return n;
}

/* A success prints no report, but a job of this host alone may be a mistake. */
static void warn_of_local_only(const struct report *r)
{
    struct buf text = { 0 };
    if (!r->plan->cli->quiet && !report_needed(r) && report_local_only(r, &text) && text.len > 0)
        log_warn("%.*s", (int)text.len, (const char *)text.data);
    buf_free(&text);
}

/* For the terminal first, then what takes a disk: somebody may be waiting there. */
void final_report(struct report *r, struct output *output, const struct evidence *evidence,
                  const char *program)
{
    struct loss lost[LOSSES_MAX];
    static struct details details; /* paths make it too large for a stack */
    r->stdout_tails = output_tails(output, STD_OUT);
    r->stderr_tails = output_tails(output, STD_ERR);
    r->ended_ms = clock_ms();
    r->ended_unix_ms = clock_unix_us() / 1000;
    r->colour = r->plan->facts->terminal && plan_wants_colour(r->plan);
    r->lost = lost;
    r->n_lost = collect_losses(output, lost);
    if (report_needed(r))
        r->utc_offset_s = utc_offset_s();
    if (r->elsewhere == NULL) {
        r->evidence = evidence_of(evidence, agent_first_failure(r->agent));
        r->look = program_see_failed(program, r->plan->script, &details.look) ? &details.look : NULL;
        look_for_python(r, &details);
        if (!disk_hangs(DISK_HUNG_MS, NULL)) {
            read_error_file(r, &details);
            hand_on_error(r);
        }
    }
    print_it(r, output_is_midline(output));
    warn_of_local_only(r);
    say_losses(lost, r->n_lost);
    if (r->plan->log_root != NULL)
        leave_in_log_dir(r);
    error_text_free(&details.error);
}
