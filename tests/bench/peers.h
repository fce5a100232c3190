/* peers.h -- the launchers that are compared, and the command line with which each launcher starts local workers.
 * The benchmarks of launchers share this table, so that all use the same options. */
#ifndef TESTS_BENCH_PEERS_H
#define TESTS_BENCH_PEERS_H

#include <stdbool.h>
#include <stddef.h>

enum peer_id { PEER_DDPRUN, PEER_HYDRA, PEER_OPENMPI, PEER_TORCHRUN, PEER_SRUN, PEERS };
enum { PEER_ARGS = 24, PEER_WORDS = 14 };

struct peer {
    const char *name;
    const char *version_command;   /* a shell command, which prints nothing if this launcher is missing */
    const char *start[PEER_WORDS]; /* "%n" = number of workers, "%t" = the option `tagged` or nothing */
    /* option that lets the launcher print the rank before each line; NULL if it is always printed */
    const char *tagged;
    const char *prefix; /* the text with the rank before each line; '#' = digits */
    int start_ms;       /* longest time of a start on a busy machine, in ms */
    bool has_agent;     /* a separate process is between the launcher and the workers */
    /* filled by peers_open */
    char version[48]; /* "" = not installed */
};

extern struct peer peers[PEERS];

/* Find out which launchers are installed. `ddprun` is the path of the program under test, and is borrowed. */
void peers_open(const char *ddprun);

/* Write the command line for `workers` workers to `argv`, with NULL at the end. `args` is the program of the workers
 * and its arguments. The text of `workers` is in static memory. */
void peer_argv(const struct peer *p, bool tagged, int workers, const char *const args[],
               char *argv[PEER_ARGS]);

/* Print "name version, name version, ...". */
void peers_print_versions(void);

#endif
