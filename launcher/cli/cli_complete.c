/* cli_complete.c -- --print_completion: what makes a shell complete our options, from the rows that parse them.
 *
 *     ddprun --print_completion=bash >/etc/bash_completion.d/ddprun */
#include "cli/cli_table.h"

bool cli_print_completion(const struct cli *cli, struct buf *out)
{
    struct completion_option options[OPTIONS];
    const struct completion c = { .program = cli->torchrun ? "torchrun" : "ddprun",
                                  .options = options,
                                  .n_options = OPTIONS };
    for (int i = 0; i < OPTIONS; i++) {
        const struct cli_row *row = &cli_rows[i];
        options[i] = (struct completion_option){ .name = row->name,
                                                 .letter = row->letter,
                                                 .value = cli_is_switch(row) ? NULL : row->value,
                                                 .help = row->help };
        options[i].words = cli_words(row->kind, &options[i].n_words);
    }
    return completion_print(cli->completion, &c, out);
}
