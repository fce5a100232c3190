/* launcher.c -- the command line of each launcher for N workers on this machine. Each command line is a row, so that
 * every launcher starts the same workers. */
#include "trial.h"

#include <stdio.h>
#include <string.h>

/* "%n" stands for the number of workers, "%g" for the grace time. */
static const char *const start[BY_COUNT][12] = {
    [BY_PLAIN] = { "ddprun", "--standalone", "--contain=plain", "--grace=%gms", "--nproc_per_node=%n" },
    [BY_CGROUP] = { "ddprun", "--standalone", "--contain=cgroup", "--grace=%gms", "--nproc_per_node=%n" },
    [BY_PIDNS_LAYER] = { "ddprun", "--standalone", "--contain=pidns", "--grace=%gms", "--nproc_per_node=%n" },
    [BY_HYDRA] = { "mpiexec.hydra", "-n", "%n" },
    [BY_OPENMPI] = { "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
                     "%n" },
    [BY_TORCHRUN] = { "torchrun", "--standalone", "--no_python", "--nproc_per_node=%n" },
};

static const char *filled(const char *pattern, int workers)
{
    static char text[4][64];
    static int next;
    const char *at = strchr(pattern, '%');
    if (at == NULL)
        return pattern;
    char *out = text[next++ % 4];
    snprintf(out, sizeof(text[0]), "%.*s%d%s", (int)(at - pattern), pattern,
             at[1] == 'n' ? workers : TRIAL_GRACE_MS, at + 2);
    return out;
}

void launcher_argv(enum launcher by, const struct trial *t, int workers, const char *const args[],
                   const char *argv[LAUNCHER_ARGS])
{
    static char filter[4096];
    int n = 0;
    if (t->without != NULL) { /* the program called "without" is in the directory of the worker */
        snprintf(filter, sizeof(filter), "%.*s/without", (int)(strrchr(t->worker, '/') - t->worker),
                 t->worker);
        argv[n++] = filter;
        argv[n++] = t->without;
        argv[n++] = "--";
    }
    const int program = n;
    for (int i = 0; start[by][i] != NULL; i++)
        argv[n++] = filled(start[by][i], workers);
    if (by < BY_PEERS)
        argv[program] = t->ddprun;
    for (; *args != NULL && n < LAUNCHER_ARGS - 1; args++)
        argv[n++] = *args;
    argv[n] = NULL;
}

/* Return the limit for the end of a job. torchrun waits 30 s between SIGTERM and SIGKILL, and no option shortens this
 * time. mpirun and Hydra have no option for their grace period either, so their limit is generous. */
uint64_t launcher_limit_ms(const struct trial *t)
{
    if (t->by < BY_PEERS)
        return (uint64_t)(TRIAL_GRACE_MS + t->after_ms);
    return t->by == BY_TORCHRUN ? 35000 : 12000;
}
