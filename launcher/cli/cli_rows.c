/* cli_rows.c -- see cli_table.h: the rows of options.h. */
#include "cli/cli_table.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>

const struct cli_row cli_rows[OPTIONS] = {
#define X(id, name, letter, kind, field, value, preset, in_environment, whose, section, help) \
    { name,  letter, KIND_##kind,    cli_value_##kind, offsetof(struct cli, field),           \
      value, preset, in_environment, WHOSE_##whose,    SECTION_##section,                     \
      help },
    DDPRUN_OPTIONS(X)
#undef X
};

/* torchrun's rule: PET_ and the option's name in capitals. */
void cli_pet_name(char out[CLI_PET_MAX], const struct cli_row *row)
{
    snprintf(out, CLI_PET_MAX, "PET_%s", row->name);
    for (char *p = out; *p != '\0'; p++)
        *p = (char)toupper((unsigned char)*p);
}
