/* options.h -- command-line options as rows of a table; parsing, help text and man page come from the same
 * rows.
 *
 * Both "--name value" and "--name=value" are understood; "--" ends the options. */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include "buf.h"
#include "ddp/error.h"

struct option_row {
    const char *name;  /* without dashes; one of a single letter has one dash, or two */
    const char *value; /* what stands for the value in the help; NULL = the option takes none */
    const char *help;  /* one line or more, separated by '\n' */
    /* Store the value ("" when the option takes none). On an error `err` says what is wrong with the value;
     * the option's name is put in front by options_parse. */
    ddp_status (*set)(void *into, const char *value, struct ddp_err *err);
};

/* A row without help is understood, but not shown. The last row has no name. */

/* Parse argv[1..]; *rest (may be NULL) gets the index of the first argument that is no option, where parsing
 * ends. With `rest` NULL such an argument is an error. DDP_ERR_ARG: err names the option and what to do. */
ddp_status options_parse(const struct option_row *table, int argc, char *const argv[], void *into, int *rest,
                         struct ddp_err *err);

/* The lines of the options for --help, or for the man page (roff). False when memory is short. */
bool options_help(const struct option_row *table, struct buf *out);
bool options_man(const struct option_row *table, struct buf *out);

#endif
