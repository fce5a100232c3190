/* plan.c -- see plan.h. The order of decisions: how many workers, what the job is called, where it meets,
 * where output goes, and last each worker's command. What cannot be is refused here, before anything is
 * started.
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
 * The random text keeps two runs of one job from writing over each other's logs. */
#include "plan/plan.h"

#include "plan/program.h"
#include "text/log_pattern.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* New text; NULL when memory is short. */
static char *text_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *text_of(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : text;
}

/* Takes the text over; NULL stands for one that memory was too short for, and is left out. */
static void add_note(struct plan *plan, char *note)
{
    for (int i = 0; i < PLAN_NOTES_MAX; i++) {
        if (plan->notes[i] == NULL) {
            plan->notes[i] = note;
            return;
        }
    }
    free(note);
}

/* By the user, on the command line or in the environment. */
static bool was_given(const struct cli *cli, enum cli_option option)
{
    return cli->origin[option] != FROM_DEFAULT;
}

/* --- workers and the place to meet ---------------------------------------------------------------------- */

/* The number of workers comes first, everything else depends on it. */
static ddp_status plan_workers(struct plan *plan, struct ddp_err *err)
{
    const struct plan_facts *facts = plan->facts;
    plan->gpus = malloc(sizeof(*plan->gpus));
    if (plan->gpus == NULL)
        return DDP_ERR_NOMEM;
    gpus_list(plan->gpus, env_find(facts->environ_block, "CUDA_VISIBLE_DEVICES"), facts->physical_gpus);
    if (plan->gpus->note[0] != '\0')
        add_note(plan, text_of("%s", plan->gpus->note));
    ddp_status status = gpus_workers(plan->gpus, plan->cli->nproc, facts->cpus, &plan->nproc, err);
    if (status != DDP_OK)
        return status;
    plan->nnodes = plan->cli->nnodes;
    plan->node_rank = plan->cli->node_rank;
    plan->world_size = plan->nproc * plan->nnodes;
    plan->workers = calloc((size_t)plan->nproc, sizeof(*plan->workers));
    return plan->workers != NULL ? DDP_OK : DDP_ERR_NOMEM;
}

/* A port that nobody asked for may be exchanged for a free one; one that was asked for is obeyed or refused. */
static ddp_status plan_meeting(struct plan *plan)
{
    const struct cli *cli = plan->cli;
    bool port_given = was_given(cli, OPT_MASTER_PORT);
    plan->master_addr = cli->master_addr;
    plan->master_port = cli->standalone && !port_given ? 0 : cli->master_port;
    plan->port_may_change = !port_given;
    plan->job = text_of("%s", cli->job != NULL ? cli->job : plan->facts->nonce);
    return plan->job != NULL ? DDP_OK : DDP_ERR_NOMEM;
}

/* --- output --------------------------------------------------------------------------------------------- */

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
 * alone mean --tee=3. */
static void streams(const struct cli *cli, int local_rank, int *to_file, int *off_console)
{
    bool chosen = was_given(cli, OPT_TEE) || was_given(cli, OPT_REDIRECTS);
    int tee = std_map_get(&cli->tee, local_rank);
    int redirect = std_map_get(&cli->redirects, local_rank);
    if (!chosen && (cli->log_dir != NULL || cli->log_file != NULL) && !to_nowhere(cli))
        tee = STD_BOTH;
    *to_file = tee | redirect;
    *off_console = is_shown(cli, local_rank) ? redirect & ~tee : STD_BOTH;
}

/* A rank that does not exist is a typing error, and its log would be missed too late. */
static ddp_status check_ranks(const struct plan *plan, const char *option, int highest, struct ddp_err *err)
{
    if (highest < plan->nproc)
        return DDP_OK;
    return ddp_fail(
        err, DDP_ERR_ARG, "--%s names local rank %d, but there %s %d worker%s on this node (0 to %d)", option,
        highest, plan->nproc == 1 ? "is" : "are", plan->nproc, plan->nproc == 1 ? "" : "s", plan->nproc - 1);
}

/* By rank in the job, unlike the options about output, which are torchrun's and count on this node. */
bool plan_gets_input(const struct plan *plan, int local_rank)
{
    const struct cli_input *input = &plan->cli->input;
    return input->all || rank_set_has(&input->ranks, plan->workers[local_rank].rank);
}

/* no-color.org's rule: the variable counts when it is not empty, whatever it says. */
bool plan_wants_colour(const struct plan *plan)
{
    const char *term = env_find(plan->facts->environ_block, "TERM");
    const char *no_color = env_find(plan->facts->environ_block, "NO_COLOR");
    return (term == NULL || strcmp(term, "dumb") != 0) && (no_color == NULL || *no_color == '\0');
}

/* Does any worker need a file? A map of zeros needs none. */
static bool any_file(const struct plan *plan)
{
    int to_file, off_console;
    for (int r = 0; r < plan->nproc; r++) {
        streams(plan->cli, r, &to_file, &off_console);
        if (to_file != 0)
            return true;
    }
    return false;
}

/* The job's directory: named after the job, and never that of another run. */
static ddp_status plan_log_root(struct plan *plan)
{
    const struct cli *cli = plan->cli;
    const char *nonce = plan->facts->nonce;
    if (to_nowhere(cli) || (cli->log_dir == NULL && (cli->log_file != NULL || !any_file(plan))))
        return DDP_OK;
    if (cli->log_dir == NULL)
        plan->log_root = text_of("%s/ddprun_%s", plan->facts->tmp_dir, nonce);
    else if (cli->job == NULL)
        plan->log_root = text_of("%s/%s", cli->log_dir, nonce);
    else
        plan->log_root = text_of("%s/%s_%s", cli->log_dir, cli->job, nonce);
    if (plan->log_root == NULL)
        return DDP_ERR_NOMEM;
    if (cli->log_dir == NULL)
        add_note(plan, text_of("no --log_dir is given; log files are in %s", plan->log_root));
    return DDP_OK;
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
    stream->file =
        plan->cli->log_file != NULL ? name_by_pattern(plan, w, name) : text_of("%s/%s.log", w->log_dir, name);
    return stream->file != NULL;
}

/* torchrun's layout, so that tools which read it go on working: <root>/attempt_0/<local rank>/stdout.log ...
 */
static bool plan_output(const struct plan *plan, struct plan_worker *w)
{
    int to_file, off_console;
    streams(plan->cli, w->local_rank, &to_file, &off_console);
    if (plan->log_root != NULL) {
        w->log_dir = text_of("%s/attempt_%d/%d", plan->log_root, plan->attempt, w->local_rank);
        if (w->log_dir == NULL)
            return false;
    }
    if (w->log_dir != NULL)
        w->error_file = text_of("%s/error.json", w->log_dir);
    else if (plan->facts->error_stem != NULL)
        w->error_file =
            text_of("%s.attempt_%d_rank_%d.json", plan->facts->error_stem, plan->attempt, w->rank);
    else
        w->error_file = text_of("%s", "");
    return w->error_file != NULL &&
           plan_stream(plan, w, "stdout", to_file & STD_OUT, !(off_console & STD_OUT), &w->out) &&
           plan_stream(plan, w, "stderr", to_file & STD_ERR, !(off_console & STD_ERR), &w->err);
}

static void free_output(struct plan_worker *w)
{
    free(w->log_dir);
    free(w->out.file);
    free(w->err.file);
    free(w->error_file);
    w->log_dir = w->out.file = w->err.file = w->error_file = NULL;
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

/* Names of files may tell the attempt, so they are made anew for each; what was planned once for the job stays. */
ddp_status plan_attempt(struct plan *plan, int attempt, struct ddp_err *err)
{
    plan->attempt = attempt;
    for (int r = 0; r < plan->nproc; r++) {
        free_output(&plan->workers[r]);
        if (!plan_output(plan, &plan->workers[r]))
            return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for attempt %d of %d workers", attempt,
                            plan->nproc);
    }
    return plan->cli->log_file != NULL ? find_shared(plan, err) : DDP_OK;
}

/* Counted by who writes to the console, not by who runs: with all but one redirected a prefix says nothing. */
static bool needs_prefix(const struct plan *plan)
{
    int writers = 0;
    for (int r = 0; r < plan->nproc; r++)
        writers += plan->workers[r].out.console || plan->workers[r].err.console;
    if (plan->cli->prefix != PREFIX_AUTO)
        return plan->cli->prefix == PREFIX_ON;
    return writers > 1 || plan->cli->origin[OPT_PREFIX_TEMPLATE] == FROM_COMMAND_LINE ||
           plan->cli->origin[OPT_TIMESTAMPS] == FROM_COMMAND_LINE;
}

/* The option, else torchrun's variable, else ours. A wrong one is refused now and not found in the logs. */
static ddp_status plan_prefix(struct plan *plan, struct ddp_err *err)
{
    const struct cli *cli = plan->cli;
    struct ddp_err why;
    const char *from = "--log_line_prefix_template", *template = cli->prefix_template;
    if (template == NULL) {
        from = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
        template = env_find(plan->facts->environ_block, from);
    }
    if (template == NULL || *template == '\0')
        template = "[${rank}] ";
    ddp_status status = cli->timestamps ? prefix_add(&plan->line_prefix, "${time} ", &why) : DDP_OK;
    if (status == DDP_OK)
        status = prefix_add(&plan->line_prefix, template, &why);
    return status == DDP_OK ? status : ddp_fail(err, status, "%s=%.60s: %s", from, template, why.msg);
}

/* --- all workers ---------------------------------------------------------------------------------------- */

/* Commands differ between workers only where an argument names the local rank. */
static ddp_status plan_each(struct plan *plan, struct ddp_err *err)
{
    const char *python = env_find(plan->facts->environ_block, "PYTHON_EXEC");
    for (int r = 0; r < plan->nproc; r++) {
        struct plan_worker *w = &plan->workers[r];
        w->local_rank = r;
        w->rank = plan->node_rank * plan->nproc + r;
        w->gpu = plan->nproc <= plan->gpus->n ? plan->gpus->names[r] : NULL;
        w->argv = program_argv(plan->cli, python, r);
        if (w->argv == NULL || !plan_output(plan, w))
            return DDP_ERR_NOMEM;
    }
    plan->prefix = needs_prefix(plan);
    return plan->cli->log_file != NULL ? find_shared(plan, err) : DDP_OK;
}

/* Made anew for each block, because the port becomes known only after the plan is made. */
static struct env_facts facts_of(const struct plan *plan, int local_rank)
{
    const struct plan_worker *w = &plan->workers[local_rank];
    struct env_facts facts = { .rank = w->rank,
                               .local_rank = w->local_rank,
                               .world_size = plan->world_size,
                               .local_world_size = plan->nproc,
                               .node_rank = plan->node_rank,
                               .nnodes = plan->nnodes,
                               .restart_count = plan->attempt,
                               .max_restarts = plan->cli->max_restarts,
                               .master_addr = plan->master_addr,
                               .master_port = plan->master_port,
                               .job = plan->job,
                               .cookie = plan->facts->cookie,
                               .error_file = w->error_file,
                               .terminal = plan->facts->terminal && w->err.console && !plan->cli->json,
                               .timeout_ms = plan->cli->timeout_ms };
    env_facts_inherit(&facts, plan->facts->environ_block, plan->cli->env.items, plan->cli->env.n);
    return facts;
}

/* torchrun prints a banner when it sets OMP_NUM_THREADS; so do we, since slow CPU work is often blamed on us. */
static ddp_status plan_environment(struct plan *plan)
{
    char *const *inherited = plan->facts->environ_block;
    struct env_facts facts = facts_of(plan, 0);
    if (facts.set_omp)
        add_note(
            plan,
            text_of("OMP_NUM_THREADS is not set, so each of the %d workers gets OMP_NUM_THREADS=1; set it to "
                    "let them use more threads",
                    plan->nproc));
    return env_base_init(&plan->env, &facts, inherited, plan->cli->env.items, plan->cli->env.n)
               ? DDP_OK
               : DDP_ERR_NOMEM;
}

/* On the command line only: a default of the site in PET_LOG_ROTATE is no mistake of a job without files. */
static void note_idle(struct plan *plan, enum cli_option option, const char *name, const char *needs)
{
    if (plan->cli->origin[option] == FROM_COMMAND_LINE)
        add_note(plan, text_of("--%s does nothing here: %s", name, needs));
}

/* Said and not refused: a script that always passes an option need not know whether it does anything today. */
static void note_idle_options(struct plan *plan)
{
    if (!any_file(plan))
        note_idle(plan, OPT_LOG_ROTATE, "log_rotate",
                  "there are no log files; --log_dir or --log_file makes them");
    if (plan->cli->log_file == NULL)
        note_idle(plan, OPT_LOG_MERGE, "log_merge", "it is about files that --log_file names");
}

/* PET_RDZV_BACKEND and the like: torchrun would read it, this version cannot. The user should know. */
static void note_unknown_default(struct plan *plan)
{
    const char *entry = cli_unknown_pet(plan->facts->environ_block);
    if (entry != NULL)
        add_note(plan, text_of("%.*s is set, but this version has no such option", (int)strcspn(entry, "="),
                               entry));
}

/* Usage errors come before anything that costs memory per worker. */
static ddp_status decide(struct plan *plan, struct ddp_err *err)
{
    ddp_status status = plan_workers(plan, err);
    if (status == DDP_OK)
        status = check_ranks(plan, "tee", std_map_highest(&plan->cli->tee), err);
    if (status == DDP_OK)
        status = check_ranks(plan, "redirects", std_map_highest(&plan->cli->redirects), err);
    if (status == DDP_OK)
        status = check_ranks(plan, "local_ranks_filter", rank_set_highest(&plan->cli->console_ranks), err);
    if (status == DDP_OK && was_given(plan->cli, OPT_STDIN))
        status = check_ranks(plan, "stdin", rank_set_highest(&plan->cli->input.ranks), err);
    if (status == DDP_OK)
        status = plan_prefix(plan, err);
    if (status == DDP_OK)
        status = plan_meeting(plan);
    if (status == DDP_OK)
        status = plan_log_root(plan);
    if (status == DDP_OK)
        status = plan_each(plan, err);
    if (status == DDP_OK)
        status = plan_environment(plan);
    note_idle_options(plan);
    note_unknown_default(plan);
    return status == DDP_ERR_NOMEM ? ddp_fail(err, status, "out of memory for %d workers", plan->nproc)
                                   : status;
}

ddp_status plan_make(struct plan *plan, const struct cli *cli, const struct plan_facts *facts,
                     struct ddp_err *err)
{
    *plan = (struct plan){ .cli = cli, .facts = facts };
    ddp_status status = decide(plan, err);
    if (status != DDP_OK)
        plan_free(plan);
    return status;
}

void plan_free(struct plan *plan)
{
    for (int r = 0; plan->workers != NULL && r < plan->nproc; r++) {
        struct plan_worker *w = &plan->workers[r];
        free(w->argv);
        free_output(w);
    }
    for (int i = 0; i < PLAN_NOTES_MAX; i++)
        free(plan->notes[i]);
    env_base_free(&plan->env);
    free(plan->gpus);
    free(plan->workers);
    free(plan->log_root);
    free(plan->job);
    *plan = (struct plan){ 0 };
}

ddp_status plan_env(const struct plan *plan, int local_rank, struct worker_env *env, struct ddp_err *err)
{
    struct env_facts facts = facts_of(plan, local_rank);
    if (worker_env_init(env, &facts, &plan->env))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the environment of local rank %d", local_rank);
}
