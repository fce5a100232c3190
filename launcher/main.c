/* main.c -- the steps of ddprun from the command line to the exit code; each function is one step, and calls the module
 * that does the work. The plan is made before the first fork. The environment, the wall clock, random numbers and facts
 * about the machine are read here once, so that the plan is a pure function of these values. */
#include "auth/secret.h"
#include "contain/job_record.h"
#include "base/syscalls.h"
#include "tables/text.h"
#include "node/guardian.h"
#include "net/store_host.h"
#include "remote/remote.h"
#include "report/host_checks.h"
#include "plan/plan.h"
#include "plan/worker.h"
#include "base/exit_codes.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/options.h"
#include "base/text.h"
#include "diagnosis/findings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Sizes of texts in bytes. All sizes except NONCE_CHARS include the NUL. */
enum { NONCE_CHARS = 8, HOST_MAX = 256, START_TIME_MAX = 32, TMP_NOTE_MAX = SAFE_DIR_WHY_MAX + 64 };

/* Facts about this machine. Each fact is read only once. `struct plan_facts` points to these facts. */
struct machine_facts {
    char nonce[NONCE_CHARS + 1];     /* random letters for file names and for the id of the job */
    char cookie[COOKIE_CHARS + 1];   /* see make_cookie(); "" if no random numbers are available */
    char directory[PATH_MAX + 1];    /* working directory, with a slash at the end; "" if unknown */
    char start_time[START_TIME_MAX]; /* see write_start_time(); "" without --log_file */
    char error_stem[PATH_MAX];       /* start of the paths of the error files; "" without such files */
    char tmp_dir[PATH_MAX];          /* log directory if --log_dir is not set; "" if no directory is safe */
    char tmp_note[TMP_NOTE_MAX];     /* why ddprun does not use $TMPDIR (or /tmp if TMPDIR is not set); "" if
                                      * ddprun uses this directory */
    struct python_paths python;
    bool has_torch; /* `torch` contains the result of check_torch() */
    struct torch_version torch;
};

/* Print an error that prevents the start of the job. Return 2 for an error of the user, as Python's argparse does,
 * and 125 for an error of ddprun. */
static int cannot_begin(const struct ddp_err *err)
{
    log_error("%s", err->msg);
    if (err->code != DDP_ERR_ARG)
        return EXIT_CODE_DDPRUN;
    fprintf(stderr, "Try 'ddprun --help'.\n");
    return EXIT_CODE_USAGE;
}

/* Print requested text to stdout, and free the text. Return the exit code. */
static int print_out(bool made, struct buf *out)
{
    return print_stdout(made, out) ? EXIT_CODE_OK : EXIT_CODE_DDPRUN;
}

static int print_prefix(void)
{
    struct buf out = { 0 };
    char prefix[PATH_MAX];
    if (own_prefix(prefix))
        return print_out(buf_printf(&out, "%s\n", prefix), &out);
    log_error("--print_prefix: ddprun has no prefix, because its directory is not called bin; install ddprun "
              "with make install PREFIX=DIR");
    return EXIT_CODE_DDPRUN;
}

static int make_secret(const char *path)
{
    struct ddp_err err;
    if (secret_write(path, &err) == DDP_OK)
        return EXIT_CODE_OK;
    log_error("--make_secret=%s", err.msg);
    return EXIT_CODE_DDPRUN;
}

static int print_info(const struct cli *cli)
{
    struct buf out = { 0 };
    if (cli->completion != SHELL_NONE)
        return print_out(cli_print_completion(cli, &out), &out);
    if (cli->print_prefix)
        return print_prefix();
    if (cli->make_secret != NULL)
        return make_secret(cli->make_secret);
    if (cli->version)
        return print_out(version_print(&out, "ddprun", build_commit, cli->json), &out);
    return print_out(cli->help != HELP_NONE ? cli_print_help(cli, &out) : cli_print_man(&out), &out);
}

/* Write a text to stdout. If the text contains the scheduler's finding, and stdout is a terminal, end the text with the
 * hint. */
static int print_with_hint(bool made, struct buf *text, const struct scheduler *s)
{
    const char *code = s != NULL ? finding_code_name(s->finding.found.code) : NULL;
    log_on_terminal(isatty(STDOUT_FILENO) == 1);
    if (made && code != NULL && log_hint_is_due())
        made = buf_printf(text, "  (ddprun explain %s)\n", code);
    return print_out(made, text);
}

static int print_plan(const struct plan *plan)
{
    struct buf out = { 0 };
    return plan->cli->json ? print_out(plan_print_json(plan, &out), &out)
                           : print_with_hint(plan_print(plan, &out), &out, plan->facts->scheduler);
}

/* Write random text that is valid in a file name. If no random numbers are available, print a warning, and write the
 * same letter NONCE_CHARS times. */
static void make_nonce(char nonce[NONCE_CHARS + 1])
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyz012345"; /* 32 characters, one for each value of 5 bits */
    unsigned char bytes[NONCE_CHARS] = { 0 };
    if (sys_getrandom(bytes, sizeof(bytes), 0) < 0)
        log_warn("cannot get random numbers: %s; file names might not be unique", strerror(errno));
    for (int i = 0; i < NONCE_CHARS; i++)
        nonce[i] = letters[bytes[i] % 32];
    nonce[NONCE_CHARS] = '\0';
}

/* Write the random text that marks the environment of all workers of this job. By this text, the next start of ddprun
 * finds processes of this job that still run. Write "" if no random numbers are available. */
static void make_cookie(char cookie[COOKIE_CHARS + 1])
{
    unsigned char bytes[COOKIE_CHARS / 2];
    cookie[0] = '\0';
    if (sys_getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes))
        text_hex(cookie, bytes, sizeof(bytes));
}

/* Print the plan for --dry_run, or run the job. */
static int carry_out(struct plan *plan)
{
    struct ddp_err err;
    struct contain *contain;
    const struct contain_options options = { .kind = plan->cli->contain,
                                             .job = plan->job,
                                             .cookie = plan->facts->cookie,
                                             .dry_run = plan->cli->dry_run,
                                             .quiet = plan->cli->quiet };
    if (contain_open(&options, &contain, &err) != DDP_OK)
        return cannot_begin(&err);
    struct node_job job = { .plan = plan, .contain = contain };
    plan->contained_by = contain_words(contain);
    if (!plan->cli->dry_run && !plan->cli->quiet)
        host_warn(plan->nproc, plan->facts->host);
    int exit_code = plan->cli->dry_run ? print_plan(plan)
                                       : guardian_run(node_run, &job, plan->cli->stop_signals, contain);
    contain_close(contain);
    return exit_code;
}

/* Write the time of the start in UTC, such as "20240229T235959Z". Call this function only with --log_file, because the
 * C library reads the file of the time zone, which slows down the start. */
static void write_start_time(char text[START_TIME_MAX])
{
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) == NULL || strftime(text, START_TIME_MAX, "%Y%m%dT%H%M%SZ", &utc) == 0)
        text[0] = '\0';
}

/* Write the first part of the paths of the workers' error files. The file names begin with the cookie, so these files
 * are removed together with the job's record (contain/job_record.h). Write "" if the cookie is empty or no directory is
 * usable. */
static void write_error_stem(char stem[PATH_MAX], const char *cookie, bool dry_run)
{
    char dir[PATH_MAX];
    int fd = -1;
    stem[0] = '\0';
    if (cookie[0] != '\0' && (dry_run ? runtime_dir_find(dir) : (fd = runtime_dir_make(dir)) >= 0) &&
        (size_t)snprintf(stem, PATH_MAX, "%s/%.*s", dir, RUNTIME_NAME_DIGITS, cookie) >= PATH_MAX)
        stem[0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* Report an unsafe XDG_RUNTIME_DIR, such as the directory of another user after sudo -E. Do not report a missing
 * directory, because a missing directory is no risk. */
static void note_unsafe_runtime_dir(const char *error_stem)
{
    const char *dir = getenv("XDG_RUNTIME_DIR");
    char path[PATH_MAX], why[SAFE_DIR_WHY_MAX];
    if (dir != NULL && dir[0] == '/' && !safe_dir(dir, path, why) && access(dir, F_OK) == 0)
        log_info("XDG_RUNTIME_DIR is not used: %s; runtime files are in %.*s", why,
                 (int)(strrchr(error_stem, '/') - error_stem), error_stem);
}

/* Choose the first safe directory of $TMPDIR, /tmp and /var/tmp. A relative $TMPDIR is relative to the working
 * directory. Choose none if the job writes no file there, because checking a directory takes time in each start. */
static void choose_tmp_dir(struct machine_facts *l, const struct cli *cli)
{
    const bool has_log_files = cli_gives(cli, OPT_TEE) || cli_gives(cli, OPT_REDIRECTS);
    const char *variable = getenv("TMPDIR");
    const char *const usual[] = { variable != NULL && *variable != '\0' ? variable : "/tmp", "/tmp",
                                  "/var/tmp" };
    char why[SAFE_DIR_WHY_MAX];
    l->tmp_dir[0] = l->tmp_note[0] = '\0';
    if (l->error_stem[0] != '\0' && (cli->log_dir != NULL || !has_log_files))
        return;
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
        if (safe_dir(usual[i], l->tmp_dir, why))
            return;
        if (i == 0)
            snprintf(l->tmp_note, sizeof(l->tmp_note), "%s is not used for log files: %s",
                     usual[0] == variable ? "TMPDIR" : "/tmp", why);
    }
    l->tmp_dir[0] = '\0';
}

/* Make the plan. Read the machine's topology only for --numa_binding, because reading takes time. */
static ddp_status make_plan(struct plan *plan, const struct cli *cli, struct plan_facts *facts,
                            struct ddp_err *err)
{
    struct numa_source source;
    if (cli->numa_binding == NUMA_NONE)
        return plan_make(plan, cli, facts, err);
    ddp_status status = numa_source_open(&source, err);
    if (status != DDP_OK)
        return status;
    facts->numa = &source;
    status = plan_make(plan, cli, facts, err);
    facts->numa = NULL;
    numa_source_close(&source);
    return status;
}

/* Examine the PyTorch of a Python program. Do nothing if --torch_store already decides which store the workers use.
 * Search in the workers' environment, because --env may select another Python. Return true if PyTorch was found. */
static bool check_torch(const struct cli *cli, const struct python_choice *choice,
                        struct torch_version *torch)
{
    const char *python = program_python(cli, choice);
    const struct env_sources env = { cli->env.items, cli->env.n, environ };
    return cli->torch_store == TORCH_STORE_AUTO && python != NULL && torch_find(python, &env, torch);
}

/* Choose the Python of the workers. Return NULL if the program is not a Python script or module. The result points
 * into *paths. */
static const struct python_choice *choose_python(const struct cli *cli, struct python_paths *paths)
{
    const struct env_sources env = { cli->env.items, cli->env.n, environ };
    if (cli->program != NULL && !program_needs_python(cli))
        return NULL;
    python_find(paths, &env);
    return &paths->choice;
}

/* Read all facts about this machine, before the plan is made. */
static void read_machine_facts(struct machine_facts *l, const struct cli *cli)
{
    make_nonce(l->nonce);
    make_cookie(l->cookie);
    if (getcwd(l->directory, PATH_MAX) == NULL || l->directory[0] != '/')
        l->directory[0] = '\0';
    else if (l->directory[1] != '\0')
        strcat(l->directory, "/");
    l->start_time[0] = '\0';
    if (cli->log_file != NULL)
        write_start_time(l->start_time);
    write_error_stem(l->error_stem, l->cookie, cli->dry_run);
    choose_tmp_dir(l, cli);
    l->python.choice.program = NULL;
    l->has_torch = check_torch(cli, choose_python(cli, &l->python), &l->torch);
}

/* Return the facts in the form that the plan needs. An empty text becomes NULL. */
static struct plan_facts facts_of(const struct machine_facts *l, const struct scheduler *scheduler,
                                  const char *host, const struct cli *cli)
{
    return (struct plan_facts){ .environ_block = environ,
                                .physical_gpus = gpu_count(),
                                .cpus = cpu_count(),
                                .host = host,
                                .terminal = isatty(STDERR_FILENO) && !cli->detach,
                                .cookie = l->cookie[0] != '\0' ? l->cookie : NULL,
                                .directory = l->directory[0] != '\0' ? l->directory : NULL,
                                .nonce = l->nonce,
                                .start_time = l->start_time,
                                .tmp_dir = l->tmp_dir[0] != '\0' ? l->tmp_dir : NULL,
                                .tmp_note = l->tmp_note[0] != '\0' ? l->tmp_note : NULL,
                                .scheduler = scheduler,
                                .python = l->python.choice.program != NULL ? &l->python.choice : NULL,
                                .torch = l->has_torch ? &l->torch : NULL,
                                .error_stem = l->error_stem[0] != '\0' ? l->error_stem : NULL };
}

/* Continue in the background if --detach was given. In the process that must run the job, return -1. In the process
 * that the user has started, return an exit code. */
static int detach(const struct cli *cli, char *const *argv, const char *id)
{
    const struct detached_job job = { .id = id, .rdzv_id = cli->job, .argv = argv, .quiet = cli->quiet };
    return cli->detach && !cli->one_console && !cli->dry_run ? detach_begin(&job) : -1;
}

/* Run a job on this node: read the facts about this machine, make the plan, and execute the plan. Check --local_addr
 * first, because this check needs no plan. */
static int run_job(const struct cli *cli, char *const *argv, const struct scheduler *scheduler,
                   const char *host)
{
    static struct machine_facts machine; /* static, because a large frame costs page faults */
    struct ddp_err err;
    struct plan plan;
    if (cli->local_addr != NULL && own_address_check(cli->local_addr, &err) != DDP_OK)
        return cannot_begin(&err);
    read_machine_facts(&machine, cli);
    struct plan_facts facts = facts_of(&machine, scheduler, host, cli);
    if (make_plan(&plan, cli, &facts, &err) != DDP_OK)
        return cannot_begin(&err);
    if (plan.log_root == NULL && facts.error_stem == NULL && !cli->quiet)
        log_warn("workers cannot write error files: no directory is safe; set XDG_RUNTIME_DIR, TMPDIR or "
                 "--log_dir to a directory of this user");
    if (facts.error_stem != NULL && !cli->quiet && !cli->dry_run)
        note_unsafe_runtime_dir(facts.error_stem);
    int exit_code = detach(cli, argv, machine.nonce);
    if (exit_code < 0)
        exit_code = carry_out(&plan);
    plan_free(&plan);
    return exit_code;
}

static int print_scheduler_values(const struct scheduler *s, const struct cli *cli)
{
    struct buf out = { 0 };
    struct python_paths paths;
    const struct python_choice *python = choose_python(cli, &paths);
    return cli->json ? print_out(scheduler_print_json(s, cli, python, &out), &out)
                     : print_with_hint(scheduler_print(s, cli, python, &out), &out, s);
}

/* Print the values of the scheduler to stderr, for --verbose. stdout belongs to the workers. */
static void log_scheduler_values(const struct scheduler *s, const struct cli *cli)
{
    struct buf out = { 0 };
    if (scheduler_print(s, cli, NULL, &out))
        fwrite(out.data, 1, out.len, stderr);
    buf_free(&out);
}

/* End a task because the layout of the scheduler's tasks is wrong for ddprun. Only one task of each node prints the
 * finding. */
static int cannot_be_meant(const struct scheduler_finding *f)
{
    if (!f->mine)
        return EXIT_CODE_USAGE;
    log_error("%s", f->found.sentence);
    fprintf(stderr, "  try      %s\n  finding  %s\n", f->found.advice, finding_code_name(f->found.code));
    if (log_hint_is_due())
        fprintf(stderr, "  (ddprun explain %s)\n", finding_code_name(f->found.code));
    return EXIT_CODE_USAGE;
}

/* Set the options that the user has not set, if the scheduler provides values for these options. */
static ddp_status ask_scheduler(struct scheduler *s, struct cli *cli, const char *host, struct ddp_err *err)
{
    char *file = scheduler_read_file(scheduler_file(environ), NULL);
    const struct env_sources env = { cli->env.items, cli->env.n, environ };
    const struct scheduler_facts facts = { .environ_block = environ,
                                           .host = host,
                                           .file = file,
                                           .per_task = cli->per_task,
                                           .visible = env_sources_find(&env, "CUDA_VISIBLE_DEVICES") };
    ddp_status status = scheduler_read(s, cli->scheduler, &facts, err);
    if (status == DDP_OK)
        status = scheduler_apply(s, cli, err);
    free(file);
    return status;
}

/* --- --hosts: the starter, which starts one ddprun on each host ---------------------------------------------- */

/* Read the list of --hosts or --hostfile. The caller frees job->hosts. */
static ddp_status read_hosts(const struct cli *cli, struct starter_job *job, struct ddp_err *err)
{
    char reason[WRITE_ERROR_MAX];
    struct ddp_err why;
    if (cli->hosts != NULL) {
        const ddp_status status = host_specs_parse(cli->hosts, &job->hosts, &job->n, &why);
        return status == DDP_OK ? status : ddp_fail(err, status, "--hosts=%.200s: %s", cli->hosts, why.msg);
    }
    size_t len = 0;
    char *text = scheduler_read_file(cli->hostfile, &len);
    struct stat st;
    const bool is_directory = stat(cli->hostfile, &st) == 0 && S_ISDIR(st.st_mode);
    if (text == NULL && (is_directory || access(cli->hostfile, R_OK) != 0))
        return ddp_fail(
            err, DDP_ERR_ARG, "--hostfile=%.200s: cannot read the file: %s", cli->hostfile,
            path_error_text(is_directory ? EISDIR : errno, cli->hostfile, "check the path", reason));
    if (text == NULL)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "--hostfile=%.200s: cannot read the file: not a plain file, or too long; check the path",
            cli->hostfile);
    const ddp_status status = host_specs_parse_file(slice_of(text, len), &job->hosts, &job->n, &why);
    free(text);
    return status == DDP_OK ? status : ddp_fail(err, status, "--hostfile=%.200s: %s", cli->hostfile, why.msg);
}

/* Start the job on the hosts. With --dry_run, only print the commands. The starter process runs under a guardian, as
 * an agent does. When the starter ends, the guardian kills the remaining remote shells. */
static int start_hosts(const struct cli *cli, const struct starter_job *job)
{
    struct ddp_err err;
    struct contain *contain;
    const struct contain_options options = { .kind = CONTAIN_PLAIN,
                                             .job = job->facts->job,
                                             .quiet = cli->quiet };
    if (cli->dry_run) {
        struct buf out = { 0 };
        const bool ok = start_print(job->facts, job->hosts, job->n, cli->json, &out);
        return print_out(ok, &out);
    }
    const int detached = detach(cli, job->facts->argv, job->facts->job);
    if (detached >= 0)
        return detached;
    if (contain_open(&options, &contain, &err) != DDP_OK)
        return cannot_begin(&err);
    const int exit_code = guardian_run(starter_run, (void *)job, cli->stop_signals, contain);
    contain_close(contain);
    return exit_code;
}

/* Read the soft limits of this process. ddprun applies these limits on every host, because a remote shell may have
 * different limits. */
static void read_limits_for_hosts(double limits[REMOTE_LIMIT_COUNT])
{
#define X(id, ...)                                                                       \
    {                                                                                    \
        struct rlimit limit = { .rlim_cur = 0 };                                         \
        getrlimit(RLIMIT_##id, &limit);                                                  \
        limits[REMOTE_LIMIT_##id] =                                                      \
            limit.rlim_cur == RLIM_INFINITY ? REMOTE_UNLIMITED : (double)limit.rlim_cur; \
    }
    REMOTE_LIMITS(X)
#undef X
}

/* Map this program into memory, for --ship. */
static ddp_status map_program(struct start_facts *facts, struct utsname *name, struct ddp_err *err)
{
    const char *why = ship_map(&facts->ship, &facts->ship_library);
    if (why != NULL || uname(name) != 0)
        return ddp_fail(err, DDP_ERR_IO,
                        "--ship: cannot send ddprun: %s; install ddprun on the hosts, and omit --ship",
                        why != NULL ? why : strerror(errno));
    facts->machine = name->machine;
    return DDP_OK;
}

/* Start the job on the hosts of --hosts. The job on the hosts gets the umask of this process. umask() returns the old
 * mask only when it sets a new mask, so set the old mask again at once. */
static int run_hosts(const struct cli *cli, char *const *argv, const char *host)
{
    char program[PATH_MAX], directory[PATH_MAX], nonce[NONCE_CHARS + 1];
    char log_name[RECORD_JOB_MAX + NONCE_CHARS + 1];
    struct ddp_err err;
    struct utsname name;
    const mode_t mask = umask(0);
    struct start_facts facts = { .cli = cli,
                                 .argv = argv,
                                 .environ_block = environ,
                                 .program = program,
                                 .directory = directory,
                                 .host = host,
                                 .job = nonce,
                                 .log_name = cli->collect_logs ? log_name : NULL,
                                 .umask = (int)mask,
                                 .terminal = isatty(STDERR_FILENO) == 1 && !cli->detach };
    struct starter_job job = { .facts = &facts };
    umask(mask);
    read_limits_for_hosts(facts.limits);
    make_nonce(nonce);
    snprintf(log_name, sizeof(log_name), "%s%s%s", cli->job != NULL ? cli->job : "",
             cli->job != NULL ? "_" : "", nonce);
    ddp_status status = read_hosts(cli, &job, &err);
    if (status == DDP_OK)
        status = start_check(cli, job.hosts, job.n, &err);
    if (status == DDP_OK && !own_program(program))
        status = ddp_fail(&err, DDP_ERR_IO, "/proc/self/exe: cannot find the file of ddprun: %s; mount /proc",
                          strerror(errno));
    if (status == DDP_OK && getcwd(directory, sizeof(directory)) == NULL)
        status = ddp_fail(&err, DDP_ERR_IO,
                          "working directory: cannot find its path: %s; change to an existing directory",
                          strerror(errno));
    if (status == DDP_OK && cli->ship)
        status = map_program(&facts, &name, &err);
    const int exit_code = status == DDP_OK ? start_hosts(cli, &job) : cannot_begin(&err);
    free(job.hosts);
    return exit_code;
}

/* Reject --hosts under a scheduler, because the scheduler itself starts one ddprun on each node. */
static int refuse_hosts(const struct scheduler *s, const struct cli *cli)
{
    const bool srun_helps = strcmp(s->name, "slurm") == 0 && !start_by_srun(cli);
    log_error("--hosts: this process runs under %s, which can itself start ddprun on all nodes; use '%s ...' "
              "without --hosts, or pass %s--scheduler=none",
              s->title, scheduler_launch(s), srun_helps ? "--remote_shell=srun or " : "");
    return EXIT_CODE_USAGE;
}

#define DETACH_UNDER                                                                         \
    "--detach: %s ends the job's processes when this process exits; omit --detach, or pass " \
    "--scheduler=none if no scheduler runs ddprun"

/* Reject --detach under a scheduler. With --detach this process exits early, and the scheduler then kills the other
 * processes of the job. */
static int refuse_detach(const struct scheduler *s)
{
    log_error(DETACH_UNDER, s->title);
    return EXIT_CODE_USAGE;
}

/* Make srun the remote shell in an allocation of Slurm. Keep the remote shell if the user has chosen one, or if srun
 * has started this process. If the remote shell is srun, by this choice or by the user's choice, ignore Slurm's
 * variables. These variables describe this process, not the tasks that srun will start. Exception: do not ignore these
 * variables in a step of several tasks, so that refuse_hosts() rejects --hosts. */
static ddp_status choose_srun(struct cli *cli, const char *host, struct ddp_err *err)
{
    const struct scheduler_facts facts = { .environ_block = environ, .host = host };
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    struct scheduler s;
    const ddp_status status = scheduler_read(&s, cli->scheduler, &facts, err);
    if (status != DDP_OK)
        return status;
    const bool outside_step = strcmp(s.name, "slurm") == 0 && s.reach == REACH_ONE;
    if (outside_step && !cli_gives(cli, OPT_REMOTE_SHELL) && !cli_gives(cli, OPT_SSH))
        cli->remote_shell = "srun";
    if (!start_by_srun(cli))
        return DDP_OK;
    if (getenv("SLURM_JOB_ID") == NULL)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--remote_shell=srun: not inside an allocation of Slurm; use 'salloc ...' or "
                        "'sbatch ...' first");
    if (cli->detach && s.kind >= 0)
        return ddp_fail(err, DDP_ERR_ARG, DETACH_UNDER, s.title);
    if (outside_step || tasks == NULL || atoi(tasks) <= 1)
        cli->scheduler = "none";
    return DDP_OK;
}

/* Read the scheduler's values, then check the combination of options, and start. Read the scheduler's values first,
 * because these values count as options. --explain prints the values even if the combination is wrong. */
static int begin(struct cli *cli, char *const *argv)
{
    char host[HOST_MAX] = "localhost";
    static struct scheduler scheduler; /* static, because a large frame costs page faults */
    struct ddp_err err;
    const bool hosts = (cli->hosts != NULL || cli->hostfile != NULL) && !cli->one_console;
    if (cli_gives(cli, OPT_WHY))
        log_warn("--why: this old name of --explain works only until ddprun 0.2; use --explain");
    gethostname(host, sizeof(host) - 1);
    /* If the starter used srun, this process runs in a step of one task. So ignore the variables of this step. */
    if (cli->one_console)
        cli->scheduler = "none";
    if (hosts && choose_srun(cli, host, &err) != DDP_OK)
        return cannot_begin(&err);
    if (ask_scheduler(&scheduler, cli, host, &err) != DDP_OK)
        return cannot_begin(&err);
    const int printed = cli->explain ? print_scheduler_values(&scheduler, cli) : EXIT_CODE_OK;
    if (cli->verbose && !cli->explain && !cli->json && scheduler.kind >= 0)
        log_scheduler_values(&scheduler, cli);
    if (hosts && scheduler.kind >= 0)
        return refuse_hosts(&scheduler, cli);
    if (scheduler.finding.fatal)
        return cli->explain ? EXIT_CODE_USAGE : cannot_be_meant(&scheduler.finding);
    if (cli_check(cli, &err) != DDP_OK)
        return cannot_begin(&err);
    if (cli->detach && scheduler.kind >= 0 && !cli->explain)
        return refuse_detach(&scheduler);
    if (hosts && !cli->explain)
        return run_hosts(cli, argv, host);
    return cli->explain ? printed : run_job(cli, argv, &scheduler, host);
}

/* --- ddprun shim -------------------------------------------------------------------------------------------- */

/* `ddprun shim DIR` creates the shim: a symbolic link to ddprun called torchrun, for front ends that start torchrun
 * from PATH. A link counts as a shim if it leads to this program or to a ddprun. In ddprun's own directory the link is
 * relative, so that the directory can be moved. */

#define SHIM "torchrun"
/* The kind of DIR/torchrun: nothing, a shim, another program, or unknown because DIR cannot be read. */
enum holder { HOLDS_NOTHING, HOLDS_SHIM, HOLDS_OTHER, HOLDS_UNKNOWN };

static ddp_status shim_fail(struct ddp_err *err, const char *what, const char *dir, const char *remedy)
{
    char why[WRITE_ERROR_MAX];
    return ddp_fail(err, DDP_ERR_IO, "shim %.300s: cannot %s: %s", dir, what,
                    path_error_text(errno, dir, remedy, why));
}

/* Return the kind of DIR/torchrun. If DIR/torchrun is a link, copy the target of the link to `target`. readlink fails
 * with EINVAL if DIR/torchrun is not a link. */
static enum holder shim_find_holder(int dir, char target[PATH_MAX])
{
    const ssize_t n = readlinkat(dir, SHIM, target, PATH_MAX - 1);
    if (n < 0)
        return errno == ENOENT ? HOLDS_NOTHING : errno == EINVAL ? HOLDS_OTHER : HOLDS_UNKNOWN;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    struct stat held, own;
    const bool is_own = fstatat(dir, SHIM, &held, 0) == 0 && stat("/proc/self/exe", &own) == 0 &&
                        held.st_dev == own.st_dev && held.st_ino == own.st_ino;
    return is_own || strcmp(slash != NULL ? slash + 1 : target, "ddprun") == 0 ? HOLDS_SHIM : HOLDS_OTHER;
}

static ddp_status shim_refuse(struct ddp_err *err, const char *dir, const char *remedy)
{
    return ddp_fail(err, DDP_ERR_IO,
                    "shim %.300s: the torchrun there is not a link to ddprun, so nothing was changed%s", dir,
                    remedy);
}

/* Return the target of the link: the file name of this program if the program is in DIR, else the program's path. */
static const char *shim_target(const char *whole_dir, const char *program)
{
    const char *slash = strrchr(program, '/');
    const size_t len = (size_t)(slash - program);
    return strlen(whole_dir) == len && memcmp(whole_dir, program, len) == 0 ? slash + 1 : program;
}

/* Create the link. If an older shim exists, replace this shim by a rename, so that torchrun exists at every moment. If
 * DIR has no torchrun, do not use a rename: a rename could overwrite a torchrun that is created meanwhile. */
static bool shim_link(int dir, const char *target)
{
    char old[PATH_MAX], fresh[64];
    if (shim_find_holder(dir, old) == HOLDS_NOTHING)
        return symlinkat(target, dir, SHIM) == 0;
    if (strcmp(old, target) == 0)
        return true;
    snprintf(fresh, sizeof(fresh), "." SHIM ".%d", (int)getpid());
    if (symlinkat(target, dir, fresh) != 0)
        return false;
    if (renameat(dir, fresh, dir, SHIM) == 0)
        return true;
    const int error = errno;
    unlinkat(dir, fresh, 0);
    errno = error;
    return false;
}

/* Return true if the first torchrun in PATH is the shim in `dir`. */
static bool shim_is_first(int dir)
{
    const struct env_sources env = { .inherited = environ };
    struct stat first, own;
    char path[PATH_MAX];
    return env_find_program(SHIM, &env, path) && lstat(path, &first) == 0 &&
           fstatat(dir, SHIM, &own, AT_SYMLINK_NOFOLLOW) == 0 && first.st_dev == own.st_dev &&
           first.st_ino == own.st_ino;
}

/* Write the shim in the directory `dir`. `fd` is a descriptor of this directory. */
static ddp_status shim_write_in(int fd, const char *dir, struct buf *out, struct ddp_err *err)
{
    char program[PATH_MAX], whole_dir[PATH_MAX], old[PATH_MAX];
    if (realpath(dir, whole_dir) == NULL || !own_program(program))
        return shim_fail(err, "find the path of this directory", dir, "");
    const enum holder holder = shim_find_holder(fd, old);
    if (holder == HOLDS_OTHER)
        return shim_refuse(err, dir, "; choose another directory");
    if (holder == HOLDS_UNKNOWN || !shim_link(fd, shim_target(whole_dir, program)))
        return shim_fail(err, "write " SHIM, dir, "choose another directory");
    const bool first = shim_is_first(fd);
    log_info("%s/" SHIM " starts %s%s", whole_dir, program,
             first ? "; the shell finds this torchrun first in PATH"
                   : "; to let the shell find this torchrun first, run this command (printed on stdout):");
    if (first ||
        (buf_printf(out, "export PATH=") && shell_word(out, whole_dir) && buf_printf(out, ":\"$PATH\"\n")))
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
}

/* Make DIR/torchrun start this ddprun. Create DIR if its parent exists. If DIR/torchrun is not the first torchrun in
 * PATH, append the shell line that puts DIR first. If DIR/torchrun is another program, return an error and change
 * nothing. */
static ddp_status shim_write(const char *dir, struct buf *out, struct ddp_err *err)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return shim_fail(err, "create this directory", dir,
                         errno == ENOENT ? "mkdir -p creates it" : "choose another directory");
    const int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return shim_fail(err, "open this directory", dir, "check the path");
    ddp_status status = shim_write_in(fd, dir, out, err);
    close(fd);
    return status;
}

/* Remove DIR/torchrun if it is a shim. */
static ddp_status shim_remove(const char *dir, struct ddp_err *err)
{
    char target[PATH_MAX];
    const int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return shim_fail(err, "open this directory", dir, "check the path");
    const enum holder holder = shim_find_holder(fd, target);
    ddp_status status = DDP_OK;
    if (holder == HOLDS_OTHER)
        status = shim_refuse(err, dir, "");
    else if (holder != HOLDS_SHIM || unlinkat(fd, SHIM, 0) != 0)
        status = shim_fail(err, "remove " SHIM, dir, "check the path");
    close(fd);
    return status;
}

/* --- commands: argv[0] is the command's name ----------------------------------------------------------------- */

static int run_EXPLAIN(int argc, char **argv)
{
    struct buf out = { 0 };
    struct ddp_err err;
    const bool first = argc > 1 && strcmp(argv[1], "--json") == 0;
    const bool json = first || (argc > 1 && strcmp(argv[argc - 1], "--json") == 0);
    const int words = argc - json;
    ddp_status status = words > 2
                            ? ddp_fail(&err, DDP_ERR_ARG,
                                       "explain: expected at most one code; 'ddprun explain' lists all codes")
                            : explain_code(words == 2 ? argv[1 + first] : NULL, json, &out, &err);
    if (status == DDP_OK)
        return print_out(true, &out);
    buf_free(&out);
    return cannot_begin(&err);
}

static int run_SHIM(int argc, char **argv)
{
    struct buf out = { 0 };
    struct ddp_err err;
    const bool removes = argc > 1 && strcmp(argv[1], "--remove") == 0;
    const char *dir = argc == 2 + removes ? argv[1 + removes] : "";
    ddp_status status;
    if (dir[0] == '\0' || dir[0] == '-')
        status = ddp_fail(&err, DDP_ERR_ARG, "shim: expected one directory: ddprun shim [--remove] DIR");
    else
        status = removes ? shim_remove(dir, &err) : shim_write(dir, &out, &err);
    return status == DDP_OK ? print_out(true, &out) : cannot_begin(&err);
}

static int run_LIST(int argc, char **argv)
{
    struct buf out = { 0 };
    struct ddp_err err;
    const bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if (argc == 1 || json)
        return print_out(detach_list(json, &out), &out);
    ddp_fail(&err, DDP_ERR_ARG, "list: expected --json or no argument");
    return cannot_begin(&err);
}

/* Run a command that takes the id of one job. */
static int run_with_job(int argc, char **argv, int (*run)(const char *id))
{
    struct ddp_err err;
    if (argc == 2 && argv[1][0] != '-')
        return run(argv[1]);
    ddp_fail(&err, DDP_ERR_ARG, "%s: expected the id of one job; 'ddprun list' shows the ids", argv[0]);
    return cannot_begin(&err);
}

static int run_ATTACH(int argc, char **argv)
{
    return run_with_job(argc, argv, detach_attach);
}

static int run_STOP(int argc, char **argv)
{
    return run_with_job(argc, argv, detach_stop);
}

/* Run the command that the first word names, such as "explain", and return its exit code. Return -1 if the first word
 * is not a command. */
static int run_command(int argc, char **argv)
{
    static int (*const run[COMMANDS])(int, char **) = {
#define X(id, ...) run_##id,
        DDPRUN_COMMANDS(X)
#undef X
    };
    struct buf out = { 0 };
    int i = 0;
    while (i < COMMANDS && strcmp(argv[0], cli_commands[i].name) != 0)
        i++;
    if (i == COMMANDS)
        return -1;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return print_out(cli_print_command_help((enum cli_command)i, &out), &out);
    return run[i](argc, argv);
}

/* Return true if the user sees the stderr of this process on a terminal. With --hosts, stderr is a pipe, and the starter
 * sets DDPRUN_TERMINAL. Remove this variable, because a worker would write control characters for a terminal. */
static bool is_on_terminal(const struct cli *cli)
{
    const char *value = cli->one_console ? getenv("DDPRUN_TERMINAL") : NULL;
    const bool shown = isatty(STDERR_FILENO) == 1 || (value != NULL && *value != '\0');
    if (cli->one_console)
        unsetenv("DDPRUN_TERMINAL");
    return shown;
}

int main(int argc, char **argv)
{
    struct cli cli;
    struct ddp_err err;

    log_setup("ddprun", LOG_INFO);
    keep_standard_fds();
    if (argc == FLIGHT_HELPER_WORDS && strcmp(argv[1], FLIGHT_HELPER_OPTION) == 0)
        return flight_helper_run(argc, argv);
    if (argc == PY_SPY_HELPER_WORDS && strcmp(argv[1], PY_SPY_HELPER_OPTION) == 0)
        return py_spy_helper_run(argv);
    const int command = argc > 1 ? run_command(argc - 1, argv + 1) : -1;
    if (command >= 0)
        return command;
    if (cli_read(&cli, argc, argv, environ, &err) != DDP_OK)
        return cannot_begin(&err);
    log_on_terminal(is_on_terminal(&cli) && !cli.detach);
    /* --ship starts this program as /proc/self/fd/N, so set the name that ps shows */
    if (cli.relay || cli.one_console)
        prctl(PR_SET_NAME, "ddprun");
    int exit_code = cli_only_prints(&cli) ? print_info(&cli) : cli.relay ? relay_run() : begin(&cli, argv);
    cli_free(&cli);
    return exit_code;
}
