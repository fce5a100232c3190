/* cli_table.h -- private to the files of the command line and its tests: the rows of options.h as data. */
#ifndef LAUNCHER_CLI_TABLE_H
#define LAUNCHER_CLI_TABLE_H

#include "base/options.h"
#include "cli/cli.h"

enum cli_section {
#define X(id, title) SECTION_##id,
    OPTION_SECTIONS(X)
#undef X
        SECTIONS
};

enum cli_whose { WHOSE_FIRST, WHOSE_THEIRS, WHOSE_OURS };

/* values.c */
extern const struct option_row cli_rows[OPTIONS];
extern const struct option_table cli_table;

/* Return the option's default as it would be typed, or NULL. Under the name torchrun it is torchrun's default. */
const char *cli_preset(const struct cli *cli, enum cli_option option);

#endif
