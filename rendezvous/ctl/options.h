/* options.h -- the command line of ddpctl: a table of options and a table of commands. The module is pure: ddpctl.c
 * passes the arguments and the environment, and prints the texts. Strings in struct ctl_options point into argv, which
 * must outlive the struct. */
#ifndef RENDEZVOUS_CTL_OPTIONS_H
#define RENDEZVOUS_CTL_OPTIONS_H

#include "base/endpoint.h"
#include "base/options.h"

#include <cjson/cJSON.h>
#include <stdint.h>

/* A command. The parser, the request, the output, the help and the completion use the table of commands. */
struct ctl_command {
    const char *name;     /* NULL ends the table */
    const char *argument; /* name of the argument in the help; NULL if the command takes no argument */
    const char *help;     /* one line */
    const char *op;       /* op of the CONTROL request; NULL if the command needs no store */
    bool draws;           /* the command writes an HTML page or a trace to --output */
    bool (*format)(const cJSON *answer, struct buf *out);
};

enum ctl_action { CTL_ASK, CTL_HELP, CTL_HELP_MAN, CTL_VERSION, CTL_COMPLETION };

enum { CTL_FILES_MAX = 4096 };

struct ctl_options {
    enum ctl_action action;
    enum completion_shell shell; /* only for CTL_COMPLETION */
    const struct ctl_command *command;
    const char *argument; /* borrowed from argv; NULL if none */
    const char *prefix, *job, *ranks;
    const char *output;      /* NULL if not set */
    const char *secret_file; /* borrowed from argv; NULL if not set */
    const char *files[CTL_FILES_MAX];
    size_t n_files;
    int limit;            /* 0 for the store's default */
    struct endpoint addr; /* if the port is 0, ctl_jobs_choose finds the store; host "" is this host */
    uint32_t timeout_ms;
    bool json, watch, native, encrypt;
};

/* Apply defaults, then the variables that `env` (getenv) returns, then argv[1..]. Return DDP_OK, or DDP_ERR_ARG with
 * a message for the user in `err`. */
ddp_status ctl_options_parse(int argc, char *const argv[], char *(*env)(const char *name),
                             struct ctl_options *out, struct ddp_err *err);

/* Return the CONTROL request of CTL_ASK, which the caller frees, or NULL if memory is short. */
char *ctl_options_request(const struct ctl_options *options);

/* Append the output of CTL_HELP, CTL_HELP_MAN or CTL_COMPLETION. Return false if memory is short. */
bool ctl_options_text(const struct ctl_options *options, struct buf *out);

#endif
