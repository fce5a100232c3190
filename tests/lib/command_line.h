/* command_line.h -- the command line as ddprun's main parses it, without a scheduler. Fuzz programs include this file
 * too, because this file needs no library of the tests. */
#ifndef COMMAND_LINE_H
#define COMMAND_LINE_H

#include "cli/cli.h"

/* Parse a command line as cli_read does. After a failure nothing needs to be freed. */
static inline ddp_status cli_parse(struct cli *cli, int argc, char *const *argv, char *const *block,
                                   struct ddp_err *err)
{
    ddp_status status = cli_read(cli, argc, argv, block, err);
    if (status != DDP_OK || cli_only_prints(cli))
        return status;
    status = cli_check(cli, err);
    if (status != DDP_OK)
        cli_free(cli);
    return status;
}

#endif
