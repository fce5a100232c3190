/* cli_torchrun.c -- the defaults of a ddprun that is called torchrun, and which of its options may be empty. */
#include "cli/cli_table.h"

#include <stddef.h>
#include <string.h>

/* Defaults that differ. What depends on other options is decided where they meet: the job id in plan.c,
 * prefixes in plan.c, files in worker.c, Python in worker.c. */
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

/* An empty value of these is torchrun's default, as of --rdzv_endpoint=$UNSET in a script: Python's `if not value`. (Of signals
 * it is none, after a traceback; that nobody wants.) That of others is an error there, too, or a text that is empty
 * (--role=), or no ranks and no words. */
#define FIELD(name) offsetof(struct cli, name), sizeof(((struct cli *)NULL)->name)
static const struct {
    enum cli_option option;
    size_t at, size;
} can_be_empty[] = {
    { OPT_RDZV_ENDPOINT, FIELD(endpoint) },  { OPT_RDZV_ID, FIELD(job) },
    { OPT_MASTER_ADDR, FIELD(master_addr) }, { OPT_LOCAL_ADDR, FIELD(local_addr) },
    { OPT_LOG_DIR, FIELD(log_dir) },         { OPT_PREFIX_TEMPLATE, FIELD(prefix_template) },
    { OPT_SIGNALS, FIELD(stop_signals) },
};
#undef FIELD

bool cli_forget(struct cli *cli, enum cli_option option)
{
    for (size_t i = 0; i < sizeof(can_be_empty) / sizeof(can_be_empty[0]); i++)
        if (can_be_empty[i].option == option) {
            memset((char *)cli + can_be_empty[i].at, 0, can_be_empty[i].size);
            return true;
        }
    return false;
}

bool cli_is_torchrun(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash != NULL ? slash + 1 : path, "torchrun") == 0;
}
