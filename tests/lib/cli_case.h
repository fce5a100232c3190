/* cli_case.h -- a command line, the parsed options, and the error text of a rejected command line. The tests include
 * this file, so each test is only a command line and its expected result. */
#ifndef CLI_CASE_H
#define CLI_CASE_H

#include "command_line.h"

#include <criterion/criterion.h>

static struct cli cli;
static struct ddp_err err;
static char *no_environment[] = { NULL };

/* Parse `words` with the variables of `environment`. Copy the array first, because `cli` still points into the copy
 * after the call. */
static inline ddp_status parse_in(char *const *environment, char *const *words)
{
    static char *argv[32];
    int argc = 0;
    while (words[argc] != NULL) {
        argv[argc] = words[argc];
        argc++;
    }
    argv[argc] = NULL;
    err = (struct ddp_err){ 0 };
    return cli_parse(&cli, argc, argv, environment, &err);
}

#define WORDS(...) ((char *[]){ "ddprun", __VA_ARGS__, NULL })
#define PARSE(...) cr_assert_eq(parse_in(no_environment, WORDS(__VA_ARGS__)), DDP_OK, "%s", err.msg)

static inline void refused(char *const *environment, char *const *words, const char *message)
{
    cr_assert_eq(parse_in(environment, words), DDP_ERR_ARG, "taken, but should say: %s", message);
    cr_assert_str_eq(err.msg, message);
}

#define REFUSED(message, ...) refused(no_environment, WORDS(__VA_ARGS__), message)

#endif
