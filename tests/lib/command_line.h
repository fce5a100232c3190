/* command_line.h -- the command line as ddprun parses it without a scheduler, also for fuzz programs, which lack the
 * tests' libraries. */
#ifndef COMMAND_LINE_H
#define COMMAND_LINE_H

#include "cli/cli.h"

/* Parse a command line as cli_read does. A failure leaves nothing to free. */
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
