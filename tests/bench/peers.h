/* peers.h -- the compared launchers, and how each starts local workers. */
#ifndef TESTS_BENCH_PEERS_H
#define TESTS_BENCH_PEERS_H

#include <stdbool.h>
#include <stddef.h>

enum peer_id { PEER_DDPRUN, PEER_HYDRA, PEER_OPENMPI, PEER_TORCHRUN, PEER_SRUN, PEERS };
enum { PEER_ARGS = 24, PEER_WORDS = 14 };

struct peer {
    const char *name;
    const char *version_command;   /* shell command; no output: the launcher is missing */
    const char *start[PEER_WORDS]; /* "%n": number of workers; "%t": the option `tagged` or nothing */
    const char *tagged;            /* option for a rank before each line; NULL: always printed */
    const char *prefix;            /* prefix with the rank; '#': digits */
    int start_ms;                  /* longest start on a busy machine */
    bool has_agent;                /* a separate process is between the launcher and the workers */
    /* filled by peers_open */
    char version[48]; /* "" = not installed */
};

extern struct peer peers[PEERS];

/* Find the installed launchers. `ddprun` is the path of the program under test, and is borrowed. */
void peers_open(const char *ddprun);

/* Write the command line for `workers` workers to `argv`, which ends with NULL. `args` is the workers' program and its
 * arguments. The text of `workers` is in static memory. */
void peer_argv(const struct peer *p, bool tagged, int workers, const char *const args[],
               char *argv[PEER_ARGS]);

/* Print "name version, name version, ...". */
void peers_print_versions(void);

#endif
