/* options.c -- see options.h. The module is pure: it does not print or exit, and the caller passes the environment.
 * Each command is a row: its name, the CONTROL op that it sends, and the function that prints the answer. So a new
 * request needs only a row here, a row in hub/control.c, and a table of columns in tables.c. */

/* An example of a request:
 *
 *     ddpctl keys --prefix /ckpt --limit 10   ->   {"op":"keys","prefix":"/ckpt","limit":10} */

#include "ctl/options.h"

#include "ctl/tables.h"
#include "record/rank_set.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEFAULT_TIMEOUT_MS = 5000, MAX_TIMEOUT_S = 86400, HELP_COLUMN = 26 };

/* All commands. docs/protocol.md describes the answer to each op. */
static const struct ctl_command commands[] = {
    { "status", NULL, "the job, the state of each rank, and the size of the store", "status", false,
      ctl_format_status },
    { "jobs", NULL, "all jobs that the store serves", "jobs", false, ctl_format_jobs },
    { "rejects", NULL, "connections and nodes that were rejected", "rejects", false, ctl_format_rejects },
    { "why", NULL, "why the job does not start or continue, and the remedy", "why", false, ctl_format_why },
    { "top", NULL,
      "what each rank does; in jobs with --profile_ranks, also the share of time that the rank waits; "
      "--watch repeats the command",
      "status", false, ctl_format_top },
    { "stacks", NULL, "where the threads of each rank are: Python frames, or the state in the kernel",
      "stacks", false, ctl_format_stacks },
    { "keys", NULL, "the keys, their sizes, and the beginning of each value", "keys", false,
      ctl_format_keys },
    { "waiters", NULL, "clients that wait: for which keys or barrier, and for how long", "waiters", false,
      ctl_format_waiters },
    { "barriers", NULL, "the open barriers: ranks that arrived, missing ranks, and the time left", "barriers",
      false, ctl_format_barriers },
    { "cancel", "NAME", "cancel a named barrier: every waiting rank gets an error", "barrier_cancel", false,
      ctl_format_cancelled },
    { "timeline", "EVENTS...", "draw event logs (ddprun --events): joins, waits, exits", NULL, true, NULL },
    { "explain", "[CODE]",
      "print the meaning and remedy of a finding, an exit code or a signal, or list all codes", NULL, false,
      NULL },
    { "flight", "FILES...", "compare flight records: find ranks that are behind, or whose calls differ", NULL,
      false, ctl_format_flight },
    { 0 },
};

/* Parse an address. If `value` is only a port, the store is on this host, and the member `host` stays empty. Reject an
 * address without a port. There is no default port, because a job may use any port. */
static ddp_status parse_addr(const char *value, void *to, struct ddp_err *err)
{
    struct endpoint *addr = to;
    struct ddp_err why;
    if (endpoint_parse(value, 0, addr, &why) != DDP_OK)
        return ddp_fail(err, DDP_ERR_ARG, "HOST:PORT, or a port of this machine; %s", why.msg);
    if (addr->port == 0)
        return ddp_fail(err, DDP_ERR_ARG, "HOST:PORT, or a port of this machine");
    return DDP_OK;
}

/* Parse seconds. */
static ddp_status parse_timeout(const char *value, void *to, struct ddp_err *err)
{
    char *end;
    double seconds = strtod(value, &end);
    /* `!` before the range also rejects NaN, because every comparison with NaN is false */
    if (*value < '.' || *value > '9' || *end != '\0' || !(seconds >= 0.001 && seconds <= MAX_TIMEOUT_S))
        return ddp_fail(err, DDP_ERR_ARG, "a number of seconds from 0.001 to %d", MAX_TIMEOUT_S);
    *(uint32_t *)to = (uint32_t)(seconds * 1000);
    return DDP_OK;
}

/* Parse the name of a shell. If the name is unknown, leave `err` empty. The error of options_store then lists the
 * shells. */
static ddp_status parse_shell(const char *value, void *to, struct ddp_err *err)
{
    struct ctl_options *o = to;
    const int shell = options_word(&completion_shells, value);
    (void)err;
    if (shell < 0)
        return DDP_ERR_ARG;
    o->action = CTL_COMPLETION;
    o->shell = (enum completion_shell)shell;
    return DDP_OK;
}

#define AT(field) offsetof(struct ctl_options, field)
static const struct option_row rows[] = {
    { .name = "addr",
      .value = "HOST:PORT",
      .parse = parse_addr,
      .at = AT(addr),
      .help = "address of the store; PORT alone is a store on this machine (default: $DDPRUN_STORE_ADDR, "
              "else $MASTER_ADDR:$MASTER_PORT, else the store of your only job on this machine)" },
    { .name = "secret_file",
      .value = "FILE",
      .type = OPTION_TEXT,
      .min = 1,
      .at = AT(secret_file),
      .help =
          "secret of the job, for a store on another host (default: $PET_SECRET_FILE); '-' reads one line "
          "of stdin" },
    { .name = "encrypt",
      .type = OPTION_FLAG,
      .at = AT(encrypt),
      .help = "use TLS with a key from the secret, for a store that was started with --encrypt" },
    { .name = "json",
      .type = OPTION_FLAG,
      .at = AT(json),
      .help = "print the answer, or the version, as JSON" },
    { .name = "job",
      .value = "ID",
      .type = OPTION_TEXT,
      .min = 1,
      .at = AT(job),
      .help =
          "id of the job; needed if you run several jobs on this machine, or the store serves several jobs" },
    { .name = "watch",
      .type = OPTION_FLAG,
      .at = AT(watch),
      .help = "repeat the command every second, until you press q or Ctrl-C" },
    { .name = "prefix",
      .value = "P",
      .type = OPTION_TEXT,
      .at = AT(prefix),
      .help = "keys: print only keys that begin with P (PyTorch's keys begin with '/')" },
    { .name = "limit",
      .value = "N",
      .type = OPTION_INT,
      .at = AT(limit),
      .min = 1,
      .max = 1000000,
      .help = "keys: print at most N keys (default: 1000)" },
    { .name = "rank",
      .value = "RANKS",
      .type = OPTION_TEXT,
      .at = AT(ranks),
      .help = "stacks: print only these ranks, such as 0,2-5 (default: all)" },
    { .name = "native",
      .type = OPTION_FLAG,
      .at = AT(native),
      .help = "stacks: also print frames of C and C++ (stops each Python process for a moment); for programs "
              "without Python, use gdb" },
    { .name = "output",
      .letter = 'o',
      .value = "FILE",
      .type = OPTION_TEXT,
      .at = AT(output),
      .help = "timeline: write FILE.html (a page for browsers) or FILE.json (a trace for Perfetto and "
              "chrome://tracing)" },
    { .name = "timeout",
      .value = "S",
      .parse = parse_timeout,
      .at = AT(timeout_ms),
      .help = "wait at most S seconds for the store (default: 5)" },
    { .name = "help",
      .letter = 'h',
      .type = OPTION_SET,
      .at = AT(action),
      .min = CTL_HELP,
      .help = "print this help and exit" },
    { .name = "version",
      .type = OPTION_SET,
      .at = AT(action),
      .min = CTL_VERSION,
      .help = "print the version and the build, and exit" },
    { .name = "print-completion",
      .value = "SHELL",
      .parse = parse_shell,
      .words = &completion_shells,
      .help = "print the completion script of ddpctl for bash, zsh, fish or tcsh" },
    { .name = "help-man", .type = OPTION_SET, .at = AT(action), .min = CTL_HELP_MAN },
};
static const struct option_table table = OPTION_TABLE(rows, OPTIONS_PLAIN);

/* --- parsing -------------------------------------------------------------------------------------------- */

/* Add the name of an event log, and keep the last name as the argument of the command. */
static ddp_status add_file(struct ctl_options *o, const char *name, struct ddp_err *err)
{
    if (o->n_files == CTL_FILES_MAX)
        return ddp_fail(err, DDP_ERR_ARG,
                        "%s: more than %d files; join event logs with cat, or pass fewer files",
                        o->command->name, CTL_FILES_MAX);
    o->files[o->n_files++] = o->argument = name;
    return DDP_OK;
}

/* Require --output, because the output is HTML or JSON, which a user cannot read on a terminal. */
static ddp_status check_output(const struct ctl_options *o, struct ddp_err *err)
{
    const size_t len = o->output != NULL ? strlen(o->output) : 0;
    if (len > 5 && (strcmp(o->output + len - 5, ".html") == 0 || strcmp(o->output + len - 5, ".json") == 0))
        return DDP_OK;
    if (o->output != NULL)
        return ddp_fail(err, DDP_ERR_ARG, "--output=%.300s: expected a file name that ends in .html or .json",
                        o->output);
    return ddp_fail(err, DDP_ERR_ARG, "%s: no --output; add --output FILE, where FILE ends in .html or .json",
                    o->command->name);
}

/* Check only the form of --rank before the request is sent. The store checks whether the job has these ranks, because
 * the store knows the world size. */
static ddp_status ctl_check_ranks(const struct ctl_options *o, struct ddp_err *err)
{
    enum { RANKS_MAX = 1 << 20 };
    struct rank_set set = { 0 };
    struct ddp_err why;
    const ddp_status status = o->ranks != NULL ? rank_set_parse(&set, o->ranks, RANKS_MAX, &why) : DDP_OK;
    rank_set_free(&set);
    if (status == DDP_OK)
        return DDP_OK;
    if (status != DDP_ERR_ARG)
        return ddp_fail(err, status, "--rank: %s", why.msg);
    return ddp_fail(err, status, "--rank=%.60s: expected %s", o->ranks, why.msg);
}

/* Report an unknown command, and list all commands. */
static ddp_status no_such_command(const char *word, struct ddp_err *err)
{
    char names[300] = "";
    for (const struct ctl_command *c = commands; c->name != NULL; c++)
        options_list_add(names, sizeof(names), c[1].name == NULL, "'%s'", c->name);
    return ddp_fail(err, DDP_ERR_ARG, "'%.60s': unknown command; expected %s", word, names);
}

/* Add a word of the command line to `o`: the command, its argument, or the name of a file. File names are allowed only
 * after commands that send no request to the store. */
static ddp_status store_word(struct ctl_options *o, const char *word, struct ddp_err *err)
{
    if (o->command != NULL && o->command->op == NULL)
        return add_file(o, word, err);
    if (o->command != NULL && (o->command->argument == NULL || o->argument != NULL))
        return ddp_fail(err, DDP_ERR_ARG, "'%.300s': unexpected argument after '%s'; see --help", word,
                        o->command->name);
    if (o->command != NULL) {
        o->argument = word;
        return DDP_OK;
    }
    for (const struct ctl_command *c = commands; c->name != NULL; c++)
        if (strcmp(c->name, word) == 0)
            o->command = c;
    return o->command != NULL ? DDP_OK : no_such_command(word, err);
}

/* Read the address from the variables that ddprun sets for workers. So no option is needed in a shell that a worker has
 * started. Without these variables, the port remains 0. */
static ddp_status address_from_env(struct ctl_options *o, char *(*env)(const char *), struct ddp_err *err)
{
    const char *addr = env("DDPRUN_STORE_ADDR"), *host = env("MASTER_ADDR"), *port = env("MASTER_PORT");
    char text[ENDPOINT_TEXT_MAX] = "";
    struct ddp_err why = { 0 };
    if (addr == NULL && (host == NULL || port == NULL))
        return DDP_OK;
    if (addr == NULL)
        snprintf(text, sizeof(text), "[%s]:%s", host, port);
    ddp_status status = endpoint_parse(addr != NULL ? addr : text, 0, &o->addr, &why);
    if (status == DDP_OK && o->addr.port == 0)
        status = ddp_fail(&why, DDP_ERR_ARG, "the port is missing or 0");
    if (status == DDP_OK)
        return DDP_OK;
    if (addr != NULL)
        return ddp_fail(err, status, "DDPRUN_STORE_ADDR=%.300s: invalid address: %s; pass --addr HOST:PORT",
                        addr, why.msg);
    return ddp_fail(err, status,
                    "MASTER_ADDR=%.300s, MASTER_PORT=%.60s: invalid address: %s; pass --addr HOST:PORT", host,
                    port, why.msg);
}

/* Parse the command line. Options may also follow the command, as in `ddpctl status --json`. So call options_parse
 * again after each word, because options_parse stops at the first word that is not an option. */
ddp_status ctl_options_parse(int argc, char *const argv[], char *(*env)(const char *name),
                             struct ctl_options *out, struct ddp_err *err)
{
    *out = (struct ctl_options){ .timeout_ms = DEFAULT_TIMEOUT_MS };
    for (int at = 0; at < argc;) { /* argv[at]: the program's name or the latest word; options follow it */
        int more;
        ddp_status status = options_parse(&table, argc - at, argv + at, out, &more, err);
        at += more;
        if (status == DDP_OK && out->action == CTL_ASK && at < argc)
            status = store_word(out, argv[at], err);
        if (status != DDP_OK || out->action != CTL_ASK)
            return status;
    }
    if (out->command == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "COMMAND: missing; 'ddpctl --help' lists the commands");
    if (out->command->argument != NULL && out->command->argument[0] != '[' && out->argument == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "%s: missing argument; use ddpctl %s %s", out->command->name,
                        out->command->name, out->command->argument);
    const ddp_status status = ctl_check_ranks(out, err);
    if (status != DDP_OK)
        return status;
    if (out->command->op == NULL)
        return out->command->draws ? check_output(out, err) : DDP_OK;
    return out->addr.port != 0 ? DDP_OK : address_from_env(out, env, err);
}

/* Build the request. Also send options that the command does not use, because the store ignores unknown members. */
char *ctl_options_request(const struct ctl_options *options)
{
    cJSON *request = cJSON_CreateObject();
    cJSON_AddStringToObject(request, "op", options->command->op);
    if (options->argument != NULL)
        cJSON_AddStringToObject(request, "name", options->argument);
    if (options->job != NULL)
        cJSON_AddStringToObject(request, "job", options->job);
    if (options->prefix != NULL)
        cJSON_AddStringToObject(request, "prefix", options->prefix);
    if (options->ranks != NULL)
        cJSON_AddStringToObject(request, "ranks", options->ranks);
    if (options->native)
        cJSON_AddTrueToObject(request, "native");
    if (options->limit > 0)
        cJSON_AddNumberToObject(request, "limit", options->limit);
    char *text = cJSON_PrintUnformatted(request);
    cJSON_Delete(request);
    return text;
}

/* --- texts ---------------------------------------------------------------------------------------------- */

/* Print the commands in two columns, as options_help prints the options. */
static bool command_help(struct buf *out)
{
    bool ok = true;
    for (const struct ctl_command *c = commands; ok && c->name != NULL; c++) {
        const size_t start = out->len;
        ok = buf_printf(out, "  %s %s", c->name, c->argument != NULL ? c->argument : "");
        ok = ok && buf_printf(out, "%*s", HELP_COLUMN - (int)(out->len - start), "") &&
             options_wrap(out, c->help, HELP_COLUMN, HELP_COLUMN);
    }
    return ok;
}

/* Print the commands for the manual page. */
static bool command_man(struct buf *out)
{
    bool ok = true;
    for (const struct ctl_command *c = commands; ok && c->name != NULL; c++)
        ok = buf_printf(out, ".TP\n.BR %s%s%s%s\n%s\n", c->name, c->argument != NULL ? " \" \\fI" : "",
                        c->argument != NULL ? c->argument : "", c->argument != NULL ? "\\fR\"" : "", c->help);
    return ok;
}

static const char head[] =
    "Usage: ddpctl [options] COMMAND\n"
    "\n"
    "Show the state of the store of a ddprun job, or of ddp-rendezvous. Commands that only read\n"
    "do not disturb the job, so you can use them while the job hangs.\n"
    "\n"
    "commands:\n";

/* The meanings of the exit codes, beginning with code 0. Scripts can distinguish a failed request from a request that
 * was not sent. */
static const char *const exit_codes[] = {
    "success",
    "the store cannot be reached or rejects the request, or a file cannot be read or written",
    "the command line is wrong, no job or store was found, or the secret cannot be read",
};
enum { EXIT_CODES = sizeof(exit_codes) / sizeof(exit_codes[0]) };

/* Print the exit codes, as the end of the help. */
static bool exit_status_help(struct buf *out)
{
    bool ok = buf_printf(out, "\nexit status:\n");
    for (int i = 0; ok && i < EXIT_CODES; i++)
        ok = buf_printf(out, "  %d  ", i) &&
             options_wrap(out, exit_codes[i], strlen("  0  "), strlen("  0  "));
    return ok;
}

/* Print the exit codes for the manual page. */
static bool exit_status_man(struct buf *out)
{
    bool ok = buf_printf(out, ".SH EXIT STATUS\n");
    for (int i = 0; ok && i < EXIT_CODES; i++)
        ok = buf_printf(out, ".TP\n.B %d\n%s\n", i, exit_codes[i]);
    return ok;
}

static bool print_completion(enum completion_shell shell, struct buf *out)
{
    struct completion_command words[sizeof(commands) / sizeof(commands[0])];
    struct completion c = { .program = "ddpctl", .options = &table, .commands = words };
    for (const struct ctl_command *row = commands; row->name != NULL; row++)
        words[c.n_commands++] = (struct completion_command){
            .name = row->name, .help = row->help, .files = row->draws || row->format == ctl_format_flight
        };
    return completion_print(shell, &c, out);
}

bool ctl_options_text(const struct ctl_options *options, struct buf *out)
{
    switch (options->action) {
    case CTL_COMPLETION:
        return print_completion(options->shell, out);
    case CTL_HELP:
        return buf_printf(out, "%s", head) && command_help(out) && buf_printf(out, "\noptions:\n") &&
               options_help(&table, out) && exit_status_help(out);
    case CTL_HELP_MAN:
        return buf_printf(out, ".SH COMMANDS\n") && command_man(out) && buf_printf(out, ".SH OPTIONS\n") &&
               options_man(&table, out) && exit_status_man(out);
    case CTL_VERSION:
    case CTL_ASK:
        break;
    }
    return true;
}
