/* cli_torchrun.c -- the defaults of a ddprun that is called torchrun. */
#include "cli/cli_table.h"

#include <string.h>

/* Defaults that differ. What depends on other options is decided where they meet: the job id in plan_meeting.c,
 * prefixes in plan_make.c, files in plan_output.c, Python in program.c. */
static const struct {
    enum cli_option option;
    const char *preset;
} torchruns[] = {
    { OPT_NPROC_PER_NODE, "1" },
    { OPT_NODE_RANK, "0" },
    { OPT_SCHEDULER, "none" },
    { OPT_SIGNALS, "SIGTERM,SIGINT,SIGHUP,SIGQUIT" },
};

const char *cli_preset(const struct cli *cli, enum cli_option option)
{
    for (size_t i = 0; cli->torchrun && i < sizeof(torchruns) / sizeof(torchruns[0]); i++)
        if (torchruns[i].option == option)
            return torchruns[i].preset;
    return cli_rows[option].preset;
}

bool cli_is_torchrun(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash != NULL ? slash + 1 : path, "torchrun") == 0;
}
