/* args.h -- command lines as a table: one row parses, gives the default and prints its help.
 *
 * --name VALUE and --name=VALUE, with '_' or '-' inside the name. Everything must be an option; what is not
 * is refused with the word that was not understood. */
#ifndef TRAIN_ARGS_H
#define TRAIN_ARGS_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum arg_kind {
    ARG_FLAG,   /* bool */
    ARG_COUNT,  /* uint64_t, min..max */
    ARG_REAL,   /* double, above 0 */
    ARG_FROM_0, /* double, 0 or more */
    ARG_TEXT,   /* const char *, borrowed from argv */
    ARG_CHOICE, /* int, index into `choices` */
};

struct arg_row {
    const char *name;
    const char *arg; /* how the help calls the value; NULL for a flag */
    enum arg_kind kind;
    size_t offset;        /* of the field in the program's struct */
    const char *fallback; /* default, parsed like a value given; NULL leaves the field as it is */
    uint64_t min, max;
    const char *const *choices; /* NULL-terminated */
    const char *help;
};

/* Fill `into` from defaults, then from argv[1..]. DDP_ERR_ARG says which word is wrong and why. */
ddp_status args_parse(const struct arg_row *rows, size_t n, void *into, int argc, char *const argv[],
                      struct ddp_err *err);

/* What `row` was told, as a number that can be compared with another process's: of a text only whether there is one. */
uint64_t args_fact(const struct arg_row *row, const void *from);

/* Such a number in words: "0.01", "adamw", "given". */
void args_fact_text(const struct arg_row *row, uint64_t fact, char to[32]);

void args_help(FILE *to, const struct arg_row *rows, size_t n);

#endif
