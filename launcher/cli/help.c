/* help.c -- formats --help, the manual page and the completion scripts of shells, from the rows of options.h. The
 * parser uses the same rows, so a new option appears in all three texts without a change here. */
#include "base/events.h"
#include "cli/cli.h"
#include "ddp/context.h"
#include "diagnosis/findings.h"
#include "base/exit_codes.h"
#include "tables/prefix.h"
#include "tables/signals.h"
#include "tables/worker_env.h"

#include <stdio.h>
#include <string.h>

const struct completion_command cli_commands[COMMANDS] = {
#define X(id, name, arguments, help) { name, help, false },
    DDPRUN_COMMANDS(X)
#undef X
};

static const char *const command_arguments[COMMANDS] = {
#define X(id, name, arguments, help) arguments,
    DDPRUN_COMMANDS(X)
#undef X
};

/* Append the script with which a shell completes ddprun's options, for --print_completion:
 *
 *     ddprun --print_completion=bash >/etc/bash_completion.d/ddprun */
bool cli_print_completion(const struct cli *cli, struct buf *out)
{
    const struct completion c = { .program = cli->torchrun ? "torchrun" : "ddprun",
                                  .options = &cli_table,
                                  .commands = cli_commands,
                                  .n_commands = COMMANDS,
                                  .program_follows = true };
    return completion_print(cli->completion, &c, out);
}

/* --- cli help --------------------------------------------------------------------------------------------- */

/* --help and the manual page. The texts are made from the tables below, which also determine what ddprun does. So the
 * texts always match the program.
 *
 *     options.h     -> options, their defaults, PET_* names        worker_env.h -> a worker's environment
 *     exit_codes.h  -> exit status                                 examples[]   -> the examples
 *     diagnosis/findings.h -> findings about a job         base/events.h -> what --events writes
 *
 * The manual page is not a file in the repository: `make install` runs the program to print it, so the page always
 * belongs to the installed version. Each function appends to a buffer, which main.c prints, and returns false if memory
 * is short.
 *
 * Options are shown with underscores, as torchrun's users type them. */

static const char *const section_titles[SECTIONS] = {
#define X(id, title) title,
    OPTION_SECTIONS(X)
#undef X
};

static const struct {
    const char *command, *what;
} examples[] = {
    { "ddprun --nproc_per_node=4 ./train --epochs 2", "four workers on this machine" },
    { "ddprun train.py", "a PyTorch script, one worker per visible GPU" },
    { "ddprun -m package.module args", "a Python module" },
    { "ddprun --nproc_per_node=2 --log_dir=logs ./train", "write each worker's output also to files" },
    { "ddprun --nproc_per_node=8 --dry_run ./train", "print the plan, and start nothing" },
    { "ddprun explain NODE_MISSING", "the meaning and remedy of a finding, an exit code or a signal" },
    { "srun --nodes=4 --ntasks-per-node=1 ddprun ./train", "one ddprun on each of four nodes of Slurm" },
    { "ddprun --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 ./train", "start the second of two nodes" },
    { "ddprun --nnodes=2:4 --rdzv_endpoint=10.0.0.1 --rdzv_id=job7 ./train",
      "elastic job: run this command on each of the two to four nodes" },
};
enum { EXAMPLES = sizeof(examples) / sizeof(examples[0]) };

/* The options that --help explains; --help=all explains every option. */
static const enum cli_option important[] = { OPT_NPROC_PER_NODE, OPT_STANDALONE,   OPT_NNODES,
                                             OPT_NODE_RANK,      OPT_HOSTS,        OPT_RDZV_ENDPOINT,
                                             OPT_MODULE,         OPT_MAX_RESTARTS, OPT_LOG_DIR,
                                             OPT_DRY_RUN };
enum { IMPORTANT = sizeof(important) / sizeof(important[0]), SHORT_EXAMPLES = 3 };

/* Append a section, with its options in the order of the table. */
static bool help_section(struct buf *out, const struct cli *cli, enum cli_section section)
{
    bool ok = buf_printf(out, "\n%s:\n", section_titles[section]);
    for (int i = 0; i < OPTIONS; i++)
        if (cli_rows[i].group == section)
            ok = ok && options_help_row(&cli_table, &cli_rows[i], cli_preset(cli, (enum cli_option)i), out);
    return ok;
}

static bool help_all_sections(struct buf *out, const struct cli *cli)
{
    bool ok = true;
    for (int s = 0; s < SECTIONS; s++)
        ok = ok && help_section(out, cli, (enum cli_section)s);
    return ok;
}

static bool is_important(int option)
{
    for (int i = 0; i < IMPORTANT; i++)
        if (important[i] == (enum cli_option)option)
            return true;
    return false;
}

/* Append the names of the options that help_important has not explained, one paragraph for each section. */
static bool help_other_names(struct buf *out)
{
    bool ok = buf_printf(out, "\nMore options (--help=all explains all of them):\n");
    for (int s = 0; s < SECTIONS; s++) {
        struct buf names = { 0 };
        for (int i = 0; i < OPTIONS; i++)
            if (cli_rows[i].group == s && !is_important(i) && cli_rows[i].help != NULL)
                ok = ok && buf_printf(&names, "--%s ", cli_rows[i].name);
        ok = ok && buf_printf(out, "  %s: ", section_titles[s]) && buf_append(&names, "", 1) &&
             options_wrap(out, (const char *)names.data, 4 + strlen(section_titles[s]), 4);
        buf_free(&names);
    }
    return ok;
}

static bool help_important(struct buf *out, const struct cli *cli)
{
    bool ok = buf_printf(out, "\nMost important options:\n");
    for (int i = 0; i < IMPORTANT; i++)
        ok = ok && options_help_row(&cli_table, &cli_rows[important[i]], cli_preset(cli, important[i]), out);
    return ok && help_other_names(out);
}

static const char purpose[] =
    "Start the workers of a data-parallel job on this machine, forward their output, and stop all "
    "workers if one fails. All arguments after PROGRAM go to PROGRAM.";
static const char rules[] =
    "Option names may be shortened, and a dash is the same as an underscore. The variable PET_<NAME> "
    "sets the default of --<NAME>; for a switch, use 1 or 0. ddprun exits with the code of the worker "
    "that failed first; ddprun --print_man lists all exit codes.";

bool cli_print_command_help(enum cli_command command, struct buf *out)
{
    return buf_printf(out, "Usage: ddprun %s %s\n\n", cli_commands[command].name,
                      command_arguments[command]) &&
           options_wrap(out, cli_commands[command].help, 0, 0);
}

static bool help_usage(struct buf *out, const char *name)
{
    struct buf commands = { 0 };
    const size_t column = strlen("Usage: ");
    bool ok = buf_printf(out, "Usage: %s [options] PROGRAM [args...]\n%*s", name, (int)column, "");
    for (int i = 0; i < COMMANDS; i++)
        ok = ok && buf_printf(&commands, "%s%s %s %s", i > 0 ? ", or " : "", name, cli_commands[i].name,
                              command_arguments[i]);
    ok = ok && buf_append(&commands, "", 1) &&
         options_wrap(out, (const char *)commands.data, column, column) && buf_printf(out, "\n");
    buf_free(&commands);
    return ok;
}

bool cli_print_help(const struct cli *cli, struct buf *out)
{
    const char *name = cli->torchrun ? "torchrun" : "ddprun";
    const bool all = cli->help == HELP_ALL;
    bool ok = help_usage(out, name) && options_wrap(out, purpose, 0, 0) &&
              (all ? help_all_sections(out, cli) : help_important(out, cli)) && buf_printf(out, "\n") &&
              options_wrap(out, rules, 0, 0) && buf_printf(out, "\nExamples:\n");
    for (int i = 0; i < (all ? EXAMPLES : SHORT_EXAMPLES); i++)
        ok = ok && (all ? buf_printf(out, "  %s\n      %s\n", examples[i].command, examples[i].what)
                        : buf_printf(out, "  %s  # %s\n", examples[i].command, examples[i].what));
    return ok;
}

/* --- manual page ---------------------------------------------------------------------------------------- */

/* Append an entry: the tag in bold, then the text. */
static bool man_entry(struct buf *out, const char *tag, const char *text)
{
    return buf_printf(out, ".TP\n\\fB") && options_roff(out, tag) && buf_printf(out, "\\fR\n") &&
           options_roff(out, text) && buf_printf(out, "\n");
}

/* Append the options, in the sections and the order of --help. */
static bool man_options(struct buf *out)
{
    bool ok = buf_printf(out, ".SH OPTIONS\n");
    for (int s = 0; s < SECTIONS; s++) {
        ok = ok && buf_printf(out, ".SS %s\n", section_titles[s]);
        for (int i = 0; i < OPTIONS; i++)
            if (cli_rows[i].group == s)
                ok = ok && options_man_row(&cli_table, &cli_rows[i], out);
    }
    return ok;
}

/* Variables that ddprun reads, besides PET_* and the variables of schedulers. */
static const struct {
    const char *name, *use;
} read_variables[] = {
    { "CUDA_VISIBLE_DEVICES", "the GPUs of the workers" },
    { "HIP_VISIBLE_DEVICES", "the GPUs of the workers, for --virtual_local_rank on AMD" },
    { "VIRTUAL_ENV, PYTHON_EXEC",
      "Scripts and modules run under the first Python that exists: the Python of the active virtual "
      "environment, the Python of the virtual environment that contains ddprun, PYTHON_EXEC, python3 in "
      "PATH. --dry_run prints which Python is used." },
    { "TMPDIR",
      "directory of temporary log files. ddprun uses the first usable directory of TMPDIR, /tmp and "
      "/var/tmp. If another user can replace files in TMPDIR, ddprun does not use TMPDIR." },
    { "XDG_RUNTIME_DIR",
      "directory of ddprun's runtime files. ddprun uses the first usable directory of XDG_RUNTIME_DIR, "
      "/run/user/UID, /tmp, TMPDIR and /var/tmp. If another user can replace files in XDG_RUNTIME_DIR, "
      "ddprun does not use XDG_RUNTIME_DIR." },
    { "TORCHELASTIC_ERROR_FILE",
      "path to which ddprun copies the error file of the worker that failed first" },
    { "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "default of --log_line_prefix_template" },
    { "NO_COLOR", "any value except an empty one disables colours; TERM=dumb also disables colours" },
    { "DDP_MUNGE_LIBRARY", "file of libmunge (default: libmunge.so.2)" },
};
enum { READ_VARIABLES = sizeof(read_variables) / sizeof(read_variables[0]) };

/* Append the variables that ddprun reads, then the variables that ddprun sets for each worker (worker_env.h). */
static bool man_environment(struct buf *out)
{
    bool ok = buf_printf(
        out,
        ".SH ENVIRONMENT\nA variable PET_<NAME> sets the default of the option NAME. For a switch, 0 means "
        "off and any other integer means on. An empty PET_<NAME> is ignored.\n.PP\nddprun also reads:\n");
    for (int i = 0; i < READ_VARIABLES; i++)
        ok = ok && man_entry(out, read_variables[i].name, read_variables[i].use);
    ok = ok && buf_printf(out, ".PP\nddprun sets for each worker:\n");
#define X(name, format, value, when, text) ok = ok && man_entry(out, #name, text);
    WORKER_ENV_LIST(X)
#undef X
    return ok;
}

static bool man_exit_codes(struct buf *out)
{
    char code[16];
    bool ok = buf_printf(out, ".SH EXIT STATUS\n");
#define X(number, name, text, ...)              \
    snprintf(code, sizeof(code), "%d", number); \
    ok = ok && man_entry(out, code, text);
    EXIT_CODE_LIST(X)
#undef X
    return ok && man_entry(out, "other", EXIT_CODE_OTHER_MEANING);
}

/* Append how ddprun, its agent and a worker react to each signal. */
static bool man_signals(struct buf *out)
{
    bool ok = buf_printf(
        out, ".SH SIGNALS\nA signal may reach ddprun, its agent process (ddprun's only child, which "
             "starts the workers), or a worker. Signals that are ignored when ddprun starts (nohup) stay "
             "ignored. If a signal stops the job, ddprun reports the process id and the user id of its "
             "sender. --signals_to_handle makes more signals stop the job.\n");
#define X(name, act, may_stop, guardian, agent, worker) \
    ok = ok && man_entry(out, "SIG" #name, "ddprun: " guardian ". Agent: " agent ". Worker: " worker ".");
    SIGNAL_LIST(X)
#undef X
    return ok;
}

static bool man_prefix_fields(struct buf *out)
{
    bool ok =
        buf_printf(out, ".SH PREFIX\nFields of \\-\\-log_line_prefix_template are written ${name} or $name; "
                        "$$ is a dollar sign.\n");
#define X(id, name, meaning) ok = ok && man_entry(out, name, meaning);
    PREFIX_FIELDS(X)
#undef X
    return ok;
}

static bool man_findings(struct buf *out)
{
    return buf_printf(out, ".SH FINDINGS\nddprun reports a finding if a job does not start, hangs or fails. "
                           "Each finding has a "
                           "code. `ddprun explain CODE` explains the finding.\n") &&
           findings_print_man(out);
}

/* Append how ddprun chooses a scheduler, and one entry for each scheduler. */
static bool man_schedulers(struct buf *out)
{
    bool ok = buf_printf(
        out,
        ".SH SCHEDULERS\nIf a scheduler has started ddprun, the variables of the scheduler set the options "
        "that are "
        "neither on the command line nor in PET_* variables. "
        "The list below is in order: ddprun uses the first scheduler that has its variables set. "
        "\\-\\-explain prints each value and its origin. \\-\\-scheduler=none ignores the scheduler. Start "
        "one ddprun on each node (srun \\-\\-ntasks\\-per\\-node=1 ddprun ...), or one ddprun in each task "
        "with \\-\\-per_task.\n");
#define X(id, name, title, rule, sets) ok = ok && man_entry(out, name, title ": " rule ". Sets " sets ".");
    SCHEDULERS(X)
#undef X
    return ok;
}

/* Append the names of the events; the schema describes their members. */
static bool man_events(struct buf *out)
{
    bool ok = buf_printf(
        out, ".SH EVENTS\n\\-\\-events writes one JSON object per line. Each object has the members event, "
             "time (UTC) and job; the other members depend on the event. store_ms is the store's monotonic "
             "clock, the same on all nodes, and ms is the monotonic clock of this host. "
             "share/ddprun/events.schema.json describes all members. If a log cannot be written, ddprun "
             "prints one warning and the job continues. The events of the store are in the log of one node "
             "only: ");
#define X(name, word) ok = ok && buf_printf(out, "%s, ", word);
    EVENTS_OF_RENDEZVOUS(X)
    EVENTS_OF_STORE(X)
    out->len -= ok ? strlen(", ") : 0;
    ok = ok &&
         buf_printf(out, ". Each node also writes its own events, with the number of the round if a round "
                         "has begun: ");
    EVENTS_OF_AGENT(X)
#undef X
    out->len -= ok ? strlen(", ") : 0;
    return ok && buf_printf(out, ". 'ddpctl timeline' draws all events.\n");
}

static bool man_commands(struct buf *out)
{
    char tag[64];
    bool ok = buf_printf(
        out, ".SH COMMANDS\nA command is the first argument of ddprun. If a program has the same name as a "
             "command, write ./NAME to start the program.\n");
    for (int i = 0; i < COMMANDS; i++) {
        snprintf(tag, sizeof(tag), "%s %s", cli_commands[i].name, command_arguments[i]);
        ok = ok && man_entry(out, tag, cli_commands[i].help);
    }
    return ok;
}

static bool man_examples(struct buf *out)
{
    bool ok = buf_printf(out, ".SH EXAMPLES\n");
    for (int i = 0; i < EXAMPLES; i++)
        ok = ok && man_entry(out, examples[i].command, examples[i].what);
    return ok;
}

static bool man_torchrun(struct buf *out)
{
    return buf_printf(
        out,
        ".SH TORCHRUN\nOptions, variables and log directories of PyTorch's torchrun work as in torchrun. "
        "'ddprun shim DIR' creates a command torchrun in DIR that starts ddprun. Under the name torchrun, "
        "ddprun has torchrun's defaults: one worker starts; Python runs every program, unless "
        "\\-\\-no_python is given; SIGQUIT stops the job; the scheduler is ignored; only streams in "
        "\\-\\-tee have a prefix; \\-\\-log_dir alone redirects nothing; with \\-\\-master_port, "
        "\\-\\-rdzv_endpoint or \\-\\-rdzv_backend=c10d, but without \\-\\-standalone, the job id is 'none'. "
        "ddprun rejects etcd and Python plug\\-ins, and cannot join a rendezvous of "
        "torchrun's own agents.\n");
}

bool cli_print_man(struct buf *out)
{
    return buf_printf(out, ".TH DDPRUN 1 \"%s\" \"ddprun %s\" \"User Commands\"\n", DDP_VERSION_DATE,
                      DDP_VERSION) &&
           buf_printf(
               out,
               ".SH NAME\nddprun \\- start the workers of a data\\-parallel job\n"
               ".SH SYNOPSIS\n.B ddprun\n[\\fIoptions\\fR] \\fIPROGRAM\\fR [\\fIargs\\fR...]\n"
               ".SH DESCRIPTION\n"
               "ddprun starts one process per GPU, or as many as requested, with torchrun's environment. It "
               "hosts the store through which the processes connect, and forwards their output line by line. "
               "When "
               "one process fails, ddprun stops all processes. The report at the end names the first "
               "failure. "
               "ddprun exits with the exit code of the first failure.\n.PP\n"
               "ddprun passes a first SIGINT, SIGTERM or SIGHUP on to the workers, which then have the grace "
               "period (--grace) to end. If another of these signals follows, ddprun kills the workers. "
               "However, a SIGHUP after a SIGHUP has no effect. SIGQUIT (Ctrl-\\e) prints what each worker "
               "does. No process of the job is left "
               "behind.\n"
               ".PP\nIn option names, dashes and underscores are equal. A name may be shortened if only "
               "one option begins with the short form. All arguments after PROGRAM go to PROGRAM.\n") &&
           man_options(out) && man_commands(out) && man_environment(out) && man_exit_codes(out) &&
           man_signals(out) && man_torchrun(out) && man_prefix_fields(out) && man_events(out) &&
           man_schedulers(out) && man_findings(out) && man_examples(out) &&
           buf_printf(out, ".SH SEE ALSO\n.BR ddpctl (1),\n.BR libddp (3),\n.BR ddp\\-rendezvous (8)\n");
}
