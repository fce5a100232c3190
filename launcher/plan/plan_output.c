/* plan_output.c -- the second step of the plan: what a round decides about each worker, and where its output goes.
 *
 * Where a stream goes:
 *
 *     options                     console   file
 *     none                        yes       -
 *     --log_dir=D                 yes       D/<job>_<random>/attempt_0/<local rank>/stdout.log
 *     --log_dir=D --redirects=1   -         the same
 *     --redirects=1               -         below $TMPDIR, and the user is told where
 *     --log_dir=D --tee=1         yes       only the streams that the map names have files
 *     --log_dir=/dev/null         yes       none at all
 *     --log_file=P                yes       as P says, below D/<job>_<random> when D is given, too
 *
 * The random text keeps two runs of one job from writing over each other's logs. *
 * Names may hold ranks, so they are made anew for each round. */
#include "plan/plan_parts.h"

#include "text/log_pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* torchrun's way of saying that no files are wanted, even where a map names some. */
static bool to_nowhere(const struct cli *cli)
{
    return cli->log_dir != NULL && strcmp(cli->log_dir, "/dev/null") == 0;
}

/* --local_ranks_filter takes ranks off the console and leaves their files alone. */
static bool is_shown(const struct cli *cli, int local_rank)
{
    return cli->console_ranks.limit == 0 || rank_set_has(&cli->console_ranks, local_rank);
}

/* Streams of a worker that go to a file, and those that do not go to the console. --log_dir or --log_file
 * alone mean --tee=3, but not with torchrun's defaults. */
static void streams(const struct cli *cli, int local_rank, int *to_file, int *off_console)
{
    bool chosen = cli->torchrun || cli_gives(cli, OPT_TEE) || cli_gives(cli, OPT_REDIRECTS);
    int tee = std_map_get(&cli->tee, local_rank);
    int redirect = std_map_get(&cli->redirects, local_rank);
    if (!chosen && (cli->log_dir != NULL || cli->log_file != NULL) && !to_nowhere(cli))
        tee = STD_BOTH;
    *to_file = tee | redirect;
    *off_console = is_shown(cli, local_rank) ? redirect & ~tee : STD_BOTH;
}

/* A map of zeros needs none. */
bool plan_any_file(const struct plan *plan)
{
    int to_file, off_console;
    for (int r = 0; r < plan->nproc; r++) {
        streams(plan->cli, r, &to_file, &off_console);
        if (to_file != 0)
            return true;
    }
    return false;
}

/* --log_file alone names files that have no directory of the job. */
static bool needs_log_root(const struct plan *plan)
{
    const struct cli *cli = plan->cli;
    return !to_nowhere(cli) && (cli->log_dir != NULL || (cli->log_file == NULL && plan_any_file(plan)));
}

ddp_status plan_check_tmp_dir(const struct plan *plan, struct ddp_err *err)
{
    if (plan->facts->tmp_dir != NULL || plan->cli->log_dir != NULL || !needs_log_root(plan))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG,
                    "%s, and neither are /tmp and /var/tmp; name a directory with --log_dir",
                    plan->facts->tmp_note);
}

/* The job's directory: named after the job, and never that of another run. */
bool plan_log_root(struct plan *plan)
{
    const struct cli *cli = plan->cli;
    const char *nonce = plan->facts->nonce;
    if (!needs_log_root(plan))
        return true;
    if (cli->log_dir == NULL)
        plan->log_root = plan_text_of("%s/ddprun_%s", plan->facts->tmp_dir, nonce);
    else if (cli->job == NULL && plan->meeting.nnodes_max == 1 && !cli->torchrun)
        plan->log_root = plan_text_of("%s/%s", cli->log_dir, nonce);
    else
        plan->log_root = plan_text_of("%s/%s_%s", cli->log_dir, plan->job, nonce);
    if (plan->log_root == NULL)
        return false;
    if (cli->log_dir == NULL && plan->facts->tmp_note != NULL)
        plan_note(plan, "%s", plan->facts->tmp_note);
    if (cli->log_dir == NULL)
        plan_note(plan, "no --log_dir is given; log files are in %s", plan->log_root);
    return true;
}

/* The name that the pattern gives a stream; below the job's directory when there is one. */
static char *name_by_pattern(const struct plan *plan, const struct plan_worker *w, const char *stream)
{
    const char *pattern = plan->cli->log_file;
    const struct log_names names = { .host = plan->facts->host,
                                     .time = plan->facts->start_time,
                                     .job = plan->job,
                                     .stream = stream,
                                     .rank = w->rank,
                                     .local_rank = w->local_rank,
                                     .node_rank = plan->node_rank,
                                     .attempt = plan->attempt };
    struct buf name = { 0 };
    bool ok = pattern[0] == '/' || plan->log_root == NULL || buf_printf(&name, "%s/", plan->log_root);
    ok = ok && log_pattern_name(pattern, &names, &name) && buf_append(&name, "", 1);
    if (!ok)
        buf_free(&name);
    return (char *)name.data;
}

/* --log_dir=/dev/null means that the bytes vanish: a stream without console and file. */
static bool plan_stream(const struct plan *plan, const struct plan_worker *w, const char *name, bool to_file,
                        bool console, struct plan_stream *stream)
{
    stream->console = console;
    stream->shared = false;
    if (!to_file || to_nowhere(plan->cli))
        return true;
    stream->file = plan->cli->log_file != NULL ? name_by_pattern(plan, w, name)
                                               : plan_text_of("%s/%s.log", w->log_dir, name);
    return stream->file != NULL;
}

/* torchrun's layout, so that tools which read it go on working: <root>/attempt_0/<local rank>/stdout.log ...
 */
static bool plan_output(const struct plan *plan, struct plan_worker *w)
{
    int to_file, off_console;
    streams(plan->cli, w->local_rank, &to_file, &off_console);
    if (plan->log_root != NULL) {
        w->log_dir = plan_text_of("%s/attempt_%d/%d", plan->log_root, plan->attempt, w->local_rank);
        if (w->log_dir == NULL)
            return false;
    }
    if (w->log_dir != NULL)
        w->error_file = plan_text_of("%s/error.json", w->log_dir);
    else if (plan->facts->error_stem != NULL && !to_nowhere(plan->cli))
        w->error_file =
            plan_text_of("%s.attempt_%d_rank_%d.json", plan->facts->error_stem, plan->attempt, w->rank);
    else
        w->error_file = plan_text_of("%s", "");
    return w->error_file != NULL &&
           plan_stream(plan, w, "stdout", to_file & STD_OUT, !(off_console & STD_OUT), &w->out) &&
           plan_stream(plan, w, "stderr", to_file & STD_ERR, !(off_console & STD_ERR), &w->err);
}

/* One stream that has a file, to find those with the same one. */
struct named {
    struct plan_stream *stream;
    const struct plan_worker *worker;
};

/* Equal names come to stand side by side, and among them the lowest rank first, so that an error names the same
 * two each time. */
static int by_file(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    const int order = strcmp(x->stream->file, y->stream->file);
    return order != 0 ? order : x->worker->local_rank - y->worker->local_rank;
}

/* Both streams of one worker may have one file, as behind "2>&1". Two workers only when it was said. */
static ddp_status share(const struct plan *plan, struct named *a, struct named *b, struct ddp_err *err)
{
    a->stream->shared = b->stream->shared = true;
    if (a->worker == b->worker || plan->cli->log_merge)
        return DDP_OK;
    return ddp_fail(
        err, DDP_ERR_ARG,
        "--log_file=%s gives local ranks %d and %d the same file, %s; put %%r (rank) into it, or say "
        "--log_merge if whole lines of several workers shall go to one file",
        plan->cli->log_file, a->worker->local_rank, b->worker->local_rank, a->stream->file);
}

/* Only a pattern can give two streams one name. */
static ddp_status find_shared(const struct plan *plan, struct ddp_err *err)
{
    struct named *all = calloc(2 * (size_t)plan->nproc, sizeof(*all));
    ddp_status status = DDP_OK;
    size_t n = 0;
    if (all == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the log files of %d workers", plan->nproc);
    for (int r = 0; r < plan->nproc; r++) {
        struct plan_worker *w = &plan->workers[r];
        if (w->out.file != NULL)
            all[n++] = (struct named){ &w->out, w };
        if (w->err.file != NULL)
            all[n++] = (struct named){ &w->err, w };
    }
    if (n > 0)
        qsort(all, n, sizeof(*all), by_file);
    for (size_t i = 1; i < n && status == DDP_OK; i++)
        if (strcmp(all[i - 1].stream->file, all[i].stream->file) == 0)
            status = share(plan, &all[i - 1], &all[i], err);
    free(all);
    return status;
}

static void take_round(struct plan *plan, const struct plan_round *round)
{
    plan->attempt = round->attempt;
    plan->restarts = round->restarts;
    plan->node_rank = round->node_rank;
    plan->nnodes = round->nnodes;
    plan->world_size = round->world_size;
    plan->role_rank = round->role_rank;
    plan->role_size = round->role_size;
    if (round->master_addr != NULL && round->master_addr != plan->master_addr)
        snprintf(plan->master_addr, sizeof(plan->master_addr), "%s", round->master_addr);
    if (round->master_port != 0)
        plan->master_port = round->master_port;
    plan->rank0_port = round->rank0_port;
    snprintf(plan->rank0_addr, sizeof(plan->rank0_addr), "%s",
             round->rank0_addr != NULL ? round->rank0_addr : "");
}

/* Beside the directories of the workers, as torchrun has them. */
static bool plan_filtered(struct plan *plan)
{
    static const char *const names[] = { "stdout", "stderr" };
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        free(plan->filtered[i]);
        plan->filtered[i] = NULL;
        if (plan->cli->filters[i].n == 0 || plan->log_root == NULL)
            continue;
        plan->filtered[i] =
            plan_text_of("%s/attempt_%d/filtered_%s.log", plan->log_root, plan->attempt, names[i]);
        ok = ok && plan->filtered[i] != NULL;
    }
    return ok;
}

/* Names of files may tell the attempt or a rank, so they are made anew for each round; what was planned once for the
 * job stays. */
ddp_status plan_round(struct plan *plan, const struct plan_round *round, struct ddp_err *err)
{
    take_round(plan, round);
    if (!plan_filtered(plan) || !plan_set_flight(plan))
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for attempt %d", round->attempt);
    for (int r = 0; r < plan->nproc; r++) {
        struct plan_worker *w = &plan->workers[r];
        plan_output_free(w);
        w->rank = round->first_rank + r;
        if (!plan_output(plan, w))
            return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for attempt %d of %d workers", round->attempt,
                            plan->nproc);
    }
    return plan->cli->log_file != NULL ? find_shared(plan, err) : DDP_OK;
}
