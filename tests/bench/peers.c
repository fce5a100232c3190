/* peers.c -- see peers.h. One row for each launcher. */
#include "peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rows differ in how long a launcher waits between SIGTERM and SIGKILL. ddprun gets 1 s, so that it can be compared
 * with Open MPI, which waits for seconds. Hydra does not wait. torchrun waits 30 s, which cannot be changed. With
 * Python 3.11, Debian's torchrun 1.13 needs options for stdout and stderr. Their values here are the defaults of newer
 * versions. Open MPI needs options to run as root, and to run more workers than cores. */
struct peer peers[PEERS] = {
    [PEER_DDPRUN] = { .name = "ddprun",
                      .version_command = "\"$DDPRUN\" --version | grep -oE '[0-9]+\\.[0-9.]+'",
                      .start = { "ddprun", "--standalone", "--grace=1s", "--nproc_per_node=%n" },
                      .prefix = "[#] ",
                      .start_ms = 10000,
                      .has_agent = true },
    [PEER_HYDRA] = { .name = "mpiexec.hydra",
                     .version_command = "mpiexec.hydra --version | sed -n 's/^ *Version: *//p'",
                     .start = { "mpiexec.hydra", "%t", "-n", "%n" },
                     .tagged = "-prepend-rank",
                     .prefix = "[#] ",
                     .start_ms = 10000,
                     .has_agent = true },
    [PEER_OPENMPI] = { .name = "mpirun.openmpi",
                       .version_command = "mpirun.openmpi --version | sed -n 's/^mpirun.* //p'",
                       .start = { "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to",
                                  "none", "%t", "-n", "%n" },
                       .tagged = "--tag-output",
                       .prefix = "[#,#]<stdout>:",
                       .start_ms = 10000 },
    [PEER_TORCHRUN] = { .name = "torchrun",
                        .version_command = "$(sed -n '1s/^#!//p' \"$(command -v torchrun)\") -c "
                                           "'import torch; print(torch.__version__)'",
                        .start = { "torchrun", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0",
                                   "--redirects=1", "--tee=1", "--no_python", "--nproc_per_node=%n" },
                        .prefix = "[default#]:",
                        .start_ms = 60000 },
    [PEER_SRUN] = { .name = "srun",
                    .version_command = "sinfo >&2 && srun --version | sed 's/^slurm[^ ]* //'",
                    .start = { "srun", "%t", "-n", "%n", "--overcommit" },
                    .tagged = "-l",
                    .prefix = "#: ",
                    .start_ms = 20000 },
};

static void ask_version(struct peer *p)
{
    char command[256];
    snprintf(command, sizeof(command), "{ %s; } 2>/dev/null", p->version_command);
    FILE *answer = popen(command, "re");
    if (answer == NULL || fgets(p->version, sizeof(p->version), answer) == NULL)
        p->version[0] = '\0';
    p->version[strcspn(p->version, "\n")] = '\0';
    if (answer != NULL)
        pclose(answer);
}

void peers_open(const char *ddprun)
{
    setenv("DDPRUN", ddprun, 1);
    peers[PEER_DDPRUN].start[0] = ddprun;
    for (int i = 0; i < PEERS; i++)
        ask_version(&peers[i]);
}

static const char *filled(const char *word, int workers)
{
    static char text[64];
    const char *at = strstr(word, "%n");
    if (at == NULL)
        return word;
    snprintf(text, sizeof(text), "%.*s%d", (int)(at - word), word, workers);
    return text;
}

void peer_argv(const struct peer *p, bool tagged, int workers, const char *const args[],
               char *argv[PEER_ARGS])
{
    int n = 0;
    for (int i = 0; i < PEER_WORDS && p->start[i] != NULL; i++) {
        if (strcmp(p->start[i], "%t") != 0)
            argv[n++] = (char *)filled(p->start[i], workers);
        else if (tagged)
            argv[n++] = (char *)p->tagged;
    }
    for (; *args != NULL && n < PEER_ARGS - 1; args++)
        argv[n++] = (char *)*args;
    argv[n] = NULL;
}

void peers_print_versions(void)
{
    const char *between = "";
    for (int i = 0; i < PEERS; i++) {
        if (peers[i].version[0] == '\0')
            continue;
        printf("%s%s %s", between, peers[i].name, peers[i].version);
        between = ", ";
    }
    printf("\n");
}
