/* worker.c -- see worker.h. Environments and log paths have the same form as in torchrun, because scripts and tools
 * for torchrun expect this form. File names may contain ranks and the attempt, so the names are built again in each
 * round.
 *
 * The command of a worker depends on PROGRAM:
 *
 *     PROGRAM        command
 *     ./train        ./train ARGS
 *     train.py       python3 -u train.py ARGS
 *     -m pkg.mod     python3 -u -m pkg.mod ARGS
 *     --run_path     python3 -u -c '(runpy)' train.py ARGS */
#include "plan/worker.h"

#include "plan/plan.h"
#include "tables/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *plan_text_of(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : text;
}

void plan_note(struct plan *plan, const char *fmt, ...)
{
    va_list ap;
    int i = 0;
    while (i < PLAN_NOTES_MAX && plan->notes[i] != NULL)
        i++;
    if (i == PLAN_NOTES_MAX)
        return;
    va_start(ap, fmt);
    if (vasprintf(&plan->notes[i], fmt, ap) < 0)
        plan->notes[i] = NULL;
    va_end(ap);
}

void plan_output_free(struct plan_worker *w)
{
    free(w->log_dir);
    free(w->out.file);
    free(w->err.file);
    free(w->error_file);
    w->log_dir = w->out.file = w->err.file = w->error_file = NULL;
}

static const char rank_name[] = "local_rank"; /* ${local_rank} in an argument, as in torchrun */

/* Python code for --run_path. The code removes the first element of sys.argv, so that the script gets its own
 * arguments, and then runs the script with runpy, as torchrun does. */
static const char run_path_code[] =
    "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')";

enum { FRONT_MAX = 4 }; /* words before PROGRAM: python3 -u -c CODE */

/* Return true if Python must run PROGRAM. With --run_path, return true. With --no_python and without --run_path, return
 * false. If neither option is set, return true if --module is set, if ddprun was started as torchrun, or if the name
 * ends with .py. Check only the name, because the file may be created later. */
bool program_needs_python(const struct cli *cli)
{
    size_t len = strlen(cli->program);
    if (cli->run_path)
        return true;
    if (cli->no_python)
        return false;
    return cli->module || cli->torchrun || (len > 3 && strcmp(cli->program + len - 3, ".py") == 0);
}

static bool is_set(const char *text)
{
    return text != NULL && text[0] != '\0';
}

void python_choose(struct python_choice *choice, const struct python_facts *f)
{
    const bool active = is_set(f->virtual_env) && is_set(f->active);
    const bool beside = !active && is_set(f->beside), exec = !active && !beside && is_set(f->python_exec);
    const bool stale = is_set(f->virtual_env) && !active, overruled = is_set(f->python_exec) && !exec;
    choice->program = active ? f->active : beside ? f->beside : exec ? f->python_exec : "python3";
    snprintf(choice->why, sizeof(choice->why), "%s%.160s%s%.160s%s%.160s",
             active               ? "VIRTUAL_ENV is set"
             : beside             ? "ddprun is installed in this environment"
             : exec               ? "PYTHON_EXEC is set"
             : is_set(f->in_path) ? "the first in PATH: "
                                  : "PATH has no python3",
             active || beside || exec || !is_set(f->in_path) ? "" : f->in_path,
             stale ? "; VIRTUAL_ENV is ignored, because bin/python is missing in " : "",
             stale ? f->virtual_env : "", overruled ? "; not used: PYTHON_EXEC=" : "",
             overruled ? f->python_exec : "");
}

static const char *interpreter(const struct python_choice *python)
{
    return python != NULL ? python->program : "python3";
}

static bool is_named_python(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strncmp(slash != NULL ? slash + 1 : program, "python", strlen("python")) == 0;
}

const char *program_python(const struct cli *cli, const struct python_choice *python)
{
    if (program_needs_python(cli))
        return interpreter(python);
    return is_named_python(cli->program) ? cli->program : NULL;
}

const char *program_script(const struct cli *cli, const struct python_choice *python)
{
    const bool is_file = program_needs_python(cli) && !cli->module && strcmp(cli->program, "-") != 0;
    return is_file && is_named_python(interpreter(python)) ? cli->program : NULL;
}

/* Store the words of the command before PROGRAM, and return the number of these words. */
static size_t interpreter_words(const struct cli *cli, const struct python_choice *python,
                                const char *words[FRONT_MAX])
{
    size_t n = 0;
    if (!program_needs_python(cli))
        return 0;
    words[n++] = interpreter(python);
    words[n++] = "-u"; /* unbuffered, so a crash loses no output */
    if (cli->run_path) {
        words[n++] = "-c";
        words[n++] = run_path_code;
    } else if (cli->module) {
        words[n++] = "-m";
    }
    return n;
}

/* Return the length of the macro "${local_rank}" at `at`, or 0 if there is no macro. If `braces_only` is false,
 * "$local_rank" is also a macro. */
static size_t mark_length(const char *at, bool braces_only)
{
    const size_t len = sizeof(rank_name) - 1;
    if (at[0] == '$' && at[1] == '{' && strncmp(at + 2, rank_name, len) == 0 && at[2 + len] == '}')
        return len + 3;
    if (braces_only || at[0] != '$' || strncmp(at + 1, rank_name, len) != 0)
        return 0;
    const unsigned char next = (unsigned char)at[1 + len];
    return isalnum(next) || next == '_' ? 0 : len + 1;
}

/* Append `arg` and a NUL, and replace the macros in `arg`. If ddprun was started as torchrun, "$$" becomes one dollar,
 * because torchrun uses Python's Template. */
static bool add_argument(struct buf *text, const struct cli *cli, const char *arg, int local_rank)
{
    bool ok = true;
    while (ok && *arg != '\0') {
        const size_t mark = mark_length(arg, !cli->torchrun);
        if (mark > 0) {
            ok = buf_printf(text, "%d", local_rank);
            arg += mark;
        } else {
            ok = buf_append(text, arg, 1);
            arg += cli->torchrun && arg[0] == '$' && arg[1] == '$' ? 2 : 1;
        }
    }
    return ok && buf_append(text, "", 1);
}

/* Append the local rank as the script's first argument, as torch.distributed.launch does. */
static bool add_rank_argument(struct buf *text, const struct cli *cli, int local_rank, size_t *n)
{
    if (cli->rank_argument == NULL || cli->use_env)
        return true;
    ++*n;
    return buf_printf(text, "--%s=%d", cli->rank_argument, local_rank) && buf_append(text, "", 1);
}

/* Copy `n` arguments into one allocation: first the pointers, then the texts. */
static char **pack(const struct buf *text, size_t n)
{
    size_t pointers = (n + 1) * sizeof(char *);
    char **argv = malloc(pointers + text->len);
    if (argv == NULL)
        return NULL;
    char *p = (char *)argv + pointers;
    memcpy(p, text->data, text->len);
    for (size_t i = 0; i < n; i++, p += strlen(p) + 1)
        argv[i] = p;
    argv[n] = NULL;
    return argv;
}

char **program_argv(const struct cli *cli, const struct python_choice *python, int local_rank)
{
    const char *front[FRONT_MAX];
    struct buf text = { 0 };
    size_t n = interpreter_words(cli, python, front);
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        ok = ok && buf_append(&text, front[i], strlen(front[i]) + 1);
    ok = ok && buf_append(&text, cli->program, strlen(cli->program) + 1);
    n++;
    ok = ok && add_rank_argument(&text, cli, local_rank, &n);
    for (char *const *arg = cli->args; *arg != NULL; arg++, n++)
        ok = ok && add_argument(&text, cli, *arg, local_rank);
    char **argv = ok ? pack(&text, n) : NULL;
    buf_free(&text);
    return argv;
}

/* --- environment ------------------------------------------------------------------------------------------- */

/* The environments of the workers. The common part, which may be large, is built only once. */

/* Set the local world size and the node numbers of a worker with --per_task. These values come from the scheduler's
 * task, because the plan counts each task as a separate node. */
static void set_task(struct env_facts *facts, const struct cli_task *task)
{
    facts->local_world_size = task->local_world_size;
    facts->node_rank = task->node_rank;
    facts->nnodes = task->nnodes;
}

/* Return true if rank 0 hosts the workers' store. plan->rank0_port is then not 0. But a dry run reserves no port, so
 * check plan->rank0_store in a dry run. */
static bool has_rank0_store(const struct plan *plan)
{
    return plan->rank0_port != 0 || (plan->cli->dry_run && plan->rank0_store);
}

/* Set the address and port of the store that rank 0 hosts. If rank 0 hosts no store, keep the address of the
 * launcher's store. */
static void set_rank0_store(struct env_facts *facts, const struct plan *plan)
{
    if (!has_rank0_store(plan))
        return;
    facts->rank0_store = true;
    facts->master_port = plan->rank0_port;
    if (plan->rank0_addr[0] != '\0')
        facts->master_addr = plan->rank0_addr;
}

const char *plan_user_value(const struct plan *plan, const char *name)
{
    const struct env_sources sources = { plan->cli->env.items, plan->cli->env.n, plan->facts->environ_block };
    return env_sources_find(&sources, name);
}

/* Return true if PyTorch may create FIFOs in the log directory. If a rank cannot create its FIFO, PyTorch ends the
 * rank. A shell script may start the rank in a container without the log directory. So allow FIFOs only if ddprun
 * itself starts Python. */
static bool uses_fifos(const struct plan *plan)
{
    return plan->can_fifo && program_python(plan->cli, plan->facts->python) != NULL &&
           plan_user_value(plan, worker_env_name(ENV_TORCH_NCCL_DEBUG_INFO_PIPE_FILE)) == NULL;
}

/* Return the path that the user has set for flight records (DDP_FLIGHT_RECORDER), or NULL. */
static const char *own_flight(const struct plan *plan)
{
    const char *value = plan_user_value(plan, worker_env_name(ENV_DDP_FLIGHT_RECORDER));
    return value != NULL && *value != '\0' ? value : NULL;
}

/* Return how many calls PyTorch's flight recorder keeps, as text: the user's value, or "2000". PyTorch reads the value
 * from either of two variables. */
static const char *flight_calls(const struct plan *plan)
{
    const char *value = plan_user_value(plan, worker_env_name(ENV_TORCH_FR_BUFFER_SIZE));
    if (value == NULL || *value == '\0')
        value = plan_user_value(plan, worker_env_name(ENV_TORCH_NCCL_TRACE_BUFFER_SIZE));
    return value != NULL && *value != '\0' ? value : "2000";
}

/* Add the facts that differ between the workers of a node. */
static void set_worker(struct env_facts *facts, const struct plan *plan, int local_rank)
{
    const struct plan_worker *w = &plan->workers[local_rank];
    facts->rank = w->rank;
    facts->local_rank = w->visible != NULL ? 0 : w->local_rank;
    facts->role_rank = plan->role_rank + local_rank;
    facts->visible = w->visible;
    facts->error_file = w->error_file;
    facts->flight = own_flight(plan) == NULL ? plan->flight : NULL;
    facts->torch_flight = plan->cli->flight_recorder ? plan->flight : NULL;
    facts->torch_pipes = uses_fifos(plan);
    facts->torch_calls = flight_calls(plan);
    struct flight_page page = plan->page;
    page.index = (uint64_t)local_rank;
    if (page.pid != 0)
        flight_page_print(facts->page, &page);
    facts->terminal = plan->facts->terminal && w->err.console && !plan->cli->json;
}

/* Collect the facts for the environment of a worker. plan_env calls this function for each environment, because the
 * port of the store may be unknown earlier. */
static struct env_facts facts_of(const struct plan *plan, int local_rank)
{
    struct env_facts facts = { .world_size = plan->world_size,
                               .role_size = plan->role_size,
                               .local_world_size = plan->nproc,
                               .node_rank = plan->node_rank,
                               .nnodes = plan->nnodes,
                               .restart_count = plan->restarts,
                               .attempt = plan->attempt,
                               .max_restarts = plan->cli->max_restarts,
                               .master_addr = plan->relay_port != 0 ? plan->relay_addr : plan->master_addr,
                               .master_port = plan->relay_port != 0 ? plan->relay_port : plan->master_port,
                               .job = plan->job,
                               .role = plan->cli->role,
                               .signals = plan->stop_signals,
                               .timer_file = plan->timer_file,
                               .cookie = plan->facts->cookie,
                               .directory = plan->facts->directory,
                               .share_gpu = plan->cli->share_gpu,
                               .timeout_ms = plan->cli->timeout_ms };
    set_rank0_store(&facts, plan);
    if (plan->cli->per_task)
        set_task(&facts, &plan->cli->task);
    set_worker(&facts, plan, local_rank);
    env_facts_inherit(&facts, plan->facts->environ_block, plan->cli->env.items, plan->cli->env.n);
    return facts;
}

/* Choose the path of the FIFO for torchrun's file timer, if the user's environment enables this timer. A FIFO in the
 * directory of the workers' error files is removed together with these files, even if ddprun was killed. */
static bool plan_timer_file(struct plan *plan)
{
    const struct plan_facts *f = plan->facts;
    const char *enabled = plan_user_value(plan, "TORCHELASTIC_ENABLE_FILE_TIMER");
    const char *named = plan_user_value(plan, worker_env_name(ENV_TORCHELASTIC_TIMER_FILE));
    if (enabled == NULL || strcmp(enabled, "1") != 0)
        return true;
    if (named != NULL && *named != '\0')
        plan->timer_file = plan_text_of("%s", named);
    else if (f->error_stem != NULL)
        plan->timer_file = plan_text_of("%s.timer", f->error_stem);
    else if (f->tmp_dir == NULL)
        return true; /* no directory is safe for the FIFO, so the workers get no file timer */
    else
        plan->timer_file = plan_text_of("%s/watchdog_timer_%s", f->tmp_dir, f->nonce);
    return plan->timer_file != NULL;
}

/* Build the common part of the workers' environments. If ddprun sets OMP_NUM_THREADS=1 for a Python program, add a
 * note for the user, as torchrun does. With one thread, work on the CPU is slow. */
ddp_status plan_environment(struct plan *plan)
{
    char *const *inherited = plan->facts->environ_block;
    struct buf signals = { 0 };
    if (!plan_timer_file(plan) || !signals_print(plan->cli->stop_signals, &signals)) {
        buf_free(&signals);
        return DDP_ERR_NOMEM;
    }
    plan->stop_signals = (char *)signals.data;
    struct env_facts facts = facts_of(plan, 0);
    const bool is_python = program_python(plan->cli, plan->facts->python) != NULL;
    /* print this note in only one task of each node, and with --hosts only on one node */
    if (facts.set_omp && is_python && plan->cli->task.local_rank == 0 &&
        !(plan->cli->one_console && plan->node_rank > 0))
        plan_note(plan, "OMP_NUM_THREADS is not set, so each worker gets OMP_NUM_THREADS=1; set this "
                        "variable to use more threads");
    return env_base_init(&plan->env, &facts, inherited, plan->cli->env.items, plan->cli->env.n)
               ? DDP_OK
               : DDP_ERR_NOMEM;
}

const char *plan_flight(const struct plan *plan)
{
    const char *own = own_flight(plan);
    return own != NULL ? own : plan->flight;
}

/* Set plan->flight to the prefix of the paths of this attempt's flight records. The flight records are in the log
 * directory. Without a log directory, set plan->flight to NULL. */
static bool plan_set_flight(struct plan *plan)
{
    free(plan->flight);
    plan->flight = NULL;
    if (plan->log_root == NULL)
        return true;
    plan->flight = plan_text_of("%s/attempt_%d", plan->log_root, plan->attempt);
    return plan->flight != NULL;
}

ddp_status plan_env(const struct plan *plan, int local_rank, struct worker_env *env, struct ddp_err *err)
{
    struct env_facts facts = facts_of(plan, local_rank);
    if (worker_env_init(env, &facts, &plan->env))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for the environment of local rank %d", local_rank);
}

/* --- output ------------------------------------------------------------------------------------------------ */

/* The second step of the plan: set the ranks of a round, and choose the console or files for each worker's output.
 *
 *     options                     console   file
 *     none                        yes       -
 *     --log_dir=D                 yes       D/<job>_<random>/attempt_0/<local rank>/stdout.log
 *     --log_dir=D --redirects=1   -         the same
 *     --redirects=1               -         below $TMPDIR; ddprun prints the path
 *     --log_dir=D --tee=1         yes       only for the streams of --tee
 *     --log_dir=/dev/null         yes       none
 *     --log_file=P                yes       named by P; below D/<job>_<random> if --log_dir=D is given
 *
 * The random text keeps the logs of two runs apart. */

/* Return true if --log_dir is /dev/null: no files are written, as in torchrun. */
static bool to_nowhere(const struct cli *cli)
{
    return cli->log_dir != NULL && strcmp(cli->log_dir, "/dev/null") == 0;
}

/* Return true if the console shows a worker's output. --local_ranks_filter hides workers but does not affect
 * files. */
static bool is_shown(const struct cli *cli, int local_rank)
{
    return cli->console_ranks.limit == 0 || rank_set_has(&cli->console_ranks, local_rank);
}

/* Set *to_file to the worker's streams that have a log file. Set *off_console to the streams that the console does not
 * show. If neither --tee nor --redirects is given, --log_dir and --log_file imply --tee=3. This rule does not apply if
 * ddprun was started as torchrun. */
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

/* Return true if any stream is written to a file. --tee=0 and --redirects=0 need no file. */
bool plan_any_file(const struct plan *plan)
{
    int to_file, off_console;
    for (int r = 0; r < plan->nproc; r++) {
        streams(plan->cli, plan->cli->per_task ? plan->cli->task.local_rank : r, &to_file, &off_console);
        if (to_file != 0)
            return true;
    }
    return false;
}

/* Return true if the job needs a log directory. --log_file alone needs no directory. */
static bool needs_log_root(const struct plan *plan)
{
    const struct cli *cli = plan->cli;
    return !to_nowhere(cli) && (cli->log_dir != NULL || (cli->log_file == NULL && plan_any_file(plan)));
}

ddp_status plan_check_log_dir(const struct plan *plan, struct ddp_err *err)
{
    if (plan->cli->flight_recorder && (plan->cli->log_dir == NULL || to_nowhere(plan->cli)))
        return ddp_fail(err, DDP_ERR_ARG,
                        "--flight_recorder: no directory for the ranks' records; add --log_dir=DIR");
    if (plan->facts->tmp_dir != NULL || plan->cli->log_dir != NULL || !needs_log_root(plan))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "%s; neither /tmp nor /var/tmp is a safe directory; set --log_dir=DIR",
                    plan->facts->tmp_note);
}

/* Choose the job's log directory. The name contains random text, so that each run has a new directory. */
bool plan_log_root(struct plan *plan)
{
    const struct cli *cli = plan->cli;
    const char *nonce = plan->facts->nonce;
    if (!needs_log_root(plan))
        return true;
    if (cli->log_dir == NULL)
        plan->log_root = plan_text_of("%s/ddprun_%s", plan->facts->tmp_dir, nonce);
    else if (cli->log_name != NULL)
        plan->log_root = plan_text_of("%s/%s", cli->log_dir, cli->log_name);
    else if (cli->job == NULL && plan->meeting.nnodes_max == 1 && !cli->torchrun)
        plan->log_root = plan_text_of("%s/%s", cli->log_dir, nonce);
    else
        plan->log_root = plan_text_of("%s/%s_%s", cli->log_dir, plan->job, nonce);
    if (plan->log_root == NULL)
        return false;
    if (cli->log_dir == NULL && plan->facts->tmp_note != NULL)
        plan_note(plan, "%s", plan->facts->tmp_note);
    if (cli->log_dir == NULL)
        plan_note(plan, "log files are in %s; --log_dir sets another directory", plan->log_root);
    return true;
}

/* Build the name of a stream's log file from --log_file. If the job has a log directory, a relative name is in
 * that directory. */
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

/* Set whether a stream is shown on the console, and the path of its log file, if any. With --log_dir=/dev/null no
 * stream has a file. A stream that is not on the console is then discarded. */
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

/* Set the files of a worker in torchrun's layout, which other tools may expect: <root>/attempt_0/<local
 * rank>/stdout.log ... */
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

/* A stream with a file. find_shared sorts these structs, so that streams with the same file are adjacent. */
struct named {
    struct plan_stream *stream;
    const struct plan_worker *worker;
};

/* Compare by file, then by rank, so that an error always names the same two ranks. */
static int by_file(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    const int order = strcmp(x->stream->file, y->stream->file);
    return order != 0 ? order : x->worker->local_rank - y->worker->local_rank;
}

/* Mark two streams with the same file as shared. Return DDP_ERR_ARG if the streams belong to different workers and
 * --log_merge is not set. */
static ddp_status share(const struct plan *plan, struct named *a, struct named *b, struct ddp_err *err)
{
    a->stream->shared = b->stream->shared = true;
    if (a->worker == b->worker || plan->cli->log_merge)
        return DDP_OK;
    return ddp_fail(
        err, DDP_ERR_ARG,
        "--log_file=%s: local ranks %d and %d would write to the same file, %s; add %%r (rank), or "
        "use --log_merge to write whole lines of several workers to one file",
        plan->cli->log_file, a->worker->local_rank, b->worker->local_rank, a->stream->file);
}

/* Find streams that have the same file. Only --log_file can give two streams the same file. */
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

static void set_round(struct plan *plan, const struct plan_round *round)
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

/* Set the files of filtered lines. As in torchrun, these files are beside the workers' directories. */
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

/* Apply a round. Build the file names again, because a file name may contain the attempt or a rank. */
ddp_status plan_round(struct plan *plan, const struct plan_round *round, struct ddp_err *err)
{
    set_round(plan, round);
    if (!plan_filtered(plan) || !plan_set_flight(plan))
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for attempt %d", round->attempt);
    for (int r = 0; r < plan->nproc; r++) {
        struct plan_worker *w = &plan->workers[r];
        plan_output_free(w);
        w->rank = round->first_rank + r;
        if (!plan_output(plan, w))
            return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for attempt %d with %d workers",
                            round->attempt, plan->nproc);
    }
    return plan->cli->log_file != NULL ? find_shared(plan, err) : DDP_OK;
}
